"""The report of a simulation: the page, and the figures for a paper."""

from __future__ import annotations

from typing import Any

from octavo.report.look import Spec
from octavo.report.page import render_page
from octavo.report.sim_charts import cycles_chart, memory_chart, misses_chart, series_charts


def render_sim(data: dict[str, Any]) -> str:
    """The page for the data of a report (`octavo.report.sim_data`)."""
    charts = sim_figures(data)
    told = ("headline", "answer", "remarks", "grids", "unit", "lived")
    return render_page(
        "sim.html.jinja",
        data["run"],
        charts,
        shown=list(charts),
        series=[name for name in charts if name.startswith("series")],
        **{name: data[name] for name in told},
    )


def sim_figures(data: dict[str, Any]) -> dict[str, Spec]:
    """Every figure, by the name of its file."""
    figures: dict[str, Spec] = {}
    if data["misses"]:
        figures["misses"] = misses_chart(data)
    if data["cycles"]:
        figures["cycles"] = cycles_chart(data)
    figures["memory"] = memory_chart(data)
    return {**figures, **series_charts(data)}
