"""The final output of `octavo run` on the terminal: tables, answer, advice."""

import re
from typing import Any

from rich.console import Console
from rich.text import Text

from octavo.analysis.allocations import line_grid, page_size_shown, site_grid
from octavo.analysis.view import (
    ANSWER_LINES,
    machine_grid,
    notable_regions,
    one_of_each_family,
    page_size_grid,
    process_grid,
    region_grid,
)
from octavo.base.text import plural, printable
from octavo.runs.result import RunResult
from octavo.terminal.console import say, show_cautions, show_grid

_REGIONS_SHOWN = 8
_PROCESSES_SHOWN = 12
_ADVICE_SHOWN = 6


def show_result(console: Console, result: RunResult, *, advice: bool) -> None:
    """Prints the whole result. Long lists are cut here, but not in the files."""
    manifest, rows = result.manifest, result.rows
    depth = len(manifest["configuration"]["machine"]["levels"])
    say(console, result.headline(), "bold")
    show_cautions(console, result)
    if advice:
        _show_answer(console, result.advice[0])
    show_grid(console, machine_grid(rows, manifest))
    for level in range(1, depth + 1):
        show_grid(console, page_size_grid(rows, level))
    programs = result.programs
    show_grid(console, process_grid(rows, manifest, depth, programs), _PROCESSES_SHOWN)
    regions = region_grid(rows, result.advice, depth, manifest["processes"], programs)
    show_grid(console, regions, _REGIONS_SHOWN)
    if result.allocations is not None:
        size = page_size_shown(result.advice)
        show_grid(console, site_grid(result.allocations, size))
        show_grid(console, line_grid(result.allocations, size))
    if advice:
        _show_evidence(console, result.advice)


def _show_answer(console: Console, answer: dict[str, Any]) -> None:
    """Prints the decision, the lines to paste, and the lines that undo, measure and simulate it."""
    console.print()
    say(console, answer["text"], "bold green")
    for title, name in ANSWER_LINES:
        if answer.get(name):
            say(console, title, indent=2)
            _show_command(console, answer[name])


def _show_evidence(console: Console, advice: list[dict[str, Any]]) -> None:
    """Prints the pieces of advice with their other actions. Each command and sentence is printed
    once, and settings for the whole program are not repeated for its regions.
    """
    answer, *items = advice
    printed = {answer.get("settings", ""), answer.get("undo", ""), *_sentences(answer["text"])}
    console.print()
    say(console, "Why, and what else could be done:", "bold")
    whole = [item for item in items if item["scope"] == "program"]
    regions = one_of_each_family(notable_regions(items))
    for_all = {action.get("name") for item in whole for action in item["actions"]} - {None}
    for item in [*whole, *regions[:_ADVICE_SHOWN]]:
        _show_item(console, item["text"])
        for action in item["actions"]:
            is_again = item["scope"] == "region" and action.get("name") in for_all
            if is_again or (action["command"] and action["command"] in printed):
                continue
            _show_action(console, action, printed)
    hidden = len(regions) - _ADVICE_SHOWN
    if hidden > 0:
        more = plural(hidden, "region")
        say(console, f"and {hidden} more {more}; --json and --out have all.", "dim")


def _show_item(console: Console, text: str) -> None:
    """Prints an item of a list, with its lines indented equally."""
    if not console.is_terminal:
        say(console, f"- {text}")
        return
    first, *rest = Text(printable(text)).wrap(console, max(console.width - 2, 1))
    console.print(Text("- ").append_text(first), soft_wrap=True)
    for line in rest:
        console.print(Text("  ").append_text(line), soft_wrap=True)


def _show_action(console: Console, action: dict[str, Any], printed: set[str]) -> None:
    """Prints an action with its reason, the lines to paste, and the lines that undo it. Sentences
    and lines that undo are left out where `printed` has them; it gets all that is printed here.
    """
    command, undo = action["command"], action.get("undo", "")
    tried = f" {action['tried']}" if action.get("tried") and command else ""
    sentences = _sentences(f"{action['text']}{tried}")
    text = " ".join(sentence for sentence in sentences if sentence not in printed)
    if text or command:
        say(console, text or "As above:", "dim", indent=4)
    if command:
        _show_command(console, command)
    if undo and undo not in printed:
        say(console, "To undo:", "dim", indent=4)
        _show_command(console, undo)
    printed.update((command, undo, *sentences))


def _sentences(text: str) -> list[str]:
    return re.split(r"(?<=[.?]) ", text)


def _show_command(console: Console, command: str) -> None:
    """Prints a command without wrapping, so that it can be copied whole."""
    for line in command.splitlines():
        console.print(Text(f"      {printable(line)}", style="cyan"), soft_wrap=True)
