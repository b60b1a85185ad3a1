"""The figures of curves as Vega-Lite specifications.

Each takes records of `octavo.report.curves_data` for one choice of stream (and pages, and index);
the page puts others in the place of those when the reader chooses.
"""

from __future__ import annotations

from typing import Any

from octavo.base.units import format_bytes
from octavo.report import vegalite as vl
from octavo.report.theme import (
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
from octavo.tlb_curves.caches import SHOWN_BYTES, SHOWN_WAYS

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
    chart = (
        inline(values)
        .filter("datum.misses > 0")
        .mark("line", strokeWidth=1.8)
        .encode(
            x=vl.X(
                "entries:Q",
                title="TLB entries, fully associative",
                scale=vl.Scale(type="log", base=2, nice=False),
                axis=vl.Axis(values=_ENTRIES_TICKS, format="d", grid=False),
            ),
            y=vl.Y(
                "rate:Q",
                title=rate_name(data),
                scale=vl.Scale(type="log", nice=False),
                axis=vl.Axis(format="~g", tickCount=6),
            ),
            color=vl.named("pages:N", pages, colours, legend=wide_legend(None)),
            strokeDash=vl.named("pages:N", pages, dashes),
            opacity=vl.highlighted(1, 0.12),
            tooltip=[
                vl.Tooltip("pages:N", title="pages"),
                vl.Tooltip("entries:Q", title="entries", format=","),
                vl.Tooltip("misses:Q", title="misses", format=","),
                vl.Tooltip("rate:Q", title=rate_name(data), format=".4~g"),
            ],
        )
        .choose_in_legend("pages")
        .properties(width=_WIDTH, height=_HEIGHT)
    )
    return finished(chart)


def cost_chart(data: dict[str, Any], values: Values) -> Spec:
    """Cost of the misses of one TLB, a bar for each page size and pair of sizes."""
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
    return finished(vl.concat(panels, columns=2, spacing=24))


def _cost_panel(data: dict[str, Any], values: Values) -> vl.Chart:
    pages, colours = _pages(data)
    chart: vl.Chart = (
        inline(values)
        .mark("bar")
        .encode(
            x=vl.X(
                "pages:N",
                title=None,
                sort=None,
                scale=vl.Scale(paddingInner=0.2),
                axis=vl.Axis(labelAngle=-45, grid=False, labelOverlap=False),
            ),
            y=vl.Y("cost:Q", title=cost_name(data), axis=vl.Axis(tickCount=4, minExtent=52)),
            color=vl.named("pages:N", pages, colours, legend=None),
            tooltip=[
                vl.Tooltip("pages:N", title="pages"),
                vl.Tooltip("misses:Q", title="misses", format=","),
                vl.Tooltip("cost:Q", title=cost_name(data), format=".4~g"),
            ],
        )
        .properties(height=_PANEL_HEIGHT)
    )
    return chart


def working_set_chart(data: dict[str, Any], values: Values) -> Spec:
    """Normalised working sets over the page size, a line a window; two sizes are marks."""
    x = vl.X(
        "size:Q",
        title="page size (marks: the larger of two)",
        scale=vl.Scale(type="log", base=2, nice=False, padding=10),
        axis=size_axis([(size, name) for size, name in data["sizes"]]),
    )
    y = vl.Y(
        "normalised:Q",
        title="working set, over 4 KiB pages",
        scale=vl.Scale(type="log", base=2, nice=False, padding=6),
        axis=vl.Axis(format=".3~g", tickCount=6),
    )
    colour = vl.named(
        "window:N",
        data["windows"],
        ordered_colours(len(data["windows"])),
        title="window (references of the program)",
        legend=wide_legend("window, in references of the program"),
    )
    tooltip = [
        vl.Tooltip("pages:N", title="pages"),
        vl.Tooltip("window:N", title="window, in references of the program"),
        vl.Tooltip("average:N", title="average working set"),
        vl.Tooltip("normalised:Q", title="over 4 KiB pages", format=".4~g"),
    ]
    base = vl.Chart().encode(x=x, y=y, color=colour, tooltip=tooltip)
    lines = base.mark("line", strokeWidth=1.8, point={"size": 26}).filter("datum.sizes === 'one'")
    layers: list[vl.Chart] = [lines]
    if data["pairs"]:
        marks = [MARKS[(number + 1) % len(MARKS)] for number in range(len(data["pairs"]))]
        shape = vl.Shape(
            "pages:N",
            scale=vl.Scale(domain=data["pairs"], range=marks),
            legend=wide_legend("two page sizes", symbolStrokeColor="#777777"),
            sort=None,
        )
        layers.append(
            base.mark("point", size=90, strokeWidth=2, filled=False)
            .encode(shape=shape)
            .filter("datum.sizes === 'two'")
        )
    chart = vl.layer(*layers, data={"values": values})
    return finished(chart.properties(width=_WIDTH, height=_HEIGHT))


def sets_chart(data: dict[str, Any], values: Values) -> Spec:
    """Cost of misses over sets and ways, as a heat map."""
    return finished(_sets_panel(data, values).properties(width=_WIDTH, height=_HEIGHT))


def sets_figure(data: dict[str, Any], by_pages: dict[str, Values]) -> Spec:
    """The same for several page sizes, a panel for each, all on one scale of colours."""
    panels = [
        _sets_panel(data, values).properties(width=_MAP_WIDTH, height=_MAP_HEIGHT, title=pages)
        for pages, values in by_pages.items()
    ]
    return finished(vl.concat(panels, columns=3, spacing=20).resolve_scale(color="shared"))


def _sets_panel(data: dict[str, Any], values: Values) -> vl.Chart:
    chart: vl.Chart = (
        inline(values)
        .filter("datum.cost > 0")
        .mark("rect")
        .encode(
            x=vl.X("ways:O", title="ways", axis=vl.Axis(labelAngle=0, values=_WAYS_TICKS)),
            y=vl.Y("sets:O", title="sets", sort="descending"),
            color=vl.Color(
                "cost:Q",
                title=cost_name(data),
                scale=vl.Scale(type="log", scheme="viridis", nice=False),
                legend=vl.Legend(
                    orient="top", direction="horizontal", gradientLength=200, format="~g"
                ),
            ),
            tooltip=[
                vl.Tooltip("sets:O", title="sets"),
                vl.Tooltip("ways:O", title="ways"),
                vl.Tooltip("misses:Q", title="misses", format=","),
                vl.Tooltip("cost:Q", title=cost_name(data), format=".4~g"),
            ],
        )
    )
    return chart


def rate_name(data: dict[str, Any]) -> str:
    """The unit of miss rates."""
    return "misses per 1000 instructions" if data["has_instructions"] else "misses per reference"


def cost_name(data: dict[str, Any]) -> str:
    """The unit of miss costs."""
    return (
        "CPI_TLB (cycles per instruction)" if data["has_instructions"] else "misses per reference"
    )


def _pages(data: dict[str, Any]) -> tuple[list[str], list[str]]:
    """Names of page sizes and pairs, and a colour for each."""
    sizes = [name for _, name in data["sizes"]]
    pairs = [PAIR_COLOURS[number % len(PAIR_COLOURS)] for number in range(len(data["pairs"]))]
    return sizes + data["pairs"], ordered_colours(len(sizes)) + pairs


_DASHES_BY_WAYS = ([1, 0], [5, 3])
"""By ways, as SHOWN_WAYS."""


def cache_chart(data: dict[str, Any], values: Values) -> Spec:
    """Misses over the size of a cache, a line for each size of lines and number of ways."""
    per = "1000 instructions" if data["has_instructions"] else "look-up"
    rate_name, lines = f"misses per {per}", data["lines"]
    sizes = [(size, format_bytes(size)) for size in SHOWN_BYTES]
    ways = [f"{number}-way" for number in SHOWN_WAYS]
    chart = (
        inline(values)
        .filter("datum.rate > 0")
        .mark("line", strokeWidth=1.8)
        .encode(
            x=vl.X(
                "bytes:Q",
                title="cache",
                scale=vl.Scale(type="log", base=2, nice=False),
                axis=size_axis(sizes),
            ),
            y=vl.Y(
                "rate:Q",
                title=rate_name,
                scale=vl.Scale(type="log", nice=False),
                axis=vl.Axis(format="~g", tickCount=6),
            ),
            color=vl.named(
                "line:N", lines, ordered_colours(len(lines)), legend=wide_legend("lines")
            ),
            strokeDash=vl.named("ways:N", ways, list(_DASHES_BY_WAYS), legend=wide_legend("ways")),
            tooltip=[
                vl.Tooltip("line:N", title="lines"),
                vl.Tooltip("ways:N", title="ways"),
                vl.Tooltip("bytes:Q", title="bytes", format=","),
                vl.Tooltip("misses:Q", title="misses", format=","),
                vl.Tooltip("rate:Q", title=rate_name, format=".4~g"),
            ],
        )
        .properties(width=_WIDTH, height=_HEIGHT)
    )
    return finished(chart)
