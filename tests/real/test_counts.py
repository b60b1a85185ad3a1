"""Counts, misses and footprints of a static program, which equal those from Lackey's text exactly.

workloads/static_count has all data, even its stack, in its image, so that its addresses depend
neither on the tracer nor on the layout.
"""

import pytest

from . import lackey
from .conftest import Octavo, workload

STREAMS = {"fetch": "I", "data": "LSM", "all": "ILSM"}
PAGE_SIZES = [1 << log for log in range(12, 22)]
STATUS = 42


class Oracle:
    """Simple models on Lackey's text, with each result computed once."""

    def __init__(self, items: list[lackey.Item]) -> None:
        self.items = items
        self._known: dict[tuple[str | int, ...], list[int]] = {}

    def missed(self, stream: str, page_size: int, *levels: int) -> list[int]:
        """The pages that miss TLB levels of these numbers of entries; all pages without levels."""
        key = (stream, page_size, *levels)
        if key not in self._known:
            if levels:
                lookups = self.missed(stream, page_size, *levels[:-1])
                self._known[key] = lackey.missed(lookups, levels[-1])
            else:
                self._known[key] = list(lackey.pages(self.items, STREAMS[stream], page_size))
        return self._known[key]

    def lookups(self, stream: str, page_size: int) -> list[int]:
        return self.missed(stream, page_size)

    def touched_bytes(self, stream: str, page_size: int) -> int:
        return len(set(self.lookups(stream, page_size))) * page_size


@pytest.fixture(scope="module")
def oracle(tmp_path_factory: pytest.TempPathFactory) -> Oracle:
    """Models on Lackey's text of the program."""
    log = tmp_path_factory.mktemp("lackey") / "text"
    return Oracle(lackey.trace(workload("static_count"), log, expect_status=STATUS))


def test_the_text_has_all_kinds_and_crossings(oracle: Oracle):
    """The tests below need many items of every kind, and items that cross pages."""
    for kind in "ILSM":
        assert sum(item.kind == kind for item in oracle.items) > 1000
    for stream in ("fetch", "data"):
        crossings = sum(
            item.address // 4096 != (item.address + item.size - 1) // 4096
            for item in oracle.items
            if item.kind in STREAMS[stream]
        )
        assert crossings > 5
        assert len(oracle.missed(stream, 4096, 64)) > 1000


@pytest.mark.parametrize("tracer", ["octavo", "lackey"])
def test_counts(tracer: str, oracle: Oracle, octavo: Octavo):
    traced = octavo(workload("static_count"), "--tracer", tracer)
    assert traced.status == STATUS
    expected = lackey.counts(oracle.items)
    assert {name: traced.count(name) for name in expected} == expected


@pytest.mark.parametrize("layout", ["native", "as-traced"])
@pytest.mark.parametrize("entries", [64, 4])
def test_misses_and_footprints(layout: str, entries: int, oracle: Oracle, octavo: Octavo):
    traced = octavo(workload("static_count"), "--layout", layout, "--entries", str(entries))
    for page_size in PAGE_SIZES:
        for stream in ("fetch", "data"):
            row = traced.row(component=f"tlb.{stream}", page_size=page_size)
            assert row["entries"] == entries
            misses = len(oracle.missed(stream, page_size, entries))
            assert row["misses"] == misses, (stream, page_size)
        for stream in STREAMS:
            row = traced.row(component="memory", stream=stream, page_size=page_size)
            assert row["touched_bytes"] == oracle.touched_bytes(stream, page_size)


def test_accesses_are_references_and_one_more_for_each_page_crossed(oracle: Oracle, octavo: Octavo):
    traced = octavo(workload("static_count"))
    for page_size in PAGE_SIZES:
        for stream in ("fetch", "data"):
            row = traced.row(component=f"tlb.{stream}", page_size=page_size)
            assert row["accesses"] == len(oracle.lookups(stream, page_size)), (stream, page_size)


def test_two_levels(oracle: Oracle, octavo: Octavo):
    traced = octavo(workload("static_count"), "--tlb", "itanium2", "--page-sizes", "4KiB,16KiB")
    for page_size in (4096, 16384):
        for stream in ("fetch", "data"):
            first = oracle.missed(stream, page_size, 32)
            second = oracle.missed(stream, page_size, 32, 128)
            row = traced.row(component=f"tlb.{stream}", page_size=page_size)
            assert row["misses"] == len(first)
            row = traced.row(component=f"tlb.l2.{stream}", page_size=page_size)
            assert (row["accesses"], row["misses"]) == (len(first), len(second))


def test_the_lackey_tracer_finds_the_same_misses(octavo: Octavo):
    ours, theirs = (
        octavo(workload("static_count"), "--tracer", tracer) for tracer in ("octavo", "lackey")
    )
    for stream in ("fetch", "data"):
        for page_size in PAGE_SIZES:
            wanted = {"component": f"tlb.{stream}", "page_size": page_size}
            assert ours.row(**wanted) == theirs.row(**wanted)


def test_other_page_sizes(oracle: Oracle, octavo: Octavo):
    traced = octavo(workload("static_count"), "--page-sizes", "4KiB,128KiB..256KiB,1GiB")
    sizes = [row["page_size"] for row in traced.rows(component="tlb.data")]
    assert sizes == [4 << 10, 128 << 10, 256 << 10, 1 << 30]
    row = traced.row(component="tlb.data", page_size=1 << 30)
    assert row["misses"] == len(oracle.missed("data", 1 << 30, 64)) == 1
