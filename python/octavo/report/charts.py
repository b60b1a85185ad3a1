"""The figures of a run as Vega-Lite specifications."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from octavo.analysis.advice import Thresholds
from octavo.analysis.programs import Owner, owner_of
from octavo.analysis.rows import Row, component_of
from octavo.analysis.view import notable_regions, regions_of, whole_program
from octavo.base.units import BASE_PAGE, format_bytes, format_growth, format_mpki, format_share
from octavo.report import vegalite as vl
from octavo.report.labels import label_room, labelled_lines, with_labels
from octavo.report.theme import (
    COLOURS,
    HEAT,
    Spec,
    Values,
    finished,
    heat,
    log_ticks,
    page_size_axis,
    row_axis,
)

STREAM_NAMES = {"fetch": "code", "data": "data"}
REGIONS_DRAWN = 14
_WIDTH, _HEIGHT = 430, 220
_LEAST_GAIN = 0.005
"""Least share of the time that is drawn; for less, the answer says that there is no gain."""


def misses_chart(rows: Sequence[Row], depth: int, advised: dict[str, int]) -> Spec:
    """Misses over the page size, on logarithmic axes: for each TLB level, a line for code and one
    for data; rings mark the advised sizes.
    """
    values: Values = []
    for level in range(1, depth + 1):
        for stream, name in STREAM_NAMES.items():
            line = name if depth == 1 else f"{name}, level {level}"
            for row in whole_program(rows):
                if row["component"] == component_of(level, stream):
                    is_advised = level == depth and row["page_size"] == advised.get(stream)
                    values.append({**_miss_point(row), "line": line, "advised": is_advised})
    return _lines(values, rate_name(rows))


def memory_chart(rows: Sequence[Row], advised: dict[str, int]) -> Spec:
    """Memory touched over the page size, relative to 4 KiB pages, on logarithmic axes."""
    values: Values = []
    for stream, name in STREAM_NAMES.items():
        for row in whole_program(rows):
            if (
                row["component"] == "memory"
                and row["stream"] == stream
                and row["growth"] is not None
            ):
                figure = f"{format_bytes(row['touched_bytes'])} ({format_growth(row['growth'])})"
                values.append(
                    {
                        "line": name,
                        "size": row["page_size"],
                        "page": format_bytes(row["page_size"]),
                        "rate": 1 + row["growth"],
                        "advised": row["page_size"] == advised.get(stream),
                        "figure": figure,
                    }
                )
    return _lines(values, "memory touched, over 4 KiB pages")


def gains_chart(advice: Sequence[dict[str, Any]], processes: Mapping[Owner, str]) -> Spec | None:
    """Time that larger pages would save, with its interval; None where all are below _LEAST_GAIN.
    `processes` has the names of owners.
    """
    values = list(_gains(advice, processes))
    if all(value["low"] > -_LEAST_GAIN and value["high"] < _LEAST_GAIN for value in values):
        return None
    y = vl.Y("name:N", sort=None, title=None, axis=row_axis())
    title, scale = "share of the time", vl.Scale(zero=True)
    base = vl.Chart().encode(
        y=y, tooltip=[vl.Tooltip("name:N", title="pages"), vl.Tooltip("figure:N", title=" ")]
    )
    interval = base.mark("rule", strokeWidth=3, opacity=0.4, color=COLOURS["data"]).encode(
        x=vl.X("low:Q", title=title, scale=scale, axis=vl.Axis(format="%", tickCount=5)),
        x2={"field": "high"},
    )
    points = base.mark("point", filled=True, size=70, opacity=1, color=COLOURS["data"]).encode(
        x=vl.X("expected:Q", title=title)
    )
    names = (
        base.mark("text", align="left", dy=-12, fontSize=11)
        .encode(x=vl.X("low:Q", title=title), text=vl.Field("figure:N"))
        .properties(name="ink")
    )
    chart = vl.layer(interval, points, names, data={"values": values})
    return finished(chart.properties(width=_WIDTH, height=38 * len(values)))


def _gains(
    advice: Sequence[dict[str, Any]], processes: Mapping[Owner, str]
) -> Iterator[dict[str, Any]]:
    regions = notable_regions(advice)
    is_one = len({owner_of(item) for item in regions}) == 1
    for item in [*(item for item in advice if item["scope"] != "region"), *regions]:
        gain = item.get("gain")
        if gain is None:
            continue
        if item["scope"] == "answer":
            name = "as advised"
            if not item["changes"]:
                continue
        else:
            size = format_bytes(item.get("gain_page_size") or item["page_size"])
            if item["scope"] == "program":
                memory = STREAM_NAMES[item["stream"]]
                if item["reason"] == "no-gain" and gain["expected"] >= Thresholds.min_gain:
                    continue  # page walks too few to change anything
            else:
                memory, owner = item["region"], owner_of(item)
                if gain["high"] < _LEAST_GAIN:
                    continue
                if not is_one:
                    memory = f"{processes[owner]}: {memory}"
            name = f"{memory}, {size}"
        expected, low, high = (format_share(gain[end]) for end in ("expected", "low", "high"))
        figure = f"{expected} ({low} to {high})"
        yield {"name": name, **gain, "figure": figure}


def map_chart(
    rows: Sequence[Row],
    advice: Sequence[dict[str, Any]],
    depth: int,
    processes: Mapping[Owner, str],
) -> Spec | None:
    """Misses of each region as heat, by page size, with the highest addresses first; None without
    misses. `processes` has the names of owners.
    """
    advised = {
        (owner_of(item), item["region"], item["start"], item["page_size"])
        for item in advice
        if item["scope"] == "region" and item["page_size"] != BASE_PAGE
    }
    found = sorted(regions_of(rows), key=lambda item: -_base_misses(item[1], depth))
    drawn = [one for one in found[:REGIONS_DRAWN] if _base_misses(one[1], depth)]
    is_one = len({owner for (owner, *_), _ in drawn}) == 1
    values: Values = []
    # Processes have address spaces of their own.
    in_order = sorted(drawn, key=lambda region: (processes.get(region[0][0], ""), -region[0][2]))
    for (owner, name, start), members in in_order:
        extent = format_bytes(max(row.get("bytes", 0) for row in members))
        label = name if is_one else f"{processes[owner]}: {name}"
        by_size: dict[int, list[Row]] = {}
        for row in members:
            if row["component"] in _last_level(depth):
                by_size.setdefault(row["page_size"], []).append(row)
        for size, of_size in by_size.items():
            misses = sum(row["misses"] for row in of_size)
            rates = [row["mpki"] for row in of_size]
            known = [rate for rate in rates if rate is not None]
            rate = sum(known) if len(known) == len(rates) else misses
            values.append(
                {
                    "region": label,
                    "extent": f"{label}, {extent} from {start:#x}",
                    "page": format_bytes(size),
                    "rate": rate,
                    "advised": (owner, name, start, size) in advised,
                    "figure": f"{format_mpki(rate)} ({misses:,} misses)",
                }
            )
    if not any(value["rate"] for value in values):
        return None
    title = rate_name(rows)
    x = vl.X("page:O", sort=None, title="page size", axis=vl.Axis(labelAngle=-45, domain=False))
    y = vl.Y("region:N", sort=None, title=None, axis=row_axis())
    tooltip = [
        vl.Tooltip("extent:N", title="region"),
        vl.Tooltip("page:O", title="page size"),
        vl.Tooltip("figure:N", title=title),
    ]
    cells = (
        vl.Chart()
        .filter("datum.rate > 0")
        .mark("rect", color=HEAT)
        .encode(x=x, y=y, opacity=heat("rate", title), tooltip=tooltip)
    )
    rings = (
        vl.Chart()
        .filter("datum.advised")
        .mark("rect", fillOpacity=0, stroke=COLOURS["code"], strokeWidth=2)
        .encode(x=x, y=y, tooltip=tooltip)
    )
    # A background for all cells, so that a region or a size without misses keeps its place.
    ground = vl.Chart().mark("rect", color=HEAT, opacity=0.05).encode(x=x, y=y, tooltip=tooltip)
    chart = vl.layer(ground, cells, rings, data={"values": values})
    return finished(
        chart.properties(width=_WIDTH, height=22 * len({value["region"] for value in values}))
    )


def rate_name(rows: Sequence[Row]) -> str:
    """The unit of misses: rates where there are enough instructions."""
    is_rated = any(row["mpki"] is not None for row in whole_program(rows) if "mpki" in row)
    return "misses per 1000 instructions" if is_rated else "misses"


def _last_level(depth: int) -> tuple[str, str]:
    return component_of(depth, "fetch"), component_of(depth, "data")


def _base_misses(members: Iterable[Row], depth: int) -> int:
    return sum(
        row["misses"]
        for row in members
        if row["component"] in _last_level(depth) and row["page_size"] == BASE_PAGE
    )


def _miss_point(row: Row) -> dict[str, Any]:
    rate = row["mpki"]
    return {
        "size": row["page_size"],
        "page": format_bytes(row["page_size"]),
        "rate": row["misses"] if rate is None else rate,
        "figure": f"{format_mpki(rate)} ({row['misses']:,} misses)",
    }


def _lines(values: Values, title: str) -> Spec:
    values = [value for value in values if value["rate"] > 0]
    names = list(dict.fromkeys(value["line"] for value in values))
    colours = {name: COLOURS[name.partition(",")[0]] for name in names}
    sizes = {value["size"]: value["page"] for value in values}
    x = page_size_axis(sorted(sizes.items()))
    y = vl.Y(
        "rate:Q",
        title=title,
        scale=vl.Scale(type="log", nice=False),
        axis=vl.Axis(format="~g", values=log_ticks(*_range(value["rate"] for value in values))),
    )
    tooltip = [
        vl.Tooltip("line:N", title=" "),
        vl.Tooltip("page:N", title="page size"),
        vl.Tooltip("figure:N", title=title),
    ]
    placed = with_labels(values, "line", "size", "rate", height=_HEIGHT)
    lines = labelled_lines(
        placed, x, y, "line", colours, tooltip, strokeWidth=2.2, point={"size": 30}
    )
    ring = (
        vl.Chart()
        .filter("datum.advised")
        .mark("point", size=190, strokeWidth=2)
        .encode(
            x=x,
            y=y,
            color=vl.named("line:N", colours, legend=None),
            tooltip=tooltip,
        )
    )
    chart = lines.with_layer(ring)
    return finished(chart.properties(width=_WIDTH, height=_HEIGHT, padding=label_room(names)))


def _range(values: Iterable[float]) -> tuple[float, float]:
    every = list(values)
    return min(every, default=1.0), max(every, default=1.0)
