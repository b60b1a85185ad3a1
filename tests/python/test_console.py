"""Tables on terminals: columns are dropped and tables are split, but no cell is cut off."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

import octavo
from octavo.analysis.view import machine_grid, page_size_grid
from octavo.base.table import Grid
from octavo.terminal.console import show_grid


def shown(grid: Grid, width: int) -> list[str]:
    console = Console(force_terminal=True, width=width, color_system=None)
    with console.capture() as captured:
        show_grid(console, grid)
    lines = captured.get().splitlines()
    assert all(len(line) <= width for line in lines)
    return lines


@pytest.fixture(scope="module")
def run() -> octavo.RunResult:
    return octavo.run("synth:zipf?bytes=64MiB&references=200k", tlb="zen5")


@pytest.mark.parametrize(
    ("width", "dropped"),
    [
        (60, ["code L1\nper 1000", "data L1\nper 1000", "code\nwalks", "data\nwalks"]),
        (72, ["code\nwalks", "data\nwalks"]),
        (80, ["code\nwalks"]),
        (84, ["code\nwalks"]),
        (100, []),
    ],
)
def test_spare_columns_are_dropped_and_the_others_are_complete(
    run: octavo.RunResult, width: int, dropped: list[str]
) -> None:
    made = machine_grid(run.rows, run.manifest)
    assert made is not None
    # The widest numbers that there are.
    rows = tuple((*row[:-2], "1.00 MiB", "+1,742%") for row in made.rows)
    grid = Grid(made.title, made.head, rows, spare=made.spare)
    kept = [at for at, name in enumerate(grid.head) if name not in dropped]
    words_of_lines = [line.split() for line in shown(grid, width)]
    for row in rows:
        line = next(words for words in words_of_lines if words[:2] == row[0].split())
        assert line == " ".join(row[at] for at in kept).split()


@pytest.mark.parametrize("width", [60, 72, 80, 84])
def test_the_page_size_and_the_growth_are_kept(run: octavo.RunResult, width: int) -> None:
    grid = page_size_grid(run.rows, 1)
    words_of_lines = [line.split() for line in shown(grid, width)]
    for row in grid.rows:
        line = next(words for words in words_of_lines if words[:2] == row[0].split())
        assert line[-3:] == [*row[-2].split(), row[-1]]
    head = " ".join(shown(grid, width)[:4])
    assert head.count("code") == head.count("data") > 1, "the title's, and those of all columns"


@pytest.mark.parametrize("width", [40, 60, 72, 80, 84])
def test_a_table_without_spare_columns_is_split(width: int) -> None:
    head = ("design", *(f"column {at}" for at in range(12)))
    rows = tuple((f"row {row}", *(f"{row}-{at}-end" for at in range(12))) for row in range(3))
    lines = shown(Grid("Title", head, rows), width)
    words = " ".join(lines).split()
    for row in rows:
        assert all(words.count(cell) == 1 for cell in row[1:])
        named = [line for line in lines if line.startswith(row[0])]
        assert len(named) == sum(line.startswith("design") for line in lines) > 1


def test_long_names_of_columns_are_wrapped_before_a_table_is_split() -> None:
    """Such as names of designs with settings. On a wide terminal each is on one line."""
    names = (
        "base4k",
        "tps:promotion_threshold_percent=50:span=round-up",
        "tps:promotion_threshold_percent=75:span=round-up",
        "thp:max_ptes_none=0:khugepaged_defrag=false\n(stopped)",
    )
    row = ("page walks, per 1000 instructions", "456.567", "321.992", "378.083", "11.342")
    grid = Grid("On skylake", ("", *names), (row,))
    lines = shown(grid, 100)
    assert sum("456.567" in line for line in lines) == 1
    assert next(line for line in lines if "456.567" in line).split()[-4:] == list(row[1:])
    head = lines[2 : next(at for at, line in enumerate(lines) if "456.567" in line)]
    assert [line.split() for line in head] == [
        ["thp:"],
        ["tps:", "tps:", "max_ptes_none=0:"],
        ["promotion_threshold_", "promotion_threshold_", "khugepaged_defrag="],
        ["percent=50:", "percent=75:", "false"],
        ["base4k", "span=round-up", "span=round-up", "(stopped)"],
    ]
    assert any(names[1] in line and names[2] in line for line in shown(grid, 240))
    piped = Console(width=80)
    with piped.capture() as captured:
        show_grid(piped, grid)
    assert names[1] in captured.get()


def test_no_line_in_a_file_ends_in_spaces() -> None:
    """Nothing is cut off or read as markup, and the text before the table stays."""
    text = io.StringIO()
    console = Console(file=text, width=20, markup=False, emoji=False)
    rows = (("x", "short"), ("[red]" * 10, "long " * 10 + "end"), ("y", ""))
    with console.capture() as captured:
        console.print("before")
        show_grid(console, Grid("", ("name", "[bold]:smile:"), rows, left_columns=2))
    lines = captured.get().splitlines()
    assert lines[:2] == ["before", ""]
    assert lines[2].split() == ["name", "[bold]:smile:"]
    assert lines == [line.rstrip() for line in lines]
    assert f"{rows[1][0]}  {rows[1][1]}" in lines
