"""Tables: plain cells for people, which the terminal and the report lay out, and Arrow for
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
    """Cells that are better than the others of their row, by row and column."""

    def __post_init__(self) -> None:
        """Names, which anybody may have chosen, stand in the left columns and in the title."""
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
    """The columns of the rows that a TypedDict describes, each with the name of its type in
    pyarrow: the one for its type in Python, unless `Annotated` names another.
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
    """The rows in order; a column that does not apply to a row is null."""
    import pyarrow as pa

    return pa.Table.from_pylist(list(rows), schema=arrow_schema(columns))


_SHOWN_ROWS, _SHOWN_COLUMNS = 20, 12
_MOST_CHARACTERS = 240
"""Of a conclusion in a `repr`."""


class Shown(ABC):
    """A result that is short in a terminal, and tables and figures in a notebook."""

    @abstractmethod
    def headline(self) -> str:
        """The result in a few words."""

    def conclusion(self) -> str:
        """The decision that it leads to, in a sentence or two; empty where there is none."""
        return ""

    def __repr__(self) -> str:
        lines = [f"<{type(self).__name__}: {printable(self.headline())}"]
        conclusion = quoted(self.conclusion(), _MOST_CHARACTERS)
        if conclusion:
            lines.append(f"  {conclusion}")
        return "\n".join(lines) + ">"

    def _repr_html_(self) -> str:
        # By its name: it draws results of all levels, so it is above them.
        notebook = import_module("octavo.notebook")
        return str(notebook.html_of(self))


class Tabular(Shown):
    """A result with rows: an Arrow table to whatever reads one."""

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
    """The first rows and columns; those that are null throughout are left out."""
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
    """A value of a table for people, counts exact; nothing for one that does not apply."""
    if value is None:
        return ""
    if not isinstance(value, float):
        return str(value)
    is_shown_whole = value.is_integer() or abs(value) >= 1000
    return f"{value:.0f}" if is_shown_whole and abs(value) < _MOST_EXACT else f"{value:.4g}"
