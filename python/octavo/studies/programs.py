"""The real programs that the studies run, each in a process of its own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from octavo.studies.inputs import make_inputs
from octavo.tlb_levels import read_toml
from octavo.units import format_count


@dataclass(frozen=True)
class Program:
    """A program of a study and its command, inputs filled in."""

    name: str
    command: tuple[str, ...]


def load_programs(table: Path) -> list[Program]:
    """The programs as a table lists them, inputs not yet filled in."""
    entries = read_toml(table)["program"]
    return [Program(entry["name"], tuple(entry["command"])) for entry in entries]


def run_programs(
    programs: Sequence[Program],
    arguments: Sequence[str],
    on_program: Callable[[str], None],
    max_instructions: int | None,
) -> Iterator[tuple[str, dict[str, Any] | str]]:
    """Runs every program that is installed; gives its document, or why there is none.

    `arguments` are a command of octavo and its options; `on_program` hears the name of each
    program as it starts. With `max_instructions`, each ends after so many.
    """
    if max_instructions is not None:
        arguments = [*arguments, "--max-instructions", str(max_instructions)]
    with tempfile.TemporaryDirectory(prefix="octavo-study-") as name:
        directory = Path(name)
        inputs = {key: str(path) for key, path in make_inputs(directory).items()}
        for program in programs:
            if shutil.which(program.command[0]) is None:
                yield program.name, "not installed"
                continue
            on_program(program.name)
            yield program.name, _run(fill_in(program, inputs), arguments, directory)


def extent_note(max_instructions: int | None) -> Iterator[str]:
    """How much of each program was run, where it was not all: a paragraph."""
    if max_instructions is not None:
        yield f"Of each program the first {format_count(max_instructions)} instructions were run."


def fill_in(program: Program, inputs: dict[str, str]) -> list[str]:
    """The command with the names of inputs replaced by their paths."""
    command = list(program.command)
    for name, path in inputs.items():
        command = [word.replace(f"{{{name}}}", path) for word in command]
    return command


def _run(command: Sequence[str], arguments: Sequence[str], directory: Path) -> dict[str, Any] | str:
    """The document of one run, or why there is none.

    Output goes to a file: some programs (grep, tar) do next to nothing when it is /dev/null.
    """
    path = directory / "run.json"
    octavo = [sys.executable, "-m", "octavo", *arguments, "-q", "--json", str(path)]
    with (directory / "output").open("wb") as output:
        done = subprocess.run(
            [*octavo, "--", *command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.PIPE,
            env={**os.environ, "LC_ALL": "C"},
            check=False,
        )
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        return said[-1] if said else f"ended with status {done.returncode}"
    document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return document
