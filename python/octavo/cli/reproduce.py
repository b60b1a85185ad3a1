"""`octavo reproduce`: repeat a paper's study and compare the results with its claims."""

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from octavo.base import units
from octavo.base.errors import UsageError, choose
from octavo.base.files import (
    STANDARD_OUTPUT,
    OutputDirectory,
    text_writer,
    to_json,
    write_standard_output,
)
from octavo.base.signals import uninterrupted
from octavo.cli import options
from octavo.cli.groups import flag, option, with_groups
from octavo.cli.guard import guarded
from octavo.studies import STUDIES
from octavo.terminal.console import make_console, say

if TYPE_CHECKING:
    from octavo.studies.reproduction import Reproduction

_TAILORED = "tailored-page-sizes"


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("reproduce", no_args_is_help=True)(reproduce)


@with_groups
def reproduce(
    study: Annotated[str, typer.Argument(metavar="STUDY", help=f"One of: {', '.join(STUDIES)}.")],
    out: str | None = option(
        None,
        "DIR",
        "Write the tables as Markdown, JSON and Parquet there, and the figures as SVG and PDF.",
        "--out",
        "-o",
    ),
    max_instructions: str | None = option(
        None, "N", "End each program after so many instructions."
    ),
    large: bool = flag(f"Of {_TAILORED}: workloads of gigabytes, as in the paper. Takes hours."),
    *,
    output: options.DocumentOutput,
) -> None:
    """Run STUDY over the real programs found here; the tables go to standard output.

    Each traces about a dozen programs: minutes in all, and with two page sizes most of an hour.
    Tailored page sizes and perforated pages want those of `make workloads`, too; perforated pages
    begin with some hundred simulations of random accesses, and Ctrl-C keeps what is done.
    `--max-instructions 500M` makes it quicker.
    """
    with guarded(), ExitStack() as stack:
        choose(study, STUDIES, "study")
        if large and study != _TAILORED:
            raise UsageError(f"--large: {study} has one size only; {_TAILORED} has a larger one.")
        write_document = output.document_file(beside=out)
        directory: OutputDirectory | None = None
        if out is not None:
            with uninterrupted():
                directory = OutputDirectory(out, force=output.force)
                stack.callback(directory.close)
        console = make_console()
        most = None if max_instructions is None else units.count(max_instructions)
        report = _say_nothing if output.quiet else partial(say, console)
        from octavo.studies.reproduction import Request
        from octavo.studies.reproduction import reproduce as run_reproduction

        request = Request(partial(_say_tracing, report), report, most, large)
        done = run_reproduction(study, request)
        if output.json != STANDARD_OUTPUT:
            write_standard_output(done.markdown())
        write_document(done.document)
        if directory is not None:
            directory.write(_files(study, done))
        if done.is_partial:
            raise KeyboardInterrupt


def _files(name: str, done: "Reproduction") -> dict[str, Callable[[Path], None]]:
    """A writer for each file of `--out`, by its name."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from octavo.report.figures import figure_files

    def write_table(path: Path) -> None:
        pq.write_table(pa.Table.from_pylist(done.records()), path, compression="zstd")

    figures = done.figures()
    pictures = [f"![{figure}]({figure}.svg)\n" for figure in figures]
    end = "\n".join(["", "## Figures", "", *pictures]) if figures else ""
    return {
        f"{name}.md": text_writer(done.markdown() + end),
        f"{name}.json": text_writer(to_json(done.document(), indent=2)),
        f"{name}.parquet": write_table,
        **figure_files(figures, ["svg", "pdf"]),
    }


def _say_nothing(text: str) -> None:
    pass


def _say_tracing(report: Callable[[str], None], name: str) -> None:
    report(f"tracing {name}")
