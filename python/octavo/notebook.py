"""Results in a notebook: the conclusion of a result, its tables, and a figure, as HTML that loads
no other files. `octavo.base.table.Shown` calls it.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from functools import singledispatch
from html import escape
from typing import Any

from octavo.analysis.view import machine_grid, page_size_grid
from octavo.base.table import Grid, Shown, Tabular, beginning, cell_text
from octavo.base.text import html_with_code, printable
from octavo.hardware.machines import Machine
from octavo.report import vegalite as vl
from octavo.report.curves import curves_figures
from octavo.report.curves_data import report_data as curves_data
from octavo.report.figures import svg_of
from octavo.report.run import run_charts
from octavo.report.sim import sim_figures
from octavo.report.sim_data import report_data as sim_data
from octavo.report.theme import Spec, finished, inline, row_axis, unordered_colours, wide_legend
from octavo.runs.result import RunResult
from octavo.simulation.api import SimResult
from octavo.simulation.view import grids as sim_grids
from octavo.sweeps.results import SweepResult
from octavo.tlb_curves.api import CurvesResult
from octavo.tlb_curves.view import STREAM_NAMES
from octavo.tlb_curves.view import grids as curves_grids
from octavo.traces.survey import TraceInfo
from octavo.tracing.manifest import Finished, cautions, warnings
from octavo.tracing.recording import RecordedTrace
from octavo.verification.outcome import Outcome
from octavo.verification.view import settings_grid

_ROWS = 20
"""Limit of rows of a table."""
_POINTS = 60
"""Limit of simulations in the figure of a sweep."""
_NUMBER = ' style="text-align:right"'
_BEST = ' style="text-align:right;font-weight:bold"'


def html_of(result: Shown) -> str:
    """The result as one HTML element."""
    parts = [f"<p><b>{_text(type(result).__name__)}</b> {_text(result.headline())}</p>"]
    if isinstance(result, Finished):
        limits = (*cautions(result.manifest), *warnings(result.manifest))
        parts += [f"<p><b>{_sentences(limit)}</b></p>" for limit in limits]
    if result.conclusion():
        parts.append(f"<p>{_sentences(result.conclusion())}</p>")
    parts += [_table(grid) for grid in tables_of(result) if grid.rows]
    figure = figure_of(result)
    if figure is not None:
        parts.append(_image(svg_of(figure), f"Figure of {result.headline()}"))
    return f"<div>{''.join(parts)}</div>"


@singledispatch
def tables_of(result: Shown) -> Iterator[Grid]:
    """The tables to show of a result: by default the first rows of its table."""
    if isinstance(result, Tabular):
        yield beginning(result.table())


@tables_of.register
def _(result: RunResult) -> Iterator[Grid]:
    modelled = machine_grid(result.rows, result.manifest)
    yield page_size_grid(result.rows, 1) if modelled is None else modelled


@tables_of.register
def _(result: CurvesResult) -> Iterator[Grid]:
    grids = list(curves_grids(result))
    yield next((grid for grid in grids if grid.title.startswith(STREAM_NAMES["data"])), grids[0])


@tables_of.register
def _(result: SweepResult) -> Iterator[Grid]:
    yield beginning(result.table().drop_columns(["key", "is_bound"]))


@tables_of.register
def _(result: SimResult) -> Iterator[Grid]:
    yield next(sim_grids(result))


@tables_of.register
def _(result: Outcome) -> Iterator[Grid]:
    yield settings_grid(result)


@tables_of.register
def _(result: RecordedTrace) -> Iterator[Grid]:
    facts = result.document()
    yield _facts({name: facts[name] for name in facts if name not in ("schema", "about")})


@tables_of.register
def _(result: TraceInfo) -> Iterator[Grid]:
    head = ("stream", "pid", "program", "instructions", "references", "threads")
    rows = (tuple(cell_text(process[name]) for name in head) for process in result.processes)
    yield Grid("Processes", head, tuple(rows), left_columns=3)


@tables_of.register
def _(result: Machine) -> Iterator[Grid]:
    for part in ("core", "tlb", "cache", "memory"):
        if isinstance(result.get(part), dict):
            yield _facts(dict(_leaves(result[part])), part)


def _leaves(table: dict[str, Any], within: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{within}{name}.")
        elif value is not None and not isinstance(value, list):
            yield within + name, value


def _facts(facts: dict[str, Any], title: str = "") -> Grid:
    return Grid(title, ("", ""), tuple((name, cell_text(value)) for name, value in facts.items()))


@singledispatch
def figure_of(result: Shown) -> Spec | None:
    """The figure to show of a result; None for a result without one."""
    return None


@figure_of.register
def _(result: RunResult) -> Spec | None:
    return run_charts(result.document())["misses"]


@figure_of.register
def _(result: CurvesResult) -> Spec | None:
    figures = curves_figures(curves_data(result))
    wanted = ("needed-data", "misses-data")
    return next((figures[name] for name in (*wanted, *figures) if name in figures), None)


@figure_of.register
def _(result: SimResult) -> Spec | None:
    return next(iter(sim_figures(sim_data(result)).values()), None)


@figure_of.register
def _(result: Outcome) -> Spec | None:
    values = [
        {"setting": one.name, **{end: getattr(one.gain, end) for end in ("low", "median", "high")}}
        for one in result.summaries
        if one.gain is not None
    ]
    if not values:
        return None
    base = vl.Chart().encode(y=vl.Y("setting:N", sort=None, title=None, axis=row_axis()))
    title, percent = "time saved", vl.Axis(format="+.1~%", tickCount=5)
    interval = base.mark("rule", strokeWidth=3, opacity=0.4).encode(
        x=vl.X("low:Q", title=title, axis=percent), x2={"field": "high"}
    )
    points = base.mark("point", filled=True, size=70, opacity=1)
    chart = vl.layer(
        interval, points.encode(x=vl.X("median:Q", title=title)), data={"values": values}
    )
    return finished(chart.properties(width=420, height=30 * len(values)))


@figure_of.register
def _(result: SweepResult) -> Spec | None:
    """The share of translation in cycles by design, in a row for each combination of other labels;
    page walks where the streams have no instructions.
    """
    rows = result.table().to_pylist()
    metrics = {"translation_share": "translation, share of cycles", "walks": "page walks"}
    metric = next((name for name in metrics if any(row[name] for row in rows)), None)
    if metric is None:
        return None
    labels = ("trace", "machine", "seed", *result.plan.settings)
    varied = [name for name in labels if len({row[name] for row in rows}) > 1] or ["trace"]
    values = [
        {
            "of": ", ".join(cell_text(row[name]) for name in varied),
            "design": row["design"],
            "value": row[metric],
        }
        for row in rows[:_POINTS]
        if row[metric] is not None
    ]
    colours = unordered_colours(dict.fromkeys(value["design"] for value in values))
    axis = vl.Axis(format=".2~%" if metric == "translation_share" else "~s", tickCount=5)
    chart = (
        inline(values)
        .mark("point", filled=True, size=70, opacity=0.85)
        .encode(
            x=vl.X("value:Q", title=metrics[metric], axis=axis),
            y=vl.Y("of:N", sort=None, title=None, axis=row_axis(grid=True)),
            color=vl.named("design:N", colours, legend=wide_legend(None)),
        )
    )
    count = len({value["of"] for value in values})
    return finished(chart.properties(width=420, height=26 * count))


def _image(svg: str, text: str) -> str:
    """The figure as an image element, so that identifiers of several figures cannot clash."""
    data = base64.b64encode(svg.encode()).decode()
    return (
        f'<img src="data:image/svg+xml;base64,{data}" alt="{_text(text)}" style="max-width:100%"/>'
    )


def _table(grid: Grid) -> str:
    left = range(grid.left_columns)
    head = "".join(
        f"<th{'' if at in left else _NUMBER}>{_lines(name)}</th>"
        for at, name in enumerate(grid.head)
    )
    rows = "".join(
        f"<tr>{''.join(_cell(grid, row, at) for at in range(len(grid.head)))}</tr>"
        for row in range(min(len(grid.rows), _ROWS))
    )
    more = len(grid.rows) - _ROWS
    rest = f"<p>and {more} more rows</p>" if more > 0 else ""
    caption = f"<caption>{_text(grid.title)}</caption>" if grid.title else ""
    names = f"<thead><tr>{head}</tr></thead>" if any(grid.head) else ""
    return f"<table>{caption}{names}<tbody>{rows}</tbody></table>{rest}"


def _cell(grid: Grid, row: int, at: int) -> str:
    style = _BEST if (row, at) in grid.best else "" if at < grid.left_columns else _NUMBER
    return f"<td{style}>{_text(grid.rows[row][at])}</td>"


def _lines(text: str) -> str:
    return "<br>".join(map(_text, text.split("\n")))


def _text(text: str) -> str:
    return escape(printable(text))


def _sentences(text: str) -> str:
    return html_with_code(printable(text))
