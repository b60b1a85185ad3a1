"""Figures 9 and 11 of the study of perforated pages: programs, each recorded once, on memories
that are fragmented by what the program itself takes; native, and in a virtual machine.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from octavo.base.temporary import TemporaryDirectory
from octavo.base.units import BASE_PAGE
from octavo.studies.perforated_pages.measurement import (
    BASE,
    BASELINE,
    PERFORATED,
    Counted,
    Row,
    Time,
    all_counted,
    gain,
)
from octavo.studies.perforated_pages.memory import (
    LAYOUTS,
    REGION,
    REGION_PAGES,
    Fragments,
    always,
    fragmented,
)
from octavo.studies.perforated_pages.random_accesses import MACHINE, TIMING
from octavo.studies.programs import (
    NotMeasured,
    Program,
    Subject,
    document,
    extent,
    measure_traces,
    scope,
    simulate,
    to_settings,
    usual_host,
)
from octavo.studies.reproduction import Request, Say
from octavo.studies.simulation_pool import Done, Pass, run_passes

PORTIONS = (0.25, 0.5, 1.0)
FRACTIONS = (0.25, 0.5)
SEEN = Fragments(0.5, 0.25, "clustered")
"""The memory that the paper measured on a machine (section III-C)."""
MOST_INSTRUCTIONS = 30_000_000
"""Counted of each program, at most: the core executes them for every memory."""
LEAST_GAIN = 0.01
"""The least gain of large pages over 4 KiB in a program that depends on the TLB."""
_EMPTY = "unfragmented"
_WITHOUT_HOLES = ("--design", f"{BASE},{BASELINE}")
_TRIED_REGIONS = 16
_VIRTUAL = "programs in a virtual machine (Figure 11)"


@dataclass(frozen=True)
class ProgramRow(Row):
    """The counts of one program on one memory."""

    fragments: Fragments
    designs: dict[str, Counted]


@dataclass(frozen=True)
class ProgramMeasurement:
    """The counts of one program, native or in a virtual machine."""

    program: str
    is_virtual: bool
    regions: int
    """Of 2 MiB that large pages took where nothing was in the way."""
    ideal: dict[str, Counted]
    """By design, on a memory that is not fragmented."""
    rows: tuple[ProgramRow, ...]

    @property
    def large_gain(self) -> float | None:
        """How much faster than 4 KiB pages large pages are, unfragmented."""
        return gain(self.ideal, BASELINE, BASE)

    def of_ideal(self, row: ProgramRow, by: Time = "ipc") -> float | None:
        """The IPC of perforated pages over that of large pages on a memory without holes."""
        ideal, one = self.ideal.get(BASELINE), row.designs.get(PERFORATED)
        more = gain({"one": one, "ideal": ideal}, "one", "ideal", by) if one and ideal else None
        return None if more is None else 1 + more

    def record(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "program": self.program,
            "is_virtual": self.is_virtual,
            "regions": self.regions,
            "large_gain": self.large_gain,
            "ideal": {name: of.record() for name, of in self.ideal.items()},
            "rows": [
                {
                    **asdict(row.fragments),
                    **row.gains(),
                    "of_ideal": self.of_ideal(row),
                    "designs": row.record(),
                }
                for row in self.rows
            ],
        }


def memories() -> Iterator[Fragments]:
    """All memories of the paper's charts; its numbers are of SEEN alone."""
    for layout in LAYOUTS:
        for fraction in FRACTIONS:
            for portion in PORTIONS:
                yield Fragments(portion, fraction, layout)


def measure_programs(
    subjects: Sequence[Subject],
    on: Sequence[Fragments],
    request: Request,
    measured: list[ProgramMeasurement],
    skipped: dict[str, str],
) -> None:
    """Adds all measurements on some memories, and why programs were left out. Raises
    KeyboardInterrupt where the user stops it.
    """
    kinds: tuple[bool, ...] = (False, True)
    if (why := why_not_virtual()) is not None:
        kinds, skipped[_VIRTUAL] = (False,), why
    by_name = {subject.program.name: subject for subject in subjects}

    def measure(program: Program, trace: Path) -> None:
        traced = _traced(by_name[program.name], trace)
        for is_virtual in kinds:
            name = f"{program.name}{', in a virtual machine' if is_virtual else ''}"
            one, passes = _measured(traced, on, request.say, is_virtual=is_virtual)
            if one is not None:
                measured.append(one)
            if passes.failed:
                # Each memory fails for the same reason, mostly.
                skipped[name] = next(iter(passes.failed.values()))
            if passes.is_partial:
                raise KeyboardInterrupt

    programs = [subject.program for subject in subjects]
    measure_traces(programs, request, measure, skipped)


def why_not_virtual() -> str | None:
    """Why this Octavo cannot have perforated pages in a virtual machine; None where it can. Tried
    on a small stream, each of whose translations is compared with both page tables.
    """
    of = Fragments(0.5, 0.25, "dispersed")
    table = f"synth:uniform?table={_TRIED_REGIONS * REGION}&base=0x1000000000&references=20k"
    settings = to_settings(_with_host(fragmented(of, _TRIED_REGIONS), of))
    options = ["--check", "--virtualised", *settings, "--design", always(of)]
    with TemporaryDirectory("octavo-study-") as name:
        try:
            result = document([*simulate(MACHINE), *options, table], Path(name))
        except NotMeasured as why:
            return str(why)
    return None if PERFORATED in all_counted(result) else "memory ran out"


def _with_host(settings: dict[str, Any], of: Fragments) -> dict[str, Any]:
    """The same memory for a guest, of a host whose own is like that: it gives all of the guest's,
    dense regions too.
    """
    host = fragmented(of, settings["memory.bytes"] // REGION, has_spare=True)
    return settings | {f"host.{key}": value for key, value in host.items()}


@dataclass(frozen=True)
class _Traced:
    """A program that large pages are worth something to."""

    program: str
    trace: str
    options: tuple[str, ...]
    """The options of all its passes."""
    ideal: dict[str, Counted]
    """By design, native and unfragmented."""
    host: dict[str, Any]
    """Settings of the host, where it runs in a virtual machine."""


def _traced(subject: Subject, trace: Path) -> _Traced:
    """A recorded program. Raises NotMeasured if it cannot be measured."""
    begin, end = extent(subject, trace, MOST_INSTRUCTIONS)
    region = [*scope(begin, end), *(["--fast-forward"] if begin else [])]
    host = usual_host(MACHINE) if subject.settings else {}
    options = (*simulate(MACHINE, TIMING), *to_settings(subject.settings), *region)
    ideal = all_counted(document([*options, *_WITHOUT_HOLES, str(trace)], trace.parent))
    if not {BASE, BASELINE} <= set(ideal):
        raise NotMeasured("memory ran out")
    if (gain(ideal, BASELINE, BASE) or 0.0) < LEAST_GAIN:
        raise NotMeasured(f"large pages gain less than {LEAST_GAIN:.0%}")
    return _Traced(subject.program.name, str(trace), options, ideal, host)


def _measured(
    of: _Traced, on: Sequence[Fragments], say: Say, *, is_virtual: bool
) -> tuple[ProgramMeasurement | None, Done]:
    """All passes over one trace."""
    options = (*of.options, *to_settings(of.host)) if is_virtual else of.options
    passes = [Pass(_key(at), (*options, *_on(at, of.ideal, is_virtual), of.trace)) for at in on]
    if is_virtual:
        guest = (*options, *_unfragmented_guest(of.ideal), *_WITHOUT_HOLES, of.trace)
        passes.insert(0, Pass(_EMPTY, guest))
    where = "in a virtual machine" if is_virtual else "native"
    done = run_passes(passes, f"{of.program}, {where}", say)
    ideal = of.ideal
    if is_virtual:
        if _EMPTY not in done.documents:
            return None, done
        ideal = all_counted(done.documents[_EMPTY])
    found = ((at, done.documents.get(_key(at))) for at in on)
    rows = tuple(ProgramRow(at, all_counted(result)) for at, result in found if result is not None)
    regions = of.ideal[BASELINE].large_pages
    return ProgramMeasurement(of.program, is_virtual, regions, ideal, rows), done


def _on(of: Fragments, ideal: dict[str, Counted], is_virtual: bool) -> list[str]:
    """Options of one memory, fragmented by what the program takes."""
    large = ideal[BASELINE].large_pages
    resident = max(one.resident_bytes for one in ideal.values())
    others = max(resident // BASE_PAGE - large * REGION_PAGES, 0)
    settings = fragmented(of, large, others, has_spare=True)
    if is_virtual:
        settings = _with_host(settings, of)
    return [*to_settings(settings), "--design", f"{BASE},{BASELINE},{always(of)}"]


def _unfragmented_guest(ideal: dict[str, Counted]) -> tuple[str, ...]:
    """Options of a guest's and a host's memory that are not fragmented."""
    resident = max(one.resident_bytes for one in ideal.values())
    enough = (resident // REGION + 64) * REGION * 2
    return tuple(to_settings({"memory.bytes": enough, "host.memory.bytes": 2 * enough}))


def _key(of: Fragments) -> str:
    return f"{of.portion:g} {of.fraction:g} {of.layout}"
