"""The figures of simulations as Vega-Lite specifications, made with Altair."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt

from octavo.report.look import UNORDERED, Spec, Values, finished, inline, wide_legend

_WIDTH, _HEIGHT = 520, 240
_PANEL_WIDTH, _PANEL_HEIGHT = 270, 190


def misses_chart(data: dict[str, Any]) -> Spec:
    """Misses of each TLB level, a bar for each design, each level on a scale of its own."""
    rate = f"misses per 1000 {data['unit']}"
    levels = list(dict.fromkeys(value["level"] for value in data["misses"]))
    panels = [
        _bars(
            [value for value in data["misses"] if value["level"] == level],
            data["designs"],
            ("rate", rate),
            [("misses", ",")],
        ).properties(width=_PANEL_WIDTH, height=_PANEL_HEIGHT, title=level)
        for level in levels
    ]
    return finished(alt.concat(*panels, columns=2, spacing=24))


def cycles_chart(data: dict[str, Any]) -> Spec:
    """Cycles per instruction by what they go to, a stack for each design."""
    values = data["cycles"]
    parts = list(dict.fromkeys(value["part"] for value in values))
    chart = (
        inline(values)
        .mark_bar()
        .encode(
            y=_designs(alt.Y, data["designs"]),
            x=alt.X("rate:Q", title="cycles per instruction, added up"),
            color=_colours("part", parts),
            order=alt.Order("place:Q"),
            tooltip=[
                alt.Tooltip("design:N"),
                alt.Tooltip("part:N", title="goes to"),
                alt.Tooltip("rate:Q", title="cycles per instruction", format=".4~g"),
                alt.Tooltip("cycles:Q", title="cycles", format=","),
            ],
        )
        .properties(width=_WIDTH, height=alt.Step(34))
    )
    return finished(chart)


def memory_chart(data: dict[str, Any]) -> Spec:
    """Memory, a bar for each design, each kind on a scale of its own."""
    kinds = list(dict.fromkeys(value["what"] for value in data["memory"]))
    panels = [
        _bars(
            [value for value in data["memory"] if value["what"] == kind],
            data["designs"],
            ("mib", "MiB"),
            [("bytes", ",")],
        ).properties(width=_PANEL_WIDTH, height=_PANEL_HEIGHT, title=kind)
        for kind in kinds
    ]
    return finished(alt.concat(*panels, columns=2, spacing=24))


def series_charts(data: dict[str, Any]) -> dict[str, Spec]:
    """What happened over time, a line for each design; by a name for each figure."""
    by_what: dict[str, Values] = {}
    for value in data["series"]:
        by_what.setdefault(value["what"], []).append(value)
    return {
        f"series-{number}": _series(what, values, data["designs"])
        for number, (what, values) in enumerate(by_what.items())
    }


def _series(what: str, values: Values, designs: Sequence[str]) -> Spec:
    chart = (
        inline(values)
        .mark_line(strokeWidth=1.8, interpolate="step-after")
        .encode(
            x=alt.X(
                "at:Q", title="instructions", axis=alt.Axis(format="~s", grid=False, tickCount=6)
            ),
            y=alt.Y("value:Q", title=what, axis=alt.Axis(tickCount=5)),
            color=_colours("design", designs),
            tooltip=[
                alt.Tooltip("design:N"),
                alt.Tooltip("at:Q", title="from instruction", format=","),
                alt.Tooltip("value:Q", title=what, format=".4~g"),
            ],
        )
        .properties(width=_WIDTH, height=_HEIGHT)
    )
    return finished(chart)


def _bars(
    values: Values,
    designs: Sequence[str],
    height: tuple[str, str],
    more: Sequence[tuple[str, str]],
) -> alt.Chart:
    field, title = height
    chart: alt.Chart = (
        inline(values)
        .mark_bar()
        .encode(
            x=_designs(alt.X, designs),
            y=alt.Y(f"{field}:Q", title=title, axis=alt.Axis(tickCount=4, minExtent=52)),
            color=_colours("design", designs, legend=None),
            tooltip=[
                alt.Tooltip("design:N"),
                alt.Tooltip(f"{field}:Q", title=title, format=".4~g"),
                *(alt.Tooltip(f"{name}:Q", format=form) for name, form in more),
            ],
        )
    )
    return chart


def _designs(axis: Any, designs: Sequence[str]) -> Any:
    """The designs along an axis, in the order in which they were asked for."""
    scale = alt.Scale(domain=list(designs), paddingInner=0.25)
    return axis("design:N", title=None, scale=scale, axis=alt.Axis(grid=False, labelAngle=0))


def _colours(field: str, names: Sequence[str], **legend: Any) -> alt.Color:
    colours = [UNORDERED[at % len(UNORDERED)] for at in range(len(names))]
    scale = alt.Scale(domain=list(names), range=colours)
    return alt.Color(
        f"{field}:N", scale=scale, sort=None, **{"legend": wide_legend(None), **legend}
    )
