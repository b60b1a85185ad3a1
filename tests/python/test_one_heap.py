"""Page faults if the lines to paste put pieces of memory into one heap."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from fakes import data_walks, process, region, result
from octavo.actions.model import Action
from octavo.actions.one_heap import in_one_heap, moved_by, pieces_in
from octavo.analysis.advice import Advice
from octavo.analysis.rows import FAULTS, Row, rows_of
from octavo.analysis.walk_costs import walk_costs
from octavo.base.huge_pages import read_huge_pages
from octavo.base.units import KIB, MIB
from octavo.hardware.modelled import given_machine
from octavo.hardware.tlb_levels import load_preset
from octavo.runs.result import RunResult, advice_records

if TYPE_CHECKING:
    from octavo._core import Region

LRU = load_preset("lru64")
PYTHON = {
    "PYTHONMALLOC": "malloc",
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1:glibc.malloc.mmap_threshold=33554432",
}


def piece(name: str, number: int, size: int, *, malloc: bool = False, huge: int = 0) -> Region:
    """A mapping with a fault for each page; `huge` pages were faulted in again in 2 MiB pages."""
    made = region(name, "anonymous", base=size, start=(number + 1) << 32)
    pages = size // (4 * KIB)
    faults = {"base": pages, "huge": huge, "huge_again": 0, "left": pages - 512 * huge}
    return {**made, "page_faults": faults, "malloc_bytes": size if malloc else 0}  # type: ignore[typeddict-item]


def arenas(count: int) -> list[Region]:
    return [piece(f"Python arena 1.0MiB #{n}", n, MIB) for n in range(count)]


def rows(regions: Sequence[Region]) -> list[Row]:
    return rows_of(result(process(0, regions=regions)), LRU)


def faults(found: Sequence[Row], name: str | None = None) -> dict[str, int]:
    """The counters of page faults in 2 MiB pages, of all data or of a region."""
    return {
        row["counter"]: row["value"]
        for row in found
        if row["component"] == FAULTS
        and row["page_size"] == 2 * MIB
        and row.get("region") == name
        and row["value"]
    }


def test_arenas_side_by_side_have_huge_pages() -> None:
    before = rows([*arenas(5), region()])
    assert faults(before) == {"page_faults": 5 * 256}
    after = in_one_heap(before, {"arenas"})
    # Of five MiB two whole pages; the rest is faulted in as 4 KiB.
    assert faults(after) == {"page_faults": 2 + 256, "huge_page_faults": 2}
    parts = [faults(after, f"Python arena 1.0MiB #{n}") for n in range(5)]
    one = {"page_faults": 1, "huge_page_faults": 1}
    assert parts == [{}, one, {}, one, {"page_faults": 256}]
    assert [row for row in after if row["component"] != FAULTS] == [
        row for row in before if row["component"] != FAULTS
    ]


def test_only_small_blocks_of_malloc_move() -> None:
    own = piece("anon 4.0MiB #1", 1, 4 * MIB, huge=1)
    block = piece("anon 6.0MiB #2", 2, 6 * MIB, malloc=True, huge=2)
    large = piece("anon 64MiB #3", 3, 64 * MIB, malloc=True, huge=31)
    before = rows([own, block, large])
    after = in_one_heap(before, {"blocks"})
    assert faults(after, "anon 6.0MiB #2") == {"page_faults": 3, "huge_page_faults": 3}
    for name in ("anon 4.0MiB #1", "anon 64MiB #3"):
        assert faults(after, name) == faults(before, name)
    assert in_one_heap(before, {"arenas"}) == before
    assert pieces_in(before) == {"blocks"}
    assert pieces_in(rows([*arenas(4)])) == {"arenas"}


def test_variables_determine_the_memory_that_moves() -> None:
    assert moved_by({}) == set()
    assert moved_by({"environment": {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}}) == set()
    assert moved_by({"environment": {"PYTHONMALLOC": "malloc"}}) == {"arenas"}
    assert moved_by({"environment": PYTHON}) == {"arenas", "blocks"}


@pytest.mark.parametrize("environment", [PYTHON, {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}])
def test_advice_counts_the_faults_that_its_lines_leave(
    environment: dict[str, str],
    finish: Callable[..., RunResult],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def actions(item: Advice, *_: Any, **__: Any) -> list[Action]:
        if not item.changes:
            return []
        return [Action("malloc", "", "lines", "one 2MiB", 2 * MIB, environment=environment)]

    monkeypatch.setattr("octavo.runs.result.actions_for", actions)
    made = process(0, regions=arenas(40), data_base=40 * MIB)
    made["machine_curves"] = data_walks(10**7, 0)
    whole = result(made)
    costs = replace(walk_costs(given_machine("zen3")), source="preset", measured={})
    records = advice_records(
        rows_of(whole, LRU),
        LRU,
        read_huge_pages(),
        ["python3", "lookups.py"],
        finish(whole, "zen3").manifest,
        costs=costs,
    )
    data = next(one for one in records if one.get("stream") == "data")
    assert data["page_size"] == 2 * MIB
    moves = environment is PYTHON
    assert (data["page_faults_base"], data["page_faults"]) == (10240, 20 if moves else 10240)
    assert ("those of one heap" in data["text"]) == moves
