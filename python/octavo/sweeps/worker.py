"""A worker process of a sweep: reads tasks from standard input, and writes their outcomes to
standard output, until its input ends. It ends with the process that started it.
"""

from __future__ import annotations

import os
import pickle
import queue
import sys
import threading
import time
import traceback
from collections.abc import Callable

from octavo._core import OctavoError
from octavo.sweeps.tasks import Failed, Finished, Task, Underway, run_task

_PROGRESS_EVERY_SECONDS = 0.5


def main() -> None:
    """Serves until the input ends."""
    answers = os.fdopen(os.dup(1), "wb")
    # Output of libraries goes to standard error, so that it does not mix with the answers.
    os.dup2(2, 1)
    tasks: queue.Queue[Task] = queue.Queue()
    threading.Thread(target=_read, args=(tasks,), daemon=True).start()

    def send(found: Finished | Failed | Underway) -> None:
        pickle.dump(found, answers)
        answers.flush()

    while True:
        try:
            send(answer(tasks.get(), paced(send)))
        except BrokenPipeError:
            return


def _read(tasks: queue.Queue[Task]) -> None:
    try:
        while True:
            tasks.put(pickle.load(sys.stdin.buffer))
    except EOFError:
        # The parent has ended, so the result of the present task is not needed.
        os._exit(0)


def paced(send: Callable[[Underway], None]) -> Callable[[Underway], None]:
    """A listener that sends the progress of a task from time to time, and always the end."""
    last = time.monotonic()

    def show(progress: Underway) -> None:
        nonlocal last
        now = time.monotonic()
        if progress.portion >= 1 or now - last >= _PROGRESS_EVERY_SECONDS:
            last = now
            send(progress)

    return show


def answer(
    task: Task, on_progress: Callable[[Underway], None] = lambda progress: None
) -> Finished | Failed:
    """The outcome of a task, its tables or its failure."""
    try:
        return run_task(task, on_progress)
    except OctavoError as error:
        cause = error.__cause__
        return Failed(str(error), "".join(traceback.format_exception(cause)) if cause else "")
    except Exception as error:
        return Failed(f"a bug in Octavo ({type(error).__name__}: {error}).")


if __name__ == "__main__":
    main()
