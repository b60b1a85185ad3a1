"""Figures 9 and 11 of the study of perforated pages: programs, each recorded once, on fragmented
memories sized for the program; native, and in a virtual machine.
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
"""The most instructions counted of a program: the core executes them for every memory."""
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
    """Regions of 2 MiB that had large pages in unfragmented memory."""
    ideal: dict[str, Counted]
    """The counts in unfragmented memory, by design."""
    rows: tuple[ProgramRow, ...]

    @property
    def large_gain(self) -> float | None:
        """How much faster large pages are than 4 KiB pages in unfragmented memory."""
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
            "ideal": {name: counted.record() for name, counted in self.ideal.items()},
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
    """All memories of the paper's charts; the numbers in its text are of SEEN alone."""
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
    """Adds the measurements on the memories `on`, and to `skipped` the reasons why programs were
    left out. Raises KeyboardInterrupt where the user stops the passes.
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
                # All memories usually fail for the same reason.
                skipped[name] = next(iter(passes.failed.values()))
            if passes.is_partial:
                raise KeyboardInterrupt

    programs = [subject.program for subject in subjects]
    measure_traces(programs, request, measure, skipped)


def why_not_virtual() -> str | None:
    """The reason why this Octavo cannot simulate perforated pages in a virtual machine; None if it
    can. The test is a small stream with `--check`, which compares each translation with both page
    tables.
    """
    fragments = Fragments(0.5, 0.25, "dispersed")
    table = f"synth:uniform?table={_TRIED_REGIONS * REGION}&base=0x1000000000&references=20k"
    settings = to_settings(_with_host(fragmented(fragments, _TRIED_REGIONS), fragments))
    options = ["--check", "--virtualised", *settings, "--design", always(fragments)]
    with TemporaryDirectory("octavo-study-") as name:
        try:
            result = document([*simulate(MACHINE), *options, table], Path(name))
        except NotMeasured as why:
            return str(why)
    return None if PERFORATED in all_counted(result) else "memory ran out"


def _with_host(settings: dict[str, Any], fragments: Fragments) -> dict[str, Any]:
    """The settings for a guest on a host with memory that is fragmented alike. The host backs all
    memory of the guest, including dense regions.
    """
    host = fragmented(fragments, settings["memory.bytes"] // REGION, has_spare=True)
    return settings | {f"host.{key}": value for key, value in host.items()}


@dataclass(frozen=True)
class _Traced:
    """A recorded program that gains from large pages."""

    program: str
    trace: str
    options: tuple[str, ...]
    """The options of all its passes."""
    ideal: dict[str, Counted]
    """The native counts in unfragmented memory, by design."""
    host: dict[str, Any]
    """Settings of the host for runs in a virtual machine."""


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
    traced: _Traced, on: Sequence[Fragments], say: Say, *, is_virtual: bool
) -> tuple[ProgramMeasurement | None, Done]:
    """All passes over one trace."""
    ideal, trace = traced.ideal, traced.trace
    options = (*traced.options, *to_settings(traced.host)) if is_virtual else traced.options
    passes = [Pass(_key(at), (*options, *_on(at, ideal, is_virtual), trace)) for at in on]
    if is_virtual:
        guest = (*options, *_unfragmented_guest(ideal), *_WITHOUT_HOLES, trace)
        passes.insert(0, Pass(_EMPTY, guest))
    where = "in a virtual machine" if is_virtual else "native"
    done = run_passes(passes, f"{traced.program}, {where}", say)
    if is_virtual:
        if _EMPTY not in done.documents:
            return None, done
        ideal = all_counted(done.documents[_EMPTY])
    found = ((at, done.documents.get(_key(at))) for at in on)
    rows = tuple(ProgramRow(at, all_counted(result)) for at, result in found if result is not None)
    regions = traced.ideal[BASELINE].large_pages
    return ProgramMeasurement(traced.program, is_virtual, regions, ideal, rows), done


def _on(fragments: Fragments, ideal: dict[str, Counted], is_virtual: bool) -> list[str]:
    """Options of one fragmented memory, sized for the program."""
    large = ideal[BASELINE].large_pages
    resident = max(one.resident_bytes for one in ideal.values())
    others = max(resident // BASE_PAGE - large * REGION_PAGES, 0)
    settings = fragmented(fragments, large, others, has_spare=True)
    if is_virtual:
        settings = _with_host(settings, fragments)
    return [*to_settings(settings), "--design", f"{BASE},{BASELINE},{always(fragments)}"]


def _unfragmented_guest(ideal: dict[str, Counted]) -> tuple[str, ...]:
    """Options of a guest's and a host's memory that are not fragmented."""
    resident = max(one.resident_bytes for one in ideal.values())
    enough = (resident // REGION + 64) * REGION * 2
    return tuple(to_settings({"memory.bytes": enough, "host.memory.bytes": 2 * enough}))


def _key(fragments: Fragments) -> str:
    return f"{fragments.portion:g} {fragments.fraction:g} {fragments.layout}"
