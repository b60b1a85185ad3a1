"""Figures as files for a paper: reproducible SVG, PDF and PNG.

Text stays text, and a PDF embeds its fonts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import vl_convert

from octavo.base.errors import choose
from octavo.base.text import printable_document
from octavo.report.theme import Spec, for_paper

_PNG_SCALE = 3
"""Pixels per point: 216 dpi."""


_NAME = re.compile(r'(?<=id=")(?:clip|gradient_)\d+(?=")|(?<=url\(#)(?:clip|gradient_)\d+(?=\))')
"""Identifiers in an SVG; the library's numbers go on from figure to figure."""
_RESOURCES = re.compile(rb"(?:^[ ]*/\w+ \d+ 0 R\n){2,}", flags=re.MULTILINE)
"""Entries of a dictionary in a PDF, which the library writes in random order. Sorting them keeps
all offsets in the file. (Several fonts would also be in random order: `for_paper` uses one.)"""


def svg_of(spec: Spec) -> str:
    """A figure as it is drawn for a paper."""
    return _svg(for_paper(printable_document(spec)))


def _svg(spec: Spec) -> str:
    names: dict[str, str] = {}

    def renamed(match: re.Match[str]) -> str:
        return names.setdefault(match[0], f"def{len(names)}")

    return _NAME.sub(renamed, vl_convert.vegalite_to_svg(spec))


def _pdf(spec: Spec) -> bytes:
    def in_order(match: re.Match[bytes]) -> bytes:
        return b"".join(sorted(match[0].splitlines(keepends=True)))

    return _RESOURCES.sub(in_order, vl_convert.svg_to_pdf(_svg(spec)))


_MAKERS: dict[str, Callable[[Spec], bytes]] = {
    "svg": lambda spec: _svg(spec).encode(),
    "pdf": _pdf,
    "png": lambda spec: vl_convert.vegalite_to_png(spec, scale=_PNG_SCALE),
}
FORMATS = tuple(_MAKERS)


def read_formats(text: str) -> list[str]:
    """`svg,pdf` → [`svg`, `pdf`]. Raises UsageError."""
    return [choose(part.strip(), FORMATS, "format of figures") for part in text.split(",")]


def figure_files(
    figures: Mapping[str, Spec], formats: Iterable[str]
) -> dict[str, Callable[[Path], None]]:
    """A writer for each figure in each format, by the file's name."""
    return {
        f"{name}.{format}": _writer(for_paper(printable_document(spec)), _MAKERS[format])
        for format in formats
        for name, spec in figures.items()
    }


def _writer(spec: Spec, make: Callable[[Spec], bytes]) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        path.write_bytes(make(spec))

    return write
