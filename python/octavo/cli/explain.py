"""`octavo explain`: a translation design, its parameters and its counters."""

import re
import textwrap
from collections.abc import Iterable, Iterator
from pathlib import Path

from rich.console import Console

from octavo.base.errors import UsageError
from octavo.base.files import NewFile
from octavo.base.table import Grid
from octavo.base.text import quoted
from octavo.cli import options
from octavo.cli.groups import argument, command, option
from octavo.cli.guard import guarded
from octavo.simulation.explanation import Explanation, explain
from octavo.terminal.console import say, show_grid

_MARK = "- "
"""The beginning of an item of a list."""
_EPILOG = """\b
Examples:
  octavo explain tps
  octavo explain colt --figure colt.svg
  octavo explain pom_tlb --json pom_tlb.json
  octavo explain victima+base:victima.predictor=always

\b
`octavo list designs` lists all named designs.
"""


@command("explain", epilog=_EPILOG)
def explain_design(
    design: str = argument("DESIGN", "A design, as of octavo sim."),
    figure: str | None = option(None, "FILE.svg", "Also draw the mechanism, as SVG."),
    *,
    output: options.TextOutput,
) -> None:
    """Explain a translation design: its idea, paper, assumptions, parameters and counters."""
    with guarded():
        shown = output.shown()
        file = None if figure is None else _figure_file(figure, output)
        explained = explain(design)
        if file is not None:
            from octavo.report.mechanisms import FIGURES

            file.write(FIGURES[explained.figure]().svg())
        shown.write_console(lambda console: _show(console, explained))
        shown.write_json(explained.document)


def _figure_file(name: str, output: options.TextOutput) -> NewFile:
    """The file of the figure. Raises UsageError or CannotRun where it cannot be written."""
    if not name.endswith(".svg"):
        raise UsageError(
            f"--figure {quoted(name)}: a figure is SVG; give the name of an .svg file."
        )
    others = (Path(other).resolve() for other in (output.out, output.json) if other)
    if Path(name).resolve() in others:
        raise UsageError(f"--figure and another option both name `{quoted(name)}`.")
    return NewFile(name, force=output.force, option="--figure")


def _paragraphs(text: str) -> list[str]:
    """Paragraphs and items of lists, a line each, and the empty lines between them."""
    return re.sub(rf"(?<=\S)\n *(?!{_MARK})(?=\S)", " ", text).splitlines()


def _say(console: Console, text: str, style: str = "") -> None:
    """Prints a paragraph, wrapped to the console's width in files and pipes, too."""
    indent = " " * len(_MARK) if text.startswith(_MARK) else ""
    lines = textwrap.wrap(text, console.width, subsequent_indent=indent, break_on_hyphens=False)
    for line in lines or [""]:
        say(console, line, style)


def _by_meaning(counters: Iterable[tuple[str, str, str]]) -> Iterator[tuple[str, ...]]:
    """The rows of counters: counters of one component with the same meaning are one row."""
    together: dict[tuple[str, str], list[str]] = {}
    for component, counter, meaning in counters:
        together.setdefault((component, meaning), []).append(counter)
    for (component, meaning), names in together.items():
        yield component, ", ".join(names), meaning


def _show(console: Console, one: Explanation) -> None:
    _say(console, f"{one.name}: {one.about}", "bold")
    _say(console, f"Hardware {one.hardware}, under the policy {one.policy}.")
    console.print()
    for paragraph in _paragraphs(one.documentation):
        _say(console, paragraph)
    if one.assumptions:
        console.print()
        _say(console, f"In simulations: {one.assumptions}")
    parameters = Grid("Parameters", ("key", "default"), one.parameters, left_columns=2)
    titles = ("component", "counters", "meaning")
    counters = Grid("Counters", titles, tuple(_by_meaning(one.counters)), left_columns=3)
    show_grid(console, parameters, wrapped=True)
    show_grid(console, counters, wrapped=True)
