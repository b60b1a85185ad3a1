"""Tables: text cells for people, which the terminal and the report lay out, and Arrow tables for
programs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

from octavo.base.text import printable, quoted

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class Grid:
    """A table of text; every column but the first `left_columns` is right-aligned."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    left_columns: int = 1
    spare: tuple[int, ...] = ()
    """Columns that a narrow screen may go without, the least needed first."""
    best: tuple[tuple[int, int], ...] = ()
    """Cells that are the best of their row, by row and column."""

    def __post_init__(self) -> None:
        """Escapes the left columns and the title, which hold names of files and programs."""
        names = self.left_columns
        rows = tuple((*map(printable, row[:names]), *row[names:]) for row in self.rows)
        object.__setattr__(self, "rows", rows)
        object.__setattr__(self, "title", printable(self.title))

    def of_columns(self, columns: Sequence[int]) -> Grid:
        """The table of some columns, in order."""

        def picked(cells: tuple[str, ...]) -> tuple[str, ...]:
            return tuple(cells[column] for column in columns)

        best = tuple((row, columns.index(at)) for row, at in self.best if at in columns)
        left_columns = sum(column < self.left_columns for column in columns)
        rows = tuple(map(picked, self.rows))
        return Grid(self.title, picked(self.head), rows, left_columns=left_columns, best=best)


_ARROW = {int: "int64", float: "float64", str: "string"}


def columns_of(row: type, without: Collection[str] = ()) -> dict[str, str]:
    """The columns of the rows that a TypedDict describes, each with the name of its pyarrow type:
    that of the Python type, unless `Annotated` names another.
    """
    columns = {}
    for name, kind in get_type_hints(row, include_extras=True).items():
        if name not in without:
            plain, *more = get_args(kind) or (kind,)
            columns[name] = more[0] if more and isinstance(more[0], str) else _ARROW[plain]
    return columns


def arrow_schema(columns: Mapping[str, str]) -> pa.Schema:
    """The schema of columns by name, each with the name of its type in pyarrow."""
    import pyarrow as pa

    return pa.schema([(name, getattr(pa, kind)()) for name, kind in columns.items()])


def arrow_table(rows: Sequence[Mapping[str, Any]], columns: Mapping[str, str]) -> pa.Table:
    """The rows in order; a column that a row lacks is null."""
    import pyarrow as pa

    return pa.Table.from_pylist(list(rows), schema=arrow_schema(columns))


_SHOWN_ROWS, _SHOWN_COLUMNS = 20, 12
_MOST_CHARACTERS = 240
"""Limit of a conclusion in a `repr`."""


class Shown(ABC):
    """A result with a short `repr` for a terminal, and with tables and figures in a notebook."""

    @abstractmethod
    def headline(self) -> str:
        """The result in a few words."""

    def conclusion(self) -> str:
        """The decision that the result leads to, in a sentence or two; empty if there is none."""
        return ""

    def __repr__(self) -> str:
        lines = [f"<{type(self).__name__}: {printable(self.headline())}"]
        conclusion = quoted(self.conclusion(), _MOST_CHARACTERS)
        if conclusion:
            lines.append(f"  {conclusion}")
        return "\n".join(lines) + ">"

    def _repr_html_(self) -> str:
        # Imported by name, as that module is above this one.
        notebook = import_module("octavo.notebook")
        return str(notebook.html_of(self))


class Tabular(Shown):
    """A result with rows, which is also an Arrow table."""

    @abstractmethod
    def table(self) -> pa.Table:
        """The result as an Arrow table."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The table by the Arrow C stream interface, which polars, pandas and DuckDB read."""
        return self.table().__arrow_c_stream__(requested_schema)  # type: ignore[no-untyped-call]

    def to_pandas(self) -> Any:
        """The table as a `pandas.DataFrame`. Raises ImportError without pandas."""
        return self.table().to_pandas()

    def to_polars(self) -> Any:
        """The table as a `polars.DataFrame`. Raises ImportError without polars."""
        import polars

        return polars.from_arrow(self.table())


def beginning(table: pa.Table) -> Grid:
    """The first rows and columns; columns that are null in all of these rows are left out."""
    beginning = table.slice(0, _SHOWN_ROWS)
    names = [name for name in table.column_names if beginning[name].null_count < len(beginning)]
    names = names[:_SHOWN_COLUMNS]
    rows = tuple(
        tuple(cell_text(row[name]) for name in names) for row in beginning.select(names).to_pylist()
    )
    return Grid("", tuple(names), rows, left_columns=len(names))


_MOST_EXACT = 2**53
"""Up to here a float holds every whole number."""


def cell_text(value: Any) -> str:
    """A value of a table for people, counts exact; empty for null."""
    if value is None:
        return ""
    if not isinstance(value, float):
        return str(value)
    is_shown_whole = value.is_integer() or abs(value) >= 1000
    return f"{value:.0f}" if is_shown_whole and abs(value) < _MOST_EXACT else f"{value:.4g}"
