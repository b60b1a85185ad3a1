"""The figures of curves as Vega-Lite specifications, made with Altair.

Each takes records of `octavo.report.curves_data` for one choice of stream (and pages, and index);
the page puts others in the place of those when the reader chooses.
"""

from __future__ import annotations

from typing import Any

import altair as alt

from octavo.report.look import (
    MARKS,
    PAIR_COLOURS,
    Spec,
    Values,
    finished,
    inline,
    ordered_colours,
    size_axis,
    wide_legend,
)

_WIDTH, _HEIGHT = 520, 300
_PANEL_WIDTH, _PANEL_HEIGHT = 270, 190
_MAP_WIDTH, _MAP_HEIGHT = 190, 140
_ENTRIES_TICKS = [1 << power for power in range(0, 13, 2)]
_WAYS_TICKS = [1, 2, 4, 8, 12, 16]
_DASHES = ([6, 3], [2, 2], [8, 2, 2, 2], [4, 4])


def misses_chart(data: dict[str, Any], values: Values) -> Spec:
    """Misses over entries, a line for each page size; two sizes are dashed."""
    pages, colours = _pages(data)
    dashes = [[1, 0] for _ in data["sizes"]] + [
        _DASHES[number % len(_DASHES)] for number in range(len(data["pairs"]))
    ]
    chosen = alt.selection_point(fields=["pages"], bind="legend")
    chart = (
        inline(values)
        .transform_filter("datum.misses > 0")
        .mark_line(strokeWidth=1.8)
        .encode(
            x=alt.X(
                "entries:Q",
                title="TLB entries, fully associative",
                scale=alt.Scale(type="log", base=2, nice=False),
                axis=alt.Axis(values=_ENTRIES_TICKS, format="d", grid=False),
            ),
            y=alt.Y(
                "rate:Q",
                title=rate_name(data),
                scale=alt.Scale(type="log", nice=False),
                axis=alt.Axis(format="~g", tickCount=6),
            ),
            color=alt.Color(
                "pages:N",
                scale=alt.Scale(domain=pages, range=colours),
                legend=wide_legend(None),
                sort=None,
            ),
            strokeDash=alt.StrokeDash(
                "pages:N", scale=alt.Scale(domain=pages, range=dashes), sort=None
            ),
            opacity=alt.condition(chosen, alt.value(1), alt.value(0.12)),
            tooltip=[
                alt.Tooltip("pages:N", title="pages"),
                alt.Tooltip("entries:Q", title="entries", format=","),
                alt.Tooltip("misses:Q", title="misses", format=","),
                alt.Tooltip("rate:Q", title=rate_name(data), format=".4~g"),
            ],
        )
        .add_params(chosen)
        .properties(width=_WIDTH, height=_HEIGHT)
    )
    return finished(chart)


def cost_chart(data: dict[str, Any], values: Values) -> Spec:
    """What misses cost in one TLB, a bar for each page size and pair of sizes."""
    return finished(_cost_panel(data, values).properties(width=_PANEL_WIDTH))


def cost_figure(data: dict[str, Any], values: Values) -> Spec:
    """The same for several TLBs, a panel for each, with a scale of its own."""
    tlbs = list(dict.fromkeys(value["tlb"] for value in values))
    panels = [
        _cost_panel(data, [value for value in values if value["tlb"] == tlb]).properties(
            width=_PANEL_WIDTH, title=tlb
        )
        for tlb in tlbs
    ]
    return finished(alt.concat(*panels, columns=2, spacing=24))


def _cost_panel(data: dict[str, Any], values: Values) -> alt.Chart:
    pages, colours = _pages(data)
    chart: alt.Chart = (
        inline(values)
        .mark_bar()
        .encode(
            x=alt.X(
                "pages:N",
                title=None,
                sort=None,
                scale=alt.Scale(paddingInner=0.2),
                axis=alt.Axis(labelAngle=-45, grid=False, labelOverlap=False),
            ),
            y=alt.Y("cost:Q", title=cost_name(data), axis=alt.Axis(tickCount=4, minExtent=52)),
            color=alt.Color(
                "pages:N",
                scale=alt.Scale(domain=pages, range=colours),
                legend=None,
                sort=None,
            ),
            tooltip=[
                alt.Tooltip("pages:N", title="pages"),
                alt.Tooltip("misses:Q", title="misses", format=","),
                alt.Tooltip("cost:Q", title=cost_name(data), format=".4~g"),
            ],
        )
        .properties(height=_PANEL_HEIGHT)
    )
    return chart


def working_set_chart(data: dict[str, Any], values: Values) -> Spec:
    """Normalised working sets over the page size, a line a window; two sizes are marks."""
    x = alt.X(
        "size:Q",
        title="page size (marks: the larger of two)",
        scale=alt.Scale(type="log", base=2, nice=False, padding=10),
        axis=size_axis([(size, name) for size, name in data["sizes"]]),
    )
    y = alt.Y(
        "normalised:Q",
        title="working set, over 4 KiB pages",
        scale=alt.Scale(type="log", base=2, nice=False, padding=6),
        axis=alt.Axis(format=".3~g", tickCount=6),
    )
    colour = alt.Color(
        "window:N",
        title="window (references)",
        scale=alt.Scale(domain=data["windows"], range=ordered_colours(len(data["windows"]))),
        legend=wide_legend("window, in references"),
        sort=None,
    )
    tooltip = [
        alt.Tooltip("pages:N", title="pages"),
        alt.Tooltip("window:N", title="window, in references"),
        alt.Tooltip("average:N", title="average working set"),
        alt.Tooltip("normalised:Q", title="over 4 KiB pages", format=".4~g"),
    ]
    base = alt.Chart().encode(x=x, y=y, color=colour, tooltip=tooltip)
    lines = base.mark_line(strokeWidth=1.8, point={"size": 26}).transform_filter(
        "datum.sizes === 'one'"
    )
    layers: list[alt.Chart] = [lines]
    if data["pairs"]:
        marks = [MARKS[(number + 1) % len(MARKS)] for number in range(len(data["pairs"]))]
        shape = alt.Shape(
            "pages:N",
            scale=alt.Scale(domain=data["pairs"], range=marks),
            legend=wide_legend("two page sizes", symbolStrokeColor="#777777"),
            sort=None,
        )
        layers.append(
            base.mark_point(size=90, strokeWidth=2, filled=False)
            .encode(shape=shape)
            .transform_filter("datum.sizes === 'two'")
        )
    chart = alt.layer(*layers, data=alt.InlineData(values=values))
    return finished(chart.properties(width=_WIDTH, height=_HEIGHT))


def sets_chart(data: dict[str, Any], values: Values) -> Spec:
    """What misses cost over sets and ways, as a heat map."""
    return finished(_sets_panel(data, values).properties(width=_WIDTH, height=_HEIGHT))


def sets_figure(data: dict[str, Any], by_pages: dict[str, Values]) -> Spec:
    """The same for several page sizes, a panel for each, all on one scale of colours."""
    panels = [
        _sets_panel(data, values).properties(width=_MAP_WIDTH, height=_MAP_HEIGHT, title=pages)
        for pages, values in by_pages.items()
    ]
    return finished(alt.concat(*panels, columns=3, spacing=20).resolve_scale(color="shared"))


def _sets_panel(data: dict[str, Any], values: Values) -> alt.Chart:
    chart: alt.Chart = (
        inline(values)
        .transform_filter("datum.cost > 0")
        .mark_rect()
        .encode(
            x=alt.X("ways:O", title="ways", axis=alt.Axis(labelAngle=0, values=_WAYS_TICKS)),
            y=alt.Y("sets:O", title="sets", sort="descending"),
            color=alt.Color(
                "cost:Q",
                title=cost_name(data),
                scale=alt.Scale(type="log", scheme="viridis", nice=False),
                legend=alt.Legend(
                    orient="top", direction="horizontal", gradientLength=200, format="~g"
                ),
            ),
            tooltip=[
                alt.Tooltip("sets:O", title="sets"),
                alt.Tooltip("ways:O", title="ways"),
                alt.Tooltip("misses:Q", title="misses", format=","),
                alt.Tooltip("cost:Q", title=cost_name(data), format=".4~g"),
            ],
        )
    )
    return chart


def rate_name(data: dict[str, Any]) -> str:
    """What misses are told per."""
    return "misses per 1000 instructions" if data["has_instructions"] else "misses per reference"


def cost_name(data: dict[str, Any]) -> str:
    """What misses cost."""
    return (
        "CPI_TLB (cycles per instruction)" if data["has_instructions"] else "misses per reference"
    )


def _pages(data: dict[str, Any]) -> tuple[list[str], list[str]]:
    """Names of page sizes and pairs, and a colour for each."""
    sizes = [name for _, name in data["sizes"]]
    pairs = [PAIR_COLOURS[number % len(PAIR_COLOURS)] for number in range(len(data["pairs"]))]
    return sizes + data["pairs"], ordered_colours(len(sizes)) + pairs
