"""The report of a simulation: the page, and the figures for a paper."""

from __future__ import annotations

from typing import Any

from octavo.report.page import render_page
from octavo.report.sim_charts import (
    Panels,
    cycles_chart,
    memory_panels,
    misses_panels,
    panel_chart,
    panels_figure,
    series_charts,
)
from octavo.report.theme import Spec


def render_sim(data: dict[str, Any]) -> str:
    """The page for the data of a report (`octavo.report.sim_data`)."""
    charts: dict[str, Spec] = {}

    def placed(what: str, panels: Panels) -> list[tuple[str, str]]:
        """The panels' places in the page, and their names."""
        places = [(f"{what}-{number}", name) for number, name in enumerate(panels)]
        charts.update((place, panel_chart(panels[name])) for place, name in places)
        return places

    misses = placed("misses", misses_panels(data))
    if data["cycles"]:
        charts["cycles"] = cycles_chart(data)
    memory = placed("memory", memory_panels(data))
    series = series_charts(data)
    charts.update(series)
    shown = ("headline", "answer", "remarks", "grids", "unit", "lived")
    return render_page(
        "sim.html.jinja",
        data["run"],
        charts,
        misses=misses,
        has_cycles="cycles" in charts,
        memory=memory,
        series=list(series),
        **{name: data[name] for name in shown},
    )


def sim_figures(data: dict[str, Any]) -> dict[str, Spec]:
    """Every figure for a paper, by the name of its file."""
    figures: dict[str, Spec] = {}
    if data["misses"]:
        figures["misses"] = panels_figure(misses_panels(data))
    if data["cycles"]:
        figures["cycles"] = cycles_chart(data)
    figures["memory"] = panels_figure(memory_panels(data))
    return {**figures, **series_charts(data)}
