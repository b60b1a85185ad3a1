"""`octavo report`: make report.html anew from a result, and its figures for a paper."""

from pathlib import Path
from typing import Annotated

import typer

from octavo.base.errors import CannotRun, UsageError
from octavo.base.files import JsonFile, failing_with
from octavo.cli.guard import guarded
from octavo.cli.options import Force, JsonName, Quiet
from octavo.cli.shown import check_distinct
from octavo.terminal.console import make_console, say


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("report", no_args_is_help=True)(report)


def report(
    directory: Annotated[
        Path,
        typer.Argument(
            metavar="DIR", help="A directory that `octavo run`, `curves` or `sim` wrote by --out."
        ),
    ],
    figures: Annotated[
        str | None,
        typer.Option(
            metavar="svg,pdf,png",
            help="Draw the figures for a paper too, in these formats, into the folder `figures` "
            "beside the report.",
        ),
    ] = None,
    out: Annotated[
        str | None,
        typer.Option(
            "--out", "-o", metavar="DIR", help="Write to this directory (default: the results')."
        ),
    ] = None,
    json: JsonName = None,
    quiet: Quiet = False,
    force: Force = False,
) -> None:
    """Rebuild report.html from the results in DIR, and draw its figures for a paper.

    In DIR itself, an older report and its figures are replaced.
    """
    with guarded():
        from octavo.report.figures import read_formats
        from octavo.results.archive import read_document, write_figures, write_report

        check_distinct(out=out, json=json)
        formats = [] if figures is None else read_formats(figures)
        json_file = None if json is None else JsonFile(json, force=force)
        document = read_document(directory)
        place = directory if out is None else _new_place(out, force=force)
        write_report(document, place)
        if json_file is not None:
            json_file.write(document)
        if formats:
            drawn = write_figures(document, place, formats)
            if not quiet:
                say(make_console(), f"Drawn in {drawn}.")


def _new_place(name: str, *, force: bool) -> Path:
    """The directory that `--out` names, made where it is missing."""
    if not name:
        raise UsageError("--out is empty; name a directory.")
    place = Path(name)
    with failing_with(f"to `{name}`"):
        if place.exists() and not place.is_dir():
            raise CannotRun(f"cannot write to `{name}`: it is not a directory.")
        if (place / "report.html").exists() and not force:
            raise UsageError(f"`{name}/report.html` exists; --force overwrites it.")
        place.mkdir(parents=True, exist_ok=True)
    return place
