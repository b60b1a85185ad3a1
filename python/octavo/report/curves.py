"""The report of curves: the page, and the figures for a paper."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from octavo.base.units import BASE_PAGE, KIB, MIB, format_bytes
from octavo.report.curves_charts import (
    cache_chart,
    costs_chart,
    misses_figure,
    misses_panels,
    needed_chart,
    needed_values,
    panel_values,
    sets_chart,
    sets_figure,
    working_set_chart,
    working_set_values,
)
from octavo.report.page import chosen, render_page
from octavo.report.theme import Spec, Values, finished

_FIRST = {"stream": "Data", "pages": "4 KiB", "index": "low"}
_FILE_NAMES = {"Code": "code", "Data": "data", "Both in one TLB": "both"}
_NAMED_SIZES = (BASE_PAGE, 64 * KIB, 2 * MIB)
"""The page sizes of the answer."""
_CHARTS: tuple[tuple[str, str, Callable[..., Spec], Callable[[Values], Values]], ...] = (
    ("needed", "needed", needed_chart, needed_values),
    ("working-sets", "working_sets", working_set_chart, working_set_values),
    ("cpi", "costs", costs_chart, list),
    ("caches", "caches", cache_chart, list),
)
"""For each figure: its name, the name of its data, and functions that make it and its records."""


def render_curves(data: dict[str, Any]) -> str:
    """The page for the data of a report (`octavo.report.curves_data`)."""
    charts: dict[str, Any] = {}
    for name, key, chart, records in _CHARTS:
        by_stream = data.get(key, {})
        if any(by_stream.values()):
            drawn = {stream: records(values) for stream, values in by_stream.items()}
            charts[name] = chosen(chart(data, []), drawn, ["stream"], _FIRST)
    panels = []
    if any(data["misses"].values()):
        every = [value for values in data["misses"].values() for value in values]
        base = data["sizes"][0][1]
        for number, (pages, panel) in enumerate(misses_panels(data, every).items()):
            by_stream = {
                stream: panel_values(values, pages, base)
                for stream, values in data["misses"].items()
            }
            panels.append((f"misses-{number}", pages))
            charts[f"misses-{number}"] = chosen(finished(panel), by_stream, ["stream"], _FIRST)
    if any(data["sets"].values()):
        selects = ["stream", "pages", "index"]
        charts["sets"] = chosen(sets_chart(data, []), data["sets"], selects, _FIRST)
    shown = ("headline", "has_instructions", "lived", "pairs", "grids")
    return render_page(
        "curves.html.jinja",
        data["run"],
        charts,
        answer=answer(data),
        shown=list(charts),
        misses=panels,
        **{name: data[name] for name in shown},
    )


def answer(data: dict[str, Any]) -> str:
    """A sentence with the entries that a TLB needs to miss once in 1000 instructions."""
    parts = []
    for stream, values in data.get("needed", {}).items():
        sizes = [size for size, _ in data["sizes"] if size in _NAMED_SIZES]
        entries = {value["size"]: value["entries"] for value in values if value["rate"] == 1}
        found = [
            f"{entries[size]:,} with {format_bytes(size)} pages"
            for size in sizes
            if size in entries
        ]
        # Code and data in one TLB are named only where there are no separate TLBs.
        if found and (stream in ("Code", "Data") or len(data["needed"]) == 1):
            parts.append(f"{stream.lower()} needs {', '.join(found)}")
    per = "1000 instructions" if data["has_instructions"] else "1000 references"
    if not parts:
        return ""
    return f"How many TLB entries? For at most one miss in {per}, {'; '.join(parts)}."


def curves_figures(data: dict[str, Any]) -> dict[str, Spec]:
    """Every figure for a paper, by the name of its file."""
    figures: dict[str, Spec] = {}
    for stream, values in data["misses"].items():
        suffix = _FILE_NAMES[stream]
        if values:
            figures[f"misses-{suffix}"] = misses_figure(data, values)
        for name, key, chart, records in _CHARTS:
            by_stream = data.get(key, {})
            if by_stream.get(stream):
                figures[f"{name}-{suffix}"] = chart(data, records(by_stream[stream]))
        for index, by_pages in _by_index(data["sets"][stream]).items():
            name = index.replace(":", "-")
            figures[f"sets-{suffix}-{name}"] = sets_figure(data, by_pages)
    return figures


def _by_index(sets: dict[str, dict[str, Values]]) -> dict[str, dict[str, Values]]:
    """The records of each index, by pages."""
    found: dict[str, dict[str, Values]] = {}
    for pages, by_index in sets.items():
        for index, values in by_index.items():
            found.setdefault(index, {})[pages] = values
    return found
