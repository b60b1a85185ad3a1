"""The parts that all studies have in common: the request for one, and its result."""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from typing import Any, ClassVar

from octavo.studies.claims import Answered, Found, Values, answers, claims_document, found_by_key
from octavo.studies.page import render_page

Say = Callable[[str], None]
"""Hears a line of progress."""


@dataclass(frozen=True)
class Request:
    """How a study is to be run."""

    on_program: Say
    """Hears the name of each program as it starts."""
    say: Say = lambda line: None
    """Hears the progress of everything else."""
    max_instructions: int | None = None
    """Each program ends after so many instructions; None: when it is done."""
    large: bool = False
    """Workloads of the paper's sizes, where a study has two sizes."""


@dataclass(frozen=True)
class Verdict:
    """A claim of a paper and whether it holds here; None: nothing measured decides it."""

    where: str
    paper: str
    ours: str
    holds: bool | None
    today: bool | None = None
    """Of programs of today, where others that are like the paper's decide the claim."""


@dataclass(frozen=True)
class Reproduction(ABC):
    """A study that has run; each study has a frozen dataclass of its own."""

    folder: ClassVar[str]
    """The name of the study's folder."""
    measurements: Sequence[Any] = ()
    """One for each program, like the paper's where a study has such; their method `flat` gives the
    record of the program.
    """
    skipped: Mapping[str, str] = field(default_factory=dict)
    """The programs that were left out, and why."""
    max_instructions: int | None = None
    """After how many each program was ended; None where it was not."""
    today: Sequence[Any] = ()
    """The same of programs of today, where those like the paper's decide the claims."""
    is_partial: bool = False
    """Whether Ctrl-C ended it: it has what was done by then."""

    def document(self) -> dict[str, Any]:
        """Plain data for the JSON; each study adds what it has measured."""
        return {
            "schema": f"octavo/{self.folder.replace('_', '-')}/1",
            "claims": self.claims(),
            "max_instructions": self.max_instructions,
            "skipped": self.skipped,
        }

    def claims(self) -> list[dict[str, Any]]:
        """Plain data of each claim and its answer."""
        return claims_document(self.answered())

    def values(self) -> Values:
        """The measured numbers that the claims speak of, by name."""
        return {}

    def answered(self) -> list[Answered]:
        """Each claim and the answer of the measurements."""
        return answers(self.folder, self.values())

    def values_today(self) -> Values:
        """The same numbers, of the programs of today."""
        return {}

    def answered_today(self) -> dict[str, Found]:
        """The answers of today's programs by the key of the claim, where others decide."""
        return found_by_key(self.folder, self.values_today()) if self.today else {}

    def verdicts(self) -> list[Verdict]:
        """Each claim and whether it holds. A claim that is decided program by program holds where
        more programs agree than not.
        """
        today = self.answered_today()
        verdicts = []
        for claim in self.claims():
            if "agree" in claim:
                agree, decided = claim["agree"], claim["agree"] + claim["disagree"]
                ours = f"{agree} of {decided} programs agree"
                holds = 2 * agree > decided if decided else None
            else:
                ours, holds = claim["ours"] or "", claim["agrees"]
            found = today.get(claim["key"])
            of_today = None if found is None else found.agrees
            verdicts.append(Verdict(claim.get("where", ""), claim["paper"], ours, holds, of_today))
        return verdicts

    def records(self) -> list[dict[str, Any]]:
        """A flat record for each row of the table in Parquet; those of today come last."""
        return [measured.flat() for measured in (*self.measurements, *self.today)]

    def page_names(self) -> dict[str, Any]:
        """The names that the template `page.md` uses, beside those of the study's module."""
        return {"claims": self.answered(), "today": self.answered_today()}

    def markdown(self) -> str:
        """The page: every table beside what the paper says."""
        return render_page(self.folder, study=self, **self.page_names())

    def figures(self) -> dict[str, dict[str, Any]]:
        """Specifications of charts by the name of their file; none without `figures.py`."""
        name = f"octavo.studies.{self.folder}.figures"
        if find_spec(name) is None:
            return {}
        made: dict[str, dict[str, Any]] = import_module(name).figures_of(self)
        return made


def reproduce(name: str, request: Request) -> Reproduction:
    """Runs a study of STUDIES on the programs of this machine."""
    module = import_module(f"octavo.studies.{name.replace('-', '_')}")
    done: Reproduction = module.run_study(request)
    return done
