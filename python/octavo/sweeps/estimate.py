"""The time and memory of a sweep, estimated before it begins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import octavo._core as _core
from octavo.base.text import plural
from octavo.base.units import format_bytes, format_count, format_duration
from octavo.sweeps.data_set import DataSet
from octavo.sweeps.simulation import TraceContent
from octavo.sweeps.tasks import Task
from octavo.traces.by_name import SYNTHETIC, open_trace, overview_of

_READING_NS, _SIMULATION_NS = 2.5, 6.0
"""Of a reference, where nothing is known yet: the means of docs/results/machine.md."""
_PROCESS_BYTES = 120 << 20
"""Of a worker before it simulates."""
_STARTING_SECONDS = 0.4


@dataclass(frozen=True)
class Estimate:
    """The work that is left, and its time and memory."""

    simulations: int
    there: int
    """Simulations whose results are there already."""
    tasks: int
    seconds: float | None
    """None where the length of a trace is not known before it is read."""
    memory_bytes: int
    """At most at the start of the simulations, by all workers together."""
    is_measured: bool
    """Whether the time rests on simulations of this data set."""

    def document(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "simulations": self.simulations,
            "there": self.there,
            "tasks": self.tasks,
            "seconds": self.seconds,
            "memory_bytes": self.memory_bytes,
            "is_measured": self.is_measured,
        }

    def sentence(self, where: str) -> str:
        """For people."""
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


def estimate(
    data_set: DataSet, tasks: Sequence[Task], simulations: int, there: int, workers: int
) -> Estimate:
    """The time and memory of tasks on so many workers."""
    nanoseconds, known = _measured(data_set)
    total: float | None = 0.0
    lengths: dict[str, int | None] = {}
    for task in tasks:
        trace = task.simulations[0].trace
        if trace.hash not in lengths:
            lengths[trace.hash] = known.get(trace.hash) or _length(trace)
        length = lengths[trace.hash]
        if length is None or total is None:
            total = None
            continue
        if nanoseconds is None:
            each = _READING_NS + _SIMULATION_NS * len(task.simulations)
        else:
            each = nanoseconds * len(task.simulations)
        total += length * each / 1e9
    active = min(workers, len(tasks))
    seconds = None if total is None else total / max(active, 1) + _STARTING_SECONDS
    largest = sorted((task.footprint_bytes for task in tasks), reverse=True)[:active]
    memory = sum(largest) + active * _PROCESS_BYTES
    measured = nanoseconds is not None
    return Estimate(simulations, there, len(tasks), seconds, memory, measured)


def _measured(data_set: DataSet) -> tuple[float | None, dict[str, int]]:
    """Nanoseconds of a reference and simulation, and the references of traces, by the journal."""
    seconds = work = 0.0
    known: dict[str, int] = {}
    for note in data_set.notes():
        if "failed" not in note and note["model"] == _core.MODEL:
            seconds += note["seconds"]
            work += note["references"] * note["simulations"]
            known[note["trace"]] = note["references"]
    return (seconds / work * 1e9 if work else None), known


def _length(trace: TraceContent) -> int | None:
    of_each = [references_of(one.uri) for one in trace.files]
    known = [length for length in of_each if length is not None]
    return sum(known) if len(known) == len(of_each) else None


def references_of(uri: str) -> int | None:
    """The references of a trace; None where its headers do not say."""
    if uri.startswith(SYNTHETIC):
        return _synthetic_references(uri)
    if "://" in uri or not Path(uri).is_file():
        return None
    overview = overview_of(uri)
    if overview is None:
        return None
    return sum(chunk["references"] for chunk in overview["streams"])


def _synthetic_references(uri: str) -> int:
    """With the fetches of instructions, by the parameters that the trace has when it is made."""
    note = open_trace(uri).facts()["notes"][0]
    made = parse_qs(note.partition("?")[2])
    return int(made["references"][0]) * (1 + int(made["instructions"][0]))
