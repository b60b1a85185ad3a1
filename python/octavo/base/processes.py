"""Processes as /proc lists them: descendants, names, memory, processor time, listening sockets.

Fields: proc(5) and its sections.
"""

from __future__ import annotations

import os
import re
import time
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
"""Its index among the fields behind the name in /proc/PID/stat."""
_ACCEPTS = 0x10000
"""__SO_ACCEPTCON in the flags of /proc/net/unix."""
_CPUCLOCK_SCHED = 2
"""The kind of clock that clock_getcpuclockid(3) puts below the process number."""
_MOST_READINGS = 10
"""Limit of readings of the children of a process whose threads end meanwhile."""


def descendants(pid: int) -> list[int]:
    """The children of a process, their children, and so on, zombies among them."""
    # Threads have the file `children` where the kernel was built with CONFIG_PROC_CHILDREN.
    children_of = _children if (_PROC / "thread-self/children").exists() else _by_parent().get
    found: list[int] = []
    waiting = list(children_of(pid) or ())
    while waiting:
        child = waiting.pop()
        found.append(child)
        waiting += children_of(child) or ()
    return found


def ancestors(pid: int) -> set[int]:
    """The process, its parent, the parent's parent, and so on."""
    found: set[int] = set()
    while pid > 1 and pid not in found:
        found.add(pid)
        fields = _fields(read_proc(pid, "stat"))
        pid = int(fields[1]) if len(fields) > 1 else 0
    return found


def _children(pid: int) -> list[int]:
    """The children of all threads; none where the process has ended.

    A thread that ends leaves its children to another, which may have been read before: then all
    are read again.
    """
    found: set[int] = set()
    for _ in range(_MOST_READINGS):
        all_read = True
        with suppress(FileNotFoundError, ProcessLookupError):
            for thread in (_PROC / f"{pid}/task").iterdir():
                try:
                    found.update(map(int, (thread / "children").read_bytes().split()))
                except (FileNotFoundError, ProcessLookupError):
                    all_read = False
        if all_read:
            break
    return sorted(found)


def _by_parent() -> dict[int, list[int]]:
    """All processes by their parents."""
    children = defaultdict(list)
    for entry in _PROC.iterdir():
        if entry.name.isdigit():
            fields = _fields(read_proc(int(entry.name), "stat"))
            if len(fields) > 1:
                children[int(fields[1])].append(int(entry.name))
    return children


def name_of(pid: int) -> str:
    """The name of a process; empty where there is none."""
    return os.fsdecode(read_proc(pid, "comm")).rstrip("\n")


def is_kernel_thread(pid: int) -> bool:
    """Whether it is a kernel thread, which has no address space of its own."""
    status = read_proc(pid, "status")
    return bool(status) and b"\nVmSize:" not in status and b"\nState:\tZ" not in status


def has_huge_pages_disabled(pid: int) -> bool:
    """Whether PR_SET_THP_DISABLE keeps all huge pages from the process."""
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
    """Seconds of user and system time of a process (exact) and of its children that it has waited
    for (in steps of a clock tick); 0 where the process has ended.
    """
    times = _fields(read_proc(pid, "stat"))[11:15]
    try:
        own = time.clock_gettime(~pid << 3 | _CPUCLOCK_SCHED)
    except OSError:
        return 0.0
    return own + sum(map(int, times[2:])) / os.sysconf("SC_CLK_TCK")


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
    """The inodes of the sockets of a process."""
    with suppress(OSError):
        for entry in (_PROC / f"{pid}/fd").iterdir():
            with suppress(OSError):
                target = str(entry.readlink())
                if target.startswith("socket:["):
                    yield int(target[8:-1])


def _accepting(pid: int) -> Iterator[int]:
    """The inodes of the sockets that accept connections, in the process's network namespace."""
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
