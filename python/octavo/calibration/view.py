"""A calibration as sentences and tables that people read."""

from __future__ import annotations

from pathlib import Path

from octavo.base.table import Grid
from octavo.base.units import MIB, format_bytes
from octavo.calibration.caches import cache_levels
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
                _spread(None if seconds is None else seconds.scaled(1e9)),
            )
        )
    return Grid("Translation, beyond a hit in the first-level TLB", head, tuple(rows))


def latency_grid(found: Calibration, root: Path = Path("/")) -> Grid:
    """Latency of a load in each cache and in memory."""
    rows = []
    for name, size in cache_levels(found, root):
        cycles = found.latency_cycles[size]
        ns = cycles.scaled(1e9 / found.cycles_per_second)
        rows.append((name, format_bytes(size), _spread(cycles), _spread(ns)))
    head = ("level", "working set", "latency,\ncycles", "latency,\nns")
    return Grid("Latency of a load, by its working set", head, tuple(rows))


def parallel_grid(found: Calibration) -> Grid:
    """The time of loads that do not wait for one another."""
    rows = []
    for size, by_chases in found.parallel_load_cycles.items():
        for chases, cycles in by_chases.items():
            under_way = by_chases[min(by_chases)].median / max(cycles.median, 1e-9)
            rows.append((format_bytes(size), str(chases), _spread(cycles), f"{under_way:.1f}"))
    head = ("working set", "chases\nat once", "cycles\na load", "loads\nunder way")
    return Grid("Loads that overlap", head, tuple(rows))


def core_grid(found: Calibration) -> Grid:
    """Entries of the structures of the core."""
    rows = tuple((name.replace("_", " "), _spread(one)) for name, one in found.core.items())
    return Grid("Structures of the core", ("structure", "entries"), rows)


def stream_grid(found: Calibration) -> Grid:
    """Bandwidth of one core."""
    rows = tuple(
        (name, _spread(one.scaled(1e-9))) for name, one in found.stream_bytes_per_second.items()
    )
    return Grid("Memory from beginning to end, one core", ("direction", "GB/s"), rows)


def fault_grid(found: Calibration) -> Grid:
    """The cost of a first touch of a page, with its return to the kernel."""
    rows = tuple(
        (format_bytes(size), _spread(one.scaled(1e6 / found.cycles_per_second)))
        for size, one in found.fault_cycles.items()
    )
    title = "First touch of a page, with its zeroing, and its return"
    return Grid(title, ("page size", "microseconds"), rows)


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
