"""How every figure looks: colours, fonts, axes; in the page and on paper.

Colours are told apart by eyes that see red and green alike: what has an order (page sizes, windows)
runs from blue to yellow, what has none takes the palette of Okabe and Ito (2008). All stand out on
white and on the page's dark ground.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt

Spec = dict[str, Any]
"""A Vega-Lite specification."""
Values = list[dict[str, Any]]
"""A figure's data, a record for each mark."""

COLOURS = {"code": "#0b6e99", "data": "#d1600a"}
UNORDERED = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#b8860b", "#777777")
PAIR_COLOURS = ("#0a8f6a", "#5aa02c", "#8c6d31", "#7f7f7f")
"""Of two page sizes at once, beside single sizes in order."""
MARKS = ("circle", "diamond", "square", "triangle-up", "triangle-down")
_ORDERED = ("#1f77c8", "#6f6ad6", "#a95bbf", "#d2559a", "#e2655f", "#e08030", "#cf9f00")
_INK = "#1d2733"
_GRID = "#e8ebee"
_PAGE_FONT = "system-ui, sans-serif"
_PAPER_FONT = "Liberation Sans, Arial, Helvetica, sans-serif"
"""The first is in every copy of the library that draws."""


def ordered_colours(number: int) -> list[str]:
    """So many colours from blue to yellow."""
    last = len(_ORDERED) - 1
    return [_between(last * at / max(number - 1, 1)) for at in range(number)]


def _between(place: float) -> str:
    """The colour at a place between those of the list."""
    below = min(int(place), len(_ORDERED) - 2)
    share = place - below
    low, high = (_channels(_ORDERED[at]) for at in (below, below + 1))
    mixed = (round(a + (b - a) * share) for a, b in zip(low, high, strict=True))
    return "#" + "".join(f"{channel:02x}" for channel in mixed)


def _channels(colour: str) -> list[int]:
    return [int(colour[at : at + 2], 16) for at in (1, 3, 5)]


def inline(values: Values) -> alt.Chart:
    """A chart of data that it holds."""
    return alt.Chart(alt.InlineData(values=values))


def size_axis(sizes: Sequence[tuple[int, str]], **more: Any) -> alt.Axis:
    """Ticks at page sizes on a logarithmic axis, with their names."""
    names = ",".join(f"'{size}':'{name}'" for size, name in sizes)
    return alt.Axis(
        values=[size for size, _ in sizes],
        labelExpr=f"{{{names}}}[datum.value]",
        labelAngle=-45,
        grid=False,
        **more,
    )


def wide_legend(title: str | None, **more: Any) -> alt.Legend:
    """A legend below the figure, in as many columns as there is room for."""
    return alt.Legend(
        title=title,
        orient="bottom",
        direction="horizontal",
        # The figure's own width changes while it is laid out, and the last rows would be cut off.
        columns=alt.ExprRef(expr="windowSize()[0] < 600 ? 2 : 5"),
        symbolStrokeWidth=2,
        columnPadding=10,
        **more,
    )


def finished(chart: Any) -> Spec:
    """The specification of an Altair chart, with the axes that all figures share."""
    spec: Spec = (
        chart.configure(font=_PAGE_FONT, background="transparent")
        .configure_axis(
            labelColor=_INK,
            titleColor=_INK,
            titleFontWeight="normal",
            gridColor=_GRID,
            domainColor=_GRID,
            tickColor=_GRID,
            labelFontSize=11,
        )
        .configure_legend(labelColor=_INK, titleColor=_INK, titleFontWeight="normal")
        .configure_title(color=_INK, fontSize=12, anchor="start", frame="group", offset=8)
        .configure_header(labelColor=_INK, labelFontWeight="bold")
        .configure_view(stroke=None)
        .to_dict()
    )
    spec.pop("$schema", None)
    # Altair has no name for it: several legends stand under one another, as a phone wants them.
    spec["config"]["legend"]["layout"] = {"bottom": {"direction": "vertical", "anchor": "start"}}
    return spec


def for_page(spec: Spec) -> Spec:
    """As wide as its place in the page; figures of several panels keep their width."""
    return {**spec, "width": "container"} if "width" in spec else spec


def for_paper(spec: Spec) -> Spec:
    """On white, in one font, which is there whatever the machine."""
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
