"""The figure of all caches: misses over their size, a line for each size of lines."""

from __future__ import annotations

from typing import Any

import altair as alt

from octavo.cache_curves import SHOWN_BYTES, SHOWN_WAYS
from octavo.report.look import (
    Spec,
    Values,
    finished,
    inline,
    ordered_colours,
    size_axis,
    wide_legend,
)
from octavo.units import format_bytes

_WIDTH, _HEIGHT = 520, 300
_DASHES = ([1, 0], [5, 3])
"""By ways, as SHOWN_WAYS."""


def cache_chart(data: dict[str, Any], values: Values) -> Spec:
    """Misses over the size of a cache, a line for each size of lines and number of ways."""
    per = "1000 instructions" if data["has_instructions"] else "look-up"
    rate_name, lines = f"misses per {per}", data["lines"]
    sizes = [(size, format_bytes(size)) for size in SHOWN_BYTES]
    ways = [f"{number}-way" for number in SHOWN_WAYS]
    chart = (
        inline(values)
        .transform_filter("datum.rate > 0")
        .mark_line(strokeWidth=1.8)
        .encode(
            x=alt.X(
                "bytes:Q",
                title="cache",
                scale=alt.Scale(type="log", base=2, nice=False),
                axis=size_axis(sizes),
            ),
            y=alt.Y(
                "rate:Q",
                title=rate_name,
                scale=alt.Scale(type="log", nice=False),
                axis=alt.Axis(format="~g", tickCount=6),
            ),
            color=alt.Color(
                "line:N",
                sort=None,
                scale=alt.Scale(domain=lines, range=ordered_colours(len(lines))),
                legend=wide_legend("lines"),
            ),
            strokeDash=alt.StrokeDash(
                "ways:N",
                sort=None,
                scale=alt.Scale(domain=ways, range=list(_DASHES)),
                legend=wide_legend("ways"),
            ),
            tooltip=[
                alt.Tooltip("line:N", title="lines"),
                alt.Tooltip("ways:N", title="ways"),
                alt.Tooltip("bytes:Q", title="bytes", format=","),
                alt.Tooltip("misses:Q", title="misses", format=","),
                alt.Tooltip("rate:Q", title=rate_name, format=".4~g"),
            ],
        )
        .properties(width=_WIDTH, height=_HEIGHT)
    )
    return finished(chart)
