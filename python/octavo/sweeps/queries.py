"""Queries of the results of a sweep: SQL, and differences between two results."""

from __future__ import annotations

import datetime
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from octavo.base.background import interruptible
from octavo.base.errors import CannotRun, UsageError
from octavo.sweeps.plan import LABELS
from octavo.sweeps.results import SweepResult
from octavo.sweeps.tasks import METRICS

if TYPE_CHECKING:
    import pyarrow as pa

_KEPT = ("key", "stopped", "is_bound")
_MOST_LISTED = 4
"""Limit of values of a label in a sentence."""
_NEAR = ("Did you mean", "Candidate bindings", "Candidate tables")
"""Beginnings of the second line of a DuckDB message that suggests tables or columns."""


def query(result: SweepResult, sql: str) -> pa.Table:
    """The answer of DuckDB to one select on the tables `simulations` and `rows`. Columns with the
    same name `a` are renamed to `a`, `a_1` and so on. Raises UsageError.
    """
    import duckdb

    with duckdb.connect() as connection:
        connection.register("simulations", result.table())
        connection.register("rows", result.rows())
        try:
            found = interruptible(lambda: _answer(connection, sql), connection.interrupt)
        except duckdb.Error as error:
            first, *others = str(error).strip().splitlines()
            near = [line for line in others[:1] if line.startswith(_NEAR)]
            message = "; ".join(line.rstrip(".!?") for line in (first, *near))
            raise UsageError(f"query: {message}.") from None
    return found.rename_columns(_distinct(found.column_names))


def _answer(connection: Any, sql: str) -> pa.Table:
    import duckdb

    statements = connection.extract_statements(sql)
    if [one.type for one in statements] != [duckdb.StatementType.SELECT]:
        raise UsageError("query: give one select; other statements, and several, are not taken.")
    found: pa.Table = connection.sql(statements[0]).to_arrow_table()
    return found


def _distinct(names: Sequence[str]) -> list[str]:
    """The names, made unique: a name that repeats an earlier one gets a free number."""
    found: dict[str, None] = {}
    for name in names:
        free = (f"{name}_{number}" for number in itertools.count(1))
        found[next(one for one in itertools.chain([name], free) if one not in found)] = None
    return list(found)


def rows_of(answer: pa.Table) -> list[dict[str, Any]]:
    """The rows of an answer with Python values. Raises UsageError for a value that Python cannot
    represent, such as a year after 9999.
    """
    try:
        return answer.to_pylist()
    except (ValueError, OverflowError) as error:
        first = str(error).splitlines()[0].rstrip(".")
        raise UsageError(f"query: {first}; cast such values to text.") from None


def plain_rows(answer: pa.Table) -> list[dict[str, Any]]:
    """The rows for JSON: whole decimals as integers and other decimals as numbers, dates and times
    in ISO 8601, intervals in months, days and nanoseconds, bytes in hexadecimal, and null for NaN
    and infinities. Raises UsageError as `rows_of` does.
    """
    return [{name: _plain(value) for name, value in row.items()} for row in rows_of(answer)]


def _plain(value: Any) -> Any:
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else None
        case Decimal():
            return int(value) if value == value.to_integral_value() else float(value)
        case datetime.date() | datetime.time():
            return value.isoformat()
        case bytes():
            return value.hex()
        case dict():
            return {str(key): _plain(inner) for key, inner in value.items()}
        case tuple() if hasattr(value, "_asdict"):
            return value._asdict()
        case list() | tuple():
            return [_plain(inner) for inner in value]
    return str(value)


@dataclass(frozen=True)
class Difference:
    """A metric that differs between two results."""

    labels: dict[str, Any]
    metric: str
    before: Any
    after: Any


def differences(before: SweepResult, after: SweepResult) -> Iterator[Difference]:
    """The metrics in which simulations with the same labels differ; a simulation that only one
    result has differs in `key`.
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


def lack_of_common(before: SweepResult, after: SweepResult) -> str | None:
    """The labels because of which two results have no simulation in common, as the end of a
    sentence; None where they have some. Raises CannotRun where one has no results.
    """
    for result in (before, after):
        if not result.table().num_rows:
            raise CannotRun(f"`{result.data_set.directory}` has no results of the study yet.")
    one, other = _by_labels(before), _by_labels(after)
    if not one.keys().isdisjoint(other):
        return None
    values: list[dict[str, set[str]]] = []
    for found in (one, other):
        of_each: dict[str, set[str]] = {}
        for name, value in itertools.chain.from_iterable(found):
            if value is not None:
                of_each.setdefault(name, set()).add(str(value))
        values.append(of_each)
    differing = []
    for name in dict.fromkeys([*values[0], *values[1]]):
        first, second = (of_each.get(name, set()) for of_each in values)
        if first.isdisjoint(second):
            plural = f"{name}s" if name in LABELS else name
            differing.append(f"{plural} ({_listed(first)}; {_listed(second)})")
    if not differing:
        return "no combination of their values is in both."
    return f"they have different {', '.join(differing)}."


def _listed(values: set[str]) -> str:
    shown = sorted(values, key=_by_number)[:_MOST_LISTED]
    more = len(values) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "") if shown else "none"


def _by_number(text: str) -> tuple[float, str]:
    """A sort key: numbers by value, then other texts alphabetically."""
    try:
        return float(text), text
    except ValueError:
        return math.inf, text


def _by_labels(result: SweepResult) -> dict[tuple[tuple[str, Any], ...], dict[str, Any]]:
    names = [*LABELS, *result.plan.settings]
    table = result.table()
    chosen = [*names, *_KEPT, *METRICS]
    rows = table.select(chosen).to_pylist()
    return {tuple((name, row[name]) for name in names): row for row in rows}
