"""Tasks, the unit of work of a sweep: simulations that one reading of a trace can feed, and the
function that makes their tables. A task is plain data, and its tables depend on it alone.
"""

from __future__ import annotations

import json
import os
import pickle
import time
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, cast

import octavo._core as _core
from octavo.base.errors import CannotRun
from octavo.base.table import arrow_schema
from octavo.simulation.api import SimResult, check_shared
from octavo.simulation.configuration import configure_sim
from octavo.simulation.model import Simulated
from octavo.sweeps.content import local_trace
from octavo.sweeps.simulation import Simulation
from octavo.tracing.replay import replay_trace

if TYPE_CHECKING:
    import pyarrow as pa

    from octavo._core import SimResult as CoreResult
    from octavo.simulation.configuration import SimConfiguration
    from octavo.simulation.python_design import Design

MOST_SIMULATIONS = 32
"""Limit of simulations in a task: more would save little decoding, and lose more in a kill."""
METADATA = b"octavo"
"""The key of the metadata of a table: JSON."""
COLUMNS = {
    "key": "string",
    "model": "string",
    "trace_hash": "string",
    "machine_hash": "string",
    "design": "string",
    "process": "int32",
    "interval": "int32",
    "component": "string",
    "counter": "string",
    "value": "int64",
}
"""The columns of a result: labels, and the columns of `octavo.simulation.rows`."""
_WHOLE = ("exited", "signalled", "limit")
"""Reasons of the end of a trace that was read completely, or up to the requested end."""
_PER = 1000


class Compressed:
    """A data class that is compressed when pickled, as machines and tables are repetitive."""

    def __reduce__(self) -> tuple[Any, ...]:
        values = tuple(getattr(self, field.name) for field in fields(cast(Any, self)))
        return _decompressed, (type(self), zlib.compress(pickle.dumps(values), level=1))


def _decompressed(kind: type[Any], values: bytes) -> Any:
    return kind(*pickle.loads(zlib.decompress(values)))


@dataclass(frozen=True)
class Task(Compressed):
    """Simulations that share the reading of a trace."""

    simulations: tuple[Simulation, ...]

    @property
    def footprint_bytes(self) -> int:
        """An upper bound of the memory of its machines at the start."""
        return sum(one.machine.footprint_bytes for one in self.simulations)


@dataclass(frozen=True)
class Finished(Compressed):
    """The outcome of a successful task."""

    tables: dict[str, pa.Table]
    """Tables by the key of the simulation."""
    references: int
    """References read from the trace."""
    seconds: float
    """The task's time, with the making of machines and tables."""


@dataclass(frozen=True)
class Underway:
    """The progress of a task."""

    portion: float
    """The share of its trace that has been simulated."""


@dataclass(frozen=True)
class Failed:
    """The outcome of a failed task."""

    why: str
    """The reason, a sentence."""
    traceback: str = ""
    """The traceback of an error in a user's design."""


def divide(simulations: Iterable[Simulation], most_bytes: int | None = None) -> list[Task]:
    """Tasks for simulations, in the order of their traces. Simulations that can share one reading
    of a trace are one task, up to `MOST_SIMULATIONS`, unless they take more than `most_bytes`
    together. A design in Python has tasks of its own, so that its errors are not another design's.
    """
    groups: dict[tuple[Any, ...], list[Simulation]] = defaultdict(list)
    for one in simulations:
        groups[one.trace, one.machine.stream, one.counting, one.python].append(one)
    tasks = []
    for group in groups.values():
        pieces = max(-(-len(group) // MOST_SIMULATIONS), 1)
        if most_bytes:
            whole = Task(tuple(group)).footprint_bytes
            pieces = min(max(pieces, -(-whole // most_bytes)), len(group))
        tasks += [Task(tuple(group[at::pieces])) for at in range(pieces)]
    return tasks


def run_task(
    task: Task, on_progress: Callable[[Underway], None] = lambda progress: None
) -> Finished:
    """Runs a task; the same task gives the same tables on any machine. Raises OctavoError."""
    began = time.monotonic()
    first = task.simulations[0]
    counting = json.loads(first.counting)
    design = first.python and first.python.load()
    configurations = [_configured(one, design or one.design, counting) for one in task.simulations]
    analysis = _core.Analysis.together([one.core_analysis for one in configurations])
    traces = [local_trace(one.uri, one.hash) for one in first.trace.files]
    counted, _ = replay_trace(
        traces,
        configurations[0],
        lambda: analysis,
        simulated_portion(on_progress),
        first.trace.format,
    )
    on_progress(Underway(1.0))
    analysis.raise_failure()
    names = ", ".join(one.uri for one in first.trace.files)
    if counted["exit"]["reason"] not in _WHOLE:
        reason = counted["exit"]["diagnostics"].rstrip(".") or counted["exit"]["reason"]
        raise CannotRun(f"`{names}`: {reason}.")
    check_shared(names, counted, configurations[0])
    tables = {}
    for at, one in enumerate(task.simulations):
        configuration = replace(configurations[at], designs=(one.design,))
        tables[one.key] = _table(one, SimResult({}, configuration, _alone(counted, at)))
    references = sum(process["references"] for process in counted["processes"])
    return Finished(tables, references, time.monotonic() - began)


def simulated_portion(
    on_progress: Callable[[Underway], None],
) -> Callable[[Mapping[str, Any]], None]:
    """A listener to the reading of a trace that reports the simulated share. The last block that
    was read still waits to be simulated, so the share before it is reported.
    """
    portions = [0.0, 0.0]

    def show(read: Mapping[str, Any]) -> None:
        portion = read["done"] / read["total"] if read["total"] else 0.0
        if portion > portions[1]:
            portions[:] = portions[1], portion
        on_progress(Underway(portions[0]))

    return show


def _configured(
    simulation: Simulation, design: str | type[Design], counting: Mapping[str, Any]
) -> SimConfiguration:
    # A memfd needs no removal if the process is killed.
    with os.fdopen(os.memfd_create("machine"), "w", encoding="utf-8") as file:
        file.write(simulation.machine.toml)
        file.flush()
        machine = f"/proc/self/fd/{file.fileno()}"
        return configure_sim(machine=machine, designs=(design,), **counting)


def _alone(counted: CoreResult, at: int) -> CoreResult:
    """The counts of one of several simulations."""

    def of_one(part: Any) -> Any:
        return {**part, "machines": part["machines"][at : at + 1]}

    alone = {**counted, "processes": [of_one(process) for process in counted["processes"]]}
    if "shared" in counted:
        alone["shared"] = of_one(counted["shared"])
    return cast("CoreResult", alone)


def _table(simulation: Simulation, result: SimResult) -> pa.Table:
    import pyarrow as pa

    fixed = {
        "key": simulation.key,
        "model": _core.MODEL,
        "trace_hash": simulation.trace.hash,
        "machine_hash": simulation.machine.hash,
        "design": simulation.design,
    }
    rows = [{**fixed, **row, "design": simulation.design} for row in result.rows]
    (total,) = result.total
    about = {
        "resolved": simulation.resolved,
        "stopped": total.stopped,
        "is_bound": total.is_bound,
        "metrics": dict(_metrics(total)),
    }
    schema = arrow_schema(COLUMNS).with_metadata({METADATA: json.dumps(about, sort_keys=True)})
    return pa.Table.from_pylist(rows, schema=schema)


def _metrics(total: Simulated) -> Iterator[tuple[str, float | None]]:
    """The metrics that most comparisons use; None where one is undefined."""
    instructions = total.instructions if total.stopped is None else 0
    yield "instructions", total.instructions
    yield "references", total.references
    yield "cycles", total.cycles if instructions else None
    yield "translation_cycles", total.lost_cycles if instructions else None
    yield "translation_share", total.translation_share if instructions else None
    yield "walk_cycles", total.walk_cycles
    yield "walks", total.walks
    yield "walks_per_1000_instructions", _rate(total.walks, instructions)
    for level in ("l1i", "l1d", "l2"):
        name = f"tlb_{level}_misses_per_1000_instructions"
        yield name, _rate(total.misses(level), instructions)
    yield "references_per_walk", total.references_per_walk
    yield "memory_bytes", total.memory_bytes


def _rate(count: int | None, instructions: int) -> float | None:
    return None if count is None or not instructions else count * _PER / instructions


METRICS = tuple(
    name for name, _ in _metrics(Simulated("", {}, instructions=0, references=0, base_cpi=0.0))
)
"""The names of the metrics, in order."""
