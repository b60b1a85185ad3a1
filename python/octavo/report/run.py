"""The report of a run."""

from typing import Any

from octavo.analysis.programs import rows_by_program
from octavo.analysis.view import (
    headline,
    machine_grid,
    notable_regions,
    one_of_each_family,
    page_size_grid,
    process_grid,
    region_grid,
)
from octavo.report.charts import memory_chart, misses_chart, region_charts, tradeoff_chart
from octavo.report.page import render_page
from octavo.report.theme import Spec


def render_run(document: dict[str, Any]) -> str:
    """The page for a run's document (what `--json` writes)."""
    manifest, rows, advice = document["run"], document["rows"], document["advice"]
    answer, *items = advice
    depth = _depth(document)
    charts = run_charts(document)
    programs = document.get("programs", [])
    return render_page(
        "run.html.jinja",
        manifest,
        charts,
        headline=headline(manifest, rows),
        answer=answer,
        whole=[item for item in items if item["scope"] == "program"],
        regions=one_of_each_family(notable_regions(items)),
        grids=[
            *filter(None, [machine_grid(rows, manifest)]),
            *(page_size_grid(rows, level) for level in range(1, depth + 1)),
        ],
        region_grid=region_grid(rows, advice, depth, programs),
        process_grid=process_grid(rows, manifest, depth, programs),
        has_region_charts="regions" in charts,
    )


def run_charts(document: dict[str, Any]) -> dict[str, Spec]:
    """The figures, by name."""
    rows, items, depth = document["rows"], document["advice"][1:], _depth(document)
    advised = {item["stream"]: item["page_size"] for item in items if item["scope"] == "program"}
    charts: dict[str, Spec] = {}
    for stream in ("fetch", "data"):
        charts[f"tradeoff-{stream}"] = tradeoff_chart(rows, stream, depth, advised.get(stream))
        charts[f"misses-{stream}"] = misses_chart(rows, stream, depth, advised.get(stream))
        charts[f"memory-{stream}"] = memory_chart(rows, stream, advised.get(stream))
    regions = region_charts(rows_by_program(rows, document.get("programs", [])), depth)
    if regions is not None:
        charts["regions"] = regions
    return charts


def _depth(document: dict[str, Any]) -> int:
    return len(document["run"]["configuration"]["machine"]["levels"])
