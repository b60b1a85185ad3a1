"""`octavo sim --virtualised`: programs in the guest of a virtual machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import octavo
from called import octavo_sim
from octavo.base.errors import OctavoError, UsageError
from octavo.simulation.view import grids

TRACE = "synth:zipf?table=16MiB&references=20k"


def test_a_guest_walks_two_tables() -> None:
    native = octavo.sim(TRACE, designs=["thp"], check=True)
    nested = octavo.sim(TRACE, designs=["thp"], check=True, host_policy="base")
    assert "host" not in native.configuration.machine
    assert nested.configuration.machine["host"]["policy"] == "base"
    plain, guest = native.design("thp"), nested.design("thp")
    assert guest.count("walker", "references") > plain.count("walker", "references")
    assert guest.count("walker", "references") == sum(
        guest.count(f"walker.{part}", "references") for part in ("guest", "host")
    )
    assert guest.count("walker", "splintered") > 0
    assert guest.count("host.os", "faults") > 0
    # The guest's own work is the same as without a host.
    assert guest.count("os", "faults") == plain.count("os", "faults")
    assert guest.count("os", "page_table_bytes") == plain.count("os", "page_table_bytes")
    assert plain.count("host.os", "faults") == 0


def test_parts_of_large_host_pages_are_not_splintered() -> None:
    """The nested TLB holds 2 MiB of pages of 256 MiB, as if they were pages of 2 MiB."""
    trace = "synth:strided?bytes=512MiB&stride=4KiB&references=400k"
    tps = octavo.sim(trace, designs=["tps"], virtualised=True, check=True).design("tps")
    assert (
        tps.count("host.os.pages.256MiB", "mapped") + tps.count("host.os.pages.512MiB", "mapped")
        > 0
    ), "the host has such pages"
    assert tps.count("walker", "splintered") == 0


FAULTS = '{kind = "faults", portion = 0.02, layout = "dispersed"}'


REJECTS_GUESTS = {"mosaic"}


def test_every_other_design_runs_in_a_guest() -> None:
    for name in sorted({name for name, _ in octavo._core.designs()} - REJECTS_GUESTS):
        one = octavo.sim(TRACE, designs=[name], virtualised=True, check=True).design(name)
        assert one.stopped is None, name
        assert one.count("host.os", "resident_bytes") > 0, name


def test_faults_of_a_host_prevent_huge_pages_but_not_gapped_ones() -> None:
    settings = ["host.memory.bytes=64MiB", "memory.bytes=32MiB"]
    settings.append(f"host.memory.fragmentation={FAULTS}")
    designs = ["thp", "gtsm"]
    result = octavo.sim(TRACE, designs=designs, virtualised=True, check=True, settings=settings)
    thp, gtsm = (result.design(name) for name in designs)
    assert gtsm.count("host.os.pages.gapped", "mapped") > 0
    assert gtsm.count("os.pages.2MiB", "mapped") == thp.count("os.pages.2MiB", "mapped") > 0
    assert thp.count("walker", "splintered") > gtsm.count("walker", "splintered") == 0
    assert gtsm.count("walker", "walks") < thp.count("walker", "walks") / 2


def test_the_table_shows_the_host() -> None:
    result = octavo.sim(TRACE, designs=["thp"], host_policy="base")
    names = [row[0] for grid in grids(result) for row in grid.rows]
    assert "faults of the host" in names
    assert any("the guest of a virtual machine" in note for note in result.manifest["notes"])
    native = octavo.sim(TRACE, designs=["thp"])
    assert "faults of the host" not in [row[0] for grid in grids(native) for row in grid.rows]


@pytest.mark.parametrize(
    ("options", "key", "value"),
    [
        (("--virtualised", "--set", "host.tlbs_hold=halves"), "tlbs_hold", "halves"),
        (("--host-policy", "thp:max_ptes_none=0"), "policy", "thp:max_ptes_none=0"),
    ],
)
def test_options_become_settings(
    options: tuple[str, ...], key: str, value: str, tmp_path: Path
) -> None:
    file = tmp_path / "result.json"
    status, shown = octavo_sim(*options, "--json", str(file), TRACE)
    assert status == 0, shown
    machine = json.loads(file.read_text())["run"]["configuration"]["machine"]
    assert machine["host"][key] == value


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--host-policy", "eagr"], "did you mean `eager`?"),
        (
            ["--host-policy", "base", "--design", "rmm"],
            "host.policy = base: rmm needs ranges of contiguous pages of the "
            'host, too: give the policy eager, or "design"',
        ),
        (
            ["--host-policy", "tps", "--design", "thp"],
            "host.policy = tps: it makes pages of 8KiB, which the page tables of conventional "
            "do not support",
        ),
        (["--set", "host.memory.bytes=5"], "host.memory.bytes"),
        (
            ["--virtualised", "--design", "gtsm", "--set", f"memory.fragmentation={FAULTS}"],
            "memory.fragmentation = faults: with gtsm only host memory may have "
            "faults: give host.memory.fragmentation instead",
        ),
        (
            ["--virtualised", "--design", "base4k,mosaic"],
            "mosaic: a guest's page may be in any frame of the host, and not in one of 104 that "
            "its hash chooses: give another design, or a machine without a guest",
        ),
    ],
)
def test_impossible_configurations_are_refused(options: list[str], sentence: str) -> None:
    status, shown = octavo_sim(*options, TRACE)
    assert status == 2
    assert sentence in " ".join(shown.split()), shown


def test_a_host_without_memory_stops_a_design() -> None:
    result = octavo.sim(TRACE, designs=["base4k"], settings={"host.memory.bytes": "4MiB"})
    stopped = result.design("base4k").stopped
    assert stopped is not None
    assert stopped.startswith("the host: ")


def test_settings_of_python_are_those_of_the_command_line() -> None:
    with pytest.raises(OctavoError, match=r"host\.tlbs_hold"):
        octavo.sim(TRACE, settings={"host.tlbs_hold": "both"})


@pytest.mark.parametrize(
    ("choice", "option"),
    [({"virtualised": True}, "--virtualised"), ({"host_policy": "thp"}, "--host-policy")],
)
def test_a_host_both_requested_and_removed_is_refused(choice: dict[str, Any], option: str) -> None:
    with pytest.raises(UsageError, match=f"{option} wants a host"):
        octavo.sim(TRACE, **choice, settings=["host=none"])
