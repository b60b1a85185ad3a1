"""Claims of a paper as data, and the answers of the measurements.

A study's `study.toml` has a table `[claim.KEY]` for each claim, in the order of the report:

- `where` is the place in the paper, and `paper` its statement, with the number to expect;
- `of` is an expression for the measured values. Where its result is none or empty, the claim is
  undecided;
- `ours` is the answer in words, and `agrees` an expression for whether the answer agrees;
- `line` says in words when the answer counts as agreement, and `why` gives a possible cause of a
  difference;
- `test` is an expression for the measured values of the experiment that tests that cause: the same
  measurement with one thing changed. `tested` is the result in words, shown where the claim
  differs; nothing is shown where the experiment was not made (`test` is none or empty).

`of`, `agrees` and `test` are Jinja's expressions, `ours`, `why` and `tested` its templates, all of
them in its sandbox, over the named values of the study, `of`, KIB, MIB, and FUNCTIONS and FILTERS;
`tested` has `test` as well. Templates may use the macros and texts that the file's `shared`
defines, too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import geometric_mean, mean, median
from typing import Any

from jinja2 import PackageLoader, StrictUndefined, Template, meta
from jinja2.sandbox import ImmutableSandboxedEnvironment

from octavo.base.errors import choose
from octavo.base.toml import read_toml
from octavo.base.units import (
    KIB,
    MIB,
    format_bytes,
    format_count,
    format_cpi,
    format_growth,
    format_mpki,
    format_share,
)

Values = Mapping[str, Any]
"""Measured numbers of a study, by name."""


def _count_between(values: Iterable[float], low: float, high: float = math.inf) -> int:
    """How many values lie between two numbers, both included."""
    return sum(low <= value <= high for value in values)


_CALLED: tuple[Callable[..., Any], ...] = (
    *(abs, all, any, len, max, min, sum, _count_between, mean, median, geometric_mean),
)
FUNCTIONS = {function.__name__.lstrip("_"): function for function in _CALLED}
_FORMATS: tuple[Callable[..., str], ...] = (
    *(format_bytes, format_count, format_cpi, format_growth, format_mpki, format_share, format),
)
FILTERS = {function.__name__.removeprefix("format_"): function for function in _FORMATS}
"""`format` is Python's: `{{ 0.5 | format(".0%") }}`."""


@dataclass(frozen=True)
class Found:
    """The measured answer to a claim."""

    ours: str
    agrees: bool
    why: str = ""
    """A possible cause of a difference."""
    tested: str = ""
    """The result of the experiment that tests that cause; empty where none was made."""


@dataclass(frozen=True)
class Claim:
    """A statement of the paper that has a number, or that a number decides."""

    key: str
    paper: str
    line: str
    of: str
    agrees: str
    where: str = ""
    ours: str = ""
    why: str = ""
    test: str = ""
    tested: str = ""
    shared: str = ""

    def find(self, values: Values) -> Found | None:
        """The answer of the measurements; None if they do not decide it. Raises UsageError if an
        expression has a name that no value has.
        """
        measured = self._value(self.of, values)
        if _is_missing(measured):
            return None
        values = {**values, "of": measured}
        agrees = bool(self._value(self.agrees, values))
        ours, why = self._text(self.ours, values), self._text(self.why, values)
        return Found(ours, agrees, why, self._tested(values))

    def _tested(self, values: Values) -> str:
        """The result of the experiment in words; empty if it was not made."""
        test = self._value(self.test, values) if self.test else None
        return "" if _is_missing(test) else self._text(self.tested, {**values, "test": test})

    def _text(self, template: str, values: Values) -> str:
        self._check(self.shared + template, values)
        return _template(self.shared + template).render(values).strip()

    def _value(self, expression: str, values: Values) -> Any:
        self._check(f"{{{{ {expression} }}}}", values)
        return environment().compile_expression(expression, undefined_to_none=False)(**values)

    def _check(self, source: str, values: Values) -> None:
        known = [*values, *environment().globals]
        for name in sorted(_names(source)):
            choose(name, known, f"name in the claim {self.key}")


def _is_missing(measured: Any) -> bool:
    """Whether nothing was measured."""
    return measured is None or (isinstance(measured, Collection) and not measured)


Answered = tuple[Claim, Found | None]
"""A claim and its answer."""


@cache
def load_study(study: str) -> dict[str, Any]:
    """The contents of `study.toml`, by the name of its folder."""
    return read_toml(Path(__file__).with_name(study) / "study.toml")


@cache
def load_claims(study: str) -> tuple[Claim, ...]:
    """The claims of a study."""
    table = load_study(study)
    shared = table.get("shared", "")
    return tuple(Claim(key, **fields, shared=shared) for key, fields in table["claim"].items())


def answers(study: str, values: Values) -> list[Answered]:
    """Each claim of a study and the answer of its measurements."""
    return [(claim, claim.find(values)) for claim in load_claims(study)]


def found_by_key(study: str, values: Values) -> dict[str, Found]:
    """The answers to the claims that the values decide, by the key of the claim."""
    return {claim.key: found for claim, found in answers(study, values) if found is not None}


def claims_document(answered: Iterable[Answered]) -> list[dict[str, Any]]:
    """Plain data for the JSON."""
    return [
        {
            "key": claim.key,
            "where": claim.where,
            "paper": claim.paper,
            "line": claim.line,
            "ours": None if found is None else found.ours,
            "agrees": None if found is None else found.agrees,
            "tested": None if found is None else found.tested or None,
        }
        for claim, found in answered
    ]


@cache
def environment() -> ImmutableSandboxedEnvironment:
    """Evaluates expressions and templates; an unknown name is an error."""
    made = ImmutableSandboxedEnvironment(
        loader=PackageLoader("octavo.studies", "."),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.globals.update(FUNCTIONS, KIB=KIB, MIB=MIB)
    made.filters.update(FILTERS)
    return made


@cache
def _template(source: str) -> Template:
    return environment().from_string(source)


@cache
def _names(source: str) -> frozenset[str]:
    """The names that a template uses and does not define."""
    return frozenset(meta.find_undeclared_variables(environment().parse(source)))
