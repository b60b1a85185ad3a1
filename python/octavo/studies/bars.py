"""Bars by program, some side by side for each: what studies draw."""

from __future__ import annotations

from collections.abc import Mapping

import altair as alt

from octavo.report.look import Values, inline


def bars(
    values: Values,
    title: str,
    kind: str,
    colours: Mapping[str, str],
    *,
    programs: int,
    size: tuple[int, int],
    format: str = "",
) -> alt.Chart:
    """A bar for each of `values`: its `program`, its `value`, and what `kind` names of it, which
    has one of `colours`, in their order. `size` is a program's width and the height of all, pixels.
    """
    names = list(colours)
    width, height = size
    chart: alt.Chart = (
        inline(values)
        .mark_bar()
        .encode(
            x=alt.X(
                "program:N",
                title=None,
                sort=None,
                scale=alt.Scale(paddingInner=0.25),
                axis=alt.Axis(labelAngle=-45, grid=False, labelOverlap=False),
            ),
            xOffset=alt.XOffset(f"{kind}:N", sort=None, scale=alt.Scale(domain=names)),
            y=alt.Y(
                "value:Q",
                title=title,
                axis=alt.Axis(tickCount=5, minExtent=44, format=format),
            ),
            color=alt.Color(
                f"{kind}:N",
                sort=None,
                scale=alt.Scale(domain=names, range=list(colours.values())),
                legend=alt.Legend(title=None, orient="top", direction="horizontal"),
            ),
        )
        .properties(width=width * programs, height=height)
    )
    return chart
