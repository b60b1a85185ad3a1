"""The final output of `octavo sim` on the terminal."""

from rich.console import Console

from octavo.simulation.api import SimResult
from octavo.simulation.view import grids, headline, remarks
from octavo.terminal.console import say, show_cautions, show_grid


def show_sim(console: Console, result: SimResult) -> None:
    """Prints the main results; the files have every number."""
    say(console, f"{result.subject}: {headline(result)}", "bold")
    show_cautions(console, result)
    for grid in grids(result):
        show_grid(console, grid)
    measured = result.configuration.measured
    if measured is not None:
        say(console, measured.note(), "dim")
    say(console, result.timing.sentence(), "dim")
    for text in remarks(result):
        say(console, text, "bold yellow")
    console.print()
    say(console, result.conclusion(), "bold green")
