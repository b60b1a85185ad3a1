"""The figure of the study of software-managed translation: Figure 8 of the paper."""

from __future__ import annotations

from collections.abc import Sequence

from octavo.base.units import KIB
from octavo.report import vegalite as vl
from octavo.report.theme import Spec, Values, finished, inline, unordered_colours, wide_legend
from octavo.studies.figures import LOG_2, bytes_axis
from octavo.studies.softvm import SOFTVM, Measurement, Study
from octavo.studies.softvm.sweep import L1_SIZES

_WIDTH, _HEIGHT = 300, 260
_WORST = 2
"""The paper shows "the two worst-performing benchmarks"."""


def figures_of(study: Study) -> dict[str, Spec]:
    """Every figure, by the name of its file; none where nothing was swept."""
    swept = [m for m in study.measurements or study.today if m.sweep]
    worst = sorted(swept, key=lambda m: m.cpi(SOFTVM), reverse=True)[:_WORST]
    return {"figure-8": _organisations(worst)} if worst else {}


def _organisations(measured: Sequence[Measurement]) -> Spec:
    """CPI over the size of L1, a line for each pair of line sizes."""
    pairs = sorted(
        {(caches.l1_line_bytes, caches.l2_line_bytes) for m in measured for caches, _ in m.sweep}
    )
    values: Values = [
        {
            "panel": f"{m.program}, L2 {caches.l2_bytes // KIB} KiB",
            "l1": caches.l1_bytes,
            "lines": _pair(caches.l1_line_bytes, caches.l2_line_bytes),
            "cpi": cpi,
        }
        for m in measured
        for caches, cpi in m.sweep
        if cpi > 0
    ]
    colours = unordered_colours(_pair(*pair) for pair in pairs)
    chart = (
        inline(values)
        .mark("line", strokeWidth=1.4, point={"size": 25, "filled": True})
        .encode(
            x=vl.X(
                "l1:Q",
                title="L1, each half",
                scale=LOG_2,
                axis=bytes_axis(L1_SIZES[::2]),
            ),
            y=vl.Y(
                "cpi:Q",
                title="translation, cycles per instruction",
                scale=vl.Scale(type="log", base=10, nice=False, padding=8),
                axis=vl.Axis(format=".2~g", tickCount=5),
            ),
            color=vl.named(
                "lines:N",
                colours,
                title="line of L1, of L2",
                legend=wide_legend("line of L1, of L2"),
            ),
            facet=vl.Facet("panel:N", columns=2, title=None),
        )
        .properties(width=_WIDTH, height=_HEIGHT)
    )
    return finished(chart)


def _pair(l1_line_bytes: int, l2_line_bytes: int) -> str:
    return f"{l1_line_bytes} B, {l2_line_bytes} B"
