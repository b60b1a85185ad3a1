"""System-wide settings that change for a run and are always restored.

Before anything is changed, the values are saved on disk and a watchdog process is started: a fork
in a session of its own that holds the reading end of a pipe. When Octavo ends without restoring the
values, even by SIGKILL, the kernel closes the pipe, and the watchdog restores them. If both are
killed, the saved values remain: the next `octavo verify` notices, and `octavo verify --restore`
restores them.

Octavo and its watchdog hold a lock, so that no other Octavo changes settings before both are done.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import signal
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NoReturn

from octavo.base.errors import CannotRun
from octavo.base.files import replace_text
from octavo.base.host import read_setting
from octavo.base.signals import HANDLED
from octavo.verification.supervisor import close_descriptors, descriptors, prctl

_STATE = Path("var/lib/octavo")
_SAVED = "saved-settings.json"
_LOCK = "settings.lock"
_BOOT = Path("proc/sys/kernel/random/boot_id")
_PR_SET_NAME = 15
_NAME = b"thp-watchdog\0"
_DONE = b"done"
_KILLED = "the watchdog that restores settings was killed; none is changed."
_TRIES = 50
_RETRY_SECONDS = 0.1

Values = dict[str, str]
"""Values by absolute path of the file."""


class SystemSettings:
    """Settings under `root`, saved when it is entered and restored when it is left."""

    def __init__(self, files: Iterable[str], root: Path = Path("/")) -> None:
        """`files` are the absolute paths of all settings that will be changed."""
        self._root = root
        self._files = sorted(set(files))
        self.saved: Values = {}
        self._lock = -1
        self._pipe = -1
        self._watchdog = 0

    def __enter__(self) -> SystemSettings:
        """Raises CannotRun where a setting cannot be changed, or an earlier run left its own."""
        if not self._files:
            return self
        for name in self._files:
            if not os.access(_under(self._root, name), os.W_OK):
                raise CannotRun(f"cannot change `{name}`: --allow-system needs root.")
        self._lock = _take_lock(self._root)
        try:
            check_nothing_left(self._root)
            self.saved = read_values(self._root, self._files)
            self._watchdog, self._pipe = _start_watchdog(self._root, self.saved)
            _save(self._root, self.saved)
        except BaseException:
            self._leave()
            raise
        return self

    def __exit__(self, *ended: object) -> None:
        if self._files:
            self.restore()
            _saved_file(self._root).unlink(missing_ok=True)
            self._leave()

    def _leave(self) -> None:
        """Ends the watchdog and releases the lock."""
        if self._watchdog:
            with suppress(OSError):
                os.write(self._pipe, _DONE)
            os.close(self._pipe)
            os.waitpid(self._watchdog, 0)
            self._watchdog = 0
        os.close(self._lock)

    @contextmanager
    def changed(self, values: Mapping[str, str]) -> Iterator[None]:
        """Writes the values, and restores the former ones at the end.

        Raises CannotRun where the kernel refuses one.
        """
        if values and os.waitpid(self._watchdog, os.WNOHANG) != (0, 0):
            self._watchdog = 0
            raise CannotRun(_KILLED)
        try:
            for name, value in values.items():
                _write(self._root, name, value)
                now = read_values(self._root, [name])[name]
                if now != value:
                    raise CannotRun(f"`{name}` is {now} after writing {value}.")
            yield
        finally:
            if values:
                self.restore()

    def restore(self) -> None:
        """Restores and checks every setting. Raises CannotRun where one has a wrong value then."""
        restore_values(self._root, self.saved)


def restore_values(root: Path, saved: Mapping[str, str]) -> None:
    """Writes the values that differ from the present ones, and reads all back.

    Tries all files, and then raises CannotRun with the files that have a wrong value.
    """
    for name, value in saved.items():
        with suppress(CannotRun, OSError):
            if read_values(root, [name])[name] != value:
                _write(root, name, value)
    wrong = [name for name, value in saved.items() if _now(root, name) != value]
    if wrong:
        raise CannotRun(
            f"could not restore {', '.join(f'`{name}` to {saved[name]}' for name in wrong)}."
        )


def _now(root: Path, name: str) -> str | None:
    return read_setting(_under(root, name))


def read_values(root: Path, names: Iterable[str]) -> Values:
    """The present values. Raises CannotRun for a file that this kernel does not have."""
    values = {}
    for name in names:
        value = _now(root, name)
        if value is None:
            raise CannotRun(f"this kernel has no setting `{name}`.")
        values[name] = value
    return values


def _write(root: Path, name: str, value: str) -> None:
    """Writes a value by one system call, since sysfs takes each write as a value."""
    try:
        descriptor = os.open(_under(root, name), os.O_WRONLY | os.O_TRUNC)
        try:
            os.write(descriptor, f"{value}\n".encode())
        finally:
            os.close(descriptor)
    except OSError as error:
        raise CannotRun(f"cannot write {value} to `{name}`: {error.strerror}.") from None


def _under(root: Path, name: str) -> Path:
    return root / name.lstrip("/")


# --- settings of a run that was killed with its watchdog -----------------------------------------


def check_nothing_left(root: Path) -> None:
    """Raises CannotRun where an earlier run left the settings changed.

    Saved values of an earlier boot are dropped: a boot resets these settings.
    """
    found = left_over(root)
    if found is not None:
        raise CannotRun(
            "an earlier `octavo verify --allow-system` was killed together with its watchdog, and "
            "left system-wide settings changed; `octavo verify --restore` restores them."
        )


def left_over(root: Path) -> Values | None:
    """The values that an earlier run of this boot saved and did not restore, if any."""
    file = _saved_file(root)
    try:
        saved = json.loads(file.read_text(encoding="utf-8"))
        values = {str(name): str(value) for name, value in saved["values"].items()}
        boot = saved["boot"]
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, AttributeError, TypeError):
        raise CannotRun(
            f"`{file}` cannot be read; remove it once you have checked sysfs."
        ) from None
    if boot != _boot(root):
        with suppress(OSError):
            file.unlink()
        return None
    return values


def is_being_changed(root: Path) -> bool:
    """Whether another Octavo, or its watchdog, holds the lock at this moment."""
    try:
        lock = os.open(root / _STATE / _LOCK, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False


def restore_left_over(root: Path) -> Values | None:
    """Restores the settings that an earlier run left changed; None if there are none."""
    if not (root / _STATE).is_dir():
        return None
    lock = _take_lock(root)
    try:
        values = left_over(root)
        if values is not None:
            restore_values(root, values)
            _saved_file(root).unlink()
        return values
    finally:
        os.close(lock)


def _save(root: Path, values: Values) -> None:
    """Saves the values on disk, synchronised, so that they survive a crash of the machine."""
    document = {"boot": _boot(root), "pid": os.getpid(), "values": values}
    file = _saved_file(root)
    try:
        replace_text(file, json.dumps(document, indent=1) + "\n")
        for place in (file, file.parent):
            descriptor = os.open(place, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
    except OSError as error:
        raise CannotRun(f"cannot write `{file}`: {error.strerror}.") from None


def _saved_file(root: Path) -> Path:
    return root / _STATE / _SAVED


def _boot(root: Path) -> str:
    return read_setting(root / _BOOT) or ""


def _take_lock(root: Path) -> int:
    """Takes the lock and returns its descriptor. Raises CannotRun where another Octavo holds it."""
    file = root / _STATE / _LOCK
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        lock = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise CannotRun(f"cannot write `{file}`: {error.strerror}.") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(lock)
        if error.errno != errno.EWOULDBLOCK:
            raise
        raise CannotRun(
            "another `octavo verify --allow-system` is changing settings; wait until it has ended."
        ) from None
    return lock


# --- the watchdog --------------------------------------------------------------------------------


def _start_watchdog(root: Path, saved: Values) -> tuple[int, int]:
    """Forks the watchdog; returns its process and the writing end of its pipe.

    Returns when the watchdog is in a session of its own; before that, a SIGKILL to the process
    group of Octavo would end it. Raises CannotRun if it ended before.
    """
    ours, pipe = os.pipe()
    started, start = os.pipe()
    # The watchdog never unblocks these signals, so that none ends it before it has a session.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, HANDLED)
    try:
        pid = os.fork()
        if pid == 0:
            os.close(pipe)
            _become_watchdog(ours, start, root, saved)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        os.close(ours)
        os.close(start)
    with os.fdopen(started, "rb") as reading:
        if not reading.read(1):
            os.close(pipe)
            os.waitpid(pid, 0)
            raise CannotRun(_KILLED)
    return pid, pipe


def _become_watchdog(pipe: int, start: int, root: Path, saved: Values) -> NoReturn:
    """Waits for the end of Octavo; restores the settings if Octavo has not.

    Writes one byte to `start` when signals to the process group of Octavo no longer reach it.
    """
    try:
        os.setsid()
        _hide_from_killers()
        nowhere = os.open(os.devnull, os.O_RDWR)
        for number in range(3):
            os.dup2(nowhere, number)
        # The lock stays open: nothing else may change settings before they are restored.
        lock = (root / _STATE / _LOCK).stat()
        close_descriptors({pipe, start, *_descriptors_of(lock)})
        os.write(start, b"1")
        os.close(start)
        if os.read(pipe, len(_DONE)) != _DONE:
            _restore_stubbornly(root, saved)
    finally:
        os._exit(0)


def _hide_from_killers() -> None:
    """Takes a name that `pkill octavo` does not match, and lowers the score for the OOM killer."""
    import ctypes

    name = ctypes.create_string_buffer(_NAME)
    prctl(_PR_SET_NAME, ctypes.addressof(name))
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("-1000")


def _descriptors_of(file: os.stat_result) -> list[int]:
    found = []
    for number in descriptors():
        with suppress(OSError):
            if os.path.samestat(os.fstat(number), file):
                found.append(number)
    return found


def _restore_stubbornly(root: Path, saved: Values) -> None:
    """Tries to restore for some seconds; the saved values stay on disk if that fails."""
    for _ in range(_TRIES):
        with suppress(CannotRun, OSError):
            restore_values(root, saved)
            _saved_file(root).unlink(missing_ok=True)
            return
        time.sleep(_RETRY_SECONDS)
