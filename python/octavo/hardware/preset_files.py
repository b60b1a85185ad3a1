"""Reads the TLB presets, TOML files in the package."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from octavo.base.errors import choose
from octavo.base.toml import read_toml

Kind = Literal["levels", "tlbs"]

_PRESETS = Path(__file__).parents[1] / "presets"


def preset_names(kind: Kind) -> list[str]:
    """The names of the presets of a kind, sorted."""
    return sorted(path.stem for path in (_PRESETS / kind).glob("*.toml"))


def read_preset(kind: Kind, name: str, what: str) -> dict[str, Any]:
    """The content of a preset. Raises UsageError for an unknown name, with the known names."""
    return read_toml(_PRESETS / kind / f"{choose(name, preset_names(kind), what)}.toml")
