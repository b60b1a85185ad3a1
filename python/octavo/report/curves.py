"""The report of curves: the page, and the figures for a paper."""

from __future__ import annotations

from typing import Any

from octavo.report.curves_charts import (
    cache_chart,
    cost_chart,
    cost_figure,
    misses_chart,
    sets_chart,
    sets_figure,
    working_set_chart,
)
from octavo.report.page import chosen, render_page
from octavo.report.theme import Spec, Values

_FIRST = {"stream": "Data", "pages": "4 KiB", "index": "low"}
_FILE_NAMES = {"Code": "code", "Data": "data", "Both in one TLB": "both"}


def render_curves(data: dict[str, Any]) -> str:
    """The page for the data of a report (`octavo.report.curves_data`)."""
    charts: dict[str, Any] = {}
    for name, key, chart in (
        ("misses", "misses", misses_chart),
        ("working-sets", "working_sets", working_set_chart),
    ):
        if _any(data[key]):
            charts[name] = chosen(chart(data, []), data[key], ["stream"], _FIRST)
    tlbs = _by_tlb(data["costs"])
    costs = []
    for number, (tlb, by_stream) in enumerate(tlbs.items()):
        costs.append((f"cost-{number}", tlb))
        charts[f"cost-{number}"] = chosen(cost_chart(data, []), by_stream, ["stream"], _FIRST)
    if _any(data["sets"]):
        selects = ["stream", "pages", "index"]
        charts["sets"] = chosen(sets_chart(data, []), data["sets"], selects, _FIRST)
    if _any(data["caches"]):
        charts["caches"] = chosen(cache_chart(data, []), data["caches"], ["stream"], _FIRST)
    return render_page(
        "curves.html.jinja",
        data["run"],
        charts,
        shown=list(charts),
        costs=costs,
        **{name: data[name] for name in ("headline", "has_instructions", "lived", "pairs")},
        grids=data["grids"],
    )


def curves_figures(data: dict[str, Any]) -> dict[str, Spec]:
    """Every figure for a paper, by the name of its file."""
    figures: dict[str, Spec] = {}
    for stream, values in data["misses"].items():
        of = _FILE_NAMES[stream]
        if values:
            figures[f"misses-{of}"] = misses_chart(data, values)
        if data["costs"][stream]:
            figures[f"cpi-{of}"] = cost_figure(data, data["costs"][stream])
        if data["working_sets"][stream]:
            figures[f"working-sets-{of}"] = working_set_chart(data, data["working_sets"][stream])
        if data["caches"][stream]:
            figures[f"caches-{of}"] = cache_chart(data, data["caches"][stream])
        for index, by_pages in _by_index(data["sets"][stream]).items():
            name = index.replace(":", "-")
            figures[f"sets-{of}-{name}"] = sets_figure(data, by_pages)
    return figures


def _any(by_stream: dict[str, Any]) -> bool:
    return any(by_stream.values())


def _by_tlb(costs: dict[str, Values]) -> dict[str, dict[str, Values]]:
    """Each TLB's records, by stream."""
    found: dict[str, dict[str, Values]] = {}
    for stream, values in costs.items():
        for value in values:
            found.setdefault(value["tlb"], {}).setdefault(stream, []).append(value)
    return found


def _by_index(sets: dict[str, dict[str, Values]]) -> dict[str, dict[str, Values]]:
    """Each index's records, by pages."""
    found: dict[str, dict[str, Values]] = {}
    for pages, by_index in sets.items():
        for index, values in by_index.items():
            found.setdefault(index, {})[pages] = values
    return found
