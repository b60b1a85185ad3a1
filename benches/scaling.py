"""The rates at which one process plans a study, distributes its tasks and writes their tables, and
the sizes of tasks and tables, which limit the number of processors that a study can keep busy.

Run it on an otherwise idle machine, with a recorded trace: `.venv/bin/python benches/scaling.py
TRACE`.
"""

from __future__ import annotations

import argparse
import pickle
import tempfile
import time
from collections.abc import Iterable

from octavo.sweeps.data_set import DataSet
from octavo.sweeps.plan import crossed, resolve
from octavo.sweeps.tasks import Task, divide, run_task

DESIGNS = ("base4k", "thp")
VALUES = 160
EMPTY_TASKS = 2_000


def ray_seconds(task: Task) -> float:
    """Seconds of an empty task with the arguments of a real one, on a local Ray cluster."""
    import ray

    ray.init(logging_level="ERROR", log_to_driver=False)
    try:
        empty = ray.remote(lambda task: len(task.simulations))
        ray.get([empty.remote(task) for _ in range(20)])
        began = time.monotonic()
        ray.get([empty.remote(task) for _ in range(EMPTY_TASKS)])
        return (time.monotonic() - began) / EMPTY_TASKS
    finally:
        ray.shutdown()


def rows(trace: str) -> Iterable[tuple[str, str]]:
    """Names and values of the measurements."""
    began = time.monotonic()
    settings = [{"core.base_cpi": 0.5 + n / 1000} for n in range(VALUES)]
    combinations = list(crossed({"t": trace}, {"m": "skylake"}, DESIGNS, settings, (None,)))
    plan = resolve(combinations, {"t": trace}, {"m": "skylake"})
    simulations = plan.simulations
    yield "planned, simulations a second", f"{len(simulations) / (time.monotonic() - began):.0f}"
    task = divide(simulations)[0]
    count = len(task.simulations)
    yield "simulations of a task", str(count)
    yield "a task, pickled", f"{len(pickle.dumps(task)) / 1024:.1f} KiB"
    began = time.monotonic()
    finished = run_task(task)
    seconds = time.monotonic() - began
    yield "a task, all processors of this machine", f"{seconds:.1f} s"
    yield "its tables, pickled", f"{len(pickle.dumps(finished)) / 1024:.0f} KiB"
    with tempfile.TemporaryDirectory(prefix="octavo-bench-") as name:
        data = DataSet(name)
        began = time.monotonic()
        for one in task.simulations:
            data.write(one, finished.tables[one.key])
        written = count / (time.monotonic() - began)
    yield "written, simulations a second", f"{written:.0f}"
    yield "tasks through Ray, a second", f"{1 / ray_seconds(task):.0f}"


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("trace")
    print("| measured | value |\n| --- | ---: |")
    for name, value in rows(parser.parse_args().trace):
        print(f"| {name} | {value} |", flush=True)


if __name__ == "__main__":
    main()
