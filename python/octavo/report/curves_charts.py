"""The figures of curves as Vega-Lite specifications.

Each takes records of `octavo.report.curves_data` for one choice of stream (and pages, and index);
the page replaces the records when the reader chooses another.
"""

from __future__ import annotations

import json
from itertools import cycle
from typing import Any

from octavo.base.units import format_bytes
from octavo.report import vegalite as vl
from octavo.report.curves_data import NEEDED
from octavo.report.labels import label_room, labelled_lines, with_labels
from octavo.report.theme import (
    HEAT,
    PAIR_COLOURS,
    Spec,
    Values,
    finished,
    heat,
    inline,
    log_ticks,
    ordered_colours,
    page_size_axis,
    row_axis,
    size_axis,
    wide_legend,
)
from octavo.tlb_curves.caches import SHOWN_BYTES, SHOWN_WAYS

_WIDTH, _HEIGHT = 520, 300
_SMALL_WIDTH, _SMALL_HEIGHT = 200, 110
_GREY = "#8d969f"
_MAP_WIDTH, _MAP_HEIGHT = 190, 140
_ENTRIES_TICKS = [1 << power for power in range(0, 13, 2)]
_WAYS_TICKS = [1, 2, 4, 8, 12, 16]


def misses_panels(data: dict[str, Any], values: Values) -> dict[str, vl.Chart]:
    """Misses over entries, a panel for each page size and pair, with the smallest size in grey."""
    base = data["sizes"][0][1]
    return {
        name: _misses_panel(data, colour, panel_values(values, name, base))
        for name, colour in _pages(data).items()
    }


def panel_values(values: Values, pages: str, base: str) -> Values:
    """The records of a panel: those of its pages and of the smallest page size."""
    return [value for value in values if value["pages"] in (pages, base) and value["misses"]]


def _misses_panel(data: dict[str, Any], colour: str, values: Values) -> vl.Chart:
    base = data["sizes"][0][1]
    x = vl.X(
        "entries:Q",
        title="TLB entries",
        scale=vl.Scale(type="log", base=2, nice=False),
        axis=vl.Axis(
            values=_ENTRIES_TICKS, format="d", grid=False, labelOverlap="greedy", labelSeparation=5
        ),
    )
    ends = _rates(data)
    y = vl.Y(
        "rate:Q",
        title=None,
        scale=vl.Scale(type="log", domain=list(ends), nice=False),
        axis=vl.Axis(format="~g", values=log_ticks(*ends)[::2], minExtent=40),
    )
    is_base = f"datum.pages === {json.dumps(base)}"
    is_other = f"!({is_base})" if any(value["pages"] != base for value in values) else "true"
    tooltip = [
        vl.Tooltip("pages:N", title="pages"),
        vl.Tooltip("entries:Q", title="entries", format=","),
        vl.Tooltip("misses:Q", title="misses", format=","),
        vl.Tooltip("rate:Q", title=rate_name(data), format=".4~g"),
    ]
    both = vl.Chart().encode(x=x, y=y, tooltip=tooltip)
    grey = both.filter(is_base).mark("line", strokeWidth=1.2, color=_GREY)
    line = both.filter(is_other).mark("line", strokeWidth=2, color=colour)
    chart = vl.layer(grey, line, data={"values": values})
    return chart.properties(width=_SMALL_WIDTH, height=_SMALL_HEIGHT)


def _rates(data: dict[str, Any]) -> tuple[float, float]:
    """The lowest and the highest rate of all streams, for the common scale of all panels."""
    rates = [
        value["rate"]
        for values in data["misses"].values()
        for value in values
        if value["misses"] and value["rate"]
    ]
    return min(rates, default=0.1), max(rates, default=1.0)


def misses_figure(data: dict[str, Any], values: Values) -> Spec:
    """The panels of all page sizes."""
    panels = [panel.properties(title=name) for name, panel in misses_panels(data, values).items()]
    return finished(vl.concat(panels, columns=4, spacing=16))


def needed_chart(data: dict[str, Any], values: Values) -> Spec:
    """Entries that a TLB needs for each of the rates NEEDED, over the page size."""
    per = "1000 instructions" if data["has_instructions"] else "1000 references"
    names = [f"{rate:g}" for rate in NEEDED]
    x = page_size_axis(data["sizes"])
    y = vl.Y(
        "entries:Q",
        title=f"entries for a number of misses per {per}",
        scale=vl.Scale(type="log", base=2, nice=False),
        axis=vl.Axis(
            values=[1 << power for power in range(13)],
            # Where all values are equal, all other ticks would stand at the same place.
            labelExpr="inrange(datum.value, domain('y')) ? datum.label : ''",
            format="d",
            labelOverlap="greedy",
        ),
    )
    tooltip = [
        vl.Tooltip("pages:N", title="pages"),
        vl.Tooltip("name:N", title=f"misses per {per}, at most"),
        vl.Tooltip("entries:Q", title="entries", format=","),
    ]
    colours = ordered_colours(names)
    chart = labelled_lines(values, x, y, "name", colours, tooltip, point={"size": 30})
    return finished(chart.properties(width=_WIDTH, height=_HEIGHT, padding=label_room(names)))


def needed_values(values: Values) -> Values:
    """The records of `needed_chart`."""
    named = [{**value, "name": f"{value['rate']:g}"} for value in values]
    return with_labels(named, "name", "size", "entries", height=_HEIGHT)


def costs_chart(data: dict[str, Any], values: Values) -> Spec:
    """Cost of the misses of a few TLBs by page size, as heat."""
    x = vl.X(
        "pages:N",
        title=None,
        sort=None,
        scale=vl.Scale(domain=list(_pages(data))),
        axis=vl.Axis(labelAngle=-45, labelOverlap=False, domain=False),
    )
    y = vl.Y(
        "tlb:N",
        title=None,
        sort=None,
        axis=row_axis(labelExpr="replace(datum.label, 'fully associative', 'full')"),
    )
    tooltip = [
        vl.Tooltip("tlb:N", title="TLB"),
        vl.Tooltip("pages:N", title="pages"),
        vl.Tooltip("misses:Q", title="misses", format=","),
        vl.Tooltip("cost:Q", title=cost_name(data), format=".4~g"),
    ]
    cells = vl.Chart().encode(x=x, y=y, tooltip=tooltip)
    chart = vl.layer(
        cells.mark("rect", color=HEAT, opacity=0.05),
        cells.filter("datum.cost > 0")
        .mark("rect", color=HEAT)
        .encode(opacity=heat("cost", cost_name(data))),
        data={"values": values},
    )
    tlbs = {value["tlb"] for values in data["costs"].values() for value in values}
    return finished(chart.properties(width=_WIDTH, height=26 * len(tlbs)))


def working_set_chart(data: dict[str, Any], values: Values) -> Spec:
    """Working sets over the page size, relative to 4 KiB pages: a line for each window; two page
    sizes are marks at the larger one.
    """
    x = page_size_axis(data["sizes"])
    y = vl.Y(
        "normalised:Q",
        title="working set, over 4 KiB pages",
        scale=vl.Scale(type="log", base=2, nice=False),
        axis=vl.Axis(format="~g", tickCount=6),
    )
    colours = ordered_colours(data["windows"])
    tooltip = [
        vl.Tooltip("pages:N", title="pages"),
        vl.Tooltip("window:N", title="window, in references of the program"),
        vl.Tooltip("average:N", title="average working set"),
        vl.Tooltip("normalised:Q", title="over 4 KiB pages", format=".4~g"),
    ]
    chart = labelled_lines(
        values, x, y, "window", colours, tooltip, only="datum.sizes === 'one'", point={"size": 26}
    )
    if data["pairs"]:
        colour = vl.named("window:N", colours, legend=None)
        marks = (
            vl.Chart()
            .filter("datum.sizes === 'two'")
            .mark("point", shape="diamond", size=70, strokeWidth=1.5, filled=False)
            .encode(x=x, y=y, color=colour, tooltip=tooltip)
        )
        chart = chart.with_layer(marks)
    padding = label_room(data["windows"])
    return finished(chart.properties(width=_WIDTH, height=_HEIGHT, padding=padding))


def working_set_values(values: Values) -> Values:
    """The records of `working_set_chart`."""
    single = [value for value in values if value["sizes"] == "one"]
    pairs = [value for value in values if value["sizes"] != "one"]
    return [*with_labels(single, "window", "size", "normalised", height=_HEIGHT), *pairs]


def sets_chart(data: dict[str, Any], values: Values) -> Spec:
    """Cost of misses over sets and ways, as a heat map."""
    return finished(_sets_panel(data, values).properties(width=_WIDTH, height=_HEIGHT))


def sets_figure(data: dict[str, Any], by_pages: dict[str, Values]) -> Spec:
    """Heat maps of the cost of misses for several page sizes, on one scale of colours."""
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


def _pages(data: dict[str, Any]) -> dict[str, str]:
    """A colour for each page size and pair, by name."""
    pairs = dict(zip(data["pairs"], cycle(PAIR_COLOURS), strict=False))
    return {**ordered_colours([name for _, name in data["sizes"]]), **pairs}


_DASHES = dict(zip((f"{ways}-way" for ways in SHOWN_WAYS), ([1, 0], [5, 3]), strict=True))


def cache_chart(data: dict[str, Any], values: Values) -> Spec:
    """Misses over the size of a cache, a line for each size of lines and number of ways."""
    per = "1000 instructions" if data["has_instructions"] else "look-up"
    rate_name, lines = f"misses per {per}", data["lines"]
    sizes = [(size, format_bytes(size)) for size in SHOWN_BYTES]
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
            color=vl.named("line:N", ordered_colours(lines), legend=wide_legend("lines")),
            strokeDash=vl.named("ways:N", _DASHES, legend=wide_legend("ways")),
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
