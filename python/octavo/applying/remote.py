"""Operations on the memory of another process: finding pages in use, and collapsing them.

process_madvise(2) with MADV_COLLAPSE needs Linux 6.1 and CAP_SYS_NICE; the pagemap needs the right
to trace the process (ptrace(2), "Ptrace access mode checking"). The search for pages in use, with
whether they are huge, is PAGEMAP_SCAN of Linux 6.7 (Documentation/admin-guide/mm/pagemap.rst).
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import select
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from octavo.base.errors import CannotRun
from octavo.base.huge_pages import PMD_PAGE
from octavo.base.linux import MADV_COLLAPSE
from octavo.base.units import BASE_PAGE

_SYS_PROCESS_MADVISE = 440
_SCAN_REQUEST = 0xC0606610
_SCAN = struct.Struct("<12Q")
_SCANNED = struct.Struct("<3Q")
_SCAN_PRESENT, _SCAN_HUGE = 1 << 3, 1 << 6
_ENTRY_BYTES = 8
_RANGE_PAGES = PMD_PAGE // BASE_PAGE
_PRESENT, _EXCLUSIVE = 0x80, 0x01
"""Bits 63 and 56 of an entry of the pagemap, in its last byte."""
_IS_PRESENT = bytes(int(byte & _PRESENT == _PRESENT) for byte in range(256))
_IS_EXCLUSIVE = bytes(
    int(byte & (_PRESENT | _EXCLUSIVE) == _PRESENT | _EXCLUSIVE) for byte in range(256)
)


class _Vector(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


def _load_syscall() -> Callable[..., int]:
    function = ctypes.CDLL(None, use_errno=True).syscall
    function.restype = ctypes.c_long
    return function


@contextmanager
def looking_at(pid: int) -> Iterator[None]:
    """Turns errors of reading the files of a process into CannotRun with the reason."""
    try:
        yield
    except (ProcessLookupError, FileNotFoundError):
        raise CannotRun(f"there is no process {pid}.") from None
    except PermissionError:
        raise CannotRun(
            f"the memory of process {pid} may not be read: run octavo as the user of the process, "
            "or as root (CAP_SYS_PTRACE)."
        ) from None


class RemoteProcess:
    """A process whose memory is to be changed. A pidfd identifies it, as its number may be reused.

    Raises CannotRun where there is no such process, or where its memory may not be read.
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._syscall = _load_syscall()
        self._pidfd = self._open(lambda: os.pidfd_open(pid))
        try:
            name = f"/proc/{pid}/pagemap"
            self._pagemap = self._open(lambda: os.open(name, os.O_RDONLY | os.O_CLOEXEC))
        except BaseException:
            os.close(self._pidfd)
            raise
        self._can_search = True

    def __enter__(self) -> RemoteProcess:
        return self

    def __exit__(self, *ended: object) -> None:
        os.close(self._pagemap)
        os.close(self._pidfd)

    def _open(self, opening: Callable[[], int]) -> int:
        try:
            with looking_at(self.pid):
                return opening()
        except OSError as error:
            raise CannotRun(f"cannot open process {self.pid}: {error.strerror}.") from None

    @property
    def has_ended(self) -> bool:
        """Whether the process has ended; True for a zombie."""
        return self.wait(0)

    def wait(self, seconds: float) -> bool:
        """Waits until the process has ended or the time is up; returns whether it has ended."""
        poller = select.poll()
        poller.register(self._pidfd, select.POLLIN)
        return bool(poller.poll(1000 * seconds))

    def find_used(self, start: int, end: int) -> tuple[int, bool] | None:
        """The address of the first page in use, and whether a 2 MiB page maps it; None if none is.

        A kernel before 6.7 cannot search: then the result is `start` and False.
        """
        if not self._can_search:
            return start, False
        page = ctypes.create_string_buffer(_SCANNED.size)
        address = ctypes.addressof(page)
        fields = (0, start, end, 0, address, 1, 1, 0, _SCAN_PRESENT, 0, _SCAN_PRESENT | _SCAN_HUGE)
        try:
            request = bytearray(_SCAN.pack(_SCAN.size, *fields))
            count = fcntl.ioctl(self._pagemap, _SCAN_REQUEST, request, True)
        except OSError as error:
            if error.errno != errno.ENOTTY:
                raise
            self._can_search = False
            return start, False
        if count == 0:
            return None
        found, _, categories = _SCANNED.unpack(page.raw)
        return found, bool(categories & _SCAN_HUGE)

    def pages_in_use(self, address: int) -> tuple[int, int]:
        """The numbers of 4 KiB pages of a 2 MiB range that are in memory, and that are in memory
        and shared with no other process.
        """
        offset = address // BASE_PAGE * _ENTRY_BYTES
        entries = os.pread(self._pagemap, _RANGE_PAGES * _ENTRY_BYTES, offset)
        last_bytes = entries[_ENTRY_BYTES - 1 :: _ENTRY_BYTES]
        return (
            last_bytes.translate(_IS_PRESENT).count(1),
            last_bytes.translate(_IS_EXCLUSIVE).count(1),
        )

    def collapse(self, address: int, count: int = 1) -> int:
        """Makes 2 MiB pages of `count` ranges from `address` on. Returns 0 if all ranges are huge
        pages afterwards, else an errno.
        """
        vector = _Vector(address, count * PMD_PAGE)
        done = self._syscall(
            _SYS_PROCESS_MADVISE,
            self._pidfd,
            ctypes.byref(vector),
            ctypes.c_size_t(1),
            MADV_COLLAPSE,
            0,
        )
        return 0 if done == count * PMD_PAGE else ctypes.get_errno()
