"""Tables: plain cells for people, which the terminal and the report lay out, and Arrow for
programs.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

from octavo.base.text import printable

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class Grid:
    """A table of text; every column but the first `left_columns` is right-aligned."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    left_columns: int = 1
    spare_column: int | None = None
    """The left column that a narrow screen may go without."""
    best: tuple[tuple[int, int], ...] = ()
    """Cells that are better than the others of their row, by row and column."""

    def __post_init__(self) -> None:
        """Names, which anybody may have chosen, stand in the left columns and in the title."""
        names = self.left_columns
        rows = tuple((*map(printable, row[:names]), *row[names:]) for row in self.rows)
        object.__setattr__(self, "rows", rows)
        object.__setattr__(self, "title", printable(self.title))


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
