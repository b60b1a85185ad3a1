"""A calibration as sentences and tables that people read."""

from __future__ import annotations

import re
from pathlib import Path

from octavo.base.host import read_text
from octavo.base.table import Grid
from octavo.base.units import MIB, byte_size, format_bytes
from octavo.calibration.file import Calibration, Spread

NOT_FOUND = "not found"
NOT_MEASURED = "not measured"


def headline(found: Calibration) -> str:
    """The processor and its clock, in one line."""
    core, tsc = found.cycles_per_second / 1e9, found.tsc_per_second / 1e9
    kind = ", a virtual machine" if found.host.virtualised else ""
    return (
        f"{found.host.cpu_model} ({found.host.cpu_id}){kind}: {core:.2f} GHz, "
        f"time-stamp counter {tsc:.2f} GHz"
    )


def tlb_grid(found: Calibration) -> Grid:
    """TLB reach and walk cost by page size."""
    head = (
        "page size",
        "first level,\nentries",
        "second level,\nentries",
        "second-level hit,\ncycles",
        "page walk,\ncycles",
        "page walk,\nns",
    )
    sizes = sorted({4 << 10, 2 * MIB, *found.tlb, *found.walk_cycles})
    rows = []
    for size in sizes:
        reach = found.tlb.get(size)
        walk = found.walk_cycles.get(size)
        seconds = found.walk_seconds(size)
        rows.append(
            (
                format_bytes(size),
                _entries(reach.first if reach else None),
                _entries(reach.second if reach else None),
                _spread(found.second_level_hit_cycles.get(size)),
                _spread(walk),
                _spread(None if seconds is None else scaled(seconds, 1e9)),
            )
        )
    return Grid("Translation, beyond a hit in the first-level TLB", head, tuple(rows))


def scaled(spread: Spread, by: float) -> Spread:
    """The spread in another unit."""
    return Spread(spread.low * by, spread.median * by, spread.high * by)


def latency_grid(found: Calibration, root: Path = Path("/")) -> Grid:
    """Latency of a load in each cache and in memory."""
    rows = []
    for name, size in _levels(found, root):
        cycles = found.latency_cycles[size]
        ns = scaled(cycles, 1e9 / found.cycles_per_second)
        rows.append((name, format_bytes(size), _spread(cycles), _spread(ns)))
    head = ("level", "working set", "latency,\ncycles", "latency,\nns")
    return Grid("Latency of a load, by its working set", head, tuple(rows))


def _levels(found: Calibration, root: Path) -> list[tuple[str, int]]:
    """Each data cache with a working set of at most half its size and four times that of the
    cache before; and memory with the largest of all, where that is four times the last cache.
    """
    sizes = sorted(found.latency_cycles)
    levels: list[tuple[str, int]] = []
    last = 0
    for name, cache in data_caches(root):
        most = min(cache // 2, 4 * last or cache)
        fitting = [size for size in sizes if last < size <= most]
        if fitting:
            levels.append((name, fitting[-1]))
        last = cache
    if last and sizes and sizes[-1] >= 4 * last:
        levels.append(("memory", sizes[-1]))
    return levels or [("unknown", size) for size in sizes[::4]]


def data_caches(root: Path = Path("/")) -> list[tuple[str, int]]:
    """Name and bytes of each cache of the first processor that holds data, as Linux reports."""
    found = []
    for index in sorted((root / "sys/devices/system/cpu/cpu0/cache").glob("index*")):
        texts = [(read_text(index / name) or "").strip() for name in ("level", "type", "size")]
        level, kind, size = texts
        if kind in ("Data", "Unified") and re.fullmatch(r"[0-9]+[KMG]?", size):
            found.append((f"L{level}", byte_size(size)))
    return sorted(found)


def _entries(reach: Spread | None) -> str:
    if reach is None:
        return NOT_FOUND
    return f"{reach.median:.0f} ({reach.low:.0f}–{reach.high:.0f})"


def _spread(spread: Spread | None) -> str:
    if spread is None:
        return NOT_MEASURED
    return f"{_short(spread.median)} ({_short(spread.low)}–{_short(spread.high)})"


def _short(value: float) -> str:
    return f"{value:.1f}" if value < 99.95 else f"{value:.0f}"
