"""The command line: one file per command, put together here."""

from typing import Annotated

import typer

from octavo._core import VERSION
from octavo.cli import (
    check,
    convert,
    curves,
    head,
    info,
    machines,
    record,
    report,
    reproduce,
    run,
    sim,
    snapshot,
)

app = typer.Typer(
    name="octavo",
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"octavo {VERSION}")
        raise typer.Exit


@app.callback()
def octavo(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """What address translation costs a program at every page size, and which to choose."""


run.register(app)
curves.register(app)
sim.register(app)
record.register(app)
info.register(app)
head.register(app)
convert.register(app)
check.register(app)
snapshot.register(app)
machines.register(app)
report.register(app)
reproduce.register(app)
