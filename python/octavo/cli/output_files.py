"""The output files of commands that count, the message about them, and the exit status."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from octavo.base.errors import CannotRun
from octavo.base.files import in_turn
from octavo.base.signals import uninterrupted
from octavo.cli.options import Output
from octavo.cli.shown import check_not_read
from octavo.results.target import OutputTarget
from octavo.terminal.console import say
from octavo.tracing.manifest import Finished

if TYPE_CHECKING:
    from rich.console import Console

    from octavo.results.archive import InFiles


class Files:
    """The files named by `--json` and `--out`, checked before anything runs."""

    def __init__(self, stack: ExitStack, asked: Output, inputs: Sequence[str] = ()) -> None:
        """`stack` removes unfinished files if no result is written; `inputs` are files that are
        read.
        """
        check_not_read("--out", asked.out, inputs)
        self._asked = asked
        self._write_document = asked.document_file(beside=asked.out, inputs=inputs)
        self._place: OutputTarget | None = None
        if asked.out is not None:
            with uninterrupted():
                self._place = OutputTarget(asked.out, force=asked.force)
                stack.callback(self._place.close)

    def write(self, console: Console, result: InFiles, otherwise: str | None = None) -> None:
        """Writes all files; shows `otherwise` if none was requested."""
        place = self._place
        in_turn(
            lambda: self._write_document(result.document),
            lambda: None if place is None else place.write(result),
        )
        text = otherwise if self._asked.json is None else None
        out = self._asked.out
        if place is not None and out is not None:
            report = f"; open {Path(out, 'report.html')} for the figures"
            text = f"Written to {out}{report if place.has_report else ''}."
        if text is not None and not self._asked.quiet:
            say(console, text, "dim" if place is None else "")


def end(result: Finished) -> None:
    """Exits with the program's own status. Raises CannotRun where Octavo could not do its part."""
    if result.failure is not None:
        raise CannotRun(result.failure)
    if result.status:
        raise typer.Exit(result.status)
