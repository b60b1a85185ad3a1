"""Rows, sums and tables of fake curves."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from curve_fakes import curves_process, curves_result, falling, small_configuration
from octavo.base.table import arrow_schema
from octavo.base.units import KIB, MIB
from octavo.terminal.curves import show_curves
from octavo.tlb_curves.api import CurvesResult
from octavo.tlb_curves.rows import COLUMNS, CurveRow

ROWS_PAGE = Path(__file__).parents[2] / "docs" / "rows.md"


def found(rows: list[CurveRow], **wanted: Any) -> CurveRow:
    (row,) = [
        row
        for row in rows
        if wanted.items() <= row.items() and ("process" in wanted or "process" not in row)
    ]
    return row


def only(**choices: Any) -> CurvesResult:
    """The curves of a single process."""
    configuration = small_configuration(**choices)
    return curves_result(configuration, [curves_process(configuration)])


def test_a_row_for_each_number_of_entries() -> None:
    rows = [row for row in only().rows if row["component"] == "tlb.full"]
    assert len(rows) == 2 * 8
    for row in rows:
        misses = falling(row["page_size"], 1, row["entries"])
        assert row["misses"] == misses
        assert (row["sets"], row["ways"]) == (1, row["entries"])
        assert row["mpki"] == pytest.approx(misses)
        assert row["cpi_tlb"] == pytest.approx(20 * misses / 1000)
        assert row["miss_ratio"] == pytest.approx(misses / 400)


def test_a_row_for_each_number_of_sets_and_ways() -> None:
    result = only(indexes=["low", "xor"])
    rows = [row for row in result.rows if row["component"] == "tlb.sets"]
    assert len(rows) == 2 * 2 * 3 * 16
    for row in rows:
        assert row["misses"] == falling(row["page_size"], row["sets"], row["ways"])
        assert row["entries"] == row["sets"] * row["ways"]
    assert {row["index"] for row in rows} == {"low", "xor"}


def test_a_row_for_each_cache() -> None:
    rows = only(cache_lines=[16, 64]).rows
    of_caches = [row for row in rows if row["component"] == "cache.sets"]
    assert len(of_caches) == 2 * 3 * 16
    for row in of_caches:
        misses = falling(row["line_bytes"], row["sets"], row["ways"])
        assert row["misses"] == misses
        assert row["cache_bytes"] == row["line_bytes"] * row["sets"] * row["ways"]
        assert row["miss_ratio"] == pytest.approx(misses / 400)
    assert found(rows, component="cache", line_bytes=16)["value"] == 400


def test_working_sets() -> None:
    row = found(only().rows, component="working_set", page_size=32 * KIB, window_refs=10)
    # Over the 1400 references of the program, 400 of which are to data.
    assert row["average_bytes"] == pytest.approx(32 * KIB * 10 / 1400)
    assert row["normalised"] == pytest.approx(8)


def test_two_sizes() -> None:
    rows = only(two_sizes_penalty=30).rows
    same = {"small": 4 * KIB, "large": 32 * KIB, "threshold_blocks": 4, "policy_window_refs": 1000}
    small = falling(4 * KIB, 1, 3)
    row = found(rows, component="two_sizes.full", entries=3, **same)
    assert (row["small_misses"], row["large_misses"]) == (small, small // 4)
    assert row["misses"] == small + small // 4
    assert row["cpi_tlb"] == pytest.approx(30 * row["misses"] / 1000)
    assert row["critical_penalty_increase"] == pytest.approx(small / row["misses"] - 1)
    exact = found(rows, component="two_sizes.sets", index="exact", sets=2, ways=3)
    small = falling(4 * KIB, 2, 3)
    assert exact["entries"] == 6
    assert exact["misses"] == small + small // 4
    assert exact["critical_penalty_increase"] == pytest.approx(small / exact["misses"] - 1)
    assert exact["second_probes"] == 400 + small
    half = found(rows, component="two_sizes.sets", index="split-large", sets=2, ways=3)
    assert (half["small_misses"], half["large_misses"]) == (0, small // 4)
    assert "critical_penalty_increase" not in half
    assert "second_probes" not in half
    assert found(rows, component="two_sizes", counter="promotions", **same)["value"] == 7
    window = found(rows, component="two_sizes.working_set", window_refs=10, **same)
    assert window["average_bytes"] == pytest.approx(1.5 * 4096 * 10 / 1400)
    assert window["normalised"] == pytest.approx(1.5)


def test_machines() -> None:
    rows = only(
        sizes=[4 * KIB, 4 * MIB],
        presets=["all"],
        entries=64,
        sets=16,
        two_sizes=[(4 * KIB, 4 * MIB), (4 * KIB, 256 * KIB)],
    ).rows
    row = found(rows, component="machine", machine="r4000", page_size=16 * MIB)
    assert (row["entries"], row["ways"], row["sets"]) == (48, 48, 1)
    assert row["misses"] == falling(16 * MIB, 1, 48)
    row = found(rows, component="machine", machine="i860xp", page_size=4 * KIB)
    assert (row["entries"], row["ways"], row["sets"]) == (64, 4, 16)
    assert row["misses"] == falling(4 * KIB, 16, 4)
    split = found(rows, component="machine.two_sizes", machine="i860xp", large=4 * MIB)
    assert split["misses"] == falling(4 * KIB, 16, 4) + falling(4 * KIB, 4, 4) // 4
    whole = found(rows, component="machine.two_sizes", machine="supersparc", large=256 * KIB)
    assert whole["misses"] == falling(4 * KIB, 1, 64) + falling(4 * KIB, 1, 64) // 4
    assert whole["entries"] == 64
    assert not [row for row in rows if row.get("machine") == "pa-risc" and "small" in row]


def test_counts_of_several_processes_add_up_and_their_working_sets_do_not() -> None:
    configuration = small_configuration()
    processes = [
        curves_process(configuration, number, instructions=1000 * (number + 1))
        for number in range(3)
    ]
    result = curves_result(configuration, processes)
    rows = result.rows
    assert found(rows, counter="processes")["value"] == 3
    assert found(rows, counter="instructions")["value"] == 6000
    row = found(rows, component="tlb.full", page_size=4096, entries=3)
    assert row["misses"] == 3 * falling(4096, 1, 3)
    assert row["mpki"] == pytest.approx(1000 * row["misses"] / 6000)
    assert found(rows, component="tlb.sets", page_size=4096, sets=4, ways=16)["misses"] == (
        3 * falling(4096, 4, 16)
    )
    assert found(rows, component="two_sizes", counter="promotions")["value"] == 21
    total = found(rows, component="two_sizes.sets", index="exact", sets=1, ways=1)
    assert total["second_probes"] == 3 * (400 + falling(4096, 1, 1))
    assert {row.get("process") for row in rows if "working_set" in row["component"]} == {0, 1, 2}
    assert result.main == 2


def test_a_process_of_several_has_curves_at_powers_of_two() -> None:
    configuration = small_configuration(entries=7)
    result = curves_result(configuration, [curves_process(configuration, n) for n in range(2)])
    own = [row for row in result.rows if row.get("process") == 1]
    full = [row for row in own if row["component"] == "tlb.full"]
    assert [row["entries"] for row in full] == [1, 2, 4] * 2
    assert [row["misses"] for row in full[:3]] == [falling(4096, 1, ways) for ways in (1, 2, 4)]
    sets = [row for row in own if row["component"] == "tlb.sets" and row["page_size"] == 4096]
    assert [(row["sets"], row["ways"]) for row in sets] == [
        (sets, ways) for sets in (1, 2, 4) for ways in (1, 2, 4, 8, 16)
    ]
    assert [row["misses"] for row in sets] == [
        falling(4096, sets, ways) for sets in (1, 2, 4) for ways in (1, 2, 4, 8, 16)
    ]


def test_omitted_parts_have_no_rows() -> None:
    def components(**choices: Any) -> set[str]:
        return {row["component"].split(".")[-1] for row in only(**choices).rows}

    everything = components()
    assert {"full", "sets", "working_set", "two_sizes"} <= everything
    assert "full" not in components(without=["full"])
    assert "sets" not in components(without=["sets"])
    assert "working_set" not in components(without=["working-sets"])
    assert "two_sizes" not in components(without=["two-sizes"])


def test_without_instructions_cpi_is_undefined() -> None:
    configuration = small_configuration()
    process = curves_process(configuration, instructions=0)
    result = curves_result(configuration, [process])
    row = found(result.rows, component="tlb.full", page_size=4096, entries=3)
    assert (row["mpki"], row["cpi_tlb"]) == (None, None)
    assert row["miss_ratio"] == pytest.approx(falling(4096, 1, 3) / 400)
    assert "misses per reference" in shown(result)


def test_the_table_holds_the_rows() -> None:
    configuration = small_configuration(presets=["r4000"], entries=64)
    result = curves_result(configuration, [curves_process(configuration, n) for n in range(2)])
    table = result.table()
    assert table.schema == arrow_schema(COLUMNS)
    bare = [
        {name: value for name, value in row.items() if value is not None}
        for row in table.to_pylist()
    ]
    assert bare == [
        {name: value for name, value in row.items() if value is not None} for row in result.rows
    ]
    assert json.loads(json.dumps(result.document()))["rows"] == result.rows


def test_the_columns_are_the_documented_ones() -> None:
    page = ROWS_PAGE.read_text(encoding="utf-8").partition("\n## Curves\n")[2]
    documented = [
        name
        for line in re.findall(r"^\| (`.*?) \|", page, flags=re.MULTILINE)
        for name in re.findall(r"`(\w+)`", line)
    ]
    assert documented == list(COLUMNS)
    terms = re.findall(r"^(`.*)\n: ", page, flags=re.MULTILINE)
    components = {row["component"] for row in only(presets=["all"], entries=64).rows}
    components |= {"machine.two_sizes"}
    assert components <= set(re.findall(r"`([\w.]+)`", "\n".join(terms)))


def shown(result: CurvesResult, width: int = 100) -> str:
    console = Console(width=width, record=True, file=open("/dev/null", "w"))  # noqa: PTH123, SIM115
    show_curves(console, result)
    return console.export_text()


def test_the_tables_fit_a_hundred_columns() -> None:
    result = only(streams=["fetch", "data", "all"], presets=["all"], entries=1536, sets=128)
    text = shown(result)
    assert max(len(line.rstrip()) for line in text.splitlines()) <= 100
    assert "4 KiB + 32 KiB" in text
    assert "working set over 1000 references" in text
    for wanted in ("12-way", "CPI_TLB at 20 cycles a miss (25 with two sizes)", "MIPS R4000"):
        assert wanted in text


def test_a_table_equals_the_rows() -> None:
    configuration = small_configuration(entries=64, sets=16)

    def misses(page_size: int, sets: int, ways: int) -> int:
        return 123 if (page_size, sets, ways) == (32 * KIB, 1, 64) else 0

    process = curves_process(configuration, misses=misses)
    text = shown(curves_result(configuration, [process]))
    (line,) = [line for line in text.splitlines() if line.startswith("32 KiB")]
    # 16 and 64 entries, 64 entries of 4 ways, the working set and what it is over 4 KiB.
    assert line.split()[2:] == ["0", "2.460", "0", "22.9", "KiB", "8.00"]


def test_the_working_set_of_several_processes_is_that_of_the_main_one() -> None:
    configuration = small_configuration()
    processes = [
        curves_process(configuration, 0, data_references=10**6),
        curves_process(configuration, 1),
    ]
    text = shown(curves_result(configuration, processes))
    assert "(process 0, true)" in text
