"""Charts that several studies draw: bars by program, and lines over the page size."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from octavo.base.units import format_bytes
from octavo.report import vegalite as vl
from octavo.report.theme import (
    MARKS,
    UNORDERED,
    Spec,
    Values,
    finished,
    inline,
    size_axis,
    unordered_colours,
    wide_legend,
)

LINES_WIDTH = 560
LOG_2 = vl.Scale(type="log", base=2, nice=False, padding=12)


def bars(
    values: Values,
    title: str,
    kind: str,
    colours: Mapping[str, str],
    *,
    programs: int,
    size: tuple[int, int],
    format: str = "",
) -> vl.Chart:
    """Bars grouped by program. Each of `values` has the keys `program` and `value`, and a key with
    the name that `kind` gives, which selects its colour; `colours` gives the order of the bars.
    `size` is the width of one program and the height of the chart, in pixels.
    """
    width, height = size
    chart: vl.Chart = (
        inline(values)
        .mark("bar")
        .encode(
            x=vl.X(
                "program:N",
                title=None,
                sort=None,
                scale=vl.Scale(paddingInner=0.25),
                axis=vl.Axis(labelAngle=-45, grid=False, labelOverlap=False),
            ),
            xOffset=vl.XOffset(f"{kind}:N", sort=None, scale=vl.Scale(domain=list(colours))),
            y=vl.Y(
                "value:Q",
                title=title,
                axis=vl.Axis(tickCount=5, minExtent=44, format=format),
            ),
            color=vl.named(
                f"{kind}:N",
                colours,
                legend=vl.Legend(title=None, orient="top", direction="horizontal"),
            ),
        )
        .properties(width=width * programs, height=height)
    )
    return chart


def lines_by_size(
    values: Values, key: str, names: Sequence[str], ticks: Iterable[int], y: vl.Y, *, height: int
) -> Spec:
    """A line for each of `names` over the page size; the `key` of a value holds the name."""
    x = vl.X("size:Q", title="page size", scale=LOG_2, axis=bytes_axis(ticks))
    colours = unordered_colours(names)
    marks = [MARKS[(number // len(UNORDERED)) % len(MARKS)] for number in range(len(names))]
    chart = lines(values, x, y, key, colours, marks, wide_legend(None), point=45)
    return finished(chart.properties(width=LINES_WIDTH, height=height))


def bytes_axis(ticks: Iterable[int]) -> vl.Part:
    """An axis of sizes in bytes."""
    return size_axis([(size, format_bytes(size)) for size in ticks])


def lines(
    values: Values,
    x: vl.X,
    y: vl.Y,
    key: str,
    colours: Mapping[str, str],
    marks: Sequence[str],
    legend: vl.Part,
    *,
    point: int,
) -> vl.Chart:
    """A line for each name in `colours`, with its mark of `point` square pixels; the `key` of a
    value holds the name.
    """
    shapes = dict(zip(colours, marks, strict=True))
    chart: vl.Chart = (
        inline(values)
        .mark("line", strokeWidth=1.6, point={"size": point, "filled": True})
        .encode(
            x=x,
            y=y,
            color=vl.named(f"{key}:N", colours, legend=legend),
            shape=vl.named(f"{key}:N", shapes, legend=legend),
        )
    )
    return chart
