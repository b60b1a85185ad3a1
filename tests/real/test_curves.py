"""Curves of real programs, compared with the counts of `octavo run`, which has another engine."""

from pathlib import Path
from typing import Any

import pytest

from .conftest import OCTAVO, Octavo, Traced, interrupted, natively, read_document, workload

SMALL = ("--entries", "64", "--sets", "16", "--windows", "10k", "--policy-window", "10k")
PROGRAMS = {
    "static_count": workload("static_count"),
    "bfs": workload("bfs", 2000, 8),
    "threads": workload("threads"),
    "sort": ["sort", "/etc/services"],
    "awk": ["awk", "BEGIN { for (i = 0; i < 3000; i++) n[i % 700] += i; print length(n) }"],
}


@pytest.fixture(scope="module", params=list(PROGRAMS))
def recorded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trace of each program, as two runs of a program may differ."""
    trace = tmp_path_factory.mktemp("recorded") / f"{request.param}.oct"
    natively([OCTAVO, "record", "-q", "-o", trace, "--", *PROGRAMS[request.param]])
    return trace


def on_trace(verb: str, trace: Path, *options: str, **how: Any) -> Traced:
    """`octavo run` or `octavo curves` on a trace."""
    result = trace.with_name("result.json")
    ended = natively([OCTAVO, verb, "-q", "--force", "--json", result, *options, trace], **how)
    assert ended.status == 0, ended.stderr.decode()
    return Traced(ended.status, ended.stdout, ended.stderr, read_document(result))


def test_misses_are_those_of_run(recorded: Path):
    """Compares a fully associative TLB of 64 entries, which `octavo run` simulates differently."""
    sizes = ("--page-sizes", "4KiB..1GiB")
    studied = on_trace("run", recorded, *sizes)
    counted = on_trace("curves", recorded, *SMALL, *sizes)
    assert counted.run["trace_hash"] == studied.run["trace_hash"]
    for counter in ("references", "instructions", "loads", "stores", "threads"):
        assert _count(counted, counter) == studied.count(counter)
    for row in studied.rows(component="tlb.fetch") + studied.rows(component="tlb.data"):
        wanted = {"stream": row["stream"], "page_size": row["page_size"]}
        curve = counted.row(component="tlb.full", entries=64, **wanted)
        assert curve["misses"] == row["misses"]
        assert curve["mpki"] == row["mpki"]
        sets = counted.row(component="tlb.sets", sets=1, ways=16, index="low", **wanted)
        full = counted.row(component="tlb.full", entries=16, **wanted)
        assert sets["misses"] == full["misses"]


def _count(traced: Traced, counter: str) -> int:
    (row,) = (
        row for row in traced.rows(component="stream", counter=counter) if "stream" not in row
    )
    return int(row["value"])


def test_a_trace_gives_the_result_of_the_program(octavo: Octavo, tmp_path: Path):
    trace = tmp_path / "gzip.oct"
    argv = ["gzip", "-9", "--stdout", "/etc/services"]
    assert natively([OCTAVO, "record", "-q", "-o", trace, "--", *argv]).status == 0
    live = octavo(argv, *SMALL, verb="curves")
    replayed = on_trace("curves", trace, *SMALL)
    assert live.document is not None
    assert replayed.document is not None
    assert replayed.run["trace_hash"] == live.run["trace_hash"]
    assert replayed.document["rows"] == live.document["rows"]


def test_every_kind_of_instructions_gives_the_same(recorded: Path):
    """On a trace, as the variable in the environment may change a program's behaviour."""
    rows = [
        on_trace("curves", recorded, *SMALL, env={"OCTAVO_INSTRUCTIONS": name}).rows()
        for name in ("portable", "avx2", "")
    ]
    assert rows[0] == rows[1] == rows[2]


def test_counts_of_several_processes_add_up(octavo: Octavo):
    traced = octavo(workload("forks", 5), *SMALL, "--streams", "data", verb="curves")
    assert traced.document is not None
    processes = [process["stream"] for process in traced.run["processes"]]
    assert len(processes) == 8
    wanted = {"component": "tlb.full", "entries": 16, "page_size": 4096}
    each = [traced.row(process=process, **wanted)["misses"] for process in processes]
    assert sum(each) == traced.row(**wanted)["misses"] > 0
    assert not traced.rows(component="working_set")
    assert traced.rows(component="working_set", process=0)


def test_the_status_is_the_programs(octavo: Octavo):
    traced = octavo(["sh", "-c", "exit 7"], *SMALL, verb="curves")
    assert traced.status == 7
    assert _count(traced, "references") > 0


def test_an_interrupt_keeps_the_counts(tmp_path: Path):
    document, _ = interrupted("curves", *SMALL, place=tmp_path)
    assert any(row.get("misses", 0) > 0 for row in document["rows"])
