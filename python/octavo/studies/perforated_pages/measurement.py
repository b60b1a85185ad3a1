"""The counts and metrics of a design in one pass of the study of perforated pages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from octavo.simulation.model import Simulated
from octavo.studies.programs import simulated_of

BASE, BASELINE, PERFORATED = "base4k", "thp", "perforated"
"""Designs with 4 KiB pages alone, with 2 MiB and 4 KiB, and the paper's."""
Time = Literal["ipc", "ipc_added", "ipc_overlapped"]
"""IPC of the core, IPC with latencies added up, and that without misses of the caches."""
KINDS = ("4k", "2m", "perforated", "bitmap")
"""Kinds of entries of the second-level TLB (Figure 8)."""
METRICS = (
    *("ipc", "ipc_added", "ipc_overlapped", "mpki"),
    *("filter_share", "references_per_walk", "reads_per_walk"),
)
"""Metrics computed from the counts."""


@dataclass(frozen=True)
class Counted:
    """The counts of a design after the warm-up."""

    instructions: int
    cycles: float
    """Cycles of the out-of-order core; with additive timing, the same as `added_cycles`."""
    added_cycles: float
    """Cycles with all latencies added up."""
    cache_cycles: float
    """The part of `added_cycles` that cache misses of code and data cost."""
    first_misses: int
    """References for data that the first-level TLB missed."""
    walks: int
    """Page walks that end without a fault, including walks for holes."""
    walk_references: int
    """Entries of page tables that walks read, including the host's in a virtual machine."""
    bitmap_lookups: int
    bitmap_fetches: int
    """Look-ups of bitmaps that were read from memory."""
    filtered: int
    """References to perforated pages that the filter answered."""
    perforated_pages: int
    large_pages: int
    content: dict[str, int]
    """Entries of the second-level TLB at the end, by kind; empty where the design has no counts."""
    resident_bytes: int
    """Peak bytes of data."""
    page_table_bytes: int
    shadow_bytes: int
    bitmap_bytes: int
    gapped_pages: int = 0
    """Pages of 2 MiB made of sub-blocks, which GTSM alone has."""

    @property
    def ipc(self) -> float:
        """Instructions per cycle."""
        return self.instructions / self.cycles

    @property
    def ipc_added(self) -> float:
        """Instructions per cycle with all latencies added up."""
        return self.instructions / self.added_cycles

    @property
    def ipc_overlapped(self) -> float:
        """Instructions per cycle with latencies added up, without cache misses of code and data."""
        return self.instructions / (self.added_cycles - self.cache_cycles)

    @property
    def mpki(self) -> float:
        """TLB misses per 1000 instructions: misses that cause a walk."""
        return self.walks * 1000 / self.instructions

    @property
    def filter_share(self) -> float | None:
        """The share of look-ups of bitmaps that the filter saves."""
        lookups = self.filtered + self.bitmap_lookups
        return self.filtered / lookups if lookups else None

    @property
    def references_per_walk(self) -> float | None:
        """Memory references of an average walk."""
        return self.walk_references / self.walks if self.walks else None

    @property
    def reads_per_walk(self) -> float | None:
        """Memory references of an average walk, including lines of hole bitmaps."""
        reads = self.walk_references + self.bitmap_fetches
        return reads / self.walks if self.walks else None

    def record(self) -> dict[str, Any]:
        """Plain data: the counts and the metrics computed from them."""
        return {**asdict(self), **{name: getattr(self, name) for name in METRICS}}


def name_of(design: str) -> str:
    """A design's name without its settings."""
    return design.partition(":")[0]


def all_counted(result: Mapping[str, Any]) -> dict[str, Counted]:
    """Counts of a document of `octavo sim`, by design's name: of the process that did most. Designs
    that ran out of memory are left out.
    """
    return {name_of(name): _counted(one) for name, one in simulated_of(result).items()}


def _counted(one: Simulated) -> Counted:
    parts = one.added_cycles_by_part
    content = {kind: one.count("tlb.l2.content", f"entries_{kind}") for kind in KINDS}
    return Counted(
        instructions=one.instructions,
        cycles=one.cycles,
        added_cycles=one.added_cycles,
        cache_cycles=parts.get("fetches", 0.0) + parts.get("data", 0.0),
        first_misses=one.misses("l1d") or 0,
        walks=one.walks - one.count("walker", "faulted"),
        walk_references=one.count("walker", "references"),
        bitmap_lookups=one.count("tlb.l2.bitmap", "accesses"),
        bitmap_fetches=one.count("walker", "bitmap_references"),
        filtered=one.count("tlb.l2.perforated", "filtered"),
        perforated_pages=one.count("os.pages.perforated", "mapped"),
        large_pages=one.count("os.pages.2MiB", "mapped"),
        content=content if any(content.values()) else {},
        resident_bytes=one.count("os", "peak_resident_bytes"),
        page_table_bytes=one.count("os", "peak_page_table_bytes"),
        shadow_bytes=one.count("os", "shadow_bytes"),
        bitmap_bytes=one.count("os", "bitmap_bytes"),
        gapped_pages=one.count("os.pages.gapped", "mapped"),
    )


def gain(counted: Mapping[str, Counted], design: str, base: str, by: Time = "ipc") -> float | None:
    """How much faster one design is than another by one measure of time: 0.594 for 59.4%. None
    where one of the designs did not run to its end.
    """
    one, other = counted.get(design), counted.get(base)
    if one is None or other is None:
        return None
    ratio: float = getattr(one, by) / getattr(other, by)
    return ratio - 1


class Row:
    """The counts of every design on one memory."""

    designs: dict[str, Counted]

    @property
    def baseline(self) -> str:
        """The design that has 2 MiB and 4 KiB."""
        return BASELINE

    def gain(self, by: Time = "ipc") -> float | None:
        """How much faster perforated pages are than large and base pages."""
        return gain(self.designs, PERFORATED, self.baseline, by)

    def gains(self) -> dict[str, float | None]:
        """`gain` by each measure of time, with the keys of records."""
        times: tuple[Time, ...] = ("ipc", "ipc_added", "ipc_overlapped")
        return {by.replace("ipc", "gain"): self.gain(by) for by in times}

    def relative(self, design: str, base: str = BASE, by: Time = "ipc") -> float | None:
        """The IPC of one design over that of another."""
        more = gain(self.designs, design, base, by)
        return None if more is None else 1 + more

    def record(self) -> dict[str, Any]:
        """Plain data of all designs."""
        return {name: counted.record() for name, counted in self.designs.items()}
