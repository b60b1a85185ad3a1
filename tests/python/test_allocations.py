"""Misses by allocation site, from made-up counts."""

from typing import Any

from octavo.analysis.allocations import (
    allocation_rows,
    allocations_record,
    folded,
    line_grid,
    sentence,
    site_grid,
)


def place(function: str | None, line: int | None = None, path: str = "/bin/p") -> dict[str, Any]:
    source = None if line is None else f"/src/{function}.c"
    return {"function": function, "path": path, "source": source, "line": line}


def process(blocks: int, in_table: int, on_stack: int) -> Any:
    """A process with two sites, and misses in one of them and on the stack."""
    table, small = place("dictExpand", 7), place("init")
    frames = [place("calloc", path="/lib/libc.so"), place("zcalloc"), table, place("main;", 9)]
    return {
        "stream": 0,
        "regions": [{"name": "heap"}, {"name": "stack"}],
        "allocations": {
            "columns": [(4096, False), (4096, True), (2 << 20, True)],
            "sites": [
                {"place": table, "address": 0x100, "blocks": blocks, "most_bytes": 4096 * blocks},
                {"place": small, "address": 0x200, "blocks": 1, "most_bytes": 8},
            ],
            "stacks": [{"site": 0, "frames": frames}],
            "misses": [
                {
                    "stack": 0,
                    "region": None,
                    "place": place("dictFind", 3),
                    "counts": [1, in_table, 2],
                },
                {"stack": None, "region": 1, "place": place(None), "counts": [0, on_stack, 0]},
            ],
            "dropped_blocks": 0,
        },
    }


def record(*processes: Any) -> dict[str, Any]:
    made = allocations_record(processes)
    assert made is not None
    return made


def test_without_recorded_blocks_there_is_no_record() -> None:
    assert allocations_record([{"stream": 0}]) is None  # type: ignore[typeddict-item]


def test_counts_of_processes_are_summed_and_bytes_are_of_the_largest() -> None:
    table, small = record(process(2, 60, 20), process(3, 23, 7))["sites"]
    assert table["name"] == "dictExpand (dictExpand.c:7)"
    assert (table["blocks"], table["most_bytes"], table["misses"]) == (5, 3 * 4096, [2, 83, 4])
    assert table["stack"] == ["calloc", "zcalloc", "dictExpand", "main;"]
    assert small["misses"] == [0, 0, 0]


def test_the_sentence_names_the_site_by_its_share_of_all_misses() -> None:
    assert sentence(record(process(2, 83, 17))) == (
        "The 2 blocks allocated in `dictExpand` (dictExpand.c:7) cause 83.0% of the data walks at "
        "4 KiB."
    )
    assert "The block allocated in `dictExpand`" in sentence(record(process(1, 83, 17)))
    assert sentence(record(process(1, 9, 91))) == ""
    assert sentence(record(process(1, 0, 0))) == ""


def test_tables_have_all_misses() -> None:
    sites = site_grid(record(process(2, 83, 17)), 2 << 20)
    assert sites.rows == (
        ("dictExpand (dictExpand.c:7)", "main;", "83", "83.0%", "2", "8 KiB", "2"),
        ("no block: stack", "", "17", "17.0%", "0", "", ""),
    )
    lines = line_grid(record(process(2, 83, 17)), 64 << 10)
    assert lines.rows == (
        ("dictFind", "dictFind.c:3", "83", "83.0%"),
        ("[p]", "p", "17", "17.0%"),
    )


def test_folded_stacks_have_a_frame_between_semicolons_each() -> None:
    assert folded(record(process(2, 83, 17))) == (
        "main:;dictExpand;zcalloc;calloc;by dictFind 83\n[stack];by [p] 17\n"
    )


def test_rows_have_each_site_that_misses() -> None:
    rows = list(allocation_rows(record(process(2, 83, 17)), 1000))
    assert {row["counter"] for row in rows} == {"dictExpand (dictExpand.c:7)"}
    assert [(row["component"], row["page_size"], row["misses"]) for row in rows[2:]] == [
        ("allocations.tlb", 4096, 1),
        ("allocations.machine", 4096, 83),
        ("allocations.machine", 2 << 20, 2),
    ]
    assert rows[3]["mpki"] == 83.0
