"""The data caches of this processor, and for each a working set that measures its latency."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from octavo.base.host import read_text
from octavo.base.units import byte_size
from octavo.calibration.file import Calibration
from octavo.calibration.loads import chased, read_at_random

MEMORY = "memory"


@dataclass(frozen=True)
class DataCache:
    """A cache that holds data."""

    name: str
    """`L1`, `L2`, `L3`."""
    bytes: int
    ways: int | None
    """None where Linux does not say."""


def data_caches(root: Path = Path("/")) -> list[DataCache]:
    """The caches of the first processor that hold data, as Linux reports them, L1 first."""
    found = []
    for index in sorted((root / "sys/devices/system/cpu/cpu0/cache").glob("index*")):
        names = ("level", "type", "size", "ways_of_associativity")
        level, kind, size, ways = ((read_text(index / name) or "").strip() for name in names)
        if kind in ("Data", "Unified") and re.fullmatch(r"[0-9]+[KMG]?", size):
            has_ways = ways.isdecimal() and int(ways) > 0
            found.append(DataCache(f"L{level}", byte_size(size), int(ways) if has_ways else None))
    return sorted(found, key=lambda cache: cache.name)


def cache_levels(found: Calibration, root: Path = Path("/")) -> list[tuple[str, int]]:
    """Each data cache with the largest measured working set above the cache before, and at most
    half its own size and four times the cache before. Memory has the largest working set of all, if
    that is at least four times the last cache, or if a load of it takes at least twice as long as
    one that the last cache serves, both without walks: others may fill most of a cache that many
    cores share.
    """
    sizes = sorted(found.latency_cycles)
    levels: list[tuple[str, int]] = []
    last = 0
    for cache in data_caches(root):
        most = min(cache.bytes // 2, 4 * last or cache.bytes)
        fitting = [size for size in sizes if last < size <= most]
        if fitting:
            levels.append((cache.name, fitting[-1]))
        last = cache.bytes
    if last and sizes and (sizes[-1] >= 4 * last or _leaves_last(found, levels, sizes[-1], root)):
        levels.append((MEMORY, sizes[-1]))
    return levels or [("unknown", size) for size in sizes[::4]]


def _leaves_last(
    found: Calibration, levels: list[tuple[str, int]], largest: int, root: Path
) -> bool:
    """Whether loads of the largest working set take twice as long as those of the last cache."""
    held = dict(levels).get(data_caches(root)[-1].name)
    if held is None:
        return False
    return chased(found, largest).cycles >= 2 * read_at_random(found, held).cycles
