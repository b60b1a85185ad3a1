"""The result of curves: the manifest, curves for look-ups, and rows of all numbers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from octavo.tlb_curves.configuration import CurvesConfiguration
from octavo.tlb_curves.model import (
    StreamCurves,
    shared_streams,
    streams_of,
    threads_of,
    totals,
)
from octavo.tlb_curves.rows import Block, CurveRow, blocks_of
from octavo.tracing.manifest import Finished

if TYPE_CHECKING:
    import pyarrow as pa

    from octavo._core import CurvesResult as CoreResult

SCHEMA = "octavo/curves/1"


@dataclass(frozen=True)
class CurvesResult(Finished):
    """Finished curves."""

    configuration: CurvesConfiguration
    counted: CoreResult
    """As the extension gave it."""

    @cached_property
    def by_process(self) -> list[dict[str, StreamCurves]]:
        """Each process image's curves, by stream; empty if they shared a core."""
        return [streams_of(process) for process in self.counted["processes"]]

    @cached_property
    def by_thread(self) -> list[dict[int, dict[str, StreamCurves]]]:
        """Each process image's curves by thread and stream, where threads have their own TLBs."""
        return [threads_of(process) for process in self.counted["processes"]]

    @property
    def is_shared(self) -> bool:
        """Whether processes shared TLBs."""
        return "shared" in self.counted

    @cached_property
    def total(self) -> dict[str, StreamCurves]:
        """The whole program's curves, by stream."""
        if "shared" in self.counted:
            return shared_streams(self.counted["shared"], self.counted["processes"])
        return totals(self.by_process)

    @property
    def lived(self) -> dict[str, StreamCurves]:
        """The streams whose working sets are shown: of all processes if shared, else of one."""
        return self.total if self.is_shared else self.by_process[self.main]

    @property
    def main(self) -> int:
        """The place of the process image that did most."""
        processes = self.counted["processes"]
        return max(range(len(processes)), key=lambda at: processes[at]["references"])

    def blocks(self) -> list[Block]:
        """The rows, by blocks that are alike."""
        counted = self.counted
        return list(
            blocks_of(
                counted["processes"],
                self.by_process,
                self.by_thread,
                self.total,
                self.configuration,
                counted["untraced_processes"],
            )
        )

    @cached_property
    def rows(self) -> list[CurveRow]:
        """Every number; there are a hundred thousand and more."""
        return [row for block in self.blocks() for row in block.rows()]

    def table(self) -> pa.Table:
        """The rows as an Arrow table (what rows.parquet holds)."""
        from octavo.tlb_curves.columns import to_table

        return to_table(self.blocks())

    def document(self) -> dict[str, Any]:
        """The JSON document; docs/curves.schema.json describes it."""
        return {"schema": SCHEMA, "run": self.manifest, "rows": self.rows}
