"""The line of the answer that simulates the gain of 2 MiB pages."""

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from octavo.runs.configuration import configure
from octavo.runs.simulation_line import simulation_line

WHOLE, LONG = 60_000_000, 4_000_000_000


@pytest.fixture(autouse=True)
def calibrated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The machine that `octavo calibrate` would have written."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    machine = tmp_path / "octavo/machine.toml"
    machine.parent.mkdir()
    machine.write_text('extends = "zen3"\nname = "host"\n')
    return machine


def line(instructions: int, *program: str, **scope: Any) -> str:
    return simulation_line(configure(**scope).resolved(), program, instructions)


@pytest.mark.parametrize(
    ("scope", "instructions", "expected"),
    [
        ({}, WHOLE, ""),
        ({}, LONG, "--window 1M/99M"),
        ({}, 123 * LONG, "--window 1M/12000M"),
        ({"follow_children": False, "layout": "as-traced"}, 1, "--no-follow --layout as-traced"),
        ({"between_marks": True}, LONG, "--marks --window 1M/99M"),
        ({"start_after": "ctl", "duration": "1.5min"}, 1, "--start-after ctl --duration 90s"),
        ({"start_after": "0.5s"}, LONG, "--start-after 0.5s --window 1M/99M"),
        ({"duration": "4G"}, LONG, "--window 1M/99M --duration 40M"),
        ({"max_instructions": LONG}, LONG, "--window 1M/99M --max-instructions 40M"),
        ({"max_instructions": WHOLE}, WHOLE, "--max-instructions 60M"),
        ({"skip_instructions": 7, "max_instructions": 123_456}, 123_456,
         "--skip-instructions 7 --max-instructions 0.123456M"),
        ({"start_after": "9k"}, LONG, "--skip-instructions 9000 --max-instructions 40M"),
    ],
)  # fmt: skip
def test_the_same_part_is_simulated(
    scope: dict[str, Any], instructions: int, expected: str
) -> None:
    _, options = line(instructions, "server", **scope).split(" --design base4k,thp ")
    assert options == " ".join(filter(None, (expected, "-- server")))


def test_a_run_that_cannot_be_simulated_alike_has_no_line(calibrated: Path) -> None:
    assert line(LONG, "server")
    assert line(LONG, "server", window="1M/9M") == ""
    assert line(LONG, "server", tracer="lackey") == ""
    calibrated.unlink()
    assert line(LONG, "server") == ""


@pytest.mark.parametrize("instructions", [WHOLE, LONG])
def test_the_line_works_when_pasted(instructions: int) -> None:
    pasted = line(instructions, "ls", "/", duration="1M")
    done = subprocess.run(
        ["sh", "-c", pasted], capture_output=True, text=True, timeout=300, env={**os.environ}
    )
    assert done.returncode == 0, done.stderr
    assert "Which design? " in done.stderr + done.stdout
    assert "On host" in done.stderr + done.stdout
