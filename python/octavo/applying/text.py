"""A program's text in huge pages: fills the page cache in pieces of 2 MiB before it starts.

`octavo.actions.file_text` describes the mechanism and its conditions.
"""

from __future__ import annotations

import mmap
import os
from dataclasses import dataclass
from pathlib import Path

from octavo.actions.file_text import why_not
from octavo.base.huge_pages import HugePages
from octavo.base.smaps import mappings_of
from octavo.base.units import BASE_PAGE, format_bytes


@dataclass(frozen=True)
class FileText:
    """A file whose text was to be in huge pages."""

    path: str
    huge_bytes: int = 0
    """Bytes of the file that the page cache holds in huge pages."""
    mapped_bytes: int = 0
    """Bytes of the file."""
    reason: str = ""
    """Why no huge page was obtained; empty where some were."""

    def text(self) -> str:
        """A sentence without a full stop."""
        name = Path(self.path).name
        if self.reason:
            return f"text of {name} stays in 4 KiB pages: {self.reason}"
        return (
            f"{format_bytes(self.huge_bytes)} of the {format_bytes(self.mapped_bytes)} of {name} "
            "are in the page cache in 2 MiB pages"
        )


def read_in_huge_pages(path: str, host: HugePages) -> FileText:
    """Reads a file into the page cache again, through a mapping with MADV_HUGEPAGE, and measures
    the huge pages that it got.
    """
    reason = why_not(path, host)
    if reason is not None:
        return FileText(path, reason=reason)
    try:
        with Path(path).open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            rights = mmap.PROT_READ | mmap.PROT_EXEC
            with mmap.mmap(file.fileno(), 0, mmap.MAP_SHARED, rights) as mapping:
                mapping.madvise(mmap.MADV_HUGEPAGE)
                for at in range(0, len(mapping), BASE_PAGE):
                    mapping[at]
                size, huge = len(mapping), _huge_bytes(os.fstat(file.fileno()).st_ino)
    except OSError as error:
        return FileText(path, reason=f"it cannot be read again ({error.strerror})")
    if huge == 0:
        reason = "the page cache has it in small pages, as while a program has it mapped"
        return FileText(path, 0, size, reason)
    return FileText(path, huge, size)


def _huge_bytes(inode: int) -> int:
    """Bytes in huge pages in this process's shared mapping of a file."""
    return sum(
        mapping.huge_bytes.get("file", 0)
        for mapping in mappings_of(os.getpid()) or ()
        if mapping.source is not None and mapping.source[1] == inode and mapping.access == "r-xs"
    )
