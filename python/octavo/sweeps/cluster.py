"""Runs tasks on a Ray cluster, whose nodes have the same Octavo installed.

A task goes to any node with a free processor and enough memory. Ray repeats it if its node is lost,
which is safe, as its tables depend on the task alone. The number of tasks in flight is limited, so
that neither the scheduler nor the object store fills up, and tables are taken as they arrive.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import octavo._core as _core
from octavo.base.errors import CannotRun, UsageError
from octavo.base.text import plural
from octavo.sweeps.local import Answer, never
from octavo.sweeps.tasks import Failed, Finished, Task
from octavo.sweeps.worker import answer

_UNDER_WAY = 2
"""Tasks in flight per processor: one that runs and one that waits."""
_MOST_RETRIES = 5
"""Limit of repetitions of a task whose node or process is lost."""
_PROCESS_BYTES = 200 << 20
"""Memory of a process before it simulates."""
_WAIT_SECONDS = 0.5


class RayWorkers:
    """The processors of a Ray cluster."""

    def __init__(self, address: str | None) -> None:
        """Connects to the cluster at `address`; without that, `ray.init()` finds or starts one.
        Raises OctavoError.
        """
        try:
            import ray
        except ImportError:
            raise UsageError("--on ray needs Ray: pip install 'octavo[ray]'.") from None
        self._ray: Any = ray
        if not self._ray.is_initialized():
            try:
                self._ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
            except Exception as error:
                first = str(error).splitlines()[0] if str(error) else type(error).__name__
                raise CannotRun(f"no Ray cluster at {address or 'hand'}: {first}") from None
        self.count = self._processors()

    def describe(self) -> str:
        """The processors and nodes, as part of a sentence."""
        nodes = sum(node["Alive"] for node in self._ray.nodes())
        workers = f"{self.count} {plural(self.count, 'processor')}"
        return f"{workers} of {nodes} Ray {plural(nodes, 'node')}"

    def run(self, tasks: Sequence[Task], interrupts: Callable[[], int] = never) -> Iterator[Answer]:
        """The answers to the tasks, as they arrive. The end of the iteration, or a signal, cancels
        the other tasks.
        """
        ray = self._ray
        remote = ray.remote(_answer)
        waiting = list(reversed(tasks))
        under_way: dict[Any, Task] = {}
        try:
            while waiting or under_way:
                while waiting and len(under_way) < _UNDER_WAY * self._processors():
                    task = waiting.pop()
                    options = remote.options(
                        num_cpus=1,
                        memory=task.footprint_bytes + _PROCESS_BYTES,
                        max_retries=_MOST_RETRIES,
                        scheduling_strategy="SPREAD",
                        runtime_env={"env_vars": {"RAYON_NUM_THREADS": "1"}},
                    )
                    under_way[options.remote(task, _core.MODEL)] = task
                is_last = interrupts() > 0
                count, timeout = (len(under_way), 0) if is_last else (1, _WAIT_SECONDS)
                done, _ = ray.wait(list(under_way), num_returns=count, timeout=timeout)
                for reference in done:
                    yield self._answered(under_way.pop(reference), reference)
                if is_last:
                    return
        finally:
            for reference in under_way:
                ray.cancel(reference, force=True)

    def _processors(self) -> int:
        """The processors of the present nodes, which may change during a sweep."""
        return max(int(self._ray.cluster_resources().get("CPU", 0)), 1)

    def _answered(self, task: Task, reference: Any) -> Answer:
        try:
            found = self._ray.get(reference)
        except self._ray.exceptions.RayError as error:
            lines = str(error).strip().splitlines()
            found = Failed(f"Ray: {lines[-1] if lines else type(error).__name__}")
        return Answer(task, found)


def _answer(task: Task, model: str) -> Finished | Failed:
    """Runs a task on a node, unless the node has another version of the model."""
    if model != _core.MODEL:
        return Failed(
            f"a node has another model of machines ({_core.MODEL}) than the driver ({model})."
        )
    return answer(task)
