"""The corpus: cases.toml has the commands, rows/ the kept rows of each case, and renames.toml the
names in rows that were changed after the rows were kept."""

from __future__ import annotations

import json
import lzma
import re
import shlex
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

from typer.testing import CliRunner

from octavo.analysis import walk_costs
from octavo.cli import app

from . import inputs, studies

HERE = Path(__file__).parent
ROWS = HERE / "rows"
RENAMES = HERE / "renames.toml"

Row = dict[str, Any]

KEYS = {
    *("process", "thread", "interval", "page_size", "small", "large", "threshold_blocks"),
    *("policy_window_refs", "entries", "ways", "sets", "line_bytes", "cache_bytes", "larger"),
    *("line", "window_refs", "start"),
}
"""Columns of numbers that belong to the key of a row, as all columns of words do."""

PROSE = {
    *("actions", "description", "line", "not_told", "notes", "paper", "source", "text", "where"),
}
"""Fields of nested documents that are left out everywhere, as they hold sentences."""

OF_ENVIRONMENT = {
    "about",
    "bytes",
    "bytes_per_reference",
    "file",
    "trace",
    "usable_page_size",
    "written_by",
}
"""Top-level fields that are left out: they depend on this machine or on versions of libraries."""


@dataclass(frozen=True)
class Cases:
    """The contents of cases.toml."""

    inputs: list[list[str]]
    commands: dict[str, list[str]]

    @classmethod
    def read(cls) -> Cases:
        table = tomllib.loads((HERE / "cases.toml").read_text())
        inputs = [shlex.split(line) for line in table.pop("inputs")]
        commands = {
            f"{group}-{name}": [group, *shlex.split(line)]
            for group, named in table.items()
            for name, line in named.items()
        }
        return cls(inputs, commands)

    def make_inputs(self, directory: Path) -> None:
        """Makes all inputs of the cases in the directory in which they run."""
        inputs.make(directory)
        for kept in (HERE / "traces").glob("*.oct"):
            (directory / kept.name).write_bytes(kept.read_bytes())
        for command in self.inputs:
            _octavo([*command, "--quiet"])


def run(command: list[str]) -> list[Row]:
    """All rows of a command's result, in canonical order."""
    group, *rest = command
    document = studies.document(rest[0], _document) if group == "reproduce" else _document(command)
    return sorted(_rows_of(document), key=_order)


def _document(command: Sequence[str]) -> Row:
    document: Row = json.loads(_octavo([*command, "--quiet", "--json", "-"]))
    return document


def _octavo(command: list[str]) -> str:
    # Walk costs are those without a hypervisor, so that rows are the same in a virtual machine.
    with patch.object(walk_costs, "cpu_field", return_value=None):
        done = CliRunner().invoke(app, command, prog_name="octavo")
    if done.exit_code:
        raise AssertionError(
            f"octavo {shlex.join(command)}: status {done.exit_code}\n{done.stderr}"
        )
    return done.stdout


def _rows_of(document: Row) -> Iterator[Row]:
    if "rows" not in document:
        yield from _leaves("", _without_environment(document))
        return
    yield from document["rows"]
    about = document["run"]
    yield from _leaves("run", {key: about[key] for key in ("trace_hash", "processes", "partial")})
    for advice in document.get("advice", [])[1:]:  # the first one is prose
        place = f"advice.{advice['scope']}.{advice.get('region')}.{advice.get('stream')}"
        yield from _leaves(place, _without_environment(advice))


def _without_environment(document: Row) -> Row:
    return {name: value for name, value in document.items() if name not in OF_ENVIRONMENT}


def _leaves(path: str, value: Any) -> Iterator[Row]:
    """Every number and word of a nested document, each as a row with its path."""
    if isinstance(value, dict):
        for name, part in value.items():
            if name == "ours" and isinstance(part, str):  # a sentence: only its numbers are kept
                part = re.findall(r"\d+(?:[.,]\d+)*", part)
            if name not in PROSE:
                yield from _leaves(f"{path}.{name}".lstrip("."), part)
    elif isinstance(value, list):
        for n, part in enumerate(value):
            which = part["key"] if isinstance(part, dict) and "key" in part else n
            yield from _leaves(f"{path}[{which}]", part)
    else:
        yield {"path": path, "is": value}


def _order(row: Row) -> tuple[str, str]:
    key, values = split(row)
    return json.dumps(key, sort_keys=True), json.dumps(values, sort_keys=True)


def split(row: Row) -> tuple[Row, Row]:
    """The key of a row, and its values."""
    key = {
        name: value
        for name, value in row.items()
        if name != "is" and (name in KEYS or isinstance(value, str))
    }
    return key, {name: value for name, value in row.items() if name not in key}


# --- kept rows -----------------------------------------------------------------------------------


def keep(case: str, rows: list[Row]) -> None:
    """Writes the rows of a case; equal rows give equal bytes."""
    text = "".join(json.dumps(row, sort_keys=True, separators=(",", ":")) + "\n" for row in rows)
    ROWS.mkdir(exist_ok=True)
    kept_in(case).write_bytes(lzma.compress(text.encode(), preset=9))


def kept(case: str) -> list[Row]:
    text = lzma.decompress(kept_in(case).read_bytes()).decode()
    return [json.loads(line) for line in text.splitlines()]


def kept_in(case: str) -> Path:
    return ROWS / f"{case}.jsonl.xz"


# --- renames -------------------------------------------------------------------------------------


@dataclass
class Renames:
    """Old and new names of columns, counters and values that changed after rows were kept."""

    columns: Mapping[str, str] = field(default_factory=dict)
    counters: Mapping[str, str] = field(default_factory=dict)
    values: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)
    """The renames that have been applied to a row."""

    @classmethod
    def read(cls, text: str) -> Renames:
        tables = tomllib.loads(text)
        renames = cls(
            tables.pop("columns", {}), tables.pop("counters", {}), tables.pop("values", {})
        )
        if tables:
            raise ValueError(f"renames.toml: unknown table `{next(iter(tables))}`")
        return renames

    def all(self) -> set[str]:
        """A name for each rename, as in `used`."""
        values = {f"values.{column}.{old}" for column, new in self.values.items() for old in new}
        columns = {f"columns.{old}" for old in self.columns}
        return values | columns | {f"counters.{old}" for old in self.counters}

    def apply(self, row: Row) -> Row:
        """The row with current names. Values are renamed first, then columns."""
        renamed = {column: self._value(column, value) for column, value in row.items()}
        both = f"{row.get('component')} {row.get('counter')}"
        if both in self.counters:
            self.used.add(f"counters.{both}")
            renamed["component"], renamed["counter"] = self.counters[both].split(" ")
        return {self._column(column): value for column, value in renamed.items()}

    def _value(self, column: str, value: Any) -> Any:
        named = self.values.get(column, {})
        if not isinstance(value, str) or value not in named:
            return value
        self.used.add(f"values.{column}.{value}")
        return named[value]

    def _column(self, column: str) -> str:
        if column not in self.columns:
            return column
        self.used.add(f"columns.{column}")
        return self.columns[column]


# --- comparison ----------------------------------------------------------------------------------

SHOWN, MAX_LINE = 12, 300


def differences(expected: Iterable[Row], found: Iterable[Row]) -> list[str]:
    """The differences, one per line: the key of the rows, the expected and the found values."""
    before_by_key, now_by_key = _by_key(expected), _by_key(found)
    lines = []
    for key in sorted(before_by_key.keys() | now_by_key.keys()):
        before, now = before_by_key.get(key, []), now_by_key.get(key, [])
        if before != now:
            about = " ".join(f"{name}={value}" for name, value in json.loads(key).items())
            lines.append(f"{about}: {_difference(before, now)}"[:MAX_LINE])
    return lines


def _by_key(rows: Iterable[Row]) -> dict[str, list[Row]]:
    by: dict[str, list[Row]] = defaultdict(list)
    for row in sorted(rows, key=_order):
        key, values = split(row)
        by[json.dumps(key, sort_keys=True)].append(values)
    return by


def _difference(expected: list[Row], found: list[Row]) -> str:
    if not found:
        return f"expected {_shown(expected)}, found no such row"
    if not expected:
        return f"expected no such row, found {_shown(found)}"
    if len(expected) != len(found):
        return f"expected {len(expected)} such rows, found {len(found)}"
    pairs = [
        f"{name} expected {old.get(name, 'nothing')}, found {new.get(name, 'nothing')}"
        for old, new in zip(expected, found, strict=True)
        for name in sorted(old.keys() | new.keys())
        if (name in old, old.get(name)) != (name in new, new.get(name))
    ]
    return "; ".join(pairs)


def _shown(rows: list[Row]) -> str:
    return "; ".join(", ".join(f"{name} {value}" for name, value in row.items()) for row in rows)


def report(case: str, lines: list[str]) -> str:
    """The message of a failed test."""
    more = [f"… and {len(lines) - SHOWN} more"] if len(lines) > SHOWN else []
    return "\n  ".join([f"{case}: {len(lines)} rows differ", *lines[:SHOWN], *more])
