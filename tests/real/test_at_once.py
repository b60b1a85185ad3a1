"""Two commands that write to one place at the same time: no result is lost without a message."""

import errno
import json
import os
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from .conftest import OCTAVO, TIMEOUT_SECONDS, natively


@dataclass(frozen=True)
class Waiting:
    """Octavo with a program that reads from a pipe until `end`."""

    process: "subprocess.Popen[bytes]"
    pipe: int

    def end(self) -> tuple[int, str]:
        """Lets the program end; returns the status and the text on standard error."""
        os.close(self.pipe)
        _, errors = self.process.communicate(timeout=TIMEOUT_SECONDS)
        return self.process.returncode, errors.decode()


def begin(command: list[str], cwd: Path) -> Waiting:
    """Starts Octavo, and waits until its program reads."""
    fifo = cwd / "fifo"
    os.mkfifo(fifo)
    process = subprocess.Popen(
        [OCTAVO, *command, "--quiet", "--", "sh", "-c", f"read _ < {fifo} || :"],
        stderr=subprocess.PIPE,
        cwd=cwd,
    )
    end = time.monotonic() + TIMEOUT_SECONDS
    while True:
        assert process.poll() is None
        assert time.monotonic() < end
        try:
            pipe = os.open(fifo, os.O_WRONLY | os.O_NONBLOCK)
        except OSError as error:
            if error.errno != errno.ENXIO:  # nothing reads yet
                raise
            time.sleep(0.05)
        else:
            fifo.unlink()
            return Waiting(process, pipe)


@pytest.mark.parametrize("verb", ["run", "curves", "sim"])
@pytest.mark.parametrize("out", ["out", "rows.parquet"])
def test_the_later_result_gets_a_name_of_its_own(verb: str, out: str, tmp_path: Path):
    few = {"run": [], "curves": ["--entries", "4"], "sim": ["--design", "base4k"]}[verb]
    command = [verb, *few, "--json", "result.json", "--out", out]
    slow = begin(command, tmp_path)
    quick = natively([OCTAVO, *command, "--quiet", "--", "true"], cwd=tmp_path)
    assert (quick.status, quick.stderr) == (0, b"")
    status, errors = slow.end()
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
    slow = begin(["record", "--out", "a.oct"], tmp_path)
    for force in ([], ["--force"]):
        other = natively([OCTAVO, "record", "--out", "a.oct", *force, "--", "true"], cwd=tmp_path)
        assert other.status == (125 if force else 2)
        assert b"`a.oct`" in other.stderr
        assert other.stderr.count(b"\n") == 1
        assert (b"another process is writing it" in other.stderr) == bool(force)
    assert slow.end() == (0, "")
    checked = natively([OCTAVO, "check", "a.oct", "--json", "-"], cwd=tmp_path)
    assert checked.status == 0
    assert json.loads(natively([OCTAVO, "info", tmp_path / "a.oct", "--json", "-"]).stdout)
