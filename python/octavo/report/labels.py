"""Lines with their names at their ends instead of a legend."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import log
from typing import Any

from octavo.report import vegalite as vl
from octavo.report.theme import Values, without_middle

LONGEST = 14
"""Most characters of a name; a longer name loses its middle."""
_CHARACTER_PIXELS, _LABEL_DISTANCE = 7, 11
_LABEL_PIXELS = 13
"""Distance between two names below one another."""


def label_room(names: Iterable[str]) -> dict[str, int]:
    """The padding of a figure, with room at the right for the names of its lines."""
    longest = min(max(map(len, names), default=0), LONGEST)
    right = round(longest * _CHARACTER_PIXELS) + _LABEL_DISTANCE
    return {"left": 5, "top": 5, "bottom": 5, "right": right}


def labelled_lines(
    values: Values,
    x: vl.X,
    y: vl.Y,
    key: str,
    colours: dict[str, str],
    tooltip: Sequence[vl.Field],
    *,
    only: str = "true",
    **mark: Any,
) -> vl.Chart:
    """A line for each name in `colours`, with the name behind its last point. `values` come from
    `with_labels`; a page may replace them later. `only` is a test in Vega's language that records
    must pass to be points of lines.
    """
    colour = vl.named(f"{key}:N", colours, legend=None)
    lines = (
        vl.Chart()
        .filter(only)
        .mark("line", **{"strokeWidth": 1.8, **mark})
        .encode(x=x, y=y, color=colour, tooltip=list(tooltip))
    )
    names = (
        vl.Chart()
        .filter("isValid(datum.label_dy)")
        .mark(
            "text",
            align="left",
            dx=_LABEL_DISTANCE,
            dy=vl.expression("datum.label_dy"),
            fontSize=11,
            text=vl.expression(without_middle(f"datum['{key}']", LONGEST, LONGEST // 2 - 1)),
            limit=LONGEST * _CHARACTER_PIXELS,
        )
        .encode(x=x, y=y, color=colour)
    )
    return vl.layer(lines, names, data={"values": values})


def with_labels(values: Values, key: str, x: str, y: str, *, height: int) -> Values:
    """The records; those at the ends of lines get `label_dy`, the pixels from the line's end down
    to its name, so that names do not overlap. `height` is that of the figure, whose y axis is
    logarithmic.
    """
    if not values:
        return []
    ends: dict[str, dict[str, Any]] = {}
    for value in values:
        last = ends.get(value[key])
        if last is None or value[x] >= last[x]:
            ends[value[key]] = value
    # The axis reaches from the least to the greatest value.
    every = [value[y] for value in values]
    start, span = log(min(every)), log(max(every) / min(every))
    # A single value is drawn at half the height.
    pixels = [
        (log(end[y]) - start) / span * height if span else height / 2 for end in ends.values()
    ]
    places = spread(pixels, _LABEL_PIXELS, height)
    below = {
        id(end): pixel - place
        for end, pixel, place in zip(ends.values(), pixels, places, strict=True)
    }
    return [
        {**value, "label_dy": round(below[id(value)], 1)} if id(value) in below else value
        for value in values
    ]


def spread(places: Sequence[float], gap: float, room: float) -> list[float]:
    """The places, moved as little as possible to be at least `gap` apart within 0 to `room`; closer
    together where there is not enough room for all.
    """
    gap = min(gap, room / max(len(places) - 1, 1))
    order = sorted(range(len(places)), key=lambda at: places[at])
    blocks: list[tuple[float, list[int]]] = []
    """Blocks of places that are `gap` apart: the first place, and the indices of all."""

    def within(first: float, members: Sequence[int]) -> float:
        return max(0.0, min(first, room - gap * (len(members) - 1)))

    for at in order:
        block = [at]
        first = within(places[at], block)
        while blocks and blocks[-1][0] + gap * len(blocks[-1][1]) > first:
            block = [*blocks.pop()[1], *block]
            wanted = sum(places[one] - gap * number for number, one in enumerate(block))
            first = within(wanted / len(block), block)
        blocks.append((first, block))
    found = [0.0] * len(places)
    for first, block in blocks:
        for number, at in enumerate(block):
            found[at] = first + gap * number
    return found
