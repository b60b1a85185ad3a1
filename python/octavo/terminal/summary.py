"""The final word of a run on the terminal: tables, answer, advice."""

from typing import Any

from rich.console import Console
from rich.text import Text

from octavo.result import RunResult
from octavo.terminal.console import make_table
from octavo.view import Grid, headline, notable_regions, page_size_grid, process_grid, region_grid

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
    if result.partial:
        say(console, f"PARTIAL: {manifest['partial_reason']}; counts end there.", "bold yellow")
    for level in range(1, depth + 1):
        _show(console, page_size_grid(rows, level))
    processes = process_grid(rows, manifest, depth)
    if processes is not None:
        _show(console, processes, _PROCESSES_SHOWN)
    _show(console, region_grid(rows, result.advice, depth), _REGIONS_SHOWN)
    if advice:
        _show_advice(console, result.advice)


def say(console: Console, text: str, style: str = "") -> None:
    """One sentence; wrapped by a terminal only, so that pipes get whole lines."""
    console.print(Text(text, style=style), soft_wrap=not console.is_terminal)


def _show(console: Console, grid: Grid, shown: int | None = None) -> None:
    table = make_table(console)
    for index, name in enumerate(grid.head):
        left = index < grid.left_columns
        table.add_column(
            name,
            justify="left" if left else "right",
            no_wrap=not left,
            overflow="fold",
            min_width=min(_NAME_WIDTH, _widest(grid, index)) if left else None,
        )
    for cells in grid.rows[:shown]:
        table.add_row(*cells)
    console.print()
    say(console, grid.title, "bold")
    console.print(table)
    if shown is not None and len(grid.rows) > shown:
        say(console, f"and {len(grid.rows) - shown} more; --json and --out have all.", "dim")


def _show_advice(console: Console, advice: list[dict[str, Any]]) -> None:
    answer, *items = advice
    console.print()
    say(console, answer["text"], "bold green")
    whole = [item for item in items if item["scope"] == "program"]
    regions = notable_regions(items)
    for item in [*whole, *regions[:_ADVICE_SHOWN]]:
        say(console, f"- {item['text']}")
        for means in item["means"]:
            say(console, f"    {means['text']}", "dim")
            if means["command"]:
                say(console, f"      {means['command']}", "cyan")
    if len(regions) > _ADVICE_SHOWN:
        say(
            console,
            f"and {len(regions) - _ADVICE_SHOWN} more regions; --json and --out have all.",
            "dim",
        )


def _widest(grid: Grid, column: int) -> int:
    return max(len(cells[column]) for cells in (grid.head, *grid.rows))
