"""A table that people read, as plain cells; the terminal and the report lay it out."""

from __future__ import annotations

from dataclasses import dataclass

from octavo.base.text import printable


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
