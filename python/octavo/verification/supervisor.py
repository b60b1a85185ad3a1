"""One native run: a supervisor process starts the program, watches its memory and ends it.

The supervisor is a fork of Octavo with a session of its own, and the subreaper of the program's
processes, so that its descendants are exactly the program's processes, daemons included. It reads
their `smaps`, while Octavo's own process only waits for the program, so that reading does not
disturb times. When Octavo is killed, the supervisor ends the program.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NoReturn

from octavo.base.errors import CannotRun
from octavo.base.host import read_setting
from octavo.base.huge_pages import PMD_PAGE, THP, sizes_in
from octavo.base.linux import PR_SET_CHILD_SUBREAPER, PR_SET_THP_DISABLE
from octavo.base.processes import (
    descendants,
    has_huge_pages_disabled,
    is_alive,
    peak_resident,
)
from octavo.base.smaps import Mapping as MemoryMapping
from octavo.base.smaps import mappings_of
from octavo.base.units import KIB
from octavo.verification.folios import Folios
from octavo.verification.memory import KINDS, Memory, Region, memory_of

TICK_SECONDS = 0.2
"""Time between two checks for an interrupt while waiting."""
ABORT_SECONDS = 3.0
"""Time limit for a program to end after an interrupt."""

_LEAST_INTERVAL_SECONDS = 0.005
_TIMED_COST = 100
"""In a timed run, reading memory takes at most 1/100 of the time."""
_CLOSE_COST = 4
"""In a run that is not timed, at most 1/4."""
_REGIONS = 8
_POLL_SECONDS = 0.005

Tick = Callable[[], None]
"""Called during a wait; raises to end the wait."""


@dataclass(frozen=True)
class Launch:
    """The parameters of a program's start."""

    argv: Sequence[str]
    environment: Mapping[str, str]
    thp_disable: int | None = None
    """Flags of prctl(PR_SET_THP_DISABLE), or None: no such call."""
    output: int | None = None
    """The descriptor for its standard output and error; None: those of Octavo."""
    is_timed: bool = True
    """Whether its time counts, so that its memory is sampled rarely."""
    root: Path = Path("/")
    """The directory in which sysfs is."""


@dataclass
class Ended:
    """The end of a program and its processes, with their totals."""

    status: int
    """Its exit status, negative for the signal that killed it."""
    cpu_seconds: float = 0.0
    """User and system time of the program and of all its processes that were waited for."""
    minor_faults: int = 0
    major_faults: int = 0
    peak_resident_bytes: int | None = None
    """None where its memory was not sampled."""
    huge_bytes: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))
    """The most in huge pages at one moment, by kind."""
    smaller_bytes: dict[int, int] = field(default_factory=dict)
    """The most anonymous memory in pages of each size below 2 MiB, by size; without zeros."""
    smaller_of_system: bool = False
    """Whether `smaller_bytes` is the increase in the whole system since the run began, as the page
    tables of the processes may not be read."""
    regions: tuple[Region, ...] = ()
    """The largest regions, at the moment with most memory in huge pages."""
    refuses_huge_pages: bool = False
    """Whether one of its processes has switched transparent huge pages off for itself."""
    samples: int = 0
    left_over: int = 0
    """Processes that it left behind, which were ended."""


class Supervised:
    """A running program with its supervisor."""

    def __init__(self, launch: Launch) -> None:
        """Starts the program. Raises CannotRun where the system refuses."""
        ours, theirs = Pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        self.supervisor = os.fork()
        if self.supervisor == 0:
            ours.close()
            _become_supervisor(theirs, launch)
        theirs.close()
        self._channel = ours
        self._is_over = False
        message, value, began = self._receive()
        if message == "refused":
            self._leave()
            raise CannotRun(f"cannot start `{launch.argv[0]}`: {value}.")
        self.pid: int = value
        self.began: float = began
        """Time of the monotonic clock just before the program was executed."""
        self._handle = os.pidfd_open(self.pid)

    def wait(self, tick: Tick) -> float:
        """Waits for the end of the program's first process; returns the seconds that it ran."""
        poller = select.poll()
        poller.register(self._handle, select.POLLIN)
        while not poller.poll(TICK_SECONDS * 1000):
            tick()
        return time.monotonic() - self.began

    def is_running(self) -> bool:
        """Whether any of its processes has not ended."""
        return any(map(is_alive, self.processes()))

    def processes(self) -> list[int]:
        """All processes of the program."""
        return descendants(self.supervisor)

    def look(self) -> None:
        """Takes a sample of its memory now."""
        self._channel.send(("look", 0.0))
        self._receive()

    def finish(self, tick: Tick, *, terminate: float | None = None) -> Ended:
        """Reports on a program whose first process has ended.

        With `terminate`, it is ended first: by SIGTERM, and after `terminate` seconds by SIGKILL.
        """
        self._channel.send(("finish", -1.0 if terminate is None else terminate))
        while not self._channel.poll(TICK_SECONDS):
            tick()
        _, ended, _ = self._receive()
        self._leave()
        found: Ended = ended
        return found

    def abort(self) -> None:
        """Ends the program soon, in any state."""
        if not self._is_over:
            with suppress(OSError, EOFError, CannotRun):
                self._channel.send(("finish", ABORT_SECONDS))
                self._channel.poll(ABORT_SECONDS + 10)
            self._leave()

    def _receive(self) -> tuple[str, Any, Any]:
        try:
            answer: tuple[str, Any, Any] = self._channel.recv()
        except (EOFError, OSError):
            self._leave()
            raise CannotRun("the process that supervises the program was killed.") from None
        return answer

    def _leave(self) -> None:
        if self._is_over:
            return
        self._is_over = True
        self._channel.close()
        if hasattr(self, "_handle"):
            os.close(self._handle)
        os.waitpid(self.supervisor, 0)


def descriptors() -> list[int]:
    """The open descriptors, and the one that was open for listing them."""
    return [int(entry.name) for entry in Path("/proc/self/fd").iterdir()]


def close_descriptors(keep: set[int]) -> None:
    """Closes all descriptors above standard error but these."""
    for number in descriptors():
        if number > 2 and number not in keep:
            with suppress(OSError):
                os.close(number)


# --- in the supervisor ---------------------------------------------------------------------------


def _become_supervisor(channel: Connection, launch: Launch) -> NoReturn:
    try:
        os.setsid()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, signal.SIG_DFL)
        kept = {channel.fileno()} | ({launch.output} if launch.output is not None else set())
        close_descriptors(kept)
        with suppress(EOFError, OSError):
            _Supervisor(channel, launch).run()
    finally:
        os._exit(0)


def prctl(option: int, *arguments: int) -> bool:
    """Calls prctl; returns whether it succeeded."""
    values = (*arguments, 0, 0, 0, 0)[:4]
    library = ctypes.CDLL(None, use_errno=True)
    return int(library.prctl(option, *map(ctypes.c_ulong, values))) == 0


class _Supervisor:
    def __init__(self, channel: Connection, launch: Launch) -> None:
        self._channel = channel
        self._launch = launch
        self._ended = Ended(0)
        self._most_huge = -1
        self._status: int | None = None
        self._largest_usage = 0
        self._own_peak = 0
        self._has_huge_pages = True
        self._smaller_before = _smaller_bytes(launch.root)
        self._folios = Folios() if self._smaller_before else None

    def run(self) -> None:
        launch = self._launch
        prctl(PR_SET_CHILD_SUBREAPER, 1)
        if launch.thp_disable is not None and not prctl(PR_SET_THP_DISABLE, 1, launch.thp_disable):
            self._channel.send(("refused", "this kernel refuses PR_SET_THP_DISABLE", 0.0))
            return
        self._own_peak = peak_resident(os.getpid())
        self._has_huge_pages = not has_huge_pages_disabled(os.getpid())
        # `Popen` returns after the program is executed (vfork). On a busy machine it may return
        # late, so the time is taken before.
        began = time.monotonic()
        try:
            program = subprocess.Popen(
                [*launch.argv],
                env=dict(launch.environment),
                stdin=_input_again(),
                stdout=launch.output,
                stderr=launch.output,
            )
        except OSError as error:
            self._channel.send(("refused", error.strerror or str(error), 0.0))
            return
        self._program = program.pid
        self._channel.send(("started", program.pid, began))
        try:
            self._watch()
        except (EOFError, OSError):
            self._end(ABORT_SECONDS)

    def _watch(self) -> None:
        """Takes samples of memory until Octavo asks for the end."""
        wait = _LEAST_INTERVAL_SECONDS
        times = _TIMED_COST if self._launch.is_timed else _CLOSE_COST
        while True:
            if not self._channel.poll(wait):
                wait = max(_LEAST_INTERVAL_SECONDS, times * self._look())
                continue
            request, seconds = self._channel.recv()
            if request == "look":
                self._look()
                self._channel.send(("looked", None, None))
                continue
            self._end(seconds)
            self._conclude()
            self._channel.send(("ended", self._ended, None))
            return

    def _look(self) -> float:
        """Takes a sample of the memory of all processes; returns the seconds that it took."""
        began = time.monotonic()
        pids = descendants(os.getpid())
        processes = {pid: found for pid in pids if (found := mappings_of(pid)) is not None}
        if processes:
            self._note(memory_of(processes.values()), max(map(peak_resident, pids)))
        if self._has_huge_pages and any(map(has_huge_pages_disabled, pids)):
            self._ended.refuses_huge_pages = True
        for size, now in self._smaller_now(processes).items():
            if now > self._ended.smaller_bytes.get(size, 0):
                self._ended.smaller_bytes[size] = now
        return time.monotonic() - began

    def _smaller_now(self, processes: Mapping[int, list[MemoryMapping]]) -> Mapping[int, int]:
        """Bytes in pages between 4 KiB and 2 MiB; empty in timed runs, as reading is too slow."""
        if self._folios is None:
            return {}
        if not self._folios.is_readable:
            self._ended.smaller_of_system = True
            now, before = _smaller_bytes(self._launch.root), self._smaller_before
            return {size: found - before.get(size, 0) for size, found in now.items()}
        together: Counter[int] = Counter()
        if not self._launch.is_timed:
            for pid, mappings in processes.items():
                together += self._folios.smaller_bytes(pid, mappings)
        return together

    def _note(self, memory: Memory, peak: int) -> None:
        ended = self._ended
        ended.samples += 1
        # The kernel's exact peak of the largest process is a lower bound for all processes.
        together = max(memory.resident_bytes, peak)
        is_larger = together > (ended.peak_resident_bytes or 0)
        ended.peak_resident_bytes = max(together, ended.peak_resident_bytes or 0)
        for kind, size in memory.huge_bytes.items():
            ended.huge_bytes[kind] = max(ended.huge_bytes[kind], size)
        huge = memory.all_huge_bytes
        if huge > self._most_huge or (huge == self._most_huge and is_larger):
            self._most_huge = huge
            ended.regions = memory.regions[:_REGIONS]

    def _end(self, seconds: float) -> None:
        """Ends the remaining processes of the program and waits for them.

        `seconds` is the time between SIGTERM and SIGKILL; negative if the first process has ended.
        """
        if seconds < 0:
            self._reap(self._program)
            left = self._alive()
            self._ended.left_over = len(left)
            seconds = ABORT_SECONDS
            _kill(left, signal.SIGTERM)
        else:
            left = self._alive()
            if self._status is None:
                # A server's first process ends the others.
                left = [self._program]
            _kill(left, signal.SIGTERM)
        was_alone = self._status is None
        deadline = time.monotonic() + seconds
        while left := self._alive():
            if was_alone and self._status is not None:
                # The first process, such as a shell, did not pass the signal to its children.
                was_alone = False
                _kill(left, signal.SIGTERM)
            if self._is_hurried() or time.monotonic() >= deadline:
                deadline = 0.0
                _kill(left, signal.SIGKILL)
            time.sleep(_POLL_SECONDS)

    def _is_hurried(self) -> bool:
        """Whether Octavo has sent another request; False also if Octavo was killed."""
        try:
            if self._channel.poll(0):
                self._channel.recv()
                return True
        except (EOFError, OSError):
            pass
        return False

    def _alive(self) -> list[int]:
        self._reap(-1)
        return descendants(os.getpid())

    def _reap(self, which: int) -> None:
        """Waits for processes that have ended, and adds their resource usage."""
        while True:
            try:
                pid, status, usage = os.wait4(which, 0 if which > 0 else os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self._program:
                self._status = os.waitstatus_to_exitcode(status)
            ended = self._ended
            ended.cpu_seconds += usage.ru_utime + usage.ru_stime
            ended.minor_faults += usage.ru_minflt
            ended.major_faults += usage.ru_majflt
            self._largest_usage = max(self._largest_usage, usage.ru_maxrss * KIB)
            if which > 0:
                return

    def _conclude(self) -> None:
        ended = self._ended
        ended.status = self._status or 0
        ended.smaller_bytes = {size: left for size, left in ended.smaller_bytes.items() if left}
        # The peak of a child includes that of the supervisor before the exec, so only a larger peak
        # is the program's.
        if self._largest_usage > self._own_peak:
            ended.peak_resident_bytes = max(self._largest_usage, ended.peak_resident_bytes or 0)


def _input_again() -> int:
    """Standard input from its present offset if it is a file; /dev/null otherwise."""
    with suppress(OSError):
        if Path("/proc/self/fd/0").is_file():
            at = os.lseek(0, 0, os.SEEK_CUR)
            again = os.open("/proc/self/fd/0", os.O_RDONLY)
            os.lseek(again, at, os.SEEK_SET)
            return again
    return subprocess.DEVNULL


def _kill(pids: Sequence[int], number: int) -> None:
    for pid in pids:
        with suppress(OSError):
            os.kill(pid, number)


def _smaller_bytes(root: Path) -> dict[int, int]:
    """Anonymous memory of the whole system in pages of each enabled size from 8 KiB to 1 MiB."""
    found = {}
    for size, place in sizes_in(root / THP).items():
        if size < PMD_PAGE and read_setting(place / "enabled") != "never":
            with suppress(OSError, ValueError):
                found[size] = size * int((place / "stats/nr_anon").read_text())
    return found
