"""The figure of all caches: misses over their size, a line for each size of lines."""

from __future__ import annotations

from typing import Any

from octavo.base.units import format_bytes
from octavo.report import vegalite as vl
from octavo.report.theme import (
    Spec,
    Values,
    finished,
    inline,
    ordered_colours,
    size_axis,
    wide_legend,
)
from octavo.tlb_curves.caches import SHOWN_BYTES, SHOWN_WAYS

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
        .filter("datum.rate > 0")
        .mark("line", strokeWidth=1.8)
        .encode(
            x=vl.X(
                "bytes:Q",
                title="cache",
                scale=vl.Scale(type="log", base=2, nice=False),
                axis=size_axis(sizes),
            ),
            y=vl.Y(
                "rate:Q",
                title=rate_name,
                scale=vl.Scale(type="log", nice=False),
                axis=vl.Axis(format="~g", tickCount=6),
            ),
            color=vl.Color(
                "line:N",
                sort=None,
                scale=vl.Scale(domain=lines, range=ordered_colours(len(lines))),
                legend=wide_legend("lines"),
            ),
            strokeDash=vl.StrokeDash(
                "ways:N",
                sort=None,
                scale=vl.Scale(domain=ways, range=list(_DASHES)),
                legend=wide_legend("ways"),
            ),
            tooltip=[
                vl.Tooltip("line:N", title="lines"),
                vl.Tooltip("ways:N", title="ways"),
                vl.Tooltip("bytes:Q", title="bytes", format=","),
                vl.Tooltip("misses:Q", title="misses", format=","),
                vl.Tooltip("rate:Q", title=rate_name, format=".4~g"),
            ],
        )
        .properties(width=_WIDTH, height=_HEIGHT)
    )
    return finished(chart)
