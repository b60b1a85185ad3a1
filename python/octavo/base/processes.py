"""Processes as /proc lists them: descendants, names, memory, processor time, listening sockets.

Fields: proc(5) and its sections.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from octavo.base.units import KIB

_PROC = Path("/proc")
_PEAK = re.compile(rb"^VmHWM:\s+([0-9]+) kB$", re.MULTILINE)
_LISTENING = b"0A"
"""TCP_LISTEN in /proc/net/tcp."""
_MINOR_FAULTS = 7
"""Of the fields behind the name in /proc/PID/stat."""
_ACCEPTS = 0x10000
"""__SO_ACCEPTCON in the flags of /proc/net/unix."""


def descendants(pid: int) -> list[int]:
    """The children of a process, theirs, and so on; those that have ended and wait for their
    parent's attention are among them.
    """
    try:
        return _by_children(pid)
    except FileNotFoundError:
        # A kernel without CONFIG_PROC_CHILDREN, or a process that has just ended.
        return _by_parents(pid)


def _by_children(pid: int) -> list[int]:
    found: list[int] = []
    waiting = _children(pid)
    while waiting:
        child = waiting.pop()
        found.append(child)
        with suppress(FileNotFoundError, ProcessLookupError):
            waiting += _children(child)
    return found


def _children(pid: int) -> list[int]:
    found: list[int] = []
    for thread in (_PROC / f"{pid}/task").iterdir():
        found += map(int, (thread / "children").read_bytes().split())
    return found


def _by_parents(pid: int) -> list[int]:
    children = defaultdict(list)
    for entry in _PROC.iterdir():
        if entry.name.isdigit():
            fields = _fields(read_proc(int(entry.name), "stat"))
            if len(fields) > 1:
                children[int(fields[1])].append(int(entry.name))
    found: list[int] = []
    waiting = list(children[pid])
    while waiting:
        child = waiting.pop()
        found.append(child)
        waiting += children.get(child, [])
    return found


def name_of(pid: int) -> str:
    """The name of a process; empty where there is none."""
    return os.fsdecode(read_proc(pid, "comm")).rstrip("\n")


def is_kernel_thread(pid: int) -> bool:
    """Whether it has no memory of its own to change."""
    status = read_proc(pid, "status")
    return bool(status) and b"\nVmSize:" not in status and b"\nState:\tZ" not in status


def has_huge_pages_disabled(pid: int) -> bool:
    """Whether PR_SET_THP_DISABLE forbids it all huge pages."""
    return b"\nTHP_enabled:\t0" in read_proc(pid, "status")


def minor_faults(pid: int) -> int | None:
    """Page faults of a process that read nothing from a disk; None where there is no process."""
    fields = _fields(read_proc(pid, "stat"))
    return int(fields[_MINOR_FAULTS]) if fields else None


def is_alive(pid: int) -> bool:
    """Whether a process runs or waits; a zombie does not."""
    state = _fields(read_proc(pid, "stat"))[:1]
    return bool(state) and state[0] not in (b"Z", b"X")


def _fields(stat: bytes) -> list[bytes]:
    """The fields of /proc/PID/stat behind the name, which stands in parentheses and may hold any
    character: the state, the parent, and others.
    """
    return stat.rpartition(b")")[2].split()


def cpu_seconds(pid: int) -> float:
    """User and system time of a process and of its children that it has waited for; 0 where it has
    gone. The kernel counts in hundredths of a second.
    """
    times = _fields(read_proc(pid, "stat"))[11:15]
    return sum(map(int, times)) / os.sysconf("SC_CLK_TCK")


def peak_resident(pid: int) -> int:
    """The most bytes that a process had resident since it began its program; 0: not known."""
    match = _PEAK.search(read_proc(pid, "status"))
    return int(match[1]) * KIB if match else 0


def listens(pids: list[int]) -> bool:
    """Whether one of the processes accepts connections, by TCP or by a socket with a path."""
    for pid in pids:
        mine = set(_sockets(pid))
        if mine and not mine.isdisjoint(_accepting(pid)):
            return True
    return False


def _sockets(pid: int) -> Iterator[int]:
    """The inodes of its sockets."""
    with suppress(OSError):
        for entry in (_PROC / f"{pid}/fd").iterdir():
            with suppress(OSError):
                target = str(entry.readlink())
                if target.startswith("socket:["):
                    yield int(target[8:-1])


def _accepting(pid: int) -> Iterator[int]:
    """The inodes of the sockets that accept connections, in the process's network."""
    for name in ("tcp", "tcp6"):
        for line in read_proc(pid, f"net/{name}").splitlines()[1:]:
            fields = line.split()
            if fields[3] == _LISTENING:
                yield int(fields[9])
    for line in read_proc(pid, "net/unix").splitlines()[1:]:
        fields = line.split()
        if int(fields[3], 16) & _ACCEPTS:
            yield int(fields[6])


def read_proc(pid: int, name: str) -> bytes:
    """A file of /proc/PID; empty where it cannot be read or the process has ended."""
    try:
        return (_PROC / str(pid) / name).read_bytes()
    except OSError:
        return b""
