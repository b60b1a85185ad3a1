"""Misses by allocation site, on programs with known sites."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from schemas import first_error, validator_of

from .conftest import OCTAVO, Octavo, Traced, natively, read_document, tracing_in, workload

VISITS = 20000
PROGRAM = workload("allocations", VISITS)
TLB = ("--entries", "64", "--page-sizes", "4KiB,2MiB")


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> Traced:
    return tracing_in(tmp_path_factory.mktemp("allocations"))(PROGRAM, "--allocations", *TLB)


def allocations(traced: Traced) -> dict[str, Any]:
    assert traced.document is not None, traced.stderr.decode()
    found: dict[str, Any] = traced.document["allocations"]
    return found


def sites(traced: Traced) -> dict[str, dict[str, Any]]:
    """The sites in the program itself, by function."""
    return {
        site["function"]: site
        for site in allocations(traced)["sites"]
        if (site["path"] or "").endswith("/allocations")
    }


def test_each_known_site_has_its_blocks_and_bytes(traced: Traced) -> None:
    found = {name: (site["blocks"], site["most_bytes"]) for name, site in sites(traced).items()}
    assert found == {
        "make_table": (1, 32 << 20),
        "make_small": (16, 16 * 256),
        "grow": (12, 8 << 20),
        "worker": (1, 16 << 20),
        "escape": (1, 1 << 20),
    }


def test_misses_are_those_of_random_visits(traced: Traced) -> None:
    """A random visit to n pages misses with probability 1 - 64 / n, as the TLB holds 64 pages."""
    found = {name: site["misses"][0] for name, site in sites(traced).items()}
    in_table, by_worker = (VISITS + VISITS // 4) * (1 - 64 / 8192), VISITS / 4 * (1 - 64 / 4096)
    assert found["make_table"] == pytest.approx(in_table, rel=0.01)
    assert found["worker"] == pytest.approx(by_worker, rel=0.02)
    # Each page is visited once at each size from 4 KiB to 8 MiB: 1 + 2 + … + 2048 visits.
    assert found["grow"] == pytest.approx(4095, rel=0.03)
    assert found["make_small"] <= 32


def test_wrappers_name_no_site(traced: Traced, octavo: Octavo) -> None:
    stack = sites(traced)["make_table"]["stack"]
    assert stack == ["malloc", "my_alloc", "make_table", "main"]
    again = octavo(PROGRAM, "--allocations", *TLB, "--allocation-wrappers", "make_t*")
    assert "make_table" not in sites(again)
    assert sites(again)["main"]["most_bytes"] >= 32 << 20


def test_all_misses_are_attributed(traced: Traced) -> None:
    found = allocations(traced)
    for index, column in enumerate(found["columns"]):
        assert not column["modelled"]
        whole = traced.row(component="tlb.data", page_size=column["page_size"])["misses"]
        places = [*found["sites"], *found["outside"]]
        for records in (places, found["lines"], found["stacks"]):
            assert sum(record["misses"][index] for record in records) == whole


def test_all_walks_of_a_machine_are_attributed(octavo: Octavo) -> None:
    traced = octavo(PROGRAM, "--allocations", "--tlb", "zen4")
    found = allocations(traced)
    columns = enumerate(found["columns"])
    modelled = [(index, column["page_size"]) for index, column in columns if column["modelled"]]
    assert modelled
    for index, page_size in modelled:
        rows = [
            row
            for level in (1, 2)
            for row in traced.rows(component=f"machine.l{level}.data", page_size=page_size)
        ]
        places = [*found["sites"], *found["outside"]]
        assert sum(place["misses"][index] for place in places) == rows[-1]["misses"]


def test_counts_are_the_same_without_the_option(octavo: Octavo) -> None:
    """On a program of one thread, as the order of several threads differs between runs."""
    single = workload("bfs", 20000, 8)
    traced, plain = octavo(single, "--allocations", *TLB), octavo(single, *TLB)
    assert plain.document is not None
    assert "allocations" not in plain.document

    def counts(result: Traced) -> list[dict[str, Any]]:
        components = ("tlb.data", "tlb.fetch", "memory")
        return [row for name in components for row in result.rows(component=name)]

    assert counts(plain) == counts(traced)
    for counter in ("references", "instructions", "threads"):
        assert plain.count(counter) == traced.count(counter)


def test_a_recorded_trace_gives_the_same(octavo: Octavo, tmp_path: Path) -> None:
    """On a program of one thread, as the order of several threads differs between runs."""
    single = workload("bfs", 20000, 8)
    traced = octavo(single, "--allocations", *TLB)
    assert allocations(traced)["sites"]
    path, result = tmp_path / "a.oct", tmp_path / "recorded.json"
    natively([OCTAVO, "record", "--quiet", "--allocations", "-o", path, "--", *single])
    ended = natively([OCTAVO, "run", "--quiet", *TLB, "--json", result, path])
    assert ended.status == 0, ended.stderr.decode()
    document = read_document(result)
    assert document is not None
    assert document["allocations"] == allocations(traced)
    assert natively([OCTAVO, "check", path]).status == 0


def test_blocks_are_tracked_between_windows(octavo: Octavo) -> None:
    traced = octavo(PROGRAM, "--allocations", *TLB, "--window", "20k/20k")
    assert sites(traced)["make_table"]["most_bytes"] == 32 << 20
    assert sites(traced)["make_small"]["blocks"] == 16


def test_a_static_program_is_found_by_its_symbols(octavo: Octavo) -> None:
    traced = octavo(workload("bfs_static", 20000, 8), "--allocations", *TLB)
    found = allocations(traced)
    in_blocks = sum(site["misses"][0] for site in found["sites"])
    assert in_blocks > sum(place["misses"][0] for place in found["outside"])


def test_stacks_are_written_for_viewers_of_flame_graphs(tmp_path: Path) -> None:
    place = tmp_path / "result"
    natively([OCTAVO, "run", "--quiet", "--allocations", *TLB, "--out", place, "--", *PROGRAM])
    lines = (place / "walks.folded").read_text().splitlines()
    counts = dict(line.rsplit(" ", 1) for line in lines)
    assert int(counts["main;make_table;my_alloc;malloc;by visit"]) > VISITS
    assert "Allocation sites" in (place / "report.html").read_text()
    natively([OCTAVO, "run", "--quiet", *TLB, "--force", "--out", place, "--", "true"])
    assert not (place / "walks.folded").exists()
    assert (place / "manifest.json").exists()


def test_the_document_and_the_answer(traced: Traced) -> None:
    assert traced.document is not None
    assert first_error(validator_of("run"), traced.document) is None
    assert "allocated in `make_table`" in traced.document["advice"][0]["text"]


def test_misplaced_options_are_refused(octavo: Octavo, tmp_path: Path) -> None:
    lackey = octavo(PROGRAM, "--allocations", "--tracer", "lackey")
    assert (lackey.status, b"--allocations needs octavo's own tracer" in lackey.stderr) == (2, True)
    of_trace = natively([OCTAVO, "run", "--allocations", "synth:uniform?pages=4"])
    assert of_trace.status == 2
    assert b"octavo record --allocations" in b" ".join(of_trace.stderr.split())
    wrappers = natively([OCTAVO, "run", "--allocation-wrappers", "pool_get", "--", "true"])
    assert wrappers.status == 2
    assert b"--allocation-wrappers needs --allocations" in wrappers.stderr
