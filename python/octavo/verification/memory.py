"""The memory of several processes: resident bytes and bytes in huge pages, by region."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from octavo.base.smaps import Mapping

KINDS = ("anonymous", "shared", "file", "hugetlb")
"""Kinds of huge pages: private memory, shared memory, cached files, and the reserved pool."""

_NAMES = {"": "anonymous", "/anon_hugepage (deleted)": "anonymous, pages of hugetlbfs"}
"""Names for mappings without a name, or with one that only the kernel uses (`MAP_HUGETLB`)."""


@dataclass
class Region:
    """The mappings of one name in all processes; anonymous mappings are grouped by address."""

    name: str
    start: int
    """The lowest address, in any process."""
    resident_bytes: int
    """Bytes in memory, with hugetlb; each page is divided by its users, so that it counts once."""
    huge_bytes: int

    def record(self) -> dict[str, Any]:
        """Plain data for the JSON."""
        return {
            "region": self.name,
            "start": self.start,
            "resident_bytes": self.resident_bytes,
            "huge_bytes": self.huge_bytes,
        }


@dataclass(frozen=True)
class Memory:
    """The memory of several processes; pages that they share count once."""

    resident_bytes: int
    """Bytes in memory, with hugetlbfs."""
    huge_bytes: dict[str, int]
    """Bytes in huge pages, for every kind of KINDS."""
    regions: tuple[Region, ...]
    """In descending order of resident bytes."""

    @property
    def all_huge_bytes(self) -> int:
        """Bytes in huge pages of any kind."""
        return sum(self.huge_bytes.values())


def memory_of(processes: Iterable[Sequence[Mapping]]) -> Memory:
    """Sums the mappings of several processes."""
    proportional = 0
    huge = dict.fromkeys(KINDS, 0)
    shared: dict[tuple[str, str, object], int] = {}
    groups: defaultdict[tuple[str, int], list[Mapping]] = defaultdict(list)
    for mappings in processes:
        for mapping in _joined(mappings):
            proportional += mapping.proportional_bytes
            # Anonymous mappings are grouped by address.
            groups[mapping.name, 0 if mapping.name else mapping.start].append(mapping)
            for kind, size in mapping.huge_bytes.items():
                if kind == "anonymous" or mapping.source is None:
                    huge[kind] += size
                else:
                    place = (kind, mapping.name, mapping.source)
                    shared[place] = max(shared.get(place, 0), size)
    for (kind, _, _), size in shared.items():
        huge[kind] += size
    regions = sorted(map(_region, groups.values()), key=lambda region: -region.resident_bytes)
    return Memory(proportional + huge["hugetlb"], huge, tuple(regions))


def _joined(mappings: Sequence[Mapping]) -> list[Mapping]:
    """Joins adjacent anonymous mappings, which the kernel splits where their flags differ."""
    joined: list[Mapping] = []
    for mapping in mappings:
        last = joined[-1] if joined else None
        if (
            last is None
            or mapping.source is not None
            or (last.name, last.end, last.source) != (mapping.name, mapping.start, None)
        ):
            joined.append(mapping)
            continue
        huge = {
            kind: last.huge_bytes.get(kind, 0) + mapping.huge_bytes.get(kind, 0)
            for kind in {*last.huge_bytes, *mapping.huge_bytes}
        }
        joined[-1] = Mapping(
            last.name,
            last.start,
            mapping.end,
            None,
            last.resident_bytes + mapping.resident_bytes,
            last.proportional_bytes + mapping.proportional_bytes,
            huge,
        )
    return joined


def _region(members: Sequence[Mapping]) -> Region:
    """The region of mappings that belong together, in one process or in several."""
    anonymous = sum(member.huge_bytes.get("anonymous", 0) for member in members)
    others: dict[tuple[str, object], int] = {}
    for number, member in enumerate(members):
        for kind, size in member.huge_bytes.items():
            if kind != "anonymous":
                place = (kind, member.source or number)
                others[place] = max(others.get(place, 0), size)
    pool = sum(size for (kind, _), size in others.items() if kind == "hugetlb")
    return Region(
        _NAMES.get(members[0].name, members[0].name),
        min(member.start for member in members),
        sum(member.proportional_bytes for member in members) + pool,
        anonymous + sum(others.values()),
    )
