"""The measurements of Tailored Page Sizes (TPS) for one program: every number of the paper's charts
is computed here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from octavo.simulation.execution_time import ExecutionTime
from octavo.studies.programs import Kind

BASE, BASELINE, TPS = "base4k", "reserved_thp", "tps"
COLT, RMM = f"colt+{BASELINE}", "rmm"
RIVALS = (COLT, RMM)
"""The designs that the paper compares TPS with. CoLT changes only the hardware: it has the
baseline's operating system.
"""
OVER_BASELINE = f"rmm+{BASELINE}:ranges=true"
"""RMM's range TLB with the baseline's pages, so that first-level misses compare with the
baseline's. With RMM's own eager paging other pages are huge, and ranges are longer.
"""
DESIGNS = (BASELINE, BASE, TPS, *RIVALS, OVER_BASELINE)
"""The designs of the study, the baseline first."""
PERFECT_L1, PERFECT_L2 = f"perfect_l1+{BASELINE}", f"perfect_l2+{BASELINE}"
TIMED = (BASELINE, PERFECT_L1, PERFECT_L2)
"""Designs for the core: the baseline, unchanged and with one level of TLBs that never misses."""
MOST_INSTRUCTIONS = 30_000_000
"""The most instructions of a workload that the core executes."""
METRICS = (
    *("mpki", "misses_gone", "references_gone", "speedup", "of_ideal"),
    *("speedup_smt", "of_ideal_smt", "misses_gone_fragmented"),
    *("speedup_added", "speedup_fragmented"),
)
"""The metrics of Figures 8, 10, 11, 13, 14 and 16: misses of the first-level data TLB per 1000
instructions; shares of the baseline's misses and walk references that are gone; speed-ups and
shares of lost time that are saved, by the core's time or (`_added`, `_smt`) by latencies added up;
and values on fragmented memory.
"""
INTENSE_MPKI = 5.0
"""Section IV-A: real programs with more misses than this are averaged separately."""

FEW_MPKI = 0.1
"""Below this number per 1000 instructions the baseline has too few events to eliminate."""


def label(design: str) -> str:
    """A design's name in the tables: without its policy."""
    return "rmm_over_baseline" if design == OVER_BASELINE else design.partition("+")[0]


@dataclass(frozen=True)
class Counted:
    """The counts of one design for one program."""

    accesses: int
    """Look-ups of the first-level TLB for data."""
    misses: int
    """Look-ups that missed."""
    walk_references: int
    resident_bytes: int
    """Peak bytes of data."""
    time: ExecutionTime
    """The time with all latencies added up."""
    pages: dict[int, int]
    """Numbers of pages mapped at the end, by page size in bytes."""


@dataclass(frozen=True)
class Measurement:
    """The measurements of one program: on an empty memory, on a fragmented one, and beside a
    second thread.
    """

    program: str
    kind: Kind
    instructions: int
    touched_bytes: int
    """Touched memory in pages of 4 KiB."""
    growth_2m: float
    """Growth of touched memory in pages of 2 MiB alone (Figure 9)."""
    designs: dict[str, Counted]
    """Counts on empty memory, by design; a design that ran out of memory is left out."""
    fragmented: dict[str, Counted]
    """Counts on fragmented memory."""
    smt: dict[str, Counted]
    """Counts of two threads of the same program on one core, added up."""
    core_time: ExecutionTime | None = None
    """The baseline's time by the core; None where the core did not execute the program."""
    core_time_fragmented: ExecutionTime | None = None
    """The baseline's time by the core on fragmented memory."""

    def mpki(self, design: str) -> float | None:
        """Misses of the first-level TLB for data per 1000 instructions (Figure 8)."""
        counted = self.designs.get(design)
        return None if counted is None else counted.misses * 1000 / self.instructions

    @property
    def counts(self) -> bool:
        """Whether averages include the program: only workloads stand for the paper's programs,
        which take gigabytes.
        """
        return self.kind == "workload"

    @property
    def is_intense(self) -> bool:
        """Whether this is a real program with enough misses for the paper's selection."""
        return self.kind == "program" and (self.mpki(BASE) or 0.0) > INTENSE_MPKI

    def time(
        self, counts: Mapping[str, Counted], design: str, measured: ExecutionTime | None = None
    ) -> ExecutionTime | None:
        """Section IV-B: a design's time from the baseline's time (`measured`, or latencies added
        up), with T_L1DTLBM scaled by the ratio of first-level misses, and T_PW by the ratio of
        walk references.
        """
        base, one = counts.get(BASELINE), counts.get(design)
        if base is None or one is None:
            return None
        time = measured or base.time
        # RMM is before the second level, over the baseline's pages.
        like = counts.get(OVER_BASELINE, one) if design == RMM else one
        return ExecutionTime(
            time.ideal_cycles,
            time.tlb_cycles * _ratio(like.misses, base.misses),
            time.walk_cycles * _ratio(one.walk_references, base.walk_references),
        )

    def metrics(self) -> dict[str, dict[str, float | None]]:
        """METRICS, each by design; None for an unknown value."""
        return {
            "mpki": {name: self.mpki(name) for name in self.designs},
            "misses_gone": self._gone(self.designs, lambda counted: counted.misses),
            "references_gone": self._gone(self.designs, lambda counted: counted.walk_references),
            "speedup": self._of_times(self.designs, _speedup, self.core_time),
            "of_ideal": self._of_times(self.designs, _of_ideal, self.core_time),
            "speedup_added": self._of_times(self.designs, _speedup),
            "speedup_fragmented": self._of_times(
                self.fragmented, _speedup, self.core_time_fragmented
            )
            if self.core_time_fragmented
            else {},
            "speedup_smt": self._of_times(self.smt, _speedup),
            "of_ideal_smt": self._of_times(self.smt, _of_ideal),
            "misses_gone_fragmented": self._gone(self.fragmented, lambda counted: counted.misses),
        }

    def _gone(
        self, counts: Mapping[str, Counted], events: Callable[[Counted], int]
    ) -> dict[str, float | None]:
        """The share of the baseline's events that is gone; None if the baseline has too few."""
        few = FEW_MPKI * self.instructions
        base = events(counts[BASELINE]) if BASELINE in counts else 0
        has_enough = BASELINE in counts and base * 1000 >= few
        return {
            name: 1 - events(one) / base if has_enough else None for name, one in counts.items()
        }

    def _of_times(
        self,
        counts: Mapping[str, Counted],
        compare: Callable[[ExecutionTime, ExecutionTime], float | None],
        measured: ExecutionTime | None = None,
    ) -> dict[str, float | None]:
        """A comparison of each design's time with the baseline's."""
        times = {name: self.time(counts, name, measured) for name in counts}
        base = times.get(BASELINE)
        return {
            name: None if base is None or time is None else compare(base, time)
            for name, time in times.items()
        }

    @property
    def tps_growth(self) -> float | None:
        """How much more memory TPS takes than 4 KiB pages."""
        if not {BASE, TPS} <= set(self.designs):
            return None
        return self.designs[TPS].resident_bytes / self.designs[BASE].resident_bytes - 1

    def ran_out(self) -> Iterator[tuple[str, list[str]]]:
        """Pairs: a condition in words, and the labels of designs that ran out of memory then."""
        for where, counts in (
            ("", self.designs),
            (" when it is fragmented", self.fragmented),
            (" with a second thread", self.smt),
        ):
            if where and not counts:
                continue
            wanted = (BASELINE, TPS, *RIVALS) if where else DESIGNS
            yield where, [label(name) for name in wanted if name not in counts]

    def record(self) -> dict[str, Any]:
        """Plain data: the counts and the metrics computed from them."""
        return {**asdict(self), "counts": self.counts, **self.metrics()}

    def flat(self) -> dict[str, Any]:
        """One flat record, without the counts of pages: `misses_gone.tps`."""
        flat = {}
        for key, value in self.record().items():
            if not isinstance(value, dict):
                flat[key] = value
            elif key not in ("designs", "fragmented", "smt"):
                flat.update({f"{key}.{name}": number for name, number in value.items()})
        return flat


def _ratio(value: int, base: int) -> float:
    return value / base if base else 1.0


def core_time(cycles: Mapping[str, float]) -> ExecutionTime | None:
    """The terms of the baseline's time from the core's cycles of TIMED. The difference to a first
    level that never misses is T_L1DTLBM + T_PW; to a second level that never misses, T_PW.
    """
    if not set(TIMED) <= set(cycles):
        return None
    base, ideal, without_walks = (cycles[name] for name in TIMED)
    # A core that hides all of a walk may differ by a few cycles either way.
    walks = max(base - without_walks, 0.0)
    return ExecutionTime(ideal, max(base - ideal - walks, 0.0), walks)


def _speedup(base: ExecutionTime, time: ExecutionTime) -> float:
    """How much faster than the baseline: 0.157 for 15.7% (Figures 13 and 14)."""
    return base.cycles / time.cycles - 1


def _of_ideal(base: ExecutionTime, time: ExecutionTime) -> float | None:
    """The share of the time lost to misses that is saved."""
    lost = base.cycles - base.ideal_cycles
    return (base.cycles - time.cycles) / lost if lost else None
