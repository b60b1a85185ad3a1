"""Long work outside the main thread, which stays free for signals and the live line.

A trace may come through a pipe that is silent for hours: after an interrupt, work gets
GIVE_UP_SECONDS to end and is then abandoned. Work whose result is kept, and that has read
references, ends when these are counted, or is abandoned after a second interrupt.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from octavo.base.errors import Interrupted
from octavo.base.signals import Interrupts, raise_again

if TYPE_CHECKING:
    from octavo._core import TraceJob

T = TypeVar("T")

POLL_SECONDS = 0.2
GIVE_UP_SECONDS = 2.0
"""Grace period for work that was asked to stop; after it the work is abandoned."""


class Work(Protocol):
    """A `TraceJob`, or a `TraceRun` that has started."""

    def wait(self, timeout_seconds: float) -> Any:
        """Waits until the work is done or the time is up; returns the progress."""

    def stop(self) -> None:
        """Asks the work to end soon."""


class Interruptible(Protocol):
    """A result that may be partial."""

    @property
    def interrupted_by(self) -> int | None:
        """The signal that ended the work before its end, if one did."""


Ended = TypeVar("Ended", bound=Interruptible)


def see_through(
    work: Work, on_progress: Callable[[Any], None], *, keeps_result: bool = False
) -> int | None:
    """Waits for the end of the work; returns the signal that ended it early, if any.

    `keeps_result`: interrupted work still has a result, so the last progress names the signal.
    """
    with Interrupts() as interrupts:
        deadline: float | None = None
        while (progress := work.wait(POLL_SECONDS))["running"]:
            on_progress(progress)
            if interrupts.first is None:
                continue
            work.stop()
            deadline = deadline or time.monotonic() + GIVE_UP_SECONDS
            has_counts = keeps_result and progress.get("references", 0) > 0
            if has_counts and interrupts.count > 1:
                raise Interrupted(interrupts.first, "again before the counts were complete")
            if not has_counts and (interrupts.count > 1 or time.monotonic() >= deadline):
                raise Interrupted(interrupts.first)
        if keeps_result and interrupts.first is not None:
            on_progress(with_interrupt(progress, interrupts.first))
        return interrupts.first


def outcome_of(job: TraceJob[T], on_progress: Callable[[Any], None]) -> T:
    """The result of a job; None if it was interrupted."""
    interrupted_by = see_through(job, on_progress)
    if interrupted_by is not None:
        raise Interrupted(interrupted_by)
    return job.result()


def from_python(work: Callable[[], Ended]) -> Ended:
    """Does the work of a call from Python. A SIGTERM or SIGHUP that ended it is raised again."""
    try:
        result = work()
    except Interrupted as interrupted:
        raise_again(interrupted.number)
        raise
    raise_again(result.interrupted_by)
    return result


def interruptible(work: Callable[[], T], stop: Callable[[], None] | None = None) -> T:
    """Does work that Ctrl-C would not interrupt, such as a call into the extension. `stop` asks it
    to end when a signal arrives; without `stop`, the work is abandoned.
    """
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:
            errors.append(error)
        ended.set()

    # An event, because a `join` that a signal interrupts may count the thread as ended. A daemon
    # thread, so that the process does not wait for it at exit.
    ended = threading.Event()
    threading.Thread(target=run, daemon=True).start()
    try:
        while not ended.wait(POLL_SECONDS):
            pass
    except KeyboardInterrupt:
        if stop is not None:
            stop()
            ended.wait(GIVE_UP_SECONDS)
        raise
    if errors:
        raise errors[0]
    return results[0]


def with_interrupt(progress: Any, number: int | None) -> Any:
    """The progress, with the signal that interrupts the work where one has arrived."""
    return progress if number is None else {**progress, "interrupted_by": number}
