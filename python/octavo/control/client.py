"""Asks a run under way."""

from __future__ import annotations

import json
import socket
import time
from pathlib import Path
from typing import Any

from octavo.base.arguments import with_checked_names
from octavo.base.errors import CannotRun
from octavo.base.processes import ancestors, is_alive
from octavo.control.place import Place, places, remove_stale
from octavo.control.server import WAIT, peer_of

_POLL_SECONDS = 0.05


@with_checked_names()
def ctl(pid: int, action: str) -> dict[str, Any]:
    """The answer of the run of a process: octavo's, the program's, one of its children, or a
    process that started octavo and no other run.

    `action` is "status", "start", "stop", "snapshot" or "wait": the status as soon as
    the run can be asked. Raises CannotRun where there is no such run, with "wait" once the process
    has ended, or with what the run says.
    """
    if action == WAIT:
        connection, action = _awaited(pid), "status"
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


def _awaited(pid: int) -> socket.socket:
    """Connects as soon as there is something to connect to, or fails with the process."""
    while True:
        # Asked before: what answers until its end has been asked at least once.
        lives = is_alive(pid)
        try:
            return _connect(pid)
        except CannotRun:
            if not lives:
                raise CannotRun(f"process {pid} has ended, and no run of it answers.") from None
        time.sleep(_POLL_SECONDS)


def _connect(pid: int) -> socket.socket:
    known = [*places()]
    wanted = ancestors(pid)
    live, started = [], []
    for place in known:
        connection = _open(place)
        if connection is None:
            remove_stale(place)
            continue
        if place.octavo_pid == pid or place.program_pid in wanted:
            return connection
        connection.close()
        live.append(place)
        if pid in ancestors(place.octavo_pid):
            started.append(place)
    if len(started) == 1 and (connection := _open(started[0])) is not None:
        return connection
    raise CannotRun(_no_such_run(pid, live))


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
    if not live:
        return f"{sentence}, and no such run is under way."
    runs = ", ".join(f"{place.octavo_pid} (program {place.program_pid})" for place in live)
    return f"{sentence}; under way: {runs}."
