"""`octavo sim` with real programs."""

from pathlib import Path

import pytest

from .conftest import OCTAVO, Octavo, interrupted, natively, read_document, workload

DESIGNS = ("base4k", "thp")


def test_huge_pages_serve_a_table_of_random_updates(octavo: Octavo):
    """GUPS over 32 MiB: each update misses with base pages, and few miss with huge pages."""
    argv = workload("gups", "--table", "32MiB", "--updates", "100k")
    traced = octavo(argv, "--check", "--machine", "skylake", verb="sim")
    assert traced.status == 0, traced.stderr.decode()

    def count(design: str, component: str, counter: str) -> int:
        return int(traced.row(design=design, component=component, counter=counter)["value"])

    misses = {design: count(design, "tlb.l1d", "misses") for design in DESIGNS}
    assert misses["base4k"] > 90_000
    assert misses["thp"] < misses["base4k"] / 10
    assert count("thp", "os", "faults") < count("base4k", "os", "faults") - 8000
    for design in DESIGNS:
        assert count(design, "os", "peak_resident_bytes") > 32 << 20
        assert count(design, "walker", "walks") >= count(design, "tlb.l2", "misses")
    for row in traced.rows(counter="accesses"):
        keys = {"design": row["design"], "component": row["component"]}
        hits, missed = (traced.row(**keys, counter=name)["value"] for name in ("hits", "misses"))
        assert row["value"] == hits + missed


def test_threads_are_placed_on_cores(octavo: Octavo):
    """An unmapping in one thread interrupts the cores of the others, if there are any."""
    argv = workload("threads", 4, 1, 3)
    for cores, is_interrupted in ((1, False), (4, True)):
        options = ("--cores", str(cores), "--design", "base4k")
        traced = octavo(argv, *options, verb="sim")
        row = traced.row(design="base4k", component="os", counter="cores_interrupted")
        assert (row["value"] > 0) == is_interrupted, cores


def test_a_trace_gives_the_result_of_the_program(octavo: Octavo, tmp_path: Path):
    trace, result = tmp_path / "gzip.oct", tmp_path / "replayed.json"
    argv = ["gzip", "-9", "--stdout", "/etc/services"]
    assert natively([OCTAVO, "record", "-q", "-o", trace, "--", *argv]).status == 0
    options = ("--interval", "100k", "--warm-up", "10k")
    live = octavo(argv, *options, verb="sim")
    assert natively([OCTAVO, "sim", "-q", *options, "--json", result, trace]).status == 0
    replayed = read_document(result)
    assert live.document is not None
    assert replayed is not None
    assert replayed["run"]["trace_hash"] == live.run["trace_hash"]
    assert replayed["rows"] == live.document["rows"]
    assert replayed["run"]["configuration"]["machine_hash"]


def test_every_kind_of_instructions_gives_the_same(tmp_path: Path):
    trace = tmp_path / "bfs.oct"
    argv = workload("bfs", 2000, 8)
    assert natively([OCTAVO, "record", "-q", "-o", trace, "--", *argv]).status == 0
    rows = []
    for name in ("portable", "avx2", ""):
        result = tmp_path / f"{name}.json"
        env = {"OCTAVO_INSTRUCTIONS": name}
        assert natively([OCTAVO, "sim", "-q", "--json", result, trace], env=env).status == 0
        document = read_document(result)
        assert document is not None
        rows.append(document["rows"])
    assert rows[0] == rows[1] == rows[2]


@pytest.mark.parametrize("layout", ["native", "as-traced"])
def test_processes_are_simulated_apart(octavo: Octavo, layout: str):
    traced = octavo(workload("forks", 3), "--check", "--layout", layout, verb="sim")
    assert traced.status == 0, traced.stderr.decode()
    processes = [process["stream"] for process in traced.run["processes"]]
    assert len(processes) > 3
    wanted = {"design": "base4k", "component": "os", "counter": "faults"}
    each = [traced.row(process=process, **wanted)["value"] for process in processes]
    assert sum(each) == traced.row(**wanted)["value"]


def test_the_status_is_the_programs(octavo: Octavo):
    traced = octavo(["sh", "-c", "exit 7"], verb="sim")
    assert traced.status == 7
    assert traced.count("references") > 0


def test_a_wrong_option_starts_nothing(tmp_path: Path):
    left = tmp_path / "left"
    ended = natively([OCTAVO, "sim", "--design", "tph", "--", "touch", left])
    assert ended.status == 2
    assert b"no design `tph`" in ended.stderr
    assert not left.exists()


def test_an_interrupt_keeps_the_counts(tmp_path: Path):
    document, errors = interrupted("sim", place=tmp_path)
    assert b"Which design? " in errors
    assert any(row["counter"] == "misses" and row["value"] > 0 for row in document["rows"])
