"""`octavo snapshot`: the memory of this machine, for a simulation to start from."""

from typing import Annotated

import typer

from octavo.base.errors import UsageError
from octavo.base.files import STANDARD_OUTPUT, JsonFile
from octavo.cli.guard import guarded
from octavo.cli.options import Force, JsonName, OldOutput, Quiet, current_name
from octavo.cli.shown import check_distinct
from octavo.snapshot import (
    MemorySnapshot,
    coverage_grid,
    facts,
    headline,
    read_snapshot,
    take_snapshot,
)
from octavo.terminal.console import make_console, make_output_console, say, show_grid

_EPILOG = """\b
Examples:
  octavo snapshot -o now.octmem
  octavo snapshot --show now.octmem
  sudo octavo snapshot -o server.octmem --pid 1234
  octavo snapshot --show server.octmem --json -

\b
The state of every frame (/proc/kpageflags) and the frames of a process (/proc/PID/pagemap) are
readable by root only; otherwise only free blocks by order are recorded (/proc/buddyinfo).
"""


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("snapshot", epilog=_EPILOG, no_args_is_help=True)(snapshot)


def snapshot(
    out: Annotated[
        str | None, typer.Option("--out", "-o", metavar="FILE", help="The snapshot to write.")
    ] = None,
    show: Annotated[
        str | None,
        typer.Option("--show", metavar="FILE", help="Describe this file instead."),
    ] = None,
    pid: Annotated[
        int | None,
        typer.Option(
            "--pid",
            metavar="PID",
            min=1,
            max=2**22,
            help="Also record the physical layout of this process.",
        ),
    ] = None,
    json: JsonName = None,
    quiet: Quiet = False,
    force: Force = False,
    output: OldOutput = None,
) -> None:
    """Record how the memory of this machine is fragmented, and how much of its free memory pages
    of each size could use.
    """
    with guarded():
        place = current_name(out, output, quiet=quiet)
        check_distinct(out=place, json=json)
        if (place is None) == (show is None):
            raise UsageError("give either -o FILE, to take a snapshot, or --show FILE.")
        json_file = None if json is None else JsonFile(json, force=force)
        if place is not None:
            found = take_snapshot(place, pid=pid, force=force)
            _show_taken(found, quiet=quiet)
        else:
            assert show is not None
            if pid is not None:
                raise UsageError("--pid goes with -o, not with --show.")
            found = read_snapshot(show)
            if json != STANDARD_OUTPUT:
                _show(found)
        if json_file is not None:
            json_file.write(found.document())


def _show_taken(found: MemorySnapshot, *, quiet: bool) -> None:
    """Summarises a new snapshot on standard error."""
    if quiet:
        return
    console = make_console()
    say(console, headline(found), "bold")
    for sentence in found.summary["missing"]:
        say(console, f"Missing: {sentence}.")


def _show(found: MemorySnapshot) -> None:
    console = make_output_console()
    say(console, headline(found), "bold")
    for sentence in facts(found.summary):
        say(console, sentence)
    show_grid(console, coverage_grid(found.summary))
