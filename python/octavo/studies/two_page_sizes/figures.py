"""The figures of the study of two page sizes: Figures 4.1, 4.2, 5.1 and 5.2 of the paper."""

from __future__ import annotations

from collections.abc import Sequence

from octavo.base.units import MIB, format_bytes
from octavo.hardware.tlb_presets import pair_name
from octavo.report import vegalite as vl
from octavo.report.theme import PAIR_COLOURS, Spec, Values, finished, ordered_colours
from octavo.studies.figures import bars, lines_by_size
from octavo.studies.two_page_sizes import (
    FULL_ENTRIES,
    GROWN,
    LARGE,
    PAIRS,
    SHAPES,
    SHOWN,
    SIZES,
    SMALL,
    Measurement,
    Shape,
    Study,
)

_PROGRAM_WIDTH, _BARS_HEIGHT = 46, 200
_LARGE_PROGRAM_BYTES = MIB
"""Section 5: the least working set of a large program."""


def figures_of(study: Study) -> dict[str, Spec]:
    """Every figure, by the name of its file; empty where nothing was measured."""
    measured = study.measurements or study.today
    if not measured:
        return {}
    full = f"{FULL_ENTRIES} entries, fully associative"
    return {
        "figure-4.1": _over_page_size(measured),
        "figure-4.2": _working_sets(measured),
        "figure-5.1": _costs({full: [(m, m.full) for m in measured]}),
        "figure-5.2": _costs(
            {
                f"{sets * ways} entries, {ways}-way": [(m, m.sets[number]) for m in measured]
                for number, (sets, ways) in enumerate(SHAPES)
            }
        ),
    }


def _over_page_size(measured: Sequence[Measurement]) -> Spec:
    """Figure 4.1: normalised working sets, a line for each program, both axes logarithmic."""
    values: Values = [
        {"program": m.program, "size": size, "normalised": value}
        for m in measured
        for size, value in m.normalised.items()
    ]
    y = vl.Y(
        "normalised:Q",
        title="working set, over 4 KiB pages",
        scale=vl.Scale(type="log", base=2, nice=False, padding=8),
        axis=vl.Axis(format=".3~g", tickCount=6),
    )
    return lines_by_size(values, "program", [m.program for m in measured], SIZES, y, height=320)


def _working_sets(measured: Sequence[Measurement]) -> Spec:
    """Figure 4.2: normalised working sets of single sizes and of a pair, bars by program."""
    values: Values = [
        {"program": m.program, "pages": name, "value": value}
        for m in measured
        for name, value in (
            *((format_bytes(size), m.normalised[size]) for size in GROWN),
            (pair_name(SMALL, LARGE), m.normalised_pairs[LARGE]),
        )
    ]
    return finished(_bars(values, "working set, over 4 KiB pages", GROWN))


def _costs(by_tlb: dict[str, list[tuple[Measurement, Shape]]]) -> Spec:
    """Figures 5.1 and 5.2: CPI_TLB, bars by program; small programs above, large ones below.

    Each panel has a scale of its own, as programs with a large working set miss far more.
    """
    panels = []
    for large, which in ((False, "below 1 MiB"), (True, "of 1 MiB and more")):
        for tlb, shapes in by_tlb.items():
            values: Values = [
                {"program": m.program, "pages": name, "value": value}
                for m, shape in shapes
                if (m.working_set_bytes >= _LARGE_PROGRAM_BYTES) == large
                for name, value in (
                    *((format_bytes(size), shape.cpi[size]) for size in SHOWN),
                    (pair_name(SMALL, LARGE), shape.cpi_two_sizes),
                )
            ]
            if values:
                bars = _bars(values, "CPI_TLB (cycles per instruction)", SHOWN)
                panels.append(bars.properties(title=f"{tlb}; working set {which}"))
    figure = vl.vconcat(panels, spacing=20)
    return finished(figure.resolve_scale(x="independent", xOffset="independent"))


def _bars(values: Values, title: str, sizes: Sequence[int]) -> vl.Chart:
    names = [*map(format_bytes, sizes), pair_name(SMALL, LARGE)]
    known = ordered_colours(SIZES)
    colours = [*(known[size] for size in sizes), PAIR_COLOURS[PAIRS.index(LARGE)]]
    return bars(
        values,
        title,
        "pages",
        dict(zip(names, colours, strict=True)),
        programs=len(values) // len(names),
        size=(_PROGRAM_WIDTH, _BARS_HEIGHT),
    )
