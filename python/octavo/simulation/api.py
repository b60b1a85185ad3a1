"""`octavo.sim`: runs a program, or reads a trace, and returns the result of a simulation: the
manifest, the counters of each design, and the rows.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from octavo.base.arguments import keywords_of, with_checked_names
from octavo.base.metrics import rated_instructions
from octavo.base.progress import OnProgress
from octavo.base.table import arrow_table
from octavo.base.text import quoted
from octavo.hardware.machines import Setting
from octavo.simulation.configuration import (
    ADDITIVE,
    DEFAULT_DESIGNS,
    DEFAULT_MACHINE,
    OVERLAPPED,
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
from octavo.simulation.linear_models import linear_models
from octavo.simulation.model import Simulated, simulated, stop_notes, summed
from octavo.simulation.python_design import Design
from octavo.simulation.rows import COLUMNS, SimRow, model_rows, rows_of, time_rows
from octavo.simulation.steadiness import steadiness_notes
from octavo.simulation.timing import Timing, choose_timing
from octavo.simulation.unused_settings import unused_settings
from octavo.tracing.engine import Engine, EngineResult
from octavo.tracing.manifest import Circumstances, build_manifest, of_what_ran
from octavo.tracing.replay import check_counted
from octavo.tracing.scope import resolve_scope

if TYPE_CHECKING:
    import pyarrow as pa

    from octavo._core import MachineCounts, SharedMachines, SimProcess
    from octavo._core import SimResult as CoreResult

SCHEMA = "octavo/sim/1"


@dataclass(frozen=True, repr=False)
class SimResult(EngineResult[SimConfiguration, "CoreResult"]):
    """A finished simulation."""

    @cached_property
    def by_process(self) -> list[list[Simulated]]:
        """The results of each design for each process image; empty if they shared machines."""
        if self.is_shared:
            return [[] for _ in self.counted["processes"]]
        return [
            [self._simulated(machine, process) for machine in process["machines"]]
            for process in self.counted["processes"]
        ]

    @cached_property
    def total(self) -> list[Simulated]:
        """The results of each design for the whole program."""
        if self.is_shared:
            shared = self.counted["shared"]
            return [self._simulated(machine, shared) for machine in shared["machines"]]
        if len(self.by_process) == 1:
            return self.by_process[0]
        return [summed(one) for one in zip(*self.by_process, strict=True)]

    def _simulated(self, machine: MachineCounts, owner: SimProcess | SharedMachines) -> Simulated:
        overlaps = self.configuration.timing == OVERLAPPED
        references = owner["references"]
        instructions = rated_instructions(owner["instructions"], references)
        cpi = self.configuration.base_cpi
        return simulated(machine, instructions, references, cpi, overlaps_walks=overlaps)

    @property
    def lived(self) -> list[Simulated]:
        """The results with intervals: of all processes if these share machines, else of one."""
        return self.total if self.is_shared else self.by_process[self.main]

    @cached_property
    def timing(self) -> Timing:
        """The way in which cycles were computed, and the reason for it."""
        has_dependences = any(process["dependences"] for process in self.counted["processes"])
        return choose_timing(self.configuration, has_dependences=has_dependences)

    def unused_settings(self) -> Iterator[str]:
        """A sentence for each setting of the machine that has no effect, with the reason."""
        return unused_settings(self.configuration, self.timing)

    def steadiness_notes(self) -> Iterator[str]:
        """A sentence where the intervals say that the program changes over time."""
        every = self.configuration.interval_instructions
        return iter(()) if every is None else steadiness_notes(self.lived, every)

    @property
    def failure(self) -> str | None:
        """A sentence where Octavo could not do its part, also where no design counted anything."""
        first = self.total[0]
        if any(one.has_counted for one in self.total):
            return super().failure
        return super().failure or f"no design counted anything; {first.design}: {first.stopped}."

    def design(self, name: str) -> Simulated:
        """The results of a design for the whole program. Raises KeyError."""
        designs = {one.design: one for one in self.total}
        if name not in designs:
            raise KeyError(f"no design `{quoted(name)}` in the result, but {', '.join(designs)}")
        return designs[name]

    def times(self) -> Iterator[tuple[str, list[ExecutionTime | None]]]:
        """Execution times by design, for each source of times: `simulated`, then `measured`."""
        if self.timing.name == ADDITIVE:
            yield SIMULATED_SOURCE, [simulated_time(one) for one in self.total]
        measured = self.configuration.measured
        if measured is not None:
            yield MEASURED_SOURCE, [measured.time(one, self.design(HUGE)) for one in self.total]

    @cached_property
    def rows(self) -> list[SimRow]:
        """All rows."""
        counted = self.counted
        untraced = counted["untraced_processes"]
        shared = counted.get("shared")
        rows = rows_of(counted["processes"], self.by_process, self.total, untraced, shared)
        times = time_rows(self.configuration.designs, self.times())
        return [*rows, *times, *model_rows(linear_models(self.total))]

    def table(self) -> pa.Table:
        """The rows as an Arrow table (what rows.parquet holds)."""
        return arrow_table(self.rows, COLUMNS)

    def headline(self) -> str:
        """The trace or program, the amount simulated, the machine and the designs."""
        from octavo.simulation.view import headline

        designs = ", ".join(self.configuration.designs)
        return (
            f"{self.subject} on {self.configuration.machine['name']}: {headline(self)}; {designs}"
        )

    def conclusion(self) -> str:
        """The design to choose, with the reason."""
        from octavo.simulation.choice import sentence

        return of_what_ran(sentence(self.total, self._kernel_cycles), self.manifest)

    @property
    def _kernel_cycles(self) -> float:
        """Cycles of the machine's core for the system calls of the counted part; 0 if unknown."""
        pipeline = self.configuration.machine["core"].get("pipeline")
        seconds = self.configuration.kernel_seconds(self.counted["processes"])
        if pipeline is None or seconds is None or not self.total[0].instructions:
            return 0.0
        warmed_up = 1 if self.is_shared else len(self.counted["processes"])
        warm_up = self.configuration.warm_up_instructions * warmed_up
        part = self.total[0].instructions / (self.total[0].instructions + warm_up)
        return float(seconds * part * pipeline["frequency_ghz"] * 1e9)

    def document(self) -> dict[str, Any]:
        """The JSON document; docs/sim.schema.json describes it."""
        return {"schema": SCHEMA, "run": self.manifest, "rows": self.rows}


NO_MAPPINGS_NOTE = (
    "The trace records no mappings: all addresses are treated as one mapping of anonymous memory, "
    "in which pages of every size can be used."
)


def check_shared(
    names: str,
    result: CoreResult,
    configuration: SimConfiguration,
    interrupted_by: int | None = None,
) -> None:
    """Refuses a result in which shared machines have counted nothing, as where the traces end in
    the common warm-up. Raises CannotRun, or Interrupted.
    """
    if "shared" in result:
        references = result["shared"]["references"]
        check_counted(names, references, result["exit"], configuration, interrupted_by)


def _finished(
    result: CoreResult, configuration: SimConfiguration, circumstances: Circumstances
) -> SimResult:
    configuration.core_analysis.raise_failure()
    names = ", ".join(circumstances.command)
    check_shared(names, result, configuration, circumstances.interrupted_by)
    manifest = build_manifest(result, circumstances)
    if not any(process["mapped"] for process in result["processes"]):
        manifest["notes"].append(NO_MAPPINGS_NOTE)
    simulated_result = SimResult(
        manifest, configuration, result, interrupted_by=circumstances.interrupted_by
    )
    manifest["timing"] = simulated_result.timing.document()
    manifest["notes"] = [
        *stop_notes(simulated_result.total),
        *simulated_result.unused_settings(),
        *simulated_result.steadiness_notes(),
        *simulated_result.timing.notes(),
        *manifest["notes"],
    ]
    return simulated_result


ENGINE = Engine("sim", configure_sim, _finished)


_CHOICES = {*keywords_of(configure_sim), *keywords_of(resolve_scope)}


@with_checked_names(sorted(_CHOICES), (configure_sim, resolve_scope))
def sim(
    command: Sequence[str] | str | os.PathLike[str],
    machine: str = DEFAULT_MACHINE,
    designs: Sequence[str | type[Design]] | str | type[Design] = DEFAULT_DESIGNS,
    settings: Mapping[str, Setting] | Sequence[str] = (),
    *,
    format: str | None = None,
    tracer: str | None = None,
    follow_children: bool | None = None,
    on_progress: OnProgress | None = None,
    **choices: Any,
) -> SimResult:
    """Simulates a program, or a trace, on a machine with each of several designs.

    >>> result = octavo.sim("gzip.oct", "skylake", ["base4k", "thp"])  # doctest: +SKIP
    >>> result.design("thp").translation_share  # doctest: +SKIP

    `designs` are names, or subclasses of `octavo.Design`, which are slow. `machine` is a preset or
    a TOML file, which `settings` change, as `{"memory.bytes": "8GiB"}`. The `choices` are:

    - `cores`: the number of cores, on which threads are placed.
    - `virtualised`: runs programs in the guest of a virtual machine. `host_policy`, such as "thp",
      implies it and is the page-size policy of the host (default: that of each design).
    - `warm_up`: instructions that are simulated and not counted; with `fast_forward`, without the
      core model.
    - `interval`: instructions for which there is one row of each counter.
    - `timing`: "out-of-order" executes the instructions on the machine's core, which is the default
      where the stream has register dependences; "additive" adds up all latencies; "overlapped" also
      does, with a lower bound of the cycles of walks.
    - `check`: compares each translation with that of the page table.
    - `perf_4k` and `perf_thp`: files of `perf stat -x,` for the program without and with
      transparent huge pages, for an execution time from measurements.
    - `processes`: with "asid" or "flush", the processes of the traces share a core, with quanta of
      `quantum` instructions and first quanta of `first_quantum`.

    `layout`, `skip_instructions`,
    `max_instructions`, `between_marks`, `start_after` and `duration` are as of `octavo.run`.
    Ctrl-C (SIGINT) ends the simulation, and the result is that of the part that was simulated: it
    is `partial`. SIGTERM and SIGHUP end it, too, and are then raised again for the handlers of the
    caller: where there are none, they end the process.
    Raises OctavoError with one clear sentence; what a design in Python has raised is its cause.
    """
    return ENGINE.call(
        command,
        format=format,
        tracer=tracer,
        follow_children=follow_children,
        on_progress=on_progress,
        machine=machine,
        designs=[designs] if isinstance(designs, str | type) else designs,
        settings=settings,
        **choices,
    )
