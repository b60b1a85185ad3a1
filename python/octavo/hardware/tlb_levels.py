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
    """The cost of a miss here that hits in the next level; None if the source states none."""
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
        """The last TLB level; its misses are the ones that walk the page table."""
        return len(self.levels)

    def core_levels(self) -> list[Level]:
        """The levels as the simulation kernels take them."""
        return [
            {"fetch_entries": level.fetch_entries, "data_entries": level.data_entries}
            for level in self.levels
        ]

    def resolved(self) -> dict[str, Any]:
        """Plain data, for the manifest."""
        return {**asdict(self), "levels": [asdict(level) for level in self.levels]}


def load_preset(name: str) -> Machine:
    """Reads a preset; an unknown name is answered with the names there are."""
    table = read_preset("levels", name, "TLB preset")
    levels = tuple(TlbLevel(**level) for level in table["level"])
    return Machine(table["name"], table["title"], table["source"], levels)


def single_level(fetch_entries: int, data_entries: int) -> Machine:
    """A machine given by hand: one level of so many entries."""
    return Machine(
        name="custom",
        title=f"{fetch_entries} entries for instructions and {data_entries} for data",
        source="given on the command line",
        levels=(TlbLevel(fetch_entries, data_entries),),
    )
