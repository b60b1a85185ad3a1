"""`octavo diff`: two results of one command, with a verdict for continuous integration."""

from pathlib import Path

import typer
from rich.console import Console

from octavo.base.errors import CannotRun, UsageError
from octavo.base.units import percentage
from octavo.cli import options
from octavo.cli.groups import argument, command, option
from octavo.cli.guard import guarded
from octavo.terminal.console import say, show_grid

WORSE = 1
_EPILOG = """\b
Examples:
  octavo diff before after
  octavo diff before after --tolerance 5 --json diff.json
  octavo diff before after --quiet || echo "translation costs more"

\b
Exit status: 0 where no number is worse, 1 where one is worse by more than
the tolerance, 2 where the results cannot be compared.
"""


@command("diff", epilog=_EPILOG)
def diff(
    before: Path = argument("A", "The result before: a DIR of --out."),
    after: Path = argument("B", "The result after."),
    tolerance: str = option(
        "2%", "PERCENT", "Growth of a number above which it counts as worse.", "--tolerance"
    ),
    *,
    output: options.TextOutput,
) -> None:
    """Compare two results of `octavo run`, `curves` or `sim`, number by number.

    For misses, cycles and memory, less is better. Instructions and references are only shown.
    """
    with guarded():
        from octavo.results.archive import read_document
        from octavo.results.difference import compare

        share = percentage(tolerance, "--tolerance", most=1000)
        shown = output.shown()
        try:
            documents = [read_document(place) for place in (before, after)]
        except CannotRun as error:
            raise UsageError(str(error)) from None
        compared = compare(documents[0], documents[1], share)
        shown.write_json(compared.document)
        if not output.quiet:

            def show(console: Console) -> None:
                show_grid(console, compared.grid(), is_first=True)
                for remark in compared.remarks:
                    say(console, remark, "bold yellow")
                say(console, compared.sentence(), "bold")

            shown.write_console(show)
        if compared.verdict == "worse":
            raise typer.Exit(WORSE)
