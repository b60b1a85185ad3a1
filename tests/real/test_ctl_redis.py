"""Snapshots of a real server under load: redis answers before and after each."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from .conftest import OCTAVO, TIMEOUT_SECONDS, Traced, natively

pytestmark = pytest.mark.long

PORT = "7391"
NEEDED = ("redis-server", "redis-cli", "redis-benchmark")


def _cli(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["redis-cli", "-p", PORT, *words], capture_output=True, text=True, timeout=TIMEOUT_SECONDS
    )


def _wait_until_it_answers(octavo: subprocess.Popen[bytes]) -> None:
    while _cli("ping").stdout != "PONG\n":
        assert octavo.poll() is None, "octavo ended"


@pytest.mark.skipif(not all(map(shutil.which, NEEDED)), reason="needs redis-server and redis-tools")
def test_three_snapshots_of_redis_under_load(tmp_path: Path) -> None:
    server = ["redis-server", "--port", PORT, "--save", "", "--dir", str(tmp_path)]
    octavo = subprocess.Popen(
        [OCTAVO, "run", "-q", "--json", tmp_path / "final.json", "--", *server],
        stdout=subprocess.DEVNULL,
    )
    _wait_until_it_answers(octavo)
    load = subprocess.Popen(
        ["redis-benchmark", "-p", PORT, "-t", "set,get", "-r", "100000", "-n", "10000000", "-q"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    snapshots, commands = [], []
    try:
        for number in range(3):
            _wait_for_commands(5000 * (number + 1))
            out = tmp_path / str(number)
            done = natively([OCTAVO, "ctl", str(octavo.pid), "snapshot", "-q", "-o", str(out)])
            assert done.status == 0, done.stderr
            document = json.loads((out / "result.json").read_text())
            snapshots.append(Traced(0, b"", b"", document))
            # The server still answers.
            assert _cli("ping").stdout == "PONG\n"
            commands.append(_commands())
    finally:
        load.terminate()
        load.wait(TIMEOUT_SECONDS)
        os.kill(octavo.pid, signal.SIGTERM)
        octavo.wait(TIMEOUT_SECONDS)
    assert commands == sorted(set(commands))
    assert octavo.returncode == 143
    final = Traced(0, b"", b"", json.loads((tmp_path / "final.json").read_text()))
    for one in (*snapshots, final):
        one.check()
    references = [one.count("references") for one in (*snapshots, final)]
    assert references == sorted(set(references))
    assert not any(one.run["partial"] for one in snapshots)


def _commands() -> int:
    """The number of commands that redis has processed."""
    (line,) = [
        line
        for line in _cli("info", "stats").stdout.splitlines()
        if line.startswith("total_commands_processed:")
    ]
    return int(line.partition(":")[2])


def _wait_for_commands(number: int) -> None:
    while _commands() < number:
        pass
