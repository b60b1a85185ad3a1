"""A plan run to its end: what is missing in the data set is simulated and written there."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import octavo._core as _core
from octavo._core import available_memory
from octavo.base.signals import uninterrupted
from octavo.sweeps.data_set import DataSet
from octavo.sweeps.estimate import Estimate, estimate
from octavo.sweeps.local import Answer
from octavo.sweeps.plan import Plan
from octavo.sweeps.results import SweepResult
from octavo.sweeps.tasks import Failed, Task, divide


class Workers(Protocol):
    """Where tasks run."""

    count: int
    """Tasks at a time."""

    def describe(self) -> str:
        """As part of a sentence."""

    def run(self, tasks: Sequence[Task]) -> Iterator[Answer]:
        """The answers to the tasks, as they come."""


@dataclass(frozen=True)
class SweepProgress:
    """How far a sweep is."""

    done: int
    """Simulations, those that failed among them."""
    total: int
    """Simulations that were not there before."""
    failed: int
    elapsed_seconds: float

    @property
    def left_seconds(self) -> float | None:
        """By the pace so far; None before anything is done."""
        return self.elapsed_seconds / self.done * (self.total - self.done) if self.done else None


@dataclass(frozen=True)
class Prepared:
    """A plan, what of it is missing, and what that takes."""

    plan: Plan
    data_set: DataSet
    workers: Workers
    tasks: list[Task]
    estimate: Estimate


def prepare(plan: Plan, data_set: DataSet, workers: Workers) -> Prepared:
    """Looks up what is missing, and divides it into tasks."""
    all_of = plan.simulations
    missing = data_set.missing(all_of)
    tasks = divide(missing, _most_bytes(workers.count))
    expected = estimate(data_set, tasks, len(all_of), len(all_of) - len(missing), workers.count)
    return Prepared(plan, data_set, workers, tasks, expected)


def run_prepared(
    prepared: Prepared, on_progress: Callable[[SweepProgress], None] = lambda progress: None
) -> SweepResult:
    """Runs all tasks. Ctrl-C ends those in hand, and the result is what is there."""
    data_set = prepared.data_set
    data_set.remove_abandoned()
    began = time.monotonic()
    total = sum(len(task.simulations) for task in prepared.tasks)
    failed: dict[str, str] = {}
    done, is_partial = 0, False
    on_progress(SweepProgress(0, total, 0, 0.0))
    answers = prepared.workers.run(prepared.tasks) if prepared.tasks else iter(())
    try:
        for answer in answers:
            with uninterrupted():
                _keep(data_set, answer, failed)
            done += len(answer.task.simulations)
            on_progress(SweepProgress(done, total, len(failed), time.monotonic() - began))
    except KeyboardInterrupt:
        is_partial = True
    finally:
        close = getattr(answers, "close", None)
        if close is not None:
            close()
    return SweepResult(prepared.plan, data_set, failed, is_partial, is_whole=not is_partial)


def _keep(data_set: DataSet, answer: Answer, failed: dict[str, str]) -> None:
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
    )


def _most_bytes(workers: int) -> int | None:
    """The share of this machine's memory that a task may take."""
    from pathlib import Path

    available = available_memory(Path("/"))
    return None if available is None else max(available // (2 * workers), 1)
