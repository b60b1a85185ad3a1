"""The TLBs of historical machines with several page sizes, for `octavo curves --presets`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from octavo.base.units import format_bytes, page_sizes
from octavo.hardware.preset_files import read_preset


@dataclass(frozen=True)
class Tlb:
    """One TLB of a machine, for instructions and data, LRU."""

    name: str
    page_sizes: tuple[int, ...]
    """Page sizes in bytes; every entry can hold each of them."""
    entries: int
    ways: int
    """Equal to `entries` for a fully associative TLB."""

    @property
    def sets(self) -> int:
        """The number of sets; 1 for a fully associative TLB."""
        return self.entries // self.ways


@dataclass(frozen=True)
class TlbMachine:
    """A machine's TLBs, and the source of their figures."""

    name: str
    title: str
    source: str
    tlbs: tuple[Tlb, ...]

    def tlb_of(self, page_size: int) -> Tlb | None:
        """The TLB that holds pages of this size."""
        return next((tlb for tlb in self.tlbs if page_size in tlb.page_sizes), None)

    def resolved(self) -> dict[str, Any]:
        """Plain data, for the manifest."""
        tlbs = [{**asdict(tlb), "page_sizes": list(tlb.page_sizes)} for tlb in self.tlbs]
        return {**asdict(self), "tlbs": tlbs}


def load_tlb_presets(names: Iterable[str]) -> tuple[TlbMachine, ...]:
    """Reads presets. Raises UsageError for an unknown name, with the known names."""
    return tuple(map(_load, dict.fromkeys(names)))


def _load(name: str) -> TlbMachine:
    table = read_preset("tlbs", name, "preset")
    tlbs = tuple(
        Tlb(
            name=tlb["name"],
            page_sizes=tuple(page_sizes(tlb["page_sizes"])),
            entries=tlb["entries"],
            ways=tlb.get("ways", tlb["entries"]),
        )
        for tlb in table["tlb"]
    )
    return TlbMachine(table["name"], table["title"], table["source"], tlbs)


def pair_name(small: int, large: int) -> str:
    """`4 KiB + 32 KiB`."""
    return f"{format_bytes(small)} + {format_bytes(large)}"
