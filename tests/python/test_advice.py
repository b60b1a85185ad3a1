from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from fakes import FLAT, SIZES, footprints, process, region, result
from octavo.analysis.advice import Advice, Thresholds, advise_all, overall_text
from octavo.analysis.rows import rows_of
from octavo.hardware.tlb_levels import load_preset

if TYPE_CHECKING:
    from octavo._core import Process

KIB = 1024
MIB = 1 << 20
LRU = load_preset("lru64")
KNEE_AT_16K = (
    10_000_000,
    3_000_000,
    300_000,
    200_000,
    150_000,
    120_000,
    100_000,
    90_000,
    80_000,
    70_000,
)
STEADY = tuple(20_000_000 >> step for step in range(10))
STEEP_GROWTH = (0, 0.02, 0.10, 0.40, 0.9, 2, 4, 8, 16, 32)


def advise(*processes: Process, tlb: str = "lru64") -> list[Advice]:
    machine = load_preset(tlb)
    return advise_all(rows_of(result(*processes), machine), machine)


def for_data(misses: Sequence[int], growth: Sequence[float] = FLAT, **options: int) -> Advice:
    _, data = advise(process(0, data_misses=misses, data_growth=growth, **options))  # type: ignore[arg-type]
    assert data.case.stream == "data"
    return data


def test_the_knee_is_the_smallest_size_beyond_which_misses_hardly_fall() -> None:
    advice = for_data(KNEE_AT_16K)
    assert advice.page_size == 16 * KIB
    assert advice.reason == "misses-flat"
    assert advice.record()["mpki_base"] == 10.0
    assert advice.record()["mpki"] == 0.3
    assert "Misses fall from 10.000 to 0.300 per 1000 instructions" in advice.text


def test_memory_of_a_whole_program_is_its_peak_resident_size() -> None:
    """The program unmaps memory and maps more, so that the total of touched memory grows little."""
    freed = process(0, data_misses=KNEE_AT_16K, data_base=80 * MIB, data_growth=[0, *[0.05] * 9])
    freed["footprints"][-10:] = footprints("all", [0, *[0.5] * 9], base=90 * MIB, peak=20 * MIB)
    _, data = advise(freed)
    record = data.record()
    assert (record["page_size"], record["touched_bytes_base"]) == (4 * KIB, 20 * MIB)
    assert (record["reason"], data.case.at(16 * KIB).growth) == ("memory", 0.5)
    assert data.case.at(16 * KIB).touched_bytes == 30 * MIB


def test_the_size_where_memory_starts_to_grow_is_reported() -> None:
    advice = for_data(KNEE_AT_16K, [0, 0.01, 0.02, 0.06, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6])
    assert advice.page_size == 16 * KIB
    assert advice.case.grows_from == 32 * KIB
    assert "memory grows by 2.0%" in advice.text
    assert "memory starts to grow at 32 KiB" in advice.text


def test_growth_of_memory_rules_out_a_size_with_few_misses() -> None:
    advice = for_data(STEADY, STEEP_GROWTH, data_base=256 * MIB)
    assert advice.page_size == 16 * KIB
    assert advice.reason == "memory"
    assert "take more than 25% more memory (at 128 KiB: 0.625 and +200%)" in advice.text


def test_memory_may_forbid_every_larger_size() -> None:
    advice = for_data(STEADY, [0, *[0.5] * 9])
    assert advice.page_size == 4 * KIB
    assert advice.reason == "memory"
    assert "keep 4 KiB" in advice.text


def test_little_memory_is_no_reason_to_refuse() -> None:
    """892 KiB more are 100% of a small program's memory, but little memory of a machine."""
    grown = [0, *[1.0] * 9]
    assert for_data(STEADY, grown, data_base=892 * KIB).reason != "memory"
    assert for_data(STEADY, grown, data_base=9 * MIB).reason == "memory"
    assert Thresholds(memory_bytes=16 << 30).allows(1.0, 100 * MIB)
    assert not Thresholds(memory_bytes=4 << 30).allows(1.0, 100 * MIB)
    assert Thresholds(max_growth=1.0).allows(1.0, 100 * MIB)


def test_negligible_misses_change_nothing() -> None:
    advice = for_data([90_000, *[0] * 9])
    assert advice.page_size == 4 * KIB
    assert advice.reason == "negligible"
    assert "negligible (below 0.3% of the cycles by estimate)" in advice.text


def test_few_misses_in_total_change_nothing_even_in_a_short_run() -> None:
    advice = for_data([80, *[0] * 9], instructions=100_000, data_references=30_000)
    assert advice.reason == "negligible"
    assert "misses 0.800 times" in advice.text
    assert "negligible (80 in all, less than 0.1 ms by estimate)" in advice.text


def test_negligible_savings_are_those_of_the_sizes_with_acceptable_growth() -> None:
    """2 MiB would save 12,000 misses, at ten times the memory; the other sizes save 5,000."""
    misses = [300_000, *[295_000] * 8, 288_000]
    advice = for_data(misses, [0, *[0.1] * 8, 9], instructions=0, data_references=10**7)
    assert advice.reason == "negligible"
    assert advice.text.endswith(
        "what larger pages within 25% more memory could save of that is negligible (5000 in all, "
        "less than 0.1 ms by estimate)."
    )
    assert "within 25% more memory" not in for_data([80, *[0] * 9], instructions=100_000).text


def test_many_misses_that_no_size_saves_change_nothing() -> None:
    advice = for_data([10_000_000, *[9_700_000] * 9])
    assert advice.page_size == 4 * KIB
    assert advice.reason == "misses-flat"


def test_the_largest_size_measured_is_named_as_such() -> None:
    advice = for_data([10_000_000] * 9 + [0])
    assert advice.page_size == SIZES[-1]
    assert advice.reason == "largest-size"


def test_no_data_references() -> None:
    made = process(0, data_references=0)
    for footprint in made["footprints"]:
        if footprint["stream"] == "data":
            footprint["touched_bytes"] = 0
    made["curves"] = [curve for curve in made["curves"] if curve["stream"] == "fetch"]
    _, data = advise(made)
    assert data.reason == "no-references"
    assert not data.changes


def test_without_instructions_misses_are_totals() -> None:
    advice = for_data([10**6, *[10] * 9], instructions=0, data_references=10**7)
    assert advice.page_size == 8 * KIB
    assert "from 1000000 to 10 in all" in advice.text


def test_a_fall_in_misses_is_never_called_a_speed_up() -> None:
    for advice in (for_data(KNEE_AT_16K), for_data(STEADY, STEEP_GROWTH), for_data(STEADY)):
        assert not {"faster", "speed", "slower"} & set(advice.text.lower().split())


def test_large_regions_get_advice_of_their_own_most_misses_first() -> None:
    regions = [
        region("anon (small)", "anonymous", misses=[10] * 10, base=4096, start=1),
        region("big and quiet", "anonymous", misses=[10] * 10, base=1 << 20, start=2),
        region("busy", "heap", misses=KNEE_AT_16K, base=4096, start=3),
    ]
    advice = advise(process(0, data_misses=KNEE_AT_16K, regions=regions))
    assert [item.case.region for item in advice] == [None, None, "busy", "big and quiet"]
    assert advice[2].record()["start"] == 3


def test_regions_of_different_processes_are_separate() -> None:
    busy = region("heap", misses=KNEE_AT_16K)
    advice = advise(
        process(0, data_misses=KNEE_AT_16K, regions=[busy]),
        process(1, data_misses=KNEE_AT_16K, regions=[busy]),
    )
    assert [item.case.process for item in advice if item.case.region] == [0, 1]
    assert "data of heap (process 1)" in advice[-1].text.lower()


def test_the_last_level_decides() -> None:
    made = process(0, data_misses=KNEE_AT_16K, entries=(32, 128))
    _, data = advise(made, tlb="itanium2")
    assert data.record()["misses_base"] == KNEE_AT_16K[0] // 2


def test_the_answer_in_one_line() -> None:
    change = advise(process(0, code_misses=KNEE_AT_16K, data_misses=STEADY))
    wanted = [item.page_size for item in change]
    message = "Which page size? 16 KiB for code, 128 KiB for data."
    assert overall_text(change, wanted) == message
    here = "With the sizes of this processor: 4 KiB for code, 2 MiB for data."
    assert overall_text(change, [4 * KIB, 2 * MIB]) == f"{message} {here}"
    keep = advise(process(0))
    assert overall_text(keep, [4 * KIB] * 2) == "Which page size? 4 KiB: nothing should be changed."


def test_the_answer_names_regions_that_gain_from_larger_pages() -> None:
    grown = (0.0,) + (0.9,) * 9
    found = advise(
        process(0, data_misses=KNEE_AT_16K, data_growth=grown, regions=[region(misses=KNEE_AT_16K)])
    )
    message = overall_text(found, [item.page_size for item in found])
    assert message == (
        "Which page size? 4 KiB for the program as a whole. 1 region wants larger pages."
    )


def test_the_answer_names_regions_that_can_have_larger_pages_here() -> None:
    found = advise(process(0, data_misses=KNEE_AT_16K, regions=[region(misses=KNEE_AT_16K)]))
    sizes = [4 * KIB if item.case.region is None else 2 * MIB for item in found]
    assert overall_text(found, sizes) == (
        "Which page size? 4 KiB for code, 16 KiB for data. With the sizes of this processor: "
        "4 KiB for both. 1 region wants larger pages."
    )


@given(
    st.lists(st.integers(0, 10**8), min_size=10, max_size=10),
    st.lists(st.floats(0, 3), min_size=9, max_size=9),
)
def test_advice_never_costs_more_memory_than_allowed(
    misses: list[int], growth: list[float]
) -> None:
    advice = for_data(misses, [0.0, *growth])
    chosen = advice.case.at(advice.page_size)
    limits = Thresholds()
    base_bytes = advice.case.base.touched_bytes
    assert limits.allows(chosen.growth, chosen.touched_bytes - base_bytes)
    assert chosen.misses <= advice.case.base.misses
    if advice.changes:
        points = advice.case.points
        allowed = [p for p in points if limits.allows(p.growth, p.touched_bytes - base_bytes)]
        fewest = min(point.misses for point in allowed)
        assert chosen.misses - fewest <= limits.flat_share * advice.case.base.misses
