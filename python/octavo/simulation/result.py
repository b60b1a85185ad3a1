"""The result of a simulation: the manifest, each design's counters, and rows of all."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from octavo.base.metrics import rated_instructions
from octavo.simulation.configuration import SimConfiguration
from octavo.simulation.execution_time import (
    HUGE,
    MEASURED_SOURCE,
    SIMULATED_SOURCE,
    ExecutionTime,
    simulated_time,
)
from octavo.simulation.model import Simulated, simulated, summed
from octavo.simulation.rows import SimRow, rows_of, time_rows
from octavo.tracing.manifest import Finished

if TYPE_CHECKING:
    import pyarrow as pa

    from octavo._core import SharedMachines, SimProcess
    from octavo._core import SimResult as CoreResult

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
        from octavo.simulation.columns import to_table

        return to_table(self.rows)

    def document(self) -> dict[str, Any]:
        """The JSON document; docs/sim.schema.json describes it."""
        return {"schema": SCHEMA, "run": self.manifest, "rows": self.rows}


def _rated(counts: SimProcess | SharedMachines) -> int:
    return rated_instructions(counts["instructions"], counts["references"])
