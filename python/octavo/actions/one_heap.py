"""Page faults of memory that an action moves into one heap.

Huge pages do not fit into the small pieces that some allocators map: Python's arenas have 1 MiB,
and glibc's malloc maps blocks of 128 KiB and more one by one. Where an action lets malloc take such
memory from its heap, the pieces lie side by side there, and huge pages fit.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal

from octavo.actions.subjects import is_of_python, regions_of_malloc
from octavo.analysis.rows import (
    FAULTS,
    HUGE_PAGE_FAULTS,
    HUGE_PAGE_FAULTS_AGAIN,
    PAGE_FAULTS,
    RegionKey,
    Row,
    region_key,
)
from octavo.base.huge_pages import PMD_PAGE
from octavo.base.units import BASE_PAGE, MIB

Pieces = Literal["arenas", "blocks"]
"""Arenas of Python, or blocks that malloc maps one by one."""
PIECES: tuple[Pieces, ...] = ("arenas", "blocks")
_LARGEST_THRESHOLD = "mmap_threshold=33554432"
_LARGEST_BLOCK_BYTES = 32 * MIB
"""Larger blocks are mapped one by one under every threshold."""


def pieces_in(rows: Sequence[Row]) -> frozenset[Pieces]:
    """The kinds of pieces that would have fewer page faults in one heap."""
    return frozenset(kind for kind in PIECES if in_one_heap(rows, (kind,)) != rows)


def moved_by(action: Mapping[str, Any]) -> frozenset[Pieces]:
    """The pieces that the variables of an action put into the heap of malloc."""
    variables = action.get("environment", {})
    moved: set[Pieces] = set()
    if variables.get("PYTHONMALLOC") == "malloc":
        moved.add("arenas")
    if _LARGEST_THRESHOLD in variables.get("GLIBC_TUNABLES", ""):
        moved.add("blocks")
    return frozenset(moved)


def in_one_heap(rows: Sequence[Row], moved: Collection[Pieces]) -> list[Row]:
    """The rows, with page faults of 2 MiB pages as if the pieces lay in one heap. The heap keeps
    its pages, so each page is faulted in once.
    """
    touched = _touched(rows, moved)
    after = _faults_after(touched)
    changed: dict[str, int] = {}
    found = []
    for row in rows:
        counter = row.get("counter", "")
        if row["component"] == FAULTS and row["page_size"] == PMD_PAGE and "region" in row:
            key = region_key(row)
            if key in after:
                value = after[key][counter]
                changed[counter] = changed.get(counter, 0) + value - row["value"]
                row = {**row, "value": value}
        found.append(row)
    if changed.get(PAGE_FAULTS, 0) >= 0:
        return [*rows]
    return [
        {**row, "value": row["value"] + changed[row["counter"]]}
        if row["component"] == FAULTS
        and row["page_size"] == PMD_PAGE
        and not {"region", "process"} & row.keys()
        else row
        for row in found
    ]


def _touched(rows: Sequence[Row], moved: Collection[Pieces]) -> dict[RegionKey, int]:
    """Bytes of 4 KiB pages touched, by region, for each moved piece that has page faults."""
    faulting = {region_key(row) for row in rows if row["component"] == FAULTS and "region" in row}
    of_malloc = regions_of_malloc(rows)
    found = {}
    for row in rows:
        if row["component"] != "memory" or "region" not in row:
            continue
        if (row["stream"], row["page_size"]) != ("data", BASE_PAGE):
            continue
        is_block = (row.get("process"), row["region"]) in of_malloc
        is_small = row["bytes"] // max(row["mappings"], 1) < _LARGEST_BLOCK_BYTES
        is_moved = ("arenas" in moved and is_of_python(row["region"])) or (
            "blocks" in moved and is_block and is_small
        )
        if is_moved and region_key(row) in faulting:
            found[region_key(row)] = row["touched_bytes"]
    return found


def _faults_after(touched: Mapping[RegionKey, int]) -> dict[RegionKey, dict[str, int]]:
    """The page-fault counters of each piece where all lie side by side. The end of the last piece
    fills no huge page and is faulted in with 4 KiB pages.
    """
    found: dict[RegionKey, dict[str, int]] = {}
    filled = 0
    for number, (key, size) in enumerate(touched.items()):
        huge = (filled + size) // PMD_PAGE - filled // PMD_PAGE
        filled += size
        left = filled % PMD_PAGE // BASE_PAGE if number == len(touched) - 1 else 0
        found[key] = {
            PAGE_FAULTS: huge + left,
            HUGE_PAGE_FAULTS: huge,
            HUGE_PAGE_FAULTS_AGAIN: 0,
        }
    return found
