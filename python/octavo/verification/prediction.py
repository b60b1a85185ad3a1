"""The gain that an earlier `octavo run` expected, to stand beside what is measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Prediction:
    """The share of time that larger pages for all data are expected to save."""

    page_size: int
    """Bytes of the pages that it is about."""
    low: float
    expected: float
    high: float


def predicted_gain(document: dict[str, Any]) -> Prediction | None:
    """The expected gain of larger pages for the program's data; None where none is stated."""
    for item in document.get("advice", []):
        if item.get("scope") == "program" and item.get("stream") == "data":
            gain, size = item.get("gain"), item.get("gain_page_size")
            if isinstance(gain, dict) and isinstance(size, int):
                return Prediction(size, *(float(gain[key]) for key in ("low", "expected", "high")))
    return None
