"""Directories for a while, in the system's directory for such.

A process that is killed leaves its directories behind. Each holds a file that its process locks as
long as it lives; locks work across PID namespaces. The next process that makes such a directory
finds the lock free and removes the directory.
"""

import fcntl
import os
import shutil
import stat
import tempfile
import weakref
from contextlib import suppress
from pathlib import Path

_LOCK = ".octavo-owner"
_NEW_LOCK = ".octavo-owner-new"


class TemporaryDirectory(tempfile.TemporaryDirectory[str]):
    """A directory with a name that begins with `prefix`; it is removed as one of `tempfile` is, or
    by a later one of the same prefix.
    """

    def __init__(self, prefix: str) -> None:
        remove_abandoned(prefix)
        super().__init__(prefix=prefix)
        new = Path(self.name, _NEW_LOCK)
        lock = os.open(new, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        weakref.finalize(self, os.close, lock)
        # Some file systems have no locks: an abandoned directory stays there.
        with suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Never there unlocked.
            new.rename(Path(self.name, _LOCK))


def remove_abandoned(prefix: str) -> None:
    """Removes the directories of this prefix that this user's processes have left."""
    with os.scandir(tempfile.gettempdir()) as entries:
        names = [entry.path for entry in entries if entry.name.startswith(prefix)]
    for name in names:
        with suppress(OSError):
            _remove_if_abandoned(name)


def _remove_if_abandoned(name: str) -> None:
    status = os.lstat(name)
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
        return
    lock = os.open(Path(name, _LOCK), os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(name, ignore_errors=True)
    finally:
        os.close(lock)
