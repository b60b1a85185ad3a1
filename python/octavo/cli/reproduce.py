"""`octavo reproduce`: repeat a paper's study and compare the results with its claims."""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from octavo.base import units
from octavo.base.errors import UsageError, choose
from octavo.base.files import (
    STANDARD_OUTPUT,
    JsonFile,
    OutputDirectory,
    text_writer,
    to_json,
    write_standard_output,
)
from octavo.base.signals import uninterrupted
from octavo.cli.guard import guarded
from octavo.cli.options import Force, JsonName, Quiet
from octavo.cli.shown import check_distinct
from octavo.terminal.console import make_console, say

Files = dict[str, Callable[[Path], None]]
"""A writer for each file by name."""


@dataclass(frozen=True)
class Reproduced:
    """A study that has run."""

    markdown: str
    document: dict[str, Any]
    records: list[dict[str, Any]]
    """A flat record for each program."""
    figures: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Specifications of charts, by the name of their file."""
    is_partial: bool = False
    """Whether Ctrl-C ended it: what was done by then is here."""

    def files(self, name: str) -> Files:
        """The files of `--out`."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        from octavo.report.figures import figure_files

        def write_table(path: Path) -> None:
            pq.write_table(pa.Table.from_pylist(self.records), path, compression="zstd")

        return {
            f"{name}.md": text_writer(self.markdown + self._pictures()),
            f"{name}.json": text_writer(to_json(self.document, indent=2)),
            f"{name}.parquet": write_table,
            **figure_files(self.figures, ["svg", "pdf"]),
        }

    def _pictures(self) -> str:
        """The end of the page, where the figures lie beside it."""
        if not self.figures:
            return ""
        pictures = [f"![{name}]({name}.svg)\n" for name in self.figures]
        return "\n".join(["", "## Figures", "", *pictures])


@dataclass(frozen=True)
class Wanted:
    """A requested reproduction."""

    on_program: Callable[[str], None]
    """Hears the name of each program as it starts."""
    say: Callable[[str], None]
    """Hears how far the rest is."""
    max_instructions: int | None
    large: bool


def _base_page_size(wanted: Wanted) -> Reproduced:
    from octavo.studies.base_page_size import run_study, to_markdown

    study = run_study(wanted.on_program, wanted.max_instructions)
    return Reproduced(to_markdown(study), study.document(), study.records())


def _two_page_sizes(wanted: Wanted) -> Reproduced:
    from octavo.studies.two_page_sizes import run_study, to_document, to_markdown
    from octavo.studies.two_page_sizes.figures import figures_of

    study = run_study(wanted.on_program, wanted.max_instructions)
    records = [measured.flat() for measured in study.measurements]
    return Reproduced(to_markdown(study), to_document(study), records, figures_of(study))


def _tailored_page_sizes(wanted: Wanted) -> Reproduced:
    from octavo.studies.tailored_page_sizes import run_study, to_document, to_markdown
    from octavo.studies.tailored_page_sizes.figures import figures_of

    study = run_study(wanted.on_program, wanted.max_instructions, large=wanted.large)
    records = [measured.flat() for measured in study.measurements]
    return Reproduced(to_markdown(study), to_document(study), records, figures_of(study))


def _softvm(wanted: Wanted) -> Reproduced:
    from octavo.studies.softvm import run_study, to_document, to_markdown
    from octavo.studies.softvm.figures import figures_of

    study = run_study(wanted.on_program, wanted.max_instructions)
    records = [measured.flat() for measured in study.measurements]
    return Reproduced(to_markdown(study), to_document(study), records, figures_of(study))


def _perforated_pages(wanted: Wanted) -> Reproduced:
    from octavo.studies.perforated_pages import run_study, to_document, to_markdown, to_records
    from octavo.studies.perforated_pages.figures import figures_of

    study = run_study(wanted.on_program, wanted.say, wanted.max_instructions)
    return Reproduced(
        to_markdown(study),
        to_document(study),
        to_records(study),
        figures_of(study),
        study.is_partial,
    )


_TAILORED = "tailored-page-sizes"
STUDIES = {
    "base-page-size": _base_page_size,
    "two-page-sizes": _two_page_sizes,
    _TAILORED: _tailored_page_sizes,
    "softvm": _softvm,
    "perforated-pages": _perforated_pages,
}


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("reproduce", no_args_is_help=True)(reproduce)


def reproduce(
    study: Annotated[str, typer.Argument(metavar="STUDY", help=f"One of: {', '.join(STUDIES)}.")],
    out: Annotated[
        str | None,
        typer.Option(
            "--out",
            "-o",
            metavar="DIR",
            help="Write the tables as Markdown, JSON and Parquet there, and the figures as SVG "
            "and PDF.",
        ),
    ] = None,
    max_instructions: Annotated[
        str | None,
        typer.Option(metavar="N", help="End each program after so many instructions."),
    ] = None,
    large: Annotated[
        bool,
        typer.Option(
            "--large",
            help=f"Of {_TAILORED}: workloads of gigabytes, as in the paper. Takes hours.",
        ),
    ] = False,
    json: JsonName = None,
    quiet: Quiet = False,
    force: Force = False,
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
        check_distinct(out=out, json=json)
        json_file = None if json is None else JsonFile(json, force=force)
        directory: OutputDirectory | None = None
        if out is not None:
            with uninterrupted():
                directory = OutputDirectory(out, force=force)
                stack.callback(directory.close)
        console = make_console()
        most = None if max_instructions is None else units.count(max_instructions)
        report = _say_nothing if quiet else partial(say, console)
        on_program = partial(_say_tracing, report)
        done = STUDIES[study](Wanted(on_program, report, most, large))
        if json != STANDARD_OUTPUT:
            write_standard_output(done.markdown)
        if json_file is not None:
            json_file.write(done.document)
        if directory is not None:
            directory.write(done.files(study))
        if done.is_partial:
            raise KeyboardInterrupt


def _say_nothing(text: str) -> None:
    pass


def _say_tracing(report: Callable[[str], None], name: str) -> None:
    report(f"tracing {name}")
