"""A worker process of a sweep: takes tasks from standard input, and gives what came of them to
standard output, until its input ends. It dies with the process that started it.
"""

from __future__ import annotations

import os
import pickle
import queue
import sys
import threading
import traceback

from octavo._core import OctavoError
from octavo.sweeps.tasks import Failed, Finished, Task, run_task


def main() -> None:
    """Serves until the input ends."""
    answers = os.fdopen(os.dup(1), "wb")
    # The output of libraries must not get between the answers.
    os.dup2(2, 1)
    tasks: queue.Queue[Task] = queue.Queue()
    threading.Thread(target=_read, args=(tasks,), daemon=True).start()
    while True:
        found = answer(tasks.get())
        try:
            pickle.dump(found, answers)
            answers.flush()
        except BrokenPipeError:
            return


def _read(tasks: queue.Queue[Task]) -> None:
    try:
        while True:
            tasks.put(pickle.load(sys.stdin.buffer))
    except EOFError:
        # The task in hand has no use any more.
        os._exit(0)


def answer(task: Task) -> Finished | Failed:
    """The tables of a task, or why there are none."""
    try:
        return run_task(task)
    except OctavoError as error:
        cause = error.__cause__
        return Failed(str(error), "".join(traceback.format_exception(cause)) if cause else "")
    except Exception as error:
        return Failed(f"a bug in Octavo ({type(error).__name__}: {error}).")


if __name__ == "__main__":
    main()
