"""Selects the points to draw of a curve of thousands."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import inf, log

TOLERANCE = log(1.02)
"""How far a drawn line may be from a point that is left out: 2%, less than a pixel of a figure."""


def thinned(counts: Sequence[float], first: int = 1) -> Iterator[int]:
    """Places whose connecting lines, on logarithmic axes, pass near all others.

    `counts` are at `first` and the numbers after it; the first, the last and those at powers of two
    are always among them. The method is the "swinging door": from a kept point, the slopes that
    pass near all points since narrow down until none is left.
    """
    heights = [log(max(count, 0.5)) for count in counts]
    anchor, low, high = 0, -inf, inf
    for place, height in enumerate(heights):
        number = place + first
        if place > anchor:
            slope = (height - heights[anchor]) / log(number / (anchor + first))
            if not low <= slope <= high:
                anchor, low, high = place - 1, -inf, inf
                yield anchor
        is_end = place in (0, len(counts) - 1)
        if is_end or number & (number - 1) == 0:
            anchor, low, high = place, -inf, inf
            yield place
        else:
            run, rise = log(number / (anchor + first)), height - heights[anchor]
            low = max(low, (rise - TOLERANCE) / run)
            high = min(high, (rise + TOLERANCE) / run)
