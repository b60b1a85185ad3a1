"""Helpers of the tests of real programs: running a command natively and under Octavo."""

import json
import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
OCTAVO = ROOT / ".venv/bin/octavo"
WORKLOADS = ROOT / "build/workloads"
TIMEOUT_SECONDS = 300

Row = dict[str, Any]


@dataclass(frozen=True)
class Ended:
    """How a command ended, and what it wrote."""

    status: int
    stdout: bytes
    stderr: bytes


@dataclass(frozen=True)
class Traced(Ended):
    """A command under Octavo, with its JSON document when it wrote one."""

    document: dict[str, Any] | None

    @property
    def run(self) -> dict[str, Any]:
        """The manifest of the run."""
        assert self.document is not None, self.stderr.decode()
        run: dict[str, Any] = self.document["run"]
        return run

    def rows(self, **wanted: object) -> list[Row]:
        """The rows with these values. Rows of a process, thread or region are left out unless
        `wanted` names one.
        """
        assert self.document is not None, self.stderr.decode()
        keys = {"process", "thread", "region"} - wanted.keys()
        return [
            row
            for row in self.document["rows"]
            if not keys & row.keys() and wanted.items() <= row.items()
        ]

    def row(self, **wanted: object) -> Row:
        """The only row with these values."""
        (row,) = self.rows(**wanted)
        return row

    def regions(self) -> list[Row]:
        """One row of each region, for the columns that its rows share: name, kind, start, bytes."""
        assert self.document is not None, self.stderr.decode()
        rows = [row for row in self.document["rows"] if "region" in row]
        return list({(row.get("process"), row["region"]): row for row in rows}.values())

    def count(self, counter: str, component: str = "stream", **wanted: object) -> int:
        """The value of a counter; 0 for an event that never happened."""
        rows = self.rows(component=component, counter=counter, **wanted)
        assert rows or component == "stream.events"
        return sum(row["value"] for row in rows)

    def check(self) -> None:
        """Checks invariants of every result."""
        references = self.count("fetches") + self.count("loads") + self.count("stores")
        assert self.count("references") == references > 0
        assert self.count("fetches") == self.count("instructions")
        for row in self.document["rows"] if self.document else ():
            if row["component"].startswith("tlb."):
                assert row["accesses"] == row["hits"] + row["misses"]


def natively(
    argv: Sequence[str | Path],
    *,
    stdin: bytes = b"",
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
) -> Ended:
    """Runs a command; a death by signal has the status 128 + signal, as in a shell."""
    done = subprocess.run(
        [str(word) for word in argv],
        input=stdin,
        capture_output=True,
        cwd=cwd,
        env={**os.environ, **(env or {})},
        timeout=TIMEOUT_SECONDS,
    )
    status = done.returncode if done.returncode >= 0 else 128 - done.returncode
    return Ended(status, done.stdout, done.stderr)


def read_document(path: Path) -> dict[str, Any] | None:
    """A JSON result; None if there is none. An incomplete result raises ValueError."""
    if not path.exists():
        return None
    document: dict[str, Any] = json.loads(path.read_text())
    return document


Octavo = Callable[..., Traced]


@pytest.fixture
def octavo(tmp_path: Path) -> Octavo:
    """Traces a command: octavo([argv], "--option", …, verb="run", stdin=…, cwd=…, env=…)."""
    return tracing_in(tmp_path)


def tracing_in(place: Path) -> Octavo:
    """The fixture `octavo` for fixtures of a wider scope; results are written to `place`."""
    result = place / "result.json"

    def trace(argv: Sequence[str | Path], *options: str, verb: str = "run", **how: Any) -> Traced:
        result.unlink(missing_ok=True)
        if "--json" not in options:
            options = ("--json", str(result), *options)
        ended = natively([OCTAVO, verb, "--quiet", *options, "--", *argv], **how)
        return Traced(ended.status, ended.stdout, ended.stderr, read_document(result))

    return trace


@pytest.fixture(scope="session", autouse=True)
def _built() -> None:
    for path in (OCTAVO, WORKLOADS):
        assert path.exists(), f"{path} does not exist: `make test` builds the programs of the tests"


def workload(name: str, *arguments: str | int) -> list[str]:
    """The command line of a program of workloads/."""
    return [str(WORKLOADS / name), *map(str, arguments)]


def interrupted(verb: str, *options: str, place: Path) -> tuple[dict[str, Any], bytes]:
    """Interrupts a running program; returns the document and the text on standard error, which both
    say that the result is partial.
    """
    result = place / "result.json"
    process = subprocess.Popen(
        [OCTAVO, verb, *options, "--json", result, "--", *workload("signals", "spin")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=TIMEOUT_SECONDS)
    assert process.returncode == 143
    assert b"PARTIAL: interrupted by SIGTERM" in errors
    document = read_document(result)
    assert document is not None
    assert document["run"]["partial"]
    return document, errors
