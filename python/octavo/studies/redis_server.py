"""A real redis-server, traced: filled with keys, from which random ones are then read."""

from __future__ import annotations

import random
import shutil
import socket
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from io import BufferedRWPair
from pathlib import Path
from typing import IO

import octavo._core as _core
from octavo.base.units import KIB, format_bytes, format_count
from octavo.studies.programs import events
from octavo.studies.simulation_pool import Say

SERVER = "redis-server"
VALUE_BYTES = 16 * KIB
_WAIT_SECONDS = 120


@dataclass(frozen=True)
class Recorded:
    """A server's trace."""

    name: str
    trace: Path
    asked_from: int
    """The instruction at which look-ups begin."""


def record_server(keys: int, lookups: int, place: Path, say: Say) -> Recorded | str:
    """Records a server that stores so many keys, then looks so many up; or says why not."""
    if shutil.which(SERVER) is None:
        return f"{SERVER} is not installed"
    said = f"{format_count(keys)} keys of {format_bytes(VALUE_BYTES)}"
    say(f"tracing {SERVER}, {said}")
    trace, address = place / "redis.oct", place / "socket"
    record = [sys.executable, "-m", "octavo", "record", "-q", "--force", "-o", str(trace), "--"]
    serve = [SERVER, "--port", "0", "--unixsocket", str(address), "--dir", str(place), "--save", ""]
    options = ["--appendonly", "no", "--enable-module-command", "local"]
    with (place / "said").open("w+b") as output:
        server = subprocess.Popen(
            [*record, *serve, *options],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        try:
            mark = str(_core.__file__)
            _ask(address, (keys, lookups), mark, server)
            server.wait(_WAIT_SECONDS)
        except (OSError, EOFError, subprocess.TimeoutExpired) as error:
            return f"{SERVER}: {_last_line(output) or error}"
        finally:
            if server.poll() is None:
                server.terminate()
                with suppress(subprocess.TimeoutExpired):
                    server.wait(_WAIT_SECONDS)
    begin = _asked_from(trace, mark)
    if isinstance(begin, str):
        return begin
    return Recorded(f"{SERVER}, {said}", trace, begin)


def _last_line(said: IO[bytes]) -> str:
    said.seek(0)
    lines = said.read().decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else ""


def _ask(
    address: Path, numbers: tuple[int, int], mark: str, server: subprocess.Popen[bytes]
) -> None:
    """Stores every key, leaves a mark in the trace, looks random keys up, and ends the server.

    The mark is a library that is no module of Redis: it is mapped, refused and unmapped again.
    """
    keys, lookups = numbers
    with socket.socket(socket.AF_UNIX) as client:
        _connect(client, address, server)
        with client.makefile("rwb") as stream:
            value = b"v" * VALUE_BYTES
            for key in range(keys):
                _command(stream, b"SET", b"key:%d" % key, value)
            _command(stream, b"MODULE", b"LOAD", mark.encode())
            choose = random.Random(1)
            for _ in range(lookups):
                _command(stream, b"GET", b"key:%d" % choose.randrange(keys))
            _send(stream, b"SHUTDOWN", b"NOSAVE")


def _connect(client: socket.socket, address: Path, server: subprocess.Popen[bytes]) -> None:
    """As soon as the server listens."""
    until = time.monotonic() + _WAIT_SECONDS
    while True:
        try:
            client.connect(str(address))
        except OSError:
            if server.poll() is not None or time.monotonic() > until:
                raise
            time.sleep(0.1)
        else:
            return


def _send(stream: BufferedRWPair, *words: bytes) -> None:
    """A command, as Redis reads it."""
    parts = (b"$%d\r\n%s\r\n" % (len(word), word) for word in words)
    stream.write(b"*%d\r\n%s" % (len(words), b"".join(parts)))
    stream.flush()


def _command(stream: BufferedRWPair, *words: bytes) -> None:
    """Sends a command and reads its answer."""
    _send(stream, *words)
    answer = stream.readline()
    if not answer.endswith(b"\n"):
        raise EOFError("it ended early")
    if answer.startswith(b"$"):
        stream.read(int(answer[1:]) + 2)


def _asked_from(trace: Path, mark: str) -> int | str:
    """The instruction at which the look-ups begin: the library is gone again."""
    listed = events(trace)
    if isinstance(listed, str):
        return listed
    is_there = False
    for of in listed:
        is_there |= of["event"].startswith("map ") and mark in of["event"]
        if is_there and of["event"].startswith("unmap "):
            return int(of["instruction"])
    return f"{SERVER} did not map the library that marks the beginning of the look-ups"
