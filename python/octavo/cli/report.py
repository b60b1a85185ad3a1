"""`octavo report`: make report.html anew from a result, and its figures for a paper."""

from pathlib import Path
from typing import Annotated

import typer

from octavo.cli.guard import guarded
from octavo.terminal.console import make_console
from octavo.terminal.summary import say


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("report", no_args_is_help=True)(report)


def report(
    directory: Annotated[
        Path,
        typer.Argument(
            metavar="DIR", help="A directory that `octavo run` or `octavo curves` wrote by --out."
        ),
    ],
    figures: Annotated[
        str | None,
        typer.Option(
            metavar="svg,pdf,png",
            help="Draw the figures for a paper too, in these formats, into DIR/figures.",
        ),
    ] = None,
) -> None:
    """Rebuild report.html from the results in DIR, and draw its figures for a paper."""
    with guarded():
        from octavo.archive import write_figures, write_report
        from octavo.report.figures import read_formats

        formats = [] if figures is None else read_formats(figures)
        write_report(directory)
        if formats:
            say(make_console(), f"Drawn in {write_figures(directory, formats)}.")
