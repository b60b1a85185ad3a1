"""Processes of one program that share memory: the program has one total and one advice."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from .conftest import OCTAVO, Octavo, Traced, natively, workload

MIB = 1 << 20
SHARED, OWN = 8, 1
"""MiB of shared memory, and of each child's own."""

JUDGED = ("--tlb", "skylake", "--native-time", "5ms")
"""A given native time makes the advice independent of time in the kernel."""


def prefork(children: int) -> list[str]:
    return workload("prefork", children, SHARED, OWN)


def footprints(traced: Traced, stream: str, **wanted: object) -> dict[int, int]:
    rows = traced.rows(component="memory", stream=stream, **wanted)
    return {row["page_size"]: row["touched_bytes"] for row in rows}


def region_of(program: dict[str, Any], kind: str) -> dict[int, int]:
    """Memory of the regions of a kind by page size."""
    found: dict[int, int] = {}
    for row in program["rows"]:
        is_memory = row["component"] == "memory" and row["stream"] == "all"
        if is_memory and row.get("region_kind") == kind:
            found[row["page_size"]] = found.get(row["page_size"], 0) + row["touched_bytes"]
    return found


def test_shared_memory_is_counted_once(octavo: Octavo) -> None:
    few, many = octavo(prefork(2)), octavo(prefork(12))
    for traced in (few, many):
        assert (traced.status, traced.stdout) == (0, b"0\n")
        traced.check()
        assert traced.document is not None
        (program,) = traced.document["programs"]
        streams = [process["stream"] for process in traced.run["processes"]]
        assert program["processes"] == streams
        # Each child reads all shared memory.
        alone = footprints(traced, "all", process=streams[-1], region="shared")
        assert region_of(program, "shared") == alone
        assert alone[4096] == SHARED * MIB
        children = len(streams) - 1
        own = region_of(program, "anonymous")
        assert 0 <= own[4096] - children * OWN * MIB <= len(streams) * 64 * 1024
        whole = footprints(traced, "all")
        assert whole == {
            row["page_size"]: row["touched_bytes"]
            for row in program["rows"]
            if row["component"] == "memory" and row["stream"] == "all" and "region" not in row
        }
        assert whole[4096] <= (SHARED + children * OWN) * MIB + len(streams) * 256 * 1024
    # All children run the same code.
    assert footprints(few, "fetch") == footprints(many, "fetch")


def test_processes_have_common_advice_and_tables(octavo: Octavo, tmp_path: Path) -> None:
    command = prefork(5)
    result = tmp_path / "result"
    shown = natively([OCTAVO, "run", *JUDGED, "--out", result, "--", *command])
    text = shown.stderr.decode()
    assert shown.status == 0, text
    page = (result / "report.html").read_text()
    for output in (text, page):
        assert "prefork (6 processes)" in output
        assert "Data of shared (prefork, 6 processes)" in output
        assert "process 3" not in output
    together = octavo(command, *JUDGED)
    assert together.document is not None
    regions = [item for item in together.document["advice"] if item["scope"] == "region"]
    shared = [item for item in regions if item["region_kind"] == "shared"]
    assert [item["processes"] for item in shared] == [[0, 1, 2, 3, 4, 5]]
    assert not any("process" in item for item in regions)

    apart = octavo(command, *JUDGED, "--per-process")
    assert apart.document is not None
    assert apart.document["programs"] == []
    shared = [item for item in apart.document["advice"] if item.get("region_kind") == "shared"]
    assert sorted(item["process"] for item in shared) == [1, 2, 3, 4, 5]
    assert len(apart.document["rows"]) == len(together.document["rows"])


def test_a_trace_has_the_programs_of_its_run(octavo: Octavo, tmp_path: Path) -> None:
    trace = tmp_path / "prefork.oct"
    assert natively([OCTAVO, "record", "-q", "-o", trace, "--", *prefork(3)]).status == 0
    replayed = natively([OCTAVO, "run", "-q", "--json", "-", trace])
    (program,) = json.loads(replayed.stdout)["programs"]
    assert region_of(program, "shared")[4096] == SHARED * MIB
    live = octavo(prefork(3))
    assert live.document is not None
    (of_live,) = live.document["programs"]
    for kind in ("shared", "anonymous", "text"):
        assert region_of(of_live, kind) == region_of(program, kind)


def test_a_forked_process_has_the_thread_that_forked(octavo: Octavo, tmp_path: Path) -> None:
    trace = tmp_path / "prefork.oct"
    assert natively([OCTAVO, "record", "-q", "-o", trace, "--", *prefork(2)]).status == 0
    described = json.loads(natively([OCTAVO, "info", "--json", "-", trace]).stdout)
    assert [process["threads"] for process in described["processes"]] == [1, 1, 1]
    counted = octavo(prefork(2))
    for process in range(3):
        assert counted.row(component="stream", counter="threads", process=process)["value"] == 1
    assert counted.row(component="stream", counter="threads")["value"] == 3
