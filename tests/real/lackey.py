"""The reference for counts and misses: Lackey's text, counted and simulated in the simplest way.

The code is independent of Octavo, and simple enough to be checked by reading.
"""

import re
import subprocess
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

ITEM = re.compile(r"^(I | L| S| M) +([0-9a-f]+),(\d+)$")


class Item(NamedTuple):
    """One line of Lackey's text: I fetch, L load, S store, M load and store of the same address."""

    kind: str
    address: int
    size: int


def trace(
    argv: Sequence[str], log: Path, *, expect_status: int, env: Mapping[str, str] | None = None
) -> list[Item]:
    """Runs a program under Lackey, with its text in the file `log`; returns the items."""
    valgrind = ["valgrind", "--tool=lackey", "--trace-mem=yes", f"--log-file={log}"]
    status = subprocess.run([*valgrind, *argv], stdin=subprocess.DEVNULL, env=env).returncode
    assert status == expect_status
    items = []
    for line in log.read_text().splitlines():
        if match := ITEM.match(line):
            items.append(Item(match[1].strip(), int(match[2], 16), int(match[3])))
    return items


def counts(items: Iterable[Item]) -> dict[str, int]:
    """Instructions, loads and stores of the text."""
    lines = dict.fromkeys("ILSM", 0)
    for item in items:
        lines[item.kind] += 1
    loads, stores = lines["L"] + lines["M"], lines["S"] + lines["M"]
    return {
        "instructions": lines["I"],
        "fetches": lines["I"],
        "loads": loads,
        "stores": stores,
        "references": lines["I"] + loads + stores,
    }


def pages(items: Iterable[Item], kinds: str, page_size: int) -> Iterator[int]:
    """The pages that are looked up in a TLB, in order: all pages of each reference."""
    for kind, address, size in items:
        if kind in kinds:
            first, last = address // page_size, (address + size - 1) // page_size
            for _ in range(2 if kind == "M" else 1):
                yield from range(first, last + 1)


def missed(lookups: Iterable[int], entries: int) -> list[int]:
    """Misses of a fully associative TLB with least-recently-used replacement."""
    tlb: OrderedDict[int, None] = OrderedDict()
    misses = []
    for page in lookups:
        if page in tlb:
            tlb.move_to_end(page)
        else:
            misses.append(page)
            tlb[page] = None
            if len(tlb) > entries:
                tlb.popitem(last=False)
    return misses


def missed_in_sets(
    items: Iterable[Item], kinds: str, page_size: int, sets: int, ways: int
) -> tuple[int, int]:
    """Misses of a set-associative TLB: missing look-ups, and items with a missing look-up."""
    held: list[list[int]] = [[] for _ in range(sets)]
    lookups = missed_items = 0
    for item in items:
        misses = 0
        for page in pages([item], kinds, page_size):
            in_set = held[page % sets]
            if page in in_set:
                in_set.remove(page)
            else:
                misses += 1
                del in_set[ways - 1 :]
            in_set.insert(0, page)
        lookups += misses
        missed_items += misses > 0
    return lookups, missed_items
