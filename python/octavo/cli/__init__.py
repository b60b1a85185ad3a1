"""The command line: one file per command, each imported when it is used."""

import os
import sys
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

COMMANDS = (
    "run",
    "curves",
    "sim",
    "ctl",
    "record",
    "info",
    "head",
    "convert",
    "check",
    "apply",
    "snapshot",
    "verify",
    "list",
    "explain",
    "machines",
    "calibrate",
    "report",
    "diff",
    "reproduce",
    "completion",
    "study",
)
"""Modules that each declare the command of their name, in the order of `--help`."""
DECLARED: dict[str, typer.Typer] = {}
"""The commands whose modules are imported, by name."""
TYPER_SETTINGS: dict[str, Any] = {
    "add_completion": False,
    "no_args_is_help": True,
    "rich_markup_mode": None,
    "pretty_exceptions_enable": False,
}
"""The settings of all applications of typer."""


class _Commands(Mapping[str, Any]):
    """The commands by name; a command's module is imported when the command is looked up."""

    def __getitem__(self, name: str) -> Any:
        if name not in COMMANDS:
            raise KeyError(name)
        import_module(f"{__name__}.{name}")
        return typer.main.get_command(DECLARED[name])

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)


COMPLETE_VARIABLE = "_OCTAVO_COMPLETE"
"""Set by the scripts of `octavo completion`."""


def _check_completion(environment: Mapping[str, str]) -> None:
    """Ends the process where the variables that bash's script sets are missing or wrong."""
    place = environment.get("COMP_CWORD", "")
    is_set = "COMP_WORDS" in environment and place.isascii() and place.isdecimal()
    if environment[COMPLETE_VARIABLE] == "complete_bash" and not is_set:
        print(
            f"octavo: {COMPLETE_VARIABLE} is for the script of `octavo completion bash`, which "
            "sets COMP_WORDS and COMP_CWORD.",
            file=sys.stderr,
        )
        sys.exit(2)


class _LazyGroup(TyperGroup):
    """The group of all commands, each imported when it is looked up."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**{**settings, "commands": _Commands()})
        if COMPLETE_VARIABLE in os.environ:
            _check_completion(os.environ)
            from typer._completion_classes import completion_init

            completion_init()


app = typer.Typer(name="octavo", cls=_LazyGroup, **TYPER_SETTINGS)


def _show_version(wanted: bool) -> None:
    if wanted:
        from octavo._core import VERSION

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
    """Measure what address translation costs a program at every page size, and choose a size."""
