"""The metric of a run: a time, or a number in the output of the program or of a command."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, cast

from octavo.base.errors import UsageError, choose, hint, nearest
from octavo.base.text import quoted

Source = Literal["time", "cpu", "output", "command", "command-time", "command-cpu"]
Better = Literal["higher", "lower"]

_KINDS = ("time", "cpu", "regex", "command")
_FORMS = "time, time:COMMAND, cpu, cpu:COMMAND, regex:EXPR, command:COMMAND"

_NUMBER = r"([0-9][0-9,]*(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?)"

KNOWN: tuple[tuple[str, str], ...] = (
    ("requests per second", rf"(?:throughput summary: |: ){_NUMBER} requests per second"),
    ("transactions per second", rf"tps = {_NUMBER} \((?:without|excluding)"),
    ("transactions per second", rf"tps = {_NUMBER}"),
    ("requests per second", rf"Requests/sec:\s+{_NUMBER}"),
    ("requests per second", rf"Requests per second:\s+{_NUMBER}"),
    ("requests per second", rf"finished in [^,\n]+, {_NUMBER} req/s"),
    ("operations per second", rf"^Totals\s+{_NUMBER}"),
    ("transactions per second", rf"transactions:\s+[0-9]+\s+\({_NUMBER} per sec"),
    ("operations per second", rf"\[OVERALL\], Throughput\(ops/sec\), {_NUMBER}"),
)
"""Names and expressions of rates in the output of redis-benchmark, pgbench, wrk and hey, ab,
h2load, memtier_benchmark, sysbench and YCSB. The first expression that matches counts."""

SEARCH_SECONDS = 5
"""Time limit of the search for a user's expression in the output of a run."""
_SEARCH = """
import json, re, sys
text, output = json.load(sys.stdin)
pattern = re.compile(text, re.MULTILINE)
json.dump([match[pattern.groups] or "" for match in pattern.finditer(output)], sys.stdout)
"""
_PLAIN = re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")

_GROUP = re.compile(r"\((?!\?)[^()]*\)")
_RATE = re.compile(
    r"per\W?s|/\W?s\b|/sec|p/s|\b[rtqm]ps\b|\biops|\bops\b|throughput", re.IGNORECASE
)
_COST = re.compile(
    r"second|\bsecs?\b|\bms\b|msec|\bus\b|usec|\bns\b|elapsed|latency|time|real", re.IGNORECASE
)


@dataclass(frozen=True)
class Metric:
    """A number of each run."""

    source: Source
    command: str | None = None
    """The shell command that puts load on the program; with one, the program is a server."""
    pattern: re.Pattern[str] | None = None
    """The expression for the number in the output; None: a format of KNOWN, or a number alone."""
    better: Better | None = None
    """The better direction; None: higher, if the output has a known format."""

    @property
    def is_of_server(self) -> bool:
        """Whether the program runs as a server."""
        return self.command is not None

    @property
    def captures(self) -> bool:
        """Whether the program's output is read here and not shown to the user."""
        return self.source == "output" or self.is_of_server

    @property
    def text(self) -> str:
        """The metric in words, without the direction."""
        match self.source:
            case "time":
                return "wall time"
            case "cpu":
                return "processor time"
            case "command-time":
                return f"wall time of `{self.command}`"
            case "command-cpu":
                return f"processor time of the server for `{self.command}`"
        return _words(self.pattern.pattern) if self.pattern else f"number of `{self.command}`"

    @property
    def is_time(self) -> bool:
        """Whether the number is a time in seconds, measured by Octavo."""
        return self.source in ("time", "cpu", "command-time", "command-cpu")


def _words(pattern: str) -> str:
    """The words of an expression: `([0-9.]+) requests per second` → `requests per second`."""
    words = re.sub(r"\\[a-zA-Z]|[^\w\s/%-]", " ", _GROUP.sub(" ", pattern))
    found = " ".join(words.split())
    return found if re.search("[A-Za-z]", found) else f"`{pattern}`"


@dataclass(frozen=True)
class Reading:
    """A number found in an output."""

    value: float
    name: str | None = None
    """Its name, where the format is known."""
    others: int = 0
    """The number of different matches before it, which do not count."""


def parse_metric(given: Sequence[str], better: str | None) -> Metric:
    """The metric of the values of `--metric`, such as a command and an expression for its output.

    Raises UsageError.
    """
    if better is not None:
        choose(better, ("higher", "lower"), "value of --better")
    parts: dict[str, str] = {}
    for text in given or ["time"]:
        kind, colon, rest = text.partition(":")
        if kind not in _KINDS:
            end = hint(nearest(kind, _KINDS))
            raise UsageError(f"unknown metric `{quoted(kind)}`{end} Allowed: {_FORMS}.")
        if kind in ("regex", "command") and not rest.strip():
            wanted = "expression" if kind == "regex" else "command"
            raise UsageError(f"--metric {kind}: needs its {wanted} after the colon.")
        if kind in ("time", "cpu") and colon and not rest.strip():
            raise UsageError(f"--metric {kind}: needs a command after the colon, or no colon.")
        if kind in parts:
            raise UsageError(f"--metric {kind} is given twice; give it once.")
        parts[kind] = rest
    return _assemble(parts, cast("Better | None", better))


_TIMES: dict[str, tuple[Source, Source]] = {
    "time": ("time", "command-time"),
    "cpu": ("cpu", "command-cpu"),
}
"""Sources of times: for the program itself, and for a command against a server."""


def _assemble(parts: dict[str, str], better: Better | None) -> Metric:
    command = parts.get("command")
    pattern = _compile(parts["regex"]) if "regex" in parts else None
    for kind, (of_program, of_server) in _TIMES.items():
        if parts.keys() == {kind}:
            if better == "higher":
                raise UsageError("--better higher: of times, lower is better.")
            source = of_server if parts[kind] else of_program
            return Metric(source, command=parts[kind] or None, better="lower")
    if not parts.keys() <= {"regex", "command"}:
        given = " and ".join(sorted(parts))
        raise UsageError(f"--metric {given} do not go together; only command: and regex: do.")
    direction = _direction(pattern.pattern, better) if pattern else better
    return Metric("command" if command else "output", command, pattern, direction)


def _compile(text: str) -> re.Pattern[str]:
    try:
        pattern = re.compile(text, re.MULTILINE)
    except re.error as error:
        raise UsageError(f"--metric regex:{quoted(text)} is not an expression: {error}.") from None
    if pattern.groups > 1:
        raise UsageError(
            f"--metric regex:{quoted(text)} has {pattern.groups} groups; put one pair of "
            "parentheses around the number, and write (?:…) for others."
        )
    return pattern


def _direction(pattern: str, better: Better | None) -> Better:
    """The better direction of an expression: as given, or by words in it such as `per second` and
    `latency`.
    """
    if better is not None:
        return better
    if _RATE.search(pattern):
        return "higher"
    if _COST.search(pattern):
        return "lower"
    raise UsageError(
        f"whether a higher or a lower value of `{quoted(pattern)}` is better is not in its words: "
        "give --better higher or --better lower."
    )


def read_metric(metric: Metric, output: str) -> Reading | str:
    """The number in an output, or a sentence (without a full stop) that says why there is none."""
    if metric.pattern is not None:
        texts = _searched(metric.pattern, output)
        found = texts if isinstance(texts, str) else _numbers(metric.pattern, texts)
        if isinstance(found, str):
            return found
        if not found:
            return f"`{quoted(metric.pattern.pattern)}` is not in the output"
        return _reading(found, None)
    for name, text in KNOWN:
        pattern = re.compile(text, re.MULTILINE)
        texts = [match[pattern.groups] or "" for match in pattern.finditer(output)]
        found = _numbers(pattern, texts)
        if found and not isinstance(found, str):
            return _reading(found, name)
    value = _number(output)
    if value is None:
        return (
            "the command's output has no format that Octavo knows and is not a number alone; name "
            "the number by a second --metric regex:…"
        )
    if metric.better is None:
        return "whether a higher number is better is not known: give --better higher or lower"
    return Reading(value)


def _reading(found: list[float], name: str | None) -> Reading:
    return Reading(found[-1], name, len(set(found) - {found[-1]}))


def _numbers(pattern: re.Pattern[str], texts: Iterable[str]) -> list[float] | str:
    found = []
    for text in texts:
        value = _number(text.replace(",", ""))
        if value is None:
            return f"`{quoted(pattern.pattern)}` found `{quoted(text)}`, which is not a number"
        found.append(value)
    return found


def _number(text: str) -> float | None:
    """A finite decimal number; None for other texts."""
    text = text.strip()
    value = float(text) if _PLAIN.fullmatch(text) else math.inf
    return value if math.isfinite(value) else None


def _searched(pattern: re.Pattern[str], output: str) -> list[str] | str:
    """The matches of a user's expression, or a sentence where the search takes too long. Another
    process searches, as only that can be ended during an expression such as `(x+x+)+y`.
    """
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-c", _SEARCH],
            input=json.dumps([pattern.pattern, output]).encode(),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=SEARCH_SECONDS,
            check=True,
        )
    except subprocess.TimeoutExpired:
        return (
            f"the search for `{quoted(pattern.pattern)}` takes more than {SEARCH_SECONDS} s; give "
            "an expression with fewer ways to match"
        )
    except subprocess.CalledProcessError:
        return f"the search for `{quoted(pattern.pattern)}` was ended"
    found: list[str] = json.loads(done.stdout)
    return found
