"""Asks a run under way."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from octavo.base.arguments import with_checked_names
from octavo.base.errors import CannotRun
from octavo.base.processes import ancestors, is_alive, name_of
from octavo.control.place import Place, places, remove_stale
from octavo.control.server import WAIT, peer_of

_POLL_SECONDS = 0.05


@with_checked_names()
def ctl(pid: int, action: str, *, on_wait: Callable[[str], None] | None = None) -> dict[str, Any]:
    """The answer of the run of a process: octavo's, the program's, one of its children, or a
    process that started octavo and no other run.

    `action` is "status", "start", "stop", "snapshot" or "wait": the status as soon as
    the run can be asked. `on_wait` gets a sentence about what "wait" waits for, once, if the run
    cannot be asked yet. Raises CannotRun where there is no such run, with "wait" once the process
    has ended, or with what the run says.
    """
    if action == WAIT:
        connection, action = _awaited(pid, on_wait or (lambda sentence: None)), "status"
    else:
        connection = _connect(pid)
    with connection:
        try:
            connection.sendall(f"{json.dumps({'action': action})}\n".encode())
            with connection.makefile("rb") as reader:
                line = reader.readline()
            reply = json.loads(line)
        except (OSError, ValueError):
            raise CannotRun(f"the run of process {pid} ended before it had answered.") from None
    if "error" in reply:
        raise CannotRun(str(reply["error"]).rstrip("."))
    answer: dict[str, Any] = reply["answer"]
    return answer


def _awaited(pid: int, on_wait: Callable[[str], None]) -> socket.socket:
    """Connects as soon as there is something to connect to, or fails with the process."""
    is_first = True
    while True:
        # Asked before: what answers until its end has been asked at least once.
        lives = is_alive(pid)
        connection, live = _find(pid)
        if connection is not None:
            return connection
        if not lives:
            raise CannotRun(f"process {pid} has ended, and no run of it answers.")
        if is_first:
            on_wait(
                f"waiting for a run of process {pid} ({name_of(pid)}) that this user may control; "
                f"{_under_way(live)}."
            )
            is_first = False
        time.sleep(_POLL_SECONDS)


def _connect(pid: int) -> socket.socket:
    connection, live = _find(pid)
    if connection is None:
        raise CannotRun(_no_such_run(pid, live))
    return connection


def _find(pid: int) -> tuple[socket.socket | None, list[Place]]:
    """A connection to the run of a process, if there is one, and else the runs under way."""
    known = [*places()]
    wanted = ancestors(pid)
    live, started = [], []
    for place in known:
        connection = _open(place)
        if connection is None:
            remove_stale(place)
            continue
        if place.octavo_pid == pid or place.program_pid in wanted:
            return connection, []
        connection.close()
        live.append(place)
        if pid in ancestors(place.octavo_pid):
            started.append(place)
    return (_open(started[0]) if len(started) == 1 else None), live


def _open(place: Place) -> socket.socket | None:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.connect(str(place.path))
        # In a directory where all users may create names, the name alone proves nothing.
        if peer_of(connection)[0] == place.octavo_pid:
            return connection
    except OSError:
        pass
    connection.close()
    return None


def _no_such_run(pid: int, live: list[Place]) -> str:
    if not Path(f"/proc/{pid}").exists():
        sentence = f"there is no process {pid}"
    else:
        sentence = f"process {pid} is none of a run of octavo that this user may control"
    return f"{sentence}; {_under_way(live)}."


def _under_way(live: list[Place]) -> str:
    """The runs that could be asked, without a full stop."""
    if not live:
        return "no such run is under way"
    runs = ", ".join(f"{place.octavo_pid} (program {place.program_pid})" for place in live)
    return f"under way: {runs}"
