"""Handling of Ctrl-C, SIGTERM and SIGHUP while Octavo loads, works, and cleans up.

For signals to the traced program see `octavo.tracing.session`.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, NoReturn, TypeVar

Entered = TypeVar("Entered", bound="_Handlers")

HANDLED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interruption(KeyboardInterrupt):
    """A signal that ends the command, after its unfinished files are removed."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


class _Handlers:
    """Installs handlers of the signals while it is entered.

    Python sets them in the main thread only. A SIGHUP that is ignored (nohup) stays ignored.
    """

    def __init__(self) -> None:
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self: Entered) -> Entered:
        if threading.current_thread() is threading.main_thread():
            for number in HANDLED:
                before = signal.getsignal(number)
                if number == signal.SIGHUP and before is signal.SIG_IGN:
                    continue
                self._before[number] = before
                signal.signal(number, self._handle)
        return self

    def __exit__(self, *ended: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        raise NotImplementedError


class Interrupts(_Handlers):
    """Collects the signals that arrive while it is entered; they do not end the process."""

    def __init__(self) -> None:
        super().__init__()
        self._arrived: list[int] = []

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self._arrived.append(number)

    @property
    def first(self) -> int | None:
        """The first signal that arrived."""
        return self._arrived[0] if self._arrived else None

    @property
    def count(self) -> int:
        """How many arrived."""
        return len(self._arrived)


class Interruptions(_Handlers):
    """Raises Interruption when a signal arrives."""

    def __init__(self) -> None:
        super().__init__()
        self.number: int | None = None
        """The signal that arrived last, also where a library has turned the Interruption into
        another error."""

    def _handle(self, number: int, frame: FrameType | None) -> NoReturn:
        self.number = number
        raise Interruption(number)


class DeferredStops:
    """Defers Ctrl-Z (SIGTSTP) while it is entered, to calls of `stop_if_asked`. An ignored signal
    stays ignored.
    """

    def __init__(self) -> None:
        self._is_asked = False
        self._is_deferring = False

    def __enter__(self) -> DeferredStops:
        is_main = threading.current_thread() is threading.main_thread()
        self._is_deferring = is_main and signal.getsignal(signal.SIGTSTP) is signal.SIG_DFL
        if self._is_deferring:
            signal.signal(signal.SIGTSTP, self._note)
        return self

    def __exit__(self, *ended: object) -> None:
        if self._is_deferring:
            signal.signal(signal.SIGTSTP, signal.SIG_DFL)

    def stop_if_asked(self) -> None:
        """Stops this process if the signal has arrived, until SIGCONT continues it."""
        if self._is_asked:
            self._is_asked = False
            signal.signal(signal.SIGTSTP, signal.SIG_DFL)
            signal.raise_signal(signal.SIGTSTP)
            signal.signal(signal.SIGTSTP, self._note)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._is_asked = True


@contextmanager
def uninterrupted() -> Iterator[Interrupts]:
    """Defers signals to the end of the block: for steps that are quick and belong together, or that
    watch `first` and end soon.
    """
    with Interrupts() as interrupts:
        yield interrupts
    if interrupts.first is not None:
        signal.raise_signal(signal.Signals(interrupts.first))


def raise_again(number: int | None) -> None:
    """Raises a SIGTERM or SIGHUP that ended a call from Python before its end, for the handler of
    the program that calls. Ctrl-C (SIGINT) is for the call alone, and a command ends with its
    result.
    """
    if number not in (signal.SIGTERM, signal.SIGHUP):
        return
    if not isinstance(getattr(signal.getsignal(number), "__self__", None), _Handlers):
        signal.raise_signal(signal.Signals(number))


def leave_at_once_on_interrupt() -> None:
    """Lets Ctrl-C end the process without a message, instead of raising KeyboardInterrupt.

    For the time in which modules are imported: they may swallow or print the exception.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _leave)


def _leave(number: int, frame: FrameType | None) -> NoReturn:
    os._exit(128 + number)
