"""The gain from fewer page walks: a share of the program's time, as an interval.

The time of a program is not measured by a trace. It is taken to be its instructions at so many
cycles each, plus, for each walk, the walk and the data that the reference went for, which were not
used lately either. The interval says what these assumptions leave open: `low` has slow
instructions, cheap walks of which the core hides a half, and data from farther away; `high` has
quick instructions, dear walks that hide behind nothing, and data that come quickly.

How many cache lines of a page are used is not known: all are taken to be, as in the loads that were
measured. Of few lines a page the data fit in nearer caches, and walks are more of the time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import fmean

from octavo.analysis.walk_costs import LoadThatWalks, WalkCosts
from octavo.base.units import BASE_PAGE, format_share

CPI_LOW, CPI_EXPECTED, CPI_HIGH = 0.4, 0.75, 2.0
"""Cycles of an instruction without misses of TLBs and of the caches beside them."""
HIDDEN_AT_MOST, HIDDEN_EXPECTED = 0.5, 0.25
"""Shares of a walk that a core hides behind other work."""
ASSUMPTIONS = (
    "Gains are shares of the time that the program takes with 4 KiB pages, estimated: "
    f"{CPI_LOW} to {CPI_HIGH:g} cycles an instruction beside walks and the data that they fetch, "
    f"and up to {HIDDEN_AT_MOST:.0%} of a walk hidden by the core. Page faults that larger pages "
    "save, the kernel's own work and hits in the second-level TLB are not counted. All lines of "
    "each page are taken to be used: where they are few, data come from nearer caches, and the "
    "gain can be far above the expected one. octavo verify measures."
)


_LEAST_SHOWN = 0.0005
"""Shares below are shown as 0.0%."""


@dataclass(frozen=True)
class Gain:
    """Shares of the program's time that a change saves."""

    low: float
    expected: float
    high: float

    def record(self) -> dict[str, float]:
        """Plain data for the JSON."""
        return asdict(self)

    def __str__(self) -> str:
        """`about 8.0% (2.1% to 19%)`; `at most 0.4%` where none is expected; `less than 0.1%`."""
        if self.high < _LEAST_SHOWN:
            return "less than 0.1%"
        if self.expected < _LEAST_SHOWN:
            return f"at most {format_share(self.high)}"
        return (
            f"about {format_share(self.expected)} ({format_share(self.low)} to "
            f"{format_share(self.high)})"
        )


NO_GAIN = Gain(0.0, 0.0, 0.0)


@dataclass(frozen=True)
class Program:
    """The figures that a program's time is estimated from."""

    instructions: int
    """References, where nothing is known of instructions."""
    walks: int
    """With 4 KiB pages, of code and data."""
    touched_bytes: int
    """With 4 KiB pages."""


def gain(
    program: Program,
    costs: WalkCosts,
    page_size: int,
    walks_base: int,
    walks: int,
    touched_bytes: int,
) -> Gain:
    """The gain of `walks` to pages of `page_size` over `walks_base` to 4 KiB pages.

    `touched_bytes` is the program's memory in pages of that size.
    """
    if walks_base == 0 or program.instructions == 0:
        return NO_GAIN
    measured = costs.loads(page_size, program.touched_bytes)
    if measured is not None:
        return _by_loads(program, measured, walks_base - walks)
    return _by_walks(program, costs, page_size, walks_base, walks, touched_bytes)


def _by_loads(program: Program, loads: Sequence[LoadThatWalks], avoided: int) -> Gain:
    """From loads over a working set as large as the program's memory, measured in both sizes."""

    def share(cpi: float, load: LoadThatWalks) -> float:
        time = program.instructions * cpi + program.walks * load.cycles
        return max(0.0, avoided * load.saved / time)

    low, expected, high = (
        [share(cpi, load) for load in loads] for cpi in (CPI_HIGH, CPI_EXPECTED, CPI_LOW)
    )
    return Gain(min(low), fmean(expected), max(high))


def _by_walks(
    program: Program,
    costs: WalkCosts,
    page_size: int,
    walks_base: int,
    walks: int,
    touched_bytes: int,
) -> Gain:
    """From the cost of a walk, and of the data that are fetched after it."""
    base, large = costs.walk(BASE_PAGE, program.touched_bytes), costs.walk(page_size, touched_bytes)
    data = costs.data(program.touched_bytes)
    # Measured, the low cost is what a core that overlaps walks has left of them.
    hidden = 0.0 if page_size in costs.measured else HIDDEN_AT_MOST
    if not costs.covers(page_size):
        # Entries are of smaller pages all the same: walks become shorter, and no fewer.
        walks = max(walks, walks_base)

    def share(cpi: float, walk: float, larger: float, fetched: float, hidden: float) -> float:
        seen = 1 - hidden
        time = program.instructions * cpi + program.walks * (fetched + seen * walk)
        return max(0.0, seen * (walks_base * walk - walks * larger) / time)

    shares = sorted(
        (
            share(CPI_HIGH, base.low, large.low, data.high, hidden),
            share(CPI_EXPECTED, base.median, large.median, data.median, HIDDEN_EXPECTED),
            share(CPI_LOW, base.high, large.high, data.low, 0.0),
        )
    )
    return Gain(*shares)
