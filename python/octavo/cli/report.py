"""`octavo report`: rebuilds report.html from a result, and draws its figures for a paper."""

from pathlib import Path

from octavo.base.errors import CannotRun, UsageError
from octavo.base.files import check_directory_name, failing_with
from octavo.cli import options
from octavo.cli.groups import argument, command, option
from octavo.cli.guard import guarded
from octavo.terminal.console import make_console, say


@command("report")
def report(
    directory: Path = argument("DIR", "A directory of `octavo run`, `curves` or `sim` --out."),
    figures: str | None = option(
        None,
        "svg,pdf,png",
        "Also draw the figures for a paper in these formats, into the folder `figures` beside the "
        "report.",
    ),
    out: str | None = option(
        None, "DIR", "Write to this directory (default: the results').", "--out", "-o"
    ),
    *,
    output: options.DocumentOutput,
) -> None:
    """Rebuild report.html from the results in DIR, and draw its figures for a paper.

    In DIR itself, an older report and its figures are replaced.
    """
    with guarded():
        from octavo.report.figures import read_formats
        from octavo.results.archive import read_document, write_figures, write_report

        write_document = output.document_file(beside=out)
        formats = [] if figures is None else read_formats(figures)
        document = read_document(directory)
        place = directory if out is None else _new_place(out, force=output.force)
        write_report(document, place)
        write_document(lambda: document)
        if formats:
            drawn = write_figures(document, place, formats)
            if not output.quiet:
                say(make_console(), f"Drawn in {drawn}.")


def _new_place(name: str, *, force: bool) -> Path:
    """The directory that `--out` names, made where it is missing."""
    check_directory_name(name)
    place = Path(name)
    with failing_with(f"to `{name}`"):
        if place.exists() and not place.is_dir():
            raise CannotRun(f"cannot write to `{name}`: it is not a directory.")
        if (place / "report.html").exists() and not force:
            raise UsageError(f"`{name}/report.html` exists; --force overwrites it.")
        place.mkdir(parents=True, exist_ok=True)
    return place
