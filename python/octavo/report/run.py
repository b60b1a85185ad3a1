"""The report of a run."""

from dataclasses import replace
from typing import Any

from octavo.analysis.allocations import line_grid, page_size_shown, site_grid
from octavo.analysis.programs import process_names, rows_by_program
from octavo.analysis.view import (
    ANSWER_LINES,
    headline,
    machine_grid,
    notable_regions,
    one_of_each_family,
    page_size_grid,
    process_grid,
    region_grid,
    thread_grid,
    tlb_name,
)
from octavo.base.table import Grid
from octavo.report.charts import gains_chart, map_chart, memory_chart, misses_chart
from octavo.report.page import render_page
from octavo.report.theme import Spec

_RATES = slice(4, 6)
"""The columns of misses in `region_grid`."""
_COLD = ("", "<0.001")


def render_run(document: dict[str, Any]) -> str:
    """The page for the document of a run, which `--json` writes."""
    manifest, rows, advice = document["run"], document["rows"], document["advice"]
    answer, *items = advice
    depth = _depth(document)
    charts = run_charts(document)
    programs = document.get("programs", [])
    regions = region_grid(rows, advice, depth, manifest["processes"], programs)
    warm = _warm(regions)
    allocations, size = document.get("allocations"), page_size_shown(advice)
    return render_page(
        "run.html.jinja",
        manifest,
        charts,
        headline=headline(manifest, rows),
        advised=answer,
        lines=ANSWER_LINES,
        tlb=" and a ".join(tlb_name(rows, level) for level in range(1, depth + 1)),
        machine=(manifest["configuration"].get("modelled") or {}).get("name"),
        shown=list(charts),
        whole=[item for item in items if item["scope"] == "program"],
        regions=one_of_each_family(notable_regions(items)),
        grids=[
            *filter(None, [machine_grid(rows, manifest)]),
            *(page_size_grid(rows, level) for level in range(1, depth + 1)),
        ],
        region_grid=warm,
        colder=len(regions.rows) - len(warm.rows),
        allocation_grids=[]
        if allocations is None
        else [site_grid(allocations, size), line_grid(allocations, size)],
        process_grid=process_grid(rows, manifest, depth, programs),
        thread_grid=thread_grid(answer),
    )


def run_charts(document: dict[str, Any]) -> dict[str, Spec]:
    """The figures, by name."""
    rows, advice, depth = document["rows"], document["advice"], _depth(document)
    advised = {item["stream"]: item["page_size"] for item in advice if item["scope"] == "program"}
    programs = document.get("programs", [])
    processes = process_names(document["run"]["processes"], programs)
    charts = {
        "gains": gains_chart(advice, processes),
        "misses": misses_chart(rows, depth, advised),
        "memory": memory_chart(rows, advised),
        "map": map_chart(
            rows_by_program(rows, programs),
            advice,
            depth,
            processes,
        ),
    }
    return {name: chart for name, chart in charts.items() if chart is not None}


def _warm(grid: Grid) -> Grid:
    """The regions without those that hardly ever miss; all regions where none would be left."""
    rows = tuple(row for row in grid.rows if not set(row[_RATES]) <= set(_COLD))
    return replace(grid, rows=rows or grid.rows)


def _depth(document: dict[str, Any]) -> int:
    return len(document["run"]["configuration"]["machine"]["levels"])
