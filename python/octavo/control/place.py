"""Paths of the sockets of runs; the name holds the process numbers of octavo and the program."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_NAME = re.compile(r"octavo-([0-9]+)-([0-9]+)\.sock")


@dataclass(frozen=True)
class Place:
    """The socket of one run."""

    path: Path
    octavo_pid: int
    program_pid: int


def directories() -> list[Path]:
    """Directories of sockets, in order of preference; for root, also those of all users."""
    found = []
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime and _is_ours(Path(runtime)):
        found.append(Path(runtime))
    found.append(Path("/tmp"))
    if os.geteuid() == 0:
        with suppress(OSError):
            found += sorted(path for path in Path("/run/user").iterdir() if path not in found)
    return found


def new_place(program_pid: int) -> Path:
    """The path for the socket of this process."""
    return directories()[0] / f"octavo-{os.getpid()}-{program_pid}.sock"


def places() -> Iterator[Place]:
    """The sockets that this user may use, including stale ones of runs that were killed."""
    for directory in directories():
        with suppress(OSError):
            for entry in sorted(directory.iterdir()):
                match = _NAME.fullmatch(entry.name)
                if match is not None and _is_usable(entry):
                    yield Place(entry, int(match[1]), int(match[2]))


def remove_stale(place: Place) -> None:
    """Removes the socket of a run that was killed, if permissions allow it."""
    if not Path(f"/proc/{place.octavo_pid}").exists():
        with suppress(OSError):
            place.path.unlink()


def _is_ours(directory: Path) -> bool:
    with suppress(OSError):
        found = directory.stat()
        return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()
    return False


def _is_usable(path: Path) -> bool:
    with suppress(OSError):
        found = path.lstat()
        mine = found.st_uid == os.geteuid() or os.geteuid() == 0
        return stat.S_ISSOCK(found.st_mode) and mine
    return False
