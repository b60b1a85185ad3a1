"""Questions to the results of a sweep: SQL, and the differences between two of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from octavo.base.errors import UsageError
from octavo.sweeps.plan import LABELS
from octavo.sweeps.results import SweepResult
from octavo.sweeps.tasks import METRICS

if TYPE_CHECKING:
    import pyarrow as pa

_KEPT = ("key", "stopped", "is_bound")


def query(result: SweepResult, sql: str) -> pa.Table:
    """The answer of DuckDB, which knows the tables `simulations` and `rows`. Raises UsageError."""
    import duckdb

    with duckdb.connect() as connection:
        connection.register("simulations", result.table())
        connection.register("rows", result.rows())
        try:
            answer: Any = connection.sql(sql)
            if answer is None:
                raise UsageError("query: the statement has no answer; give a select.")
            found: pa.Table = answer.to_arrow_table()
        except duckdb.Error as error:
            first = str(error).strip().splitlines()[0].rstrip(".")
            raise UsageError(f"query: {first}.") from None
    return found


@dataclass(frozen=True)
class Difference:
    """A metric that differs between two results."""

    labels: dict[str, Any]
    metric: str
    before: Any
    after: Any


def differences(before: SweepResult, after: SweepResult) -> Iterator[Difference]:
    """The metrics in which simulations with the same labels differ; a simulation that one of them
    lacks differs in `key`.
    """
    one, other = _by_labels(before), _by_labels(after)
    for labels in dict.fromkeys([*one, *other]):
        named = dict(labels)
        first, second = one.get(labels), other.get(labels)
        if first is None or second is None:
            yield Difference(named, "key", *(row and row["key"] for row in (first, second)))
            continue
        for metric in ("stopped", *METRICS):
            if first[metric] != second[metric]:
                yield Difference(named, metric, first[metric], second[metric])


def _by_labels(result: SweepResult) -> dict[tuple[tuple[str, Any], ...], dict[str, Any]]:
    names = [*LABELS, *result.plan.settings]
    table = result.table()
    chosen = [*names, *_KEPT, *METRICS]
    rows = table.select(chosen).to_pylist()
    return {tuple((name, row[name]) for name in names): row for row in rows}
