"""Classification of the misses of one TLB, by region and by function."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, astuple, dataclass
from operator import add
from typing import TYPE_CHECKING, Any, cast

from octavo._core import MAX_ENTRIES
from octavo.base.errors import UsageError
from octavo.base.text import quoted
from octavo.base.units import BASE_PAGE, MIB, format_bytes, page_size

if TYPE_CHECKING:
    from octavo._core import Classified as CoreClassified
    from octavo._core import MissClasses as CoreClasses

DEFAULT_SIZES = (BASE_PAGE, 2 * MIB)


@dataclass(frozen=True)
class Classified:
    """The TLB whose misses are classified, indexed by the low bits of the page number."""

    page_size: int
    larger: int
    """The page size to compare with."""
    sets: int
    ways: int

    @property
    def entries(self) -> int:
        """The number of entries."""
        return self.sets * self.ways

    def core(self) -> CoreClassified:
        """Plain data for the extension and the manifest."""
        return cast("CoreClassified", asdict(self))


def read_classified(tlb: str | None, sizes: str | None) -> Classified | None:
    """Parses a TLB, `64x4` or `64` (fully associative), and `4KiB+2MiB`. Raises UsageError."""
    if tlb is None:
        if sizes is not None:
            raise UsageError("--classify-sizes needs --classify, which names the TLB.")
        return None
    match = re.fullmatch(r"([0-9]{1,7})(?:x([0-9]{1,7}))?", tlb.strip())
    entries = int(match[1]) if match else 0
    ways = int(match[2]) if match and match[2] else entries
    sets = entries // ways if ways else 0
    if not 1 <= entries <= MAX_ENTRIES or sets * ways != entries or sets & (sets - 1):
        raise UsageError(
            f"--classify `{quoted(tlb)}`: give a TLB as ENTRIES or ENTRIESxWAYS, such as 64x4, of "
            f"up to {MAX_ENTRIES} entries and a power of two of sets."
        )
    if sizes is None:
        return Classified(*DEFAULT_SIZES, sets, ways)
    parts = sizes.split("+")
    if len(parts) != 2 or page_size(parts[0]) >= page_size(parts[1]):
        raise UsageError(
            f"--classify-sizes `{quoted(sizes)}`: give the TLB's page size and a larger one to "
            "compare it with, such as 4KiB+2MiB."
        )
    return Classified(page_size(parts[0]), page_size(parts[1]), sets, ways)


@dataclass(frozen=True)
class Classes:
    """Misses by class; the first three classes are all misses (Hill, 1987)."""

    compulsory: int = 0
    """Misses on pages that had never been touched."""
    capacity: int = 0
    """Other misses that a fully associative TLB with as many entries also has."""
    conflict: int = 0
    """Misses that a fully associative TLB with as many entries does not have."""
    page_size: int = 0
    """The misses, of any class, for which a TLB with the larger page size hits."""

    @property
    def misses(self) -> int:
        """All misses."""
        return self.compulsory + self.capacity + self.conflict

    def __add__(self, other: Classes) -> Classes:
        return Classes(*map(add, astuple(self), astuple(other)))

    def columns(self) -> dict[str, int]:
        """The columns of a row."""
        return {
            "misses": self.misses,
            "compulsory": self.compulsory,
            "capacity": self.capacity,
            "conflict": self.conflict,
            "page_size_misses": self.page_size,
        }


Place = tuple[str | None, ...]
"""A region as its name, kind and path; a function as its name and path."""


@dataclass(frozen=True)
class MissClasses:
    """One stream's misses in one TLB, in descending order of misses."""

    tlb: Classified
    regions: dict[Place, Classes]
    functions: dict[Place, Classes]
    lines: dict[Place, tuple[str, int]]
    """The source and line of a function's instruction with most misses, where that is known."""

    @property
    def total(self) -> Classes:
        """All misses."""
        return sum(self.regions.values(), Classes())

    def rows(self) -> Iterator[dict[str, Any]]:
        """The total, then regions and functions."""
        same = {
            "page_size": self.tlb.page_size,
            "larger": self.tlb.larger,
            "entries": self.tlb.entries,
            "ways": self.tlb.ways,
            "sets": self.tlb.sets,
        }
        yield {"component": "classes", **same, **self.total.columns()}
        for (name, kind, path), counts in self.regions.items():
            place = {"name": name, "kind": kind, "path": path}
            yield {"component": "classes.region", **same, **place, **counts.columns()}
        for key, counts in self.functions.items():
            name, path = key
            source, line = self.lines.get(key, (None, None))
            where: dict[str, Any] = {"name": name, "path": path, "source": source, "line": line}
            yield {"component": "classes.function", **same, **where, **counts.columns()}


def read_classes(counted: CoreClasses | None) -> MissClasses | None:
    """The classes that the extension has counted."""
    if counted is None:
        return None
    functions = counted["functions"]
    return MissClasses(
        tlb=Classified(counted["page_size"], counted["larger"], counted["sets"], counted["ways"]),
        regions=_added(
            ((region["name"], region["kind"], region["path"]), Classes(**region["counts"]))
            for region in counted["regions"]
        ),
        functions=_added(
            ((function["name"], function["path"]), Classes(**function["counts"]))
            for function in functions
        ),
        lines={
            (function["name"], function["path"]): (function["source"], function["line"])
            for function in functions
            if function["source"] is not None and function["line"] is not None
        },
    )


def sum_classes(several: Sequence[MissClasses | None]) -> MissClasses | None:
    """The sum over several processes."""
    present = [classes for classes in several if classes is not None]
    if not present:
        return None
    return MissClasses(
        tlb=present[0].tlb,
        regions=_added(pair for classes in present for pair in classes.regions.items()),
        functions=_added(pair for classes in present for pair in classes.functions.items()),
        lines={key: line for classes in reversed(present) for key, line in classes.lines.items()},
    )


def describe(tlb: Classified) -> str:
    """`64 entries, 4-way, 4 KiB pages`."""
    ways = "fully associative" if tlb.sets == 1 else f"{tlb.ways}-way"
    return f"{tlb.entries} entries, {ways}, {format_bytes(tlb.page_size)} pages"


def _added(pairs: Iterable[tuple[Place, Classes]]) -> dict[Place, Classes]:
    total: dict[Place, Classes] = {}
    for key, counts in pairs:
        total[key] = total.get(key, Classes()) + counts
    return dict(sorted(total.items(), key=lambda pair: -pair[1].misses))
