"""The study of Tailored Page Sizes (Guvenilir and Patt, ISCA 2020): what is measured.

Each program is recorded once; every simulation reads that trace. Every figure of the paper's charts
is one number here, so that the text (tailored_page_sizes_text) and the JSON say the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from octavo import _core
from octavo.execution_time import ExecutionTime, simulated_time
from octavo.machine_configs import setting_texts
from octavo.sim_model import Simulated
from octavo.studies.programs import document, record_programs
from octavo.studies.tailored_memory import Coverage, coverages, fragmented
from octavo.studies.tailored_subjects import Kind, Subject, subjects
from octavo.units import BASE_PAGE, MIB, byte_size
from octavo.view import counters, main_process, whole_program

SCHEMA = "octavo/tailored-page-sizes/1"

MACHINE = "skylake"
BASE, BASELINE, TPS = "base4k", "reserved_thp", "tps"
COLT, RMM = f"colt+{BASELINE}", "rmm"
RIVALS = (COLT, RMM)
"""What the paper sets beside it, where this Octavo has it. CoLT changes the hardware alone: it has
the baseline's operating system."""
INTENSE_MPKI = 5.0
"""Section IV-A: of programs that are no workloads, those with more misses than that count."""

FEW_MPKI = 0.1
"""Below this per 1000 instructions the baseline has next to nothing that could be eliminated."""

_MOST_EVENTS = 100_000
"""Events of a workload, at most."""
_EVERYTHING = 1 << 60
"""More instructions than a trace has."""
_PAGES = "os.pages."
"""Before the size: components that count pages."""


@dataclass(frozen=True)
class Counted:
    """What one design did with one program."""

    accesses: int
    """Look-ups of the first-level TLB for data."""
    misses: int
    """Those of them that missed."""
    walk_references: int
    resident_bytes: int
    """Data, at most."""
    time: ExecutionTime
    pages: dict[int, int]
    """Mapped at the end, by their size in bytes."""


@dataclass(frozen=True)
class Measurement:
    """What one program did, on a memory that was empty and on one that was fragmented."""

    program: str
    kind: Kind
    instructions: int
    touched_bytes: int
    """In pages of 4 KiB."""
    growth_2m: float
    """Of that in pages of 2 MiB alone (Figure 9)."""
    designs: dict[str, Counted]
    """By name; a design that ran out of memory is not there."""
    fragmented: dict[str, Counted]

    def mpki(self, design: str) -> float | None:
        """Misses of the first-level TLB for data per 1000 instructions (Figure 8)."""
        counted = self.designs.get(design)
        return None if counted is None else counted.misses * 1000 / self.instructions

    @property
    def counts(self) -> bool:
        """Whether the paper would have evaluated it: a workload, or one that misses much."""
        return self.kind == "workload" or (self.mpki(BASE) or 0.0) > INTENSE_MPKI

    def misses_gone(self, design: str, *, fragmented: bool = False) -> float | None:
        """The share of the baseline's first-level misses of data that is gone (Figures 10, 16)."""
        of = self.fragmented if fragmented else self.designs
        return self._gone(of, design, lambda counted: counted.misses)

    def references_gone(self, design: str) -> float | None:
        """The share of the baseline's references of walks that are gone (Figure 11)."""
        return self._gone(self.designs, design, lambda counted: counted.walk_references)

    def _gone(
        self, of: Mapping[str, Counted], design: str, what: Callable[[Counted], int]
    ) -> float | None:
        """None where the baseline has too few of them."""
        base, one = of.get(BASELINE), of.get(design)
        if base is None or one is None or what(base) * 1000 < FEW_MPKI * self.instructions:
            return None
        return 1 - what(one) / what(base)

    def time(self, design: str) -> ExecutionTime | None:
        """Section IV-B: the baseline's time, its T_L1DTLBM scaled by the ratio of first-level
        misses and its T_PW by that of references of walks.
        """
        base, one = self.designs.get(BASELINE), self.designs.get(design)
        if base is None or one is None:
            return None
        return ExecutionTime(
            base.time.ideal_cycles,
            base.time.tlb_cycles * _ratio(one.misses, base.misses),
            base.time.walk_cycles * _ratio(one.walk_references, base.walk_references),
        )

    def speedup(self, design: str) -> float | None:
        """How much faster than the baseline: 0.157 for 15.7% (Figure 13)."""
        base, time = self.time(BASELINE), self.time(design)
        return None if base is None or time is None else base.cycles / time.cycles - 1

    def of_ideal(self, design: str) -> float | None:
        """The part of the time that is lost to misses which is saved."""
        base, time = self.time(BASELINE), self.time(design)
        if base is None or time is None or base.cycles == base.ideal_cycles:
            return None
        return (base.cycles - time.cycles) / (base.cycles - base.ideal_cycles)

    def record(self) -> dict[str, Any]:
        """Plain data: what was counted, and what is told of it."""
        designs = list(self.designs)
        return {
            **asdict(self),
            "counts": self.counts,
            "mpki": {name: self.mpki(name) for name in designs},
            "misses_gone": {name: self.misses_gone(name) for name in designs},
            "references_gone": {name: self.references_gone(name) for name in designs},
            "speedup": {name: self.speedup(name) for name in designs},
            "of_ideal": {name: self.of_ideal(name) for name in designs},
            "misses_gone_fragmented": {
                name: self.misses_gone(name, fragmented=True) for name in self.fragmented
            },
        }

    def flat(self) -> dict[str, Any]:
        """One flat record, without the counts of pages: `misses_gone.tps`."""
        told = {}
        for key, value in self.record().items():
            if not isinstance(value, dict):
                told[key] = value
            elif key not in ("designs", "fragmented"):
                told.update({f"{key}.{name}": of for name, of in value.items()})
        return told


def _ratio(value: int, base: int) -> float:
    return value / base if base else 1.0


@dataclass(frozen=True)
class Study:
    """All measurements, and what was left out and why."""

    measurements: tuple[Measurement, ...]
    skipped: dict[str, str]
    designs: tuple[str, ...]
    """Those that were simulated."""
    memory: tuple[Coverage, ...]
    """Free memory by page size (Figure 15)."""
    large: bool = False
    max_instructions: int | None = None
    """After how many each program was ended; None where it was not."""

    @property
    def counting(self) -> tuple[Measurement, ...]:
        """The programs that the paper's averages would be over."""
        return tuple(m for m in self.measurements if m.counts)


def label(design: str) -> str:
    """A design's name as the tables have it: without its policy."""
    return design.partition("+")[0]


def known_designs() -> tuple[str, ...]:
    """The designs of the study that this Octavo has, the baseline first."""
    known = {name for name, _ in _core.designs()}
    return (BASELINE, BASE, TPS, *(name for name in RIVALS if label(name) in known))


def run_study(
    on_program: Callable[[str], None],
    max_instructions: int | None = None,
    *,
    large: bool = False,
    chosen: Sequence[Subject] | None = None,
) -> Study:
    """Runs every program that is installed; `on_program` hears the name of each as it starts. With
    `max_instructions`, each ends after so many; `large` gives the workloads the paper's sizes.
    """
    all_subjects = subjects(large=large) if chosen is None else list(chosen)
    designs = known_designs()
    measurements, skipped = [], {}
    programs = [subject.program for subject in all_subjects]
    traces = record_programs(programs, on_program, max_instructions)
    for subject, (program, trace) in zip(all_subjects, traces, strict=True):
        done = trace if isinstance(trace, str) else _measured(subject, designs, trace)
        if isinstance(done, str):
            skipped[program.name] = done
        else:
            measurements.append(done)
    return Study(tuple(measurements), skipped, designs, tuple(coverages()), large, max_instructions)


def _measured(subject: Subject, designs: Sequence[str], trace: Path) -> Measurement | str:
    """All passes over one trace, or why there can be none."""
    place = trace.parent
    touched = document(["run", "--page-sizes", "4KiB,2MiB", str(trace)], place)
    if isinstance(touched, str):
        return touched
    simulate = ["sim", "--machine", MACHINE]
    if subject.kind == "workload":
        region = _region(trace)
        if isinstance(region, str):
            return region
        begin, end = region
        simulate += ["--warm-up", str(begin), "--max-instructions", str(end)]
    simulate += to_settings(subject.settings)
    empty = document([*simulate, "--design", ",".join(designs), str(trace)], place)
    if isinstance(empty, str):
        return empty
    counted = _all_counted(empty, designs)
    if BASE not in counted:
        return "memory ran out with 4 KiB pages"
    simulate += to_settings(fragmented(counted[BASE].resident_bytes))
    others = [name for name in designs if name != BASE]
    short = document([*simulate, "--design", ",".join(others), str(trace)], place)
    if isinstance(short, str):
        return short
    return measure(subject, touched, empty, short, designs)


def _region(trace: Path) -> tuple[int, int] | str:
    """The instructions at which a workload's region of interest begins and ends, or why not.
    Where it was ended inside, the region ends with the trace.
    """
    listing = ["head", "--events", "--lines", str(_MOST_EVENTS), str(trace)]
    told = document(listing, trace.parent, quiet=False)
    if isinstance(told, str):
        return told
    at = {
        of["event"]: of["instruction"] for of in told["entries"] if of["event"].startswith("mark ")
    }
    if "mark 1" not in at:
        return "it was ended before its region of interest"
    return at["mark 1"], at.get("mark 2", _EVERYTHING)


def measure(
    subject: Subject,
    touched: dict[str, Any],
    empty: dict[str, Any],
    short: dict[str, Any],
    designs: Sequence[str],
) -> Measurement:
    """The figures of one program from the documents of its three passes."""
    rows = whole_program(main_process(touched["rows"]))
    memory = {
        row["page_size"]: row
        for row in rows
        if row["component"] == "memory" and row["stream"] == "all"
    }
    return Measurement(
        program=subject.program.name,
        kind=subject.kind,
        instructions=_instructions(empty),
        touched_bytes=memory[BASE_PAGE]["touched_bytes"],
        growth_2m=memory[2 * MIB]["growth"] or 0.0,
        designs=_all_counted(empty, designs),
        fragmented=_all_counted(short, designs),
    )


def _instructions(told: dict[str, Any]) -> int:
    """Of the process that did most."""
    return int(counters(main_process(told["rows"]))["instructions"])


def to_settings(settings: Mapping[str, Any]) -> Iterator[str]:
    """Options of a machine."""
    for text in setting_texts(settings):
        yield from ("--set", text)


def _all_counted(told: dict[str, Any], designs: Sequence[str]) -> dict[str, Counted]:
    """By design, of the process that did most; those that ran out of memory are left out."""
    rows = main_process(told["rows"])
    base_cpi = told["run"]["configuration"]["machine"]["core"]["base_cpi"]
    totals = counters(rows)
    all_counted = {}
    for name in designs:
        counts = {
            (row["component"], row["counter"]): row["value"]
            for row in rows
            if row.get("design") == name and "interval" not in row
        }
        one = Simulated(name, counts, totals["instructions"], totals["references"], base_cpi)
        # What stops in the warm-up counts nothing.
        if not one.count("os", "out_of_memory") and one.count("tlb.l1d", "accesses"):
            all_counted[name] = _counted(one)
    return all_counted


def _counted(one: Simulated) -> Counted:
    time = simulated_time(one)
    assert time is not None, "it has instructions, and has not stopped"
    pages = {
        byte_size(component.removeprefix(_PAGES)): value
        for (component, _), value in one.counts.items()
        if component.startswith(_PAGES) and value
    }
    return Counted(
        accesses=one.count("tlb.l1d", "accesses"),
        misses=one.count("tlb.l1d", "misses"),
        walk_references=one.count("walker", "references"),
        resident_bytes=one.count("os", "peak_resident_bytes"),
        time=time,
        pages=dict(sorted(pages.items())),
    )
