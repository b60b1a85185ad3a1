"""The report's figures as Vega-Lite specifications."""

from collections.abc import Iterable, Sequence
from typing import Any

from octavo.analysis.rows import Row, component_of
from octavo.analysis.view import regions_of, whole_program
from octavo.base.units import BASE_PAGE, KIB, MIB, format_bytes, format_growth, format_mpki, unit_of
from octavo.report import vegalite as vl
from octavo.report.theme import COLOURS, Spec, finished, inline

STREAM_NAMES = {"fetch": "code", "data": "data"}
REGIONS_DRAWN = 12
_NAMED_SIZES = (BASE_PAGE, 64 * KIB, 2 * MIB)
"""Page sizes whose points bear their names, where many lie close together."""

_WIDTH, _HEIGHT = 430, 190
_SMALL_WIDTH, _SMALL_HEIGHT = 250, 110


def misses_chart(rows: Sequence[Row], stream: str, depth: int, advised: int | None) -> Spec:
    """Misses per 1000 instructions over the page size, one line for each TLB level."""
    values = []
    for level in range(1, depth + 1):
        component = component_of(level, stream)
        for row in whole_program(rows):
            if row["component"] == component:
                values.append({**_miss_point(row, advised), "level": f"level {level}"})
    chart = _line(values, "mpki", "misses per 1000 instructions", COLOURS[STREAM_NAMES[stream]])
    if depth > 1:
        dash = vl.StrokeDash("level:N", legend=vl.Legend(title=None, orient="top-right"))
        chart = chart.encode(strokeDash=dash)
    return _finish(chart, _advised_dot(values, "mpki", stream))


def memory_chart(rows: Sequence[Row], stream: str, advised: int | None) -> Spec:
    """Memory touched, in whole pages, over the page size."""
    points = [
        row
        for row in whole_program(rows)
        if row["component"] == "memory" and row["stream"] == stream
    ]
    unit, name = unit_of(max(row["touched_bytes"] for row in points))
    values = [_memory_point(row, unit, advised) for row in points]
    colour = COLOURS[STREAM_NAMES[stream]]
    chart = _line(values, "touched", f"memory touched, {name}", colour)
    return _finish(chart, _advised_dot(values, "touched", stream))


def tradeoff_chart(rows: Sequence[Row], stream: str, depth: int, advised: int | None) -> Spec:
    """Misses of the last level, on a logarithmic scale, against memory: a point for each page size,
    joined in the order of size.
    """
    whole = whole_program(rows)
    memory = {
        row["page_size"]: row
        for row in whole
        if row["component"] == "memory" and row["stream"] == stream
    }
    unit, name = unit_of(max(row["touched_bytes"] for row in memory.values()))
    values = []
    for row in whole:
        if row["component"] == component_of(depth, stream):
            point = _memory_point(memory[row["page_size"]], unit, advised)
            figure = f"{_miss_point(row, None)['figure']}, {point['figure']}"
            # A logarithmic scale has no zero.
            misses = max(row["misses"], 1)
            values.append({**point, "misses": misses, "order": row["page_size"], "figure": figure})
    colour = COLOURS[STREAM_NAMES[stream]]
    x = vl.X("touched:Q", title=f"memory touched, {name}", scale=vl.Scale(zero=False, padding=30))
    axis = vl.Axis(tickCount=4, format="~s", minExtent=36)
    y = vl.Y("misses:Q", title="misses", scale=vl.Scale(type="log"), axis=axis)
    lines = (
        inline(values)
        .mark("line", color=colour, strokeWidth=2.2, point={"size": 36, "color": colour})
        .encode(x=x, y=y, order=vl.Order("order:Q"), tooltip=_tooltip())
    )
    named = [value for value in values if value["advised"] or value["order"] in _NAMED_SIZES]
    names = (
        inline(named)
        .mark("text", align="left", dx=9, dy=-7, fontSize=10)
        .encode(x=x, y=y, text=vl.Tooltip("page:N"))
    )
    ring = (
        inline([value for value in values if value["advised"]])
        .mark("point", size=190, strokeWidth=2, color=colour)
        .encode(x=x, y=y, tooltip=_tooltip())
    )
    return finished(vl.layer(lines, names, ring).properties(width=_WIDTH, height=_HEIGHT))


def region_charts(rows: Sequence[Row], depth: int) -> Spec | None:
    """Small multiples: misses of the regions that miss most, at the last TLB level."""
    drawn = sorted(regions_of(rows), key=lambda item: -_base_misses(item[1], depth))
    values = []
    is_one = len({owner for (owner, *_), _ in drawn}) == 1
    for (owner, name, _), members in drawn[:REGIONS_DRAWN]:
        label = name if is_one else f"{owner}: {name}"
        for row in members:
            if row["component"] in _last_level(depth):
                point = _miss_point(row, None)
                values.append({**point, "region": label, "kind": STREAM_NAMES[row["stream"]]})
    if not values:
        return None
    colour = vl.Color(
        "kind:N",
        scale=vl.Scale(domain=list(COLOURS), range=list(COLOURS.values())),
        legend=vl.Legend(title=None, orient="top"),
    )
    chart = (
        inline(values)
        .mark("line", strokeWidth=1.6, point={"size": 18, "filled": True})
        .encode(
            x=_page_size_axis(),
            y=vl.Y("mpki:Q", title=None, axis=vl.Axis(tickCount=3)),
            color=colour,
            tooltip=_tooltip("region", "kind"),
        )
        .properties(width=_SMALL_WIDTH, height=_SMALL_HEIGHT)
        .facet(
            vl.Facet(
                "region:N",
                title=None,
                sort=list(dict.fromkeys(value["region"] for value in values)),
                header=vl.Header(labelLimit=_SMALL_WIDTH),
            ),
            columns=3,
            spacing=26,
        )
        .resolve_scale(y="independent")
    )
    return finished(chart)


def _last_level(depth: int) -> tuple[str, str]:
    return component_of(depth, "fetch"), component_of(depth, "data")


def _base_misses(members: Iterable[Row], depth: int) -> int:
    return sum(
        row["misses"]
        for row in members
        if row["component"] in _last_level(depth) and row["page_size"] == BASE_PAGE
    )


def _miss_point(row: Row, advised: int | None) -> dict[str, Any]:
    return {
        "page": format_bytes(row["page_size"]),
        "mpki": row["mpki"],
        "advised": row["page_size"] == advised,
        "figure": f"{format_mpki(row['mpki'])} ({row['misses']:,} misses)",
    }


def _memory_point(row: Row, unit: int, advised: int | None) -> dict[str, Any]:
    return {
        "page": format_bytes(row["page_size"]),
        "touched": row["touched_bytes"] / unit,
        "advised": row["page_size"] == advised,
        "figure": f"{format_bytes(row['touched_bytes'])} ({format_growth(row['growth'])})",
    }


def _page_size_axis() -> vl.X:
    """One step for each power of two, in the order of the data."""
    return vl.X("page:O", sort=None, title=None, axis=vl.Axis(labelAngle=-45, grid=False))


def _tooltip(*fields: str) -> list[vl.Field]:
    named = [vl.Tooltip(f"{field}:N") for field in fields]
    return [*named, vl.Tooltip("page:O", title="page size"), vl.Tooltip("figure:N", title=" ")]


def _line(values: list[dict[str, Any]], field: str, title: str, colour: str) -> vl.Chart:
    axis = vl.Axis(tickCount=5, minExtent=36)
    chart: vl.Chart = (
        inline(values)
        .mark("line", color=colour, strokeWidth=2.2, point={"size": 36, "color": colour})
        .encode(
            x=_page_size_axis(),
            y=vl.Y(f"{field}:Q", title=title, scale=vl.Scale(zero=True), axis=axis),
            tooltip=_tooltip(),
        )
    )
    return chart


def _advised_dot(values: list[dict[str, Any]], field: str, stream: str) -> vl.Chart:
    """A ring round the advised page size."""
    ring: vl.Chart = (
        inline([value for value in values if value["advised"]])
        .mark("point", size=190, strokeWidth=2, color=COLOURS[STREAM_NAMES[stream]])
        .encode(x=_page_size_axis(), y=vl.Y(f"{field}:Q"), tooltip=_tooltip())
    )
    return ring


def _finish(line: vl.Chart, dot: vl.Chart) -> Spec:
    return finished(vl.layer(line, dot).properties(width=_WIDTH, height=_HEIGHT))
