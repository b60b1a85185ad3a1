"""Huge pages for a program's text: its file read into the page cache through a huge mapping.

Where a file system has large folios, a read fault in a mapping with MADV_HUGEPAGE brings 2 MiB of
the file at a time, whatever the settings of transparent huge pages are. Every mapping of the file
then has huge pages where address and file offset are equal modulo 2 MiB.
Reference: do_sync_mmap_readahead in mm/filemap.c of Linux; which file systems, and since when, by
mapping_set_large_folios.
"""

import mmap
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from octavo.actions.model import Action
from octavo.base.huge_pages import PMD_PAGE, HugePages
from octavo.base.units import BASE_PAGE
from octavo.runtimes.program_file import open_program

TEXT = "text-of"
"""The first word of the name of `read_ahead`'s action."""
_LARGE_FOLIOS_SINCE = {"ext4": (6, 16), "xfs": (5, 18), "btrfs": (6, 17)}
_CODE = (
    "import mmap,os,sys; f=os.open(sys.argv[1],os.O_RDONLY); "
    "os.posix_fadvise(f,0,0,os.POSIX_FADV_DONTNEED); "
    "m=mmap.mmap(f,0,mmap.MAP_SHARED,mmap.PROT_READ|mmap.PROT_EXEC); "
    "m.madvise(mmap.MADV_HUGEPAGE); sum(m[::4096]); m.close(); os.close(f); "
    "os.execvp(sys.argv[2],sys.argv[2:])"
)


def read_ahead(path: str, host: HugePages, root: Path = Path("/")) -> Action | None:
    """The action that reads a program's file into huge pages of the page cache and then starts the
    program; None where that is impossible.
    """
    if why_not(path, host, root) is not None:
        return None
    return Action(
        "file",
        f"Reads {Path(path).name} in pieces of 2 MiB before the program starts, so that its text "
        "is mapped in huge pages; not while another program has the file mapped, and until "
        "memory runs short.",
        name=f"{TEXT} {Path(path).name}",
        page_size=PMD_PAGE,
        prefix=("python3", "-c", _CODE, path),
    )


def file_read_ahead(prefix: Sequence[str]) -> str | None:
    """The file that a `prefix` made by `read_ahead` reads; None for other words."""
    words = ("python3", "-c", _CODE)
    return prefix[len(words)] if tuple(prefix[:-1]) == words else None


def read_in_small_pages(path: str) -> None:
    """Drops a file from the page cache and reads it through a mapping without advice, which brings
    mostly small pages. Pages that a program has mapped stay as they are.
    """
    with suppress(OSError, ValueError), Path(path).open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        with mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapping:
            for at in range(0, len(mapping), BASE_PAGE):
                mapping[at]


def why_not(path: str, host: HugePages, root: Path = Path("/")) -> str | None:
    """Why a file's text cannot be in huge pages; None where it can."""
    why = without_large_folios(file_system(path, root) or "its file system", host)
    if why is not None:
        return why
    if not _fits(Path(path)):
        return (
            "no whole 2 MiB of it lie at addresses that are those of the file, modulo 2 MiB "
            "(link with -Wl,-z,max-page-size=0x200000)"
        )
    return None


def without_large_folios(system: str, host: HugePages) -> str | None:
    """Why a type of file system has no large folios here; None where it has."""
    since = _LARGE_FOLIOS_SINCE.get(system)
    if since is None:
        return f"{system} has no large folios"
    if host.kernel < since:
        return f"{system} has large folios since Linux {since[0]}.{since[1]}"
    return None


def _fits(path: Path) -> bool:
    """Whether a whole 2 MiB of the text has addresses equal to its file offsets modulo 2 MiB."""
    with open_program(path) as file:
        if file is None:
            return False
        # The kernel aligns a library of this size to 2 MiB; a program only if its segments ask for
        # such an alignment.
        is_placed = file.is_fixed or file.loader is None or file.alignment >= PMD_PAGE
        return is_placed and any(
            (address - start) % PMD_PAGE == 0
            and end // PMD_PAGE * PMD_PAGE - -(-start // PMD_PAGE) * PMD_PAGE >= PMD_PAGE
            for start, end, address in file.text
        )


def file_system(path: str, root: Path = Path("/")) -> str | None:
    """The type of the file system that holds a file; None where the file is not there."""
    try:
        device = Path(path).stat().st_dev
        lines = (root / "proc/self/mountinfo").read_text(errors="replace").splitlines()
    except OSError:
        return None
    wanted = f"{device >> 8 & 0xFFF}:{device & 0xFF | device >> 12 & 0xFFF00}"
    for line in lines:
        before, _, after = line.partition(" - ")
        if before.split()[2] == wanted:
            return after.split()[0]
    return None
