"""A plan run to its end: what is missing in the data set is simulated and written there."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import octavo._core as _core
from octavo._core import available_memory
from octavo.base.signals import uninterrupted
from octavo.sweeps.data_set import DataSet
from octavo.sweeps.estimate import Estimate, Speeds, estimate, seconds_left
from octavo.sweeps.local import Answer, Progress
from octavo.sweeps.plan import Plan
from octavo.sweeps.results import SweepResult
from octavo.sweeps.tasks import Failed, Task, divide

_ESTIMATED_EVERY_SECONDS = 0.5
"""A sweep may have many tasks."""


class Workers(Protocol):
    """Where tasks run."""

    count: int
    """Tasks at a time."""

    def describe(self) -> str:
        """As part of a sentence."""

    def run(
        self, tasks: Sequence[Task], interrupts: Callable[[], int]
    ) -> Iterator[Answer | Progress]:
        """The answers to the tasks, as they come, and how far others are. Once signals have
        arrived, the iteration ends soon, with the answers that are there.
        """


@dataclass(frozen=True)
class SweepProgress:
    """How far a sweep is."""

    done: int
    """Simulations, those that failed among them."""
    total: int
    """Simulations that were not there before."""
    failed: int
    elapsed_seconds: float
    left_seconds: float | None = None
    """By the pace of tasks that are done or under way; None before there are any."""

    @property
    def portion(self) -> float:
        """Of the work, by its time."""
        left = self.left_seconds
        return 0.0 if left is None else self.elapsed_seconds / ((self.elapsed_seconds + left) or 1)


@dataclass(frozen=True)
class Prepared:
    """A plan, what of it is missing, and what that takes."""

    plan: Plan
    data_set: DataSet
    workers: Workers
    tasks: list[Task]
    speeds: Speeds
    estimate: Estimate


def prepare(plan: Plan, data_set: DataSet, workers: Workers) -> Prepared:
    """Looks up what is missing, and divides it into tasks."""
    all_of = plan.simulations
    missing = data_set.missing(all_of)
    tasks = divide(missing, _most_bytes(workers.count))
    speeds = Speeds(data_set)
    expected = estimate(speeds, tasks, len(all_of), len(all_of) - len(missing), workers.count)
    return Prepared(plan, data_set, workers, tasks, speeds, expected)


def run_prepared(
    prepared: Prepared, on_progress: Callable[[SweepProgress], None] = lambda progress: None
) -> SweepResult:
    """Runs all tasks. Ctrl-C ends those in hand, but for some that are nearly done, and the result
    is what is there.
    """
    data_set, speeds = prepared.data_set, prepared.speeds
    data_set.remove_abandoned()
    began = time.monotonic()
    total = sum(len(task.simulations) for task in prepared.tasks)
    failed: dict[str, str] = {}
    left = {id(task): task for task in prepared.tasks}
    under_way: dict[int, Progress] = {}
    done = 0
    ends, asked = None, -math.inf

    def show() -> None:
        nonlocal ends, asked
        elapsed = time.monotonic() - began
        if elapsed >= asked + _ESTIMATED_EVERY_SECONDS and len(under_way) + done:
            waiting = [task for key, task in left.items() if key not in under_way]
            now = [*under_way.values()]
            ends = elapsed + seconds_left(speeds, waiting, now, prepared.workers.count)
            asked = elapsed
        seconds = None if ends is None else max(ends - elapsed, 0.0)
        on_progress(SweepProgress(done, total, len(failed), elapsed, seconds))

    answers: Iterator[Answer | Progress] = iter(())
    try:
        show()
        with uninterrupted() as interrupts:
            if prepared.tasks:
                answers = prepared.workers.run(prepared.tasks, lambda: interrupts.count)
            for answer in answers:
                if isinstance(answer, Progress):
                    under_way[id(answer.task)] = answer
                else:
                    _keep(data_set, speeds, answer, failed)
                    under_way.pop(id(answer.task), None)
                    del left[id(answer.task)]
                    done += len(answer.task.simulations)
                show()
    except KeyboardInterrupt:
        pass
    finally:
        close = getattr(answers, "close", None)
        if close is not None:
            close()
    # Also where the handler of a signal that ended it raises nothing, or the signal is ignored.
    is_partial = bool(left)
    ended = sum(len(one.task.simulations) for one in under_way.values())
    return SweepResult(prepared.plan, data_set, failed, is_partial, ended, is_whole=not is_partial)


def _keep(data_set: DataSet, speeds: Speeds, answer: Answer, failed: dict[str, str]) -> None:
    simulations, outcome = answer.task.simulations, answer.outcome
    if isinstance(outcome, Failed):
        failed.update({one.key: outcome.why for one in simulations})
        more = {"traceback": outcome.traceback} if outcome.traceback else {}
        data_set.note(failed=[one.key for one in simulations], why=outcome.why, **more)
        return
    for one in simulations:
        data_set.write(one, outcome.tables[one.key])
    data_set.note(
        model=_core.MODEL,
        trace=simulations[0].trace.hash,
        simulations=len(simulations),
        references=outcome.references,
        seconds=round(outcome.seconds, 3),
        **speeds.finished(answer.task, outcome.references, outcome.seconds),
    )


def _most_bytes(workers: int) -> int | None:
    """The share of this machine's memory that a task may take."""
    from pathlib import Path

    available = available_memory(Path("/"))
    return None if available is None else max(available // (2 * workers), 1)
