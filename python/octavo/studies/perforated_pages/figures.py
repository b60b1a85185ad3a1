"""The figures of the study of perforated pages, drawn: 7 to 11 of the paper."""

from __future__ import annotations

from collections.abc import Sequence

from octavo.report import vegalite as vl
from octavo.report.theme import (
    MARKS,
    Spec,
    Values,
    finished,
    inline,
    ordered_colours,
    unordered_colours,
)
from octavo.studies.figures import lines
from octavo.studies.perforated_pages import Study
from octavo.studies.perforated_pages.measurement import BASELINE, KINDS, PERFORATED
from octavo.studies.perforated_pages.memory import LAYOUTS, Fragments
from octavo.studies.perforated_pages.programs import FRACTIONS as PROGRAM_FRACTIONS
from octavo.studies.perforated_pages.programs import ProgramMeasurement
from octavo.studies.perforated_pages.random_accesses import FRACTIONS, GTSM, IDEAL, PORTIONS

_WIDTH, _HEIGHT = 300, 230
_SMALL_WIDTH, _SMALL_HEIGHT = 190, 150
_COLUMNS = 3
"""Panels of programs in a row."""
_BASELINE_NAME = "2 MiB + 4 KiB"
_BASELINE_COLOUR = "#333333"


def figures_of(study: Study) -> dict[str, Spec]:
    """Every figure that has measurements, by the name of its file."""
    figures: dict[str, Spec] = {}
    if study.grid:
        figures["figure-7"] = _grid(study)
        if contents := _contents(study):
            figures["figure-8"] = contents
    for figure, is_virtual in (("figure-9", False), ("figure-11", True)):
        shown = [m for m in study.programs if m.is_virtual == is_virtual and m.rows]
        if shown:
            figures[figure] = _nested_programs(shown) if is_virtual else _programs(shown)
    if study.faults:
        figures["figure-10"] = _faults(study)
    return figures


def _grid(study: Study) -> Spec:
    """Figure 7: a panel for each layout and kind of holes, a curve for each fraction."""
    panels = []
    for is_allocated in (True, False):
        for layout in LAYOUTS:
            values: Values = []
            for fraction in FRACTIONS:
                for portion in PORTIONS:
                    at = Fragments(portion, fraction, layout)
                    row = study.at(at, is_allocated=is_allocated)
                    if row is None:
                        continue
                    designs = [(PERFORATED, f"{fraction:.0%}")]
                    # The baseline is drawn once, for one fraction. Allocated holes do not change
                    # it; the more holes are unallocated, the fewer pages it has.
                    if fraction == FRACTIONS[1]:
                        designs.append((row.baseline, _BASELINE_NAME))
                    for design, name in designs:
                        value = row.relative(design)
                        if value is not None:
                            values.append({"of": name, "portion": portion, "value": value})
            kind = "allocated" if is_allocated else "unallocated"
            names = [f"{fraction:.0%}" for fraction in FRACTIONS]
            if values:
                panel = _curves(values, names, "IPC, over 4 KiB pages", (_WIDTH, _HEIGHT))
                panels.append(panel.properties(title=f"holes {kind}, {layout}"))
    return finished(vl.concat(panels, columns=2).resolve_scale(y="shared"))


def _faults(study: Study) -> Spec:
    """Figure 10: a curve for each design over the share of dispersed faults."""
    names = {BASELINE: _BASELINE_NAME, GTSM: "GTSM", PERFORATED: "perforated", IDEAL: "ideal 2 MiB"}
    values: Values = []
    for row in study.faults:
        if row.faults.layout == "dispersed":
            for design, name in names.items():
                value = row.relative(design)
                if value is not None:
                    values.append({"of": name, "portion": row.faults.portion, "value": value})
    title = "IPC, over 4 KiB pages"
    return finished(_curves(values, list(names.values())[1:], title, (_WIDTH, _HEIGHT)))


def _curves(
    values: Values,
    names: Sequence[str],
    title: str,
    size: tuple[int, int],
    *,
    has_baseline: bool = True,
) -> vl.Chart:
    """A curve for each of `names` over the portion; with `has_baseline`, a black one for the
    baseline.
    """
    width, height = size
    colours = ordered_colours(names)
    if has_baseline:
        colours = {_BASELINE_NAME: _BASELINE_COLOUR, **colours}
    marks = [MARKS[number % len(MARKS)] for number in range(len(colours))]
    x = vl.X("portion:Q", title="portion", axis=vl.Axis(format=".0%", tickCount=5))
    y = vl.Y("value:Q", title=title, scale=vl.Scale(zero=False))
    legend_title = None if has_baseline else ["perforated;", f"dashed: {_BASELINE_NAME}"]
    legend = vl.Legend(title=legend_title, orient="right")
    chart = lines(values, x, y, "of", colours, marks, legend, point=40)
    return chart.properties(width=width, height=height)


def _contents(study: Study) -> Spec | None:
    """Figure 8: entries of the second-level TLB by kind, over the portion."""
    panels = []
    for panel in study.contents():
        values: Values = [
            {"portion": portion, "kind": kind, "value": one.content[kind] / every}
            for portion, one in panel.held
            for every in [sum(one.content.values())]
            for kind in KINDS
        ]
        if values:
            chart = (
                inline(values)
                .mark("area")
                .encode(
                    x=vl.X("portion:Q", title="portion", axis=vl.Axis(format=".0%")),
                    y=vl.Y("value:Q", title="of entries", axis=vl.Axis(format=".0%")),
                    color=vl.named(
                        "kind:N",
                        unordered_colours(KINDS),
                        legend=vl.Legend(title=None, orient="right"),
                    ),
                )
                .properties(
                    width=_WIDTH,
                    height=_SMALL_HEIGHT,
                    title=panel.title,
                )
            )
            panels.append(chart)
    return finished(vl.concat(panels, columns=2)) if panels else None


def _kind_of_holes(fraction: float, layout: str) -> str:
    return f"{fraction:.0%} {layout}"


_KINDS_OF_HOLES = [
    _kind_of_holes(fraction, layout) for layout in LAYOUTS for fraction in PROGRAM_FRACTIONS
]


def _points(measured: ProgramMeasurement, design: str) -> Values:
    """The curves of one design over the portion; each begins at the gain of large pages in
    unfragmented memory.
    """
    ideal = measured.large_gain
    values: Values = []
    if ideal is not None:
        values += [{"of": kind, "portion": 0.0, "value": 1 + ideal} for kind in _KINDS_OF_HOLES]
    for row in measured.rows:
        at, value = row.fragments, row.relative(design)
        if value is not None:
            kind = _kind_of_holes(at.fraction, at.layout)
            values.append({"of": kind, "portion": at.portion, "value": value})
    return values


def _programs(shown: Sequence[ProgramMeasurement]) -> Spec:
    """Figure 9: a panel for each program, a curve for each fraction and layout."""
    names = _KINDS_OF_HOLES
    panels = []
    first = _kind_of_holes(PROGRAM_FRACTIONS[0], LAYOUTS[0])
    for measured in shown:
        baseline = [
            {**point, "of": _BASELINE_NAME}
            for point in _points(measured, BASELINE)
            if point["of"] == first
        ]
        values = [*_points(measured, PERFORATED), *baseline]
        panel = _curves(values, names, "IPC, over 4 KiB", (_SMALL_WIDTH, _SMALL_HEIGHT))
        panels.append(panel.properties(title=measured.program))
    return finished(vl.concat(panels, columns=_COLUMNS).resolve_scale(y="independent"))


def _nested_programs(shown: Sequence[ProgramMeasurement]) -> Spec:
    """Figure 11: like Figure 9, with a curve of 2 MiB and 4 KiB pages for each fraction and layout:
    the part of a guest's memory that has large pages of the host differs between memories for this
    baseline, too.
    """
    panels = []
    for measured in shown:
        values = [
            {**point, "pages": pages}
            for pages, design in ((PERFORATED, PERFORATED), (_BASELINE_NAME, BASELINE))
            for point in _points(measured, design)
        ]
        title, size = "IPC, over 4 KiB", (_SMALL_WIDTH, _SMALL_HEIGHT)
        panel = _curves(values, _KINDS_OF_HOLES, title, size, has_baseline=False).encode(
            strokeDash=vl.StrokeDash(
                "pages:N",
                sort=None,
                scale=vl.Scale(domain=[PERFORATED, _BASELINE_NAME], range=[[1, 0], [4, 3]]),
                # The legend would show points, not dashes.
                legend=None,
            )
        )
        panels.append(panel.properties(title=measured.program))
    return finished(vl.concat(panels, columns=_COLUMNS).resolve_scale(y="independent"))
