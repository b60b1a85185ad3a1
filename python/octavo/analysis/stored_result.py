"""A result of `octavo run` as another command reads it: its directory, or the file of `--json`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from octavo.base.errors import CannotRun
from octavo.base.host import open_regular

_FILE = "result.json"
_SCHEMA = "octavo/run/"


def read_run(name: str) -> dict[str, Any]:
    """The document of a run. Raises CannotRun."""
    path = Path(name)
    if path.is_dir():
        path /= _FILE
    document = read_json(path)
    if not isinstance(document, dict) or not str(document.get("schema")).startswith(_SCHEMA):
        raise CannotRun(f"`{path}` is not a result of `octavo run`.")
    return document


def read_json(path: Path) -> Any:
    """The document in a file. Raises CannotRun."""
    try:
        with open_regular(path) as file:
            return json.load(file)
    except OSError as error:
        raise CannotRun(f"cannot read `{path}`: {error.strerror}.") from None
    except ValueError:
        raise CannotRun(f"`{path}` is not JSON.") from None
