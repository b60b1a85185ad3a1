"""The gain from fewer page walks and page faults: a share of the program's time, as an interval.

The time of a program is not measured by a trace. It is taken to be its instructions at so many
cycles each, plus, for each walk, the walk and the data that the reference went for, which were not
used lately either. The interval says what these assumptions leave open: `low` has slow
instructions, cheap walks of which the core hides a half, and data from farther away; `high` has
quick instructions, dear walks that hide behind nothing, and data that come quickly.

Page faults at first touches are added: all of them to the time, and what larger pages save of them
to what is saved.

How many cache lines of a page are used is not known: all are taken to be, as in the loads that were
measured. Of few lines a page the data fit in nearer caches, and walks are more of the time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import fmean

from octavo.analysis.walk_costs import FAULT_CYCLES, LoadThatWalks, WalkCosts
from octavo.base.huge_pages import PMD_PAGE
from octavo.base.units import BASE_PAGE, format_share
from octavo.calibration.file import Spread

CPI_LOW, CPI_EXPECTED, CPI_HIGH = 0.4, 0.75, 2.0
"""Cycles of an instruction without misses of TLBs and of the caches beside them."""
HIDDEN_AT_MOST, HIDDEN_EXPECTED = 0.5, 0.25
"""Shares of a walk that a core hides behind other work."""


def _range(cycles: Spread) -> str:
    return f"{cycles.low:,.0f} to {cycles.high:,.0f}"


ASSUMPTIONS = (
    "Gains are shares of the time that the program takes with 4 KiB pages, estimated: "
    f"{CPI_LOW} to {CPI_HIGH:g} cycles an instruction beside walks and the data that they fetch, "
    f"and up to {HIDDEN_AT_MOST:.0%} of a walk hidden by the core. Page faults at first touches of "
    "memory are counted where the whole run of a program was traced that is no known server, at "
    f"the cost that octavo calibrate has measured, or else {_range(FAULT_CYCLES[BASE_PAGE])} "
    f"cycles for 4 KiB and {_range(FAULT_CYCLES[PMD_PAGE])} for 2 MiB; a longer run with the same "
    "memory has no more of them. Other work of the kernel and hits in the second-level TLB are not "
    "counted. All lines of each page are taken to be used: where they are few, data come from "
    "nearer caches, and the gain can be far above the expected one. octavo verify measures."
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

    @property
    def is_expected(self) -> bool:
        """Whether the expected share is shown as a number above 0."""
        return self.expected >= _LEAST_SHOWN

    def __str__(self) -> str:
        """`about 8.0% (2.1% to 19%)`; `at most 0.4%` where none is expected; `less than 0.1%`."""
        if self.high < _LEAST_SHOWN:
            return "less than 0.1%"
        if not self.is_expected:
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
    page_faults: int = 0
    """With 4 KiB pages; 0 where they do not count."""


@dataclass(frozen=True)
class PageFaults:
    """Page faults at first touches of the memory that is to have larger pages."""

    base: int
    """With 4 KiB pages."""
    large: int
    """With larger pages: those that give one."""
    left: int
    """With larger pages: those that give 4 KiB where none fits."""


NO_FAULTS = PageFaults(0, 0, 0)


@dataclass(frozen=True)
class _FaultCycles:
    """Cycles of page faults, as one of the three estimates has them."""

    all: float
    """All of the program's, with 4 KiB pages."""
    saved: float
    """The part that larger pages save; negative where their own faults cost more."""


def gain(
    program: Program,
    costs: WalkCosts,
    page_size: int,
    walks_base: int,
    walks: int,
    touched_bytes: int,
    faults: PageFaults = NO_FAULTS,
) -> Gain:
    """The gain of `walks` to pages of `page_size` over `walks_base` to 4 KiB pages.

    `touched_bytes` is the program's memory in pages of that size. What such pages save of `faults`
    is a part of the gain.
    """
    if program.instructions == 0:
        return NO_GAIN
    fault_cycles = _fault_cycles(program, costs, page_size, faults)
    measured = costs.loads(page_size, program.touched_bytes)
    if measured is not None:
        return _by_loads(program, measured, walks_base - walks, fault_cycles)
    return _by_walks(program, costs, page_size, walks_base, walks, touched_bytes, fault_cycles)


def _fault_cycles(
    program: Program, costs: WalkCosts, page_size: int, faults: PageFaults
) -> list[_FaultCycles]:
    """For the low, the expected and the high gain."""
    base, large = costs.fault(BASE_PAGE), costs.fault(page_size)
    if base is None or large is None or not program.page_faults:
        return 3 * [_FaultCycles(0, 0)]
    return [
        _FaultCycles(
            all=program.page_faults * cost,
            saved=(faults.base - faults.left) * cost - faults.large * cost_of_large,
        )
        for cost, cost_of_large in (
            (base.low, large.high),
            (base.median, large.median),
            (base.high, large.low),
        )
    ]


def _by_loads(
    program: Program,
    loads: Sequence[LoadThatWalks],
    avoided: int,
    fault_cycles: Sequence[_FaultCycles],
) -> Gain:
    """From loads over a working set as large as the program's memory, measured in both sizes."""

    def share(cpi: float, load: LoadThatWalks, faults: _FaultCycles) -> float:
        time = program.instructions * cpi + program.walks * load.cycles + faults.all
        return max(0.0, (avoided * load.saved + faults.saved) / time)

    cpis = (CPI_HIGH, CPI_EXPECTED, CPI_LOW)
    low, expected, high = (
        [share(cpi, load, faults) for load in loads]
        for cpi, faults in zip(cpis, fault_cycles, strict=True)
    )
    return Gain(*sorted((min(low), fmean(expected), max(high))))


def _by_walks(
    program: Program,
    costs: WalkCosts,
    page_size: int,
    walks_base: int,
    walks: int,
    touched_bytes: int,
    fault_cycles: Sequence[_FaultCycles],
) -> Gain:
    """From the cost of a walk, and of the data that are fetched after it."""
    base, large = costs.walk(BASE_PAGE, program.touched_bytes), costs.walk(page_size, touched_bytes)
    data = costs.data(program.touched_bytes)
    # Measured, the low cost is what a core that overlaps walks has left of them.
    hidden = 0.0 if page_size in costs.measured else HIDDEN_AT_MOST
    if not costs.covers(page_size):
        # Entries are of smaller pages all the same: walks become shorter, and no fewer.
        walks = max(walks, walks_base)

    def share(
        cpi: float, walk: float, larger: float, fetched: float, hidden: float, faults: _FaultCycles
    ) -> float:
        seen = 1 - hidden
        time = program.instructions * cpi + program.walks * (fetched + seen * walk) + faults.all
        return max(0.0, (seen * (walks_base * walk - walks * larger) + faults.saved) / time)

    low, expected, high = fault_cycles
    shares = sorted(
        (
            share(CPI_HIGH, base.low, large.low, data.high, hidden, low),
            share(CPI_EXPECTED, base.median, large.median, data.median, HIDDEN_EXPECTED, expected),
            share(CPI_LOW, base.high, large.high, data.low, 0.0, high),
        )
    )
    return Gain(*shares)
