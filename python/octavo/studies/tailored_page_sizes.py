"""The study of Tailored Page Sizes (Guvenilir and Patt, ISCA 2020): what is measured.

Each program is recorded once; every simulation reads that trace. Every figure of the paper's charts
is one number of a Measurement, so that the text and the JSON say the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from octavo import _core
from octavo.execution_time import simulated_time
from octavo.sim_model import Simulated
from octavo.studies.programs import document, record_programs, region_of, scope, to_settings
from octavo.studies.tailored_measurement import (
    BASE,
    BASELINE,
    RIVALS,
    TPS,
    Counted,
    Measurement,
    label,
)
from octavo.studies.tailored_memory import Coverage, coverages, fragmented
from octavo.studies.tailored_subjects import Subject, subjects
from octavo.units import BASE_PAGE, MIB, byte_size
from octavo.view import counters, main_process, whole_program

SCHEMA = "octavo/tailored-page-sizes/1"

MACHINE = "skylake"

SMT_TURN_INSTRUCTIONS = 100
"""Two threads of a core share its TLBs and caches by so short turns."""
_PAGES = "os.pages."
"""Before the size: components that count pages."""


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
    begin, end = 0, None
    if subject.kind == "workload":
        region = region_of(trace)
        if isinstance(region, str):
            return region
        begin, end = region
    simulate = ["sim", "--machine", MACHINE, *to_settings(subject.settings)]
    region_of_one = scope(begin, end)
    empty = document([*simulate, *region_of_one, "--design", ",".join(designs), str(trace)], place)
    if isinstance(empty, str):
        return empty
    counted = _all_counted(empty, designs)
    if BASE not in counted:
        return "memory ran out with 4 KiB pages"
    others = ["--design", ",".join(name for name in designs if name != BASE)]
    both = ["--processes", "asid", "--quantum", str(SMT_TURN_INSTRUCTIONS)]
    region_of_both = scope(2 * begin, None if end is None else 2 * end)
    shared = document([*simulate, *region_of_both, *both, *others, str(trace), str(trace)], place)
    if isinstance(shared, str):
        return shared
    scarce = to_settings(fragmented(counted[BASE].resident_bytes))
    short = document([*simulate, *scarce, *region_of_one, *others, str(trace)], place)
    if isinstance(short, str):
        return short
    return measure(subject, touched, empty, short, shared, designs)


def measure(
    subject: Subject,
    touched: dict[str, Any],
    empty: dict[str, Any],
    short: dict[str, Any],
    shared: dict[str, Any],
    designs: Sequence[str],
) -> Measurement:
    """The figures of one program from the documents of its four passes."""
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
        smt=_all_counted(shared, designs, of_all=True),
    )


def _instructions(told: dict[str, Any]) -> int:
    """Of the process that did most."""
    return int(counters(main_process(told["rows"]))["instructions"])


def _all_counted(
    told: dict[str, Any], designs: Sequence[str], *, of_all: bool = False
) -> dict[str, Counted]:
    """By design, of the process that did most, or of all; those that ran out of memory are left
    out.
    """
    if of_all:
        rows = [row for row in told["rows"] if "process" not in row]
    else:
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
