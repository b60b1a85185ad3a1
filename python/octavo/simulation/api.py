"""`octavo.sim`: one call from a command line, or a trace, to the result of a simulation: the
manifest, each design's counters, and rows of all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from octavo._core import LiveRun
from octavo.base.metrics import rated_instructions
from octavo.base.table import arrow_table
from octavo.hardware.machines import Setting
from octavo.simulation.configuration import (
    DEFAULT_DESIGNS,
    DEFAULT_MACHINE,
    SimConfiguration,
    configure_sim,
)
from octavo.simulation.execution_time import (
    HUGE,
    MEASURED_SOURCE,
    SIMULATED_SOURCE,
    ExecutionTime,
    simulated_time,
)
from octavo.simulation.model import Simulated, simulated, summed
from octavo.simulation.rows import COLUMNS, SimRow, rows_of, time_rows
from octavo.tracing.manifest import Circumstances, Finished, build_manifest
from octavo.tracing.replay import check_counted, replay_trace
from octavo.tracing.run import means_traces, trace_program

if TYPE_CHECKING:
    import pyarrow as pa

    from octavo._core import Progress, SharedMachines, SimProcess, TraceProgress
    from octavo._core import SimResult as CoreResult
    from octavo.tracing.session import Run

SCHEMA = "octavo/sim/1"


@dataclass(frozen=True)
class SimResult(Finished):
    """A finished simulation."""

    configuration: SimConfiguration
    counted: CoreResult
    """As the extension gave it."""

    @property
    def is_shared(self) -> bool:
        """Whether processes shared machines."""
        return "shared" in self.counted

    @cached_property
    def by_process(self) -> list[list[Simulated]]:
        """The results of each design for each process image; empty if they shared machines."""
        cpi = self.configuration.base_cpi
        if self.is_shared:
            return [[] for _ in self.counted["processes"]]
        return [
            [
                simulated(machine, _rated(process), process["references"], cpi)
                for machine in process["machines"]
            ]
            for process in self.counted["processes"]
        ]

    @cached_property
    def total(self) -> list[Simulated]:
        """The results of each design for the whole program."""
        if self.is_shared:
            shared = self.counted["shared"]
            cpi = self.configuration.base_cpi
            return [
                simulated(machine, _rated(shared), shared["references"], cpi)
                for machine in shared["machines"]
            ]
        if len(self.by_process) == 1:
            return self.by_process[0]
        return [summed(one) for one in zip(*self.by_process, strict=True)]

    @property
    def lived(self) -> list[Simulated]:
        """The results whose intervals are shown: of all processes if shared, else of one."""
        return self.total if self.is_shared else self.by_process[self.main]

    @property
    def main(self) -> int:
        """The place of the process image that did most."""
        processes = self.counted["processes"]
        return max(range(len(processes)), key=lambda at: processes[at]["references"])

    def design(self, name: str) -> Simulated:
        """The results of a design for the whole program. Raises KeyError."""
        return {one.design: one for one in self.total}[name]

    def times(self) -> Iterator[tuple[str, list[ExecutionTime | None]]]:
        """Execution times by design, by where they come from: `simulated`, then `measured`."""
        yield SIMULATED_SOURCE, [simulated_time(one) for one in self.total]
        measured = self.configuration.measured
        if measured is not None:
            yield MEASURED_SOURCE, [measured.time(one, self.design(HUGE)) for one in self.total]

    @cached_property
    def rows(self) -> list[SimRow]:
        """Every number."""
        counted = self.counted
        untraced = counted["untraced_processes"]
        shared = counted.get("shared")
        rows = rows_of(counted["processes"], self.by_process, self.total, untraced, shared)
        return [*rows, *time_rows(self.configuration.designs, self.times())]

    def table(self) -> pa.Table:
        """The rows as an Arrow table (what rows.parquet holds)."""
        return arrow_table(self.rows, COLUMNS)

    def document(self) -> dict[str, Any]:
        """The JSON document; docs/sim.schema.json describes it."""
        return {"schema": SCHEMA, "run": self.manifest, "rows": self.rows}


def _rated(counts: SimProcess | SharedMachines) -> int:
    return rated_instructions(counts["instructions"], counts["references"])


VERB = "sim"
NO_MAPPINGS_NOTE = (
    "The trace records no mappings: all addresses are treated as one mapping of anonymous memory, "
    "which pages of any size suit."
)


def sim(
    command: Sequence[str] | str,
    machine: str = DEFAULT_MACHINE,
    designs: Sequence[str] = DEFAULT_DESIGNS,
    settings: Mapping[str, Setting] | Sequence[str] = (),
    *,
    format: str | None = None,
    tracer: str | None = None,
    follow_children: bool | None = None,
    on_progress: Callable[[Any], None] | None = None,
    **choices: Any,
) -> SimResult:
    """Runs a program, or reads a trace, on machines of several designs side by side.

    >>> result = octavo.sim("gzip.oct", "skylake", ["base4k", "thp"])  # doctest: +SKIP
    >>> result.design("thp").translation_share  # doctest: +SKIP

    `machine` is a preset or a TOML file, which `settings` change, as `{"memory.bytes": "8GiB"}`.
    Of the `choices`, `cores` is how many cores it has, on which threads are placed; `virtualised`
    runs programs in the guest of a virtual machine, and so does `host_policy`, the policy of page
    sizes of its host, as "thp"; else that is each design's own; `warm_up` instructions are
    simulated and not counted; there is a row of each counter for every `interval` instructions;
    `check` compares each translation with the page table's; `perf_4k` and `perf_thp` are files of
    `perf stat -x,` of the program without and with transparent huge pages, for an execution time
    from measurements; with `processes` "asid" or "flush" the processes of the traces share a core
    with a quantum of `quantum` instructions. `layout`, `skip_instructions`, `max_instructions` and
    `between_marks` are as of `octavo.run`.
    Raises OctavoError with one clear sentence.
    """
    words = [command] if isinstance(command, str) else command
    is_trace = means_traces(
        words,
        processes=choices.get("processes", "apart"),
        format=format,
        tracer=tracer,
        follow_children=follow_children,
        verb=VERB,
    )
    configuration = configure_sim(
        machine=machine,
        designs=designs,
        settings=settings,
        tracer=tracer or "octavo",
        follow_children=follow_children is not False,
        **choices,
    )
    show = on_progress or (lambda progress: None)
    if is_trace:
        return execute_sim_of_trace(words, configuration, show, format)
    return execute_sim(words, configuration, show)


def execute_sim(
    command: Sequence[str],
    configuration: SimConfiguration,
    on_progress: Callable[[Progress], None],
    make_run: Callable[..., Run[CoreResult]] = LiveRun,
) -> SimResult:
    """Runs a resolved configuration; `make_run` lets tests put their own tracer in place."""
    result, circumstances = trace_program(
        command, configuration, configuration.analysis, on_progress, make_run=make_run, verb=VERB
    )
    return _finished(result, configuration, circumstances)


def execute_sim_of_trace(
    names: Sequence[str],
    configuration: SimConfiguration,
    on_progress: Callable[[TraceProgress], None],
    format: str | None = None,
) -> SimResult:
    """Reads a trace, or several, to the end, or as far as it can be read. Raises OctavoError."""
    result, circumstances = replay_trace(
        names, configuration, configuration.analysis, on_progress, format
    )
    if "shared" in result:
        # Processes that shared machines warmed up together: each counts what was not their warm-up.
        references, stopped_by = result["shared"]["references"], circumstances.interrupted_by
        check_counted(", ".join(names), references, result["exit"], configuration, stopped_by)
    return _finished(result, configuration, circumstances)


def _finished(
    result: CoreResult, configuration: SimConfiguration, circumstances: Circumstances
) -> SimResult:
    manifest = build_manifest(result, circumstances)
    if not any(process["mapped"] for process in result["processes"]):
        manifest["notes"].append(NO_MAPPINGS_NOTE)
    return SimResult(manifest, configuration, result)
