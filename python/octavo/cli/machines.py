"""`octavo machines`: what a simulation can run on."""

from typing import Annotated

import typer

from octavo.cli import options
from octavo.cli.guard import guarded
from octavo.errors import UsageError
from octavo.machine_configs import LIST_SCHEMA, machines, machines_grid, resolve_machine
from octavo.output import STANDARD_OUTPUT, JsonFile, write_standard_output
from octavo.terminal.console import make_output_console
from octavo.terminal.summary import show_grid

_EPILOG = """\b
Examples:
  octavo machines
  octavo machines skylake
  octavo machines skylake --set tlb.l2.main.entries=2048 --set tlb.l2.main.ways=16 > mine.toml
  octavo machines mine.toml --json -

\b
What is shown of a machine is a TOML file that stands alone. A file of yours may say
extends = "skylake" and only what differs.
"""


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("machines", epilog=_EPILOG)(list_machines)


def list_machines(
    machine: Annotated[
        str | None,
        typer.Argument(metavar="[MACHINE]", help="A preset, or a file that ends with .toml."),
    ] = None,
    settings: options.Settings = None,
    json: options.JsonName = None,
) -> None:
    """List the machines that simulations can run on, or show one with every number and its
    source.
    """
    with guarded():
        json_file = JsonFile(json) if json is not None else None
        if machine is not None:
            resolved = resolve_machine(machine, settings or [])
            document = resolved.document()
            if json != STANDARD_OUTPUT:
                write_standard_output(resolved.toml)
        else:
            if settings:
                raise UsageError("--set goes with a machine: octavo machines skylake --set …")
            listed = machines()
            document = {"schema": LIST_SCHEMA, "machines": listed}
            if json != STANDARD_OUTPUT:
                show_grid(make_output_console(), machines_grid(listed))
        if json_file is not None:
            json_file.write(document)
