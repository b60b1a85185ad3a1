"""The figures of simulations as Vega-Lite specifications, which compare designs.

The first design that can be built is the baseline. Differences are drawn, not totals, with error
bars of the share that a simulation does not resolve (`RESOLUTION`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from octavo.base.units import format_bytes, format_count, format_mpki
from octavo.report import vegalite as vl
from octavo.report.labels import LONGEST, label_room, labelled_lines, with_labels
from octavo.report.theme import (
    Spec,
    Values,
    finished,
    inline,
    log_ticks,
    rounded,
    row_axis,
    unordered_colours,
    wide_legend,
)
from octavo.simulation.model import RESOLUTION

_WIDTH, _HEIGHT = 520, 220
_PANEL_WIDTH = 270
_ROW = 30
_LEAST_PART = 0.0005
"""Least difference of a part that is drawn, as a share of all cycles of the baseline."""
_SAME = "#7d8793"
_LESS, _MORE = "#0072b2", "#d1600a"
_VERDICTS = {"less": _LESS, "same": _SAME, "more": _MORE}
_RESIDENT, _TABLES = "resident at most", "page tables at most"

Panels = dict[str, vl.Chart]
"""Charts that belong together, by name."""
Totals = dict[str, float]
"""A value for each design."""


def baseline(data: dict[str, Any]) -> str:
    """The baseline: the first design that ran to its end."""
    first: str = next(iter(_cycles(data) or _memory(data)), data["designs"][0])
    return first


def difference_panels(data: dict[str, Any]) -> Panels:
    """Cycles and memory of each design, over those of the baseline."""
    base = baseline(data)
    measures = {
        f"Cycles, over {base}": (_cycles(data), format_count),
        f"Memory with page tables, over {base}": (_memory(data), format_bytes),
    }
    panels = {}
    for name, (totals, show) in measures.items():
        if len(totals) > 1 and totals.get(base):
            panels[name] = _differences(totals, base, lambda value, show=show: show(round(value)))
    return panels


def _differences(totals: Totals, base: str, show: Any) -> vl.Chart:
    values = []
    for design, total in totals.items():
        share = total / totals[base] - 1
        is_same = 1 / (1 + RESOLUTION) <= total / totals[base] <= 1 + RESOLUTION
        verdict = "same" if is_same else "less" if share < 0 else "more"
        if design == base:
            figure = show(total)
        elif is_same:
            figure = f"{_signed(share)}, not resolved"
        else:
            figure = _signed(share)
        values.append(
            {
                "design": design,
                "share": rounded(share),
                "low": rounded((1 + share) / (1 + RESOLUTION) - 1),
                "high": rounded((1 + share) * (1 + RESOLUTION) - 1),
                "verdict": verdict,
                "figure": figure,
                "total": show(total),
            }
        )
    # Leaves room for the figures at the ends.
    reach = 1.15 * max(
        3 * RESOLUTION, *(abs(value[end]) for value in values for end in ("low", "high"))
    )
    scale = vl.Scale(
        domain=[max(-1.0, -reach) if any(one["share"] < 0 for one in values) else -0.06, reach],
        nice=True,
    )
    title = "difference"
    x = vl.X("share:Q", title=title, scale=scale, axis=_difference_axis("+%", 4))
    y = vl.Y("design:N", sort=None, title=None, axis=row_axis())
    tooltip = [
        vl.Tooltip("design:N"),
        vl.Tooltip("total:N", title="in all"),
        vl.Tooltip("share:Q", title=title, format="+.3%"),
    ]
    colour = vl.named("verdict:N", _VERDICTS, legend=None)
    band = vl.Chart(data={"values": [{"low": 1 / (1 + RESOLUTION) - 1, "high": RESOLUTION}]}).mark(
        "rect", color=_SAME, opacity=0.18
    )
    band = band.encode(x=vl.X("low:Q", title=title), x2={"field": "high"})
    base_chart = vl.Chart().encode(y=y, color=colour, tooltip=tooltip)
    interval = base_chart.mark("rule", strokeWidth=3, opacity=0.4)
    interval = interval.encode(x=vl.X("low:Q", title=title), x2={"field": "high"})
    points = base_chart.mark("point", filled=True, size=70, opacity=1).encode(x=x)
    names = (
        vl.Chart()
        .mark("text", dy=-11, fontSize=11)
        .encode(x=x, y=y, text=vl.Field("figure:N"))
        .properties(name="ink")
    )
    chart = vl.layer(band, interval, points, names, data={"values": values})
    return chart.properties(width=_PANEL_WIDTH, height=(_ROW + 6) * len(values))


def _difference_axis(form: str, ticks: int) -> vl.Part:
    """An axis of signed shares, on which zero is 0% and not +0%."""
    label = "datum.value ? datum.label : '0%'"
    return vl.Axis(format=form, tickCount=ticks, labelExpr=label)


def parts_chart(data: dict[str, Any]) -> Spec | None:
    """The difference in cycles to the baseline by part, with a row for each other design; None
    where all differences are too small to draw.
    """
    totals, base = _cycles(data), baseline(data)
    if not totals.get(base):
        return None
    of_base = {
        value["part"]: value["cycles"] for value in data["cycles"] if value["design"] == base
    }
    values = [
        {
            "design": value["design"],
            "part": value["part"],
            "place": value["place"],
            "share": rounded((value["cycles"] - of_base.get(value["part"], 0)) / totals[base]),
            "cycles": round(value["cycles"] - of_base.get(value["part"], 0)),
        }
        for value in data["cycles"]
        if value["design"] != base
    ]
    large = {value["part"] for value in values if abs(value["share"]) >= _LEAST_PART}
    values = [value for value in values if value["part"] in large]
    if not values:
        return None
    parts = list(dict.fromkeys(value["part"] for value in values))
    designs = list(dict.fromkeys(value["design"] for value in values))
    title = f"difference, of all cycles of {base}"
    chart = (
        inline(values)
        .mark("bar")
        .encode(
            y=vl.Y("design:N", sort=None, title=None, axis=row_axis()),
            x=vl.X("share:Q", title=title, axis=_difference_axis("+.2~%", 5)),
            color=vl.named("part:N", unordered_colours(parts), legend=wide_legend(None, parts)),
            order=vl.Order("place:Q"),
            tooltip=[
                vl.Tooltip("design:N"),
                vl.Tooltip("part:N", title="goes to"),
                vl.Tooltip("share:Q", title=title, format="+.3%"),
                vl.Tooltip("cycles:Q", title="cycles", format="+,"),
            ],
        )
        .properties(width=_WIDTH, height=_ROW * len(designs))
    )
    return finished(chart)


def misses_panels(data: dict[str, Any]) -> Panels:
    """Misses by design on a logarithmic scale, for each TLB level in which designs differ."""
    found: Panels = {}
    for level, values in _by(data["misses"], "level").items():
        if not _all_same(value["rate"] for value in values):
            found[f"{level}: misses per 1000 {data['unit']}"] = _rates(values)
    return found


def same_misses(data: dict[str, Any]) -> list[str]:
    """A sentence for each TLB level where the designs that have it do not differ."""
    found, every = [], len(_by(data["misses"], "design"))
    for level, values in _by(data["misses"], "level").items():
        if _all_same(value["rate"] for value in values):
            names = [value["design"] for value in values]
            owners = "each design" if 1 < len(names) == every else ", ".join(names)
            rate = format_mpki(values[0]["rate"])
            found.append(f"{level}: {rate} misses per 1000 {data['unit']} in {owners}.")
    return found


def _all_same(rates: Iterable[float]) -> bool:
    every = list(rates)
    return max(every) <= min(every) * (1 + RESOLUTION)


def _rates(values: Values) -> vl.Chart:
    """A point with its value for each design, on a logarithmic scale; zero is at the left end."""
    least = min((value["rate"] for value in values if value["rate"]), default=1.0)
    most = max(value["rate"] for value in values)
    shown = [
        {**value, "at": value["rate"] or least / 3, "figure": f"{value['rate']:.3g}"}
        for value in values
    ]
    ends = (least / 3, max(most * 2, least * 10))
    scale = vl.Scale(type="log", domain=list(ends), nice=False)
    axis = vl.Axis(format="~g", values=log_ticks(*ends), labelOverlap="greedy", labelSeparation=12)
    x = vl.X("at:Q", title=None, scale=scale, axis=axis)
    y = vl.Y("design:N", sort=None, title=None, axis=row_axis())
    tooltip = [vl.Tooltip("design:N"), vl.Tooltip("misses:Q", format=",")]
    points = vl.Chart().mark("point", filled=True, size=70, opacity=1, color=_LESS)
    points = points.encode(x=x, y=y, tooltip=tooltip)
    names = vl.Chart().mark("text", dy=-10, fontSize=11).encode(x=x, y=y, text=vl.Field("figure:N"))
    chart = vl.layer(points, names.properties(name="ink"), data={"values": shown})
    return chart.properties(width=_PANEL_WIDTH, height=_ROW * len(values))


def panels_figure(panels: Panels) -> Spec:
    """A figure of several panels, each under its name."""
    charts = [_unnamed(panel).properties(title=name) for name, panel in panels.items()]
    return finished(vl.concat(charts, columns=2, spacing=24))


def _unnamed(panel: vl.Chart) -> vl.Chart:
    """The panel without names of layers, as layers of several panels may not share a name."""
    layers = [
        {key: value for key, value in one.items() if key != "name"} for one in panel.spec["layer"]
    ]
    return vl.Chart(**{**panel.spec, "layer": layers})


def series_charts(data: dict[str, Any]) -> dict[str, tuple[str, Spec]]:
    """Charts over time with a line for each design: title and figure, by name."""
    return {
        f"series-{number}": (what, _series(what, values, data["designs"]))
        for number, (what, values) in enumerate(_by(data["series"], "what").items())
        if any(value["value"] for value in values)
    }


def _series(what: str, values: Values, designs: Sequence[str]) -> Spec:
    most = max(value["value"] for value in values)
    # A logarithmic axis has no zero, and tiny values at the start should not take all room.
    least = max(min(value["value"] for value in values if value["value"]), most / 10_000)
    lines: dict[tuple[float, ...], Values] = {}
    for of_design in _by(values, "design").values():
        lines.setdefault(tuple(value["value"] for value in of_design), []).append(of_design[0])
    names = {
        first["design"]: _together([one["design"] for one in same])
        for same in lines.values()
        for first in same[:1]
    }
    drawn = [
        {**value, "design": names[value["design"]], "drawn": max(value["value"], least)}
        for value in values
        if value["design"] in names
    ]
    place = unordered_colours(designs)
    colours = {name: place[first] for first, name in names.items()}
    x = vl.X(
        "at:Q",
        title="instructions",
        axis=vl.Axis(
            format="~s", grid=False, tickCount=5, labelOverlap="greedy", labelSeparation=8
        ),
    )
    y = vl.Y(
        "drawn:Q",
        title=what,
        scale=vl.Scale(type="log", nice=False),
        axis=vl.Axis(format="~g", values=log_ticks(least, most)),
    )
    tooltip = [
        vl.Tooltip("design:N"),
        vl.Tooltip("at:Q", title="from instruction", format=","),
        vl.Tooltip("value:Q", title=what, format=".4~g"),
    ]
    placed = with_labels(drawn, "design", "at", "drawn", height=_HEIGHT)
    chart = labelled_lines(placed, x, y, "design", colours, tooltip, interpolate="step-after")
    padding = label_room(colours)
    return finished(chart.properties(width=_WIDTH, height=_HEIGHT, padding=padding))


def _together(designs: Sequence[str]) -> str:
    """The name of a line that several designs share."""
    named = ", ".join(designs)
    return (
        named if len(designs) == 1 or len(named) <= LONGEST else f"{designs[0]} +{len(designs) - 1}"
    )


def _cycles(data: dict[str, Any]) -> Totals:
    totals: Totals = {}
    for value in data["cycles"]:
        totals[value["design"]] = totals.get(value["design"], 0) + value["cycles"]
    return totals


def _memory(data: dict[str, Any]) -> Totals:
    """Memory of the designs that ran to their end; only these have cycles or misses."""
    ran = {value["design"] for key in ("cycles", "misses") for value in data[key]}
    totals: Totals = {}
    for value in data["memory"]:
        if value["design"] in ran and value["what"] in (_RESIDENT, _TABLES):
            totals[value["design"]] = totals.get(value["design"], 0) + value["bytes"]
    return totals


def _signed(share: float) -> str:
    """A difference with the minus sign of the axes; zero is 0.0% without a sign."""
    figure = f"{share:+.1%}".replace("-", "\u2212")
    return figure[1:] if figure[1:] == "0.0%" else figure


def _by(values: Values, field: str) -> dict[str, Values]:
    groups: dict[str, Values] = {}
    for value in values:
        groups.setdefault(value[field], []).append(value)
    return groups
