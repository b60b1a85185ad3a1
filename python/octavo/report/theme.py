"""The theme of all figures, in pages and on paper: colours, fonts and axes.

Colours differ for colour-blind readers, too. Ordered values (page sizes, windows) run from blue to
yellow; values without an order have the palette of Okabe and Ito (2008) with its lighter colours
darkened. All colours stand out on white and on the page's dark background.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import cycle
from math import ceil, floor, log10
from typing import Any, TypeVar

from octavo.report import vegalite as vl

Spec = vl.Spec
Values = list[dict[str, Any]]
"""A figure's data, a record for each mark."""
Name = TypeVar("Name")

HEAT = "#c8500a"
"""The colour of heat maps; the opacity shows the value."""
COLOURS = {"code": "#0b6e99", "data": "#d1600a"}
UNORDERED = (
    "#0072b2",
    "#d55e00",
    "#009e73",
    "#c0649a",
    "#2a8fc4",
    "#a87908",
    "#777777",
    "#8a63d2",
    "#b8525a",
)
PAIR_COLOURS = ("#0a8f6a", "#5aa02c", "#8c6d31", "#7f7f7f")
"""Colours of pairs of page sizes, beside those of single sizes."""
MARKS = ("circle", "diamond", "square", "triangle-up", "triangle-down")
_ORDERED = ("#1f77c8", "#6f6ad6", "#a95bbf", "#d2559a", "#e2655f", "#d9742a", "#b08500")
_INK = "#1d2733"
_GRID = "#e8ebee"
_PAGE_FONT = "system-ui, sans-serif"
_PAPER_FONT = "Liberation Sans, Arial, Helvetica, sans-serif"
"""The drawing library contains the first of these fonts."""
_CONFIG: Spec = {
    # A page names each figure for a screen reader; its tables hold the numbers.
    "aria": False,
    "font": _PAGE_FONT,
    "background": "transparent",
    "axis": {
        "labelColor": _INK,
        "titleColor": _INK,
        "titleFontWeight": "normal",
        "gridColor": _GRID,
        "domainColor": _GRID,
        "tickColor": _GRID,
        "labelFontSize": 11,
    },
    "legend": {
        "labelColor": _INK,
        "titleColor": _INK,
        "titleFontWeight": "normal",
        # Several legends are below one another, as a phone's screen is narrow.
        "layout": {"bottom": {"direction": "vertical", "anchor": "start"}},
    },
    "title": {"color": _INK, "fontSize": 12, "anchor": "start", "frame": "group", "offset": 8},
    "header": {"labelColor": _INK, "labelFontWeight": "bold"},
    "view": {"stroke": None, "continuousWidth": 300, "continuousHeight": 300},
}


def ordered_colours(names: Sequence[Name]) -> dict[Name, str]:
    """A colour for each of the names, from blue to yellow."""
    last, steps = len(_ORDERED) - 1, max(len(names) - 1, 1)
    return {name: _between(last * at / steps) for at, name in enumerate(names)}


def _between(place: float) -> str:
    """The colour at a place between those of the list."""
    below = min(int(place), len(_ORDERED) - 2)
    share = place - below
    low, high = (_channels(_ORDERED[at]) for at in (below, below + 1))
    mixed = (round(a + (b - a) * share) for a, b in zip(low, high, strict=True))
    return "#" + "".join(f"{channel:02x}" for channel in mixed)


def _channels(colour: str) -> list[int]:
    return [int(colour[at : at + 2], 16) for at in (1, 3, 5)]


def unordered_colours(names: Iterable[str]) -> dict[str, str]:
    """A colour for each of the names; the palette repeats where it has too few."""
    return dict(zip(names, cycle(UNORDERED), strict=False))


def rounded(value: float) -> float:
    """The value with six digits, which is more than pixels can show."""
    return float(f"{value:.6g}")


def page_size_axis(sizes: Sequence[tuple[int, str]]) -> vl.X:
    """A logarithmic axis of page sizes, from the field `size` in bytes."""
    return vl.X(
        "size:Q",
        title="page size",
        scale=vl.Scale(type="log", base=2, nice=False, padding=6),
        axis=size_axis(sizes),
    )


def inline(values: Values) -> vl.Chart:
    """A chart with its data in the specification."""
    return vl.Chart(data={"values": values})


def size_axis(sizes: Sequence[tuple[int, str]]) -> vl.Part:
    """Ticks at page sizes on a logarithmic axis, with their names."""
    names = ",".join(f"'{size}':'{name}'" for size, name in sizes)
    return vl.Axis(
        values=[size for size, _ in sizes],
        labelExpr=f"{{{names}}}[datum.value]",
        labelAngle=0,
        labelOverlap="greedy",
        labelSeparation=6,
        grid=False,
    )


_NARROW = "windowSize()[0] < 600"
"""A test in Vega's language for a phone's screen."""
_HALF_PHONE = 18
"""Most characters of a name in a legend of two columns on a phone."""


def without_middle(name: str, longest: str | int, half: str | int) -> str:
    """An expression of Vega for a name; one longer than `longest` loses its middle and keeps `half`
    characters on either side.
    """
    label = f"slice({name}, 0, {half}) + '…' + slice({name}, -{half})"
    return f"length({name}) > {longest} ? {label} : {name}"


def row_axis(**more: Any) -> vl.Part:
    """An axis with a name for each row. A long name loses its middle, as its end often has the
    number or the size in which rows differ.
    """
    name, (few, many) = "datum.label", (22, 36)
    longest = f"({_NARROW} ? {few} : {many})"
    half = f"({_NARROW} ? {few // 2 - 1} : {many // 2 - 1})"
    axis = {
        "labelLimit": vl.expression(f"{_NARROW} ? 150 : 220"),
        "labelExpr": without_middle(name, longest, half),
        "domain": False,
        "ticks": False,
        "labelPadding": 6,
    }
    return vl.Axis(**{**axis, **more})


def heat(field: str, title: str) -> vl.Field:
    """A channel that shows values as heat, on a logarithmic scale, on white and on dark ground."""
    return vl.Field(
        f"{field}:Q",
        title=title,
        scale=vl.Scale(type="log", range=[0.08, 1], nice=False),
        legend=vl.Legend(
            orient="top",
            direction="horizontal",
            format="~g",
            symbolType="square",
            symbolFillColor=HEAT,
            symbolStrokeWidth=0,
            symbolSize=160,
            tickCount=4,
            columns=vl.expression(f"{_NARROW} ? 2 : 6"),
            titleLimit=240,
        ),
    )


def log_ticks(low: float, high: float) -> list[float]:
    """Powers of ten between two values; over less than two decades, also twice and five times
    these; the two values themselves where there are no such ticks.
    """
    decades = range(floor(log10(low)), ceil(log10(high)) + 1)
    steps = (1,) if log10(high / low) > 2 else (1, 2, 5)
    ticks = (step * 10.0**power for power in decades for step in steps)
    shown = [tick for tick in ticks if low <= tick <= high] or [low, high]
    return list(dict.fromkeys(float(f"{tick:.3g}") for tick in shown))


def wide_legend(title: str | None, names: Sequence[str] = ()) -> vl.Part:
    """A legend below the figure, in as many columns as fit: on a phone, one if `names` are long."""
    is_long = max(map(len, names), default=0) > _HALF_PHONE
    return vl.Legend(
        title=title,
        orient="bottom",
        direction="horizontal",
        # The figure's own width changes while it is laid out, and the last rows would be cut off.
        columns=vl.expression(f"{_NARROW} ? {1 if is_long else 2} : 5"),
        symbolStrokeWidth=2,
        columnPadding=10,
    )


def finished(chart: vl.Chart) -> Spec:
    """The specification of a chart, with the axes that all figures share."""
    return {"config": _CONFIG, **chart.spec}


def for_page(spec: Spec) -> Spec:
    """The specification with the width of its place; figures of several panels keep theirs."""
    if "width" not in spec:
        return spec
    return {**spec, "width": "container"}


def for_paper(spec: Spec) -> Spec:
    """The specification on white and in one font, which is available on every machine."""
    config = spec["config"]
    return {
        **spec,
        "config": {
            **config,
            "background": "white",
            "font": _PAPER_FONT,
            "title": {**config["title"], "fontWeight": "normal"},
            "header": {**config["header"], "labelFontWeight": "normal"},
        },
    }
