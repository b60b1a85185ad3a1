"""Estimates of the time and memory of a sweep, before and during the run."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import octavo._core as _core
from octavo.base.text import plural
from octavo.base.units import format_bytes, format_count, format_duration
from octavo.sweeps.data_set import DataSet
from octavo.sweeps.local import Progress
from octavo.sweeps.simulation import TraceContent
from octavo.sweeps.tasks import Task
from octavo.traces.by_name import SYNTHETIC as SYNTHETIC_NAME
from octavo.traces.by_name import open_trace, overview_of

ADDITIVE, OUT_OF_ORDER, SYNTHETIC, PYTHON = "additive", "out-of-order", "synthetic", "python"
_USUAL_NS = {ADDITIVE: 4.0, OUT_OF_ORDER: 18.0, SYNTHETIC: 30.0, PYTHON: 1000.0}
"""Nanoseconds per reference and simulation, by the main cause of the time; synthetic traces mostly
miss in TLBs. Measured on two cores; other traces and machines differ several times.
"""
_READING = 2
"""The number of simulations that take as long as reading the trace."""
_MAKING_SECONDS = 0.012
"""Time to make the machine of a simulation."""
_PRIOR_SECONDS = 1.0
"""Weight of the usual speed, as seconds of measured tasks; shorter tasks mostly measure the start.
"""
_USUAL_REFERENCES = 10**8
"""Assumed references of a trace of unknown length."""
_PROCESS_BYTES = 120 << 20
"""Memory of a worker before it simulates."""
_STARTING_SECONDS = 0.4


@dataclass(frozen=True)
class Estimate:
    """The remaining work, with its time and memory."""

    simulations: int
    there: int
    """Simulations that have results already."""
    tasks: int
    seconds: float | None
    """None where the length of a trace is not known before it is read."""
    memory_bytes: int
    """Upper bound of the memory of all workers at the start of their simulations."""
    is_measured: bool
    """Whether the time is based on simulations of this data set."""

    def sentence(self, where: str) -> str:
        """The estimate in words."""
        simulations = f"{format_count(self.simulations)} {plural(self.simulations, 'simulation')}"
        if not self.tasks:
            return f"{simulations}, there already: nothing is left to do."
        there = f", {format_count(self.there)} of them there already" if self.there else ""
        time = (
            "a time not known" if self.seconds is None else f"about {format_duration(self.seconds)}"
        )
        basis = "" if self.is_measured or self.seconds is None else " (by usual speeds)"
        return (
            f"{simulations}{there}: {time}{basis} on {where}, and "
            f"{format_bytes(self.memory_bytes)} of memory or more."
        )


class Speeds:
    """Estimates times of tasks: usual speeds, corrected by finished tasks. Tasks of the same trace
    and designs have most weight, then tasks of the same trace, then tasks with the same way of
    computing cycles, then all tasks.
    """

    def __init__(self, data_set: DataSet) -> None:
        """Reads the finished tasks from the journals of a data set."""
        self._lengths: dict[str, int | None] = {}
        self._read: dict[str, int] = {}
        self._likes: dict[int, tuple[Task, tuple[str, ...]]] = {}
        self._known: dict[tuple[Any, ...], tuple[float, float]] = {}
        for note in data_set.notes():
            if "failed" not in note and note["model"] == _core.MODEL:
                trace, count = note["trace"], note["simulations"]
                self._read[trace] = note["references"]
                kind, designs = note.get("kind"), note.get("designs")
                if isinstance(kind, str) and kind in _USUAL_NS and isinstance(designs, list):
                    usual = _usual(kind, count, note["references"])
                    like = (trace, kind, *map(str, designs))
                    _add_to(self._known, like, note["seconds"], usual)

    @property
    def is_measured(self) -> bool:
        """Whether any finished task is known."""
        return bool(self._known)

    def references(self, task: Task) -> int | None:
        """The length of a task's trace; None where it is not known before it is read."""
        trace = task.simulations[0].trace
        if trace.hash not in self._lengths:
            self._lengths[trace.hash] = self._read.get(trace.hash) or _length(trace)
        return self._lengths[trace.hash]

    def finished(self, task: Task, references: int, seconds: float) -> dict[str, Any]:
        """Adds a finished task; returns the facts about it for a journal."""
        trace, kind, *designs = like = self._like(task)
        self._lengths[trace] = references
        _add_to(self._known, like, seconds, self._usual(task))
        return {"kind": kind, "designs": designs}

    def of_tasks(
        self, tasks: Sequence[Task], under_way: Sequence[Progress] = ()
    ) -> Iterator[float]:
        """The seconds of each task; `under_way` adds the speeds of running tasks."""
        known = dict(self._known)
        for one in under_way:
            if one.portion > 0:
                usual = self._usual(one.task) * one.portion
                _add_to(known, self._like(one.task), one.seconds, usual)
        for task in tasks:
            ratio = 1.0
            for like in _classes(self._like(task)):
                seconds, usual = known.get(like, (0.0, 0.0))
                ratio = (seconds + ratio * _PRIOR_SECONDS) / (usual + _PRIOR_SECONDS)
            yield self._usual(task) * ratio

    def _like(self, task: Task) -> tuple[str, ...]:
        if id(task) not in self._likes:
            trace = task.simulations[0].trace.hash
            designs = sorted({one.design for one in task.simulations})
            self._likes[id(task)] = (task, (trace, _kind(task), *designs))
        return self._likes[id(task)][1]

    def _usual(self, task: Task) -> float:
        references = self.references(task) or _USUAL_REFERENCES
        return _usual(self._like(task)[1], len(task.simulations), references)


def _classes(like: tuple[str, ...]) -> list[tuple[str, ...]]:
    trace, kind = like[:2]
    return [(), ("", kind), (trace, kind), like]


def _add_to(
    known: dict[tuple[Any, ...], tuple[float, float]],
    like: tuple[str, ...],
    seconds: float,
    usual: float,
) -> None:
    for name in _classes(like):
        before = known.get(name, (0.0, 0.0))
        known[name] = (before[0] + seconds, before[1] + usual)


def _usual(kind: str, simulations: int, references: int) -> float:
    each = references * _USUAL_NS[kind] / 1e9
    return each * (simulations + _READING) + _MAKING_SECONDS * simulations


def _kind(task: Task) -> str:
    """The main cause of a task's time, a key of `_USUAL_NS`."""
    first = task.simulations[0]
    if first.python is not None:
        return PYTHON
    if all(one.uri.startswith(SYNTHETIC_NAME) for one in first.trace.files):
        return SYNTHETIC
    is_executed = json.loads(first.counting)["timing"] in ("auto", OUT_OF_ORDER)
    has_core = "pipeline" in json.loads(first.machine.numbers)["core"]
    return OUT_OF_ORDER if is_executed and has_core else ADDITIVE


def estimate(
    speeds: Speeds, tasks: Sequence[Task], simulations: int, there: int, workers: int
) -> Estimate:
    """The time and memory of tasks on a number of workers."""
    is_known = all(speeds.references(task) is not None for task in tasks)
    active = min(workers, len(tasks))
    total = sum(speeds.of_tasks(tasks))
    seconds = total / max(active, 1) + _STARTING_SECONDS if is_known else None
    largest = sorted((task.footprint_bytes for task in tasks), reverse=True)[:active]
    memory = sum(largest) + active * _PROCESS_BYTES
    return Estimate(simulations, there, len(tasks), seconds, memory, speeds.is_measured)


def seconds_left(
    speeds: Speeds, waiting: Sequence[Task], under_way: Sequence[Progress], workers: int
) -> float:
    """The remaining seconds of waiting and running tasks, on a number of workers."""
    whole = speeds.of_tasks([one.task for one in under_way], under_way)
    now = [seconds * (1 - one.portion) for seconds, one in zip(whole, under_way, strict=True)]
    later = list(speeds.of_tasks(waiting, under_way))
    return max([sum(now + later) / max(workers, 1), *now, *later])


def _length(trace: TraceContent) -> int | None:
    of_each = [references_of(one.uri) for one in trace.files]
    known = [length for length in of_each if length is not None]
    return sum(known) if len(known) == len(of_each) else None


def references_of(uri: str) -> int | None:
    """The references of a trace; None where its headers do not contain the number."""
    if uri.startswith(SYNTHETIC_NAME):
        return _synthetic_references(uri)
    if "://" in uri or not Path(uri).is_file():
        return None
    overview = overview_of(uri)
    if overview is None:
        return None
    return sum(chunk["references"] for chunk in overview["streams"])


def _synthetic_references(uri: str) -> int:
    """The references of a synthetic trace with instruction fetches, from its parameters."""
    note = open_trace(uri).facts()["notes"][0]
    made = parse_qs(note.partition("?")[2])
    return int(made["references"][0]) * (1 + int(made["instructions"][0]))
