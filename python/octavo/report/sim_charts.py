"""The figures of simulations as Vega-Lite specifications, made with Altair."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt

from octavo.report.look import UNORDERED, Spec, Values, finished, inline, wide_legend

_WIDTH, _HEIGHT = 520, 240
_PANEL_WIDTH, _PANEL_HEIGHT = 270, 190
_WIDE_NAMES = 30
"""Characters that stand side by side below a panel."""

Panels = dict[str, alt.Chart]
"""Charts that belong together, by name."""


def misses_panels(data: dict[str, Any]) -> Panels:
    """Misses of each TLB level, a bar for each design, each level on a scale of its own."""
    rate = f"misses per 1000 {data['unit']}"
    return _panels(data["misses"], "level", data["designs"], ("rate", rate), ("misses", ","))


def memory_panels(data: dict[str, Any]) -> Panels:
    """Memory, a bar for each design, each kind on a scale of its own."""
    return _panels(data["memory"], "what", data["designs"], ("mib", "MiB"), ("bytes", ","))


def panel_chart(panel: alt.Chart) -> Spec:
    """A panel alone."""
    return finished(panel)


def panels_figure(panels: Panels) -> Spec:
    """Several side by side, each under its name."""
    charts = [panel.properties(width=_PANEL_WIDTH, title=name) for name, panel in panels.items()]
    return finished(alt.concat(*charts, columns=2, spacing=24))


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


def _panels(
    values: Values,
    by: str,
    designs: Sequence[str],
    height: tuple[str, str],
    more: tuple[str, str],
) -> Panels:
    """The values by a field of theirs, each group with bars of its own."""
    groups: dict[str, Values] = {}
    for value in values:
        groups.setdefault(value[by], []).append(value)
    return {name: _bars(group, designs, height, more) for name, group in groups.items()}


def _bars(
    values: Values, designs: Sequence[str], height: tuple[str, str], more: tuple[str, str]
) -> alt.Chart:
    (field, title), (exact, form) = height, more
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
                alt.Tooltip(f"{exact}:Q", format=form),
            ],
        )
        .properties(width=_PANEL_WIDTH, height=_PANEL_HEIGHT)
    )
    return chart


def _designs(axis: Any, designs: Sequence[str]) -> Any:
    """The designs along an axis, in the order in which they were asked for."""
    is_crowded = axis is alt.X and sum(map(len, designs)) > _WIDE_NAMES
    look = alt.Axis(grid=False, labelAngle=-35 if is_crowded else 0, labelOverlap=False)
    scale = alt.Scale(domain=list(designs), paddingInner=0.25)
    return axis("design:N", title=None, scale=scale, axis=look)


def _colours(field: str, names: Sequence[str], **legend: Any) -> alt.Color:
    colours = [UNORDERED[at % len(UNORDERED)] for at in range(len(names))]
    scale = alt.Scale(domain=list(names), range=colours)
    return alt.Color(
        f"{field}:N", scale=scale, sort=None, **{"legend": wide_legend(None), **legend}
    )
