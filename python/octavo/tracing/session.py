"""A running session: waits, reports progress, and passes interrupts to the program.

The first interrupt goes to the program, which gets a few seconds to end as it would; after that,
or at the second interrupt, it is stopped. All references up to that point are counted.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from octavo.base.background import POLL_SECONDS, with_interrupt
from octavo.base.signals import Interrupts
from octavo.tracing.phase import Phased, Timer

if TYPE_CHECKING:
    from octavo._core import Progress

    OnProgress = Callable[[Any], None]
    """Takes the run's own kind of Progress."""


GRACE_SECONDS = 5.0
"""Time for an interrupted program to end before it is stopped."""


class Program(Phased, Protocol):
    """The part of a `LiveRun` or a `Recording` that a session drives."""

    def start(self) -> int:
        """Starts the program; returns its process identifier."""

    def wait(self, timeout_seconds: float) -> Progress:
        """Waits until the run has ended or the time is up."""

    def signal(self, number: int) -> None:
        """Sends a signal to the program and notes that the run was interrupted."""

    def note_interrupted(self) -> None:
        """Notes that the run was interrupted by a signal that the program has already received."""

    def stop(self) -> None:
        """Ends the program at once."""


Found = TypeVar("Found", covariant=True)


class Run(Program, Protocol[Found]):
    """The part of `LiveRun` that is used here; tests replace it."""

    def snapshot(self) -> Found | None:
        """A snapshot of the counts; None for an engine without snapshots, or after the end."""

    def result(self) -> Found:
        """The result of a run that has ended."""


def terminal_delivers(number: int) -> bool:
    """Whether the terminal has also sent this signal to the program.

    Ctrl-C goes to every process of the terminal's foreground group, in which Octavo and the program
    are.
    """
    if number != signal.SIGINT:
        return False
    with suppress(OSError):
        terminal = os.open(os.ctermid(), os.O_RDONLY | os.O_NOCTTY)
        try:
            return os.tcgetpgrp(terminal) == os.getpgrp()
        finally:
            os.close(terminal)
    return False


def drive(
    run: Program,
    on_progress: OnProgress,
    *,
    clock: Callable[[], float] = time.monotonic,
    delivered: Callable[[int], bool] = terminal_delivers,
    timer: Timer | None = None,
    control: Callable[[int], AbstractContextManager[None]] = lambda pid: nullcontext(),
) -> int | None:
    """Starts the run and waits for its end; returns the signal that interrupted it, if any.

    `timer` begins and ends the counted part; `control` is entered while the program runs.
    """
    with Interrupts() as interrupts:
        pid = run.start()
        try:
            with control(pid):
                _see_to_end(run, interrupts, on_progress, clock, delivered, timer)
        except BaseException:
            run.stop()
            raise
        return interrupts.first


def ended_while_closed(run: Program) -> bool:
    """Whether `octavo ctl stop` had ended the counted part when a run ended."""
    last = run.wait(0.0)
    return not last["counting"] and not last["over"]


def _see_to_end(
    run: Program,
    interrupts: Interrupts,
    on_progress: OnProgress,
    clock: Callable[[], float],
    delivered: Callable[[int], bool],
    timer: Timer | None,
) -> None:
    deadline: float | None = None
    end_of_grace: float | None = None
    # The first report is immediate, so that slow imports happen while the program starts.
    pause = 0.0
    while (progress := run.wait(pause))["running"]:
        on_progress(with_interrupt(progress, interrupts.first))
        pause = POLL_SECONDS
        if timer is not None:
            if timer.look(progress):
                end_of_grace = clock() + GRACE_SECONDS
            pause = timer.patience(POLL_SECONDS)
        if end_of_grace is not None and clock() >= end_of_grace:
            run.stop()
        if interrupts.first is None:
            continue
        if deadline is None:
            deadline = clock() + GRACE_SECONDS
            if delivered(interrupts.first):
                run.note_interrupted()
            else:
                run.signal(interrupts.first)
        if interrupts.count > 1 or clock() >= deadline:
            run.stop()
    if interrupts.first is not None:
        on_progress(with_interrupt(progress, interrupts.first))
