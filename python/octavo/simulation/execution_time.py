"""Execution time by the terms of Guvenilir and Patt: T = T_IDEAL + T_L1DTLBM + T_PW.

"Tailored Page Sizes", section IV: T_IDEAL is the time without page walks or TLB misses, T_L1DTLBM
the time of first-level TLB misses that hit in the second level, T_PW the time of page walks.
Every table and row with these terms names their source.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from octavo.base.errors import UsageError
from octavo.simulation.model import WALKS, Simulated
from octavo.simulation.perf_stat import PerfStat, read_perf_stat

SIMULATED = (
    "Execution time is T = T_IDEAL + T_L1DTLBM + T_PW of the simulation's own cycles: the base CPI "
    "and misses of the caches by code and data; what second-level TLBs cost, for code too, and "
    "nested TLBs, handlers of virtual caches, their write-backs and sweeps; all cycles of walks. "
    "What a core overlaps is in all terms, so each of them is too large, and the share of "
    "translation in T may be too high or too low."
)

MEASURED = (
    "Measured execution time: T and T_PW of {huge} are from counters that the user measured (files "
    "of `perf stat`), T_PW being the {share:.1%} of its walk cycles that the step from {base} to "
    "{huge} showed to be lost; its T_L1DTLBM is the simulation's, for as many instructions; "
    "T_IDEAL is what is left. Other designs: T_L1DTLBM times the simulated ratio of first-level "
    "TLB misses of data, T_PW times that of page-walk references."
)
SIMULATED_SOURCE, MEASURED_SOURCE = "simulated", "measured"
BASE, HUGE = "base4k", "thp"
"""The designs that a user can measure on Linux: without transparent huge pages, and with them."""


@dataclass(frozen=True)
class ExecutionTime:
    """An execution time in cycles, by term."""

    ideal_cycles: float
    tlb_cycles: float
    """T_L1DTLBM."""
    walk_cycles: float
    """T_PW."""

    @property
    def cycles(self) -> float:
        """T, the sum of the terms."""
        return self.ideal_cycles + self.tlb_cycles + self.walk_cycles

    def terms(self) -> dict[str, float]:
        """The terms by their names in the paper, T last."""
        return {
            "T_IDEAL": self.ideal_cycles,
            "T_L1DTLBM": self.tlb_cycles,
            "T_PW": self.walk_cycles,
            "T": self.cycles,
        }


def simulated_time(one: Simulated) -> ExecutionTime | None:
    """The time from the simulation's own cycles, all of which count as lost; None without
    instructions, and for a machine that stopped.

    Every term is larger than on a core that overlaps its work. The paper's T_PW is the part of a
    walker's cycles that a real core could not overlap, and in its T_IDEAL data misses overlap each
    other. So the share of translation, T_PW over T, is no bound: it may be too high or too low.
    """
    if not one.instructions or one.stopped is not None:
        return None
    walks = one.count("core", WALKS)
    tlb = one.translation_cycles - walks
    return ExecutionTime(one.added_cycles - one.translation_cycles, tlb, walks)


@dataclass(frozen=True)
class Measured:
    """Two runs on a real machine: without transparent huge pages, and with them."""

    base: PerfStat
    huge: PerfStat

    @property
    def lost_share(self) -> float:
        """The share of walk cycles that is lost time: the cycles that huge pages saved, over the
        walk cycles that they saved (the paper's Figure 12).
        """
        saved = self.base.cycles - self.huge.cycles
        return saved / (self.base.walk_cycles - self.huge.walk_cycles)

    def note(self) -> str:
        """A note on the source of the terms."""
        return MEASURED.format(base=BASE, huge=HUGE, share=self.lost_share)

    def resolved(self) -> dict[str, Any]:
        """Plain data, for the manifest."""
        return {BASE: asdict(self.base), HUGE: asdict(self.huge)}

    def time(self, one: Simulated, huge: Simulated) -> ExecutionTime | None:
        """The time of a design; `huge` is the simulated result of the measured design.

        None where a term would have to grow from zero, where the number of instructions is not
        known, and where more time would be lost than was measured, as for another program.
        """
        if not huge.instructions or one.stopped is not None or huge.stopped is not None:
            return None
        scale = (self.huge.instructions or huge.instructions) / huge.instructions
        tlb = (huge.translation_cycles - huge.walk_cycles) * scale
        walks = self.lost_share * self.huge.walk_cycles
        tlb_ratio = _ratio(_data_misses(one), _data_misses(huge))
        walk_ratio = _ratio(_walk_references(one), _walk_references(huge))
        if tlb_ratio is None or walk_ratio is None:
            return None
        ideal = self.huge.cycles - tlb - walks
        if ideal < 0:
            return None
        return ExecutionTime(ideal, tlb * tlb_ratio, walks * walk_ratio)


def read_measured(base: str | None, huge: str | None, designs: Sequence[str]) -> Measured | None:
    """Reads the files of `--perf-4k` and `--perf-thp`. Raises UsageError."""
    if base is None and huge is None:
        return None
    if base is None or huge is None:
        raise UsageError("--perf-4k and --perf-thp go together: a run without THP, and one with.")
    if HUGE not in designs:
        raise UsageError(f"--perf-thp measures the design {HUGE}: give it to --design, too.")
    measured = Measured(
        read_perf_stat("--perf-4k", base),
        read_perf_stat("--perf-thp", huge),
    )
    if measured.base.walk_cycles <= measured.huge.walk_cycles:
        raise UsageError(
            f"the run of `{huge}` has no fewer cycles of page walks than that of `{base}`: what a "
            "cycle of a walk costs cannot be computed."
        )
    if measured.base.cycles <= measured.huge.cycles:
        raise UsageError(
            f"the run of `{huge}` has fewer cycles of page walks than that of `{base}`, and took "
            "no fewer cycles: what a cycle of a walk costs cannot be computed."
        )
    return measured


def _data_misses(one: Simulated) -> int:
    return one.misses("l1d") or one.misses("l1") or 0


def _walk_references(one: Simulated) -> int:
    return one.count("walker", "references")


def _ratio(count: int, other: int) -> float | None:
    if not count:
        return 0.0
    return count / other if other else None
