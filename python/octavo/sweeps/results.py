"""The tables of a sweep: one has a row for each simulation, the other one for each counter."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from octavo.base.table import Tabular
from octavo.base.text import plural
from octavo.simulation.configuration import ADDITIVE, OUT_OF_ORDER, OVERLAPPED
from octavo.simulation.model import STACK
from octavo.sweeps.data_set import DataSet, Stored
from octavo.sweeps.plan import LABELS, Plan, Planned
from octavo.sweeps.tasks import COLUMNS, METRICS

if TYPE_CHECKING:
    import pyarrow as pa

_ROW_COLUMNS = ("process", "interval", "component", "counter", "value")


@dataclass(frozen=True, repr=False)
class SweepResult(Tabular):
    """The results of a sweep that exist so far."""

    plan: Plan
    data_set: DataSet
    failed: Mapping[str, str] = field(default_factory=dict)
    """Failures of simulations, by key."""
    is_partial: bool = False
    """Whether some simulations were not run because the user stopped the sweep."""
    ended: int = 0
    """Simulations that were running when the user stopped the sweep, as far as is known."""
    is_whole: bool = False
    """Whether each simulation that did not fail had a result; then a missing one is an error."""

    @cached_property
    def _stored(self) -> list[tuple[Planned, Stored]]:
        read: dict[str, Stored] = {}
        found = []
        for one in self.plan.planned:
            key = one.simulation.key
            if key not in read:
                may_lack = not self.is_whole or key in self.failed
                if may_lack and one.simulation not in self.data_set:
                    continue
                read[key] = self.data_set.read(one.simulation)
            found.append((one, read[key]))
        return found

    def table(self) -> pa.Table:
        """One row for each simulation: labels, metrics, and each counter of the whole run in a
        column `component.counter`, null where a design has no such counter. A column `timing` has
        the way of computing cycles, unless it is the same for all. Raises CannotRun where a result
        is damaged, or has disappeared since the sweep.
        """
        return self._table

    @cached_property
    def _table(self) -> pa.Table:
        import pyarrow as pa

        counters: dict[str, None] = {}
        rows = []
        for one, stored in self._stored:
            whole = _whole(stored.table)
            counters.update(dict.fromkeys(whole))
            about = stored.about
            rows.append(
                {
                    **self._labels(one),
                    "key": one.simulation.key,
                    "stopped": about["stopped"],
                    "is_bound": about["is_bound"],
                    **about["metrics"],
                    **whole,
                }
            )
        fields = [
            *self._label_fields(),
            pa.field("key", pa.string()),
            pa.field("stopped", pa.string()),
            pa.field("is_bound", pa.bool_()),
            *(pa.field(name, _metric_type(name)) for name in METRICS),
            *(pa.field(name, pa.int64()) for name in counters),
        ]
        return pa.Table.from_pylist(rows, schema=pa.schema(fields))

    def rows(self) -> pa.Table:
        """One row for each counter, also of processes and of intervals: the labels, `timing` as in
        `table`, and `process`, `interval`, `component`, `counter` and `value`.
        """
        import pyarrow as pa

        fields = self._label_fields()
        tables = []
        for one, stored in self._stored:
            labels, count = self._labels(one), stored.table.num_rows
            columns = [pa.repeat(pa.scalar(labels[one.name], one.type), count) for one in fields]
            kept = stored.table.select(_ROW_COLUMNS)
            tables.append(
                pa.table(
                    [*columns, *(column.combine_chunks() for column in kept.columns)],
                    schema=pa.schema([*fields, *kept.schema]).remove_metadata(),
                )
            )
        if not tables:
            from octavo.base.table import arrow_schema

            own = arrow_schema({name: COLUMNS[name] for name in _ROW_COLUMNS})
            return pa.schema([*fields, *own]).empty_table()
        return pa.concat_tables(tables)

    @cached_property
    def _timings(self) -> dict[str, str | None]:
        """The way of computing cycles, by key; None without cycles."""
        return {one.simulation.key: _timing(stored) for one, stored in self._stored}

    def _labels(self, one: Planned) -> dict[str, Any]:
        labels = {name: one.labels.get(name) for name in LABELS}
        settings = {
            name: _plain(one.labels.get(name), as_text=kind.equals("string"))
            for name, kind in self._setting_types.items()
        }
        return {**labels, **settings, "timing": self._timings[one.simulation.key]}

    def _label_fields(self) -> list[pa.Field[Any]]:
        import pyarrow as pa

        fields: list[pa.Field[Any]] = [pa.field(name, pa.string()) for name in LABELS[:-1]]
        fields.append(pa.field("seed", pa.int64()))
        fields.extend(pa.field(name, kind) for name, kind in self._setting_types.items())
        if len({*self._timings.values()} - {None}) > 1:
            fields.append(pa.field("timing", pa.string()))
        return fields

    @cached_property
    def _setting_types(self) -> dict[str, pa.DataType]:
        """The type of each column of settings; strings where values have several types."""
        import pyarrow as pa

        types = {}
        for name in self.plan.settings:
            values = [_plain(one.labels.get(name)) for one in self.plan.planned]
            try:
                types[name] = pa.array(values).type
            except (pa.ArrowInvalid, pa.ArrowTypeError):
                types[name] = pa.string()
        return types

    def headline(self) -> str:
        """The number of simulations with results, and of failures."""
        count, all_of = len(self._stored), len(self.plan.planned)
        missing = "" if count == all_of else f" of {all_of}"
        failed = f", {len(self.failed)} failed" if self.failed else ""
        return f"{count}{missing} {plural(all_of, 'simulation')}{failed}"


def _plain(value: Any, as_text: bool = False) -> Any:
    """The value of a setting for a table: tables and lists as JSON, with `as_text` any value."""
    is_text = isinstance(value, dict | list | tuple) or (
        as_text and not isinstance(value, str | None)
    )
    return json.dumps(value) if is_text else value


def _timing(stored: Stored) -> str | None:
    if stored.about["metrics"]["cycles"] is None:
        return None
    if STACK in stored.table["component"].unique().to_pylist():
        return OUT_OF_ORDER
    asked: str = stored.about["resolved"]["counting"]["timing"]
    return OVERLAPPED if asked == OVERLAPPED else ADDITIVE


def _metric_type(name: str) -> pa.DataType:
    import pyarrow as pa

    whole = ("instructions", "references", "walk_cycles", "walks", "memory_bytes")
    return pa.int64() if name in whole else pa.float64()


def _whole(table: pa.Table) -> dict[str, int]:
    """The counters of the whole run."""
    columns = (table[name].to_pylist() for name in _ROW_COLUMNS)
    return {
        f"{component}.{counter}": value
        for process, interval, component, counter, value in zip(*columns, strict=True)
        if process is None and interval is None
    }
