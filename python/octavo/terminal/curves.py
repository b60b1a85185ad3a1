"""The final output of `octavo curves` on the terminal."""

from rich.console import Console

from octavo.terminal.console import say, show_cautions, show_grid
from octavo.tlb_curves.api import CurvesResult
from octavo.tlb_curves.page_sampling import sentence_on
from octavo.tlb_curves.view import grids


def show_curves(console: Console, result: CurvesResult) -> None:
    """Prints the main results; the files have every number."""
    say(console, result.headline(), "bold")
    show_cautions(console, result)
    sample = result.configuration.sample
    if sample is not None:
        say(console, sentence_on(sample, [curves.sampled for curves in result.total.values()]))
    for grid in grids(result):
        show_grid(console, grid)
