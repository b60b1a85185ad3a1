"""The study of Tailored Page Sizes (Guvenilir and Patt, ISCA 2020): the measurements.

Each program is recorded once; every simulation reads that trace. Every number of the paper's charts
is computed once, in a Measurement, so that the text and the JSON agree.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from octavo.analysis.rows import all_memory, stream_counters
from octavo.analysis.view import main_process
from octavo.base.units import BASE_PAGE, KIB, MIB, byte_size
from octavo.simulation.execution_time import ExecutionTime, simulated_time
from octavo.simulation.model import Simulated
from octavo.studies.claims import load_study
from octavo.studies.programs import (
    NotMeasured,
    Program,
    Subject,
    document,
    extent,
    measure_traces,
    scope,
    simulate,
    simulated_of,
    subjects,
    to_settings,
    usual_instructions,
    usual_scale,
)
from octavo.studies.reproduction import Reproduction, Request
from octavo.studies.tailored_page_sizes.measurement import (
    BASE,
    BASELINE,
    DESIGNS,
    METRICS,
    MOST_INSTRUCTIONS,
    OVER_BASELINE,
    RIVALS,
    RMM,
    TIMED,
    TPS,
    Counted,
    Measurement,
    core_time,
    label,
)
from octavo.studies.tailored_page_sizes.memory import SIZES, Coverage, coverages, fragmented

STUDY = "tailored_page_sizes"
MACHINE = "skylake"

SMT_TURN_INSTRUCTIONS = 100
"""The turns of two threads that share a core's TLBs and caches."""
LOCAL = ("xsbench", "graph500")
"""The paper's benchmarks that keep some locality under fragmentation."""
_PAGES = "os.pages."
"""The prefix of components that count pages; the page size follows."""


@dataclass(frozen=True)
class Study(Reproduction):
    """All measurements."""

    folder = STUDY
    measurements: tuple[Measurement, ...] = ()
    memory: tuple[Coverage, ...] = ()
    """Free memory by page size (Figure 15)."""
    large: bool = False

    @property
    def counting(self) -> tuple[Measurement, ...]:
        """The programs for averages that are compared with the paper's."""
        return tuple(m for m in self.measurements if m.counts)

    def values(self) -> dict[str, Any]:
        """The numbers that the claims are about, of the counting programs that have them. Metrics
        are by the label of the design.
        """
        counting = self.counting
        tps = [m.designs[TPS] for m in counting if TPS in m.designs]
        used = [counted.pages for counted in tps if counted.pages]
        scarce = [m.fragmented[TPS].pages for m in counting if TPS in m.fragmented]
        both = [m.designs for m in counting if {TPS, BASE} <= set(m.designs)]
        paged = [(designs[TPS].pages, designs[BASE].pages) for designs in both]
        paged = [(ours, base) for ours, base in paged if ours and base]
        gone = [m.metrics()["references_gone"] for m in counting]
        walks = [(shares.get(TPS), shares.get(RMM)) for shares in gone]
        growths = [m.tps_growth for m in self.measurements]
        local = {
            m.program: m.metrics()["misses_gone_fragmented"].get(TPS)
            for m in self.measurements
            if m.program in LOCAL
        }
        free_shares = {coverage.memory: coverage.shares for coverage in self.memory}
        free = free_shares.get("this machine", {})
        is_known = free.get(64 * KIB) is not None and free.get(2 * MIB) is not None
        over_base = [sum(ours.values()) / sum(base.values()) for ours, base in paged]
        most = max((sum(ours.values()) for ours, _ in paged), default=0)
        return {
            **_by_design(counting),
            "lost": _lost(m.core_time for m in counting),
            "gigabytes": [m.metrics() for m in self.measurements if m.kind == "stream"],
            "lost_fragmented": _lost(m.core_time_fragmented for m in counting),
            "lost_smt": _lost(m.smt[BASELINE].time for m in counting if BASELINE in m.smt),
            "gups": _by_design(m for m in self.measurements if m.program == "gups"),
            "growth_2m": [m.growth_2m for m in counting],
            "hit_rates_tps": [1 - counted.misses / counted.accesses for counted in tps],
            "references_tps_over_rmm": [
                ours - rmm for ours, rmm in walks if ours is not None and rmm is not None
            ],
            "same_memory": [growth == 0 for growth in growths if growth is not None],
            "free_memory_here": free if is_known else None,
            "fragmented_local": {
                program: share for program, share in local.items() if share is not None
            },
            "free_memory_simulated": free_shares.get("as simulated"),
            "sizes_used": _sizes_used(used),
            "sizes_used_fragmented": _sizes_used(pages for pages in scarce if pages),
            "small_pages": [
                sum(n for size, n in pages.items() if size < 2 * MIB) / sum(pages.values())
                for pages in used
            ],
            "page_counts": {"over_base": over_base, "most": most} if paged else None,
        }

    def document(self) -> dict[str, Any]:
        """Plain data for the JSON."""
        return {
            **super().document(),
            "not_told": load_study(STUDY)["left_out"],
            "designs": list(DESIGNS),
            "large": self.large,
            "programs": [measured.record() for measured in self.measurements],
            "free_memory": [
                {
                    "memory": coverage.memory,
                    "shares": {str(size): coverage.shares[size] for size in SIZES},
                }
                for coverage in self.memory
            ],
        }

    def page_names(self) -> dict[str, Any]:
        """The averages, and the page sizes that TPS used."""
        having_tps = [m for m in self.measurements if TPS in m.designs]
        return {
            **super().page_names(),
            "scale": usual_scale(),
            "usual_instructions": usual_instructions(),
            "averaged": _by_design(self.counting),
            "averaged_intense": _by_design(m for m in self.measurements if m.is_intense),
            "having_tps": having_tps,
            "page_sizes": sorted({size for m in having_tps for size in m.designs[TPS].pages}),
        }


def _lost(times: Iterable[ExecutionTime | None]) -> list[float]:
    """For each known time, the cycles of translation as a share of all other cycles."""
    return [time.cycles / time.ideal_cycles - 1 for time in times if time is not None]


def _sizes_used(pages: Iterable[dict[int, int]]) -> list[float]:
    """For each program's pages by size: of the sizes up to its largest, the share that it uses."""
    return [len(by_size) / (max(by_size) // (4 * KIB)).bit_length() for by_size in pages]


def _by_design(measured: Iterable[Measurement]) -> dict[str, dict[str, list[float]]]:
    """For each metric and design, the values of the programs that have one."""
    found: dict[str, dict[str, list[float]]] = {
        metric: {label(name): [] for name in DESIGNS} for metric in METRICS
    }
    for m in measured:
        for metric, values in m.metrics().items():
            for name, value in values.items():
                if value is not None:
                    found[metric][label(name)].append(value)
    return found


def run_study(request: Request, *, chosen: Sequence[Subject] | None = None) -> Study:
    """Runs every program that is installed, or only the chosen programs."""
    all_subjects = (
        subjects(large=request.large, machine=MACHINE) if chosen is None else list(chosen)
    )
    by_name = {subject.program.name: subject for subject in all_subjects}
    skipped: dict[str, str] = {}

    def measured(program: Program, trace: Path) -> Measurement:
        return _measured(by_name[program.name], trace)

    programs = [subject.program for subject in all_subjects]
    done = measure_traces(programs, request, measured, skipped)
    memory = tuple(coverages())
    return Study(tuple(done), skipped, request.max_instructions, memory=memory, large=request.large)


def _measured(subject: Subject, trace: Path) -> Measurement:
    """All passes over one trace."""
    place = trace.parent
    begin, end = extent(subject, trace)
    touched = document(["run", "--page-sizes", "4KiB,2MiB", str(trace)], place)
    settings = [*to_settings(subject.settings)]
    added = [*simulate(MACHINE), *settings]
    region_of_one = scope(begin, end)
    empty = document([*added, *region_of_one, "--design", ",".join(DESIGNS), str(trace)], place)
    designs = all_counted(empty)
    if BASE not in designs:
        raise NotMeasured("memory ran out with 4 KiB pages")
    compared = ["--design", ",".join((BASELINE, TPS, *RIVALS))]
    scarce = [*to_settings(fragmented(designs[BASE].resident_bytes))]
    short = document([*added, *scarce, *region_of_one, *compared, str(trace)], place)
    shared = timed = timed_short = None
    if subject.kind != "program":
        # Each thread first runs alone up to its region, so that its memory is contiguous.
        turns = ["--quantum", str(SMT_TURN_INSTRUCTIONS), "--first-quantum", str(max(begin, 1))]
        both = ["--processes", "asid", *turns]
        region_of_both = scope(2 * begin, None if end is None else 2 * end)
        traces = [str(trace), str(trace)]
        beside = ["--design", ",".join((BASELINE, TPS, *RIVALS, OVER_BASELINE))]
        shared = document([*added, *region_of_both, *both, *beside, *traces], place)
        first = scope(*extent(subject, trace, MOST_INSTRUCTIONS))
        execute = [*simulate(MACHINE, "out-of-order"), *settings, *first]
        execute += ["--fast-forward"] if begin else []
        executed = ["--design", ",".join(TIMED), str(trace)]
        timed = document([*execute, *executed], place)
        timed_short = document([*execute, *scarce, *executed], place)
    times = (shared, timed, timed_short)
    return measure(subject, touched, instructions_of(empty), designs, short, *times)


def measure(
    subject: Subject,
    touched: dict[str, Any],
    instructions: int,
    designs: dict[str, Counted],
    short: dict[str, Any],
    shared: dict[str, Any] | None = None,
    timed: dict[str, Any] | None = None,
    timed_short: dict[str, Any] | None = None,
) -> Measurement:
    """The numbers of one program, from the documents of its passes and the counts of `designs` on
    empty memory.
    """
    memory = {row["page_size"]: row for row in all_memory(main_process(touched["rows"]))}
    return Measurement(
        program=subject.program.name,
        kind=subject.kind,
        instructions=instructions,
        touched_bytes=memory[BASE_PAGE]["touched_bytes"],
        growth_2m=memory[2 * MIB]["growth"] or 0.0,
        designs=designs,
        fragmented=all_counted(short),
        smt={} if shared is None else all_counted(shared, of_all=True),
        core_time=None if timed is None else core_time(cycles_of(timed)),
        core_time_fragmented=None if timed_short is None else core_time(cycles_of(timed_short)),
    )


def instructions_of(result: dict[str, Any]) -> int:
    """The instructions of the main process."""
    return int(stream_counters(main_process(result["rows"]))["instructions"])


def cycles_of(result: dict[str, Any]) -> dict[str, float]:
    """The core's cycles of the main process, by design."""
    return {
        str(row.get("design")): row["value"]
        for row in main_process(result["rows"])
        if (row["component"], row["counter"]) == ("core", "cycles")
    }


def all_counted(result: dict[str, Any], *, of_all: bool = False) -> dict[str, Counted]:
    """By design; those that ran out of memory are left out."""
    return {name: _counted(one) for name, one in simulated_of(result, of_all=of_all).items()}


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
