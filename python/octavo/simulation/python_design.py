"""Designs written in Python: `octavo.Design`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import octavo._core as _core
from octavo.base.errors import UsageError

METHODS = ("look_up", "fill", "invalidate", "flush")


class Design(ABC):
    """A second-level TLB written in Python, which `octavo.sim` simulates beside other designs.

    A subclass replaces the second-level TLB of the machine, between the first level and page walks.
    Each core of each process image has an object of its own, made without arguments. A page is the
    number of a base page of 4 KiB, a space the number of an address space.
    docs/developing/python-designs.md has a complete example.
    """

    name = ""
    """The name in results; if empty, the name of the class."""
    policy = "base"
    """The page-size policy with its settings, such as `thp` or `thp:max_ptes_none=0`."""

    @abstractmethod
    def look_up(self, space: int, page: int) -> int | None:
        """The size in bytes of the cached page that covers a base page; None for a miss."""

    @abstractmethod
    def fill(self, space: int, page: int, page_bytes: int) -> None:
        """Inserts the page of this size that covers a base page, after a walk."""

    @abstractmethod
    def invalidate(self, space: int, first: int, end: int) -> None:
        """Drops all pages that overlap the base pages from `first` to before `end`."""

    @abstractmethod
    def flush(self) -> None:
        """Drops all pages."""


def name_of(design: str | type[Design]) -> str:
    """The name of a design in results. Raises UsageError for anything that is no design."""
    if isinstance(design, str):
        return design
    if not isinstance(design, type) or not issubclass(design, Design):
        raise UsageError(
            f"{design!r} is not a design: give a name, or a subclass of octavo.Design."
        )
    name = design.name or design.__name__
    if not name.isidentifier() or name in dict(_core.designs()):
        raise UsageError(
            f"a design in Python cannot have the name `{name}`: give it a `name` that is an "
            "identifier and not that of a design of Octavo."
        )
    if not isinstance(design.policy, str):
        raise UsageError(f'{name}: the policy {design.policy!r} is not a string, such as "base".')
    missing = [method for method in METHODS if method in design.__abstractmethods__]
    if missing:
        raise UsageError(f"{name} has no {missing[0]}: a design needs {', '.join(METHODS)}.")
    return name


def for_core(design: str | type[Design]) -> Any:
    """The design in the form of the extension."""
    return design if isinstance(design, str) else (name_of(design), design.policy, design)
