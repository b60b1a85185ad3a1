"""The figures of the study of Tailored Page Sizes, drawn: 8 to 11, 13 to 16 and 18."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from octavo.base.units import KIB
from octavo.report import vegalite as vl
from octavo.report.theme import Spec, Values, finished, unordered_colours
from octavo.studies.figures import bars, lines_by_size
from octavo.studies.tailored_page_sizes import Study
from octavo.studies.tailored_page_sizes.measurement import (
    BASE,
    BASELINE,
    RIVALS,
    TPS,
    Measurement,
    label,
)

_PROGRAM_WIDTH, _BARS_HEIGHT = 42, 220

_METRICS = {
    "figure-10": ("misses_gone", "L1 DTLB misses gone"),
    "figure-11": ("references_gone", "walk references gone"),
    "figure-13": ("speedup", "speed-up"),
    "figure-14": ("speedup_smt", "speed-up"),
    "figure-16": ("misses_gone_fragmented", "L1 DTLB misses gone, fragmented"),
}
"""The metric of each chart of counting programs, and the title of its axis."""


def figures_of(study: Study) -> dict[str, Spec]:
    """Every figure that has values, by the name of its file."""
    figures: dict[str, Spec] = {}
    every, counting = study.measurements, study.counting
    if every:
        misses = [(m.program, m.metrics()["mpki"]) for m in every]
        title = "L1 DTLB misses per 1000 instr."
        figures["figure-8"] = _bars(misses, [BASE, BASELINE], title, "~g")
        growth = [(m.program, {"2 MiB alone": m.growth_2m}) for m in every]
        figures["figure-9"] = _bars(growth, ["2 MiB alone"], "growth of memory", ".0%")
    if counting:
        for figure, (metric, title) in _METRICS.items():
            by_program = [(m.program, m.metrics()[metric]) for m in counting]
            figures[figure] = _bars(by_program, (TPS, *RIVALS), title, ".0%")
        figures["figure-18"] = _page_counts(counting)
    figures["figure-15"] = _coverage(study)
    return dict(sorted(figures.items(), key=lambda item: int(item[0].removeprefix("figure-"))))


def _bars(
    by_program: Sequence[tuple[str, Mapping[str, float | None]]],
    designs: Sequence[str],
    title: str,
    format: str,
) -> Spec:
    """Bars of each design, by program; unknown values have no bar."""
    values: Values = [
        {"program": program, "design": label(name), "value": value}
        for program, by_design in by_program
        for name in designs
        if (value := by_design.get(name)) is not None
    ]
    chart = bars(
        values,
        title,
        "design",
        unordered_colours(map(label, designs)),
        programs=max(len(by_program), 4),
        size=(_PROGRAM_WIDTH, _BARS_HEIGHT),
        format=format,
    )
    return finished(chart)


def _page_counts(measured: Sequence[Measurement]) -> Spec:
    """Figure 18: a line for each program, both axes logarithmic."""
    values: Values = [
        {"of": m.program, "size": size, "value": number}
        for m in measured
        if TPS in m.designs
        for size, number in m.designs[TPS].pages.items()
    ]
    y = vl.Y("value:Q", title="pages", scale=vl.Scale(type="log", nice=False, padding=8))
    return _lines(values, [m.program for m in measured], y)


def _coverage(study: Study) -> Spec:
    """Figure 15: the share of free memory that each page size could use."""
    values: Values = [
        {"of": coverage.memory, "size": size, "value": share}
        for coverage in study.memory
        for size, share in coverage.shares.items()
        if share is not None
    ]
    y = vl.Y("value:Q", title="of free memory", axis=vl.Axis(format=".0%"))
    return _lines(values, [coverage.memory for coverage in study.memory], y)


def _lines(values: Values, names: Sequence[str], y: vl.Y) -> Spec:
    """A line for each of `names` over the page size."""
    sizes = sorted({int(value["size"]) for value in values})
    ticks = [size for size in sizes if (size // (4 * KIB)).bit_length() % 2]
    return lines_by_size(values, "of", names, ticks, y, height=300)
