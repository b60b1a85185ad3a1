"""Runs commands of the user in a shell beside the program: load, preparation, readiness."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass

from octavo.verification.supervisor import TICK_SECONDS, Tick

_MOST_OUTPUT = 64 << 20
"""Limit of bytes of output that are read; of more, the last bytes."""


@dataclass(frozen=True)
class CommandResult:
    """How a command ended, and its output."""

    status: int
    """Negative for the signal that killed it."""
    output: str
    """Standard output and error, in the order of writing."""
    seconds: float


def run_command(command: str, tick: Tick) -> CommandResult:
    """Runs a shell command to its end, or kills it where `tick` raises."""
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            ["/bin/sh", "-c", command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        began = time.monotonic()
        handle = os.pidfd_open(process.pid)
        try:
            poller = select.poll()
            poller.register(handle, select.POLLIN)
            while not poller.poll(TICK_SECONDS * 1000):
                tick()
            seconds = time.monotonic() - began
        except BaseException:
            with suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)
            raise
        finally:
            os.close(handle)
            process.wait()
        return CommandResult(process.returncode, read_output(output.fileno()), seconds)


def read_output(descriptor: int) -> str:
    """The text in an output file."""
    size = os.fstat(descriptor).st_size
    at = max(0, size - _MOST_OUTPUT)
    return os.pread(descriptor, size - at, at).decode(errors="replace")


def last_line(text: str) -> str:
    """The last line that is not empty, shortened for a sentence; empty where there is none."""
    lines = [line.strip() for line in text.replace("\r", "\n").splitlines() if line.strip()]
    return lines[-1][:200] if lines else ""


def how_it_ended(status: int) -> str:
    """`status 3`, or `signal SIGKILL`, for a sentence about a process that ended."""
    if status >= 0:
        return f"status {status}"
    with suppress(ValueError):
        return f"signal {signal.Signals(-status).name}"
    return f"signal {-status}"
