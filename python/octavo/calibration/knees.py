"""Finds the reach of the levels of a TLB: steps in a curve of translation cost over pages.

The curve is the latency of one load in each of N pages minus that of as many loads close together.
Up to the first level's reach it is flat, at zero; up to the second level's it is flat again, at the
cost of a second-level hit; beyond that, each load walks the page table. A fully associative LRU TLB
makes a sharp step. A TLB whose sets fill unevenly makes a gradual step, which is half complete at
about its number of entries.

The method assumes that the second level has at least `LEAST_RATIO` times as many entries as the
first, as all processors with two levels have. Levels that it cannot find are left out.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from octavo.calibration.file import Reach, Spread

LEAST_RATIO = 8
"""Least ratio of second-level to first-level entries; the second flat part reaches at least half
as far."""
LEAST_STEP_CYCLES = 1.5
"""A rise below this is not a step: a second-level hit costs several cycles on every processor."""
_NOISES = 4.0
"""Multiple of the noise that a rise must exceed."""
_FEWEST_FLAT = 4
"""Fewest points of a flat part."""
_SLOPE = 0.5
"""A part is not flat if it rises from its first to its second half by this share of its height."""
_TOP = (2.5, 5.0)
"""Range in which the second step has ended, as multiples of the pages at which it begins."""
_TAIL = 0.7
"""The tail of a curve begins at this share of its most pages."""
_DONE = 0.9
"""The share of its height at which a step counts as complete."""
_RESAMPLES = 100
_SEED = 1
_GAUSSIAN = 1.4826
"""Factor from a median absolute deviation to a standard deviation."""


@dataclass(frozen=True)
class CurvePoint:
    """Cycles of a load over `pages` pages and of its control, loads close together. Samples with
    the same index were taken one after the other.
    """

    pages: int
    cycles: Sequence[float]
    control: Sequence[float]

    @property
    def cost(self) -> float:
        """Cycles that translation adds to a load."""
        return undisturbed(self.cycles) - undisturbed(self.control)


@dataclass(frozen=True)
class Knees:
    """The levels found, and the reason for a missing one."""

    reach: Reach
    second_level_hit: Spread | None
    """Cycles that a second-level hit adds to a load."""
    missing: str | None
    """Why a level is missing, as a part of a sentence; None where both were found."""


@dataclass(frozen=True)
class _Step:
    """A step of one curve, as indices of its points."""

    begin: int
    """The last point before the step."""
    half: int
    """The last point at which the step is at most half complete."""
    end: int
    """The first point at which the step is complete."""


@dataclass(frozen=True)
class _Found:
    """The steps of one curve, and the reason for a missing one."""

    first: _Step | None
    second: _Step | None
    missing: str | None
    plateau: tuple[int, int] | None = None
    """The second flat part, as a half-open range of indices."""


def find_knees(curve: Sequence[CurvePoint]) -> Knees:
    """The levels of the TLB, from points in ascending order of pages.

    The low bound of a reach is the last number of pages before the cost rises, the median the last
    at which it has risen by at most half, and the high bound the first at which the rise is
    complete. Low and high are the 5% and 95% quantiles over resampled rounds (the bootstrap). A
    level that fewer than half of the samples show counts as not found.
    """
    whole = _knees([point.cost for point in curve], curve)
    drawn = [_knees(costs, curve) for costs in _redraw(curve)]
    first = _reach(curve, whole.first, [one.first for one in drawn])
    second = _reach(curve, whole.second, [one.second for one in drawn])
    hit = None
    if whole.plateau is not None and first is not None:
        hit = spread_of([point.cost for point in curve[slice(*whole.plateau)]])
    missing = whole.missing
    if missing is None and (first is None or second is None):
        missing = "the measurement is too noisy: rounds disagree"
    return Knees(Reach(first, second), hit, missing)


def spread_of(samples: Sequence[float]) -> Spread:
    """The median with the 10% and 90% quantiles as bounds."""
    return Spread(quantile(samples, 0.1), median(samples), quantile(samples, 0.9))


def quantile(samples: Sequence[float], share: float) -> float:
    """The quantile for a share from 0 to 1, interpolated linearly."""
    ordered = sorted(samples)
    place = share * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


def undisturbed(samples: Sequence[float]) -> float:
    """The lower quartile of times, as other work on the machine can only make loads slower."""
    return quantile(samples, 0.25)


def _redraw(curve: Sequence[CurvePoint]) -> list[list[float]]:
    """Costs over rounds drawn with replacement; the seed is fixed."""
    draw = random.Random(_SEED)
    return [[_redrawn(point, draw).cost for point in curve] for _ in range(_RESAMPLES)]


def _redrawn(point: CurvePoint, draw: random.Random) -> CurvePoint:
    rounds = draw.choices(range(len(point.cycles)), k=len(point.cycles))
    return CurvePoint(
        point.pages, [point.cycles[at] for at in rounds], [point.control[at] for at in rounds]
    )


def _reach(
    curve: Sequence[CurvePoint], found: _Step | None, drawn: Sequence[_Step | None]
) -> Spread | None:
    steps = [step for step in drawn if step is not None]
    if found is None or 2 * len(steps) < len(drawn):
        return None
    steps.append(found)
    low = round(quantile([step.begin for step in steps], 0.05))
    high = round(quantile([step.end for step in steps], 0.95))
    places = (min(low, found.begin), found.half, max(high, found.end))
    return Spread(*(curve[place].pages for place in places))


def _knees(costs: Sequence[float], curve: Sequence[CurvePoint]) -> _Found:
    pages = [point.pages for point in curve]
    if len(pages) < 3 * _FEWEST_FLAT:
        return _Found(None, None, "too few numbers of pages were measured")
    smooth = _smooth(costs)
    rising = _nondecreasing(smooth)
    # The first level is assumed to hold twice the smallest number of pages.
    start = max(_FEWEST_FLAT, sum(size < 2 * pages[0] for size in pages))
    floor = median(smooth[:start])
    least = max(LEAST_STEP_CYCLES, _NOISES * _noise(costs, rising))
    first = _last_below(rising, floor + least)
    if first is None or first + _FEWEST_FLAT > len(pages):
        return _Found(None, None, f"no step up to {pages[-1]} pages")
    if first < _FEWEST_FLAT - 1 or rising[start - 1] - rising[0] > least:
        return _Found(None, None, "the cost of translation is not flat for the fewest pages")
    # Beyond the knee the curve may need some points to rise.
    begin = next((at for at, size in enumerate(pages) if size >= 1.25 * pages[first]), len(pages))
    end = sum(size <= LEAST_RATIO / 2 * pages[first] for size in pages)
    if end - begin < _FEWEST_FLAT:
        return _Found(
            _Step(first, first, first + 1), None, f"no second step up to {pages[-1]} pages"
        )
    middle = (begin + end) // 2
    height = median(smooth[begin:end])
    slope = median(smooth[middle:end]) - median(smooth[begin:middle])
    step = _step(rising, first, floor, height)
    if slope > max(least, _SLOPE * (height - floor)):
        why = "beyond the first level the cost rises without a flat part"
        return _Found(_Step(first, first, first + 1), None, why)
    second = _last_below(rising, height + max(least, _SLOPE * (height - floor)))
    if second is None:
        return _Found(step, None, f"no second step up to {pages[-1]} pages", (begin, end))
    if second < end - 1:
        return _Found(step, None, "the first and the second step overlap", (begin, end))
    top = _top(smooth, pages, second, height)
    if top is None:
        why = f"the second step begins at {pages[second]} pages and is not over at {pages[-1]}"
        return _Found(step, None, why, (begin, end))
    return _Found(step, _step(rising, second, height, top), None, (begin, end))


def _top(smooth: Sequence[float], pages: Sequence[int], begin: int, low: float) -> float | None:
    """The cost after the step that begins after a point; None where the curve ends within the step.

    Costs keep rising slowly with the size of the page tables, so the top is the cost at a few times
    as many pages. Where so many were not measured, the curve must have become flat.
    """
    least, most = (times * pages[begin] for times in _TOP)
    beyond = [one for one, size in zip(smooth, pages, strict=True) if least <= size <= most]
    if beyond:
        return median(beyond)
    tail = [one for one, size in zip(smooth, pages, strict=True) if size >= _TAIL * pages[-1]]
    is_flat = max(tail) - min(tail) <= (1 - _DONE) * (min(tail) - low)
    return median(tail) if is_flat else None


def _step(rising: Sequence[float], begin: int, low: float, high: float) -> _Step:
    """The step that begins after a point and rises from one level to another."""
    half = next((at for at, one in enumerate(rising) if one > (low + high) / 2), begin + 1) - 1
    done = low + _DONE * (high - low)
    end = next((at for at, one in enumerate(rising) if one >= done), len(rising) - 1)
    half = max(half, begin)
    return _Step(begin, half, max(end, half + 1))


def _last_below(rising: Sequence[float], level: float) -> int | None:
    """The last index before the curve exceeds a level; None where it never does."""
    above = next((at for at, value in enumerate(rising) if value > level), None)
    return None if above is None else max(above - 1, 0)


def _smooth(values: Sequence[float]) -> list[float]:
    """Medians of each value and its neighbours, so that a single disturbed point makes no step."""
    inner = [median(values[at - 1 : at + 2]) for at in range(1, len(values) - 1)]
    return [values[0], *inner, values[-1]]


def _nondecreasing(values: Sequence[float]) -> list[float]:
    """The closest nondecreasing values, by the pooling of adjacent violators."""
    pools: list[tuple[float, int]] = []
    for value in values:
        pools.append((value, 1))
        while len(pools) > 1 and pools[-2][0] > pools[-1][0]:
            (above, many), (below, few) = pools[-2:]
            pools[-2:] = [((above * many + below * few) / (many + few), many + few)]
    return [mean for mean, count in pools for _ in range(count)]


def _noise(costs: Sequence[float], rising: Sequence[float]) -> float:
    """The standard deviation of the points from the rising curve, over the lower half of the
    points, as costs scatter more beyond the second level.
    """
    half = len(costs) // 2
    off = [abs(one - fit) for one, fit in zip(costs[:half], rising[:half], strict=True)]
    return _GAUSSIAN * median(off)
