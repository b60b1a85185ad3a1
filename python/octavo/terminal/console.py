"""The console on standard error: coloured on a terminal, plain text everywhere else."""

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

PLAIN_WIDTH = 120
"""Columns when nobody says how wide the reader's screen is."""


def make_console() -> Console:
    """Standard error, so that the traced program's standard output stays untouched.

    rich itself respects NO_COLOR and TERM=dumb.
    """
    console = Console(stderr=True, highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console.width = max(console.width, PLAIN_WIDTH)
    return console


def make_table(console: Console) -> Table:
    """A table with a ruled head on a terminal, and columns apart by blanks elsewhere."""
    return Table(
        box=SIMPLE_HEAD if console.is_terminal else None,
        pad_edge=False,
        header_style="bold",
    )
