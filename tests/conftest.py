"""Fixtures of all tests."""

import fcntl
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@pytest.fixture(scope="session", autouse=True)
def _signals_as_in_a_terminal() -> None:
    """A shell starts background jobs with these signals ignored, and nohup with SIGHUP ignored;
    programs inherit this, so the tests restore the defaults.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture(scope="session", autouse=True)
def _no_configuration_of_the_user(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A calibration of this machine would change the expected cost of page walks."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))
        yield


@contextmanager
def _settings_lock(operation: int) -> Iterator[None]:
    """A lock that is shared by all workers and all test runs on this machine."""
    with (Path(tempfile.gettempdir()) / "octavo-test-settings.lock").open("w") as lock:
        fcntl.flock(lock, operation)
        yield


@pytest.fixture
def changes_settings() -> Iterator[None]:
    """For a test that changes settings of huge pages in the system: no other test with one of these
    two fixtures runs at the same time.
    """
    with _settings_lock(fcntl.LOCK_EX):
        yield


@pytest.fixture
def needs_settings() -> Iterator[None]:
    """For a test that depends on settings of huge pages: no test changes them at the same time."""
    with _settings_lock(fcntl.LOCK_SH):
        yield
