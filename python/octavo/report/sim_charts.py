"""The figures of simulations as Vega-Lite specifications."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from octavo.report import vegalite as vl
from octavo.report.theme import UNORDERED, Spec, Values, finished, inline, wide_legend

_WIDTH, _HEIGHT = 520, 240
_PANEL_WIDTH, _PANEL_HEIGHT = 270, 190
_WIDE_NAMES = 30
"""Characters that stand side by side below a panel."""

Panels = dict[str, vl.Chart]
"""Charts that belong together, by name."""


def misses_panels(data: dict[str, Any]) -> Panels:
    """Misses of each TLB level, a bar for each design, each level on a scale of its own."""
    rate = f"misses per 1000 {data['unit']}"
    return _panels(data["misses"], "level", data["designs"], ("rate", rate), ("misses", ","))


def memory_panels(data: dict[str, Any]) -> Panels:
    """Memory, a bar for each design, each kind on a scale of its own."""
    return _panels(data["memory"], "what", data["designs"], ("mib", "MiB"), ("bytes", ","))


def panel_chart(panel: vl.Chart) -> Spec:
    """A panel alone."""
    return finished(panel)


def panels_figure(panels: Panels) -> Spec:
    """Several side by side, each under its name."""
    charts = [panel.properties(width=_PANEL_WIDTH, title=name) for name, panel in panels.items()]
    return finished(vl.concat(charts, columns=2, spacing=24))


def cycles_chart(data: dict[str, Any]) -> Spec:
    """Cycles per instruction by what they go to, a stack for each design."""
    values = data["cycles"]
    parts = list(dict.fromkeys(value["part"] for value in values))
    chart = (
        inline(values)
        .mark("bar")
        .encode(
            y=_designs(vl.Y, data["designs"]),
            x=vl.X("rate:Q", title="cycles per instruction, added up"),
            color=_colours("part", parts),
            order=vl.Order("place:Q"),
            tooltip=[
                vl.Tooltip("design:N"),
                vl.Tooltip("part:N", title="goes to"),
                vl.Tooltip("rate:Q", title="cycles per instruction", format=".4~g"),
                vl.Tooltip("cycles:Q", title="cycles", format=","),
            ],
        )
        .properties(width=_WIDTH, height={"step": 34})
    )
    return finished(chart)


def series_charts(data: dict[str, Any]) -> dict[str, Spec]:
    """Charts over time, a line for each design; by a name for each figure."""
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
        .mark("line", strokeWidth=1.8, interpolate="step-after")
        .encode(
            x=vl.X(
                "at:Q", title="instructions", axis=vl.Axis(format="~s", grid=False, tickCount=6)
            ),
            y=vl.Y("value:Q", title=what, axis=vl.Axis(tickCount=5)),
            color=_colours("design", designs),
            tooltip=[
                vl.Tooltip("design:N"),
                vl.Tooltip("at:Q", title="from instruction", format=","),
                vl.Tooltip("value:Q", title=what, format=".4~g"),
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
) -> vl.Chart:
    (field, title), (exact, form) = height, more
    chart: vl.Chart = (
        inline(values)
        .mark("bar")
        .encode(
            x=_designs(vl.X, designs),
            y=vl.Y(f"{field}:Q", title=title, axis=vl.Axis(tickCount=4, minExtent=52)),
            color=_colours("design", designs, legend=None),
            tooltip=[
                vl.Tooltip("design:N"),
                vl.Tooltip(f"{field}:Q", title=title, format=".4~g"),
                vl.Tooltip(f"{exact}:Q", format=form),
            ],
        )
        .properties(width=_PANEL_WIDTH, height=_PANEL_HEIGHT)
    )
    return chart


def _designs(axis: Any, designs: Sequence[str]) -> Any:
    """The designs along an axis, in the order in which they were asked for."""
    is_crowded = axis is vl.X and sum(map(len, designs)) > _WIDE_NAMES
    look = vl.Axis(grid=False, labelAngle=-35 if is_crowded else 0, labelOverlap=False)
    scale = vl.Scale(domain=list(designs), paddingInner=0.25)
    return axis("design:N", title=None, scale=scale, axis=look)


def _colours(field: str, names: Sequence[str], **legend: Any) -> vl.Field:
    colours = [UNORDERED[at % len(UNORDERED)] for at in range(len(names))]
    scale = vl.Scale(domain=list(names), range=colours)
    return vl.Color(f"{field}:N", scale=scale, sort=None, **{"legend": wide_legend(None), **legend})
