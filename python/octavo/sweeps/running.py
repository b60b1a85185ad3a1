"""Runs a plan: simulates what is missing in the data set, and writes the results there."""

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
"""Time between two estimates, which are slow for a sweep of many tasks."""


class Workers(Protocol):
    """Workers that run tasks."""

    count: int
    """Tasks at a time."""

    def describe(self) -> str:
        """The workers in words, as part of a sentence."""

    def run(
        self, tasks: Sequence[Task], interrupts: Callable[[], int]
    ) -> Iterator[Answer | Progress]:
        """The answers to the tasks and the progress of others, as they arrive. After signals, the
        iteration ends soon.
        """


@dataclass(frozen=True)
class SweepProgress:
    """The progress of a sweep."""

    done: int
    """Finished simulations, including failed ones."""
    total: int
    """Simulations that had no result before."""
    failed: int
    elapsed_seconds: float
    left_seconds: float | None = None
    """Estimated from finished and running tasks; None before there are any."""

    @property
    def portion(self) -> float:
        """The finished share of the work, by time."""
        left = self.left_seconds
        return 0.0 if left is None else self.elapsed_seconds / ((self.elapsed_seconds + left) or 1)


@dataclass(frozen=True)
class Prepared:
    """A plan with its missing tasks, and the estimate of these."""

    plan: Plan
    data_set: DataSet
    workers: Workers
    tasks: list[Task]
    speeds: Speeds
    estimate: Estimate


def prepare(plan: Plan, data_set: DataSet, workers: Workers) -> Prepared:
    """Finds the missing simulations, and divides them into tasks."""
    all_of = plan.simulations
    missing = data_set.missing(all_of)
    tasks = divide(missing, _most_bytes(workers.count))
    speeds = Speeds(data_set)
    expected = estimate(speeds, tasks, len(all_of), len(all_of) - len(missing), workers.count)
    return Prepared(plan, data_set, workers, tasks, speeds, expected)


def run_prepared(
    prepared: Prepared, on_progress: Callable[[SweepProgress], None] = lambda progress: None
) -> SweepResult:
    """Runs all tasks. After Ctrl-C, running tasks are ended, except those that are nearly done, and
    the result is partial.
    """
    data_set, speeds = prepared.data_set, prepared.speeds
    data_set.remove_abandoned()
    began = time.monotonic()
    total = sum(len(task.simulations) for task in prepared.tasks)
    failed: dict[str, str] = {}
    left = {id(task): task for task in prepared.tasks}
    under_way: dict[int, Progress] = {}
    done = 0
    ends, estimated_at = None, -math.inf

    def show() -> None:
        nonlocal ends, estimated_at
        elapsed = time.monotonic() - began
        if elapsed >= estimated_at + _ESTIMATED_EVERY_SECONDS and len(under_way) + done:
            waiting = [task for key, task in left.items() if key not in under_way]
            now = [*under_way.values()]
            ends = elapsed + seconds_left(speeds, waiting, now, prepared.workers.count)
            estimated_at = elapsed
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
    # True after a signal even if its handler raised nothing, or the signal was ignored.
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
