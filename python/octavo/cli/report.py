"""`octavo report`: make report.html anew from a result."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from octavo.cli.guard import guarded
from octavo.errors import CannotRun
from octavo.output import replace_text
from octavo.result import SCHEMA


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("report", no_args_is_help=True)(report)


def report(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="A directory that `octavo run --out` wrote.")
    ],
) -> None:
    """Rebuild report.html from the result.json in DIR."""
    with guarded():
        from octavo.archive import DOCUMENT, REPORT
        from octavo.report import render

        document = _read_document(directory / DOCUMENT)
        replace_text(directory / REPORT, render(document))


def _read_document(path: Path) -> dict[str, Any]:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CannotRun(f"cannot read `{path}`: {error.strerror}.") from None
    except ValueError:
        raise CannotRun(f"`{path}` is not JSON.") from None
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise CannotRun(f"`{path}` is no result of `octavo run` (its schema is not {SCHEMA}).")
    return document
