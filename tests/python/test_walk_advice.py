"""Advice by page walks: gains as intervals, memory, and the cost of walks."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes import data_curve, footprints, region, result, write_calibration
from fakes import process as made_process
from octavo._core import OctavoError
from octavo.analysis.advice import Advice, Thresholds
from octavo.analysis.gain import Gain, PageFaults, Program, gain, seconds_of
from octavo.analysis.native_time import NativeTime
from octavo.analysis.rows import rows_of
from octavo.analysis.walk_advice import advise_by_walks
from octavo.analysis.walk_costs import UNKNOWN_BETWEEN, Between, WalkCosts, walk_costs
from octavo.base.units import GIB, KIB, MIB
from octavo.calibration.file import Spread
from octavo.hardware.modelled import given_machine, this_machine
from octavo.hardware.tlb_levels import load_preset

if TYPE_CHECKING:
    from octavo._core import PageFaults as CountedFaults

LRU = load_preset("lru64")
ZEN3 = given_machine("zen3")


def estimated() -> WalkCosts:
    return replace(walk_costs(ZEN3), source="preset", measured={}, entry_bytes={}, is_nested=True)


def counted(faults: PageFaults) -> CountedFaults:
    """Page faults in the form of the extension."""
    return {
        "base": faults.base,
        "huge": faults.large,
        "huge_again": faults.again,
        "left": faults.left,
    }


def advise(
    walks: int,
    walks_huge: int = 0,
    *,
    base: int = 64 * MIB,
    growth: float = 0.0,
    limits: Thresholds = Thresholds(),
    instructions: int = 10**9,
    costs: WalkCosts | None = None,
    faults: PageFaults | None = None,
    with_faults: bool = True,
    kernel_seconds: float = 0.0,
    fitting_growth: int | None = None,
) -> Advice:
    """Advice on data with the given walks in 4 KiB pages and in 2 MiB pages."""
    regions = [] if faults is None else [{**region(), "page_faults": counted(faults)}]
    if fitting_growth is not None:
        regions.append({**region(), "huge_growth_bytes": fitting_growth})
    made = made_process(0, data_base=base, instructions=instructions, regions=regions)
    grown = [0.0, *[growth] * 9]
    made["footprints"] = [
        *footprints("fetch", (0.0,) * 10, base=MIB),
        *footprints("data", grown, base=base),
        *footprints("all", grown, base=base + MIB, peak=base),
    ]
    for size, misses in ((4 * KIB, walks), (2 * MIB, walks_huge)):
        for level, accesses, missed in ((1, 4 * 10**8, 10 * misses), (2, 10 * misses, misses)):
            made["machine_curves"].append(data_curve(size, level, missed, accesses=accesses))
    rows = rows_of(result(made), LRU)
    advice = advise_by_walks(
        rows,
        LRU,
        costs or estimated(),
        limits,
        with_faults=with_faults,
        kernel_seconds=kernel_seconds,
    )
    return next(item for item in advice if item.case.stream == "data")


def test_the_time_of_a_program_has_all_its_parts() -> None:
    costs = estimated()
    clock = costs.clock.median
    program = Program(10**9, 0, 64 * MIB)
    assert seconds_of(program, costs) == pytest.approx(0.5e9 / clock)
    assert seconds_of(replace(program, native=NativeTime(1.2, 0.3)), costs) == 1.5
    data, walk = costs.data(64 * MIB).median, costs.walk(4096, 64 * MIB).median
    fault = costs.faults(4096, 1)
    assert fault is not None
    busy = replace(program, walks=10**6, page_faults=1000, kernel_seconds=0.25)
    cycles = 0.5e9 + 1e6 * (data + 0.75 * walk) + 1000 * fault.median
    assert seconds_of(busy, costs) == pytest.approx(cycles / clock + 0.25)


def test_many_walks_are_worth_huge_pages() -> None:
    advice = advise(50_000_000)
    assert (advice.page_size, advice.reason, advice.basis) == (2 * MIB, "gain", "walks")
    assert advice.gain is not None
    assert 0.01 < advice.gain.low < advice.gain.expected < advice.gain.high < 1
    record = advice.record()
    assert record["walks_base"] == 50_000_000
    assert record["walks"] == 0
    assert record["gain_page_size"] == 2 * MIB
    assert "Page walks fall from 50.000 to 0 per 1000 instructions" in advice.text
    assert "walk cost estimated" in advice.text


def test_few_walks_in_total_are_no_gain_even_in_a_short_run() -> None:
    """Such as a program that starts and ends."""
    advice = advise(9_999, instructions=100_000)
    assert (advice.page_size, advice.reason) == (4 * KIB, "no-gain")
    assert "2 MiB pages would save 9999 page walks in all, and fewer than 10.0 k" in advice.text
    assert advise(10_000, instructions=100_000).page_size == 2 * MIB


def test_few_walks_are_no_gain_even_with_many_misses_of_a_small_tlb() -> None:
    advice = advise(30_000)
    assert (advice.page_size, advice.reason) == (4 * KIB, "no-gain")
    message = (
        "Little gain expected: page walks are 0.030 per 1000 instructions, and 2 MiB pages would"
    )
    assert f"{message} save about 0.3% (" in advice.text
    fewer = advise(10_000, instructions=19 * 10**9).text
    assert "No gain expected: page walks are <0.001 per 1000 instructions" in fewer
    assert "would save less than 0.1% of the time" in fewer
    assert "no page walks" in advise(0).text


def test_memory_refuses_and_max_growth_and_the_floor_allow() -> None:
    refused = advise(50_000_000, growth=0.5)
    assert (refused.page_size, refused.reason) == (4 * KIB, "memory")
    assert "its memory would grow by up to 32 MiB (50.0%), more than 25%" in refused.text
    within = advise(50_000_000, growth=0.5, limits=Thresholds(max_growth=0.6))
    assert within.changes
    assert within.text.endswith("; its memory grows by up to 32 MiB (50.0%).")
    fits = advise(50_000_000, growth=0.5, fitting_growth=MIB)
    assert fits.text.endswith("; its memory grows by 1 MiB (1.6%).")
    assert advise(50_000_000, fitting_growth=0).text.endswith("; its memory does not grow.")
    small = advise(50_000_000, growth=4.0, base=MIB)
    assert small.changes
    assert "(accepted beyond 25%: below 8 MiB)" in small.text
    large = advise(50_000_000, growth=0.5, limits=Thresholds(memory_bytes=16 * GIB))
    assert large.changes
    assert "(accepted beyond 25%: below 164 MiB, 1% of this machine's memory)" in large.text


def test_nothing_is_judged_where_no_larger_size_was_measured() -> None:
    made = made_process(0, data_base=MIB, instructions=10**8, regions=[])
    made["machine_curves"].append(data_curve(4 * KIB, 1, 10**6))
    advice = advise_by_walks(rows_of(result(made), LRU), LRU, estimated(), Thresholds())
    (data,) = (item for item in advice if item.case.stream == "data")
    assert data.text == "Data: not judged, as 4 KiB is the only page size of the machine measured."


def test_sizes_that_the_machine_lacks_have_no_walks() -> None:
    points = advise(50_000_000).case.points
    assert [point.page_size for point in points if point.walks is not None] == [4 * KIB, 2 * MIB]


@given(
    st.integers(1, 10**10),
    st.integers(0, 10**9),
    st.integers(0, 10**9),
    st.integers(1, 1 << 40),
)
def test_gains_are_shares_in_order(
    instructions: int, walks: int, walks_huge: int, touched: int
) -> None:
    program = Program(instructions, walks, touched)
    found = gain(program, estimated(), 2 * MIB, walks, min(walks, walks_huge), touched)
    assert 0 <= found.low <= found.expected <= found.high <= 1


LOADS = """
[tlb."4KiB"]
second = {low = 2048, median = 2048, high = 2048}
[load_cycles."4KiB"]
"16MiB" = {low = 10.0, median = 60.0, high = 70.0}
"64MiB" = {low = 80.0, median = 600.0, high = 640.0}
[load_cycles."2MiB"]
"16MiB" = {low = 9.0, median = 50.0, high = 60.0}
"64MiB" = {low = 66.0, median = 530.0, high = 540.0}
"""


def test_gains_follow_from_loads_measured_in_both_sizes(tmp_path: Path) -> None:
    """At 64 MiB seven loads in eight walk: a walk costs 80 of 610 cycles, or 16 of 82."""
    measured = calibration(tmp_path / "calibration.toml", LOADS)
    program = Program(10**9, 10**7, 64 * MIB)
    found = gain(program, measured, 2 * MIB, 10**7, 10**6, 64 * MIB)
    avoided = 9 * 10**6

    def share(cpi: float, saved: float, cycles: float) -> float:
        return avoided * saved / (10**9 * cpi + 10**7 * cycles)

    assert found.low == pytest.approx(share(1.5, 16, 82))
    assert found.high == pytest.approx(share(0.2, 16, 82))
    assert found.expected == pytest.approx((share(0.5, 16, 82) + share(0.5, 80, 610)) / 2)


def test_system_calls_are_part_of_the_time(tmp_path: Path) -> None:
    measured = calibration(tmp_path / "calibration.toml", LOADS)
    program = Program(10**9, 10**7, 64 * MIB, kernel_seconds=0.4)
    found = gain(program, measured, 2 * MIB, 10**7, 0, 64 * MIB)
    slow = 10**9 * 1.5 + 0.4 * measured.clock.high
    quick = 10**9 * 0.2 + 0.4 * measured.clock.low
    assert found.low == pytest.approx(10**7 * 16 / (slow + 10**7 * 82))
    assert found.high == pytest.approx(10**7 * 80 / (quick + 10**7 * 610))
    # A known time of the program includes its system calls.
    known = replace(program, native=NativeTime(1.2))
    without = replace(known, kernel_seconds=0.0)
    assert gain(known, measured, 2 * MIB, 10**7, 0, 64 * MIB) == gain(
        without, measured, 2 * MIB, 10**7, 0, 64 * MIB
    )
    alone, busy = (
        advise(10**7, costs=measured, kernel_seconds=seconds).gain for seconds in (0.0, 0.4)
    )
    assert alone is not None
    assert busy is not None
    assert busy.low < alone.low


@given(
    st.integers(1, 10**10),
    st.integers(0, 10**9),
    st.integers(0, 10**9),
    st.integers(8 * MIB, 1 << 40),
    st.floats(0, 100),
)
def test_measured_gains_are_shares_in_order(
    instructions: int, walks: int, walks_huge: int, touched: int, kernel_seconds: float
) -> None:
    with TemporaryDirectory() as place:
        measured = calibration(Path(place) / "calibration.toml", LOADS)
    program = Program(instructions, walks, touched, kernel_seconds=kernel_seconds)
    found = gain(program, measured, 2 * MIB, walks, min(walks, walks_huge), touched)
    assert 0 <= found.low <= found.expected <= found.high <= 1


FAULTS = """
[fault_cycles]
"4KiB" = {low = 4000, median = 5000, high = 8000}
"2MiB" = {low = 300000, median = 400000, high = 500000}
"""


def test_page_faults_are_part_of_the_time_and_of_the_gain(tmp_path: Path) -> None:
    measured = calibration(tmp_path / "calibration.toml", LOADS + FAULTS)
    program = Program(10**9, 0, 64 * MIB, page_faults=20_000)
    found = gain(program, measured, 2 * MIB, 0, 0, 64 * MIB, PageFaults(16_000, 30, 1000))
    assert found.low == pytest.approx((15e3 * 4000 - 30 * 500_000) / (1.5e9 + 20_000 * 4000))
    assert found.expected == pytest.approx((15e3 * 5000 - 30 * 400_000) / (0.5e9 + 20_000 * 5000))
    assert found.high == pytest.approx((15e3 * 8000 - 30 * 300_000) / (0.2e9 + 20_000 * 8000))


def test_large_pages_of_which_little_is_touched_cost_time(tmp_path: Path) -> None:
    """A fault of a 2 MiB page costs as much as 80 faults of 4 KiB pages."""
    measured = calibration(tmp_path / "calibration.toml", LOADS + FAULTS)
    program = Program(10**9, 0, 64 * MIB, page_faults=20_000)
    found = gain(program, measured, 2 * MIB, 0, 0, 64 * MIB, PageFaults(1000, 40, 0))
    lost = (40 * 400_000 - 1000 * 5000) / (0.5e9 + 20_000 * 5000)
    assert found.expected == pytest.approx(-lost)
    assert found.is_loss
    assert found.consequence == "take about 1.8% (0.2% to 5.7%) more time"


def test_the_largest_loss_is_that_with_data_that_come_quickly() -> None:
    """For a sparse program: many walks, and 2 MiB pages of which it touches little."""
    costs = estimated()
    program = Program(10**7, 300_000, 8 * MIB, page_faults=2000)
    found = gain(program, costs, 2 * MIB, 300_000, 250_000, 8 * MIB, PageFaults(2000, 2000, 0))
    walk, data = costs.walk(4096, 8 * MIB).low, costs.data(8 * MIB).low
    before, after = costs.faults(4096, 2000), costs.faults(2 * MIB, 2000)
    assert before is not None
    assert after is not None
    time = 10**7 * 0.2 + 300_000 * (data + walk / 2) + before.low
    assert found.low == pytest.approx((25_000 * walk + before.low - after.high) / time)
    assert found.low < 1.2 * found.expected < found.expected


RETURNED = """
[returned_fault_cycles]
"2MiB" = {low = 15000000, median = 20000000, high = 21000000}
[kept_free_bytes]
"2MiB" = "20MiB"
"""


def test_first_touches_of_memory_that_a_host_took_back_include_the_hosts_cost(
    tmp_path: Path,
) -> None:
    """The guest has 20 MiB of free memory that the host did not take back: ten of thirty pages."""
    measured = calibration(tmp_path / "calibration.toml", LOADS + FAULTS + RETURNED)
    program = Program(10**9, 0, 64 * MIB, page_faults=20_000)
    found = gain(program, measured, 2 * MIB, 0, 0, 64 * MIB, PageFaults(16_000, 30, 1000))
    large = 10 * 400_000 + 20 * 20_000_000
    assert found.expected == pytest.approx((15e3 * 5000 - large) / (0.5e9 + 20_000 * 5000))
    assert found.low == pytest.approx((15e3 * 4000 - 30 * 21e6) / (0.2e9 + 20_000 * 4000))
    usual = calibration(tmp_path / "calibration.toml", LOADS + FAULTS)
    faults = PageFaults(16_000, 30, 1000)
    assert found.high == gain(program, usual, 2 * MIB, 0, 0, 64 * MIB, faults).high
    assert measured.without_returned_memory().faults(2 * MIB, 30) == usual.faults(2 * MIB, 30)


def test_memory_that_the_program_gave_back_is_free_again_at_once(tmp_path: Path) -> None:
    """Twelve of thirty pages are in memory that the program gave back, and ten more in free memory
    that the host did not take back.
    """
    measured = calibration(tmp_path / "calibration.toml", LOADS + FAULTS + RETURNED)
    assert measured.faults(2 * MIB, 30, again=12) == Spread(
        30 * 300_000, 22 * 400_000 + 8 * 20_000_000, 12 * 400_000 + 18 * 21_000_000
    )
    faults = PageFaults(16_000, 32, 0, again=32)
    assert advise(0, costs=measured, faults=faults).page_size == 2 * MIB


def test_advice_names_memory_that_the_host_took_back(tmp_path: Path) -> None:
    faults = PageFaults(16_000, 32, 0)
    usual = calibration(tmp_path / "calibration.toml", LOADS + FAULTS)
    assert advise(0, costs=usual, faults=faults).page_size == 2 * MIB
    returned = calibration(tmp_path / "calibration.toml", LOADS + FAULTS + RETURNED)
    advice = advise(0, costs=returned, faults=faults)
    assert (advice.page_size, advice.reason) == (4 * KIB, "no-gain")
    assert "page faults are 16.0 k in all, and 2 MiB pages would take about " in advice.text
    assert "taking 8,000 microseconds, since the host of this virtual machine" in advice.text


def test_gains_are_shares_of_a_known_time_which_determines_the_overlap_of_loads(
    tmp_path: Path,
) -> None:
    """1.2 s are 3 G cycles, of which the instructions take 0.5 G: 250 cycles for each of 10 M loads
    that walk, between 82 (overlapped) and 610 (one after another).
    """
    measured = calibration(tmp_path / "calibration.toml", LOADS)
    program = Program(10**9, 10**7, 64 * MIB, native=NativeTime(1.2))
    found = gain(program, measured, 2 * MIB, 10**7, 0, 64 * MIB)

    def share(cycles: float) -> float:
        return 10**7 * (16 + (80 - 16) * (cycles - 82) / (610 - 82)) / 3e9

    assert found.low == pytest.approx(share(150))
    assert found.expected == pytest.approx(share(250))
    assert found.high == pytest.approx(share(280))
    slow = replace(program, native=NativeTime(8))
    found = gain(slow, measured, 2 * MIB, 10**7, 0, 64 * MIB)
    assert found.expected == found.low == pytest.approx(10**7 * 80 / 20e9)
    # Time in the kernel does not change the overlap of loads, and lowers the share.
    served = replace(program, native=NativeTime(1.2, 6.8))
    found = gain(served, measured, 2 * MIB, 10**7, 0, 64 * MIB)
    assert found.expected == pytest.approx(share(250) * 1.2 / 8)


PACED = """
[pause]
cycles = 1600
[paced_load_cycles."4KiB"]
"32MiB" = {low = 700.0, median = 800.0, high = 900.0}
"64MiB" = {low = 700.0, median = 900.0, high = 990.0}
[paced_load_cycles."2MiB"]
"32MiB" = {low = 600.0, median = 600.0, high = 660.0}
"64MiB" = {low = 600.0, median = 620.0, high = 660.0}
"""


def test_rare_walks_cost_more(tmp_path: Path) -> None:
    """After a pause of 1,600 cycles a load that walks takes 940 cycles, of which its walk takes
    320; without a pause 610 and 80. A million walks in a thousand million instructions are 500
    cycles apart.
    """
    measured = calibration(tmp_path / "calibration.toml", LOADS + PACED)
    program = Program(10**9, 10**6, 64 * MIB)
    found = gain(program, measured, 2 * MIB, 10**6, 0, 64 * MIB)
    part = 500 / 1600
    load, saved = 610 + part * (940 - 610), 80 + part * (320 - 80)
    apart, together = saved / (500 + load), 16 / (500 + 82)
    assert found.expected == pytest.approx((apart + together) / 2)
    slow = gain(replace(program, walks=1000), measured, 2 * MIB, 1000, 0, 64 * MIB)
    apart, together = 1000 * 320 / (0.5e9 + 940e3), 1000 * 16 / (0.5e9 + 82e3)
    assert slow.expected == pytest.approx((apart + together) / 2)
    known = replace(program, native=NativeTime(2810e6 / 2.5e9))
    # Walks are 2810 cycles apart, of which instructions take 500: the loads do not overlap, and
    # pauses are longer than the one that was measured.
    found = gain(known, measured, 2 * MIB, 10**6, 0, 64 * MIB)
    assert found.expected == pytest.approx(320 / 2810)


DISPLACED = """
[displaced_load_cycles."4KiB"]
"64MiB" = {low = 1400.0, median = 1600.0, high = 1700.0}
[displaced_load_cycles."2MiB"]
"64MiB" = {low = 800.0, median = 900.0, high = 1000.0}
"""


def test_data_read_between_walks_can_raise_their_cost(tmp_path: Path) -> None:
    """If other data are read between, a load that walks takes 1,700 cycles, of which the walk takes
    800. A million walks in a thousand million instructions are up to 1,500 cycles apart.
    """
    measured = calibration(tmp_path / "calibration.toml", LOADS + PACED + DISPLACED)
    program = Program(10**9, 10**6, 64 * MIB)
    found = gain(program, measured, 2 * MIB, 10**6, 0, 64 * MIB)
    part = 1500 / 1600
    load, saved = 610 + part * (1700 - 610), 80 + part * (800 - 80)
    assert found.high == pytest.approx(saved / (1500 + load))
    without = calibration(tmp_path / "calibration.toml", LOADS + PACED)
    other = gain(program, without, 2 * MIB, 10**6, 0, 64 * MIB)
    assert (found.low, found.expected) == (other.low, other.expected)
    assert found.high > other.high


def test_counted_lines_determine_the_cost_of_walks(tmp_path: Path) -> None:
    """7 lines are read between two walks, besides the line of the walk's own load. The costs were
    measured with 0 and with 64 lines, and are interpolated by the logarithm.
    """
    measured = calibration(tmp_path / "calibration.toml", LOADS + PACED + DISPLACED)
    program = Program(4 * 10**8, 10**5, 64 * MIB)  # walks 2,000 cycles apart, more than the pause

    def found(lines: float | None, seconds: float = 0.0) -> Gain:
        missed = None if lines is None else round(lines * 10**5)
        known = replace(program, missed_lines=missed, kernel_seconds=seconds)
        return gain(known, measured, 2 * MIB, 10**5, 0, 64 * MIB)

    part = math.log(8) / math.log(65)
    load, saved = 940 + part * (1700 - 940), 320 + part * (800 - 320)
    apart, together = saved / (2000 + load), 16 / (2000 + 82)
    assert found(8).expected == pytest.approx((apart + together) / 2)
    assert found(1).expected == found(None).expected
    assert found(None).high == found(65).high > found(8).high > found(1).high
    # 0.1 s in the kernel is 2,500 cycles to a walk, in which the kernel may read 50 lines.
    assert found(8, 0.1).expected < found(8).expected
    by_kernel = program.lines_between_walks(2.5e9)
    assert by_kernel == UNKNOWN_BETWEEN
    known = replace(program, missed_lines=3 * 10**5, kernel_seconds=0.1)
    assert known.lines_between_walks(2.5e9) == Between(2.0, 4 * 3 + 50)


def test_rare_walks_cost_most_at_the_pause_that_was_measured(tmp_path: Path) -> None:
    """1,600 instructions to a walk, at one cycle each, take as long as the pause. The load then
    takes 1,700 cycles, of which its walk takes 800.
    """
    measured = calibration(tmp_path / "calibration.toml", LOADS + PACED + DISPLACED)
    found = gain(Program(10**9, 625_000, 64 * MIB), measured, 2 * MIB, 625_000, 0, 64 * MIB)
    assert found.high == pytest.approx(800 / (1600 + 900 + 800))


def test_no_more_than_a_known_time_is_saved(tmp_path: Path) -> None:
    program = Program(10**9, 10**9, 64 * MIB, native=NativeTime(0.05))
    assert gain(program, estimated(), 2 * MIB, 10**9, 0, 64 * MIB) == Gain(1, 1, 1)
    measured = calibration(tmp_path / "calibration.toml", LOADS + PACED)
    found = gain(program, measured, 2 * MIB, 10**9, 0, 64 * MIB)
    assert found.high == pytest.approx(16 / 82 / 2)


def test_loads_that_overlap_more_than_measured_ones_save_the_same_share(tmp_path: Path) -> None:
    """Independent loads take 82 cycles, of which larger pages save 16. Walks of this program are 41
    cycles and 10 instructions apart.
    """
    measured = calibration(tmp_path / "calibration.toml", LOADS + PACED)
    program = Program(10**8, 10**7, 64 * MIB, native=NativeTime(41e7 / 2.5e9))
    found = gain(program, measured, 2 * MIB, 10**7, 0, 64 * MIB)
    assert found.expected == pytest.approx((41 - 10 * 0.5) * 16 / 82 / 41)
    # At 1.5 cycles each, instructions leave 26 cycles, and at 0.2 cycles 39.
    assert found.low == pytest.approx(26 * 16 / 82 / 41)
    assert found.high == pytest.approx(39 * 16 / 82 / 41)
    # 30 instructions would take more than all of the time: loads then have half of it.
    many = replace(program, instructions=3 * 10**8)
    found = gain(many, measured, 2 * MIB, 10**7, 0, 64 * MIB)
    assert found.low == pytest.approx(16 / 82 / 2)


def test_page_faults_save_no_more_than_the_known_time_in_the_kernel() -> None:
    """3 ms in the kernel, 6 ms in user mode. The estimate for 10,000 page faults is longer."""
    program = Program(10**6, 0, 64 * MIB, page_faults=10_000, native=NativeTime(0.006, 0.003))
    faults = PageFaults(10_000, 0, 0)
    found = gain(program, estimated(), 2 * MIB, 0, 0, 64 * MIB, faults)
    assert found.high == pytest.approx(1 / 3)
    walking = gain(replace(program, walks=10**9), estimated(), 2 * MIB, 10**9, 0, 64 * MIB)
    assert walking.high == pytest.approx(2 / 3)


def test_a_known_time_is_used_with_estimated_walks() -> None:
    program = Program(10**9, 10**7, 64 * MIB, native=NativeTime(0.5))
    of_time = gain(program, estimated(), 2 * MIB, 10**7, 0, 64 * MIB)
    twice = replace(program, native=NativeTime(0.75, 0.25))
    of_twice = gain(twice, estimated(), 2 * MIB, 10**7, 0, 64 * MIB)
    assert of_twice.expected == pytest.approx(of_time.expected / 2)
    assert of_twice.low == pytest.approx(of_time.low / 2)


@given(
    st.integers(1, 10**10),
    st.integers(0, 10**9),
    st.integers(8 * MIB, 1 << 40),
    st.integers(0, 10**6),
    st.integers(0, 10**5),
    st.integers(0, 10**6),
)
def test_gains_with_page_faults_are_shares_in_order(
    instructions: int, walks: int, touched: int, base: int, huge: int, left: int
) -> None:
    with TemporaryDirectory() as place:
        by_loads = calibration(Path(place) / "calibration.toml", LOADS + FAULTS)
        by_walks = calibration(Path(place) / "calibration.toml", FAULTS)
    program = Program(instructions, walks, touched, page_faults=base)
    faults = PageFaults(base, huge, min(left, base))
    for measured in (by_loads, by_walks):
        found = gain(program, measured, 2 * MIB, walks, 0, touched, faults)
        assert found.low <= found.expected <= found.high <= 1
        assert huge or found.low >= 0


def test_page_faults_decide(tmp_path: Path) -> None:
    """A program that walks little and touches 64 MiB once."""
    measured = calibration(tmp_path / "calibration.toml", LOADS + FAULTS)
    faults = PageFaults(16_384, 32, 12)
    found = advise(1000, costs=measured, faults=faults)
    assert (found.page_size, found.reason) == (2 * MIB, "gain")
    assert "page faults from 16.4 k to 44, which saves about" in found.text
    assert "walk and page fault cost measured on this machine" in found.text
    assert (found.record()["page_faults_base"], found.record()["page_faults"]) == (16_384, 44)
    as_many = advise(10**8, costs=measured, faults=PageFaults(16_384, 0, 16_383))
    assert as_many.reason == "gain"
    assert "page faults" not in as_many.text
    other = advise(1000, costs=measured, faults=faults, with_faults=False)
    assert other.reason == "no-gain"
    assert "page faults" not in other.text


def test_page_faults_that_were_not_measured_cost_an_estimate() -> None:
    found = advise(1000, faults=PageFaults(16_384, 32, 12))
    assert (found.page_size, found.reason) == (2 * MIB, "gain")
    assert found.gain is not None
    assert found.gain.low == pytest.approx(-0.013, abs=0.001)
    assert found.gain.expected == pytest.approx(0.058, abs=0.002)


def test_few_page_faults_are_no_gain_even_in_a_short_run(tmp_path: Path) -> None:
    measured = calibration(tmp_path / "calibration.toml", LOADS + FAULTS)
    few = PageFaults(99, 0, 20)
    found = advise(0, costs=measured, faults=few, instructions=10**5, base=8 * MIB)
    assert (found.reason, found.page_size) == ("no-gain", 4 * KIB)
    assert "would save 0 page walks and 79 page faults in all" in found.text


def test_walks_cost_more_where_the_page_table_is_large() -> None:
    small, large = estimated().walk(4 * KIB, 16 * MIB), estimated().walk(4 * KIB, 64 * GIB)
    # Measured in virtual machines where each load waits for the one before, and with 24 at once: on
    # a Zen 3 100 to 140 cycles and 11 to 15, on a Zen 4 76 to 128 and 19 to 25.
    assert 50 < small.median < 70
    native = replace(estimated(), is_nested=False).walk(4 * KIB, 16 * MIB)
    assert native.median < small.median / 3
    assert small.median < large.median
    assert small.low <= small.median <= small.high
    assert estimated().walk(2 * MIB, 64 * GIB).median < large.median


def calibration(file: Path, more: str = "") -> WalkCosts:
    """The costs of this processor from a file with some walks."""
    write_calibration(
        file, f'[walk_cycles]\n"4KiB" = {{low = 10.0, median = 20.5, high = 90.0}}\n{more}'
    )
    return walk_costs(this_machine(), file)


def test_calibrated_costs_are_those_of_this_processor(tmp_path: Path) -> None:
    file = tmp_path / "calibration.toml"
    measured = calibration(file)
    assert (measured.source, measured.cycles_per_second) == ("calibration", 2.5e9)
    assert measured.walk(4 * KIB, GIB) == Spread(10, 20.5, 90)
    other = given_machine("skylake" if this_machine().name != "skylake" else "zen3")
    assert walk_costs(other, file).source == "preset"
    assert measured.walk(2 * MIB, GIB).median > 0, "estimated"
    assert re.search(r"this machine by octavo calibrate \d+ days ago$", measured.label())
    assert measured.record()["measured_at"] == "2026-11-23T06:50:00Z"
    now = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    for text, ending in ((now, "calibrate"), ("yesterday", "calibrate")):
        file.write_text(file.read_text().replace("2026-11-23T06:50:00Z", text))
        assert walk_costs(this_machine(), file).label().endswith(ending)
        file.write_text(file.read_text().replace(text, "2026-11-23T06:50:00Z"))


def test_calibrated_costs_are_those_of_the_memory_in_use(tmp_path: Path) -> None:
    file = tmp_path / "calibration.toml"
    by_footprint = """
[walk_cycles_by_footprint."4KiB"]
"16MiB" = {low = 5.0, median = 12.0, high = 30.0}
"512MiB" = {low = 9.0, median = 40.0, high = 90.0}
"""
    measured = calibration(file, by_footprint)
    assert measured.walk(4 * KIB, 20 * MIB) == Spread(5, 12, 30)
    assert measured.walk(4 * KIB, GIB) == Spread(9, 40, 90)


def test_entries_smaller_than_pages_save_no_walks(tmp_path: Path) -> None:
    file = tmp_path / "calibration.toml"
    larger = '"2MiB" = {low = 10.0, median = 20.5, high = 90.0}\n'
    program = Program(10**9, 10**7, GIB)
    whole = gain(program, calibration(file, larger), 2 * MIB, 10**7, 0, GIB)
    broken = calibration(file, larger + '[entry_bytes]\n"2MiB" = "4KiB"\n')
    assert whole.expected > 0.01
    assert gain(program, broken, 2 * MIB, 10**7, 0, GIB).high == 0


def test_a_broken_calibration_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "calibration.toml"
    file.write_text("walk_cycles = 3")
    with pytest.raises(OctavoError):
        walk_costs(this_machine(), file)
