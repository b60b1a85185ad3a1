"""All studies, one after another, and one report: which claims of the papers hold here.

The directory of a reproduction has a directory for each finished study, whose `manifest.json` is
written last, and the parts of the study under way. So a reproduction that ended early continues
where it was.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from octavo.base.errors import CannotRun, UsageError
from octavo.base.files import OutputDirectory, replace_text, text_writer, to_json
from octavo.base.host import describe_host
from octavo.base.units import format_count, format_duration
from octavo.studies import STUDIES
from octavo.studies.page import render_template
from octavo.studies.parts import Keeper, keeping
from octavo.studies.reproduction import Reproduction, Request, Verdict, reproduce

SCHEMA = "octavo/reproduce-all/1"
SETTINGS = "settings.json"
REPORT = "report"
_PARTS = "parts"
_MANIFEST = "manifest.json"
_TITLES = {
    "base-page-size": "The best base page size (Weisberg and Wiseman, IRI 2009)",
    "two-page-sizes": "Two page sizes (Talluri et al., ISCA 1992)",
    "tailored-page-sizes": "Tailored page sizes (Guvenilir and Patt, ISCA 2020)",
    "softvm": "Software-managed translation (Jacob and Mudge, HPCA 1997)",
    "perforated-pages": "Perforated pages (Park et al., ISCA 2020)",
}
_USUAL_MINUTES = {
    "base-page-size": (1, 15),
    "two-page-sizes": (2, 50),
    "tailored-page-sizes": (5, 60),
    "softvm": (3, 60),
    "perforated-pages": (25, 90),
}
"""Rough minutes on two processors: apart from programs, and in all with whole programs."""
_USUAL_INSTRUCTIONS = 400_000_000
"""Rough length of a program; a lower limit shortens the study in proportion."""
Writers = Mapping[str, Callable[[Path], None]]
"""Writers of files by their names."""


@dataclass(frozen=True)
class Finished:
    """A study that has run to its end."""

    name: str
    seconds: float
    finished: str
    host: dict[str, Any]
    verdicts: tuple[Verdict, ...]

    @property
    def title(self) -> str:
        """The title of the study's paper."""
        return _TITLES.get(self.name, self.name)

    def count(self, holds: bool | None, *, today: bool = False) -> int:
        """How many claims hold (True), differ (False) or are undecided (None)."""
        return sum(
            (verdict.today if today else verdict.holds) is holds for verdict in self.verdicts
        )

    @property
    def has_today(self) -> bool:
        """Whether programs of today were measured beside those like the paper's."""
        return any(verdict.today is not None for verdict in self.verdicts)


class AllPapers:
    """A reproduction of all papers in a directory."""

    def __init__(self, place: Path, version: str, max_instructions: int | None) -> None:
        """`version` is that of Octavo's model; parts of other versions are not used."""
        self.place, self._limit = place, max_instructions
        self._settings = {
            "schema": SCHEMA,
            "octavo": version,
            "max_instructions": max_instructions,
        }

    def check(self, *, force: bool) -> None:
        """Raises UsageError where the directory has other files, or a reproduction of other
        settings that `force` does not begin again; CannotRun where it is a file.
        """
        if not self.place.exists():
            return
        if not self.place.is_dir():
            raise CannotRun(f"cannot write to `{self.place}`: it is not a directory.")
        if force or self._is_ours():
            return
        if (self.place / SETTINGS).exists():
            found = self._read(self.place / SETTINGS)
            raise UsageError(
                f"`{self.place}` has a reproduction with {_described(found)}, and this is one with "
                f"{_described(self._settings)}: name another directory; --force begins again."
            )
        if any(self.place.iterdir()):
            raise UsageError(
                f"`{self.place}` is not empty and has no reproduction of all papers: name another "
                "directory."
            )

    def _is_ours(self) -> bool:
        kept = self.place / SETTINGS
        return kept.exists() and self._read(kept) == self._settings

    def open(self, *, force: bool) -> None:
        """Begins a reproduction in the directory, or continues the one there. With `force`, a
        reproduction with other settings is replaced. Raises as `check` does.
        """
        self.check(force=force)
        if self._is_ours():
            return
        for name in (*STUDIES, _PARTS):
            shutil.rmtree(self.place / name, ignore_errors=True)
        self.place.mkdir(parents=True, exist_ok=True)
        replace_text(self.place / SETTINGS, to_json(self._settings, indent=2))

    def _read(self, path: Path) -> dict[str, Any]:
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
        except ValueError:
            found = None
        return found if isinstance(found, dict) else {}

    def finished(self) -> list[Finished]:
        """The finished studies of the directory, in the order of STUDIES."""
        return [study for name in STUDIES if (study := self._finished(name)) is not None]

    def _finished(self, name: str) -> Finished | None:
        path = self.place / name / _MANIFEST
        if not path.exists():
            return None
        found = self._read(path)
        try:
            verdicts = tuple(Verdict(**verdict) for verdict in found.pop("verdicts"))
            return Finished(**found, verdicts=verdicts)
        except (KeyError, TypeError):
            raise CannotRun(
                f"`{path}` is damaged: remove it, and the study is run again."
            ) from None

    def estimate(self) -> str:
        """The time that the remaining studies take, in a sentence."""
        done = self.finished()
        left = [name for name in STUDIES if name not in {study.name for study in done}]
        if not left:
            return f"All {len(STUDIES)} papers are done; nothing is left to run."
        expected = sum(self._usual_seconds(study.name) for study in done)
        ratio = sum(study.seconds for study in done) / expected if expected else 1.0
        seconds = ratio * sum(map(self._usual_seconds, left))
        basis = (
            "by the papers done here"
            if done
            else "by usual times on two processors; a rough estimate"
        )
        time_left = f"about {format_duration(seconds)} ({basis})"
        return f"{len(left)} of {len(STUDIES)} papers to run: {time_left}."

    def _usual_seconds(self, name: str) -> float:
        least, most = _USUAL_MINUTES.get(name, (1, 15))
        share = 1.0 if self._limit is None else min(self._limit / _USUAL_INSTRUCTIONS, 1.0)
        return 60 * (least + share * (most - least))

    def run(self, request: Request, files: Callable[[str, Reproduction], Writers]) -> None:
        """Runs the studies that are not finished yet. `files` gives the files of a study. Raises
        KeyboardInterrupt where the user stops the run; finished parts are kept.
        """
        for number, name in enumerate(STUDIES, 1):
            if (self.place / name / _MANIFEST).exists():
                request.say(f"{number} of {len(STUDIES)}, {name}: done before")
                continue
            request.say(f"{number} of {len(STUDIES)}, {name}: {self.estimate()}")
            began = time.monotonic()
            parts = self.place / _PARTS / name
            before = _seconds_before(parts)

            def on_part(began: float = began, parts: Path = parts, before: float = before) -> None:
                seconds = before + time.monotonic() - began
                replace_text(parts / "seconds", f"{seconds:.1f}\n")

            with keeping(Keeper(parts, to_json(self._settings), on_part)):
                done = reproduce(name, request)
            if done.is_partial:
                raise KeyboardInterrupt
            self._write(name, done, before + time.monotonic() - began, files(name, done))
            shutil.rmtree(parts, ignore_errors=True)
        shutil.rmtree(self.place / _PARTS, ignore_errors=True)

    def _write(self, name: str, done: Reproduction, seconds: float, files: Writers) -> None:
        now = datetime.now(timezone.utc).isoformat(timespec="seconds")
        manifest = asdict(Finished(name, seconds, now, describe_host(), tuple(done.verdicts())))
        directory = OutputDirectory(str(self.place / name), force=True)
        try:
            directory.write({**files, _MANIFEST: text_writer(to_json(manifest, indent=2))})
        finally:
            directory.close()

    def document(self) -> dict[str, Any]:
        """Plain data of the finished studies."""
        done = self.finished()
        return {
            **self._settings,
            "is_partial": len(done) < len(STUDIES),
            "studies": [asdict(study) for study in done],
            "left": [name for name in STUDIES if name not in {study.name for study in done}],
        }

    def summary(self) -> str:
        """Which claims hold, in Markdown."""
        document = self.document()
        return render_template(
            "all_papers.md",
            studies=self.finished(),
            left=document["left"],
            settings=_described(self._settings),
            duration=format_duration,
        )

    def write_report(self) -> None:
        """The summary, and below it the page of each finished study, in one file."""
        pages = []
        for study in self.finished():
            text = (self.place / study.name / f"{study.name}.md").read_text(encoding="utf-8")
            pages.append(_nested(text, study.name))
        replace_text(self.place / f"{REPORT}.md", "\n".join([self.summary(), *pages]))
        replace_text(self.place / f"{REPORT}.json", to_json(self.document(), indent=2))


def _nested(text: str, name: str) -> str:
    """A study's page as a part of the report: headings one level lower, and paths of figures with
    the directory of the study.
    """
    lines = [f"#{line}" if line.startswith("#") else line for line in text.splitlines()]
    return "\n".join(line.replace("](figure", f"]({name}/figure") for line in lines) + "\n"


def _described(settings: Mapping[str, Any]) -> str:
    limit = settings.get("max_instructions")
    length = "whole programs" if limit is None else f"{format_count(limit)} instructions a program"
    return f"{length}, by Octavo {settings.get('octavo', 'of an unknown version')}"


def _seconds_before(parts: Path) -> float:
    try:
        return float((parts / "seconds").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return 0.0
