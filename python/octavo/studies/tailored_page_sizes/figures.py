"""The figures of the study of Tailored Page Sizes, drawn: 8 to 11, 13 to 16 and 18."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from octavo.base.units import KIB
from octavo.report import vegalite as vl
from octavo.report.theme import UNORDERED, Spec, Values, finished
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

_Of = Callable[[Measurement, str], float | None]


def figures_of(study: Study) -> dict[str, Spec]:
    """Every figure, by the name of its file; those without anything in them are left out."""
    figures: dict[str, Spec] = {}
    rivals = (TPS, *RIVALS)
    counting = study.counting
    if study.measurements:
        every = study.measurements
        figures["figure-8"] = _bars(
            every, [BASE, BASELINE], lambda m, name: m.mpki(name), "L1 DTLB misses per 1000 instr."
        )
        figures["figure-9"] = _bars(
            every, ["2 MiB alone"], lambda m, _: m.growth_2m, "growth of memory", "%"
        )
    if counting:
        figures["figure-10"] = _bars(
            counting, rivals, lambda m, name: m.misses_gone(name), "L1 DTLB misses gone", "%"
        )
        figures["figure-11"] = _bars(
            counting, rivals, lambda m, name: m.references_gone(name), "walk references gone", "%"
        )
        figures["figure-13"] = _bars(
            counting, rivals, lambda m, name: m.speedup(name), "speed-up", "%"
        )
        figures["figure-14"] = _bars(
            counting, rivals, lambda m, name: m.speedup(name, smt=True), "speed-up", "%"
        )
        figures["figure-16"] = _bars(
            counting,
            rivals,
            lambda m, name: m.misses_gone(name, fragmented=True),
            "L1 DTLB misses gone, fragmented",
            "%",
        )
        figures["figure-18"] = _page_counts(counting)
    figures["figure-15"] = _coverage(study)
    return dict(sorted(figures.items(), key=lambda of: int(of[0].removeprefix("figure-"))))


def _bars(
    measured: Sequence[Measurement], designs: Sequence[str], of: _Of, title: str, unit: str = ""
) -> Spec:
    """Bars of each design, by program; unknown values have none."""
    values: Values = [
        {"program": m.program, "design": label(name), "value": value}
        for m in measured
        for name in designs
        if (value := of(m, name)) is not None
    ]
    names = [label(name) for name in designs]
    chart = bars(
        values,
        title,
        "design",
        dict(zip(names, UNORDERED, strict=False)),
        programs=max(len(measured), 4),
        size=(_PROGRAM_WIDTH, _BARS_HEIGHT),
        format=".0%" if unit else "~g",
    )
    return finished(chart)


def _page_counts(measured: Sequence[Measurement]) -> Spec:
    """Figure 18: a line a program, both axes logarithmic."""
    values: Values = [
        {"of": m.program, "size": size, "value": number}
        for m in measured
        if TPS in m.designs
        for size, number in m.designs[TPS].pages.items()
    ]
    y = vl.Y("value:Q", title="pages", scale=vl.Scale(type="log", nice=False, padding=8))
    return _lines(values, [m.program for m in measured], y)


def _coverage(study: Study) -> Spec:
    """Figure 15: what each page size could use of what is free."""
    values: Values = [
        {"of": of.memory, "size": size, "value": share}
        for of in study.memory
        for size, share in of.shares.items()
        if share is not None
    ]
    y = vl.Y("value:Q", title="of free memory", axis=vl.Axis(format=".0%"))
    return _lines(values, [of.memory for of in study.memory], y)


def _lines(values: Values, names: Sequence[str], y: vl.Y) -> Spec:
    """A line of each, over the page size."""
    sizes = sorted({int(value["size"]) for value in values})
    ticks = [size for size in sizes if (size // (4 * KIB)).bit_length() % 2]
    return lines_by_size(values, "of", names, ticks, y, height=300)
