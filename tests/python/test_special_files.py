"""Pipes and devices in place of files that are read as a whole are refused at once."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from called import invoke

SENTENCE = "it is not a regular file, but a pipe, a socket or a device"
TRACE = "synth:strided?references=100"


@pytest.mark.parametrize(
    "arguments",
    [
        ["machines", "zero.toml"],
        ["machines", "extends.toml"],
        ["sim", "--machine", "zero.toml", TRACE],
        ["sim", "--set", "memory.fragmentation={kind='snapshot',file='zero'}", TRACE],
        ["sim", "--perf-4k", "zero", "--perf-thp", "zero", TRACE],
        ["report", "."],
        ["study", "run", "zero.toml"],
        ["study", "status", "marked.toml"],
        ["study", "status", "noted.toml"],
    ],
    ids=" ".join,
)
def test_a_device_is_refused(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("zero", "zero.toml", "report.json"):
        Path(name).symlink_to("/dev/zero")
    for name in ("marked", "noted"):
        Path(f"{name}.toml").write_text(f'designs = "base4k"\ntraces = "{TRACE}"\n')
        Path(f"{name}.results/journal").mkdir(parents=True)
    Path("marked.results/octavo.json").symlink_to("/dev/zero")
    Path("noted.results/octavo.json").write_text('{"schema": "octavo/results/1"}')
    Path("noted.results/journal/a.jsonl").symlink_to("/dev/zero")
    Path("extends.toml").write_text('extends = "zero.toml"\n')
    done = invoke(*arguments)
    assert done.exit_code in (2, 125)
    assert SENTENCE in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_pipe_is_refused_without_waiting_for_its_writer(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.toml"
    os.mkfifo(pipe)
    done = subprocess.run(
        [sys.executable, "-m", "octavo", "machines", str(pipe)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 2
    assert SENTENCE in done.stderr
