"""`octavo.curves`: runs a program, or reads a trace, and returns the misses of every TLB: the
manifest, curves for look-ups, and all rows.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from octavo.base.arguments import keywords_of, with_checked_names
from octavo.base.progress import OnProgress
from octavo.tlb_curves.configuration import CurvesConfiguration, configure_curves
from octavo.tlb_curves.model import StreamCurves, shared_streams, streams_of, threads_of, totals
from octavo.tlb_curves.rows import Block, CurveRow, blocks_of, to_table
from octavo.tracing.engine import Engine, EngineResult
from octavo.tracing.manifest import Circumstances, build_manifest
from octavo.tracing.scope import resolve_scope

if TYPE_CHECKING:
    import pyarrow as pa

    from octavo._core import CurvesResult as CoreResult


SCHEMA = "octavo/curves/1"


@dataclass(frozen=True, repr=False)
class CurvesResult(EngineResult[CurvesConfiguration, "CoreResult"]):
    """Finished curves."""

    @cached_property
    def by_process(self) -> list[dict[str, StreamCurves]]:
        """The curves of each process image by stream; empty if processes shared a core."""
        return [streams_of(process) for process in self.counted["processes"]]

    @cached_property
    def by_thread(self) -> list[dict[int, dict[str, StreamCurves]]]:
        """The curves of each process image by thread and stream, if threads have their own TLBs."""
        return [threads_of(process) for process in self.counted["processes"]]

    @cached_property
    def total(self) -> dict[str, StreamCurves]:
        """The whole program's curves, by stream."""
        if "shared" in self.counted:
            return shared_streams(self.counted["shared"], self.counted["processes"])
        return totals(self.by_process)

    @property
    def lived(self) -> dict[str, StreamCurves]:
        """The streams with working sets: of all processes if these share a core, else of one."""
        return self.total if self.is_shared else self.by_process[self.main]

    def blocks(self) -> list[Block]:
        """The rows, in blocks of rows that share columns."""
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
        """All rows, a hundred thousand and more."""
        return [row for block in self.blocks() for row in block.rows()]

    def table(self) -> pa.Table:
        """The rows as an Arrow table (what rows.parquet holds)."""
        return to_table(self.blocks())

    def headline(self) -> str:
        """The trace or program, and the amount counted."""
        from octavo.tlb_curves.view import headline

        return f"{self.subject}: {headline(self)}"

    def document(self) -> dict[str, Any]:
        """The JSON document; docs/curves.schema.json describes it."""
        return {"schema": SCHEMA, "run": self.manifest, "rows": self.rows}


def _finished(
    result: CoreResult, configuration: CurvesConfiguration, circumstances: Circumstances
) -> CurvesResult:
    return CurvesResult(
        build_manifest(result, circumstances),
        configuration,
        result,
        interrupted_by=circumstances.interrupted_by,
    )


ENGINE = Engine("curves", configure_curves, _finished)


_CHOICES = {*keywords_of(configure_curves), *keywords_of(resolve_scope)} - {"sizes"}


@with_checked_names(sorted(_CHOICES), (configure_curves, resolve_scope))
def curves(
    command: Sequence[str] | str | os.PathLike[str],
    *,
    format: str | None = None,
    page_sizes: Sequence[int | str] | None = None,
    tracer: str | None = None,
    follow_children: bool | None = None,
    on_progress: OnProgress | None = None,
    **choices: Any,
) -> CurvesResult:
    """Runs a program, or reads a trace, through every TLB at once.

    >>> result = octavo.curves(["gzip", "-k", "file"], entries=512)  # doctest: +SKIP
    >>> result.total["data"].full_misses(page_size=4096, entries=64)  # doctest: +SKIP

    `choices` are `streams`, `entries`, `sets`, `indexes`, `windows`, `two_sizes` (pairs of bytes),
    `threshold`, `policy_window`, `miss_penalty`, `two_sizes_penalty`, `presets`,
    `cache_lines` (bytes), `without`,
    `classify`, `classify_sizes`, `sample_pages` (a text such as `1/64`), `threads`, `processes`,
    `quantum`, `first_quantum` and `flush_every`, as of
    `octavo.tlb_curves.configuration.configure_curves`, and `layout`, `skip_instructions`,
    `max_instructions`, `between_marks`, `start_after` and `duration`, as of `octavo.run`. With
    `processes` "asid" or "flush", `command` may be several traces. Signals are as of `octavo.run`.
    Raises OctavoError with one clear sentence.
    """
    return ENGINE.call(
        command,
        format=format,
        tracer=tracer,
        follow_children=follow_children,
        on_progress=on_progress,
        sizes=page_sizes,
        **choices,
    )
