"""Pages between 4 KiB and 2 MiB by process, from fake frames and from a real page table."""

from __future__ import annotations

import ctypes
import mmap
import os
import struct
from collections import Counter
from pathlib import Path

import pytest

from octavo.base.smaps import mappings_of
from octavo.base.units import KIB, MIB
from octavo.verification.folios import Folios

HEAD, TAIL, ANONYMOUS, HUGETLB = 1 << 15, 1 << 16, 1 << 12, 1 << 17


def count(frames: list[int], flags: dict[int, int], tmp_path: Path) -> dict[int, int]:
    """Counts frames that are given in order of address with their flags."""
    file = tmp_path / "kpageflags"
    last = max(flags, default=0)
    file.write_bytes(b"".join(struct.pack("<Q", flags.get(at, 0)) for at in range(last + 1)))
    reader = Folios()
    reader._flags = os.open(file, os.O_RDONLY)
    found: Counter[int] = Counter()
    reader._count(found, frames)
    os.close(reader._flags)
    return {size // KIB: number // KIB for size, number in found.items()}


def folio(first: int, pages: int, more: int = 0) -> dict[int, int]:
    flags = {first + at: TAIL | ANONYMOUS | more for at in range(pages)}
    flags[first] = HEAD | ANONYMOUS | more
    return flags


def test_folios_are_recognised(tmp_path: Path) -> None:
    flags = {**folio(16, 16), **folio(32, 16), **folio(64, 4), 80: ANONYMOUS, 81: ANONYMOUS}
    # Two of 64 KiB side by side, one of 16 KiB, and two pages that belong to none.
    frames = [*range(16, 48), -1, *range(64, 68), 80, 81]
    assert count(frames, flags, tmp_path) == {64: 128, 16: 16}


def test_frames_out_of_order_are_no_folio(tmp_path: Path) -> None:
    flags = folio(16, 16)
    # The page in the middle is another one now, as after a copy on write.
    frames = [*range(16, 24), 99, *range(25, 32)]
    assert count(frames, {**flags, 99: ANONYMOUS}, tmp_path) == {32: 32}
    assert count([17, 18, 19], flags, tmp_path) == {}


def test_other_large_pages_do_not_count(tmp_path: Path) -> None:
    cached = {frame: flags & ~ANONYMOUS for frame, flags in folio(16, 16).items()}
    assert count(list(range(16, 32)), cached, tmp_path) == {}
    assert count(list(range(16, 32)), folio(16, 16, HUGETLB), tmp_path) == {}
    assert count(list(range(512, 1024)), folio(512, 512), tmp_path) == {}


@pytest.mark.skipif(not Folios().is_readable, reason="only root reads the flags of frames")
def test_a_real_mapping_of_small_pages_has_no_larger_ones() -> None:
    area = mmap.mmap(-1, 4 * MIB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    area.madvise(mmap.MADV_NOHUGEPAGE)
    for place in range(0, 4 * MIB, 4 * KIB):
        area[place] = 1
    start = ctypes.addressof(ctypes.c_char.from_buffer(area))
    mappings = mappings_of(os.getpid())
    assert mappings is not None
    (own,) = (one for one in mappings if one.start <= start < one.end)
    assert own.resident_bytes >= 4 * MIB
    assert Folios().smaller_bytes(os.getpid(), [own]) == {}
