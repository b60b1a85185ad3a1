"""The machine that a study assumes: its TLB levels, read from a preset or given by hand."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from octavo.hardware.preset_files import read_preset

if TYPE_CHECKING:
    from octavo._core import Level

DEFAULT_PRESET = "lru64"


@dataclass(frozen=True)
class TlbLevel:
    """One TLB level, separate for instructions and data; fully associative, LRU."""

    fetch_entries: int
    data_entries: int
    fetch_miss_cycles: int | None = None
    """Cycles of a miss in this level that hits in the next one; None if the source gives none."""
    data_miss_cycles: int | None = None

    def entries(self, stream: str) -> int:
        """Entries for `fetch` or `data`."""
        return self.fetch_entries if stream == "fetch" else self.data_entries

    def miss_cycles(self, stream: str) -> int | None:
        """Cycles that a miss adds, for `fetch` or `data`."""
        return self.fetch_miss_cycles if stream == "fetch" else self.data_miss_cycles


@dataclass(frozen=True)
class Machine:
    """A named machine and the source that its figures come from."""

    name: str
    title: str
    source: str
    levels: tuple[TlbLevel, ...]

    @property
    def depth(self) -> int:
        """The number of TLB levels; misses in the last one walk the page table."""
        return len(self.levels)

    def core_levels(self) -> list[Level]:
        """The levels in the form of the extension."""
        return [
            {"fetch_entries": level.fetch_entries, "data_entries": level.data_entries}
            for level in self.levels
        ]

    def resolved(self) -> dict[str, Any]:
        """Plain data, for the manifest."""
        return {**asdict(self), "levels": [asdict(level) for level in self.levels]}


def load_preset(name: str) -> Machine:
    """Reads a preset. Raises UsageError for an unknown name, with the known names."""
    table = read_preset("levels", name, "TLB preset")
    levels = tuple(TlbLevel(**level) for level in table["level"])
    return Machine(table["name"], table["title"], table["source"], levels)


def single_level(fetch_entries: int, data_entries: int) -> Machine:
    """A machine with one level of these numbers of entries."""
    return Machine(
        name="custom",
        title=f"{fetch_entries} entries for instructions and {data_entries} for data",
        source="given on the command line",
        levels=(TlbLevel(fetch_entries, data_entries),),
    )
