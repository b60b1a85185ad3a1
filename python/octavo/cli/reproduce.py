"""`octavo reproduce`: repeat a paper's study and compare the results with its claims."""

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from octavo.base import units
from octavo.base.errors import UsageError, choose
from octavo.base.files import (
    STANDARD_OUTPUT,
    OutputDirectory,
    failing_with,
    in_turn,
    text_writer,
    to_json,
    write_parquet,
    write_standard_output,
)
from octavo.base.signals import uninterrupted
from octavo.cli import options
from octavo.cli.groups import argument, command, flag, option, optional
from octavo.cli.guard import guarded
from octavo.studies import ALL, LARGE, STUDIES
from octavo.terminal.console import make_console, say
from octavo.tracing.scope import resolve_scope

if TYPE_CHECKING:
    from octavo.studies.reproduction import Reproduction, Request, Say

_EPILOG = """\b
Examples:
  octavo reproduce base-page-size
  octavo reproduce all -o papers --estimate
  octavo reproduce all -o papers --max-instructions 20M
"""


@command("reproduce", epilog=_EPILOG)
def reproduce(
    study: str = argument("STUDY", f"One of: {', '.join(STUDIES)}; or {ALL}."),
    out: str | None = option(
        None,
        "DIR",
        "Write the tables as Markdown, JSON and Parquet there, and the figures as SVG and PDF.",
        "--out",
        "-o",
    ),
    max_instructions: str | None = option(None, "N", "End each program after N instructions."),
    large: bool = flag(f"For {LARGE}: workloads of gigabytes, as in the paper. Takes hours."),
    estimate: bool = flag(f"For {ALL}: only show how long the remaining parts take."),
    *,
    output: options.DocumentOutput,
) -> None:
    """Run STUDY over the real programs found here; the tables go to standard output.

    Each study traces about a dozen programs: this takes minutes, and for two page sizes most of an
    hour. Tailored page sizes and perforated pages also need the programs of `make workloads`.
    Perforated pages begin with some hundred simulations of random accesses; Ctrl-C keeps finished
    ones. `--max-instructions 500M` makes a study faster.

    `all` runs all studies, and writes one report to the DIR of --out, with a summary of the claims
    that hold. It keeps each finished part there: after Ctrl-C or a kill, the same command goes on.
    """
    with guarded(), ExitStack() as stack:
        choose(study, (*STUDIES, ALL), "study")
        if large and study != LARGE:
            raise UsageError(f"--large: {study} has one size only; {LARGE} has a larger one.")
        if estimate and study != ALL:
            raise UsageError(f"--estimate: only `octavo reproduce {ALL}` has an estimate.")
        if study == ALL and not out:
            raise UsageError(
                f"`octavo reproduce {ALL}` keeps its parts in a directory: name one with --out DIR."
            )
        most = optional(units.count, max_instructions, "--max-instructions")
        resolve_scope(max_instructions=most)
        write_document = output.document_file(beside=out)
        directory: OutputDirectory | None = None
        if out is not None and study != ALL:
            with uninterrupted():
                directory = OutputDirectory(out, force=output.force)
                stack.callback(directory.close)
        console = make_console()
        report: Say = (lambda text: None) if output.quiet else partial(say, console)
        from octavo.studies.reproduction import Request
        from octavo.studies.reproduction import reproduce as run_reproduction

        request = Request(lambda name: report(f"tracing {name}"), report, most, large)
        if study == ALL and out is not None:
            _reproduce_all(out, request, output, write_document, estimate=estimate)
            return
        done = run_reproduction(study, request)
        if output.json != STANDARD_OUTPUT:
            write_standard_output(done.markdown())
        in_turn(
            lambda: write_document(done.document),
            lambda: None if directory is None else directory.write(_files(study, done)),
        )
        if done.is_partial:
            raise KeyboardInterrupt


def _reproduce_all(
    out: str,
    request: "Request",
    output: options.DocumentOutput,
    write_document: Callable[[Callable[[], Any]], None],
    *,
    estimate: bool,
) -> None:
    """Runs all papers, except the parts that the directory has already."""
    from octavo._core import ENGINES
    from octavo.studies.all_papers import REPORT, AllPapers

    papers = AllPapers(Path(out), ENGINES, request.max_instructions)
    if estimate:
        papers.check(force=output.force)
        if output.json != STANDARD_OUTPUT:
            write_standard_output(f"{papers.estimate()}\n")
        write_document(papers.document)
        return
    with failing_with(f"to `{out}`"):
        papers.open(force=output.force)
    try:
        papers.run(request, _files)
    except KeyboardInterrupt:
        request.say(f"Finished parts are kept in {out}; the same command continues.")
        papers.write_report()
        raise
    papers.write_report()
    if output.json != STANDARD_OUTPUT:
        write_standard_output(papers.summary())
    write_document(papers.document)
    request.say(f"Written to {out}/{REPORT}.md, with the page of each paper below the summary.")


def _files(name: str, done: "Reproduction") -> dict[str, Callable[[Path], None]]:
    """A writer for each file of `--out`, by its name."""
    import pyarrow as pa

    from octavo.report.figures import figure_files

    def write_table(path: Path) -> None:
        write_parquet(pa.Table.from_pylist(done.records()), path)

    figures = done.figures()
    pictures = [f"![{figure}]({figure}.svg)\n" for figure in figures]
    end = "\n".join(["", "## Figures", "", *pictures]) if figures else ""
    return {
        f"{name}.md": text_writer(done.markdown() + end),
        f"{name}.json": text_writer(to_json(done.document(), indent=2)),
        f"{name}.parquet": write_table,
        **figure_files(figures, ["svg", "pdf"]),
    }
