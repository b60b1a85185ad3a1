"""The machine of simulations that a calibration describes: the preset of the processor with
measured values in place of assumed ones.
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
from octavo.calibration.loads import (
    FEWEST_SIZES,
    address_cycles,
    chased,
    read_at_random,
    spread_text,
    translation_cycles,
)
from octavo.hardware.machines import default_host_machine, machine
from octavo.hardware.processors import machine_for, this_processor
from octavo.snapshot import MemorySnapshot, captured

_LEVELS = {"L1": "l1d", "L2": "l2", "L3": "llc"}
"""Keys of a machine's caches, by the names of the measured levels."""
_ALL = 0.8
"""A last cache of which this machine has at least this share counts as its own."""
_LEAST_HITS, _MOST_HITS = 0.05, 0.9
"""Range of the last cache's hit rate in which its contents can be computed from the rate."""
_LINE_BYTES = 64
_FAST_READS = 16
"""Random reads at once that fill the caches before others are timed."""
_HOST_MEMORY = 1.5
"""The memory of a host, as a multiple of its guest's, so that the guest's fits into it."""


@dataclass(frozen=True)
class _Key:
    """A key of the machine with its value and the source of that."""

    name: str
    value: Any
    source: str


class MachineFile:
    """The file to which the machine is written, with a snapshot of its memory beside it."""

    def __init__(self, name: str | None, *, force: bool = False) -> None:
        """Checks that both files can be written. Without `force`, only the default files (`name` is
        None) may exist. Raises UsageError or CannotRun.
        """
        self.path = default_host_machine() if name is None else Path(name)
        may_exist, option = force or name is None, "--machine-out"
        self._file = NewFile(str(self.path), force=may_exist, option=option)
        beside = str(self.path.with_suffix(".octmem"))
        self._snapshot = NewFile(beside, force=may_exist, option=option)
        self.memory: MemorySnapshot | None = None
        self._write_memory: Callable[[Path], None] | None = None

    def take_snapshot(self) -> None:
        """Takes a snapshot of memory, to be called before a measurement, which uses much of it."""
        with suppress(OctavoError):
            self._write_memory, self.memory = captured(self._snapshot.name)

    def write(self, calibration: Calibration) -> None:
        """Writes each file whole, or raises CannotRun and leaves an existing file as it was. A file
        that does not fit on its disk is written elsewhere, and the message says where.
        """
        write_memory = self._write_memory
        in_turn(
            lambda: None if write_memory is None else self._snapshot.write(write_memory),
            lambda: self._file.write(machine_toml(calibration, memory=self.memory)),
        )


def machine_toml(
    found: Calibration, root: Path = Path("/"), memory: MemorySnapshot | None = None
) -> str:
    """The machine as a file for `octavo sim --machine`: each key with its measurement, or with the
    rule by which it follows from one; other keys are the preset's. Memory begins in the state of
    the snapshot `memory`, whose file is beside the machine's.
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
        # Times of the DRAM are in nanoseconds; the measured clock turns them into cycles.
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
    """The state of memory at the start, from a snapshot. In a guest, 4 KiB pages that are scattered
    over memory share no lines of the host's page table.
    """
    if memory is None:
        return
    free, every = memory.summary["free_bytes"], memory.summary["memory_bytes"]
    yield _Key("memory.fragmentation.kind", "snapshot", "taken before all was measured")
    source = f"{format_bytes(free)} of {format_bytes(every)} were free"
    yield _Key("memory.fragmentation.file", Path(memory.file).name, source)


def _core(found: Calibration, preset: Mapping[str, Any]) -> Iterator[_Key]:
    """Sizes of the core's structures where the measured ones differ from the preset's. A larger
    reorder buffer does not count, as an entry may hold two instructions of some kinds.
    """
    for name in ("reorder_buffer", "rename_registers", "load_queue", "store_queue"):
        measured = found.core.get(name)
        if measured is None or measured.low <= preset[name] <= measured.high:
            continue
        if name != "reorder_buffer" or measured.high < preset[name]:
            source = f"measured: {spread_text(measured)}"
            yield _Key(f"core.pipeline.{name}", round(measured.median), source)


def _walker(found: Calibration, preset: Mapping[str, Any]) -> Iterator[_Key]:
    """The number of walkers, and the window of instructions that walk at once, where these differ
    from the preset's.
    """
    walkers = found.core.get("walkers")
    if walkers is not None:
        count = max(1, round(walkers.median))
        if count != preset["walkers"]:
            yield _Key("walker.walkers", count, f"measured: {spread_text(walkers)}")
    window = found.core.get("reorder_buffer")
    if window is not None and window.high < preset["window_instructions"]:
        source = "as many as the reorder buffer's"
        yield _Key("walker.window_instructions", round(window.median), source)


def _outstanding(found: Calibration, preset: Mapping[str, int]) -> Iterator[_Key]:
    """The number of misses in flight by Little's law: the latency divided by the least time between
    loads of many chases, over the largest working set. For both, the least disturbed rounds count.
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
            yield _Key(
                "tlb.l2.hit_latency_cycles", round(hit.median), f"measured: {spread_text(hit)}"
            )
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
        yield _Key(f"tlb.{level}.{name}.entries", entries, f"measured: {spread_text(measured)}")


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
        yield _Key(
            "cache.others_fill_every_cycles", max(1, round(others.every_cycles)), others.source
        )
    if MEMORY in levels:
        bytes_ = levels[MEMORY]
        latency = spread_text(found.latency_cycles[bytes_])
        source = f"measured: {latency} over {format_bytes(bytes_)}, less walks"
        cycles = found.latency_cycles[bytes_].median - translation_cycles(found, bytes_)
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
        room = None
        if cache == caches[-1] and beyond is not None:
            room = others.room_bytes if others is not None else beyond.own_bytes
        yield from _size(cache, key, room)
        if cache.name in levels:
            bytes_ = levels[cache.name]
            served = chased(found, bytes_)
            if cache == caches[-1] and _exceeds_most(found, cache):
                served = read_at_random(found, bytes_)
            source = f"measured: {served.loads}, less TLB misses"
            yield _Key(f"cache.{key}.latency_cycles", max(1, round(served.cycles)), source)


@dataclass(frozen=True)
class _Others:
    """Other cores or guests that fill the last cache."""

    every_cycles: float
    """Cycles between two of their fills."""
    room_bytes: float
    """The part of the cache that they and this machine fill. The rest holds lines that others read
    again and again.
    """
    source: str


def _others(found: Calibration, beyond: _Beyond, last_bytes: int) -> _Others | None:
    """The fills of others, from random reads without faster reads before. None where slow reads
    keep nearly as much in the cache as fast ones: then the others' share does not depend on the
    program's speed, and the cache is modelled as a smaller one.

    A line hits if it is read again within the time T in which the room is filled once. So of N
    lines, each read of which takes t cycles, the share h = 1 - exp(-T / (t N)) hits. N h lines are
    the program's, and others have filled the rest of the room in T, a line every X cycles. Fast
    reads, one every f cycles, hold F lines, and others the rest of the room, F f / X.
    """
    held, turns = [], []
    for size, loads in sorted(found.lone_read_cycles.items()):
        walks = translation_cycles(found, size, beyond.most_walked_bytes)
        cycles = loads.median - beyond.computed_cycles - walks
        hits = (beyond.memory_cycles - cycles) / (beyond.memory_cycles - beyond.hit_cycles)
        if _LEAST_HITS <= hits <= _MOST_HITS:
            lines = size / _LINE_BYTES
            held.append(hits * lines)
            turns.append(-math.log(1 - hits) * loads.median * lines)
    fast, last = beyond.own_bytes / _LINE_BYTES, last_bytes / _LINE_BYTES
    if not held or median(held) >= _ALL * fast:
        return None
    slow = list(zip(held, turns, strict=True))
    every, room = [turn / max(last - lines, 1) for lines, turn in slow], last
    between = _fast_read_cycles(found)
    if between is not None:
        # The room has N h + T / X lines, and F + F f / X, which gives X.
        both = [(turn - fast * between) / (fast - lines) for lines, turn in slow if lines < fast]
        both = [cycles for cycles in both if cycles > 0]
        room_of_both = fast * (1 + between / median(both)) if both else last
        if room_of_both < last:
            every, room = both, room_of_both
    source = (
        f"measured: random reads hold {format_bytes(round(median(held) * _LINE_BYTES))} of "
        f"{format_bytes(last_bytes)} ({min(every):.3g} to {max(every):.3g} cycles by working set), "
        f"{format_bytes(round(beyond.own_bytes))} after faster ones"
    )
    return _Others(median(every), room * _LINE_BYTES, source)


def _fast_read_cycles(found: Calibration) -> float | None:
    """Cycles between two of the fast reads, which are as many at once as these chases."""
    if not found.parallel_load_cycles:
        return None
    by_chases = found.parallel_load_cycles[max(found.parallel_load_cycles)]
    return by_chases[_FAST_READS].median if _FAST_READS in by_chases else None


def _size(cache: DataCache, key: str, room_bytes: float | None) -> Iterator[_Key]:
    """Size and ways of a cache: as Linux reports them, or, for a last cache of which others keep a
    part, as many ways as are left, `room_bytes`.
    """
    size, ways, source = cache.bytes, cache.ways, "of /sys/devices/system/cpu"
    if ways is not None and room_bytes is not None and room_bytes < _ALL * size:
        own = max(1, round(room_bytes / size * ways))
        source = (
            f"measured: {format_bytes(round(room_bytes))} of {format_bytes(size)}; others keep the "
            "rest"
        )
        size, ways = size // ways * own, own
    yield _Key(f"cache.{key}.bytes", size, source)
    if ways is not None:
        yield _Key(f"cache.{key}.ways", ways, source)


@dataclass(frozen=True)
class _Beyond:
    """Loads over working sets that the last cache cannot hold."""

    own_bytes: float
    """Bytes of the cache that hold lines of this machine."""
    memory_cycles: float
    """Cycles of a load that no cache serves."""
    hit_cycles: float
    """Cycles of a load that the last cache serves."""
    computed_cycles: float
    """Cycles of the computation of an address, in a random read."""
    most_walked_bytes: int
    """Over larger working sets walks take as long as over this one."""
    loads: str
    """The loads over the largest working set, in words."""


def _loads(found: Calibration) -> Mapping[int, Spread]:
    """The loads that show a cache's share: random reads, which come back to a line at any time, as
    loads of programs do. Where these were not measured, the loads of chases, which come back to a
    line after all others.
    """
    return found.latency_cycles if address_cycles(found) is None else found.random_read_cycles


def _exceeds_most(found: Calibration, last: DataCache) -> bool:
    """Whether too few working sets are as large as the last cache for a fit."""
    return sum(size >= last.bytes for size in _loads(found)) < FEWEST_SIZES


def _beyond(found: Calibration, last: DataCache, root: Path) -> _Beyond | None:
    """The share of the last cache that this machine has, and the latency of memory. A cache that
    holds `C` of `W` bytes serves the share `C / W` of random loads over them, so the cycles of a
    load are linear in `1 / W`. They are fitted by least squares to working sets from the cache's
    size on. Where fewer than four are as large, but the largest leaves the cache, the fit begins at
    a smaller one: the smallest for which the fitted `C` is at most that working set.
    """
    levels = dict(cache_levels(found, root))
    if last.name not in levels:
        return None
    if not _exceeds_most(found, last):
        hit = chased(found, levels[last.name])
        return _fitted(found, last.bytes, hit.cycles, max(_loads(found)))
    if MEMORY in levels:
        hit = read_at_random(found, levels[last.name])
        for first in sorted(size for size in _loads(found) if size > levels[last.name]):
            beyond = _fitted(found, first, hit.cycles, _uncontended_bytes(found, root))
            if beyond is not None and beyond.own_bytes <= first:
                return beyond
    return None


def _fitted(found: Calibration, first: int, hit_cycles: float, most_walked: int) -> _Beyond | None:
    """The fit to working sets from `first` bytes on; None where there are fewer than four, and
    where larger ones do not take longer.
    """
    loads, address = _loads(found), address_cycles(found)
    used = sorted(size for size in loads if size >= first)
    if len(used) < FEWEST_SIZES:
        return None
    walks = (translation_cycles(found, size, most_walked) for size in used)
    data = [loads[size].median - cycles for size, cycles in zip(used, walks, strict=True)]
    slope, whole = linear_regression([1 / size for size in used], data)
    memory_cycles = whole - (address or 0.0)
    if memory_cycles <= hit_cycles or slope >= 0:
        return None
    own_bytes = -slope / (memory_cycles - hit_cycles)
    kind = "chases" if address is None else "random reads"
    words = f"{spread_text(loads[used[-1]])}, {kind} over {format_bytes(used[-1])}"
    return _Beyond(own_bytes, memory_cycles, hit_cycles, address or 0.0, most_walked, words)


def _uncontended_bytes(found: Calibration, root: Path) -> int:
    """The working set over which a walk takes as long as over larger ones of which all lines are
    used. Walks are measured with loads of one line for each entry of the TLB. Where these lines
    fill more than half of the cache before the last, the loads themselves displace the page table
    from it, and the measured walks are longer.
    """
    before_last = data_caches(root)[-2:][0]
    lines = before_last.bytes // 2 // _LINE_BYTES
    return lines * found.entry_bytes.get(PMD_PAGE, PMD_PAGE)


def _row_and_refreshes(dram: Mapping[str, int], load_cycles: float) -> float:
    """Mean cycles that a random load waits beyond a load from a closed row: for the end of a
    refresh, and for the closing of a row that an earlier load opened in its bank.
    """
    every = dram["refresh_every_cycles"]
    if not every:
        return dram["precharge_cycles"]
    loads_of_bank = every / max(load_cycles, 1) / (dram["channels"] * dram["banks"])
    is_open = 1 - (1 - math.exp(-loads_of_bank)) / loads_of_bank
    return dram["precharge_cycles"] * is_open + dram["refresh_cycles"] ** 2 / (2 * every)
