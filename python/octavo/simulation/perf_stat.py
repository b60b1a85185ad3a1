"""Reads counters that a user measured, from the output of `perf stat`."""

from __future__ import annotations

from dataclasses import dataclass

from octavo.base.errors import UsageError
from octavo.calibration.perf_stat import CYCLES, INSTRUCTIONS, INTEL_WALKERS, first_of, read_counts

_WALK_CYCLES = ("walk_active", "walk_pending", "walk_duration")
"""Intel's names, the newest first; the name found for loads is used for stores and fetches, too."""


@dataclass(frozen=True)
class PerfStat:
    """Counters and time of one run."""

    file: str
    cycles: float
    walk_cycles: float
    """Cycles in which a page walker was active."""
    instructions: float | None


def read_perf_stat(option: str, name: str) -> PerfStat:
    """Reads a file of `perf stat -o FILE`, with or without `-x,`. Raises UsageError."""
    counts = read_counts(option, name)
    cycles = first_of(counts, CYCLES)
    if cycles is None:
        raise UsageError(f"{option} `{name}` has no cycles: measure `{CYCLES[0]}` too.")
    kind = next((kind for kind in _WALK_CYCLES if f"{INTEL_WALKERS[0]}.{kind}" in counts), None)
    if kind is None:
        events = ",".join(f"{walker}.{_WALK_CYCLES[0]}" for walker in INTEL_WALKERS)
        raise UsageError(
            f"{option} `{name}` has no cycles of page walks: measure {events} too "
            f"(or .{', .'.join(_WALK_CYCLES[1:])})."
        )
    walk_cycles = sum(counts.get(f"{walker}.{kind}", 0.0) for walker in INTEL_WALKERS)
    return PerfStat(name, cycles, walk_cycles, first_of(counts, INSTRUCTIONS))
