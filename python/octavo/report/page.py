"""Puts figures, tables and advice into the page; the libraries for the figures go in whole."""

import json
import shlex
from functools import cache
from typing import Any

import vl_convert
from jinja2 import Environment, PackageLoader, StrictUndefined, Template

from octavo.report.charts import memory_chart, misses_chart, region_charts
from octavo.view import headline, notable_regions, page_size_grid, process_grid, region_grid

_EXPORT = "window.vegaEmbed = vegaEmbed;"
_TEMPLATE = "page.html.jinja"


def render(document: dict[str, Any]) -> str:
    """The page for a run's document (what `--json` writes)."""
    manifest, rows, advice = document["run"], document["rows"], document["advice"]
    answer, *items = advice
    depth = len(manifest["configuration"]["machine"]["levels"])
    charts = _charts(rows, items, depth)
    grids = [page_size_grid(rows, level) for level in range(1, depth + 1)]
    page: str = _template().render(
        manifest=manifest,
        command=shlex.join(manifest["command"]),
        headline=headline(manifest, rows),
        answer=answer["text"],
        whole=[item for item in items if item["scope"] == "program"],
        regions=notable_regions(items),
        grids=grids,
        region_grid=region_grid(rows, advice, depth),
        process_grid=process_grid(rows, manifest, depth),
        facts=_facts(manifest),
        has_region_charts="regions" in charts,
        charts=_for_script(charts),
        bundle=_bundle(),
    )
    return page


def _charts(rows: list[Any], items: list[dict[str, Any]], depth: int) -> dict[str, Any]:
    """Vega-Lite specifications by the identifier of their place in the page."""
    advised = {item["stream"]: item["page_size"] for item in items if item["scope"] == "program"}
    charts: dict[str, Any] = {}
    for stream in ("fetch", "data"):
        charts[f"misses-{stream}"] = misses_chart(rows, stream, depth, advised.get(stream))
        charts[f"memory-{stream}"] = memory_chart(rows, stream, advised.get(stream))
    regions = region_charts(rows, depth)
    if regions is not None:
        charts["regions"] = regions
    return charts


def _facts(manifest: dict[str, Any]) -> list[tuple[str, str]]:
    """The manifest, flattened to names and values."""
    facts: list[tuple[str, str]] = []

    def visit(name: str, value: Any) -> None:
        if isinstance(value, dict):
            for key, inner in value.items():
                visit(f"{name}.{key}" if name else key, inner)
        elif value is not None:
            facts.append((name, value if isinstance(value, str) else json.dumps(value)))

    hidden = ("notes", "processes")
    visit("", {key: value for key, value in manifest.items() if key not in hidden})
    return facts


def _for_script(value: Any) -> str:
    """JSON that may stand inside a script element: no text can close it."""
    return json.dumps(value, separators=(",", ":")).replace("<", "\\u003c")


@cache
def _bundle() -> str:
    """Vega, Vega-Lite and Vega-Embed in one script."""
    return vl_convert.javascript_bundle(_EXPORT).replace("</script", "<\\/script")


@cache
def _template() -> Template:
    environment = Environment(
        loader=PackageLoader("octavo.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(_TEMPLATE)
