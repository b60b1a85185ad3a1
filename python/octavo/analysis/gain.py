"""The gain from fewer page walks and page faults: a share of the program's time, as an interval.

A trace does not measure a program's time. Where the user does not give it, it is estimated as the
sum of three parts: instructions at a fixed number of cycles each; for each walk, the walk and the
load of the data, which were not used recently either; and the time that system calls took in the
kernel during the traced run. The bounds of the interval have different assumptions:
`low` has slow instructions, cheap walks of which the core hides half, and data from far caches;
`high` has fast instructions, expensive walks that the core does not hide, and data from near
caches. `high` also tries slower instructions where these make walks more expensive: the more work
between walks, and the more memory that work reads, the less of the page table stays in the caches.

Where the time is known, the loads that walk take the part that instructions and page faults leave,
which shows how much these loads overlap.

Page faults at first touches count: all of them in the time, and the avoided ones in the saving.
Larger pages can also cost time, where the host of a virtual machine has to find the memory: then
the gain is negative.

The number of cache lines used in a page is not known. All are assumed to be used, as in the
measured loads. Where few are used, the data fit in nearer caches, and walks are more of the time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from octavo.analysis.native_time import NativeTime
from octavo.analysis.walk_costs import (
    FAULT_CYCLES,
    UNKNOWN_BETWEEN,
    Between,
    Loads,
    LoadThatWalks,
    WalkCosts,
)
from octavo.base.huge_pages import PMD_PAGE
from octavo.base.units import BASE_PAGE, format_share
from octavo.calibration.file import Spread

CPI_LOW, CPI_EXPECTED, CPI_HIGH = 0.2, 0.5, 1.5
"""Cycles of an instruction without TLB misses and the cache misses that come with them. Nine
programs with few page walks took 0.14 to 0.83 on a Zen 5, 0.36 in the median; older cores take
more."""
HIDDEN_AT_MOST, HIDDEN_EXPECTED = 0.5, 0.25
"""Shares of a walk that a core hides behind other work."""
_MORE_LINES = 4
"""Upper bound of the lines read over the data lines counted: code and other threads read lines,
too."""
_KERNEL_CYCLES_OF_A_LINE = 50
"""The fewest cycles of the kernel per cache line that it reads."""


def _range(cycles: Spread) -> str:
    return f"{cycles.low:,.0f} to {cycles.high:,.0f}"


ASSUMPTIONS = (
    "Gains are shares of the time that the program takes with 4 KiB pages, estimated: "
    f"{CPI_LOW} to {CPI_HIGH:g} cycles an instruction beside walks and the data that they fetch, "
    "or what they leave of the time that --native-time gives, "
    f"and up to {HIDDEN_AT_MOST:.0%} of a walk hidden by the core. Page faults at first touches of "
    "memory are counted, unless a program was stopped or is a known server, and in a chosen part "
    "of a run those of memory that is given back and taken again in it, at "
    f"the cost that octavo calibrate has measured, or else {_range(FAULT_CYCLES[BASE_PAGE])} "
    f"cycles for 4 KiB and {_range(FAULT_CYCLES[PMD_PAGE])} for 2 MiB; a longer run with the same "
    "memory has no more of them. System calls take the processor time that they took in the "
    "traced run, without what Valgrind adds, unless a part was chosen by instructions or marks. "
    "Other work of the kernel and hits in the second-level TLB are not counted. All lines of each "
    "page are taken to be used: where they are few, data come from nearer caches, and the gain can "
    "be far above the expected one. octavo verify measures."
)


LEAST_SHOWN = 0.0005
"""Shares below are shown as 0.0%."""


@dataclass(frozen=True)
class Gain:
    """Shares of the program's time that a change saves; negative where it costs time."""

    low: float
    expected: float
    high: float

    @property
    def is_expected(self) -> bool:
        """Whether the expected share is shown as a number above 0."""
        return self.expected >= LEAST_SHOWN

    @property
    def is_loss(self) -> bool:
        """Whether time is expected to be lost."""
        return self.expected <= -LEAST_SHOWN

    @property
    def consequence(self) -> str:
        """Words to follow `would`: `save about 8.0% (2.1% to 19%) of the time`."""
        if not self.is_loss:
            return f"save {self} of the time"
        return (
            f"take about {format_share(-self.expected)} ({format_share(-self.high)} to "
            f"{format_share(-self.low)}) more time"
        )

    def __str__(self) -> str:
        """`about 8.0% (2.1% to 19%)`; `at most 0.4%` where none is expected; `less than 0.1%`."""
        if self.high < LEAST_SHOWN:
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
    """The number of references, where that of instructions is not known."""
    walks: int
    """With 4 KiB pages, of code and data."""
    touched_bytes: int
    """With 4 KiB pages."""
    page_faults: int = 0
    """With 4 KiB pages; 0 where they do not count."""
    missed_lines: int | None = None
    """Approximate misses of the core's own caches, in lines of data; None where not counted."""
    native: NativeTime | None = None
    """None where the user has not given it."""
    kernel_seconds: float = 0.0
    """Processor time of its system calls; 0 where it is not known, or is a part of `native`."""

    def lines_between_walks(self, clock: float) -> Between:
        """The lines of other memory that it reads between two walks."""
        if self.missed_lines is None or not self.walks:
            return UNKNOWN_BETWEEN
        # One of these lines is that of the reference that walks.
        each = self.missed_lines / self.walks
        kernel = self.kernel_seconds * clock / self.walks / _KERNEL_CYCLES_OF_A_LINE
        return Between(max(0.0, each - 1), _MORE_LINES * each + kernel)


@dataclass(frozen=True)
class PageFaults:
    """Page faults at first touches of the memory that is to have larger pages."""

    base: int
    """With 4 KiB pages."""
    large: int
    """With larger pages: faults that give a larger page."""
    left: int
    """With larger pages: faults that give 4 KiB, where no larger page fits."""
    again: int = 0
    """The part of `large` that gets memory which the program had given back."""


NO_FAULTS = PageFaults(0, 0, 0)


@dataclass(frozen=True)
class _Time:
    """The figures of a program's time in one of the three estimates."""

    cpi: float
    clock: float
    """Cycles per second."""


@dataclass(frozen=True)
class _Estimate:
    """The assumptions of the low, the expected or the high estimate, without those about walks."""

    program: Program
    time: _Time
    time_of_loss: _Time
    """For an estimate that loses time. A longer time makes any share smaller, so the low estimate
    has a long time for a gain and a short one for a loss."""
    faults_all: float
    """Cycles of all page faults of the program, with 4 KiB pages."""
    faults_saved: float
    """Cycles of page faults that larger pages save; negative where their own faults cost more."""

    def computing(self, time: _Time) -> float:
        """Cycles of instructions, without loads that walk, and of system calls."""
        program = self.program
        return program.instructions * time.cpi + program.kernel_seconds * time.clock

    def share(self, saved: float, walking: float, walking_of_loss: float) -> float:
        """The share of the time that larger pages save. `saved` are the cycles of walks saved,
        `walking` those of all loads that walk, and `walking_of_loss` the same in place of `walking`
        for an estimate that loses time.
        """
        native, of_faults = self.program.native, self.faults_saved
        if native is not None and native.system:
            # Walks are a part of the time in user mode, and page faults of that in the kernel.
            saved = min(saved, native.user * self.time.clock)
            of_faults = min(of_faults, native.system * self.time.clock)
        saved += of_faults
        time = self.time
        if saved < 0:
            time, walking = self.time_of_loss, walking_of_loss
        if native is not None:
            return min(1.0, saved / (native.total * time.clock))
        return saved / (self.computing(time) + walking + self.faults_all)

    def likely(self, loads: Loads) -> list[LoadThatWalks]:
        """Loads like the program's own: a mix of both kinds that takes the known time, or each
        kind alone where the time is not known.
        """
        walks, native = max(1, self.program.walks), self.program.native
        if native is None:
            pause = (self.computing(self.time) + self.faults_all) / walks
            return [loads.independent, loads.after(pause)]
        # Page faults are a part of the kernel's time, where that is known.
        faulting = 0 if native.system else self.faults_all
        computing = self.program.instructions * self.time.cpi
        left = native.user * self.time.clock - computing - faulting
        each = native.total * self.time.clock / walks
        return [loads.that_take(left / walks, each, after=each - loads.dependent.cycles)]


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

    `touched_bytes` is the program's memory in pages of that size. The `faults` that such pages save
    are a part of the gain.
    """
    if program.instructions == 0:
        return NO_GAIN
    estimates = _estimates(program, costs, page_size, faults)
    measured = _loads(program, costs, page_size)
    if measured is not None:
        return _by_loads(program, measured, walks_base - walks, estimates)
    return _by_walks(program, costs, page_size, walks_base, walks, touched_bytes, estimates)


def seconds_of(program: Program, costs: WalkCosts) -> float:
    """The expected processor time of the program with 4 KiB pages; the native time if known."""
    if program.native is not None:
        return program.native.total
    _, expected, _ = _estimates(program, costs, PMD_PAGE, NO_FAULTS)
    measured = _loads(program, costs, PMD_PAGE)
    if measured is not None:
        load = fmean(one.cycles for one in expected.likely(measured[1]))
    else:
        walk = costs.walk(BASE_PAGE, program.touched_bytes).median
        load = costs.data(program.touched_bytes).median + (1 - HIDDEN_EXPECTED) * walk
    cycles = expected.computing(expected.time) + program.walks * load + expected.faults_all
    return cycles / expected.time.clock


def _loads(program: Program, costs: WalkCosts, page_size: int) -> list[Loads] | None:
    between = program.lines_between_walks(costs.clock.median)
    return costs.loads(page_size, program.touched_bytes, between)


def _estimates(
    program: Program, costs: WalkCosts, page_size: int, faults: PageFaults
) -> list[_Estimate]:
    """The assumptions of the low, the expected and the high gain."""
    every = costs.faults(BASE_PAGE, program.page_faults)
    base = costs.faults(BASE_PAGE, faults.base - faults.left)
    large = costs.faults(page_size, faults.large, faults.again)
    cycles = 3 * [(0.0, 0.0)]
    if every is not None and base is not None and large is not None and program.page_faults:
        cycles = [
            (every.low, base.low - large.high),
            (every.median, base.median - large.median),
            (every.high, base.high - large.low),
        ]
    clock = costs.clock
    clocks = (clock.high, clock.median, clock.low)
    times = [*map(_Time, (CPI_HIGH, CPI_EXPECTED, CPI_LOW), clocks)]
    return [
        _Estimate(program, time, time_of_loss, *of_faults)
        for time, time_of_loss, of_faults in zip(times, reversed(times), cycles, strict=True)
    ]


def _by_loads(
    program: Program, loads: Sequence[Loads], avoided: int, estimates: Sequence[_Estimate]
) -> Gain:
    """The gain from loads over a working set as large as the program's memory, measured in both
    page sizes.
    """

    def shares(estimate: _Estimate, measured: Loads) -> list[float]:
        saved_and_walking = [
            (max(0.0, avoided * load.saved), program.walks * load.cycles)
            for load in estimate.likely(measured)
        ]
        return [estimate.share(saved, walking, walking) for saved, walking in saved_and_walking]

    low, expected, high = zip(estimates, loads, strict=True)
    highest = max(share for estimate in _slower(*high) for share in shares(estimate, high[1]))
    return _in_order(min(shares(*low)), fmean(shares(*expected)), highest)


def _slower(estimate: _Estimate, loads: Loads) -> list[_Estimate]:
    """The estimate, and variants with slower instructions: walks are rarer in time and each costs
    more, up to the pause between loads that was measured.
    """
    program = estimate.program
    at_pause = loads.pause_cycles * program.walks / program.instructions
    cpis = {CPI_LOW, min(max(CPI_LOW, at_pause), CPI_HIGH), CPI_HIGH}
    return [replace(estimate, time=replace(estimate.time, cpi=cpi)) for cpi in cpis]


def _by_walks(
    program: Program,
    costs: WalkCosts,
    page_size: int,
    walks_base: int,
    walks: int,
    touched_bytes: int,
    estimates: Sequence[_Estimate],
) -> Gain:
    """The gain from the cost of a walk and of the load of data after it."""
    base, large = costs.walk(BASE_PAGE, program.touched_bytes), costs.walk(page_size, touched_bytes)
    data = costs.data(program.touched_bytes)
    # A measured low cost already leaves out the part of walks that the core overlaps.
    hidden = 0.0 if page_size in costs.measured else HIDDEN_AT_MOST
    if not costs.covers(page_size):
        # TLB entries still cover smaller pages: walks become shorter, but not fewer.
        walks = max(walks, walks_base)

    def share(
        estimate: _Estimate,
        walk: float,
        larger: float,
        hidden: float,
        fetched: float,
        fetched_of_loss: float,
    ) -> float:
        seen = 1 - hidden
        saved = max(0.0, seen * (walks_base * walk - walks * larger))
        walking = program.walks * (fetched + seen * walk)
        of_loss = program.walks * (fetched_of_loss + seen * walk)
        return estimate.share(saved, walking, of_loss)

    low, expected, high = estimates
    return _in_order(
        share(low, base.low, large.low, hidden, data.high, data.low),
        share(expected, base.median, large.median, HIDDEN_EXPECTED, data.median, data.median),
        share(high, base.high, large.high, 0.0, data.low, data.high),
    )


def _in_order(low: float, expected: float, high: float) -> Gain:
    """A gain with its bounds in order: the assumptions of `low` may yield the highest share."""
    return Gain(min(low, expected, high), expected, max(low, expected, high))
