"""The server in a run that answers `octavo ctl`."""

from __future__ import annotations

import errno
import json
import os
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from octavo._core import OctavoError
from octavo.base.errors import CannotRun
from octavo.control.place import new_place

if TYPE_CHECKING:
    from octavo._core import Progress

WAIT = "wait"
"""An action of the client alone, which waits until there is a run to ask."""
ACTIONS = ("status", "start", "stop", "snapshot")
_REQUEST_SECONDS = 10.0
"""Time limit of a connection for sending its request."""
_MOST_REQUEST_BYTES = 4096
_END_SECONDS = 10.0
"""Time for which the end of a run waits for an answer in progress."""
_CREDENTIALS = struct.Struct("3i")

Answer = dict[str, Any]


class Controlled(Protocol):
    """The part of a `LiveRun` that is controlled."""

    def wait(self, timeout_seconds: float) -> Progress:
        """Waits until the run is over or the time is up; returns the progress."""

    def set_counting(self, counting: bool) -> None:
        """Opens or closes the region of interest."""


class Control:
    """Answers the requests to one run."""

    def __init__(
        self,
        run: Controlled,
        command: Sequence[str],
        pid: int,
        snapshot: Callable[[], Answer],
        named: Callable[[Progress], Progress],
    ) -> None:
        """`snapshot` writes the whole result of the counts so far, or raises OctavoError; `named`
        adds the names of programs to a status.
        """
        self._run, self._command, self._pid = run, [*command], pid
        self._snapshot, self._named = snapshot, named

    def answer(self, action: object) -> Answer:
        """Performs a requested action and returns its answer. Raises OctavoError."""
        if action == "snapshot":
            return self._snapshot()
        if action in ("start", "stop"):
            if self._run.wait(0)["over"]:
                raise CannotRun("the counted part is over, and the program is ending.")
            self._run.set_counting(action == "start")
        elif action != "status":
            raise CannotRun(f"this octavo knows {', '.join(ACTIONS)} only; is it another version?")
        return self._status()

    def _status(self) -> Answer:
        progress: Answer = {**self._named(self._run.wait(0))}
        return {
            "command": self._command,
            "pid": self._pid,
            "octavo_pid": os.getpid(),
            **progress,
        }


@contextmanager
def serving(control: Control, program_pid: int) -> Iterator[None]:
    """Answers requests while it is entered; if no socket can be made, the run goes on without."""
    server = None
    with suppress(OSError):
        server = _Server(control, new_place(program_pid))
    try:
        yield
    finally:
        if server is not None:
            server.close()


class _Server:
    def __init__(self, control: Control, path: Path) -> None:
        self._control, self._path = control, path
        self._lock = threading.Lock()
        self._open: dict[threading.Thread, socket.socket] = {}
        self._closed = False
        # A socket with the number of this process is stale, of an earlier process.
        path.unlink(missing_ok=True)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            # Set before `bind` gives it a name, so that no other user can ever connect.
            os.fchmod(self._socket.fileno(), 0o600)
            self._socket.bind(str(path))
            self._socket.listen()
        except OSError:
            self._socket.close()
            raise
        self._thread = threading.Thread(target=self._accept, name="octavo-ctl", daemon=True)
        try:
            self._thread.start()
        except RuntimeError as error:
            # The limit of processes (RLIMIT_NPROC) allows no further thread.
            self._socket.close()
            path.unlink(missing_ok=True)
            raise OSError(errno.EAGAIN, str(error)) from None

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            with self._lock:
                if self._closed or not _is_allowed(connection):
                    connection.close()
                    continue
                thread = threading.Thread(target=self._serve, args=(connection,), daemon=True)
                self._open[thread] = connection
                try:
                    thread.start()
                except RuntimeError:
                    del self._open[thread]
                    connection.close()

    def _serve(self, connection: socket.socket) -> None:
        with suppress(OSError), connection:
            connection.settimeout(_REQUEST_SECONDS)
            reply = self._reply(_read_line(connection))
            connection.sendall(f"{json.dumps(reply)}\n".encode())
        with self._lock:
            self._open.pop(threading.current_thread(), None)

    def _reply(self, line: bytes) -> Answer:
        try:
            request = json.loads(line)
            return {"answer": self._control.answer(request["action"])}
        except OctavoError as error:
            return {"error": str(error)}
        except (ValueError, TypeError, KeyError):
            return {"error": "the request could not be read; is octavo ctl another version?"}
        except Exception as error:
            # An error in a request must not end the run.
            return {"error": f"a bug in Octavo ({type(error).__name__}: {error})"}

    def close(self) -> None:
        """Stops accepting requests, and waits for the answers in progress."""
        with self._lock:
            self._closed = True
            under_way = dict(self._open)
        with suppress(OSError):
            self._path.unlink()
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join()
        for thread, connection in under_way.items():
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RD)
            thread.join(_END_SECONDS)
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            # A snapshot in progress still reads the run, so the run's end must wait for it.
            thread.join()


def _read_line(connection: socket.socket) -> bytes:
    line = b""
    while not line.endswith(b"\n") and len(line) < _MOST_REQUEST_BYTES:
        piece = connection.recv(_MOST_REQUEST_BYTES)
        if not piece:
            break
        line += piece
    return line


def peer_of(connection: socket.socket) -> tuple[int, int]:
    """The process and the user at the other end of a connection."""
    option = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, user, _ = _CREDENTIALS.unpack(option)
    return pid, user


def _is_allowed(connection: socket.socket) -> bool:
    """Whether the other end is this user, or root."""
    with suppress(OSError):
        return peer_of(connection)[1] in (os.geteuid(), 0)
    return False
