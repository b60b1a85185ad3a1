"""`octavo.sweep`: its simulations equal those of `octavo.sim`, and each is run once."""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import octavo
from octavo._core import MODEL, OctavoError, designs
from octavo.base.errors import CannotRun, Interrupted, UsageError
from octavo.hardware.machines import resolve_machine
from octavo.sweeps.api import _left
from octavo.sweeps.content import file_hash, local_trace, trace_hash
from octavo.sweeps.data_set import DataSet
from octavo.sweeps.estimate import Speeds, references_of, seconds_left
from octavo.sweeps.local import MOST_ATTEMPTS, Answer, LocalWorkers, Progress
from octavo.sweeps.plan import crossed, resolve, variants
from octavo.sweeps.running import SweepProgress, prepare, run_prepared
from octavo.sweeps.tasks import MOST_SIMULATIONS, Failed, Task, divide, run_task, simulated_portion
from sim_fakes import STRIDED
from traces_made import convert, write_csv

ZIPF = "synth:zipf?bytes=16MiB&references=20k"
TRACES = {"strided": STRIDED, "zipf": ZIPF}
RECORDED = Path(__file__).parent.parent / "golden/traces/events.oct"
"""It has register dependences, unlike `TRACES`."""
FAR = {"memory.tiers.far.bytes": "1GiB", "memory.tiers.far.added_latency_cycles": 100}
ENTRIES = {"tlb.l2.main.entries": [768, 1536]}


def files(directory: Path) -> dict[str, bytes]:
    """Names and contents of the data files."""
    data = directory / "data"
    return {
        str(path.relative_to(data)): path.read_bytes() for path in data.rglob("*") if path.is_file()
    }


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> octavo.SweepResult:
    out = tmp_path_factory.mktemp("results")
    return octavo.sweep(TRACES, ["skylake", "zen3"], ["base4k", "thp"], ENTRIES, out=out)


def test_one_row_is_one_simulation(swept: octavo.SweepResult) -> None:
    table = swept.table()
    labels = table.select(["trace", "machine", "tlb.l2.main.entries", "design"]).to_pylist()
    assert [tuple(row.values()) for row in labels] == [
        (trace, machine, entries, design)
        for trace in TRACES
        for machine in ("skylake", "zen3")
        for entries in (768, 1536)
        for design in ("base4k", "thp")
    ]
    assert swept.failed == {}
    assert not swept.is_partial


def test_a_value_given_twice_has_one_row() -> None:
    settings = {"core.base_cpi": [1, 2, 1]}
    result = octavo.sweep([ZIPF, ZIPF], "skylake", ["thp", "thp"], settings)
    assert result.table()["core.base_cpi"].to_pylist() == [1, 2]
    assert repr(result) == "<SweepResult: 2 simulations>"
    listed = octavo.sweep(ZIPF, "skylake", "thp", [{"core.base_cpi": 1}] * 2)
    assert listed.table().num_rows == 1


def counted(rows: list[Any]) -> list[dict[str, Any]]:
    """The counters of a row, without labels and missing values."""
    names = ("process", "interval", "component", "counter", "value")
    return [{key: row[key] for key in names if row.get(key) is not None} for row in rows]


@pytest.mark.parametrize("timing", ["additive", "out-of-order"])
def test_every_design_counts_what_sim_counts(timing: str) -> None:
    """All designs share one reading of the trace with each other and with another machine."""
    names = [name for name, _ in designs()]
    counting: dict[str, Any] = {"warm_up": 5000, "interval": 20_000, "timing": timing}
    swept = octavo.sweep(ZIPF, ["skylake", "zen3"], names, **counting).rows().to_pylist()
    for machine in ("skylake", "zen3"):
        for name in names:
            alone = octavo.sim(ZIPF, machine, [name], **counting).rows
            found = [row for row in swept if (row["machine"], row["design"]) == (machine, name)]
            assert counted(found) == counted(alone), (machine, name)


MIX = {"alone": STRIDED, "pair": [STRIDED, ZIPF], "twice": [ZIPF, ZIPF]}
SHARED: list[dict[str, Any]] = [
    {"processes": "asid", "quantum": 4096},
    {"processes": "flush", "quantum": 4096, "first_quantum": 10_000, "warm_up": 5000},
    {"processes": "asid", "interval": 20_000, "cores": 2, "warm_up": 4000, "fast_forward": True},
    {"processes": "asid", "virtualised": True, "host_policy": "thp", "timing": "out-of-order"},
]


@pytest.mark.parametrize("choices", SHARED)
def test_processes_that_share_machines_count_what_sim_counts(choices: dict[str, Any]) -> None:
    """Machines of one reading have their own cores, TLBs and hosts."""
    settings = {"tlb.l2.main.entries": [768, 1536]}
    swept = octavo.sweep(MIX, "skylake", ["base4k", "thp"], settings, **choices)
    assert swept.failed == {}
    rows = swept.rows().to_pylist()
    for trace, names in MIX.items():
        for entries in (768, 1536):
            machine = {"tlb.l2.main.entries": entries}
            for design in ("base4k", "thp"):
                found = [
                    row
                    for row in rows
                    if (row["trace"], row["tlb.l2.main.entries"], row["design"])
                    == (trace, entries, design)
                ]
                alone = octavo.sim(names, "skylake", [design], machine, **choices)
                assert counted(found) == counted(alone.rows), (trace, entries, design)


def test_machines_of_several_cores_are_swept_by_their_number() -> None:
    """Also if each process has its own machines, with a trace of several threads."""
    settings = {"core.count": [1, 2]}
    swept = octavo.sweep(str(RECORDED), "skylake", "thp", settings).rows().to_pylist()
    for cores in (1, 2):
        alone = octavo.sim(str(RECORDED), "skylake", ["thp"], cores=cores).rows
        found = [row for row in swept if row["core.count"] == cores]
        assert counted(found) == counted(alone)


def test_several_traces_share_machines_only_where_processes_do(tmp_path: Path) -> None:
    for processes, sentence in (
        ({}, "`pair` is several traces: with --processes asid or flush they share a core"),
        ({"processes": "asid", "settings": {"core.address_spaces": "flushed"}}, "contradict"),
        ({"processes": "asid", "warm_up": 10**9}, "it ends within the 1,000,000,000 instructions"),
        ({"quantum": 5}, "--quantum needs --processes asid or flush"),
    ):
        given: dict[str, Any] = {"designs": "thp", **processes}
        with pytest.raises(OctavoError, match=sentence):
            octavo.sweep({"pair": [STRIDED, ZIPF]}, **given)
    with pytest.raises(UsageError, match="a sweep needs traces"):
        octavo.sweep({"pair": []}, processes="asid")


def test_metrics_are_those_of_sim(swept: octavo.SweepResult) -> None:
    sim = octavo.sim(STRIDED, "skylake", ["base4k", "thp"], {"tlb.l2.main.entries": 768})
    rows = swept.table().slice(0, 2).to_pylist()
    for row, one in zip(rows, sim.total, strict=True):
        assert row["translation_share"] == one.translation_share
        assert row["cycles"] == one.cycles
        assert row["memory_bytes"] == one.memory_bytes
        assert row["walks_per_1000_instructions"] == 1000 * one.walks / one.instructions
        assert row["walker.walks"] == one.walks == row["walks"]


def test_different_timings_are_a_column(swept: octavo.SweepResult) -> None:
    assert "timing" not in swept.table().column_names
    assert "timing" not in swept.rows().column_names
    mixed = octavo.sweep(str(RECORDED), ["skylake", "r3000"], "base4k", {"memory.bytes": "1GiB"})
    for table in (mixed.table(), mixed.rows()):
        found = {(row["machine"], row["timing"]) for row in table.to_pylist()}
        assert found == {("skylake", "out-of-order"), ("r3000", "additive")}


def test_nothing_is_simulated_twice(swept: octavo.SweepResult) -> None:
    out = swept.data_set.directory
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*.parquet")}
    seen: list[SweepProgress] = []
    again = octavo.sweep(
        {"other name": STRIDED}, "skylake", "thp", ENTRIES, out=out, on_progress=seen.append
    )
    assert [progress.total for progress in seen] == [0]
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*.parquet")} == before
    assert again.table()["trace"].to_pylist() == ["other name"] * 2
    assert len(before) == 16


def test_results_do_not_depend_on_other_simulations(
    swept: octavo.SweepResult, tmp_path: Path
) -> None:
    for design in ("thp", "base4k"):
        for entries in (1536, 768):
            octavo.sweep(
                TRACES,
                ["zen3", "skylake"],
                design,
                {"tlb.l2.main.entries": entries},
                out=tmp_path / "one by one",
                workers=1,
            )
    assert files(tmp_path / "one by one") == files(swept.data_set.directory)


def test_the_key_covers_all_that_decides_a_result(tmp_path: Path) -> None:
    def key(
        trace: Any = STRIDED, machine: str = "skylake", design: str = "thp", **more: Any
    ) -> str:
        settings = more.pop("settings", {})
        one = list(crossed({"t": trace}, {"m": machine}, [design], [settings], [None]))
        return resolve(one, {"t": trace}, {"m": machine}, **more).simulations[0].key

    renamed = tmp_path / "renamed.toml"
    text = resolve_machine("skylake", []).toml
    renamed.write_text(text.replace('name = "skylake"', 'name = "mine"'))
    assert key() == key(machine=str(renamed)) == key(settings={"core.base_cpi": 0.5})
    others = [
        key(trace=ZIPF),
        key(machine="zen3"),
        key(design="base4k"),
        key(settings={"core.base_cpi": 0.75}),
        key(warm_up=1000),
        key(interval=1000),
        key(timing="out-of-order"),
        key(max_instructions=1000),
        key(skip_instructions=1000),
        key(layout="as-traced"),
        key(between_marks=True),
        key(cores=2),
        key(virtualised=True),
        key(virtualised=True, host_policy="base"),
        key(processes="asid"),
        key(processes="flush"),
        key(processes="asid", quantum=10**5),
        key(processes="asid", first_quantum=10**5),
        key(trace=[STRIDED, ZIPF], processes="asid"),
        key(trace=[ZIPF, STRIDED], processes="asid"),
        key(warm_up=1000, fast_forward=True),
    ]
    assert key(cores=2) == key(settings={"core.count": 2})
    assert key(processes="asid") == key(trace=[STRIDED], processes="asid", quantum=10**6)
    assert len({key(), *others}) == 1 + len(others)


def test_the_hash_of_a_trace_covers_content_and_suffix_and_not_its_place(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    one = write_csv(tmp_path / "a.csv", [("load", 0x1000, 8)])
    same = write_csv(tmp_path / "sub" / "b.csv", [("load", 0x1000, 8)])
    other = write_csv(tmp_path / "c.csv", [("load", 0x2000, 8)])
    assert trace_hash(one) == trace_hash(same)
    assert trace_hash(one) != trace_hash(other)
    (tmp_path / "a.txt").write_bytes(Path(one).read_bytes())
    assert trace_hash(one) != trace_hash(str(tmp_path / "a.txt"))
    before = trace_hash(str(tmp_path / "sub"))
    Path(same).rename(tmp_path / "sub" / "d.csv")
    assert trace_hash(str(tmp_path / "sub")) != before


def test_a_trace_that_changed_since_planning_is_refused(tmp_path: Path) -> None:
    name = write_csv(tmp_path / "a.csv", [("load", 0x1000, 8)])
    expected = trace_hash(name)
    assert local_trace(name, expected) == name
    write_csv(tmp_path / "a.csv", [("load", 0x1000, 8), ("load", 0x3000, 8)])
    with pytest.raises(CannotRun, match="content differs"):
        local_trace(name, expected)


def test_files_that_machines_name_are_keyed_by_content(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1")
    (tmp_path / "b").write_text("2")
    assert file_hash(tmp_path / "a") != file_hash(tmp_path / "b")


def test_seeds_are_a_column_and_change_memory() -> None:
    fragmented = {
        "memory.fragmentation": {
            "kind": "holes",
            "portion": 0.9,
            "fraction": 0.5,
            "layout": "dispersed",
            "holes": "immovable",
        }
    }
    table = octavo.sweep(ZIPF, "skylake", "base4k", fragmented, seeds=[1, 2, 1]).table()
    assert table["seed"].to_pylist() == [1, 2]
    cycles = table["cycles"].to_pylist()
    assert cycles[0] != cycles[1]


def test_settings_are_crossed_or_taken_as_they_are() -> None:
    assert variants({"a": [1, 2], "b": 3}) == [{"a": 1, "b": 3}, {"a": 2, "b": 3}]
    assert variants([{"a": 1}, {"b": 2}]) == [{"a": 1}, {"b": 2}]
    assert variants(None) == [{}]


@pytest.mark.parametrize("ways", [["full", 4], [4, "full"]])
def test_settings_of_several_types_are_a_column_of_texts(ways: list[Any]) -> None:
    swept = octavo.sweep(ZIPF, "skylake", "base4k", {"tlb.l1d.4k.ways": ways})
    texts = [str(value) for value in ways]
    assert swept.table()["tlb.l1d.4k.ways"].to_pylist() == texts
    assert set(swept.rows()["tlb.l1d.4k.ways"].to_pylist()) == set(texts)


def test_tasks_share_a_trace_and_are_bounded() -> None:
    values = {"core.base_cpi": [0.5 + 0.01 * n for n in range(MOST_SIMULATIONS + 3)]}
    named = dict(TRACES)
    combinations = list(crossed(named, {"skylake": "skylake"}, ["thp"], variants(values), [None]))
    plan = resolve(combinations, named, {"skylake": "skylake"})
    tasks = divide(plan.simulations)
    assert [len(task.simulations) for task in tasks] == [18, 17, 18, 17]
    assert all(len({one.trace for one in task.simulations}) == 1 for task in tasks)
    one_by_one = divide(plan.simulations, most_bytes=1)
    assert {len(task.simulations) for task in one_by_one} == {1}
    keys = {one.key for task in tasks for one in task.simulations}
    assert keys == {one.key for one in plan.simulations}


def test_a_task_is_sent_with_its_machines_compressed() -> None:
    settings = variants({"core.base_cpi": [0.5, 1.0, 1.5, 2.0]})
    trace = {"t": "synth:zipf?references=1k"}
    combinations = crossed(trace, {"m": "skylake"}, ["base4k"], settings, [None])
    (task,) = divide(resolve(list(combinations), trace, {"m": "skylake"}).simulations)
    sent = pickle.dumps(task)
    assert pickle.loads(sent) == task
    # One machine alone takes more.
    assert len(sent) < len(task.simulations[0].machine.toml)


def test_invalid_sweeps_are_refused_before_anything_runs(tmp_path: Path) -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"machines": "skylak"}, "did you mean `skylake`"),
        ({"designs": "thpp"}, "did you mean `thp`"),
        ({"settings": {"tlb.l2.main.entrys": 5}}, "machine skylake with tlb.l2.main.entrys=5"),
        ({"settings": {"core.count": 0}, "designs": "thp"}, "^machine skylake with core.count=0: "),
        (
            {"settings": {"memory.fragmentation": {"kind": "snapshot", "file": "/nowhere"}}},
            "^machine skylake with .*}: memory.fragmentation: cannot read",
        ),
        ({"designs": "thpp", "settings": {"core.count": 2}}, "^no design `thpp`: give"),
        (
            {"designs": "tps:promotion_threshold_percent=500", "settings": {"core.count": 2}},
            "^tps:promotion_threshold_percent=500: policy tps: .* in percent, 1 to 100",
        ),
        (
            {"designs": ["thp", "softvm"], "settings": FAR},
            "^design softvm on machine skylake with memory.tiers.*: memory.tiers: softvm",
        ),
        ({"cores": 1000}, "^--cores 1000: give a number from 1"),
        ({"traces": "synth:zpif"}, "did you mean `zipf`"),
        ({"interva": 5}, "did you mean `interval`"),
        ({"traces": []}, "a sweep needs traces"),
        ({"traces": "nowhere.oct"}, "cannot read `nowhere.oct`"),
        ({"traces": "-"}, "give files"),
        ({"on": "rai"}, "give local, ray or ray://HOST:PORT"),
        ({"workers": 0}, "give a number from 1"),
        ({"settings": {"core.base_cpi": []}}, "`core.base_cpi` has no values"),
        (
            {"settings": {"core.base_cpi ": [1, 2]}},
            "^the key `core.base_cpi ` has white space: give `core.base_cpi`",
        ),
    ]
    for given, sentence in cases:
        with pytest.raises(OctavoError, match=sentence.replace("`", ".")) as caught:
            octavo.sweep(**{"traces": STRIDED, "out": tmp_path / "out", **given})
        assert "\n" not in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_a_format_of_synthetic_traces_alone_is_refused() -> None:
    for traces in (STRIDED, [STRIDED, ZIPF]):
        with pytest.raises(UsageError, match="no format to choose: leave out `din`"):
            octavo.sweep(traces, designs="thp", format="din")
    with pytest.raises(UsageError, match="the traces are synthetic and have no format to choose"):
        octavo.sim([STRIDED, ZIPF], designs="thp", format="din", processes="flush")
    assert not octavo.sweep(STRIDED, designs="thp", format="synthetic").is_partial


def test_a_format_applies_to_traces_in_files(tmp_path: Path) -> None:
    file = str(tmp_path / "data")
    Path(file).write_text("2 400000\n0 1000\n")
    plain, both = (
        {one.labels["trace"]: one.simulation.key for one in result.plan.planned}
        for result in (octavo.sweep(ZIPF), octavo.sweep([ZIPF, file], format="din"))
    )
    assert both.keys() == {ZIPF, file}
    assert both[ZIPF] == plain[ZIPF]
    alone, shared = (
        octavo.sim(names, format=of, processes="flush").total[0].references
        for names, of in (([ZIPF], None), ([ZIPF, file], "din"))
    )
    assert shared == alone + 2


def test_a_broken_trace_fails_alone(tmp_path: Path) -> None:
    good = convert(ZIPF, tmp_path / "good.oct")
    content = Path(good).read_bytes()
    (tmp_path / "bad.oct").write_bytes(content[: len(content) // 2])
    traces = {"good": good, "bad": str(tmp_path / "bad.oct")}
    result = octavo.sweep(traces, designs=["thp", "base4k"], out=tmp_path / "out")
    assert result.table()["trace"].to_pylist() == ["good"] * 2
    assert len(result.failed) == 2
    assert "bad.oct" in next(iter(result.failed.values()))
    assert repr(result) == "<SweepResult: 2 of 4 simulations, 2 failed>"
    assert result.data_set.failures(result.plan.simulations) == dict(result.failed)
    with pytest.raises(CannotRun, match=r"bad\.oct"):
        octavo.sweep(traces["bad"], designs="thp", out=tmp_path / "out")


def test_a_worker_that_is_killed_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another worker does the task; after some attempts the task counts as failed."""
    killer = tmp_path / "killer.py"
    killer.write_text(
        "import os, pickle, sys, pathlib\n"
        "from octavo.sweeps import worker\n"
        f"left = pathlib.Path({str(tmp_path / 'left')!r})\n"
        "n = int(left.read_text())\n"
        "left.write_text(str(n - 1))\n"
        "if n > 0:\n"
        "    pickle.load(sys.stdin.buffer)\n"
        "    os.kill(os.getpid(), 9)\n"
        "worker.main()\n"
    )
    started = subprocess.Popen

    def popen(command: list[str], **options: Any) -> Any:
        assert command[1:] == ["-m", "octavo.sweeps.worker"]
        return started([sys.executable, str(killer)], **options)

    monkeypatch.setattr("octavo.sweeps.local.subprocess.Popen", popen)
    for deaths, fails in ((MOST_ATTEMPTS - 1, False), (MOST_ATTEMPTS, True)):
        (tmp_path / "left").write_text(str(deaths))
        named = {"t": STRIDED}
        one = list(crossed(named, {"m": "skylake"}, ["thp"], [{}], [None]))
        plan = resolve(one, named, {"m": "skylake"})
        messages = LocalWorkers(1).run(divide(plan.simulations))
        answers = [one for one in messages if isinstance(one, Answer)]
        assert len(answers) == 1
        outcome = answers[0].outcome
        assert isinstance(outcome, Failed) == fails
        assert not fails or "killed by signal 9" in outcome.why


def test_a_task_makes_no_file_that_a_killed_worker_would_leave(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = {"t": STRIDED}
    one = crossed(named, {"m": "skylake"}, ["thp"], [{}], [None])
    (task,) = divide(resolve(one, named, {"m": "skylake"}).simulations)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    assert run_task(task).tables


def test_ctrl_c_keeps_finished_simulations(tmp_path: Path) -> None:
    """Ctrl-C ends the workers; the next call runs the remaining simulations."""

    def interrupt(progress: SweepProgress) -> None:
        if progress.done:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0)

    traces = {str(seed): f"{ZIPF}&seed={seed}" for seed in range(6)}
    arguments: dict[str, Any] = {"designs": "thp", "out": tmp_path / "out", "workers": 1}
    result = octavo.sweep(traces, on_progress=interrupt, **arguments)
    assert result.is_partial
    done = result.table().num_rows
    assert 0 < done < 6
    whole = octavo.sweep(traces, **arguments)
    assert not whole.is_partial
    assert whole.table().num_rows == 6


def scripted_worker(monkeypatch: pytest.MonkeyPatch, place: Path, lines: str) -> None:
    """A worker that takes a task, `task`, and then runs these lines, which may `send`."""
    place.write_text(
        "import os, pickle, select, sys, time\n"
        "from octavo.sweeps.tasks import Underway, run_task\n"
        "out = os.fdopen(os.dup(1), 'wb')\n"
        "def send(what):\n"
        "    pickle.dump(what, out)\n"
        "    out.flush()\n"
        f"task = pickle.load(sys.stdin.buffer)\n{lines}\n"
    )
    started = subprocess.Popen

    def popen(command: list[str], **options: Any) -> Any:
        return started([sys.executable, str(place)], **options)

    monkeypatch.setattr("octavo.sweeps.local.subprocess.Popen", popen)


@pytest.fixture(params=["raises", "is ignored"])
def handled(request: pytest.FixtureRequest) -> Iterator[None]:
    """Ctrl-C, as the handler of a program receives it."""
    usual = signal.getsignal(signal.SIGINT)
    if request.param == "is ignored":
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    yield
    signal.signal(signal.SIGINT, usual)


@pytest.mark.usefixtures("handled")
@pytest.mark.parametrize(("portion", "kept"), [(1.0, 2), (1e-6, 0)])
def test_ctrl_c_waits_for_a_task_that_is_nearly_done(
    portion: float, kept: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other tasks are ended, and the number of their simulations is reported. A result with all
    simulations is whole.

    The worker finishes its task after the interrupt, or without one after ten seconds.
    """
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    finish = os.open(pipe, os.O_RDWR)

    def interrupt(progress: SweepProgress) -> None:
        if progress.left_seconds is not None and not progress.done:
            os.kill(os.getpid(), signal.SIGINT)
            if kept:
                os.write(finish, b"1")

    # However busy the machine is, only a task that is nearly done ends within this time.
    monkeypatch.setattr("octavo.sweeps.local.GRACE_SECONDS", 600)
    lines = (
        f"send(Underway({portion}))\n"
        f"select.select([os.open({str(pipe)!r}, os.O_RDWR)], [], [], 10)\n"
        "send(run_task(task))\n"
        "time.sleep(600)"
    )
    scripted_worker(monkeypatch, tmp_path / "worker.py", lines)
    given = {"t": STRIDED}
    combinations = crossed(given, {"m": "skylake"}, ["base4k", "thp"], [{}], [None])
    plan = resolve(combinations, given, {"m": "skylake"})
    prepared = prepare(plan, DataSet(tmp_path / "out"), LocalWorkers(1))
    result = run_prepared(prepared, interrupt)
    assert result.is_partial == (kept == 0)
    assert result.table().num_rows == kept
    assert result.ended == 2 - kept
    os.close(finish)


def test_ctrl_c_before_anything_is_done_is_an_error(tmp_path: Path) -> None:
    def interrupt(progress: SweepProgress) -> None:
        raise KeyboardInterrupt

    with pytest.raises((Interrupted, KeyboardInterrupt)):
        octavo.sweep(STRIDED, designs="thp", out=tmp_path / "out", on_progress=interrupt)


def test_files_of_a_killed_writer_are_removed(tmp_path: Path) -> None:
    data_set = DataSet(tmp_path / "out")
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    host = data_set._writer.rsplit("-", 1)[0]
    (tmp_path / "out/staging").mkdir(exist_ok=True)
    for name in (f"{host}-{ended.pid}-x", f"{host}-{os.getpid()}-x", f"elsewhere-{ended.pid}-x"):
        (tmp_path / "out/staging" / name).write_text("half")
    data_set.remove_abandoned()
    left = {path.name for path in (tmp_path / "out/staging").iterdir()}
    assert left == {f"{host}-{os.getpid()}-x", f"elsewhere-{ended.pid}-x"}


def test_only_a_data_set_or_an_empty_directory_is_written_to(tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full/file").write_text("mine")
    with pytest.raises(UsageError, match="neither empty nor a data set"):
        DataSet(tmp_path / "full")
    with pytest.raises(CannotRun, match="not a directory"):
        DataSet(tmp_path / "full/file")
    with pytest.raises(UsageError, match="not a data set"):
        DataSet(tmp_path / "none", create=False)
    assert not (tmp_path / "none").exists()
    DataSet(tmp_path / "new")
    (tmp_path / "new/octavo.json").write_text('{"schema": "octavo/results/9"}')
    with pytest.raises(CannotRun, match="octavo/results/1"):
        DataSet(tmp_path / "new")


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    result = octavo.sweep(STRIDED, designs="thp", out=tmp_path / "out")
    (path,) = (tmp_path / "out").rglob("*.parquet")
    path.write_bytes(path.read_bytes()[:100])
    again = octavo.sweep(STRIDED, designs="thp", out=tmp_path / "out")
    assert again.plan == result.plan
    with pytest.raises(CannotRun, match="damaged: delete it"):
        again.table()


def test_a_missing_result_is_an_error(tmp_path: Path) -> None:
    for show in (lambda result: result.table(), lambda result: result.rows(), repr):
        result = octavo.sweep(STRIDED, designs=["thp", "base4k"], out=tmp_path / "results")
        gone = next((tmp_path / "results").rglob("*.parquet"))
        gone.unlink()
        with pytest.raises(CannotRun, match=f"there is no result `.*{gone.name}`"):
            show(result)


def test_a_file_describes_its_simulation(swept: octavo.SweepResult) -> None:
    path = next(swept.data_set.directory.rglob("*.parquet"))
    file = pq.ParquetFile(path)
    about = json.loads(file.schema_arrow.metadata[b"octavo"])
    assert about["resolved"]["model"] == MODEL
    assert set(about["resolved"]) == {"model", "trace", "format", "design", "machine", "counting"}
    assert file.read()["key"].unique().to_pylist() == [path.stem]


def test_the_result_is_read_by_other_libraries(swept: octavo.SweepResult) -> None:
    assert pa.table(swept) == swept.table()
    assert polars.DataFrame(swept).height == 16
    assert swept.to_polars().height == 16
    assert len(swept.to_pandas()) == 16
    assert repr(swept) == "<SweepResult: 16 simulations>"
    page = swept._repr_html_()
    assert page.startswith("<div>")
    assert page.count("<tr>") == 17
    hostile = octavo.sweep({"<script>": STRIDED}, designs="thp")
    assert "<script>" not in hostile._repr_html_()


def test_an_estimate_reads_numbers_as_the_trace_does() -> None:
    for text in ("2_000", "2e3", "2k", "2000"):
        assert references_of(f"synth:zipf?references={text}&instructions=1e1") == 22_000
    assert references_of("synth:rows") == references_of("synth:rows?references=1e8&instructions=4")


def test_an_estimate_precedes_the_run(tmp_path: Path) -> None:
    combinations = list(crossed(TRACES, {"m": "skylake"}, ["thp", "base4k"], [{}], [None]))
    plan = resolve(combinations, TRACES, {"m": "skylake"})
    data_set, workers = DataSet(tmp_path / "out"), LocalWorkers(2)
    expected = prepare(plan, data_set, workers).estimate
    assert (expected.simulations, expected.there, expected.tasks) == (4, 0, 2)
    assert expected.seconds is not None
    assert expected.memory_bytes > 0
    assert not expected.is_measured
    octavo.sweep(STRIDED, designs=["thp", "base4k"], out=tmp_path / "out")
    expected = prepare(plan, data_set, workers).estimate
    assert (expected.simulations, expected.there, expected.tasks) == (4, 2, 1)
    assert expected.is_measured


def tasks_of(references: int, designs: list[str], settings: Any = None) -> list[Task]:
    given = {"t": f"synth:zipf?references={references}"}
    combinations = crossed(given, {"m": "skylake"}, designs, settings, [None])
    return divide(resolve(combinations, given, {"m": "skylake"}).simulations)


def test_a_short_task_hardly_changes_the_estimate_of_long_ones(tmp_path: Path) -> None:
    """Most of the time of a short task is start-up."""
    (short,), (long,) = tasks_of(1000, ["thp"]), tasks_of(10**7, ["thp"])
    speeds = Speeds(DataSet(tmp_path / "out"))
    (usual,) = speeds.of_tasks([long])
    speeds.finished(short, 5000, 0.5)
    (after,) = speeds.of_tasks([long])
    assert usual < after < 2.5 * usual


def test_times_are_those_of_like_simulations(tmp_path: Path) -> None:
    """Times of the same trace, and among these of the same designs, are kept in the journal."""
    data_set, length = DataSet(tmp_path / "out"), 5 * 10**7
    (fast,), (slow,) = tasks_of(10**7, ["thp"]), tasks_of(10**7, ["base4k"])
    (other,) = tasks_of(2 * 10**7, ["thp"])
    speeds = Speeds(data_set)
    for task, seconds in ((fast, 100.0), (slow, 400.0)):
        like = speeds.finished(task, length, seconds)
        trace = task.simulations[0].trace.hash
        data_set.note(
            model=MODEL, trace=trace, simulations=1, references=length, seconds=seconds, **like
        )
    for found in (speeds, Speeds(data_set)):
        assert list(found.of_tasks([fast, slow])) == pytest.approx([100, 400], rel=0.35)
        (of_other,) = found.of_tasks([other])
        assert 300 < of_other < 700


def test_the_time_left_is_that_of_tasks_under_way(tmp_path: Path) -> None:
    """Early in a run no task is done; a single task takes a single worker."""
    settings = {"core.base_cpi": [0.5 + n / 100 for n in range(4 * MOST_SIMULATIONS)]}
    tasks = tasks_of(10**8, ["thp"], settings)
    assert len(tasks) == 4
    speeds = Speeds(DataSet(tmp_path / "out"))
    under_way = [Progress(task, 0.1, 60.0) for task in tasks[:2]]
    assert seconds_left(speeds, tasks[2:], under_way, 2) == pytest.approx(1140, rel=0.1)
    assert seconds_left(speeds, [], under_way[:1], 2) == pytest.approx(540, rel=0.1)
    speeds.finished(tasks[0], 5 * 10**8, 600.0)
    assert seconds_left(speeds, tasks[2:], [], 1) == pytest.approx(1200, rel=0.1)


def test_progress_of_a_sweep_has_the_remaining_time(tmp_path: Path) -> None:
    seen: list[SweepProgress] = []
    octavo.sweep(TRACES, designs="thp", out=tmp_path / "out", on_progress=seen.append)
    assert seen[0].left_seconds is None
    assert seen[0].portion == 0
    assert seen[-1].left_seconds == 0
    assert seen[-1].portion == 1


def test_a_block_that_is_read_is_not_yet_simulated() -> None:
    seen: list[float] = []
    show = simulated_portion(lambda progress: seen.append(progress.portion))
    for done in (0, 40, 40, 90, 100, 100):
        show({"done": done, "total": 100})
    show({"done": 7, "total": None})
    assert seen == [0, 0, 0, 0.4, 0.9, 0.9, 0.9]


@pytest.mark.parametrize(
    ("seconds", "text"), [(None, ""), (61.0, ", about 61 s left"), (0.0, ", nearly done")]
)
def test_an_estimate_that_has_run_out_names_no_time(seconds: float | None, text: str) -> None:
    assert _left(SweepProgress(1, 2, 0, 10.0, seconds)) == text
