"""The output files of commands that count, the message about them, and the exit status."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import typer
from rich.console import Console

from octavo.base.errors import CannotRun
from octavo.base.files import JsonFile
from octavo.base.signals import uninterrupted
from octavo.cli.shown import check_distinct
from octavo.results.target import OutputTarget
from octavo.terminal.console import say
from octavo.tracing.manifest import Finished

if TYPE_CHECKING:
    from octavo.results.archive import InFiles


class Files:
    """The files named by `--json` and `--out`, checked before anything runs."""

    def __init__(self, stack: ExitStack, *, json: str | None, out: str | None, force: bool) -> None:
        """`stack` removes unfinished files if nothing is written in the end."""
        check_distinct(out=out, json=json)
        self._json = JsonFile(json, force=force) if json is not None else None
        self._out = out
        self._place: OutputTarget | None = None
        if out is not None:
            with uninterrupted():
                self._place = OutputTarget(out, force=force)
                stack.callback(self._place.close)

    def write(
        self, console: Console, result: InFiles, *, quiet: bool, otherwise: str | None = None
    ) -> None:
        """Writes all files; shows `otherwise` if none was requested."""
        if self._json is not None:
            self._json.write(result.document())
        if self._place is not None:
            self._place.write(result)
            report = f"; open {self._out}/report.html for the figures"
            where = report if self._place.has_report else ""
            if not quiet:
                say(console, f"Written to {self._out}{where}.")
        elif self._json is None and not quiet and otherwise is not None:
            say(console, otherwise, "dim")


def end(result: Finished) -> None:
    """Leaves with the program's own status. Raises CannotRun where tracing failed."""
    if result.manifest["exit"]["reason"] in ("tracer-failed", "trace-broken"):
        raise CannotRun(f"{result.manifest['partial_reason']}; the result is partial.")
    if result.status:
        raise typer.Exit(result.status)
