"""`--native-time`: gains as shares of a time that the user knows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import Result

import octavo
from called import invoke

TRACE = "synth:gups?table=64MiB&updates=100k"


def command(*arguments: str) -> Result:
    return invoke(*arguments)


def test_gains_are_shares_of_the_time() -> None:
    gains = {
        seconds: octavo.run(TRACE, tlb="zen3", native_seconds=seconds).advice[0]["gain"]
        for seconds in (1.0, 2.0)
    }
    for name in ("low", "expected", "high"):
        assert gains[1.0][name] == pytest.approx(2 * gains[2.0][name])
    assert gains[2.0]["expected"] > 0


def test_the_kernels_time_is_a_part_of_the_whole() -> None:
    alone, with_kernel = (
        octavo.run(TRACE, tlb="zen3", native_seconds=seconds).advice[0]["gain"]
        for seconds in (1.0, (0.25, 0.75))
    )
    assert with_kernel == pytest.approx(alone)


def test_zero_kernel_time_equals_no_kernel_time(tmp_path: Path) -> None:
    """`time` prints hundredths of a second, so a time below 5 ms is 0."""
    gains = []
    for times in ("250ms", "250ms,0s"):
        place = tmp_path / "out.json"
        options = ("--force", "--tlb", "zen3", "--native-time", times, "--json", str(place))
        assert command("run", *options, TRACE).exit_code == 0
        gains.append(json.loads(place.read_text())["advice"])
    assert gains[0] == gains[1]


def test_the_document_has_the_time() -> None:
    assert octavo.run(TRACE, tlb="zen3").advice[0]["native_seconds"] is None
    assert octavo.run(TRACE, tlb="zen3", native_seconds=0.5).advice[0]["native_seconds"] == {
        "user": 0.5,
        "system": 0.0,
    }


def test_a_time_that_no_processor_reaches_is_not_used() -> None:
    found = octavo.run(TRACE, tlb="zen3", native_seconds=1e-9)
    assert found.advice[0]["native_seconds"] is None
    assert found.advice[0]["gain"] == octavo.run(TRACE, tlb="zen3").advice[0]["gain"]
    message = "NATIVE TIME: no processor takes only 1e-09 s for the"
    assert any(warning.startswith(message) for warning in found.manifest["warnings"])


def test_the_option_is_a_duration(tmp_path: Path) -> None:
    place = tmp_path / "out.json"
    done = command(
        "run", "--tlb", "zen3", "--native-time", "250ms,1.5s", "--json", str(place), TRACE
    )
    assert done.exit_code == 0
    assert json.loads(place.read_text())["advice"][0]["native_seconds"] == {
        "user": 0.25,
        "system": 1.5,
    }


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--native-time", "soon"), "--native-time: `soon` is not a duration"),
        (("--native-time", "0s"), "--native-time"),
        (("--native-time", "0s,1s"), "--native-time: `0s` is not a time"),
        (("--native-time", "1s,"), "--native-time: `` is not a duration"),
        (("--native-time", "1s,2s,3s"), "--native-time must be a time above 0"),
        (("--native-time", "1s", "--entries", "64"), "--native-time is for gains of time"),
        (("--native-time", "1s", "--tlb", "itanium2"), "--native-time is for gains of time"),
    ],
)
def test_wrong_times_are_refused(options: tuple[str, ...], message: str) -> None:
    done = command("run", *options, TRACE)
    assert done.exit_code == 2
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "seconds", [0.0, -1.0, float("nan"), float("inf"), [], (1.0, -1.0), [1, 2, 3]]
)
def test_times_in_python_are_positive(seconds: float | list[float]) -> None:
    with pytest.raises(octavo.OctavoError, match="--native-time must be a time above 0"):
        octavo.run(TRACE, tlb="zen3", native_seconds=seconds)
