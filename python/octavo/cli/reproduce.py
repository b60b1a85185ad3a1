"""`octavo reproduce`: run a paper's study again and set the results beside what it says."""

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from octavo.cli.guard import guarded
from octavo.errors import choose
from octavo.output import OutputDirectory, text_writer, to_json, write_standard_output
from octavo.terminal.console import make_console
from octavo.terminal.summary import say

if TYPE_CHECKING:
    from octavo.studies.base_page_size import Study

STUDIES = ("base-page-size",)


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("reproduce", no_args_is_help=True)(reproduce)


def reproduce(
    study: Annotated[str, typer.Argument(metavar="STUDY", help=f"One of: {', '.join(STUDIES)}.")],
    out: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="Write the table as Markdown, JSON and Parquet there."),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Overwrite the results in a DIR that is not empty.")
    ] = False,
) -> None:
    """Run STUDY over the real programs found here; the table goes to standard output.

    base-page-size traces about a dozen programs, some minutes in all.
    """
    with guarded(), ExitStack() as stack:
        from octavo.studies.base_page_size import run_study, to_markdown

        choose(study, STUDIES, "study")
        directory = OutputDirectory(out, force=force) if out is not None else None
        if directory is not None:
            stack.callback(directory.close)
        console = make_console()
        done = run_study(lambda name: say(console, f"tracing {name}"))
        write_standard_output(to_markdown(done))
        if directory is not None:
            directory.write(_files(done))


def _files(study: "Study") -> dict[str, Callable[[Path], None]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from octavo.studies.base_page_size import to_markdown

    def write_table(path: Path) -> None:
        pq.write_table(pa.Table.from_pylist(study.records()), path, compression="zstd")

    return {
        "base-page-size.md": text_writer(to_markdown(study)),
        "base-page-size.json": text_writer(to_json(study.document(), indent=2)),
        "base-page-size.parquet": write_table,
    }
