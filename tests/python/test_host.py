"""Facts about the machine."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

import octavo
from called import invoke
from octavo.analysis import walk_costs
from octavo.base.host import reports_free_memory
from octavo.runs import result


@pytest.mark.parametrize(
    ("device", "features", "reports"),
    [
        ("0x0005", "0110010100", True),
        ("0x0005", "0110000100", False),
        ("0x0005", "011", False),
        ("0x0002", "0010011001", False),
    ],
)
def test_a_balloon_with_free_page_reporting_is_recognised(
    tmp_path: Path, device: str, features: str, *, reports: bool
) -> None:
    assert not reports_free_memory(tmp_path)
    for name, (of_device, of_features) in {
        "virtio0": (device, features),
        "virtio1": ("0x0001", "1111111111"),
    }.items():
        place = tmp_path / "sys/bus/virtio/devices" / name
        place.mkdir(parents=True)
        (place / "device").write_text(f"{of_device}\n")
        (place / "features").write_text(f"{of_features}\n")
    assert reports_free_memory(tmp_path) == reports


@pytest.mark.parametrize(("reports", "is_of_host"), [(False, True), (True, True), (True, False)])
def test_the_answer_warns_of_a_host_that_may_take_memory_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, reports: bool, is_of_host: bool
) -> None:
    """The answer for another machine has no warning of this one."""
    this = SimpleNamespace(machine="zen3" if is_of_host else "zen4")
    monkeypatch.setattr(walk_costs, "machine_for", lambda processor: this)
    monkeypatch.setattr(result, "reports_free_memory", lambda: reports)
    synthetic, trace = "synth:gups?table=64MiB&updates=1M", tmp_path / "gups.oct"
    assert invoke("convert", synthetic, trace, "--quiet").exit_code == 0
    found = octavo.run(trace, tlb="zen3").advice[0]
    assert found["changes"]
    warning = "This virtual machine reports free memory to its host"
    assert (warning in found["text"]) == (reports and is_of_host)
    # No program runs on this machine as the synthetic trace does.
    assert warning not in octavo.run(synthetic, tlb="zen3").advice[0]["text"]


@pytest.mark.parametrize("is_of_host", [False, True])
@pytest.mark.parametrize(
    ("trace", "skipped", "changes"),
    [
        ("synth:gups?table=64MiB&updates=1M", 0, True),
        ("synth:gups?table=8704KiB&updates=400k&instructions=256", 10_000_000, False),
    ],
)
def test_an_uncertain_answer_names_the_calibration_of_this_processor(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    trace: str,
    skipped: int,
    *,
    changes: bool,
    is_of_host: bool,
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    this = SimpleNamespace(machine="zen3" if is_of_host else "zen4")
    monkeypatch.setattr(walk_costs, "machine_for", lambda processor: this)
    monkeypatch.setattr(walk_costs, "cpu_field", lambda name: None)
    found = octavo.run(trace, tlb="zen3", skip_instructions=skipped).advice[0]
    assert found["changes"] is changes
    assert found["gain"]["low"] < 0.01 < found["gain"]["high"]
    assert ("octavo calibrate measures these costs" in found["text"]) == is_of_host
