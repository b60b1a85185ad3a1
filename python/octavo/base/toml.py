"""Reading of TOML files, and writing of values as TOML."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from octavo.base.host import open_regular

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

TomlValue = bool | int | float | str | list[Any] | dict[str, Any] | None
"""A value that `toml_value` writes; None is the word `none`."""

TomlError = tomllib.TOMLDecodeError


def parse_toml(text: str) -> dict[str, Any]:
    """Parses a text. Raises TomlError."""
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise TomlError("cannot recurse further; max recursion depth met") from None


def read_toml(path: Path) -> dict[str, Any]:
    """Reads a file. Raises OSError, TomlError and UnicodeDecodeError."""
    with open_regular(path) as file:
        return parse_toml(file.read())


def toml_table(name: str, pairs: Mapping[str, TomlValue]) -> str:
    """A table of an array of tables, after an empty line."""
    lines = (f"{key} = {toml_value(value)}\n" for key, value in pairs.items())
    return f"\n[[{name}]]\n{''.join(lines)}"


def toml_value(value: TomlValue) -> str:
    """A value in TOML's notation."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str):
        # TOML's escapes are JSON's, but it has no surrogates.
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(toml_value, value))}]"
    pairs = (f"{json.dumps(key)} = {toml_value(inner)}" for key, inner in value.items())
    return f"{{{', '.join(pairs)}}}"
