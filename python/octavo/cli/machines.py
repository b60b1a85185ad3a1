"""`octavo machines`: the machines of simulations."""

from typing import Annotated

import typer

from octavo.base.errors import UsageError
from octavo.cli import options
from octavo.cli.groups import with_groups
from octavo.cli.guard import guarded
from octavo.hardware.machines import LIST_SCHEMA, machines, machines_grid, resolve_machine
from octavo.terminal.console import show_grid

_EPILOG = """\b
Examples:
  octavo machines
  octavo machines skylake
  octavo machines skylake --set tlb.l2.main.entries=2048 --set tlb.l2.main.ways=16 -o mine.toml
  octavo machines mine.toml --json -

\b
A machine is shown as a complete TOML file. Your own file may contain
extends = "skylake" and only the keys that differ.
"""


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("machines", epilog=_EPILOG)(list_machines)


@with_groups
def list_machines(
    machine: Annotated[
        str | None,
        typer.Argument(metavar="[MACHINE]", help="A preset, or a file that ends with .toml."),
    ] = None,
    settings: options.Settings = None,
    *,
    output: options.TextOutput,
) -> None:
    """List the machines that simulations can run on, or show one with every number and its
    source.
    """
    with guarded():
        shown = output.shown()
        if machine is not None:
            resolved = resolve_machine(machine, settings or [])
            shown.write_text([resolved.toml])
            shown.write_json(resolved.document)
        else:
            if settings:
                raise UsageError("--set goes with a machine: octavo machines skylake --set …")
            listed = machines()
            shown.write_console(lambda console: show_grid(console, machines_grid(listed)))
            shown.write_json(lambda: {"schema": LIST_SCHEMA, "machines": listed})
