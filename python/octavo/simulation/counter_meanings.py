"""The meanings of counters, from the tables of the pages on simulations."""

from __future__ import annotations

import re
from functools import cache

import octavo._core as _core

ROW = re.compile(r"^\| ([^|\n]+) \| ([^|\n]+) \| (.+) \|$", flags=re.MULTILINE)
LINK = re.compile(r"\[([^\]]+)\](?:\([^)]*\))?")


@cache
def meanings() -> list[tuple[str, list[str], str]]:
    """For each row: a pattern of components, patterns of counters, and the meaning."""
    return [
        ("|".join(_patterns(components)), _patterns(counters), LINK.sub(r"\1", meaning))
        for components, counters, meaning in ROW.findall(_core.sim_pages())
    ]


def _patterns(names: str) -> list[str]:
    """Regular expressions for the names in a cell, in which ARRAY, SIZE and N are placeholders."""
    listed = re.findall(r"`([^`]+)`", names)
    return [re.sub(r"ARRAY|SIZE|(?<=l)N", r"[\\w]+", re.escape(name)) for name in listed]


@cache
def place_of(component: str, counter: str) -> tuple[int, int]:
    """The index of the row that explains a counter, and the counter's index in the row; the number
    of rows where none does.
    """
    for row, (components, counters, _) in enumerate(meanings()):
        if re.fullmatch(components, component):
            for place, pattern in enumerate(counters):
                if re.fullmatch(pattern, counter):
                    return row, place
    return len(meanings()), 0


def is_documented(component: str, counter: str) -> bool:
    """Whether the pages explain a counter; they explain every counter that exists."""
    return place_of(component, counter)[0] < len(meanings())
