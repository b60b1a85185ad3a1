"""Helpers for tests of a report's page."""

from __future__ import annotations

import json
import re
from typing import Any

_SCRIPT = re.compile(r"<script([^>]*)>(.*?)</script>", flags=re.DOTALL)


def charts_of(page: str) -> dict[str, Any]:
    """The charts of a page, by the identifier of their element."""
    (text,) = (body for about, body in _SCRIPT.findall(page) if "application/json" in about)
    charts: dict[str, Any] = json.loads(text)
    for name in charts:
        assert f' id="{name}"' in page
    return charts


def assert_loads_nothing(page: str) -> None:
    """Asserts that a page loads no other file and nothing from the network."""
    markup = _SCRIPT.sub("", page)
    assert re.findall(r"\ssrc=|@import|url\(|<script", markup) == []
    assert re.findall(r"<link[^>]*href=\"(?!data:)", markup) == []
    assert "src=" not in "".join(about for about, _ in _SCRIPT.findall(page))
    assert '"url"' not in json.dumps(charts_of(page))
    own = _SCRIPT.findall(page)[-1][1]
    assert "http" not in own
    assert "fetch(" not in own


def panels_of(spec: dict[str, Any]) -> list[list[dict[str, Any]]]:
    """The data of each panel of a figure."""
    panels = spec.get("concat") or spec.get("vconcat") or [spec]
    return [panel["data"]["values"] for panel in panels]
