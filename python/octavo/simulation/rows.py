"""Rows of a simulation: one flat list of plain records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, TypedDict

from octavo.analysis.rows import event_counts, summed_counters
from octavo.base.table import columns_of
from octavo.simulation.execution_time import ExecutionTime
from octavo.simulation.linear_models import LinearModel
from octavo.simulation.model import Counts, Simulated

if TYPE_CHECKING:
    from octavo._core import SharedMachines, SimProcess


class SimRow(TypedDict, total=False):
    """One row; a column that does not apply is absent. Sizes are bytes."""

    process: Annotated[int, "int32"]
    """Stream number of the process; absent where the row is about all processes."""
    design: str
    """Absent where the row is about the stream, which all designs share."""
    interval: Annotated[int, "int32"]
    """Number of the interval, from 0; absent where the row is about the whole."""
    component: str
    counter: str
    value: int


COLUMNS = columns_of(SimRow)
"""The columns of rows.parquet and their Arrow types, the same for every run."""


def rows_of(
    processes: Sequence[SimProcess],
    by_process: Sequence[Sequence[Simulated]],
    total: Sequence[Simulated],
    untraced: int,
    shared: SharedMachines | None = None,
) -> Iterator[SimRow]:
    """The rows of the whole program, then of each process where there are several. Intervals belong
    to a process; they belong to the whole program if it has one process, or if all processes share
    machines. `shared` has the counts after the warm-up of shared machines.
    """
    yield from _stream_rows(processes, shared)
    yield SimRow(component="stream", counter="processes", value=len(processes))
    yield SimRow(component="stream", counter="untraced_processes", value=untraced)
    for one in total:
        yield from _whole_rows(one, SimRow(design=one.design))
    several = len(processes) > 1
    if not any(by_process):
        yield from _interval_rows(total, SimRow())
    for process, designs in zip(processes, by_process, strict=True):
        key = SimRow(process=process["stream"]) if several else SimRow()
        if several:
            for row in _stream_rows([process]):
                yield {**key, **row}
            for one in designs:
                yield from _whole_rows(one, {**key, "design": one.design})
        yield from _interval_rows(designs, key)


def _whole_rows(one: Simulated, key: SimRow) -> Iterator[SimRow]:
    """The counters of a design, with instructions and cycles where no core counted them. A design
    that stopped has none of these two, since the stream went on.
    """
    yield from _counter_rows(one.counts, key)
    if one.instructions and not one.is_timed and one.stopped is None:
        core = {("core", "instructions"): one.instructions, ("core", "cycles"): round(one.cycles)}
        yield from _counter_rows(core, key)


def _interval_rows(designs: Sequence[Simulated], key: SimRow) -> Iterator[SimRow]:
    for one in designs:
        for number, counts in enumerate(one.intervals):
            yield from _counter_rows(counts, {**key, "design": one.design, "interval": number})


def time_rows(
    designs: Sequence[str], times: Iterable[tuple[str, Sequence[ExecutionTime | None]]]
) -> Iterator[SimRow]:
    """Execution times in whole cycles, by source of the terms."""
    for source, of_designs in times:
        for design, time in zip(designs, of_designs, strict=True):
            for name, cycles in ({} if time is None else time.terms()).items():
                yield SimRow(
                    design=design,
                    component=f"execution_time.{source}",
                    counter=f"{name.lower()}_cycles",
                    value=round(cycles),
                )


def model_rows(models: Iterable[LinearModel]) -> Iterator[SimRow]:
    """The predictions of linear models of the literature for each design, in whole cycles."""
    for model in models:
        for design, cycles in model.cycles.items():
            yield SimRow(
                design=design, component="linear_models", counter=model.key, value=round(cycles)
            )


def _stream_rows(
    processes: Sequence[SimProcess], shared: SharedMachines | None = None
) -> Iterator[SimRow]:
    warm: Mapping[str, Any] = shared or {}
    for counter, value in summed_counters(processes).items():
        yield SimRow(component="stream", counter=counter, value=warm.get(counter, value))
    for name, number in event_counts(processes):
        yield SimRow(component="stream.events", counter=name, value=number)


def _counter_rows(counts: Counts, key: SimRow) -> Iterator[SimRow]:
    for (component, counter), value in counts.items():
        yield {**key, "component": component, "counter": counter, "value": value}
