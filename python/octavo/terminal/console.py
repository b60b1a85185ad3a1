"""The console on standard error, coloured on a terminal and plain text elsewhere, and the sentences
and tables that commands print on it.

rich is imported only when something is printed, so that a program to trace starts sooner.
"""

from __future__ import annotations

import errno
import io
import os
import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import IO, TYPE_CHECKING, Any, NoReturn, cast

from octavo.base.files import check_standard_output, discard_standard_output
from octavo.base.table import Grid
from octavo.base.text import printable
from octavo.tracing.manifest import Finished, cautions, warnings

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

PLAIN_WIDTH = 120
"""Width in characters if that of the screen is unknown."""

_GAP_WIDTH = {True: 3, False: 2}
"""Characters between two columns of a table, with rules and without."""
_NAME_WIDTH = 20
"""Width in characters above which a narrow terminal folds names of rows and of columns."""


class Forgiving:
    """A stream that drops text that cannot be written, so that the run goes on.

    A closed terminal, a full disk or a pipe to `head` must not cost the user a result.
    """

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Writes the text, or drops it."""
        try:
            return self._stream.write(text)
        except OSError:
            self._drop()
            return len(text)

    def flush(self) -> None:
        """Flushes, or drops the buffered text."""
        try:
            self._stream.flush()
        except OSError:
            self._drop()

    def _drop(self) -> None:
        """Redirects the stream to /dev/null, with all buffered and later text."""
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self._stream.fileno())
        os.close(nowhere)
        self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def make_console() -> Console:
    """A console on standard error, which leaves standard output to the traced program.

    rich itself respects NO_COLOR and TERM=dumb.
    """
    from rich.console import Console

    stream = None if sys.stderr is None else cast("IO[str]", Forgiving(sys.stderr))
    console = Console(file=stream, stderr=True, highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console.width = max(console.width, PLAIN_WIDTH)
    return console


def plain_console(stream: IO[str]) -> Console:
    """A console that writes plain text to a file."""
    from rich.console import Console

    return Console(file=stream, width=PLAIN_WIDTH, highlight=False, markup=False, emoji=False)


def make_output_console() -> Console:
    """A console on standard output, for commands whose output is text."""
    from rich.console import Console

    class OutputConsole(Console):
        """A console that raises BrokenPipeError where its reader has gone."""

        def on_broken_pipe(self) -> NoReturn:
            """Raises; rich would exit with status 1, which is a verdict of `octavo check`."""
            discard_standard_output()
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))

    check_standard_output()
    console = OutputConsole(highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console.width = max(console.width, PLAIN_WIDTH)
    return console


def say(console: Console, text: str, style: str = "", *, indent: int = 0) -> None:
    """Prints a sentence, wrapped only on a terminal, so that pipes get whole lines."""
    from rich.padding import Padding
    from rich.text import Text

    text = printable(text)
    if console.is_terminal:
        console.print(Padding.indent(Text(text, style=style), indent))
    else:
        console.print(Text(" " * indent + text, style=style), soft_wrap=True)


def show_cautions(console: Console, result: Finished) -> None:
    """Prints limits of the result: a failure, a partial result, odd references."""
    for text in (*cautions(result.manifest), *warnings(result.manifest)):
        say(console, text, "bold yellow")


def show_grid(
    console: Console,
    grid: Grid | None,
    shown: int | None = None,
    *,
    wrapped: bool = False,
    is_first: bool = False,
) -> None:
    """Prints a table, or nothing where it is None or has no rows. A `wrapped` table of sentences
    keeps to the console's width also in pipes. An empty line precedes the table unless it
    `is_first`.
    """
    if grid is None or not grid.rows:
        return
    if not is_first:
        console.print()
    if grid.title:
        say(console, grid.title, "bold")
    parts, ruled = _fitting(console, grid)
    width = console.width
    if not console.is_terminal and not wrapped:
        # Without a screen, nothing is cut off or folded.
        console.width = max(width, _needed_width(grid, ruled=ruled, folded=False))
    for number, part in enumerate(parts):
        if number:
            console.print()
        _print_table(console, _filled(part, shown, ruled=ruled, width=console.width))
    console.width = width
    if shown is not None and len(grid.rows) > shown:
        say(console, f"and {len(grid.rows) - shown} more; --json and --out have all.", "dim")


def _print_table(console: Console, table: Table) -> None:
    """Prints a table, in pipes and files without spaces at the ends of lines."""
    if console.is_terminal:
        console.print(table)
        return
    from rich.console import Console
    from rich.text import Text

    text = io.StringIO()
    Console(file=text, width=console.width, markup=False, emoji=False).print(table)
    for line in text.getvalue().splitlines():
        console.print(Text(line.rstrip()), soft_wrap=True)


def _fitting(console: Console, grid: Grid) -> tuple[list[Grid], bool]:
    """The fullest form of the table that fits: rules go first, then long names of columns are
    folded, then the less needed columns go. A table that is still too wide for a terminal becomes
    several tables, each with the names.
    """
    if not console.is_terminal:
        return [grid], False
    if _needed_width(grid, ruled=True) <= console.width:
        return [grid], True
    if not _fits(console, grid, range(len(grid.head))):
        grid = _with_folded_head(grid)
    columns, spare = list(range(len(grid.head))), list(grid.spare)
    while spare and not _fits(console, grid, columns):
        columns.remove(spare.pop(0))
    names = [column for column in columns if column < grid.left_columns]
    parts = [names]
    for column in columns[len(names) :]:
        if parts[-1] != names and not _fits(console, grid, [*parts[-1], column]):
            parts.append(names)
        parts[-1] = [*parts[-1], column]
    return [grid.of_columns(part) for part in parts], False


def _with_folded_head(grid: Grid) -> Grid:
    """The table with long names of columns, such as designs with settings, broken into lines."""
    names, others = grid.head[: grid.left_columns], grid.head[grid.left_columns :]
    return replace(grid, head=(*names, *map(_folded, others)))


def _folded(name: str) -> str:
    """A name in lines of at most `_NAME_WIDTH` characters, if it has places to break: after each
    setting, and within a setting that is too long.
    """
    if max(map(len, name.split("\n"))) <= _NAME_WIDTH:
        return name
    lines = []
    for part in re.findall(r"[^:\n]+:?|:", name):
        line = ""
        for piece in re.findall(r"[^=_.+-]*[=_.+-]|[^=_.+-]+", part):
            if line and len(line + piece) > _NAME_WIDTH:
                lines.append(line)
                line = ""
            line += piece
        lines.append(line)
    return "\n".join(lines)


def _fits(console: Console, grid: Grid, columns: Sequence[int]) -> bool:
    return _needed_width(grid.of_columns(columns), ruled=False) <= console.width


def _needed_width(grid: Grid, *, ruled: bool, folded: bool = True) -> int:
    """Characters of the screen that the table needs, with its long names `folded` or whole."""
    widths = [_widest(grid, index) for index in range(len(grid.head))]
    if folded:
        for index in range(grid.left_columns):
            widths[index] = min(_NAME_WIDTH, widths[index])
    edges = 2 if ruled else 0
    return sum(widths) + _GAP_WIDTH[ruled] * (len(widths) - 1) + edges


def _filled(grid: Grid, shown: int | None, *, ruled: bool, width: int) -> Table:
    from rich.text import Text

    # On a tight screen names are folded more, so that no numbers are cut off.
    is_tight = _needed_width(grid, ruled=ruled) > width
    table = _make_table(ruled=ruled)
    for index, name in enumerate(grid.head):
        left = index < grid.left_columns
        table.add_column(
            name,
            justify="left" if left else "right",
            no_wrap=not left,
            overflow="fold",
            min_width=min(_NAME_WIDTH, _widest(grid, index)) if left and not is_tight else None,
        )
    for row, cells in enumerate(grid.rows[:shown]):
        styles = ("bold green" if (row, at) in grid.best else "" for at in range(len(cells)))
        table.add_row(*map(Text, cells, styles))
    return table


def _widest(grid: Grid, column: int) -> int:
    """Characters of the longest line in a column."""
    cells = (cells[column] for cells in (grid.head, *grid.rows))
    return max(len(line) for cell in cells for line in cell.split("\n"))


def _make_table(*, ruled: bool) -> Table:
    """A table with a ruled head, or without rules."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    return Table(box=SIMPLE_HEAD if ruled else None, pad_edge=False, header_style="bold")
