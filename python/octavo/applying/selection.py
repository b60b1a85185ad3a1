"""Which mappings are to have 2 MiB pages: all large ones, or those that a result advises them for.

A mapping lies elsewhere in each run, and is often larger in production than under the tracer. So a
region of the result stands for the live mappings of its kind, anonymous ones for those whose size
is nearer to its own (as a ratio) than to that of any other region.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from octavo.analysis.stored_result import programs_of_run, read_run
from octavo.applying.mappings import Kind
from octavo.base.huge_pages import PMD_PAGE
from octavo.base.units import BASE_PAGE

_KINDS: tuple[Kind, ...] = ("heap", "anonymous", "shared")
"""The kinds of memory whose pages a collapse can make large on every kernel that knows it."""
_MOST_RULES = 64
"""The preload library reads no more (preload/settings.h)."""


@dataclass(frozen=True)
class Rule:
    """Whether mappings of one kind and size are to have 2 MiB pages."""

    kind: Kind
    wanted: bool = True
    least: int = 0
    """The smallest size of such a mapping in bytes."""
    most: int | None = None
    """The largest; None where there is no limit."""

    def fits(self, kind: Kind, size: int) -> bool:
        """Whether a mapping of this kind and size in bytes is one of them."""
        return self.kind == kind and self.least <= size and (self.most is None or size <= self.most)

    def text(self) -> str:
        """As the preload library reads it: `heap`, `!anonymous=0-4194303`."""
        size = f"={self.least}-{'' if self.most is None else self.most}"
        is_for_all = self.least == 0 and self.most is None
        return f"{'' if self.wanted else '!'}{self.kind}{'' if is_for_all else size}"


@dataclass(frozen=True)
class Selection:
    """The rules, of which the first that fits a mapping decides, and where they come from."""

    rules: tuple[Rule, ...]
    origin: str
    """A sentence without a full stop."""
    texts: tuple[str, ...] = ()
    """Files whose text is to have 2 MiB pages."""
    smaller: int | None = None
    """The page size in bytes between 4 KiB and 2 MiB that the program's data is to have."""
    programs: tuple[Path, ...] = ()
    """The executables that the result is of."""

    def wants(self, kind: Kind, size: int) -> bool:
        """Whether a mapping of this kind and size in bytes is to have 2 MiB pages."""
        return next((rule.wanted for rule in self.rules if rule.fits(kind, size)), False)

    @property
    def is_empty(self) -> bool:
        """Whether no mapping is to have them."""
        return not any(rule.wanted for rule in self.rules)

    @property
    def choice(self) -> str:
        """The choice and its reason, in a sentence without a full stop."""
        return f"{self.origin}: no data is to have huge pages" if self.is_empty else self.origin

    @property
    def is_whole(self) -> bool:
        """Whether all anonymous memory, that of the heap included, is to have them."""
        own = [rule for rule in self.rules if rule.kind in ("heap", "anonymous")]
        return bool(own) and all(rule.wanted for rule in own)

    def text(self) -> str:
        """The rules as the preload library reads them."""
        return ",".join(rule.text() for rule in self.rules[:_MOST_RULES])


ALL_LARGE = Selection(
    (Rule("heap"), Rule("anonymous")),
    "no result is given (--from), so all anonymous memory in whole 2 MiB ranges is meant",
)


def read_selection(name: str | None) -> Selection:
    """The selection that a result advises: a directory of `octavo run --out`, or the file of its
    `--json`. Without a name all large anonymous mappings. Raises CannotRun.
    """
    if name is None:
        return ALL_LARGE
    document = read_run(name, needs=["advice"])
    return replace(selection_of(document["advice"], name), programs=programs_of_run(document))


def selection_of(advice: Sequence[Mapping[str, Any]], name: str) -> Selection:
    """The selection that the advice of a result means; `name` is of the result."""
    data = [item for item in advice if item.get("stream") == "data"]
    program = next((item for item in data if item["scope"] == "program"), None)
    otherwise = program is not None and _wants_huge(program)
    rules: list[Rule] = []
    for kind in _KINDS:
        regions = [item for item in data if item.get("region_kind") == kind]
        # A result has no advice about small regions; shared memory is meant only where it has.
        wanted_otherwise = otherwise and kind != "shared"
        sized = [
            (int(item.get("bytes") or 0), _is_meant(item, wanted_otherwise)) for item in regions
        ]
        rules += _rules_by_size(kind, sized, otherwise=wanted_otherwise)
    size = 0 if program is None else _size(program)
    smaller = size if BASE_PAGE < size < PMD_PAGE else None
    return Selection(tuple(rules), f"as `{name}` advises", _texts(advice), smaller)


def _texts(advice: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """The files of large text regions that are to have huge pages, or all of them if the program's
    code is.
    """
    code = [item for item in advice if item.get("stream") == "fetch"]
    whole = any(item["scope"] == "program" and _wants_huge(item) for item in code)
    regions = [item for item in code if item.get("region_kind") == "text" and item.get("path")]
    wanted = (str(item["path"]) for item in regions if whole or _wants_huge(item))
    return tuple(dict.fromkeys(wanted))


def _wants_huge(item: Mapping[str, Any]) -> bool:
    """Whether the size to use is one that a collapse gives, by the advice for this processor."""
    return _size(item) >= PMD_PAGE


def _size(item: Mapping[str, Any]) -> int:
    return int(item.get("usable_page_size") or item.get("page_size") or 0)


def _is_meant(region: Mapping[str, Any], is_program: bool) -> bool:
    """Whether a region is to have huge pages, where all data of the program are or are not.

    Many regions may gain together what none gains alone; those that would grow too much stay.
    """
    return _wants_huge(region) or (is_program and region.get("reason") != "memory")


def _rules_by_size(
    kind: Kind, regions: Iterable[tuple[int, bool]], *, otherwise: bool
) -> list[Rule]:
    """Rules that leave no size out; neighbours that agree are one rule.

    `regions` are sizes in bytes, and whether they are meant.
    """
    sized = sorted(regions)
    if not sized:
        return [Rule(kind, otherwise)]
    if kind == "heap":
        return [Rule(kind, any(wanted for _, wanted in sized))]
    rules = [Rule(kind, sized[0][1])]
    for (smaller, _), (larger, wanted) in pairwise(sized):
        if wanted == rules[-1].wanted:
            continue
        border = math.isqrt(max(smaller, 1) * max(larger, 1))
        last = rules.pop()
        rules += [Rule(kind, last.wanted, last.least, border), Rule(kind, wanted, border + 1)]
    return rules
