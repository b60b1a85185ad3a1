"""The machine of simulations that a calibration describes: the preset of the processor, with what
was measured in place of what the preset assumes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import linear_regression, median
from typing import Any

from octavo._core import OctavoError
from octavo.base.files import NewFile, in_turn
from octavo.base.host import memory_bytes
from octavo.base.huge_pages import PMD_PAGE
from octavo.base.toml import toml_value
from octavo.base.units import BASE_PAGE, GIB, format_bytes
from octavo.calibration.caches import MEMORY, DataCache, cache_levels, data_caches
from octavo.calibration.file import Calibration, Reach, Spread
from octavo.hardware.machines import default_host_machine, machine
from octavo.hardware.processors import machine_for, this_processor
from octavo.snapshot import MemorySnapshot, captured

_LEVELS = {"L1": "l1d", "L2": "l2", "L3": "llc"}
"""Keys of a machine's caches, by the names of the measured levels."""
_ALL = 0.8
"""The share of the last cache from which on it is taken to be this machine's alone."""
_FEWEST_SIZES = 4
"""Working sets beyond the last cache that its share is measured with."""
_LEAST_HITS, _MOST_HITS = 0.05, 0.9
"""Shares of reads that the last cache serves which say how much of a working set it holds."""
_LINE_BYTES = 64
_HOST_MEMORY = 1.5
"""The memory of a host, as a multiple of its guest's: so that the guest's fits."""


@dataclass(frozen=True)
class _Key:
    """A key of the machine, and where its value comes from."""

    name: str
    value: Any
    source: str


class MachineFile:
    """The place that the machine is to be written to, with a snapshot of its memory beside it."""

    def __init__(self, name: str | None, *, force: bool = False) -> None:
        """Checks that both can be written: those that exist with `force` only, but for the default
        files (`name` is None). Raises UsageError or CannotRun.
        """
        self.path = default_host_machine() if name is None else Path(name)
        may_exist, option = force or name is None, "--machine-out"
        self._file = NewFile(str(self.path), force=may_exist, option=option)
        beside = str(self.path.with_suffix(".octmem"))
        self._snapshot = NewFile(beside, force=may_exist, option=option)
        self.memory: MemorySnapshot | None = None
        self._write_memory: Callable[[Path], None] | None = None

    def take_snapshot(self) -> None:
        """Keeps what memory is like now: before a measurement, which takes much of it."""
        with suppress(OctavoError):
            self._write_memory, self.memory = captured(self._snapshot.name)

    def write(self, calibration: Calibration) -> None:
        """Writes each file whole, or raises CannotRun and leaves what was there before: of one that
        does not fit on its disk, the message says where it is.
        """
        write_memory = self._write_memory
        in_turn(
            lambda: None if write_memory is None else self._snapshot.write(write_memory),
            lambda: self._file.write(machine_toml(calibration, memory=self.memory)),
        )


def machine_toml(
    found: Calibration, root: Path = Path("/"), memory: MemorySnapshot | None = None
) -> str:
    """The machine as a file for `octavo sim --machine`: each key with what was measured, or the
    rule by which it follows from that; all others are the preset's. Memory begins as it is in
    `memory`, whose file lies beside the machine's.
    """
    match = machine_for(this_processor(root))
    preset = machine(match.machine)
    nearest = f", the nearest known machine: this is {match.nearest}" if match.nearest else ""
    host = found.host
    source = (
        f"octavo calibrate, {host.measured_at}; keys that are not here are assumed as in "
        f"{match.machine}{nearest}"
    )
    lines = [
        f"extends = {toml_value(match.machine)}",
        'name = "host"',
        f"description = {toml_value(f'{host.cpu_model} ({host.cpu_id})')}",
        f"source = {toml_value(source)}",
    ]
    table = ""
    for key in _keys(found, preset, root, memory):
        above, _, last = key.name.rpartition(".")
        if above != table:
            table = above
            lines += ["", f"[{table}]"]
        lines.append(f"{last} = {toml_value(key.value)}  # {key.source}")
    return "\n".join(lines) + "\n"


def _keys(
    found: Calibration, preset: dict[str, Any], root: Path, memory: MemorySnapshot | None
) -> Iterator[_Key]:
    pipeline, dram = preset["core"].get("pipeline"), preset.get("dram")
    if pipeline is not None:
        gigahertz = round(found.cycles_per_second / 1e9, 3)
        yield _Key("core.pipeline.frequency_ghz", gigahertz, "measured")
        # The kind of DRAM has its times in nanoseconds.
        dram = machine(preset["name"], {"core.pipeline.frequency_ghz": gigahertz}).get("dram")
        yield from _core(found, pipeline)
        yield from _outstanding(found, pipeline["outstanding"])
    total = memory_bytes() // GIB * GIB
    if memory is not None:
        total = memory.summary["simulated_bytes"]
    if total:
        source = "of /proc/meminfo, whole GiB" if memory is None else "with holes between its parts"
        yield _Key("memory.bytes", total if total % GIB else f"{total // GIB}GiB", source)
    yield from _fragmentation(memory)
    yield from _tlbs(found, preset)
    yield from _walker(found, preset["walker"])
    yield from _caches(found, dram, root)
    if found.host.virtualised:
        pages = found.entry_bytes.get(PMD_PAGE, BASE_PAGE)
        policy = "thp" if pages >= PMD_PAGE else "base"
        yield _Key(
            "host.policy", policy, f"measured: an entry covers {format_bytes(pages)} of 2 MiB"
        )
        if total:
            bytes_ = f"{int(_HOST_MEMORY * total / GIB) + 1}GiB"
            yield _Key("host.memory.bytes", bytes_, "assumed: more than the guest's")


def _fragmentation(memory: MemorySnapshot | None) -> Iterator[_Key]:
    """Memory as it is at the start, by a snapshot. In a guest the 4 KiB pages of a program that are
    scattered over its memory share no lines of the host's page table.
    """
    if memory is None:
        return
    free, every = memory.summary["free_bytes"], memory.summary["memory_bytes"]
    yield _Key("memory.fragmentation.kind", "snapshot", "taken before all was measured")
    source = f"{format_bytes(free)} of {format_bytes(every)} were free"
    yield _Key("memory.fragmentation.file", Path(memory.file).name, source)


def _core(found: Calibration, preset: Mapping[str, Any]) -> Iterator[_Key]:
    """Sizes of the core's structures where the preset's are not what was measured. A larger reorder
    buffer does not count: where an entry holds two instructions, it depends on which.
    """
    for name in ("reorder_buffer", "rename_registers", "load_queue", "store_queue"):
        measured = found.core.get(name)
        if measured is None or measured.low <= preset[name] <= measured.high:
            continue
        if name != "reorder_buffer" or measured.high < preset[name]:
            source = f"measured: {_text(measured)}"
            yield _Key(f"core.pipeline.{name}", round(measured.median), source)


def _walker(found: Calibration, preset: Mapping[str, Any]) -> Iterator[_Key]:
    """Walkers, and the window that walks come from, where the preset has other ones."""
    walkers = found.core.get("walkers")
    if walkers is not None:
        count = max(1, round(walkers.median))
        if count != preset["walkers"]:
            yield _Key("walker.walkers", count, f"measured: {_text(walkers)}")
    window = found.core.get("reorder_buffer")
    if window is not None and window.high < preset["window_instructions"]:
        source = "as many as the reorder buffer's"
        yield _Key("walker.window_instructions", round(window.median), source)


def _outstanding(found: Calibration, preset: Mapping[str, int]) -> Iterator[_Key]:
    """Misses under way at once: the latency over the least time between loads of many chases, over
    the largest working set (Little's law). Of both the least disturbed rounds count.
    """
    if not found.parallel_load_cycles:
        return
    by_chases = found.parallel_load_cycles[max(found.parallel_load_cycles)]
    if 1 not in by_chases:
        return
    chases, least = min(by_chases.items(), key=lambda pair: pair[1].low)
    misses = round(by_chases[1].low / max(least.low, 1e-9))
    measured = max(1, min(misses, chases))
    source = f"measured: {by_chases[1].low:.0f} cycles alone, {least.low:.1f} of {chases} chases"
    yield _Key("core.pipeline.outstanding.l1d", measured, source)
    for level in ("l2", "llc"):
        if preset[level] < measured:
            yield _Key(
                f"core.pipeline.outstanding.{level}", measured, "as many as the first level's"
            )


def _tlbs(found: Calibration, preset: dict[str, Any]) -> Iterator[_Key]:
    reach = found.tlb.get(BASE_PAGE, Reach(None, None))
    first = "l1d" if "l1d" in preset["tlb"] else "l1"
    for level, measured in ((first, reach.first), ("l2", reach.second)):
        arrays = preset["tlb"].get(level)
        if measured is None or arrays is None:
            continue
        if level == "l2" and BASE_PAGE in found.second_level_hit_cycles:
            hit = found.second_level_hit_cycles[BASE_PAGE]
            yield _Key("tlb.l2.hit_latency_cycles", round(hit.median), f"measured: {_text(hit)}")
        holding = {
            name: array
            for name, array in arrays.items()
            if isinstance(array, dict) and _holds(array, "4KiB")
        }
        if len(holding) != 1:
            continue
        ((name, array),) = holding.items()
        if measured.low <= array["entries"] <= measured.high:
            continue
        ways = array["ways"] if isinstance(array["ways"], int) else 1
        entries = max(ways, round(measured.median / ways) * ways)
        yield _Key(f"tlb.{level}.{name}.entries", entries, f"measured: {_text(measured)}")


def _holds(array: Mapping[str, Any], size: str) -> bool:
    sizes = array.get("page_sizes")
    return sizes == "any" or (isinstance(sizes, list) and size in sizes)


def _caches(found: Calibration, dram: Mapping[str, int] | None, root: Path) -> Iterator[_Key]:
    levels = dict(cache_levels(found, root))
    caches = data_caches(root)
    beyond = _beyond(found, caches[-1], root) if caches else None
    others = None
    if beyond is not None and beyond.own_bytes < _ALL * caches[-1].bytes:
        others = _others(found, beyond, caches[-1].bytes)
    if others is not None:
        yield others
    if MEMORY in levels:
        bytes_ = levels[MEMORY]
        latency = _text(found.latency_cycles[bytes_])
        source = f"measured: {latency} over {format_bytes(bytes_)}, less walks"
        cycles = found.latency_cycles[bytes_].median - _translation(found, bytes_)
        if beyond is not None and beyond.own_bytes < bytes_:
            source = f"measured: {beyond.loads}, less walks and hits"
            cycles = beyond.memory_cycles
        if dram is not None:
            source += ", a row's closing and refreshes"
            cycles -= _row_and_refreshes(dram, cycles)
        yield _Key("cache.memory_latency_cycles", max(1, round(cycles)), source)
    for cache in caches:
        key = _LEVELS.get(cache.name)
        if key is None:
            continue
        is_smaller = cache == caches[-1] and others is None
        yield from _size(cache, key, beyond if is_smaller else None)
        if cache.name in levels:
            bytes_ = levels[cache.name]
            spread = found.latency_cycles[bytes_]
            cycles = max(1, round(spread.median - _translation(found, bytes_)))
            source = f"measured: {_text(spread)} over {format_bytes(bytes_)}, less TLB misses"
            yield _Key(f"cache.{key}.latency_cycles", cycles, source)


def _others(found: Calibration, beyond: _Beyond, last_bytes: int) -> _Key | None:
    """How often others fill a line of the last cache, by random reads that no faster ones came
    before; None where these hold nearly as much as faster ones do: then others do not use more of
    the cache the slower a program is, and it is a smaller cache.

    A line is there if it was read again within the time T in which the cache is filled once. So of
    N lines, each read of which takes t cycles, the share h = 1 - exp(-T / (t N)) is there. N h
    lines are the program's, and others have filled the rest in T.
    """
    held, every = [], []
    for size, loads in sorted(found.lone_read_cycles.items()):
        cycles = loads.median - beyond.computed_cycles - _translation(found, size)
        hits = (beyond.memory_cycles - cycles) / (beyond.memory_cycles - beyond.hit_cycles)
        if not _LEAST_HITS <= hits <= _MOST_HITS:
            continue
        lines = size / _LINE_BYTES
        filled_once = -math.log(1 - hits) * loads.median * lines
        held.append(hits * size)
        every.append(filled_once * _LINE_BYTES / max(last_bytes - hits * size, _LINE_BYTES))
    if not every or median(held) >= _ALL * beyond.own_bytes:
        return None
    source = (
        f"measured: random reads hold {format_bytes(round(median(held)))} of "
        f"{format_bytes(last_bytes)} ({min(every):.3g} to {max(every):.3g} cycles by working set), "
        f"{format_bytes(round(beyond.own_bytes))} after faster ones"
    )
    return _Key("cache.others_fill_every_cycles", max(1, round(median(every))), source)


def _size(cache: DataCache, key: str, beyond: _Beyond | None) -> Iterator[_Key]:
    """Size and ways: as Linux reports them, or the ways that hold what of the last cache is this
    machine's own, where it is not known how fast others fill the rest.
    """
    size, ways, source = cache.bytes, cache.ways, "of /sys/devices/system/cpu"
    if ways is not None and beyond is not None and beyond.own_bytes < _ALL * size:
        own = max(1, round(beyond.own_bytes / size * ways))
        source = (
            f"measured: {format_bytes(round(beyond.own_bytes))} of {format_bytes(size)}; others "
            "use the rest"
        )
        size, ways = size // ways * own, own
    yield _Key(f"cache.{key}.bytes", size, source)
    if ways is not None:
        yield _Key(f"cache.{key}.ways", ways, source)


@dataclass(frozen=True)
class _Beyond:
    """Loads over working sets that the last cache cannot hold."""

    own_bytes: float
    """Of the cache: those that hold lines of this machine."""
    memory_cycles: float
    """Of a load that no cache serves."""
    hit_cycles: float
    """Of a load that the last cache serves."""
    computed_cycles: float
    """Of a random read: those in which its place is computed."""
    loads: str
    """The loads over the largest working set, in words."""


def _beyond(found: Calibration, last: DataCache, root: Path) -> _Beyond | None:
    """The share of the last cache, and the latency of memory: of random loads over `W` bytes, a
    cache that holds `C` of them serves the share `C / W`, so that the cycles of a load are linear
    in `1 / W`. Fitted by least squares to working sets from the cache's size on; None where there
    are fewer than four.

    The loads are random reads, which come back to a line at any time, as those of programs do;
    where they were not measured, those of the chases, which come back to it after all others.
    """
    levels = dict(cache_levels(found, root))
    hit = levels.get(last.name)
    if hit is None:
        return None
    loads, computed = found.random_read_cycles, 0.0
    first = levels.get("L1")
    if len(loads) > _FEWEST_SIZES and first is not None:
        # The computation of a place takes as long whatever serves the read.
        computed = loads[min(loads)].median - found.latency_cycles[first].median
    else:
        loads = found.latency_cycles
    sizes = [size for size in sorted(loads) if size >= last.bytes]
    if len(sizes) < _FEWEST_SIZES:
        return None
    cycles = [loads[size].median - computed - _translation(found, size) for size in sizes]
    slope, memory = linear_regression([1 / size for size in sizes], cycles)
    hit_cycles = found.latency_cycles[hit].median - _translation(found, hit)
    saved = memory - hit_cycles
    if saved <= 0 or slope >= 0:
        return None
    largest = max(sizes)
    kind = "chases" if loads is found.latency_cycles else "random reads"
    words = f"{_text(loads[largest])}, {kind} over {format_bytes(largest)}"
    return _Beyond(-slope / saved, memory, hit_cycles, computed, words)


def _row_and_refreshes(dram: Mapping[str, int], load_cycles: float) -> float:
    """Cycles that a random load waits, on average, beyond one from a closed row: for the end of a
    refresh, and for the closing of the row that a load since the last refresh opened in its bank.
    """
    every = dram["refresh_every_cycles"]
    if not every:
        return dram["precharge_cycles"]
    loads_of_bank = every / max(load_cycles, 1) / (dram["channels"] * dram["banks"])
    is_open = 1 - (1 - math.exp(-loads_of_bank)) / loads_of_bank
    return dram["precharge_cycles"] * is_open + dram["refresh_cycles"] ** 2 / (2 * every)


def _translation(found: Calibration, working_set_bytes: int) -> float:
    """Cycles that TLB misses add to a load over a working set in 2 MiB pages, by its share of pages
    that neither level holds, and of those that the second holds.
    """
    reach = found.tlb.get(BASE_PAGE)
    covered = found.entry_bytes.get(PMD_PAGE, PMD_PAGE)
    pages = working_set_bytes / covered

    def missing(level: Spread | None) -> float:
        return 0.0 if level is None else max(0.0, 1 - level.median / pages)

    first = missing(reach.first if reach else None)
    second = missing(reach.second if reach else None)
    hit = found.second_level_hit_cycles.get(BASE_PAGE)
    walk = found.walk_at(PMD_PAGE, working_set_bytes)
    return (first - second) * (hit.median if hit else 0.0) + second * (walk.median if walk else 0.0)


def _text(spread: Spread) -> str:
    return f"{spread.median:.4g} ({spread.low:.4g} to {spread.high:.4g})"
