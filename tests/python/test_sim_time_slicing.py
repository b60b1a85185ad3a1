"""Processes of several traces that share the machines of `octavo sim`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import octavo
from called import invoke
from octavo.base.errors import CannotRun, UsageError
from octavo.report.sim import render_sim
from octavo.report.sim_data import report_data
from octavo.simulation.api import SimResult
from octavo.simulation.configuration import configure_sim
from octavo.simulation.view import grids, headline
from sim_fakes import STRIDED, counters_of


@pytest.fixture(scope="module")
def time_sliced() -> SimResult:
    """A quarter of the run is warm-up; six intervals follow."""
    return octavo.sim(
        [STRIDED, STRIDED], processes="asid", quantum=4096, warm_up=20480, interval=10240
    )


def test_time_sliced_processes_share_a_machine() -> None:
    """Two processes of 1024 pages each, with a quantum of a whole round: both have their faults,
    and if a switch flushes, all pages are walked for again after each switch.
    """
    results = {
        kind: octavo.sim(
            [STRIDED, STRIDED], designs=["base4k"], check=True, processes=kind, quantum=4096
        )
        for kind in ("asid", "flush")
    }
    for result in results.values():
        assert counters_of(result, "base4k", "os", "faults", "out_of_memory") == [2 * 1025, 0]
        assert counters_of(result, "base4k", "tlb.l1d", "accesses", "misses") == [20480, 20480]
        assert result.by_process == [[], []]
    walks = {
        kind: counters_of(result, "base4k", "walker", "walks")[0]
        for kind, result in results.items()
    }
    assert walks["asid"] < walks["flush"]
    assert results["flush"].total[0].count("tlb.l2", "misses") == 20 * 1025


@pytest.mark.parametrize("quantum", [4095, 4096, 8192])
def test_a_process_that_ends_with_its_quantum_leaves_the_core_to_the_other(quantum: int) -> None:
    """The process has nothing to run in its next quantum. The other process continues in its own
    address space.
    """
    traces = [f"synth:uniform?table=1MiB&references={refs}" for refs in (2048, 5120)]
    alone = [octavo.sim(trace, designs=["base4k"], check=True) for trace in traces]
    sim = octavo.sim(traces, designs=["base4k"], check=True, processes="asid", quantum=quantum)
    for component, counter in (("tlb.l1d", "accesses"), ("os", "faults")):
        apart = [counters_of(one, "base4k", component, counter)[0] for one in alone]
        assert counters_of(sim, "base4k", component, counter) == [sum(apart)]
    curves = octavo.curves(traces, processes="asid", quantum=quantum, entries=64)
    counted = [
        row["value"]
        for row in curves.rows
        if row.get("counter") == "instructions" and "process" not in row
    ]
    assert counted == [4 * (2048 + 5120)]


def test_time_sliced_processes_warm_up_together() -> None:
    """Two processes of 40960 instructions each, four to a load: a quarter of all is warm-up."""
    result = octavo.sim(
        [STRIDED, STRIDED], designs=["base4k"], processes="asid", quantum=4096, warm_up=20480
    )
    assert result.total[0].instructions == 2 * 40960 - 20480
    rows = [row for row in result.rows if row["component"] == "stream" and "process" not in row]
    stream = {row["counter"]: row["value"] for row in rows}
    assert stream["instructions"] == stream["fetches"] == 2 * 40960 - 20480
    assert stream["references"] == stream["fetches"] + stream["loads"] + stream["stores"]
    assert counters_of(result, "base4k", "tlb.l1d", "accesses") == [stream["loads"]]


def test_the_first_quantum_has_its_own_length() -> None:
    """Two processes that end within their first quantum have the misses of two single runs."""
    alone = octavo.sim(STRIDED, designs=["base4k"])
    both = octavo.sim(
        [STRIDED, STRIDED],
        designs=["base4k"],
        processes="flush",
        quantum=4096,
        first_quantum=alone.total[0].instructions,
    )
    of = ("base4k", "tlb.l2", "misses")
    assert counters_of(both, *of) == [2 * counters_of(alone, *of)[0]]
    assert "after a first turn of 40960 each" in "".join(both.configuration.notes())


def test_time_slicing_needs_traces() -> None:
    with pytest.raises(UsageError, match="--processes asid is for traces"):
        octavo.sim(["true"], processes="asid")
    with pytest.raises(UsageError, match="--quantum needs --processes asid or flush"):
        octavo.sim(STRIDED, quantum=5)
    with pytest.raises(UsageError, match="--first-quantum needs --processes asid or flush"):
        octavo.sim(STRIDED, first_quantum=5)


def test_the_table_sums_time_sliced_processes(time_sliced: SimResult) -> None:
    first, *others = grids(time_sliced)
    assert first.title == "On skylake, all processes time-sliced"
    assert [grid.title.split(" ")[0] for grid in others] == ["Execution"]
    walks = next(row for row in first.rows if row[0] == "cycles of walks")
    assert len(walks) == 3
    # Of 102.4 k references and 81.9 k instructions.
    line = headline(time_sliced)
    assert line.startswith("76.8 k references, 61.4 k instructions, 2 processes, after 20.5 k ")


def test_the_report_has_the_intervals_of_all_processes(time_sliced: SimResult) -> None:
    data = json.loads(json.dumps(report_data(time_sliced)))
    assert data["lived"] is None
    walks = [
        value
        for value in data["series"]
        if value["design"] == "base4k" and value["what"].startswith("page walks")
    ]
    assert [value["at"] for value in walks] == list(range(20480, 81920, 10240))
    assert "process that made most" not in render_sim(data)
    assert len({value["what"] for value in data["series"]}) == 3


def test_the_command_shows_and_writes_time_sliced_processes(tmp_path: Path) -> None:
    words = ["sim", "--processes", "flush", "--out", str(tmp_path / "out"), STRIDED, STRIDED]
    done = invoke(*words)
    assert done.exit_code == 0, done.stderr
    assert "all processes time-sliced" in done.stderr
    assert "all processes time-sliced" in (tmp_path / "out" / "report.html").read_text()


def test_a_run_within_the_warm_up_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(CannotRun, match="within the 81,920 instructions to skip and to warm up"):
        octavo.sim([STRIDED, STRIDED], processes="asid", warm_up=81920)
    words = ["sim", "-q", "--processes", "asid", "--warm-up", "900G", "-o", str(tmp_path / "out")]
    done = invoke(*words, STRIDED, STRIDED)
    assert done.exit_code == 125
    assert done.stderr.startswith("octavo: no reference of `synth:")
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("processes", "wording"),
    [
        (
            "flush",
            "flushed at a switch of a core to another process, which is rare if each process "
            "has a core.",
        ),
        ("asid", "tagged with identifiers."),
    ],
)
def test_notes_describe_processes_on_several_cores(processes: str, wording: str) -> None:
    notes = "\n".join(configure_sim(processes=processes, quantum=20_000, cores=2).notes())
    assert "share a core" not in notes
    assert "Processes run one at a time, round robin, with a quantum of 20000 instructions" in notes
    assert f"one machine for all of them; translations are {wording}" in notes
    assert "Threads of all processes are placed on the 2 cores one after another" in notes
    alone = "\n".join(configure_sim(processes=processes, quantum=20_000).notes())
    assert "Processes share a core round robin" in alone


def test_processes_on_cores_of_their_own_are_hardly_flushed() -> None:
    def walks(processes: str, cores: int) -> int:
        traces = ["synth:zipf?bytes=1MiB&references=20k", STRIDED]
        made = octavo.sim(traces, processes=processes, quantum=1000, cores=cores)
        return made.design("base4k").walks

    assert walks("flush", 2) - walks("asid", 2) <= 2
    assert walks("flush", 1) - walks("asid", 1) > 200
