from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest

from fakes import FakeRun, result
from octavo.base.signals import Interrupts
from octavo.tracing.session import GRACE_SECONDS, drive, terminal_delivers

if TYPE_CHECKING:
    from octavo._core import Progress


def never(number: int) -> bool:
    return False


def test_progress_is_reported_until_the_end() -> None:
    seen: list[Progress] = []
    run = FakeRun(result(), waits=4)
    assert drive(run, seen.append) is None
    assert run.started
    assert [item["elapsed_seconds"] for item in seen] == [1.0, 2.0, 3.0]


def test_the_first_interrupt_is_forwarded() -> None:
    def interrupt(run: FakeRun) -> None:
        if not run.signals:
            os.kill(os.getpid(), signal.SIGTERM)

    run = FakeRun(result(), waits=4, during=interrupt)
    assert drive(run, lambda progress: None, delivered=never) == signal.SIGTERM
    assert run.signals == [signal.SIGTERM]


def test_a_signal_of_the_terminal_is_not_delivered_twice() -> None:
    fired = iter([True])

    def interrupt(run: FakeRun) -> None:
        if next(fired, False):
            os.kill(os.getpid(), signal.SIGINT)

    run = FakeRun(result(), waits=5, during=interrupt)
    assert drive(run, lambda progress: None, delivered=lambda number: True) == signal.SIGINT
    assert run.signals == []
    assert run.noted
    assert not run.stopped


def test_the_second_interrupt_stops_the_program() -> None:
    run = FakeRun(result(), waits=99, during=lambda run: os.kill(os.getpid(), signal.SIGINT))
    drive(run, lambda progress: None, delivered=never)
    assert run.stopped
    assert len(run.signals) == 1


def test_a_program_that_does_not_end_is_stopped_in_time() -> None:
    times = iter([0.0, 0.0, GRACE_SECONDS - 1, GRACE_SECONDS])
    fired = iter([True])

    def interrupt(run: FakeRun) -> None:
        if next(fired, False):
            os.kill(os.getpid(), signal.SIGINT)

    run = FakeRun(result(), waits=99, during=interrupt)
    drive(run, lambda progress: None, clock=lambda: next(times), delivered=never)
    assert run.stopped


def test_an_error_in_the_callback_stops_the_program() -> None:
    def fail(progress: Progress) -> None:
        raise RuntimeError

    run = FakeRun(result(), waits=9)
    with pytest.raises(RuntimeError):
        drive(run, fail)
    assert run.stopped


def test_handlers_are_restored() -> None:
    before = signal.getsignal(signal.SIGINT)
    with Interrupts() as interrupts:
        assert interrupts.first is None
        assert signal.getsignal(signal.SIGINT) != before
    assert signal.getsignal(signal.SIGINT) == before


def test_only_ctrl_c_comes_from_the_terminal() -> None:
    assert not terminal_delivers(signal.SIGTERM)
