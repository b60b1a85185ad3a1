"""Runs tasks in worker processes of this machine, one task at a time in each."""

from __future__ import annotations

import math
import os
import pickle
import queue
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from octavo.base.text import plural
from octavo.sweeps.tasks import Failed, Finished, Task, Underway

MOST_ATTEMPTS = 3
"""Limit of attempts for a task whose worker dies (the kernel may kill it for lack of memory)."""
GRACE_SECONDS = 3.0
"""After an interrupt, tasks that will end within this time are awaited."""
_WAIT_SECONDS = 0.2
_LEAST_THREADS = 2
"""Fewest threads of a worker, so that the last tasks of a sweep can use idle processors."""


@dataclass(frozen=True)
class Answer:
    """The outcome of a task."""

    task: Task
    outcome: Finished | Failed


@dataclass(frozen=True)
class Progress:
    """The progress of a task."""

    task: Task
    portion: float
    """The share of its trace that has been simulated."""
    seconds: float
    """Seconds since it began."""


def never() -> int:
    """The number of signals for a run that nothing interrupts: 0."""
    return 0


def processors() -> int:
    """The number of processors that this process may use."""
    return len(os.sched_getaffinity(0))


class LocalWorkers:
    """Worker processes of this machine."""

    def __init__(self, workers: int | None = None) -> None:
        self.count = workers or processors()

    def describe(self) -> str:
        """The number of processes, as part of a sentence."""
        return f"{self.count} {plural(self.count, 'process')} of this machine"

    def run(
        self, tasks: Sequence[Task], interrupts: Callable[[], int] = never
    ) -> Iterator[Answer | Progress]:
        """The answers to the tasks and their progress, as they arrive. The end of the iteration
        ends the workers. After a signal, no task begins, and tasks that need longer than
        GRACE_SECONDS are ended; after a second signal, all tasks are ended.
        """
        waiting = deque((task, 1) for task in tasks)
        answers: _Answers = queue.Queue()
        count = min(self.count, len(tasks))
        threads = max(_LEAST_THREADS, processors() // max(count, 1))
        workers = [_Worker(waiting, answers, threads) for _ in range(count)]
        try:
            left, arrived, deadline = count, 0, math.inf
            while left:
                if interrupts() > arrived:
                    deadline = time.monotonic() + (0 if arrived else GRACE_SECONDS)
                    arrived = interrupts()
                    waiting.clear()
                if deadline < math.inf:
                    for worker in workers:
                        if not worker.ends_before(deadline):
                            worker.end()
                try:
                    # With a timeout, as signals are handled between two waits.
                    answer = answers.get(timeout=_WAIT_SECONDS)
                except queue.Empty:
                    continue
                if isinstance(answer, BaseException):
                    raise answer
                if answer is None:
                    left -= 1
                else:
                    yield answer
        finally:
            for worker in workers:
                worker.end()


_Answers = queue.Queue[Answer | Progress | BaseException | None]
"""None is from a worker that has ended."""


class _Worker:
    """A process and the thread that feeds it."""

    def __init__(
        self,
        waiting: deque[tuple[Task, int]],
        answers: _Answers,
        threads: int,
    ) -> None:
        self._waiting, self._answers, self._threads = waiting, answers, threads
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._is_ended = False
        self._progress: Progress | None = None
        threading.Thread(target=self._serve, daemon=True).start()

    def end(self) -> None:
        """Kills the process, and starts no other."""
        with self._lock:
            self._is_ended = True
            if self._process is not None:
                self._process.kill()
                self._process.wait()

    def ends_before(self, deadline: float) -> bool:
        """Whether the worker will probably finish its task before the deadline."""
        progress, now = self._progress, time.monotonic()
        if progress is None or now >= deadline:
            return False
        left = progress.seconds * (1 / max(progress.portion, 1e-9) - 1)
        return now + left <= deadline

    def _serve(self) -> None:
        try:
            while not self._is_ended:
                try:
                    task, attempt = self._waiting.popleft()
                except IndexError:
                    break
                self._do(task, attempt)
            self._answers.put(None)
        except BaseException as error:
            self._answers.put(error)

    def _do(self, task: Task, attempt: int) -> None:
        process = self._started()
        if process is None:
            return
        assert process.stdin is not None
        assert process.stdout is not None
        began = time.monotonic()
        self._progress = None
        try:
            pickle.dump(task, process.stdin)
            process.stdin.flush()
            while isinstance(found := pickle.load(process.stdout), Underway):
                self._progress = Progress(task, found.portion, time.monotonic() - began)
                self._answers.put(self._progress)
        except (EOFError, OSError, pickle.UnpicklingError):
            self._lost(task, attempt, process)
            return
        self._answers.put(Answer(task, found))

    def _lost(self, task: Task, attempt: int, process: subprocess.Popen[bytes]) -> None:
        status = process.wait()
        self._process = None
        if self._is_ended:
            return
        if attempt < MOST_ATTEMPTS:
            self._waiting.append((task, attempt + 1))
            return
        how = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
        why = f"its process {how}, {MOST_ATTEMPTS} times in turn."
        self._answers.put(Answer(task, Failed(why)))

    def _started(self) -> subprocess.Popen[bytes] | None:
        with self._lock:
            if self._is_ended or self._process is not None:
                return None if self._is_ended else self._process
            self._process = subprocess.Popen(
                [sys.executable, "-m", "octavo.sweeps.worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                # Only the parent process handles the terminal's Ctrl-C.
                start_new_session=True,
                env={**os.environ, "RAYON_NUM_THREADS": str(self._threads)},
            )
            return self._process
