"""Counts of thousands of TLBs or caches, in the order of the extension."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable, Sequence
from operator import add
from typing import Any, Literal

from octavo._core import MAX_WAYS

Counts = Sequence[int]
"""Counts for all numbers of entries, or for all sets and ways: see `at`."""


def at(sets: int, ways: int) -> int:
    """The index of a set-associative array in `Counts`."""
    return MAX_WAYS * (sets.bit_length() - 1) + ways - 1


def geometry(counts: Counts, sets: int, ways: int) -> int | None:
    """The count of a set-associative array; None where `counts` does not have it."""
    place = at(sets, ways)
    if sets & (sets - 1) or ways > MAX_WAYS or place >= len(counts):
        return None
    return counts[place]


def shapes_of(counts: Counts, *, sparse: bool) -> dict[str, list[int]]:
    """Entries, ways and sets of each reported array; `sparse`: only powers of two of ways."""
    powers = [1 << power for power in range(MAX_WAYS.bit_length())]
    ways = powers if sparse else range(1, MAX_WAYS + 1)
    pairs = [(1 << level, way) for level in range(len(counts) // MAX_WAYS) for way in ways]
    return {
        "entries": [sets * way for sets, way in pairs],
        "ways": [way for _, way in pairs],
        "sets": [sets for sets, _ in pairs],
    }


def places_of(shapes: dict[str, list[int]]) -> list[int]:
    """The indices of these shapes in `Counts`."""
    return [at(sets, ways) for sets, ways in zip(shapes["sets"], shapes["ways"], strict=True)]


def picked(counts: Counts, places: Sequence[int]) -> Sequence[int]:
    """The counts at these indices; a range stands for all counts."""
    return counts if isinstance(places, range) else [counts[place] for place in places]


def words(data: bytes) -> array[int]:
    """Whole numbers from the extension: 64 bits, little-endian."""
    return numbers(data, "Q")


def numbers(data: bytes, kind: Literal["Q", "d"]) -> array[Any]:
    """Whole numbers (`Q`) or floats (`d`) from the extension: 64 bits, little-endian."""
    found: array[Any] = array(kind, data)
    if sys.byteorder == "big":
        found.byteswap()
    return found


def added(curves: Iterable[Counts]) -> Counts:
    """The sum of several curves, number by number."""
    total: Counts = ()
    for curve in curves:
        total = array("Q", map(add, total, curve)) if total else curve
    return total
