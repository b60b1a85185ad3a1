"""Handling of Ctrl-C, SIGTERM and SIGHUP: while Octavo loads, works, and cleans up.

The program that is traced is not concerned here; see `octavo.tracing.session`.
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
    """A signal that ends the command, once what it was about to write is removed."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


class _Handlers:
    """Handlers of the signals, while it is entered.

    They can be set in the main thread only. A hang-up that is ignored (nohup) stays ignored.
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
    """Collects the signals that arrive while it is entered, instead of dying of them."""

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
        """The signal that arrived last. A library may have turned what was raised into another
        error."""

    def _handle(self, number: int, frame: FrameType | None) -> NoReturn:
        self.number = number
        raise Interruption(number)


@contextmanager
def uninterrupted() -> Iterator[Interrupts]:
    """Puts signals off to its end: for steps that are quick and belong together, or that end soon
    once they see that a signal has arrived.
    """
    with Interrupts() as interrupts:
        yield interrupts
    if interrupts.first is not None:
        signal.raise_signal(signal.Signals(interrupts.first))


def leave_at_once_on_interrupt() -> None:
    """Lets Ctrl-C end the process without a message, where it would raise KeyboardInterrupt.

    For the time in which modules are imported: code there may swallow or print what is raised.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _leave)


def _leave(number: int, frame: FrameType | None) -> NoReturn:
    os._exit(128 + number)
