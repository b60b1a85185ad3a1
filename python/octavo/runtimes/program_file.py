"""Reads a program's file: its loader, and byte strings in the mapped parts.

Strings are searched because, unlike symbols, they survive stripping: every build has the name of
the variable that an allocator reads. Only parts that a program header maps are searched, as debug
information may contain names of other programs.
Layout: System V ABI, chapter 5, and /usr/include/elf.h.
"""

import mmap
import re
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from octavo.base.elf import read_target

_PT_LOAD = 1
_PT_INTERP = 3
_EXECUTABLE = 1
_ET_EXEC = 2
_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_PROGRAM_HEADER = struct.Struct("<IIQQQQQQ")
_MOST_HEADERS = 1000


@dataclass(frozen=True)
class ProgramFile:
    """The mapped parts of a 64-bit little-endian ELF file."""

    image: mmap.mmap
    loader: str | None
    """Path of the dynamic loader; None where the program is static."""
    loaded: tuple[tuple[int, int], ...]
    """File offsets of the mapped parts: start and end."""
    text: tuple[tuple[int, int, int], ...] = ()
    """File offsets of the executable parts: start, end and linked address."""
    is_fixed: bool = False
    """Whether it is mapped at the addresses for which it is linked (ET_EXEC)."""
    alignment: int = 1
    """The largest alignment in bytes of a mapped part."""
    needed_bytes: int = 0
    """The file offset at which the last mapped part ends; beyond the end of a truncated file."""

    def has(self, text: bytes) -> bool:
        """Whether a mapped part contains the bytes."""
        return self.find(text) is not None

    def find(self, text: bytes) -> int | None:
        """The file offset of the first occurrence of the bytes in a mapped part."""
        for start, end in self.loaded:
            at = self.image.find(text, start, end)
            if at >= 0:
                return at
        return None

    def around(self, text: bytes, pattern: bytes) -> bytes | None:
        """The match of `pattern` near the first occurrence of `text` with such a match."""
        for start, end in self.loaded:
            at = self.image.find(text, start, end)
            while at >= 0:
                near = self.image[max(start, at - 64) : min(end, at + len(text) + 64)]
                match = re.search(pattern, near)
                if match is not None:
                    return match[match.lastindex or 0]
                at = self.image.find(text, at + 1, end)
        return None


@contextmanager
def open_program(path: Path) -> Iterator[ProgramFile | None]:
    """Opens a program; None where it cannot be read or is no 64-bit x86-64 ELF file."""
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as image:
            yield _read(image)
    except (OSError, ValueError):  # an empty file cannot be mapped
        yield None


def _read(image: mmap.mmap) -> ProgramFile | None:
    target = read_target(image[:64])
    if target is None or not target.is_traceable or len(image) < _HEADER.size:
        return None
    header = _HEADER.unpack_from(image)
    offset, entry_bytes, count = header[5], header[9], min(header[10], _MOST_HEADERS)
    loaded, text, loader, alignment = [], [], None, 1
    needed_bytes = offset + count * entry_bytes
    for index in range(count):
        at = offset + index * entry_bytes
        if entry_bytes < _PROGRAM_HEADER.size or at + _PROGRAM_HEADER.size > len(image):
            break
        kind, rights, start, address, _, in_file, _, aligned = _PROGRAM_HEADER.unpack_from(
            image, at
        )
        end = min(start + in_file, len(image))
        if kind == _PT_LOAD:
            needed_bytes = max(needed_bytes, start + in_file)
        if kind == _PT_LOAD and start < end:
            loaded.append((start, end))
            alignment = max(alignment, aligned)
            if rights & _EXECUTABLE:
                text.append((start, end, address))
        elif kind == _PT_INTERP and start < end:
            loader = image[start:end].rstrip(b"\0").decode(errors="replace")
    is_fixed = header[1] == _ET_EXEC
    return ProgramFile(image, loader, tuple(loaded), tuple(text), is_fixed, alignment, needed_bytes)
