"""Which mappings are to have 2 MiB pages: all large ones, or those for which a result advises them.

A mapping has another address in each run, and is often larger in production than under the tracer.
So a region of the result stands for the live mappings of its kind. An anonymous region stands for
the mappings whose size is nearer to its own, as a ratio, than to that of any other region.
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
"""The kinds of memory that MADV_COLLAPSE works on, on every kernel that has it."""
_MOST_RULES = 64
"""Limit of rules in the preload library (preload/settings.h)."""


@dataclass(frozen=True)
class Rule:
    """Whether mappings of one kind and size are to have 2 MiB pages."""

    kind: Kind
    wanted: bool = True
    least: int = 0
    """The smallest size of such a mapping in bytes."""
    most: int | None = None
    """The largest size of such a mapping in bytes; None for no limit."""

    def fits(self, kind: Kind, size: int) -> bool:
        """Whether the rule is for mappings of this kind and size in bytes."""
        return self.kind == kind and self.least <= size and (self.most is None or size <= self.most)

    def text(self) -> str:
        """The rule in the notation of the preload library: `heap`, `!anonymous=0-4194303`."""
        size = f"={self.least}-{'' if self.most is None else self.most}"
        is_for_all = self.least == 0 and self.most is None
        return f"{'' if self.wanted else '!'}{self.kind}{'' if is_for_all else size}"


@dataclass(frozen=True)
class Selection:
    """Rules, of which the first that fits a mapping decides, and the origin of the rules."""

    rules: tuple[Rule, ...]
    origin: str
    """The origin as a sentence without a full stop."""
    texts: tuple[str, ...] = ()
    """Files whose text is to have 2 MiB pages."""
    smaller: int | None = None
    """The page size in bytes between 4 KiB and 2 MiB that the program's data is to have."""
    programs: tuple[Path, ...] = ()
    """The executables of the run that the result describes."""

    def wants(self, kind: Kind, size: int) -> bool:
        """Whether a mapping of this kind and size in bytes is to have 2 MiB pages."""
        return next((rule.wanted for rule in self.rules if rule.fits(kind, size)), False)

    @property
    def is_empty(self) -> bool:
        """Whether no mapping is to have 2 MiB pages."""
        return not any(rule.wanted for rule in self.rules)

    @property
    def choice(self) -> str:
        """The choice and its reason, in a sentence without a full stop."""
        return f"{self.origin}: no data is to have huge pages" if self.is_empty else self.origin

    @property
    def is_whole(self) -> bool:
        """Whether all anonymous memory, the heap included, is to have 2 MiB pages."""
        own = [rule for rule in self.rules if rule.kind in ("heap", "anonymous")]
        return bool(own) and all(rule.wanted for rule in own)

    def text(self) -> str:
        """The rules in the notation of the preload library."""
        return ",".join(rule.text() for rule in self.rules[:_MOST_RULES])


ALL_LARGE = Selection(
    (Rule("heap"), Rule("anonymous")),
    "no result is given (--from), so all anonymous memory in whole 2 MiB ranges is selected",
)


def read_selection(name: str | None) -> Selection:
    """The selection by a result, a directory of `octavo run --out` or a file of its `--json`;
    without a name, all large anonymous mappings. Raises CannotRun.
    """
    if name is None:
        return ALL_LARGE
    document = read_run(name, needs=["advice"])
    return replace(selection_of(document["advice"], name), programs=programs_of_run(document))


def selection_of(advice: Sequence[Mapping[str, Any]], name: str) -> Selection:
    """The selection by the advice of a result; `name` is that of the result."""
    data = [item for item in advice if item.get("stream") == "data"]
    program = next((item for item in data if item["scope"] == "program"), None)
    otherwise = program is not None and _wants_huge(program)
    rules: list[Rule] = []
    for kind in _KINDS:
        regions = [item for item in data if item.get("region_kind") == kind]
        # A result has no advice about small regions, so these follow the program's data; shared
        # memory needs advice of its own.
        wanted_otherwise = otherwise and kind != "shared"
        sized = [
            (int(item.get("bytes") or 0), _is_wanted(item, wanted_otherwise)) for item in regions
        ]
        rules += _rules_by_size(kind, sized, otherwise=wanted_otherwise)
    size = 0 if program is None else _size(program)
    smaller = size if BASE_PAGE < size < PMD_PAGE else None
    return Selection(tuple(rules), f"as `{name}` advises", _texts(advice), smaller)


def _texts(advice: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """The files of the text regions that are to have huge pages: of all text regions if huge pages
    are advised for the program's code.
    """
    code = [item for item in advice if item.get("stream") == "fetch"]
    whole = any(item["scope"] == "program" and _wants_huge(item) for item in code)
    regions = [item for item in code if item.get("region_kind") == "text" and item.get("path")]
    wanted = (str(item["path"]) for item in regions if whole or _wants_huge(item))
    return tuple(dict.fromkeys(wanted))


def _wants_huge(item: Mapping[str, Any]) -> bool:
    """Whether the advised size that this processor has is at least 2 MiB."""
    return _size(item) >= PMD_PAGE


def _size(item: Mapping[str, Any]) -> int:
    return int(item.get("usable_page_size") or item.get("page_size") or 0)


def _is_wanted(region: Mapping[str, Any], is_program: bool) -> bool:
    """Whether a region is to have huge pages; `is_program` says whether the program's data are.

    Regions may gain enough together where none gains enough alone. A region that would grow too
    much is left out.
    """
    return _wants_huge(region) or (is_program and region.get("reason") != "memory")


def _rules_by_size(
    kind: Kind, regions: Iterable[tuple[int, bool]], *, otherwise: bool
) -> list[Rule]:
    """Rules that cover every size; adjacent sizes with the same answer are one rule.

    `regions` are sizes in bytes, and whether a region of that size is to have huge pages.
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
