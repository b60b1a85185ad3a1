"""The console on standard error: coloured on a terminal, plain text everywhere else."""

import errno
import os
import sys
from typing import IO, Any, NoReturn, cast

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from octavo.base.files import check_standard_output, discard_standard_output

PLAIN_WIDTH = 120
"""Columns if the width of the screen is unknown."""

GAP_WIDTH = {True: 3, False: 2}
"""Columns between those of a table, with rules and without."""


class Forgiving:
    """A stream whose reader may go: what cannot be written is dropped, and the run goes on.

    A closed terminal, a full disk or a pipe to `head` must not cost anyone a result.
    """

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Writes, or drops the text."""
        try:
            return self._stream.write(text)
        except OSError:
            self._drop()
            return len(text)

    def flush(self) -> None:
        """Flushes, or drops what is left."""
        try:
            self._stream.flush()
        except OSError:
            self._drop()

    def _drop(self) -> None:
        """Sends this and everything after it nowhere."""
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self._stream.fileno())
        os.close(nowhere)
        self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def make_console() -> Console:
    """Standard error, so that the traced program's standard output stays untouched.

    rich itself respects NO_COLOR and TERM=dumb.
    """
    stream = None if sys.stderr is None else cast("IO[str]", Forgiving(sys.stderr))
    console = Console(file=stream, stderr=True, highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console.width = max(console.width, PLAIN_WIDTH)
    return console


class _OutputConsole(Console):
    """One that leaves it to the command what becomes of it when its reader has gone."""

    def on_broken_pipe(self) -> NoReturn:
        """Raises, where rich would exit with 1: of `octavo check`, that is a verdict."""
        discard_standard_output()
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))


def make_output_console() -> Console:
    """Standard output, for the commands whose output is text."""
    check_standard_output()
    console = _OutputConsole(highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console.width = max(console.width, PLAIN_WIDTH)
    return console


def make_table(*, ruled: bool) -> Table:
    """A table with a ruled head, or one with columns apart by blanks."""
    return Table(box=SIMPLE_HEAD if ruled else None, pad_edge=False, header_style="bold")
