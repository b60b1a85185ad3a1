"""Medians with exact confidence intervals, from order statistics alone.

Of n independent values, each lies below the median of their distribution with probability 1/2.
So the k-th smallest and the k-th largest enclose the median with probability
1 - 2 P(Binomial(n, 1/2) < k), whatever the distribution (at least that where values can be equal).
Reference: W. J. Conover, Practical Nonparametric Statistics, section 3.2.

Settings are compared by the ratios of values that were measured in the same round, so that a
slowdown of the machine for some minutes cancels out.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import comb

LEVEL = 0.95
"""Probability with which all intervals of a comparison together enclose their medians."""

METHOD = (
    "order-statistic interval of the median (exact, distribution-free); settings are compared by "
    "the ratios within each round"
)


@dataclass(frozen=True)
class Interval:
    """A median and the values that enclose it."""

    median: float
    low: float
    high: float
    coverage: float
    """Probability that such an interval encloses the median of the distribution; 0 for one value.
    """
    values: int
    """The number of values."""


def coverage_of(values: int, rank: int) -> float:
    """Probability that the `rank`-th smallest and largest of `values` values enclose the median."""
    outside = 2 * sum(comb(values, below) for below in range(rank))
    return float(1 - outside / (1 << values))


def median_interval(values: Iterable[float], level: float = LEVEL) -> Interval | None:
    """The narrowest interval with this coverage; the widest possible one for too few values.

    None where there are no values.
    """
    ordered = sorted(values)
    count = len(ordered)
    if not count:
        return None
    ranks = range(1, (count + 1) // 2 + 1)
    enough = [rank for rank in ranks if coverage_of(count, rank) >= level]
    rank = max(enough, default=1)
    return Interval(
        statistics.median(ordered),
        ordered[rank - 1],
        ordered[count - rank],
        max(coverage_of(count, rank), 0.0),
        count,
    )


def ratios(values: Sequence[float | None], baseline: Sequence[float | None]) -> list[float]:
    """The ratios of rounds in which both values were measured and neither is 0."""
    pairs = zip(values, baseline, strict=True)
    return [value / base for value, base in pairs if value and base]


def level_of_each(comparisons: int) -> float:
    """The coverage that each of several intervals needs, for all to hold at once (Bonferroni)."""
    return 1 - (1 - LEVEL) / max(comparisons, 1)


def values_needed(level: float) -> int:
    """The fewest values whose extremes enclose the median with probability `level`."""
    count = 1
    while coverage_of(count, 1) < level:
        count += 1
    return count
