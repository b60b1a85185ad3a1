"""The classes that all studies share: the request for a study, and its result."""

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
"""A function that is called with each line of progress."""


@dataclass(frozen=True)
class Request:
    """The options of a study's run."""

    on_program: Say
    """Called with the name of each program as it starts."""
    say: Say = lambda line: None
    """Called with all other progress."""
    max_instructions: int | None = None
    """The instructions after which each program is ended; None: programs run to their end."""
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
    """Whether it holds for programs of today, where others like the paper's decide the claim."""


@dataclass(frozen=True)
class Reproduction(ABC):
    """A study that has run; each study has a frozen dataclass of its own."""

    folder: ClassVar[str]
    """The name of the study's folder."""
    measurements: Sequence[Any] = ()
    """One for each program; of programs like the paper's where a study has them. The method `flat`
    of each gives the record of the program.
    """
    skipped: Mapping[str, str] = field(default_factory=dict)
    """The programs that were left out, and why."""
    max_instructions: int | None = None
    """The instructions after which each program was ended; None where there was no limit."""
    today: Sequence[Any] = ()
    """Measurements of programs of today, where programs like the paper's decide the claims."""
    is_partial: bool = False
    """Whether Ctrl-C ended the study, which then has the results up to that time."""

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
        """The measured numbers that the claims are about, by name."""
        return {}

    def answered(self) -> list[Answered]:
        """Each claim and the answer of the measurements."""
        return answers(self.folder, self.values())

    def values_today(self) -> Values:
        """The numbers of `values`, of the programs of today."""
        return {}

    def answered_today(self) -> dict[str, Found]:
        """The answers of programs of today by the key of the claim, where other programs decide."""
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
        """A flat record for each row of the table in Parquet; programs of today come last."""
        return [measured.flat() for measured in (*self.measurements, *self.today)]

    def page_names(self) -> dict[str, Any]:
        """The names that the template `page.md` uses, beside those of the study's module."""
        return {"claims": self.answered(), "today": self.answered_today()}

    def markdown(self) -> str:
        """The page: every table beside the paper's numbers."""
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
