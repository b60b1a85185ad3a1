"""Anonymous memory of a process by the size of its pages, from its page table.

`smaps` knows 2 MiB pages only. The flags of the frames that the page table names show pages of 16
and 64 KiB; root alone may read them.
Reference: Documentation/admin-guide/mm/pagemap.rst of Linux.
"""

from __future__ import annotations

import os
import struct
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress

from octavo.base.huge_pages import PMD_PAGE
from octavo.base.smaps import Mapping
from octavo.base.units import BASE_PAGE

_PRESENT = 1 << 63
_FRAME = (1 << 55) - 1
_TAIL, _ANONYMOUS, _COMPOUND_HEAD, _HUGETLB = 1 << 16, 1 << 12, 1 << 15, 1 << 17
_ENTRY_BYTES = 8
_AT_ONCE = 1 << 16
"""Entries of the page table that are read at once."""


class Folios:
    """Reads page tables, if this user may (`is_readable`)."""

    def __init__(self) -> None:
        self._flags = -1
        with suppress(OSError):
            self._flags = os.open("/proc/kpageflags", os.O_RDONLY | os.O_CLOEXEC)

    @property
    def is_readable(self) -> bool:
        """Whether the flags of frames can be read."""
        return self._flags >= 0

    def smaller_bytes(self, pid: int, mappings: Iterable[Mapping]) -> Counter[int]:
        """Bytes in pages larger than 4 KiB and smaller than 2 MiB, by their size.

        For a folio that is partly mapped, the mapped part counts.
        """
        found: Counter[int] = Counter()
        try:
            pagemap = os.open(f"/proc/{pid}/pagemap", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return found
        try:
            for mapping in mappings:
                resident = mapping.resident_bytes - mapping.huge_bytes.get("anonymous", 0)
                if resident > 0 and mapping.end < 1 << 63:
                    with suppress(OSError):
                        self._count(found, _frames(pagemap, mapping))
        finally:
            os.close(pagemap)
        return found

    def _count(self, found: Counter[int], frames: Iterable[int]) -> None:
        """Adds the bytes of folios to `found`; `frames` are in order of virtual address."""
        length = 0
        for frame, flags in self._with_flags(frames):
            if flags & _TAIL and length:
                length += 1
                continue
            _add(found, length)
            is_head = flags & _COMPOUND_HEAD and flags & _ANONYMOUS and not flags & _HUGETLB
            length = 1 if is_head and frame >= 0 else 0
        _add(found, length)

    def _with_flags(self, frames: Iterable[int]) -> Iterator[tuple[int, int]]:
        """Each frame with its flags, which are read together for adjacent frames."""
        for first, count in _runs(frames):
            data = os.pread(self._flags, _ENTRY_BYTES * count, _ENTRY_BYTES * first)
            entries = struct.unpack(f"<{len(data) // _ENTRY_BYTES}Q", data)
            yield from enumerate(entries, first)
            # A folio ends where its frames do.
            yield -1, 0


def _add(found: Counter[int], pages: int) -> None:
    size = pages * BASE_PAGE
    if BASE_PAGE < size < PMD_PAGE:
        found[1 << (size.bit_length() - 1)] += size


def _frames(pagemap: int, mapping: Mapping) -> Iterator[int]:
    """The frames of a mapping's pages; -1 for a page that is not present."""
    first, end = mapping.start // BASE_PAGE, mapping.end // BASE_PAGE
    for start in range(first, end, _AT_ONCE):
        count = min(_AT_ONCE, end - start)
        data = os.pread(pagemap, _ENTRY_BYTES * count, _ENTRY_BYTES * start)
        for entry in struct.unpack(f"<{len(data) // _ENTRY_BYTES}Q", data):
            yield entry & _FRAME if entry & _PRESENT else -1


def _runs(frames: Iterable[int]) -> Iterator[tuple[int, int]]:
    """First frame and length of each run of adjacent frames."""
    first = length = 0
    for frame in frames:
        if length and frame == first + length:
            length += 1
            continue
        if length:
            yield first, length
        first, length = (frame, 1) if frame >= 0 else (0, 0)
    if length:
        yield first, length
