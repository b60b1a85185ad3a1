"""What a run gives: its manifest, its rows and the advice, and the document that holds them."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from octavo.advice import Advice, advise_all, overall_text
from octavo.huge_pages import HugePages
from octavo.manifest import of_what_ran
from octavo.means import UNKNOWN_PROGRAM, means_for, usable_size
from octavo.rows import Row
from octavo.tlb_levels import Machine

if TYPE_CHECKING:
    import pyarrow as pa

SCHEMA = "octavo/run/1"


@dataclass(frozen=True)
class Finished:
    """A run that is over, whatever it was to find out."""

    manifest: dict[str, Any]

    @property
    def status(self) -> int:
        """The exit status that stands for how the program ended."""
        status = self.manifest["exit"]["status"]
        return int(status)

    @property
    def partial(self) -> bool:
        """Whether the result stops short of the program's own end."""
        return bool(self.manifest["partial"])


@dataclass(frozen=True)
class RunResult(Finished):
    """A finished run; plain data throughout."""

    rows: list[Row]
    advice: list[dict[str, Any]]
    """The overall answer first, then code, data and each large region, each with its means."""

    def table(self) -> "pa.Table":
        """The rows as an Arrow table (what rows.parquet holds)."""
        from octavo.columns import to_table

        return to_table(self.rows)

    def document(self) -> dict[str, Any]:
        """The JSON document; docs/run.schema.json describes it."""
        return {
            "schema": SCHEMA,
            "run": self.manifest,
            "rows": self.rows,
            "advice": self.advice,
        }


def advice_records(
    rows: Sequence[Row],
    machine: Machine,
    host: HugePages,
    command: Sequence[str] | None,
    manifest: dict[str, Any],
) -> list[dict[str, Any]]:
    """Advice with its means as plain data, the overall answer first.

    `command` is the program with its arguments; None where it is not known, and empty where there
    is no program, so that nothing can be done about it.
    """
    advice = advise_all(rows, machine)
    usable = [usable_size(item, host) for item in advice]
    answer = {"scope": "answer", "text": of_what_ran(overall_text(advice, usable), manifest)}
    program = UNKNOWN_PROGRAM if command is None else shlex.join(command)
    records = [
        _with_means(item, size, host, program) for item, size in zip(advice, usable, strict=True)
    ]
    return [answer, *records]


def _with_means(item: Advice, usable: int, host: HugePages, program: str) -> dict[str, Any]:
    means = [means.record() for means in means_for(item, host, program)] if program else []
    return {**item.record(), "usable_page_size": usable, "means": means}
