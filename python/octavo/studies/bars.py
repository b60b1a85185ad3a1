"""Bars by program, some side by side for each: what studies draw."""

from __future__ import annotations

from collections.abc import Mapping

from octavo.report import vegalite as vl
from octavo.report.theme import Values, inline


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
    """A bar for each of `values`: its `program`, its `value`, and what `kind` names of it, which
    has one of `colours`, in their order. `size` is a program's width and the height of all, pixels.
    """
    names = list(colours)
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
            xOffset=vl.XOffset(f"{kind}:N", sort=None, scale=vl.Scale(domain=names)),
            y=vl.Y(
                "value:Q",
                title=title,
                axis=vl.Axis(tickCount=5, minExtent=44, format=format),
            ),
            color=vl.Color(
                f"{kind}:N",
                sort=None,
                scale=vl.Scale(domain=names, range=list(colours.values())),
                legend=vl.Legend(title=None, orient="top", direction="horizontal"),
            ),
        )
        .properties(width=width * programs, height=height)
    )
    return chart
