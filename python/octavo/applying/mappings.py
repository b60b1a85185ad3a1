"""The mappings of a running process, with the kinds that regions of `octavo run` have.

`preload/mappings.c` applies the same rules to writable mappings, and ignores others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from octavo.base import smaps
from octavo.base.huge_pages import PMD_PAGE
from octavo.base.units import KIB, MIB

Kind = Literal["heap", "anonymous", "shared", "stack", "thread-stack", "text", "data", "other"]

_SHARED_NAMES = ("/dev/zero", "/dev/shm/", "/memfd:", "/SYSV", "[anon_shmem")
_GUARD_BYTES = 64 * KIB
"""Upper bound of the guard below a thread's stack."""
_THREAD_STACK_BYTES = 16 * MIB
"""Upper bound of nearly all thread stacks."""


@dataclass
class Mapping(smaps.Mapping):
    """One mapping of a process, with its kind."""

    kind: Kind = "other"

    @property
    def bytes(self) -> int:
        """The length of the mapping."""
        return self.end - self.start

    @property
    def huge(self) -> int:
        """Bytes in 2 MiB pages, without hugetlbfs."""
        return sum(size for kind, size in self.huge_bytes.items() if kind != "hugetlb")

    @property
    def is_aligned(self) -> bool:
        """Whether 2 MiB pages of shared memory have aligned addresses; True for other kinds."""
        return self.kind != "shared" or (self.start - self.offset) % PMD_PAGE == 0

    def ranges(self) -> range:
        """The addresses of the whole aligned 2 MiB ranges in the mapping."""
        return range(-(-self.start // PMD_PAGE) * PMD_PAGE, self.end - PMD_PAGE + 1, PMD_PAGE)


def parse_mappings(text: bytes) -> list[Mapping]:
    """The mappings in the text of a smaps file, by address."""
    found: list[Mapping] = []
    for one in smaps.parse_smaps(text):
        found.append(Mapping(**vars(one), kind=_kind(one, found[-1] if found else None)))
    return found


def _kind(one: smaps.Mapping, before: Mapping | None) -> Kind:
    name, access = one.name, one.access
    if name.startswith(_SHARED_NAMES) and access[3] == "s":
        return "shared"
    if name == "[stack]":
        return "stack"
    if name == "[heap]":
        return "heap"
    if name and not name.startswith("["):
        return "text" if "x" in access else "data"
    if (name and not name.startswith("[anon:")) or not access.startswith("rw"):
        return "other"
    is_above_guard = (
        before is not None
        and before.end == one.start
        and before.access.startswith("--")
        and before.bytes <= _GUARD_BYTES
    )
    if is_above_guard and one.end - one.start <= _THREAD_STACK_BYTES:
        return "thread-stack"
    return "anonymous"
