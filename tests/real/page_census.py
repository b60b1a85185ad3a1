"""The page sizes of a process: its folios by size, from its page table and the kernel's flags.

Needs root (/proc/kpageflags). Reference: Documentation/admin-guide/mm/pagemap.rst of Linux.
"""

import os
import struct
from collections import Counter
from pathlib import Path

_PAGE = 4096
_PRESENT = 1 << 63
_FRAME = (1 << 55) - 1
_HEAD, _TAIL, _ANON, _HUGETLB = 1 << 15, 1 << 16, 1 << 12, 1 << 17


def anonymous_bytes(pid: int) -> Counter[int]:
    """Bytes of a process's anonymous memory, including hugetlbfs, by the size of the folio."""
    found: Counter[int] = Counter()
    pagemap = os.open(f"/proc/{pid}/pagemap", os.O_RDONLY)
    flags_file = os.open("/proc/kpageflags", os.O_RDONLY)
    try:
        for start, end in _mappings(pid):
            _count(found, _flags(pagemap, flags_file, start, end))
    finally:
        os.close(pagemap)
        os.close(flags_file)
    return found


def rollup(pid: int) -> dict[str, int]:
    """/proc/PID/smaps_rollup in bytes: Rss, AnonHugePages, ShmemPmdMapped, Private_Hugetlb, …"""
    fields = {}
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]:
        name, value, _ = line.split()
        fields[name.rstrip(":")] = int(value) * 1024
    return fields


def _mappings(pid: int) -> list[tuple[int, int]]:
    ranges = []
    for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
        first, last = (int(part, 16) for part in line.split()[0].split("-"))
        if last < 1 << 63:
            ranges.append((first, last))
    return ranges


def _flags(pagemap: int, flags_file: int, start: int, end: int) -> list[tuple[int, int]]:
    """Frame and flags of each present page, in order of address."""
    entries: list[int] = []
    step = 1 << 16
    for first in range(start // _PAGE, end // _PAGE, step):
        count = min(step, end // _PAGE - first)
        data = os.pread(pagemap, 8 * count, 8 * first)
        entries += struct.unpack(f"<{len(data) // 8}Q", data)
    frames = [entry & _FRAME for entry in entries if entry & _PRESENT]
    pages: list[tuple[int, int]] = []
    at = 0
    while at < len(frames):
        run = 1
        while at + run < len(frames) and frames[at + run] == frames[at] + run:
            run += 1
        data = os.pread(flags_file, 8 * run, 8 * frames[at])
        pages += zip(frames[at : at + run], struct.unpack(f"<{len(data) // 8}Q", data), strict=True)
        at += run
    return pages


def _count(found: Counter[int], pages: list[tuple[int, int]]) -> None:
    """Adds the bytes of folios, which are a head page and the tail pages after it."""
    length, before = 0, -1
    for frame, flags in [*pages, (-2, 0)]:
        continues = flags & _TAIL and length and frame == before + 1
        if not continues and length:
            found[length * _PAGE] += length * _PAGE
            length = 0
        if flags & (_ANON | _HUGETLB):
            length += 1
            before = frame
