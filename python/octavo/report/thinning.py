"""Selects the points to draw of a curve with thousands of points."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import inf, log

TOLERANCE = log(1.02)
"""Limit of the distance of the drawn line from a point that is left out: 2%, below one pixel."""


def thinned(counts: Sequence[float], first: int = 1) -> Iterator[int]:
    """Indices of points whose connecting lines, on logarithmic axes, pass near all other points.

    `counts` are at `first` and the numbers after it. The first and the last point and those at
    powers of two are always kept. The method is the "swinging door": from a kept point, the range
    of slopes that pass near all later points narrows until it is empty.
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
