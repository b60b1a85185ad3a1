"""Markdown tables whose columns stand under one another, so that they read as text too."""

from collections.abc import Iterator, Sequence


def table(head: Sequence[str], body: Sequence[Sequence[str]]) -> Iterator[str]:
    """The lines of a table; every column but the first is right-aligned."""
    widths = [max(len(cell) for cell in column) for column in zip(head, *body, strict=True)]
    yield _line(head, widths)
    yield _line(["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])], widths)
    for cells in body:
        yield _line(cells, widths)


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = [cell.rjust(width) for cell, width in zip(cells, widths, strict=True)]
    return f"| {' | '.join([cells[0].ljust(widths[0]), *padded[1:]])} |"
