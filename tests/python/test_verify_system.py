"""System-wide settings are restored however Octavo ends."""

from __future__ import annotations

import fcntl
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from octavo.base.errors import CannotRun
from octavo.base.host import read_setting
from octavo.verification.system_settings import (
    SystemSettings,
    Values,
    check_nothing_left,
    is_being_changed,
    left_over,
    read_values,
    restore_left_over,
)
from verify_tree import BEFORE, FILES, THP, chosen, make_tree

ALWAYS = {f"{THP}/enabled": "always", f"{THP}/hugepages-64kB/enabled": "always"}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return make_tree(tmp_path)


def wait_for_watchdog(root: Path) -> None:
    """Waits until the watchdog releases its lock."""
    with (root / "var/lib/octavo/settings.lock").open("r+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)


def in_child(work: Callable[[], None]) -> int:
    """Runs a function in a process of its own; returns how the process ended."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def is_clean(root: Path) -> bool:
    """Whether all settings are as before, and nothing is left to restore."""
    return chosen(root) == BEFORE and left_over(root) is None and not is_being_changed(root)


def test_settings_are_changed_and_restored(tree: Path) -> None:
    with SystemSettings(ALWAYS, tree) as system:
        assert is_being_changed(tree)
        assert chosen(tree) == BEFORE
        with system.changed(ALWAYS):
            assert chosen(tree) == {**BEFORE, **ALWAYS}
        assert chosen(tree) == BEFORE
        with pytest.raises(ZeroDivisionError), system.changed(ALWAYS):
            raise ZeroDivisionError
        assert chosen(tree) == BEFORE
        with system.changed({}):
            assert chosen(tree) == BEFORE
    assert is_clean(tree)


def test_nothing_is_touched_where_nothing_changes(tree: Path) -> None:
    with SystemSettings([], tree) as system, system.changed({}):
        assert not (tree / "var").exists()


@pytest.mark.parametrize("when", ["entered", "changed", "restored"])
def test_a_watchdog_restores_after_sigkill(tree: Path, when: str) -> None:
    def die() -> None:
        with SystemSettings(ALWAYS, tree) as system:
            if when == "entered":
                os.kill(os.getpid(), signal.SIGKILL)
            with system.changed(ALWAYS):
                if when == "changed":
                    os.kill(os.getpid(), signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)

    assert in_child(die) == -signal.SIGKILL
    wait_for_watchdog(tree)
    assert is_clean(tree)


def test_a_watchdog_outlives_the_signals_of_a_terminal(tree: Path) -> None:
    def die() -> None:
        os.setpgid(0, 0)
        with SystemSettings(ALWAYS, tree) as system, system.changed(ALWAYS):
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                os.kill(system._watchdog, number)
            os.killpg(0, signal.SIGKILL)

    assert in_child(die) == -signal.SIGKILL
    wait_for_watchdog(tree)
    assert is_clean(tree)


def test_a_watchdog_has_its_own_session_before_anything_is_changed(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start_session = os.setsid

    def late() -> None:
        for _ in range(100):
            read_setting(tree / THP.lstrip("/") / "enabled")
        start_session()

    monkeypatch.setattr(os, "setsid", late)
    with SystemSettings(ALWAYS, tree) as system:
        assert os.getsid(system._watchdog) == system._watchdog


def test_nothing_is_changed_where_the_watchdog_does_not_start(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "setsid", lambda: os._exit(1))
    with pytest.raises(CannotRun, match="watchdog that restores settings was killed"):
        SystemSettings(ALWAYS, tree).__enter__()
    assert is_clean(tree)


def leave_changed(root: Path) -> None:
    """Kills Octavo and its watchdog while settings are changed."""

    def die() -> None:
        with SystemSettings(ALWAYS, root) as system, system.changed(ALWAYS):
            os.kill(system._watchdog, signal.SIGKILL)
            os.waitpid(system._watchdog, 0)
            os.kill(os.getpid(), signal.SIGKILL)

    assert in_child(die) == -signal.SIGKILL
    assert chosen(root) == {**BEFORE, **ALWAYS}


def test_settings_left_changed_are_detected_and_restored(tree: Path) -> None:
    assert restore_left_over(tree) is None
    leave_changed(tree)
    with pytest.raises(CannotRun, match="octavo verify --restore"):
        check_nothing_left(tree)
    with pytest.raises(CannotRun, match="octavo verify --restore"):
        SystemSettings(ALWAYS, tree).__enter__()
    assert not is_being_changed(tree)
    assert restore_left_over(tree) == {name: BEFORE[name] for name in ALWAYS}
    assert is_clean(tree)
    assert restore_left_over(tree) is None


def test_the_state_of_an_earlier_boot_is_dropped(tree: Path) -> None:
    leave_changed(tree)
    (tree / "proc/sys/kernel/random/boot_id").write_text("another\n")
    check_nothing_left(tree)
    assert restore_left_over(tree) is None
    assert chosen(tree)[f"{THP}/enabled"] == "always"


def test_a_damaged_state_is_reported(tree: Path) -> None:
    leave_changed(tree)
    file = tree / "var/lib/octavo/saved-settings.json"
    for text in ("", "[]", '{"boot": 1}', '{"boot": 1, "values": 3}'):
        file.write_text(text)
        with pytest.raises(CannotRun, match="cannot be read"):
            check_nothing_left(tree)


def test_settings_are_changed_by_one_process_at_a_time(tree: Path) -> None:
    with (
        SystemSettings(ALWAYS, tree),
        pytest.raises(CannotRun, match="another `octavo verify --allow-system`"),
    ):
        SystemSettings(ALWAYS, tree).__enter__()
    assert is_clean(tree)


def test_a_setting_that_does_not_change_is_reported(tree: Path) -> None:
    file = tree / f"{THP}/enabled".lstrip("/")
    with SystemSettings(ALWAYS, tree) as system:
        # Such as `nr_hugepages` if the kernel finds too few free pages.
        file.unlink()
        file.symlink_to("/dev/null")
        with pytest.raises(CannotRun, match="could not restore"):
            system.changed(ALWAYS).__enter__()
        file.unlink()
        file.write_text("always [madvise] never\n")
    assert is_clean(tree)


def test_no_setting_is_changed_without_its_watchdog(tree: Path) -> None:
    with SystemSettings(ALWAYS, tree) as system:
        os.kill(system._watchdog, signal.SIGKILL)
        os.waitid(os.P_PID, system._watchdog, os.WEXITED | os.WNOWAIT)
        with pytest.raises(CannotRun, match="watchdog that restores settings was killed"):
            system.changed(ALWAYS).__enter__()
        assert chosen(tree) == BEFORE


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write every file")
def test_rights_are_checked_first(tree: Path) -> None:
    (tree / f"{THP}/enabled".lstrip("/")).chmod(0o400)
    with pytest.raises(CannotRun, match="needs root"):
        SystemSettings(ALWAYS, tree).__enter__()


def test_a_missing_file_is_reported(tree: Path) -> None:
    with pytest.raises(CannotRun, match="hugepages-32kB"):
        SystemSettings([f"{THP}/hugepages-32kB/enabled"], tree).__enter__()


# --- the whole command, killed at several moments -----------------------------------------------

SYSFS = [name for name in FILES if name.startswith("/sys")]
State = Callable[[Values], bool]


def kill_after(root: Path, states: Sequence[State]) -> Values:
    """Kills `octavo verify` after its settings have been in these states, one after the other, or
    at its end. Returns the settings that were in the last state.

    All settings are as before after the kill.
    """

    def values() -> Values:
        return read_values(root, SYSFS)

    before = now = values()
    command = [sys.executable, "-m", "octavo", "verify", "-q", "--allow-system", "--sysfs-root"]
    command += [str(root), "--settings", "thp-for-all 2MiB,thp-for-all 64KiB"]
    command += ["--", "sleep", "0.02"]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    for state in (lambda values: is_being_changed(root), *states):
        while process.poll() is None:
            now = values()
            time.sleep(0.001)
            if state(now):
                break
    process.kill()
    process.wait()
    if (root / "var/lib/octavo/settings.lock").exists():
        wait_for_watchdog(root)
    assert values() == before
    assert left_over(root) is None
    return now


def test_settings_are_as_before_after_kills(tree: Path) -> None:
    before = read_values(tree, SYSFS)

    def changed(values: Values) -> bool:
        return values != before

    def changed_last(values: Values) -> bool:
        name = f"{THP}/hugepages-64kB/enabled"
        return values[name] != before[name]

    kill_after(tree, [])
    for states in ([changed], [changed, before.__eq__], [changed_last]):
        assert states[-1](kill_after(tree, states))
    assert chosen(tree) == BEFORE


@pytest.mark.long
@pytest.mark.usefixtures("changes_settings")
@pytest.mark.skipif(
    not os.access(f"{THP}/enabled", os.W_OK)
    or not Path(f"{THP}/hugepages-64kB").exists()
    or not Path(f"{THP}/hugepages-2048kB").exists(),
    reason="the settings of this machine are not ours to change (no root, or no sizes in sysfs)",
)
def test_this_machine_is_as_before_after_fifty_kills() -> None:
    """At random moments within about a second."""
    moments = random.Random(7)
    before = read_values(Path("/"), SYSFS)
    counts = [moments.randrange(700) for _ in range(50)]
    killed = [kill_after(Path("/"), [lambda values: True] * count) for count in counts]
    assert any(values != before for values in killed)
