"""Reads a result of `octavo run` for other commands: its directory, or the file of `--json`."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from octavo.base.errors import CannotRun
from octavo.base.host import open_regular
from octavo.base.own_files import description
from octavo.base.text import printable

DOCUMENT = "result.json"
"""The result of a run, for its report and for other programs."""
DATA_SET = "octavo.json"
"""The mark of a directory that holds a data set of simulations."""
REPORT_DATA = "report.json"
"""The data of a report of curves or simulations."""
_SCHEMA = "octavo/run/"
MANIFEST = "manifest.json"
"""Written last: a directory that has this file is complete."""


def read_run(name: str, *, needs: Sequence[str] = ()) -> dict[str, Any]:
    """The document of a run. Raises CannotRun, also where it lacks one of the parts `needs`."""
    path = Path(name)
    is_directory = path.is_dir()
    if is_directory:
        path /= DOCUMENT
        if os.access(path.with_name(MANIFEST), os.R_OK) and not os.access(path, os.F_OK):
            raise CannotRun(f"`{path.parent}` is not a result of `octavo run`.")
    document = read_json(path)
    if not isinstance(document, dict) or not str(document.get("schema")).startswith(_SCHEMA):
        raise CannotRun(f"`{path}` is not a result of `octavo run`.")
    if is_directory:
        check_whole(path.parent)
    check_parts(document, path, needs)
    return document


def programs_of_run(document: Mapping[str, Any]) -> tuple[Path, ...]:
    """The executables of a run, the program that was started first; empty where the document does
    not name them, as for some traces.
    """
    run = document.get("run")
    if not isinstance(run, dict):
        return ()
    processes = run.get("processes")
    parts = [run, *(processes if isinstance(processes, list) else ())]
    named = [one.get("program") for one in parts if isinstance(one, dict)]
    directory = Path(str(run.get("directory") or ""))
    return tuple(directory / name for name in named if isinstance(name, str) and name)


def other_program(traced: Sequence[Path], *started: Path) -> str:
    """A sentence without full stop that the result is of another program, where `traced` has none
    of the programs `started`; else empty.
    """
    known = [path for path in (one.resolve() for one in started) if path.parts[:2] != ("/", "proc")]
    if not traced or not known or set(known).intersection(one.resolve() for one in traced):
        return ""
    return f"The result of --from is of another program, `{printable(str(traced[0]))}`"


def check_whole(directory: Path) -> None:
    """Raises CannotRun where the command that wrote a directory of results did not end."""
    if not (directory / MANIFEST).exists():
        raise CannotRun(
            f"`{directory}` has no `{MANIFEST}`, which is written last: the command that wrote the "
            "directory did not end."
        )


def check_parts(document: dict[str, Any], path: Path, needs: Sequence[str]) -> None:
    """Raises CannotRun where a document lacks one of its parts, which are lists and objects."""
    for part in needs:
        if not isinstance(document.get(part), list | dict):
            raise CannotRun(f"`{path}` lacks `{part}`: it is damaged.")


def read_json(path: Path) -> Any:
    """The document in a file. Raises CannotRun."""
    try:
        with open_regular(path) as file:
            return json.load(file)
    except OSError as error:
        raise CannotRun(f"cannot read `{path}`: {error.strerror}.") from None
    except ValueError:
        raise CannotRun(f"`{path}` {description(str(path)) or 'is not JSON'}.") from None
