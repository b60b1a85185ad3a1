"""The calibration file: a written file can be read again, and errors in files are named."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from octavo.base.errors import CannotRun, UsageError
from octavo.calibration.file import (
    Calibration,
    CalibrationFile,
    MeasuredHost,
    Reach,
    Spread,
    calibration_toml,
    default_path,
    load_calibration,
    parse_calibration,
    processor,
)

KIB, MIB = 1 << 10, 1 << 20
CPUINFO = """\
vendor_id	: AuthenticAMD
cpu family	: 25
model		: 1
model name	: AMD EPYC
stepping	: 1
"""
CALIBRATION = Calibration(
    host=MeasuredHost(
        cpu_model="AMD EPYC",
        cpu_id="AuthenticAMD family 25 model 1 stepping 1",
        measured_at="2026-11-23T06:50:00Z",
        kernel="6.18.44",
        octavo="0.1.0",
        virtualised=True,
    ),
    cycles_per_second=3.25e9,
    tsc_per_second=2.45e9,
    walk_cycles={4 * KIB: Spread(21.5, 34, 310), 2 * MIB: Spread(20, 30, 40)},
    walk_cycles_by_footprint={
        4 * KIB: {12 * MIB: Spread(11, 100, 110), 512 * MIB: Spread(60, 400, 500)}
    },
    second_level_hit_cycles={4 * KIB: Spread(6.5, 7, 7.5)},
    tlb={
        4 * KIB: Reach(Spread(64, 64, 72), Spread(1920, 2048, 2304)),
        2 * MIB: Reach(Spread(64, 64, 72), None),
    },
    latency_cycles={4 * KIB: Spread(4, 4, 4.1), 96 * MIB: Spread(250, 300.5, 1234)},
    load_cycles={
        4 * KIB: {16 * MIB: Spread(20, 60, 70), 64 * MIB: Spread(80, 600, 640)},
        2 * MIB: {16 * MIB: Spread(19, 55, 60), 64 * MIB: Spread(70, 500, 540)},
    },
    notes=('A "note" with \\ and – in it.',),
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cpuinfo").write_text(CPUINFO)
    return tmp_path


@pytest.fixture
def file(tmp_path: Path) -> Path:
    place = tmp_path / "calibration.toml"
    place.write_text(calibration_toml(CALIBRATION), encoding="utf-8")
    return place


def test_a_written_calibration_is_read_back(file: Path, root: Path) -> None:
    assert load_calibration(file, root=root) == replace(CALIBRATION, path=file)


def test_a_walk_has_seconds() -> None:
    assert CALIBRATION.walk_seconds(2 * MIB) == Spread(20 / 3.25e9, 30 / 3.25e9, 40 / 3.25e9)
    assert CALIBRATION.walk_seconds(1 << 30) is None


def test_the_cost_of_a_walk_is_that_of_the_nearest_footprint() -> None:
    small, large = CALIBRATION.walk_cycles_by_footprint[4 * KIB].values()
    for megabytes, cost in ((0, small), (12, small), (70, small), (90, large), (9999, large)):
        assert CALIBRATION.walk_at(4 * KIB, megabytes * MIB) == cost
    assert CALIBRATION.walk_at(2 * MIB, 12 * MIB) == CALIBRATION.walk_cycles[2 * MIB]
    assert CALIBRATION.walk_at(1 << 30, 12 * MIB) is None


def test_the_default_file_is_that_of_the_user(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert default_path({"XDG_CONFIG_HOME": "/etc/xdg"}) == Path("/etc/xdg/octavo/calibration.toml")
    monkeypatch.setenv("HOME", "/home/me")
    for home in ({}, {"XDG_CONFIG_HOME": ""}, {"XDG_CONFIG_HOME": "relative"}):
        assert default_path(home) == Path("/home/me/.config/octavo/calibration.toml")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(root))
    assert load_calibration(root=root) is None
    CalibrationFile(None).write(CALIBRATION)
    assert load_calibration(root=root) == replace(
        CALIBRATION, path=root / "octavo/calibration.toml"
    )


def test_another_processor_is_ignored_with_a_note(file: Path, root: Path) -> None:
    for other in (
        CPUINFO.replace("EPYC", "Ryzen"),
        CPUINFO.replace("stepping	: 1", "stepping	: 2"),
    ):
        (root / "proc/cpuinfo").write_text(other)
        notes: list[str] = []
        assert load_calibration(file, note=notes.append, root=root) is None
        assert len(notes) == 1
        assert "is ignored: it was measured on AMD EPYC" in notes[0]
        assert load_calibration(file, root=root) is None


def test_the_processor_of_this_machine_has_a_name() -> None:
    model, identity = processor()
    assert model
    assert re.fullmatch(r".+ family .+ model .+ stepping .+", identity)


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("format = 1", "format = 2", "its `format` is 2, this version reads 1"),
        ("format = 1", "", "its `format` is none, this version reads 1"),
        ("format = 1", "format = ", "it is no TOML: "),
        ("[host]", "[guest]", "`host.cpu_model` is missing"),
        ('kernel = "6.18.44"', "kernel = 6", "`host.kernel` is not a string"),
        ("virtualised = true", "virtualised = 1", "`host.virtualised` is neither true nor false"),
        ("= 3250000000", "= '3'", "`cycles_per_second` is not a number"),
        ("= 3250000000", "= 0", "`cycles_per_second` is not positive"),
        ("tsc_per_second", "tsc", "`tsc_per_second` is missing"),
        ("low = 21.5", "low = nan", "`walk_cycles.4KiB.low` is nan: give a finite number"),
        ("low = 21.5", "low = -1", "`walk_cycles.4KiB.low` is -1: give a finite number"),
        ("low = 21.5", "low = true", "`walk_cycles.4KiB.low` is not a number"),
        ("low = 21.5", "low = 99", "`walk_cycles.4KiB` is not in the order low <= median <= high"),
        ("low = 21.5, ", "", "`walk_cycles.4KiB.low` is missing"),
        ('"2MiB" = {first', '"3MiB" = {first', "`tlb.3MiB` has a wrong key: give one of 4KiB,"),
        ('"12MiB"', '"x"', "`walk_cycles_by_footprint.4KiB.x` has a wrong key: `x` is not a size"),
        ('"96MiB"', '"much"', "`latency_cycles.much` has a wrong key: `much` is not a size"),
        (
            "second = {low = 1920, median = 2048, high = 2304}",
            "second = 5",
            "`tlb.4KiB.second` is no",
        ),
        ("notes = [", "notes = [5,", "`notes` is not a list of strings"),
    ],
)
def test_an_error_in_a_file_is_named(
    file: Path, root: Path, old: str, new: str, sentence: str
) -> None:
    text = file.read_text(encoding="utf-8")
    assert old in text
    file.write_text(text.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(UsageError) as raised:
        load_calibration(file, root=root)
    message = str(raised.value)
    assert message.startswith(f"`{file}` is not a calibration: ")
    assert sentence in message
    assert message.endswith("; `octavo calibrate --force` writes a new one.")


def test_unreadable_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CannotRun, match=r"cannot read `.*/none`: No such file"):
        load_calibration(tmp_path / "none")
    with pytest.raises(CannotRun, match="it is not a regular file"):
        load_calibration("/dev/null")
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match="it is not text in UTF-8"):
        load_calibration(tmp_path / "bytes")


def test_a_file_that_is_named_is_overwritten_with_force_only(
    file: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match="exists; --force overwrites it"):
        CalibrationFile(str(file))
    assert CalibrationFile(str(file), force=True).replaced_date == "2026-11-23T06:50:00Z"
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "new"))
    first = CalibrationFile(None)
    assert (first.path, first.replaced_date) == (default_path(), None)
    first.write(CALIBRATION)
    assert CalibrationFile(None).replaced_date == "2026-11-23T06:50:00Z"
    assert parse_calibration(first.path.read_text(encoding="utf-8"), first.path).notes
    first.path.write_text("something else")
    assert CalibrationFile(None).replaced_date is None
    with pytest.raises(UsageError, match="--out is empty"):
        CalibrationFile("")


def test_loads_are_read_between_measured_working_sets() -> None:
    def at(size: int) -> tuple[float, float, float] | None:
        found = CALIBRATION.load_at(4 * KIB, size)
        return None if found is None else (found.low, found.median, found.high)

    assert at(16 * MIB) == (20, 60, 70)
    assert at(32 * MIB) == pytest.approx((50, 330, 355))
    assert at(1 << 40) == (80, 600, 640)
    assert at(8 * MIB) is None
    assert CALIBRATION.load_at(1 << 30, 32 * MIB) is None


def test_loads_walk_where_the_second_level_does_not_reach() -> None:
    assert CALIBRATION.walk_share(8 * MIB) == 0
    assert CALIBRATION.walk_share(32 * MIB) == 0.75
    assert replace(CALIBRATION, tlb={}).walk_share(32 * MIB) is None
