"""The report of a simulation: the page, and the figures for a paper."""

from __future__ import annotations

from typing import Any

from octavo.report.page import render_page
from octavo.report.sim_charts import (
    Panels,
    baseline,
    difference_panels,
    misses_panels,
    panels_figure,
    parts_chart,
    same_misses,
    series_charts,
)
from octavo.report.theme import Spec, finished
from octavo.simulation.model import RESOLUTION


def render_sim(data: dict[str, Any]) -> str:
    """The page for the data of a report (`octavo.report.sim_data`)."""
    charts: dict[str, Spec] = {}

    def placed(prefix: str, panels: Panels) -> list[tuple[str, str]]:
        """Adds the panels to the charts; returns their places in the page and their names."""
        places = [(f"{prefix}-{number}", name) for number, name in enumerate(panels)]
        charts.update((place, finished(panels[name])) for place, name in places)
        return places

    differences = placed("difference", difference_panels(data))
    parts = parts_chart(data)
    if parts is not None:
        charts["parts"] = parts
    misses = placed("misses", misses_panels(data))
    series = series_charts(data)
    charts.update((place, chart) for place, (_, chart) in series.items())
    shown = ("headline", "answer", "remarks", "grids", "lived")
    return render_page(
        "sim.html.jinja",
        data["run"],
        charts,
        base=baseline(data),
        resolution=f"{RESOLUTION:.0%}",
        differences=differences,
        has_parts=parts is not None,
        misses=misses,
        same_misses=same_misses(data),
        series=[(place, name) for place, (name, _) in series.items()],
        **{name: data[name] for name in shown},
    )


def sim_figures(data: dict[str, Any]) -> dict[str, Spec]:
    """Every figure for a paper, by the name of its file."""
    figures: dict[str, Spec] = {}
    for name, panels in (("differences", difference_panels(data)), ("misses", misses_panels(data))):
        if panels:
            figures[name] = panels_figure(panels)
    parts = parts_chart(data)
    if parts is not None:
        figures["cycles"] = parts
    return {**figures, **{name: chart for name, (_, chart) in series_charts(data).items()}}
