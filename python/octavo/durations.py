"""Spans of time as people write and read them."""

from __future__ import annotations

import re

from octavo.errors import UsageError
from octavo.text import quoted

_SECONDS = {"": 1.0, "ms": 0.001, "s": 1.0, "sec": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}


def duration(text: str) -> float:
    """`90s` → 90.0; `5min` → 300.0. A number alone is seconds; ms, s, min and h are known.

    Raises UsageError for anything else, and for 0.
    """
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*([a-z]*)", text.strip().lower())
    unit = None if match is None else _SECONDS.get(match[2])
    if match is None or unit is None or float(match[1]) == 0:
        raise UsageError(
            f"`{quoted(text)}` is not a duration: give a number such as 30s, 5min or 1.5h."
        )
    return float(match[1]) * unit


def format_duration(seconds: float) -> str:
    """`7 s`, `3 min`, `2.5 h`."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
