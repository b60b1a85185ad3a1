"""The command line: one file per command, each imported when it is used."""

import os
import sys
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

COMMANDS = {
    "run": "Count TLB misses and memory at every page size, and advise one",
    "curves": "Compute the misses of every TLB in one pass",
    "sim": "Simulate a machine with each of several translation designs",
    "ctl": "Control a run from another terminal: begin and end counting",
    "record": "Keep all references of a program in a trace",
    "info": "Describe a trace and its processes",
    "head": "List the first references and events of a trace",
    "convert": "Write a trace in another format, or a part of it",
    "check": "Check whether a trace can be what a program did",
    "apply": "Give a program, or a running process, 2 MiB pages",
    "snapshot": "Record the fragmentation of this machine's memory",
    "verify": "Measure settings of huge pages natively, and name the best",
    "list": "List machines, designs, policies, workloads or formats",
    "explain": "Explain a translation design and its counters",
    "machines": "Show a machine with every number and its source",
    "calibrate": "Measure this processor's TLBs, page walks and caches",
    "report": "Rebuild the report of a result, and draw its figures",
    "diff": "Compare two results number by number",
    "reproduce": "Check the claims of a paper on the programs found here",
    "completion": "Print the script that completes commands in a shell",
    "study": "Run a study of many simulations, and query its results",
}
"""Modules that each declare the command of their name, with its line in `--help`, in this order."""
DECLARED: dict[str, typer.Typer] = {}
"""The commands whose modules are imported, by name."""
TYPER_SETTINGS: dict[str, Any] = {
    "add_completion": False,
    "no_args_is_help": True,
    "rich_markup_mode": None,
    "pretty_exceptions_enable": False,
    "context_settings": {"help_option_names": ["--help", "-h"]},
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

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Reads the options before the command."""
        try:
            return super().parse_args(ctx, args)
        except Exception as error:
            # typer has its own copy of click's exceptions, or click's, by version.
            if type(error).__name__ != "NoSuchOption":
                raise
            from octavo.cli.unknown_options import refuse

            refuse(error, ctx)


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
