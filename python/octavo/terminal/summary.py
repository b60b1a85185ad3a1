"""The final output of a run on the terminal: tables, answer, advice."""

from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from octavo.analysis.view import (
    headline,
    machine_grid,
    notable_regions,
    one_of_each_family,
    page_size_grid,
    process_grid,
    region_grid,
)
from octavo.base.table import Grid
from octavo.base.text import printable
from octavo.runs.result import RunResult
from octavo.terminal.console import GAP_WIDTH, make_table
from octavo.tracing.manifest import Finished, cautions, warnings

_REGIONS_SHOWN = 8
_PROCESSES_SHOWN = 12
_ADVICE_SHOWN = 6
_NAME_WIDTH = 20
"""Columns that a name keeps on a narrow terminal before it is folded."""


def show_result(console: Console, result: RunResult, *, advice: bool) -> None:
    """Prints everything; long lists are cut here, never in the files."""
    manifest, rows = result.manifest, result.rows
    depth = len(manifest["configuration"]["machine"]["levels"])
    say(console, f"{manifest['program']}: {headline(manifest, rows)}", "bold")
    show_cautions(console, result)
    if advice:
        _show_answer(console, result.advice[0])
    modelled = machine_grid(rows, manifest)
    if modelled is not None:
        show_grid(console, modelled)
    for level in range(1, depth + 1):
        show_grid(console, page_size_grid(rows, level))
    programs = result.programs
    processes = process_grid(rows, manifest, depth, programs)
    if processes is not None:
        show_grid(console, processes, _PROCESSES_SHOWN)
    show_grid(console, region_grid(rows, result.advice, depth, programs), _REGIONS_SHOWN)
    if advice:
        _show_evidence(console, result.advice)


def say(console: Console, text: str, style: str = "", *, indent: int = 0) -> None:
    """One sentence; wrapped by a terminal only, so that pipes get whole lines."""
    text = printable(text)
    if console.is_terminal:
        console.print(Padding.indent(Text(text, style=style), indent))
    else:
        console.print(Text(" " * indent + text, style=style), soft_wrap=True)


def show_cautions(console: Console, result: Finished) -> None:
    """Prints what limits all that follows: a failure, a partial result, odd references."""
    for text in (*cautions(result.manifest), *warnings(result.manifest)):
        say(console, text, "bold yellow")


def show_grid(console: Console, grid: Grid, shown: int | None = None) -> None:
    """Prints a table, or nothing where it has no rows."""
    if not grid.rows:
        return
    console.print()
    say(console, grid.title, "bold")
    console.print(_table(console, grid, shown))
    if shown is not None and len(grid.rows) > shown:
        say(console, f"and {len(grid.rows) - shown} more; --json and --out have all.", "dim")


def _table(console: Console, grid: Grid, shown: int | None) -> Table:
    """The fullest form of the table that fits: rules and the less needed column go first."""
    if console.is_terminal and _needed_width(grid, ruled=True) <= console.width:
        return _filled(grid, shown, ruled=True)
    if grid.spare_column is not None and _needed_width(grid, ruled=False) > console.width:
        grid = _without(grid, grid.spare_column)
    return _filled(grid, shown, ruled=False)


def _needed_width(grid: Grid, *, ruled: bool) -> int:
    """Columns of the screen below which the table would lose some of its own."""
    widths = [_widest(grid, index) for index in range(len(grid.head))]
    for index in range(grid.left_columns):
        widths[index] = min(_NAME_WIDTH, widths[index])
    edges = 2 if ruled else 0
    return sum(widths) + GAP_WIDTH[ruled] * (len(widths) - 1) + edges


def _without(grid: Grid, column: int) -> Grid:
    """The grid less one of its left columns."""
    rows = tuple(cells[:column] + cells[column + 1 :] for cells in grid.rows)
    head = grid.head[:column] + grid.head[column + 1 :]
    return Grid(grid.title, head, rows, left_columns=grid.left_columns - 1)


def _filled(grid: Grid, shown: int | None, *, ruled: bool) -> Table:
    table = make_table(ruled=ruled)
    for index, name in enumerate(grid.head):
        left = index < grid.left_columns
        table.add_column(
            name,
            justify="left" if left else "right",
            no_wrap=not left,
            overflow="fold",
            min_width=min(_NAME_WIDTH, _widest(grid, index)) if left else None,
        )
    for row, cells in enumerate(grid.rows[:shown]):
        styles = ("bold green" if (row, at) in grid.best else "" for at in range(len(cells)))
        table.add_row(*map(Text, cells, styles))
    return table


def _show_answer(console: Console, answer: dict[str, Any]) -> None:
    """The decision, and the lines to paste, that undo it and that measure it."""
    console.print()
    say(console, answer["text"], "bold green")
    for title, name in (
        ("To do it:", "settings"),
        ("To undo it:", "undo"),
        ("To measure what it gains:", "verify"),
    ):
        if answer.get(name):
            say(console, title, indent=2)
            _show_command(console, answer[name])


def _show_evidence(console: Console, advice: list[dict[str, Any]]) -> None:
    """The pieces of advice, with what else could be done; each command once."""
    answer, *items = advice
    printed = {answer.get("settings", "")}
    console.print()
    say(console, "Why, and what else could be done:", "bold")
    whole = [item for item in items if item["scope"] == "program"]
    regions = one_of_each_family(notable_regions(items))
    for item in [*whole, *regions[:_ADVICE_SHOWN]]:
        _show_item(console, item["text"])
        for action in item["actions"]:
            if action["command"] and action["command"] in printed:
                continue
            printed.add(action["command"])
            _show_action(console, action)
    hidden = len(regions) - _ADVICE_SHOWN
    if hidden > 0:
        noun = "region" if hidden == 1 else "regions"
        say(console, f"and {hidden} more {noun}; --json and --out have all.", "dim")


def _show_item(console: Console, text: str) -> None:
    """A point of a list, its lines under one another."""
    if not console.is_terminal:
        say(console, f"- {text}")
        return
    first, *rest = Text(printable(text)).wrap(console, max(console.width - 2, 1))
    console.print(Text("- ").append_text(first), soft_wrap=True)
    for line in rest:
        console.print(Text("  ").append_text(line), soft_wrap=True)


def _show_action(console: Console, action: dict[str, Any]) -> None:
    """An action with its reason, the lines to paste, and those that undo it."""
    tried = f" {action['tried']}" if action.get("tried") and action["command"] else ""
    say(console, f"{action['text']}{tried}", "dim", indent=4)
    if action["command"]:
        _show_command(console, action["command"])
    if action.get("undo"):
        say(console, "To undo:", "dim", indent=4)
        _show_command(console, action["undo"])


def _show_command(console: Console, command: str) -> None:
    """Never wrapped by us, so that it can be copied whole."""
    for line in command.splitlines():
        console.print(Text(f"      {printable(line)}", style="cyan"), soft_wrap=True)


def _widest(grid: Grid, column: int) -> int:
    """Characters of the longest line in a column."""
    cells = (cells[column] for cells in (grid.head, *grid.rows))
    return max(len(line) for cell in cells for line in cell.split("\n"))
