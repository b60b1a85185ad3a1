"""Fixtures of all tests."""

import signal
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session", autouse=True)
def _signals_as_in_a_terminal() -> None:
    """A shell starts what runs in the background with these ignored, and programs inherit that."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)


@pytest.fixture(scope="session", autouse=True)
def _no_configuration_of_the_user(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A calibration of this machine would change what is expected of page walks."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))
        yield
