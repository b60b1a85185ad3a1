"""Execution time as Guvenilir and Patt break it down: T = T_IDEAL + T_L1DTLBM + T_PW.

"Tailored Page Sizes", section IV: T_IDEAL is the time without page walks or TLB misses, T_L1DTLBM
what is lost to misses of the first-level TLB that hit in the second, T_PW what is lost to walks.
Where the terms come from is told wherever they are.
"""

from __future__ import annotations

from dataclasses import dataclass

from octavo.sim_model import WALKS, Simulated

SIMULATED = (
    "Execution time is T = T_IDEAL + T_L1DTLBM + T_PW of the simulation's own cycles: the base CPI "
    "and misses of the caches by code and data; what second-level TLBs cost, for code too; all "
    "cycles of walks."
)


@dataclass(frozen=True)
class ExecutionTime:
    """A time in cycles, by what it goes to."""

    ideal_cycles: float
    tlb_cycles: float
    """T_L1DTLBM."""
    walk_cycles: float
    """T_PW."""

    @property
    def cycles(self) -> float:
        """T, all of them."""
        return self.ideal_cycles + self.tlb_cycles + self.walk_cycles


def simulated_time(one: Simulated) -> ExecutionTime | None:
    """The time by the simulation's own cycles, each counted as lost; None without instructions.

    That is an upper bound of what translation costs: the paper's T_PW is the part of a walker's
    cycles that the core could not overlap, measured on a machine.
    """
    if not one.instructions:
        return None
    walks = one.count("core", WALKS)
    tlb = one.translation_cycles - walks
    return ExecutionTime(one.cycles - one.translation_cycles, tlb, walks)
