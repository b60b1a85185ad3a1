"""The page of a study, from the template `page.md` beside its `study.toml`.

Templates are Jinja's, with FILTERS and FUNCTIONS of octavo.studies.claims, and with the names of
the study's module: its constants, functions and the modules that it imports. Lines that begin with
`|` are rows of a table: the first has the heads, and columns are padded, so that they read as text
too. Several empty lines in a row become one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from importlib import import_module
from itertools import groupby
from typing import Any

from octavo.studies.claims import environment


def render_page(folder: str, /, **content: Any) -> str:
    """The page of the study in a folder; the template sees its module's names and `content`."""
    names = vars(import_module(f"octavo.studies.{folder}"))
    return render_template(f"{folder}/page.md", **{**names, **content})


def render_template(template: str, /, **content: Any) -> str:
    """A page from a template of this folder."""
    text = environment().get_template(template).render(content)
    lines = "\n".join(_with_tables(text.split("\n")))
    return re.sub(r"\n{3,}", "\n\n", lines).strip() + "\n"


def _with_tables(lines: Iterable[str]) -> Iterator[str]:
    for is_table, block in groupby(lines, lambda line: line.startswith("|")):
        rows = list(block)
        yield from _aligned(rows) if is_table else rows


def _aligned(lines: Sequence[str]) -> Iterator[str]:
    """Every column but the first is right-aligned."""
    head, *body = ([cell.strip() for cell in line.strip("|").split("|")] for line in lines)
    widths = [max(map(len, column)) for column in zip(head, *body, strict=True)]
    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    for cells in (head, rule, *body):
        padded = [cell.rjust(width) for cell, width in zip(cells, widths, strict=True)]
        yield f"| {' | '.join([cells[0].ljust(widths[0]), *padded[1:]])} |"
