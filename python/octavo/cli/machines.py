"""`octavo machines`: a machine of simulations."""

from octavo.cli import options
from octavo.cli.groups import argument, command
from octavo.cli.guard import guarded
from octavo.hardware.machines import check_snapshots, resolve_machine

_EPILOG = """\b
Examples:
  octavo machines skylake
  octavo machines skylake --set tlb.l2.main.entries=2048 --set tlb.l2.main.ways=16 -o mine.toml
  octavo machines mine.toml --json -

\b
A machine is shown as a complete TOML file. Your own file may contain
extends = "skylake" and only the keys that differ.
"""


@command("machines", epilog=_EPILOG)
def show_machine(
    machine: str = argument("MACHINE", "A preset, or a file that ends with .toml."),
    settings: options.Settings = None,
    *,
    output: options.TextOutput,
) -> None:
    """Show a machine that simulations can run on, with every number and its source; `octavo list
    machines` lists those that ship with Octavo.
    """
    with guarded():
        shown = output.shown()
        resolved = resolve_machine(machine, settings or [])
        check_snapshots(machine, resolved.config)
        shown.write_text([resolved.toml])
        shown.write_json(resolved.document)
