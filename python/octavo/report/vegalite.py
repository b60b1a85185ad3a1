"""The parts of Vega-Lite that the figures use, as plain dictionaries.

Names and arguments are those of Vega-Lite (https://vega.github.io/vega-lite/docs/). None becomes
`null`, which turns a part off; an argument that is not given is left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Spec = dict[str, Any]
"""A specification."""

_TYPES = {"Q": "quantitative", "N": "nominal", "O": "ordinal"}


class Field(Spec):
    """A channel's field, named as `rate:Q`: quantitative, nominal (N) or ordinal (O)."""

    def __init__(self, name: str, **more: Any) -> None:
        field, _, kind = name.rpartition(":")
        super().__init__(field=field, type=_TYPES[kind], **more)


class X(Field):
    """A field along the horizontal axis."""


class Y(Field):
    """A field along the vertical axis."""


class Part(Spec):
    """An axis, a scale, a legend or a header."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(settings)


Color = Facet = Order = Shape = StrokeDash = Tooltip = XOffset = Field
Axis = Header = Legend = Scale = Part


def named(field: str, shown: Mapping[str, Any], **more: Any) -> Field:
    """A channel that shows each name by a colour, a mark or dashes, in the order of `shown`."""
    scale = Scale(domain=list(shown), range=list(shown.values()))
    return Field(field, sort=None, scale=scale, **more)


def expression(text: str) -> Spec:
    """A value that Vega computes."""
    return {"expr": text}


class Chart:
    """A specification; each method returns a new chart."""

    def __init__(self, **spec: Any) -> None:
        self.spec: Spec = spec

    def _with(self, **more: Any) -> Chart:
        return Chart(**{**self.spec, **more})

    def mark(self, kind: str, **settings: Any) -> Chart:
        """Sets the mark for records: a line, a bar, …"""
        return self._with(mark={"type": kind, **settings})

    def encode(self, **channels: Any) -> Chart:
        """Adds channels, each with its field."""
        return self._with(encoding={**self.spec.get("encoding", {}), **channels})

    def filter(self, test: str) -> Chart:
        """Leaves out records that fail the test."""
        return self._with(transform=[{"filter": test}])

    def properties(self, **more: Any) -> Chart:
        """Sets a title, a width or a height."""
        return self._with(**more)

    def with_layer(self, chart: Chart) -> Chart:
        """Adds another chart on top of a layered one."""
        return self._with(layer=[*self.spec["layer"], chart.spec])

    def resolve_scale(self, **channels: str) -> Chart:
        """Gives panels a scale each (`independent`) or one for all (`shared`)."""
        return self._with(resolve={"scale": channels})


def layer(*charts: Chart, **more: Any) -> Chart:
    """Charts on top of one another."""
    return Chart(layer=[chart.spec for chart in charts], **more)


def concat(charts: Sequence[Chart], *, columns: int, **layout: Any) -> Chart:
    """Charts beside and below one another."""
    return Chart(concat=[chart.spec for chart in charts], columns=columns, **layout)


def vconcat(charts: Sequence[Chart], **layout: Any) -> Chart:
    """Charts below one another."""
    return Chart(vconcat=[chart.spec for chart in charts], **layout)
