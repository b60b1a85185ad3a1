"""Two commands that write to one place at the same time: no result is lost without a message."""

import json
import subprocess
import time
from pathlib import Path

import pytest

from .conftest import OCTAVO, TIMEOUT_SECONDS, natively


def begin(command: list[str], started: Path, cwd: Path) -> "subprocess.Popen[bytes]":
    """Starts Octavo with a program that runs until `started` is removed; waits for the program."""
    wait = f"touch {started}; while [ -e {started} ]; do sleep 0.1; done"
    process = subprocess.Popen(
        [OCTAVO, *command, "--quiet", "--", "sh", "-c", wait], stderr=subprocess.PIPE, cwd=cwd
    )
    end = time.monotonic() + TIMEOUT_SECONDS
    while not started.exists():
        assert process.poll() is None
        assert time.monotonic() < end
        time.sleep(0.05)
    return process


def end(process: "subprocess.Popen[bytes]", started: Path) -> tuple[int, str]:
    """Lets the program end; returns the status and the text on standard error."""
    started.unlink()
    _, errors = process.communicate(timeout=TIMEOUT_SECONDS)
    return process.returncode, errors.decode()


@pytest.mark.parametrize("verb", ["run", "curves", "sim"])
@pytest.mark.parametrize("out", ["out", "rows.parquet"])
def test_the_later_result_gets_a_name_of_its_own(verb: str, out: str, tmp_path: Path):
    few = {"run": [], "curves": ["--entries", "4"], "sim": ["--design", "base4k"]}[verb]
    command = [verb, *few, "--json", "result.json", "--out", out]
    slow = begin(command, tmp_path / "started", tmp_path)
    quick = natively([OCTAVO, *command, "--quiet", "--", "true"], cwd=tmp_path)
    assert (quick.status, quick.stderr) == (0, b"")
    status, errors = end(slow, tmp_path / "started")
    assert status == 125
    assert errors.count("\n") == 1
    other = {"out": "out-2", "rows.parquet": "rows-2.parquet"}[out]
    for name in ("result-2.json", other):
        assert f"this result is in `{tmp_path / name}`" in errors
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"result.json", "result-2.json", out, other}
    places = [("result.json", "true"), ("result-2.json", "sh")]
    if out == "out":
        places += [("out/manifest.json", "true"), ("out-2/manifest.json", "sh")]
        assert {path.name for path in (tmp_path / "out-2").iterdir()} == {
            path.name for path in (tmp_path / "out").iterdir()
        }
    for name, program in places:
        document = json.loads((tmp_path / name).read_text())
        assert document.get("run", document)["command"][0] == program


def test_a_trace_under_way_is_not_overwritten(tmp_path: Path):
    slow = begin(["record", "--out", "a.oct"], tmp_path / "started", tmp_path)
    for force in ([], ["--force"]):
        other = natively([OCTAVO, "record", "--out", "a.oct", *force, "--", "true"], cwd=tmp_path)
        assert other.status == (125 if force else 2)
        assert b"`a.oct`" in other.stderr
        assert other.stderr.count(b"\n") == 1
        assert (b"another process is writing it" in other.stderr) == bool(force)
    assert end(slow, tmp_path / "started") == (0, "")
    checked = natively([OCTAVO, "check", "a.oct", "--json", "-"], cwd=tmp_path)
    assert checked.status == 0
    assert json.loads(natively([OCTAVO, "info", tmp_path / "a.oct", "--json", "-"]).stdout)
