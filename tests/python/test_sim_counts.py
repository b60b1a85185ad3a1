"""Misses of TLBs counted by a simple model, as Dinero counts misses of caches with lines of a page:
each set is a list with the most recent page last. The streams lie above 2^32 in regions with equal
low 32 bits, so that truncated addresses would give other counts.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import octavo
from traces_made import Reference, write_csv

PAGE = 4096
REGIONS = [0x1_2345_0000_0000, 0x5_0000_0000, 0x7FFF_0000_0000, 0x7F00_0000_0000]


class Sets:
    """A set-associative array of pages, least recently used first out."""

    def __init__(self, entries: int, ways: int) -> None:
        self.ways = ways
        self.sets: list[list[int]] = [[] for _ in range(entries // ways)]
        self.accesses = self.misses = 0

    def look_up(self, page: int) -> bool:
        self.accesses += 1
        held = page in self.sets[page % len(self.sets)]
        self.misses += not held
        if held:
            self.fill(page)
        return held

    def fill(self, page: int) -> None:
        held = self.sets[page % len(self.sets)]
        if page in held:
            held.remove(page)
        elif len(held) == self.ways:
            del held[0]
        held.append(page)


def count(references: list[Reference]) -> dict[str, Sets]:
    """Two first levels before one second level. The first store to a page that was only loaded has
    its dirty bit set by a walk, after which both levels hold it again."""
    fetch, data, second = Sets(128, 8), Sets(64, 4), Sets(1536, 12)
    dirty = set()
    for kind, address, _ in references:
        page, first = address // PAGE, fetch if kind == "fetch" else data
        is_known = first.look_up(page) or second.look_up(page)
        if not is_known or (kind == "store" and page not in dirty):
            second.fill(page)
        first.fill(page)
        if kind == "store":
            dirty.add(page)
    return {"tlb.l1i": fetch, "tlb.l1d": data, "tlb.l2": second}


def uniform(draw: random.Random, pages: int) -> Iterator[int]:
    while True:
        yield draw.randrange(pages)


def skewed(draw: random.Random, pages: int) -> Iterator[int]:
    while True:
        yield int(pages * draw.random() ** 4)


def strided(draw: random.Random, pages: int) -> Iterator[int]:
    stride = draw.choice([1, 3, 16, 128])
    at = 0
    while True:
        yield at
        at = (at + stride) % pages


def phased(draw: random.Random, pages: int) -> Iterator[int]:
    while True:
        first = draw.randrange(pages)
        for _ in range(draw.randrange(1, 3000)):
            yield (first + draw.randrange(90)) % pages


@pytest.mark.parametrize("pattern", [uniform, skewed, strided, phased])
@pytest.mark.parametrize("pages", [50, 400, 6000])
def test_misses_equal_those_of_dinero(
    pattern: Callable[[random.Random, int], Iterator[int]], pages: int, tmp_path: Path
) -> None:
    draw = random.Random(pages)
    data, code = pattern(draw, pages), pattern(draw, pages // 10)
    references: list[Reference] = []
    for _ in range(30_000):
        kind = draw.choices(["fetch", "load", "store"], [4, 4, 2])[0]
        page = next(code) if kind == "fetch" else next(data)
        region = REGIONS[page % 4] + (0x4000_0000 if kind == "fetch" else 0)
        references.append((kind, region + page // 4 * PAGE + draw.randrange(512) * 8, 4))
    compare(references, tmp_path)


def test_a_first_store_makes_its_page_the_most_recent_in_the_second_level(tmp_path: Path) -> None:
    """13 pages are in one set of both levels. The first is stored to while the first level has it,
    so the second level then evicts the second page for the last.
    """
    one_set = [REGIONS[0] + number * 128 * PAGE for number in range(13)]
    references: list[Reference] = [("load", address, 4) for address in one_set]
    references.insert(4, ("store", one_set[0], 4))
    references += [("load", one_set[0], 4)]
    assert compare(references, tmp_path)["tlb.l2"].misses == 13


FRAGMENTED = {
    "memory.bytes": "256MiB",
    "memory.fragmentation.kind": "holes",
    "memory.fragmentation.portion": 1,
    "memory.fragmentation.fraction": 0.3,
    "memory.fragmentation.layout": "dispersed",
    "memory.fragmentation.holes": "immovable",
}
"""Memory whose free blocks are small, so that there are many ranges."""
IN_TURN = "synth:strided?bytes=3MiB&references=10k"
"""Pages that are contiguous in memory, as they are touched in order."""
RANDOM = "synth:zipf?bytes=16MiB&references=50k"


@pytest.mark.parametrize(
    ("design", "key", "sizes", "component", "trace", "memory"),
    [
        ("rmm", "rmm.range_entries", [8, 32, 512], "tlb.range", IN_TURN, FRAGMENTED),
        ("colt_fa", "colt.range_entries", [4, 16, 64], "tlb.l1d", IN_TURN, {}),
        ("colt_fa", "colt.range_pages", [8, 16, 128], "tlb.l1d", IN_TURN, {}),
        ("pom_tlb+base", "pom_tlb.bytes", ["4KiB", "64KiB", "1MiB"], "tlb.pom", RANDOM, {}),
    ],
)
def test_a_larger_structure_of_a_design_misses_less(
    design: str,
    key: str,
    sizes: list[int | str],
    component: str,
    trace: str,
    memory: dict[str, int | float | str],
) -> None:
    designs = [f"{design}:{key}={size}" for size in sizes]
    result = octavo.sim(trace, designs=designs, settings=memory)
    misses = [result.design(name).count(component, "misses") for name in designs]
    assert misses == sorted(set(misses), reverse=True), misses


def compare(references: list[Reference], directory: Path) -> dict[str, Sets]:
    trace = write_csv(directory / "stream.csv", references)
    result = octavo.sim(trace, machine="skylake", designs=["base4k"])
    simulated = result.design("base4k").counts
    counted = count(references)
    for component, expected in counted.items():
        assert simulated[component, "accesses"] == expected.accesses, component
        assert simulated[component, "misses"] == expected.misses, component
    return counted
