"""The cost of a page walk in cycles: measured by `octavo calibrate`, or estimated from a machine's
description.

A walk reads the page-table entries that miss in the walk caches: mostly one, from the cache that
holds it. So the estimate is the latency of the smallest cache of which the page table's last level
takes no more than half; its bounds are the next faster and the next slower cache. In a virtual
machine each of these reads also walks the host's page table, which is assumed to double the cost,
or to triple it at worst. The host's entries for pages that lie apart share no lines, so they are
assumed to come from the next slower cache, unless that is memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Literal

from octavo.base.host import cpu_field
from octavo.base.huge_pages import PMD_PAGE
from octavo.base.units import BASE_PAGE, byte_size, format_bytes
from octavo.calibration.file import Calibration, Spread, load_calibration
from octavo.hardware.modelled import ModelledMachine
from octavo.hardware.processors import machine_for, this_processor

Source = Literal["calibration", "preset"]
FAULT_CYCLES = {
    BASE_PAGE: Spread(1000, 2500, 5500),
    PMD_PAGE: Spread(150_000, 300_000, 600_000),
}
"""Estimated cycles of a page fault that gives a zeroed page, by page size, where they were not
measured. A Zen 5 in a virtual machine took 5,200 and 380,000."""
_CLOCK = Spread(2e9, 3.5e9, 5e9)
"""Cycles per second of a core whose clock was not measured."""
_ENTRY_BYTES = 8
_NESTED = (1.0, 2.0, 3.0)
"""Factors of the low, median and high estimate where page tables are nested."""
_CACHE_SHARE = 0.5
"""A cache counts as holding page tables, or data, that take at most this share of it."""

_OLD_DAYS = 2
"""The age in days from which the age of a calibration is shown."""
_LEAST_WALK_SHARE = 0.25
"""The least share of measured loads that walk, for the cost of walks to be seen in them."""


@dataclass(frozen=True)
class CacheLevel:
    """A cache, or memory, that serves walks and data."""

    name: str
    bytes: float
    latency_cycles: int


@dataclass(frozen=True)
class LoadThatWalks:
    """A load from a page that was not used recently, measured over a working set in both page
    sizes.
    """

    cycles: float
    """Cycles in 4 KiB pages, with its walk."""
    saved: float
    """Cycles that the larger pages save."""


@dataclass(frozen=True)
class Loads:
    """Loads that walk, measured over a working set."""

    independent: LoadThatWalks
    dependent: LoadThatWalks
    """Each load waits for the one before."""
    rare: LoadThatWalks | None = None
    """Each load waits for the one before, and for other work of `pause_cycles`."""
    pause_cycles: float = 0.0

    def after(self, cycles: float) -> LoadThatWalks:
        """Dependent loads with this many cycles of other work before each."""
        if self.rare is None:
            return self.dependent
        return _between(self.dependent, self.rare, cycles / self.pause_cycles)

    def that_take(self, cycles: float, of_each: float, after: float) -> LoadThatWalks:
        """Loads that take so many cycles: a part of them is independent, and the others have
        `after` cycles of other work before each. Loads that are quicker than the independent ones
        overlap more, and larger pages save the same share of them; at least half of the program's
        cycles, `of_each` for each load, is theirs then.
        """
        one, other = self.independent, self.after(after)
        share = max(cycles, of_each / 2) / one.cycles
        if cycles < one.cycles and share < 1:
            return LoadThatWalks(share * one.cycles, share * one.saved)
        if other.cycles <= one.cycles:
            return other
        return _between(one, other, (cycles - one.cycles) / (other.cycles - one.cycles))


def _between(one: LoadThatWalks, other: LoadThatWalks, part: float) -> LoadThatWalks:
    part = min(1.0, max(0.0, part))
    return LoadThatWalks(
        one.cycles + part * (other.cycles - one.cycles),
        one.saved + part * (other.saved - one.saved),
    )


@dataclass(frozen=True)
class Between:
    """Lines of other memory that a program reads between two walks and that miss in its core's own
    caches.
    """

    expected: float
    at_most: float


_DISPLACING_LINES = 64
"""Lines read between two of the loads that `octavo calibrate` calls displaced."""
UNKNOWN_BETWEEN = Between(0.0, _DISPLACING_LINES)


def _displaced_part(lines: float) -> float:
    """The share of the cost of _DISPLACING_LINES lines that `lines` lines have. On a Zen 5, the
    cycles of a walk that 2 MiB pages saved grew about with the logarithm of the lines: 116 with
    none, 274 with 8 and 363 with 64.
    """
    return math.log1p(lines) / math.log1p(_DISPLACING_LINES)


@dataclass(frozen=True)
class WalkCosts:
    """Costs on one machine."""

    source: Source
    """The source of the costs of walks."""
    path: str | None
    """The calibration file; None for estimated costs."""
    measured: Mapping[int, Spread]
    """Measured cycles of a walk, by page size in bytes; other sizes are estimated."""
    cycles_per_second: float | None
    """The measured clock."""
    clock: Spread
    """Cycles per second, measured or assumed."""
    caches: tuple[CacheLevel, ...]
    """Nearest first, memory last."""
    first_for_walks: int
    """The index of the nearest cache that serves walks."""
    overhead_cycles: int
    is_of_host: bool = False
    """Whether they are of the processor that this runs on, so that it can be calibrated."""
    is_nested: bool = False
    """Whether this is a virtual machine."""
    entry_bytes: Mapping[int, int] = field(default_factory=dict)
    """Bytes that one TLB entry was measured to cover, by page size: less than the page where the
    host of a virtual machine has smaller pages."""

    counts_faults: bool = True
    """Whether page faults are a part of the gains, for the sentence that names the costs."""
    calibration: Calibration | None = None
    """The calibration that the costs of walks come from; it has them by memory in use, too."""

    def covers(self, size: int) -> bool:
        """Whether one TLB entry covers a page of `size`; True where that was not measured."""
        return self.entry_bytes.get(size, size) >= size

    def walk(self, size: int, touched_bytes: int) -> Spread:
        """Cycles of a walk to a page of `size` where `touched_bytes` are mapped in such pages."""
        if size in self.measured:
            found = self.calibration
            nearest = None if found is None else found.walk_at(size, touched_bytes)
            return self.measured[size] if nearest is None else nearest
        at = self._level(touched_bytes / size * _ENTRY_BYTES, self.first_for_walks)
        near, far = max(at - 1, self.first_for_walks), min(at + 1, len(self.caches) - 1)
        low, median, high = (
            float(self.caches[level].latency_cycles + self.overhead_cycles)
            for level in (near, at, far)
        )
        if not self.is_nested:
            return Spread(low, median, high)
        if far < len(self.caches) - 1:
            # The factor of nested tables doubles the mean of a guest's and a host's entry.
            median = (median + high) / 2
        return Spread(
            *(factor * read for factor, read in zip(_NESTED, (low, median, high), strict=True))
        )

    def faults(self, size: int, count: int, again: int = 0) -> Spread | None:
        """Cycles of `count` page faults that each give a page of `size`: measured, or estimated
        where not both sizes were measured; None for other sizes. `again` of the faults get memory
        that the program gave back before.

        Where the host reclaims free memory, `low` assumes that no fault gets reclaimed memory, and
        `high` that all faults but the `again` ones do.
        """
        each = (self._measured_faults or FAULT_CYCLES).get(size)
        if each is None:
            return None
        returned = None if self.calibration is None else self.returned_fault(size)
        if self.calibration is None or returned is None:
            return Spread(count * each.low, count * each.median, count * each.high)
        kept = min(count, again + self.calibration.kept_free_bytes.get(size, 0) // size)
        return Spread(
            count * each.low,
            kept * each.median + (count - kept) * returned.median,
            # The measured spread includes faults on returned memory.
            again * each.median + (count - again) * max(each.high, returned.high),
        )

    def seconds_of_huge_pages(self, count: int) -> float:
        """Seconds of the page faults that give `count` pages of 2 MiB."""
        cycles = self.faults(PMD_PAGE, count)
        return 0.0 if cycles is None else cycles.median / self.clock.median

    def returned_fault(self, size: int) -> Spread | None:
        """Cycles of a page fault that gives memory which the host of this virtual machine had
        reclaimed while it was free; None where the calibration saw no reclaim.
        """
        found = self.calibration
        return found.returned_fault_cycles.get(size) if found and self._measured_faults else None

    def without_returned_memory(self) -> WalkCosts:
        """The costs where all memory was used shortly before."""
        found = self.calibration
        if found is None:
            return self
        return replace(self, calibration=replace(found, returned_fault_cycles={}))

    @property
    def _measured_faults(self) -> Mapping[int, Spread]:
        found = {} if self.calibration is None else self.calibration.fault_cycles
        return found if found.keys() >= FAULT_CYCLES.keys() else {}

    def loads(self, size: int, touched_bytes: int, lines: Between) -> list[Loads] | None:
        """Loads that walk where `touched_bytes` are in use, for the low, the expected and the high
        estimate; None where they were not measured.
        """
        found = self.calibration
        if found is None:
            return None
        base, large = found.load_at(BASE_PAGE, touched_bytes), found.load_at(size, touched_bytes)
        share = found.walk_share(touched_bytes)
        if base is None or large is None or not share or share < _LEAST_WALK_SHARE:
            return None

        def of_walks(one: float, other: float) -> LoadThatWalks:
            less = max(0.0, one - other) / share
            return LoadThatWalks(other + less, less)

        independent = of_walks(base.low, large.low)
        dependent = of_walks(base.median, large.median)
        small, huge = (found.paced_load_at(one, touched_bytes) for one in (BASE_PAGE, size))
        if small is None or huge is None or not found.pause_cycles:
            return 3 * [Loads(independent, dependent)]
        low, expected, high = (
            of_walks(small.low, huge.high),
            of_walks(small.median, huge.median),
            of_walks(small.high, huge.low),
        )
        small, huge = (found.displaced_load_at(one, touched_bytes) for one in (BASE_PAGE, size))
        if small is not None and huge is not None:
            displaced = of_walks(small.median, huge.median)
            farthest = _between(expected, displaced, _displaced_part(lines.at_most))
            high = max(high, farthest, key=lambda load: load.saved)
            expected = _between(expected, displaced, _displaced_part(lines.expected))
        return [
            Loads(independent, dependent, rare, found.pause_cycles)
            for rare in (low, expected, high)
        ]

    def data(self, touched_bytes: int) -> Spread:
        """Cycles of the load of data after a walk. The page was not used recently, so the data come
        from the level of the caches that holds `touched_bytes`.
        """
        at = self._level(touched_bytes, 1)
        near, far = max(at - 1, 0), min(at + 1, len(self.caches) - 1)
        low, median, high = (float(self.caches[level].latency_cycles) for level in (near, at, far))
        return Spread(low, median, high)

    def _level(self, needed_bytes: float, first: int) -> int:
        fits = (
            at
            for at in range(first, len(self.caches))
            if needed_bytes <= _CACHE_SHARE * self.caches[at].bytes
        )
        return next(fits, len(self.caches) - 1)

    def record(self) -> dict[str, Any]:
        """Plain data for the JSON."""
        return {
            "source": self.source,
            "path": self.path,
            "measured_at": None if self.calibration is None else self.calibration.host.measured_at,
            "cycles_per_second": self.cycles_per_second,
            "is_nested": self.is_nested,
            "entry_bytes": {
                format_bytes(size): covered for size, covered in self.entry_bytes.items()
            },
            "measured": {format_bytes(size): asdict(cost) for size, cost in self.measured.items()},
        }

    def label(self) -> str:
        """The source of the costs, in words for a sentence."""
        if self.source == "calibration":
            kind = "walk and page fault" if self._measured_faults and self.counts_faults else "walk"
            return f"{kind} cost measured on this machine by octavo calibrate{self._age()}"
        where = " for a virtual machine" if self.is_nested else ""
        walks = f"walk cost estimated from the machine's cache latencies{where}"
        return f"{walks}, page fault cost assumed" if self.counts_faults else walks

    def _age(self) -> str:
        """The days since the measurement, from _OLD_DAYS on. In a virtual machine the cost of walks
        changes from hour to hour with its neighbours.
        """
        if self.calibration is None:
            return ""
        with suppress(ValueError, TypeError):
            measured = datetime.fromisoformat(
                self.calibration.host.measured_at.replace("Z", "+00:00")
            )
            days = (datetime.now(timezone.utc) - measured).days
            if days >= _OLD_DAYS:
                return f" {days} days ago"
        return ""


def walk_costs(
    modelled: ModelledMachine,
    path: Path | None = None,
    note: Callable[[str], None] | None = None,
) -> WalkCosts:
    """The costs on a machine; measured ones only where it is this processor's.

    `path` is that of a calibration, by default where `octavo calibrate` writes it; `note` is called
    with a caution about it. Raises OctavoError for a calibration that cannot be read.
    """
    config = modelled.config
    caches = config["cache"]
    levels = [
        CacheLevel(name, byte_size(caches[name]["bytes"]), caches[name]["latency_cycles"])
        for name in ("l1d", "l2", "llc")
        if caches.get(name) is not None
    ]
    levels.append(CacheLevel("memory", float("inf"), caches["memory_latency_cycles"]))
    entry = config["walker"]["pte_entry"]
    first = next((at for at, level in enumerate(levels) if level.name == entry), 0)
    costs = WalkCosts(
        source="preset",
        path=None,
        measured={},
        cycles_per_second=None,
        clock=_CLOCK,
        caches=tuple(levels),
        first_for_walks=first,
        overhead_cycles=config["walker"]["overhead_cycles"],
    )
    if modelled.name != machine_for(this_processor()).machine:
        return costs
    is_nested = "hypervisor" in (cpu_field("flags") or "").split()
    costs = replace(costs, is_of_host=True, is_nested=is_nested)
    found = load_calibration(path, note=note)
    return costs if found is None or not found.walk_cycles else _calibrated(costs, found)


def _calibrated(costs: WalkCosts, found: Calibration) -> WalkCosts:
    return replace(
        costs,
        source="calibration",
        path=None if found.path is None else str(found.path),
        measured=found.walk_cycles,
        cycles_per_second=found.cycles_per_second,
        clock=Spread(*3 * [found.cycles_per_second]),
        entry_bytes=found.entry_bytes,
        calibration=found,
    )
