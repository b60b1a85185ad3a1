"""Temporary directories, in the system's directory for them or in another one.

A process that is killed leaves its directories behind. Each holds a file that its process locks as
long as it lives; locks work across PID namespaces. The next process that makes such a directory
finds the lock free and removes the directory. A process that was killed before it had the lock
leaves an empty directory, which is removed a day later.
"""

import fcntl
import os
import shutil
import stat
import tempfile
import time
import weakref
from contextlib import suppress
from pathlib import Path

_LOCK = ".octavo-owner"
_NEW_LOCK = ".octavo-owner-new"
_MOST_NAME_BYTES = 256
_MODE = 0o700
"""The permissions with which `tempfile` makes directories."""
_DAY_SECONDS = 24 * 60 * 60


class TemporaryDirectory(tempfile.TemporaryDirectory[str]):
    """A directory with a name that begins with `prefix`, in `place` if it is given; it is removed
    as one of `tempfile` is, or by a later one of the same prefix and place.
    """

    def __init__(self, prefix: str, place: Path | None = None) -> None:
        remove_abandoned(prefix, place)
        super().__init__(prefix=prefix, dir=place, ignore_cleanup_errors=True)
        new = Path(self.name, _NEW_LOCK)
        lock = os.open(new, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        weakref.finalize(self, os.close, lock)
        # Some file systems have no locks: an abandoned directory stays there.
        with suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if place is not None:
                # Machines may share it, and some file systems do not show locks to the others.
                os.write(lock, _this_machine())
            # Never there unlocked.
            new.rename(Path(self.name, _LOCK))

    def disown(self) -> None:
        """Removes the lock, so that no later process takes the directory for an abandoned one."""
        for lock in (_LOCK, _NEW_LOCK):
            Path(self.name, lock).unlink(missing_ok=True)


def _this_machine() -> bytes:
    return os.fsencode(os.uname().nodename)


def remove_abandoned(prefix: str, place: Path | None = None) -> None:
    """Removes the directories of this prefix that this user's processes have left in `place`."""
    names: list[str] = []
    # Files can be written into a directory that cannot be listed.
    with suppress(OSError), os.scandir(place or tempfile.gettempdir()) as entries:
        names += [entry.path for entry in entries if entry.name.startswith(prefix)]
    for name in names:
        with suppress(OSError):
            _remove_if_abandoned(name)


def _remove_if_abandoned(name: str) -> None:
    status = os.lstat(name)
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
        return
    try:
        lock = os.open(Path(name, _LOCK), os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        if stat.S_IMODE(status.st_mode) == _MODE and time.time() - status.st_mtime > _DAY_SECONDS:
            _remove_without_content(name)
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.read(lock, _MOST_NAME_BYTES) in (b"", _this_machine()):
            shutil.rmtree(name, ignore_errors=True)
    finally:
        os.close(lock)


def _remove_without_content(name: str) -> None:
    """Removes a directory that holds nothing but the beginning of a lock. Raises OSError."""
    if all(entry.name == _NEW_LOCK for entry in Path(name).iterdir()):
        Path(name, _NEW_LOCK).unlink(missing_ok=True)
        Path(name).rmdir()
