"""The subjects of the study of Tailored Page Sizes: the workloads, and programs of this machine."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from octavo.base.toml import read_toml
from octavo.studies.programs import Program, load_programs, region_of

WORKLOADS = Path(__file__).with_name("tailored_page_sizes.toml")
BUILT = Path(__file__).resolve().parents[3] / "build" / "workloads"
"""Where `make workloads` puts them in a clone."""


Kind = Literal["workload", "program"]


@dataclass(frozen=True)
class Subject:
    """A program and how it is simulated."""

    program: Program
    kind: Kind
    settings: dict[str, Any]
    """Of the machine."""


def subjects(*, large: bool) -> list[Subject]:
    """The workloads of one size, and the real programs of the other studies."""
    table = read_toml(WORKLOADS)
    settings = {} if large else table["usual_machine"]
    size = "large" if large else "usual"
    made = [
        Subject(Program(entry["name"], _found(entry[size])), "workload", settings)
        for entry in table["workload"]
    ]
    limit = None if large else usual_instructions()
    programs = [replace(of, max_instructions=limit) for of in load_programs()]
    return [*made, *(Subject(program, "program", {}) for program in programs)]


def usual_instructions() -> int:
    """After how many a real program is ended, but with large sizes."""
    return int(read_toml(WORKLOADS)["usual_instructions"])


def usual_entries() -> int:
    """Of the second-level TLB that workloads of the usual sizes have."""
    return int(read_toml(WORKLOADS)["usual_machine"]["tlb.l2.main.entries"])


def extent(subject: Subject, trace: Path) -> tuple[int, int | None] | str:
    """The instructions at which what counts begins and ends, or why nothing does: of a workload its
    region of interest, of a real program everything.
    """
    return region_of(trace) if subject.kind == "workload" else (0, None)


def _found(command: Sequence[str]) -> tuple[str, ...]:
    """A workload's command: from where it was built, unless it is installed. Nothing is checked."""
    name, *arguments = command
    built = BUILT / name
    if shutil.which(name) is None and os.access(built, os.X_OK):
        name = str(built)
    return (name, *arguments, "--check", "no")
