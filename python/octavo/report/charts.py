"""The report's figures as Vega-Lite specifications, made with Altair."""

from collections.abc import Iterable, Sequence
from typing import Any

import altair as alt

from octavo.report.look import COLOURS, Spec, finished, inline
from octavo.rows import Row, component_of
from octavo.units import BASE_PAGE, format_bytes, format_growth, format_mpki, unit_of
from octavo.view import regions_of, whole_program

STREAM_NAMES = {"fetch": "code", "data": "data"}
REGIONS_DRAWN = 12

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
        dash = alt.StrokeDash("level:N", legend=alt.Legend(title=None, orient="top-right"))
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


def region_charts(rows: Sequence[Row], depth: int) -> Spec | None:
    """Small multiples: misses of the regions that miss most, at the last TLB level."""
    drawn = sorted(regions_of(rows), key=lambda item: -_base_misses(item[1], depth))
    values = []
    for (process, name, _), members in drawn[:REGIONS_DRAWN]:
        label = name if process is None else f"{process}: {name}"
        for row in members:
            if row["component"] in _last_level(depth):
                point = _miss_point(row, None)
                values.append({**point, "region": label, "kind": STREAM_NAMES[row["stream"]]})
    if not values:
        return None
    colour = alt.Color(
        "kind:N",
        scale=alt.Scale(domain=list(COLOURS), range=list(COLOURS.values())),
        legend=alt.Legend(title=None, orient="top"),
    )
    chart = (
        inline(values)
        .mark_line(strokeWidth=1.6, point={"size": 18, "filled": True})
        .encode(
            x=_page_size_axis(),
            y=alt.Y("mpki:Q", title=None, axis=alt.Axis(tickCount=3)),
            color=colour,
            tooltip=_tooltip("region", "kind"),
        )
        .properties(width=_SMALL_WIDTH, height=_SMALL_HEIGHT)
        .facet(
            facet=alt.Facet(
                "region:N",
                title=None,
                sort=list(dict.fromkeys(value["region"] for value in values)),
                header=alt.Header(labelLimit=_SMALL_WIDTH),
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


def _page_size_axis() -> alt.X:
    """One step for each power of two, in the order of the data."""
    return alt.X("page:O", sort=None, title=None, axis=alt.Axis(labelAngle=-45, grid=False))


def _tooltip(*fields: str) -> list[alt.Tooltip]:
    named = [alt.Tooltip(f"{field}:N") for field in fields]
    return [*named, alt.Tooltip("page:O", title="page size"), alt.Tooltip("figure:N", title=" ")]


def _line(values: list[dict[str, Any]], field: str, title: str, colour: str) -> alt.Chart:
    axis = alt.Axis(tickCount=5, minExtent=36)
    chart: alt.Chart = (
        inline(values)
        .mark_line(color=colour, strokeWidth=2.2, point={"size": 36, "color": colour})
        .encode(
            x=_page_size_axis(),
            y=alt.Y(f"{field}:Q", title=title, scale=alt.Scale(zero=True), axis=axis),
            tooltip=_tooltip(),
        )
    )
    return chart


def _advised_dot(values: list[dict[str, Any]], field: str, stream: str) -> alt.Chart:
    """A ring round the advised page size."""
    ring: alt.Chart = (
        inline([value for value in values if value["advised"]])
        .mark_point(size=190, strokeWidth=2, color=COLOURS[STREAM_NAMES[stream]])
        .encode(x=_page_size_axis(), y=alt.Y(f"{field}:Q"), tooltip=_tooltip())
    )
    return ring


def _finish(line: alt.Chart, dot: alt.Chart) -> Spec:
    return finished(alt.layer(line, dot).properties(width=_WIDTH, height=_HEIGHT))
