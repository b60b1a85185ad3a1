"""`octavo list`: the names that options accept."""

from collections.abc import Callable
from typing import Any

import octavo._core as _core
from octavo.base.errors import choose
from octavo.base.table import Grid
from octavo.cli import options
from octavo.cli.groups import argument, command
from octavo.cli.guard import guarded
from octavo.hardware.machines import machines, machines_grid
from octavo.terminal.console import show_grid
from octavo.traces.by_name import formats

_EPILOG = """\b
Examples:
  octavo list machines
  octavo list designs --json designs.json
  octavo list workloads
"""
SCHEMA = "octavo/list/1"

Entries = list[dict[str, Any]]


def _named(pairs: list[tuple[str, str]]) -> Entries:
    return [{"name": name, "description": about} for name, about in pairs]


def _policies() -> Entries:
    return [
        {"name": name, "description": about, "settings": dict(settings)}
        for name, about, settings in _core.policies()
    ]


def _formats() -> Entries:
    return [
        {
            "name": one["name"],
            "description": one["about"],
            "writes": one["writes"],
            "suffixes": one["suffixes"],
        }
        for one in formats()
    ]


KINDS: dict[str, Callable[[], Entries]] = {
    "machines": machines,
    "designs": lambda: _named(_core.designs()),
    "policies": _policies,
    "workloads": lambda: _named(
        [(f"synth:{name}", about) for name, about in _core.synthetic_kinds()]
    ),
    "formats": _formats,
}


@command("list", epilog=_EPILOG)
def list_names(
    kind: str = argument("KIND", f"{', '.join(KINDS)}."),
    *,
    output: options.TextOutput,
) -> None:
    """List the machines, designs, policies of page sizes, synthetic workloads or trace formats
    that Octavo knows.
    """
    with guarded():
        entries = KINDS[choose(kind, tuple(KINDS), "kind of list")]()
        shown = output.shown()
        shown.write_console(lambda console: show_grid(console, _grid(kind, entries), is_first=True))
        shown.write_json(lambda: {"schema": SCHEMA, "kind": kind, "entries": entries})


def _grid(kind: str, entries: Entries) -> Grid:
    if kind == "machines":
        return machines_grid(entries)
    about = [(one["name"], one["description"], _more(one)) for one in entries]
    head = ["name", "what it is", "settings" if kind == "policies" else "files"]
    width = 3 if any(more for *_, more in about) else 2
    rows = tuple(row[:width] for row in about)
    return Grid(
        kind.capitalize(), tuple(head[:width]), rows, left_columns=width, spare=(width - 1,)
    )


def _more(one: dict[str, Any]) -> str:
    """The settings of a policy, or the suffixes of a format."""
    settings = [f"{name}={value}" for name, value in one.get("settings", {}).items()]
    return ", ".join([*settings, *(f".{suffix}" for suffix in one.get("suffixes", ()))])
