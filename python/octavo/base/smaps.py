"""The mappings of a process, from /proc/PID/smaps.

Source: proc_pid_smaps(5) and Documentation/filesystems/proc.rst of Linux. `Rss` leaves out pages of
hugetlbfs; no field says how much is in pages of 64 KiB or other sizes below 2 MiB.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field

from octavo.base.processes import read_proc
from octavo.base.units import KIB

_LINE = re.compile(
    rb"^(?:([0-9a-f]+)-([0-9a-f]+) (\S{4}) ([0-9a-f]+) (\S+) ([0-9]+) *(.*)"
    rb"|(Rss|Pss|AnonHugePages|ShmemPmdMapped|FilePmdMapped|Shared_Hugetlb|Private_Hugetlb):"
    rb" +([0-9]+) kB"
    rb"|VmFlags: (.*))$",
    re.MULTILINE,
)
_HUGE = {
    b"AnonHugePages": "anonymous",
    b"ShmemPmdMapped": "shared",
    b"FilePmdMapped": "file",
    b"Shared_Hugetlb": "hugetlb",
    b"Private_Hugetlb": "hugetlb",
}


@dataclass
class Mapping:
    """One mapping of a process."""

    name: str
    """A path, a name in brackets, or empty."""
    start: int
    end: int
    source: tuple[bytes, int, int] | None = None
    """Device, inode and offset of the mapped file, which other processes may map too; None for
    anonymous memory."""
    resident_bytes: int = 0
    """`Rss`."""
    proportional_bytes: int = 0
    """`Pss`: each resident page divided by the number of processes that map it."""
    huge_bytes: dict[str, int] = field(default_factory=dict)
    """Bytes in huge pages by kind (`anonymous`, `shared`, `file`, `hugetlb`); kinds without any are
    left out."""
    access: str = ""
    """Such as `rw-p`."""
    offset: int = 0
    """Offset of the start in the file."""
    flags: frozenset[str] = frozenset()
    """Of `VmFlags`: `hg` advised, `nh` huge pages forbidden, `ht` hugetlbfs."""


def parse_smaps(text: bytes) -> list[Mapping]:
    """The mappings in the text of a smaps file, by address; none for a process that has ended."""
    found: list[Mapping] = []
    for match in _LINE.finditer(text):
        start, end, access, offset, device, inode, name, key, kilobytes, flags = match.groups()
        if start is not None:
            at = int(offset, 16)
            mapping = Mapping(
                os.fsdecode(name),
                int(start, 16),
                int(end, 16),
                (device, int(inode), at) if inode != b"0" else None,
                access=access.decode(),
                offset=at,
            )
            found.append(mapping)
        elif not found:
            continue
        elif flags is not None:
            found[-1].flags = frozenset(flags.decode().split())
        elif kilobytes != b"0":
            _add(found[-1], key, int(kilobytes) * KIB)
    return found


def _add(mapping: Mapping, key: bytes, size: int) -> None:
    if key == b"Rss":
        mapping.resident_bytes = size
    elif key == b"Pss":
        mapping.proportional_bytes = size
    else:
        kind = _HUGE[key]
        mapping.huge_bytes[kind] = mapping.huge_bytes.get(kind, 0) + size


def mappings_of(pid: int) -> list[Mapping] | None:
    """The mappings of a process; None where they cannot be read or the process has ended."""
    text = read_proc(pid, "smaps")
    return parse_smaps(text) if text else None
