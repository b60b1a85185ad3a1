"""Simple models of TLBs that handle one reference at a time, written from the paper."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence

from traces_made import Reference

BASE = 4096


def stream_of(references: Sequence[Reference], stream: str) -> list[list[int]]:
    """The base pages of each reference of a stream; a modify is a load and a store."""
    made = []
    for kind, address, size in references:
        if stream in ("all", "fetch" if kind == "fetch" else "data"):
            pages = list(range(address // BASE, (address + size - 1) // BASE + 1))
            made += [pages] * (2 if kind == "modify" else 1)
    return made


def in_program_time(references: Sequence[Reference], stream: str) -> list[list[int]]:
    """The base pages that a stream accesses in each reference of the program."""
    made = []
    for kind, address, size in references:
        of_stream = stream in ("all", "fetch" if kind == "fetch" else "data")
        pages = list(range(address // BASE, (address + size - 1) // BASE + 1))
        made += [pages if of_stream else []] * (2 if kind == "modify" else 1)
    return made


class Lru:
    """One set-associative TLB; a set is an ordered dictionary, the last used page at its end."""

    def __init__(self, sets: int, ways: int) -> None:
        self.sets: list[OrderedDict[object, None]] = [OrderedDict() for _ in range(sets)]
        self.ways = ways
        self.misses = 0

    def look_up(self, at: int, page: object) -> bool:
        """Looks up a page and inserts it on a miss; returns whether it hit."""
        lru = self.sets[at % len(self.sets)]
        hit = page in lru
        if hit:
            lru.move_to_end(page)
        else:
            self.misses += 1
            if len(lru) == self.ways:
                lru.popitem(last=False)
            lru[page] = None
        return hit

    def invalidate(self, page: object) -> None:
        """Removes the page from every set."""
        for lru in self.sets:
            lru.pop(page, None)


def misses(
    stream: Sequence[Sequence[int]],
    page_size: int,
    sets: int,
    ways: int,
    index: Callable[[int], int] = lambda page: page,
) -> int:
    """The misses of one TLB with pages of one size."""
    tlb = Lru(sets, ways)
    for pages in stream:
        for page in dict.fromkeys(page * BASE // page_size for page in pages):
            tlb.look_up(index(page), page)
    return tlb.misses


def working_set(stream: Sequence[Sequence[int]], page_size: int, window: int) -> float:
    """The average bytes in the window, which includes the current reference. The stream has an
    element for each reference of the program.
    """
    pages = [{page * BASE // page_size for page in pages} for pages in stream]
    total = 0
    for time in range(len(pages)):
        total += len(set().union(*pages[max(0, time - window + 1) : time + 1]))
    return total * page_size / len(pages)


class TwoSizes:
    """The dynamic policy (section 3.4) and one exactly indexed TLB."""

    def __init__(
        self, small: int, large: int, threshold: int, window: int, sets: int, ways: int
    ) -> None:
        self.small = small
        self.blocks = large // small
        self.threshold = threshold
        self.window = window
        self.last: dict[int, int] = {}
        """When each block in the window was referenced last."""
        self.large_chunks: set[int] = set()
        self.tlb = Lru(sets, ways)
        self.promotions = 0
        self.demotions = 0
        self.large_misses = 0
        self.large_lookups = 0
        self.byte_refs = 0

    def run(self, program: Sequence[Sequence[int]], looked_up: Sequence[bool]) -> TwoSizes:
        """Runs all references of a program: each first moves the window, and then decides page
        sizes once. Only references with True in `looked_up` are looked up in the TLB.
        """
        for time, (pages, is_looked_up) in enumerate(zip(program, looked_up, strict=True)):
            blocks = list(dict.fromkeys(page * BASE // self.small for page in pages))
            chunks = {block // self.blocks for block in (*self.last, *blocks)}
            self.last |= dict.fromkeys(blocks, time)
            self.last = {block: at for block, at in self.last.items() if time - at < self.window}
            for chunk in chunks:
                self._decide(chunk)
            if is_looked_up:
                for block in blocks:
                    self._look_up(block)
            self.byte_refs += self._bytes()
        return self

    def _decide(self, chunk: int) -> None:
        is_large = self._recent(chunk) >= self.threshold
        if is_large and chunk not in self.large_chunks:
            self.large_chunks.add(chunk)
            self.promotions += 1
            for small in range(chunk * self.blocks, (chunk + 1) * self.blocks):
                self.tlb.invalidate(("small", small))
        elif not is_large and chunk in self.large_chunks:
            self.large_chunks.remove(chunk)
            self.demotions += 1
            self.tlb.invalidate(("large", chunk))

    def _recent(self, chunk: int) -> int:
        return sum(block // self.blocks == chunk for block in self.last)

    def _look_up(self, block: int) -> None:
        chunk = block // self.blocks
        if chunk in self.large_chunks:
            self.large_lookups += 1
            self.large_misses += not self.tlb.look_up(chunk, ("large", chunk))
        else:
            self.tlb.look_up(block, ("small", block))

    def _bytes(self) -> int:
        small = [block for block in self.last if block // self.blocks not in self.large_chunks]
        large = len(self.large_chunks) * self.blocks
        return (len(small) + large) * self.small
