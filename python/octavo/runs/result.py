"""The result of a run: its manifest, its rows and the advice, and the document that holds them."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from octavo.actions.for_advice import TryPages, actions_for, usable_size
from octavo.actions.model import UNKNOWN_PROGRAM
from octavo.actions.subjects import Subjects
from octavo.analysis.advice import Thresholds, advise_all, overall_text
from octavo.analysis.gain import ASSUMPTIONS
from octavo.analysis.present_pages import leave_as_is
from octavo.analysis.programs import Program, rows_by_program
from octavo.analysis.rows import Row
from octavo.analysis.walk_advice import advise_by_walks
from octavo.analysis.walk_costs import WalkCosts
from octavo.base.huge_pages import HugePages
from octavo.hardware.tlb_levels import Machine
from octavo.runs.answer import answer_of
from octavo.runtimes.detect import Runtime
from octavo.tracing.manifest import Finished, of_what_ran

if TYPE_CHECKING:
    import pyarrow as pa

SCHEMA = "octavo/run/1"


@dataclass(frozen=True)
class RunResult(Finished):
    """A finished run; plain data throughout."""

    rows: list[Row]
    advice: list[dict[str, Any]]
    """The overall answer first, then code, data and each large region, each with its actions."""
    programs: list[Program] = field(default_factory=list)
    """The programs of several processes, which tables show together."""

    def table(self) -> "pa.Table":
        """The rows as an Arrow table (what rows.parquet holds)."""
        from octavo.analysis.columns import to_table

        return to_table(self.rows)

    def document(self) -> dict[str, Any]:
        """The JSON document; docs/run.schema.json describes it."""
        return {
            "schema": SCHEMA,
            "run": self.manifest,
            "rows": self.rows,
            "programs": self.programs,
            "advice": self.advice,
        }


def advice_records(
    rows: Sequence[Row],
    machine: Machine,
    host: HugePages,
    command: Sequence[str] | None,
    manifest: dict[str, Any],
    *,
    limits: Thresholds | None = None,
    costs: WalkCosts | None = None,
    runtimes: Mapping[int, Runtime] | None = None,
    programs: Sequence[Program] = (),
    try_pages: TryPages = lambda: None,
) -> list[dict[str, Any]]:
    """Advice with its actions as plain data, the overall answer first.

    With `costs`, those of the modelled machine's walks, it rests on walks. `command` is the program
    with its arguments; None where it is not known, and empty where there is no program, so that
    nothing can be done about it. `runtimes` are those of the processes, by stream number; regions
    of `programs` are judged together, not in each of their processes. `try_pages` asks this kernel
    what it gives.
    """
    limits = limits or Thresholds()
    merged = rows_by_program(rows, programs)
    if costs is None:
        advice = advise_all(merged, machine, limits)
    else:
        found = advise_by_walks(merged, machine, costs, limits)
        advice = leave_as_is(found, merged, host, limits)
    usable = [usable_size(item, host, limits) for item in advice]
    program = UNKNOWN_PROGRAM if command is None else shlex.join(command)
    subjects = Subjects(rows, runtimes or {}, command or ())
    records = []
    for item, size in zip(advice, usable, strict=True):
        actions = []
        if program and item.reason != "already":
            subject = subjects.of(item.case)
            actions = actions_for(item, host, program, limits, subject=subject, try_pages=try_pages)
        records.append(
            {
                **item.record(),
                "usable_page_size": size,
                "actions": [action.record() for action in actions],
            }
        )
    text, more = overall_text(advice, usable), {}
    if costs is not None:
        modelled = manifest["configuration"]["modelled"]["name"]
        answered = answer_of(records, modelled, costs.label(), command, limits)
        text = answered.text
        more = {**answered.record(), "walk_costs": costs.record(), "assumptions": ASSUMPTIONS}
    answer = {
        "scope": "answer",
        "text": of_what_ran(text, manifest),
        "max_growth": limits.max_growth,
        **more,
    }
    return [answer, *records]
