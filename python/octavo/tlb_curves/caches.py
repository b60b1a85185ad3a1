"""Misses of every cache of a stream: all sets and ways, at some line sizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from octavo._core import MAX_CACHE_SETS, MIN_LINE_BYTES
from octavo.base import metrics
from octavo.base.units import KIB
from octavo.tlb_curves.counts import Counts, added, geometry, picked, places_of, shapes_of, words

if TYPE_CHECKING:
    from octavo._core import CacheCurves

SHOWN_BYTES = tuple(KIB << power for power in range(11))
"""Sizes of the caches in tables and figures: 1 KiB to 1 MiB."""
SHOWN_WAYS = (1, 8)
assert SHOWN_BYTES[-1] // MIN_LINE_BYTES <= MAX_CACHE_SETS
NOTE = (
    "Caches: LRU, virtually addressed, with allocation at stores. Each is looked up by every "
    "reference, without a cache before it. Caches are shared and emptied like the TLBs."
)


@dataclass(frozen=True)
class Caches:
    """LRU caches of 1 to MAX_CACHE_SETS sets of 1 to MAX_WAYS ways, with lines of one size."""

    line_bytes: int
    lookups: int
    """Look-ups; a reference looks up each line that it touches."""
    misses: Counts
    """In the order of `octavo.tlb_curves.counts.at`; empty if the program touched too many lines to
    count."""

    def missed(self, cache_bytes: int, ways: int) -> int | None:
        """Misses of a cache; None where its number of sets is no power of two, or is too large."""
        sets, rest = divmod(cache_bytes, self.line_bytes * ways)
        return None if rest or not sets else geometry(self.misses, sets, ways)

    def rate(self, misses: int, instructions: int) -> float | None:
        """Misses per 1000 instructions, or per look-up where there are no instructions."""
        if instructions:
            return metrics.mpki(misses, instructions)
        return metrics.miss_ratio(misses, self.lookups)

    def columns(self, instructions: int, *, sparse: bool) -> dict[str, Sequence[Any]]:
        """The columns of a row for each cache; `sparse`: only for powers of two of ways."""
        shapes = shapes_of(self.misses, sparse=sparse)
        misses = picked(self.misses, places_of(shapes))
        return {
            **shapes,
            "cache_bytes": [entries * self.line_bytes for entries in shapes["entries"]],
            "misses": misses,
            "mpki": [metrics.mpki(number, instructions) for number in misses],
            "miss_ratio": [metrics.miss_ratio(number, self.lookups) for number in misses],
        }


def read_caches(counted: Sequence[CacheCurves]) -> dict[int, Caches]:
    """The extension's counts of caches, by the size of their lines."""
    return {
        caches["line_bytes"]: Caches(
            caches["line_bytes"], caches["lookups"], words(caches["misses"])
        )
        for caches in counted
    }


def sum_caches(processes: Sequence[dict[int, Caches]]) -> dict[int, Caches]:
    """The sum over several process images."""
    return {size: _sum([caches[size] for caches in processes]) for size in processes[0]}


def _sum(parts: Sequence[Caches]) -> Caches:
    is_complete = all(caches.misses for caches in parts)
    return Caches(
        parts[0].line_bytes,
        sum(caches.lookups for caches in parts),
        added(caches.misses for caches in parts) if is_complete else (),
    )
