"""Whether a program does the same throughout a simulation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from octavo.simulation.model import Counts, Simulated, added

_STEADY = 1.1
"""A part of a steady program takes at most so many times the cycles of another part."""
_LEAST_INTERVALS = 4


def steadiness_notes(designs: Sequence[Simulated], interval_instructions: int) -> Iterator[str]:
    """A sentence about the first design whose cycles in the two halves of its intervals differ."""
    for one in designs:
        half = len(one.intervals) // 2
        if one.stopped is not None or 2 * half < _LEAST_INTERVALS:
            continue

        def cycles(part: Sequence[Counts], one: Simulated = one) -> float:
            instructions = interval_instructions * len(part)
            return replace(one, counts=added(part), instructions=instructions).cycles

        ratio = cycles(one.intervals[-half:]) / cycles(one.intervals[:half])
        if not 1 / _STEADY <= ratio <= _STEADY:
            yield (
                f"Not steady: in the second half of the intervals, {one.design} takes {ratio:.2f} "
                "times the cycles of the first half, as the program changes or caches are empty at "
                "the beginning. All results are of both; --warm-up leaves out the beginning, "
                "--skip-instructions and --max-instructions choose a part."
            )
            return
