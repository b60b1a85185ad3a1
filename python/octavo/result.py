"""What a run gives: its manifest, its rows and the advice, and the document that holds them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from octavo.advice import Advice, advise_all, overall_text
from octavo.huge_pages import HugePages
from octavo.machine import Machine
from octavo.means import means_for
from octavo.rows import Row

if TYPE_CHECKING:
    import pyarrow as pa

SCHEMA = "octavo/run/1"


@dataclass(frozen=True)
class RunResult:
    """A finished run; plain data throughout."""

    manifest: dict[str, Any]
    rows: list[Row]
    advice: list[dict[str, Any]]
    """The overall answer first, then code, data and each large region, each with its means."""

    @property
    def status(self) -> int:
        """The exit status that stands for how the program ended."""
        status = self.manifest["exit"]["status"]
        return int(status)

    @property
    def partial(self) -> bool:
        """Whether the result stops short of the program's own end."""
        return bool(self.manifest["partial"])

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


def advice_records(rows: Sequence[Row], machine: Machine, host: HugePages) -> list[dict[str, Any]]:
    """Advice with its means as plain data, the overall answer first."""
    advice = advise_all(rows, machine)
    answer = {"scope": "answer", "text": overall_text(advice)}
    return [answer, *(_with_means(item, host) for item in advice)]


def _with_means(item: Advice, host: HugePages) -> dict[str, Any]:
    return {**item.record(), "means": [means.record() for means in means_for(item, host)]}
