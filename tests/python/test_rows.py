from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes import SIZES, killed, process, region, result
from octavo._core import Touched
from octavo.analysis.programs import programs_of
from octavo.analysis.rows import COLUMNS, Miscount, Row, rows_of
from octavo.base.table import arrow_schema, arrow_table
from octavo.hardware.tlb_levels import load_preset
from octavo.runs.result import RunResult

if TYPE_CHECKING:
    from octavo._core import Process

LRU = load_preset("lru64")
ITANIUM = load_preset("itanium2")

misses = st.lists(st.integers(0, 10**8), min_size=len(SIZES), max_size=len(SIZES))
growths = st.lists(st.floats(0, 100), min_size=len(SIZES), max_size=len(SIZES))
regions = st.builds(region, misses=misses, growth=growths, start=st.integers(0, 2**47))


@st.composite
def processes(draw: st.DrawFn) -> list[Process]:
    return [
        process(
            stream,
            code_misses=draw(misses),
            data_misses=draw(misses),
            data_growth=draw(growths),
            instructions=draw(st.integers(10**8, 10**12)),
            regions=draw(st.lists(regions, max_size=2)),
        )
        for stream in range(draw(st.integers(1, 3)))
    ]


@given(processes())
def test_accesses_are_hits_plus_misses_and_totals_are_sums(made: list[Process]) -> None:
    rows = rows_of(result(*made), LRU)
    for row in rows:
        if "accesses" in row:
            assert row["accesses"] == row["hits"] + row["misses"]
            assert row["ways"] == row["entries"]
    for component in ("tlb.fetch", "tlb.data"):
        for size in SIZES:
            here = [r for r in rows if r["component"] == component and r["page_size"] == size]
            total = [r for r in here if "process" not in r and "region" not in r]
            own = [r for r in here if "process" in r and "region" not in r]
            assert len(total) == 1
            assert len(own) == (len(made) if len(made) > 1 else 0)
            if own:
                assert total[0]["misses"] == sum(row["misses"] for row in own)
    assert arrow_table(rows, COLUMNS).schema == arrow_schema(COLUMNS)


def test_the_whole_program_comes_first_and_regions_last() -> None:
    rows = rows_of(result(process(0, regions=[region()]), process(1)), LRU)
    kinds = ["region" if "region" in r else "process" if "process" in r else "whole" for r in rows]
    assert kinds == sorted(kinds, key=["whole", "process", "region"].index)


def test_one_process_has_no_rows_of_its_own() -> None:
    rows = rows_of(result(process(0, regions=[region()])), LRU)
    assert not any("process" in row for row in rows)
    heap = [row for row in rows if "region" in row]
    assert {row["region_kind"] for row in heap} == {"heap"}
    assert [r["value"] for r in heap if r.get("counter") == "data_references"] == [10**8]


def test_counters() -> None:
    made = process(0, instructions=1000, data_references=400)
    rows = rows_of(result(made, untraced=3), LRU)
    counters = {r["counter"]: r["value"] for r in rows if r["component"] == "stream"}
    assert counters["references"] == 1400
    assert counters["untraced_processes"] == 3
    assert counters["processes"] == 1
    events = {r["counter"]: r["value"] for r in rows if r["component"] == "stream.events"}
    assert events == {"map": 10, "unmap": 2}


def test_misses_per_1000_instructions_are_undefined_without_instructions() -> None:
    made = process(0, data_misses=[5] * len(SIZES), instructions=0, data_references=100)
    rows = rows_of(result(made), LRU)
    assert {row["mpki"] for row in rows if "mpki" in row} == {None}


def test_growth_is_over_4_kib_and_undefined_without_memory() -> None:
    growth = [0, 0.5, *[1.0] * 8]
    rows = rows_of(result(process(0, data_growth=growth, code_base=0)), LRU)
    data = [r["growth"] for r in rows if r["component"] == "memory" and r["stream"] == "data"]
    assert data[:3] == [0, 0.5, 1.0]
    code = [r["growth"] for r in rows if r["component"] == "memory" and r["stream"] == "fetch"]
    assert set(code) == {None}


def test_two_levels_and_their_added_cycles() -> None:
    made = process(0, code_misses=[100] * 10, data_misses=[1000] * 10, entries=(32, 128))
    rows = rows_of(result(made), ITANIUM)
    base = {r["component"]: r for r in rows if r.get("page_size") == 4096}
    assert base["tlb.l2.data"]["accesses"] == base["tlb.data"]["misses"] == 1000
    assert base["tlb.data"]["added_cycles"] == 4000
    assert base["tlb.fetch"]["added_cycles"] == 200
    assert base["tlb.l2.data"]["added_cycles"] is None


def test_inconsistent_counts_are_refused() -> None:
    more_misses_than_accesses = process(0, data_misses=[10] * 10, data_references=5)
    with pytest.raises(Miscount, match=r"tlb\.data"):
        rows_of(result(more_misses_than_accesses), LRU)
    lost_between_levels = process(0, data_misses=[10] * 10, entries=(32, 128))
    for curve in lost_between_levels["curves"]:
        if curve["level"] == 2:
            curve["accesses"] += 1
    with pytest.raises(Miscount):
        rows_of(result(lost_between_levels), ITANIUM)
    wrong_sum = process(0)
    wrong_sum["references"] += 1
    with pytest.raises(Miscount, match="fetches"):
        rows_of(result(wrong_sum), LRU)


def test_peaks_of_several_processes_do_not_add_up() -> None:
    rows = rows_of(result(process(0), process(1)), LRU)
    peaks = {
        ("process" in r): r["peak_resident_bytes"]
        for r in rows
        if r["component"] == "memory" and r["stream"] == "all"
    }
    assert peaks == {False: None, True: 16 << 20}


def memory_of(rows: list[Row], stream: str) -> dict[int, tuple[int, int | None]]:
    """Memory of the whole program by page size: bytes touched, and peak resident bytes."""
    return {
        row["page_size"]: (row["touched_bytes"], row["peak_resident_bytes"])
        for row in rows
        if row["component"] == "memory" and row["stream"] == stream
        if "process" not in row and "region" not in row
    }


def test_the_largest_image_counts_among_images_replaced_by_exec() -> None:
    mib = 1 << 20
    twice = [0.0] * 9 + [1.0]
    shell = process(0, data_base=3 * mib, data_growth=twice)
    middle = process(1, data_base=5 * mib, replaces=0)
    last = process(2, data_base=4 * mib, data_growth=twice, replaces=1)
    rows = rows_of(result(shell, middle, last), LRU)
    data, both = memory_of(rows, "data"), memory_of(rows, "all")
    assert data[4096] == (5 * mib, None)
    assert data[2 * mib] == (8 * mib, None)
    assert both[4096] == (6 * mib, 5 * mib)
    assert both[2 * mib] == (10 * mib, 8 * mib)
    forked = process(3, data_base=7 * mib)
    rows = rows_of(result(shell, middle, last, forked), LRU)
    assert memory_of(rows, "data")[4096] == (12 * mib, None)
    assert memory_of(rows, "all")[4096] == (14 * mib, None)


def test_growth_of_forked_processes_is_that_of_memory_they_mapped() -> None:
    mib = 1 << 20

    def grows(start: int, growth: int) -> Any:
        return {
            **region("anon", "anonymous", start=start, base=8 * mib),
            "huge_growth_bytes": growth,
        }

    def growth_of(*made: Any) -> list[int]:
        rows = rows_of(result(*made), LRU)
        return [
            row["value"]
            for row in rows
            if row.get("counter") == "growth_bytes" and "process" not in row
        ]

    parent = process(0, regions=[grows(0x1000_0000, 1)])
    inherits = process(1, regions=[grows(0x1000_0000 + 4 * mib, 10)])
    maps = process(2, regions=[grows(0x1000_0000 + 8 * mib, 100)])
    grandchild = process(3, regions=[grows(0x1000_0000, 1000), grows(0x7000_0000, 10_000)])
    grandchild["parent_stream"] = 2
    assert growth_of(parent, inherits) == [1]
    assert growth_of(parent, inherits, maps, grandchild) == [1 + 100 + 10_000]
    assert growth_of(inherits) == [], "the parent is not known"
    assert growth_of(maps, grandchild) == [], "the parent of the parent is not known"


def test_images_of_one_program_that_replaced_each_other_count_once_in_it() -> None:
    made = [
        process(0, program="/bin/sh", data_base=1 << 20),
        process(1, program="/bin/env", replaces=0),
        process(2, program="/bin/sh", data_base=2 << 20, replaces=1),
    ]
    (shells,) = programs_of(made, LRU)
    assert memory_of(shells["rows"], "data")[4096] == (2 << 20, None)


def test_partial_results_have_a_reason(finish: Callable[..., RunResult]) -> None:
    assert not finish(result()).partial
    crashed = finish(result(ended=killed(11)))
    assert crashed.manifest["partial_reason"] == "the program was killed by SIGSEGV"
    assert crashed.status == 139
    interrupted = finish(result(ended=killed(2)), interrupted_by=2)
    assert interrupted.status == 130
    assert interrupted.partial
    assert finish(result(untraced=1)).manifest["partial_reason"].startswith("1 process ran")
    assert finish(result(untraced=2)).manifest["partial_reason"].startswith("2 processes ran")


def test_a_signal_after_the_counted_part_leaves_the_result_whole(
    finish: Callable[..., RunResult],
) -> None:
    killed_later = finish(result(ended=killed(15)), was_closed=True)
    assert (killed_later.partial, killed_later.status) == (False, 143)
    interrupted = finish(result(ended=killed(2)), interrupted_by=2, was_closed=True)
    assert (interrupted.partial, interrupted.status) == (False, 130)
    untraced = finish(result(ended=killed(15), untraced=2), was_closed=True)
    assert untraced.manifest["partial_reason"].startswith("2 processes ran")


def test_text_and_shared_memory_count_once_over_processes() -> None:
    """Twelve processes of one program: its text is in memory once, their heaps twelve times."""
    mib = 1 << 20
    pages = {size: size * mib // 4096 for size in (1, 2, 6, 8, 12)}
    text = Touched(fetch=range(pages[6]))
    # Each process reads 11 of 12 pages of the shared memory, and each leaves out other pages.
    parts = [[n for n in range(pages[12]) if n % 12 != number] for number in range(12)]
    heap = range(1 << 20, (1 << 20) + pages[2])
    made = [
        process(
            number,
            code_base=6 * mib,
            data_base=13 * mib,
            regions=[
                region(
                    "prog text", "text", stream="fetch", path="/bin/prog", start=0, touched=text
                ),
                region("shared", "shared", start=0, touched=Touched(data=parts[number])),
                region("heap", touched=Touched(data=heap, own=heap)),
            ],
        )
        for number in range(12)
    ]
    memory = {
        (row["stream"], row["page_size"]): row["touched_bytes"]
        for row in rows_of(result(*made), LRU)
        if row["component"] == "memory" and "process" not in row and "region" not in row
    }
    assert memory["fetch", 4096] == 6 * mib
    assert memory["data", 4096] == (12 + 12 * 2) * mib
    alone = {
        row["touched_bytes"]
        for row in rows_of(result(*made[:1]), LRU)
        if row["component"] == "memory" and row["stream"] == "all" and "region" not in row
    }
    assert alone == {19 * mib}
