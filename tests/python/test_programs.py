"""Processes of one program together: tables and advice of a server with workers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fakes import FLAT, KIB, SIZES, process, region, result
from octavo._core import Touched
from octavo.analysis.advice import advise_all
from octavo.analysis.programs import (
    process_names,
    programs_of,
    rows_by_program,
    several_processes,
    short_names,
)
from octavo.analysis.rows import rows_of
from octavo.analysis.view import notable_regions, process_grid, region_grid
from octavo.base.huge_pages import read_huge_pages
from octavo.hardware.tlb_levels import load_preset
from octavo.report.charts import gains_chart, map_chart
from octavo.runs.result import RunResult, advice_records
from octavo.tracing.manifest import subject_of

MIB = 1024 * KIB
LRU = load_preset("lru64")
WORKERS = 3
NAMES = {"/usr/bin/server": "server"}
TEXT = {"name": "server text", "kind": "text", "stream": "fetch", "path": "/usr/bin/server"}


def server() -> Any:
    """Three workers of a server, and a shell. Each worker uses 1 MiB more of the text than the one
    before; the heaps are at the same address, and belong to one worker each.
    """
    workers = []
    for stream in range(WORKERS):
        pages = range((stream + 1) * MIB // 4096)
        heap = range(1 << 20, (1 << 20) + MIB // 4096)
        workers.append(
            process(
                stream,
                program="/usr/bin/server",
                instructions=10**8 * (stream + 1),
                data_misses=(1000 * (stream + 1),) * len(SIZES),
                regions=[
                    region(
                        "heap",
                        misses=(10**5 * (stream + 1), *(0,) * (len(SIZES) - 1)),
                        base=4 * MIB,
                        touched=Touched(data=heap, own=heap),
                    ),
                    region(
                        **TEXT,
                        misses=(10,) * len(SIZES),
                        base=(stream + 1) * MIB,
                        start=0,
                        touched=Touched(fetch=pages),
                    ),
                ],
            )
        )
    return result(*workers, process(WORKERS, program="/bin/sh", regions=[region(base=MIB)]))


def grids(*, per_process: bool) -> tuple[Any, Any]:
    found = server()
    rows = rows_of(found, LRU)
    manifest = {"processes": found["processes"]}
    programs = [] if per_process else programs_of(found["processes"], LRU)
    regions = region_grid(rows, [], 1, found["processes"], programs)
    return process_grid(rows, manifest, 1, programs), regions


def test_processes_of_a_program_are_one_row() -> None:
    processes, _ = grids(per_process=False)
    workers, shell = processes.rows
    assert workers[:3] == ("server (3 processes)", "/usr/bin/server", "start to exit, …")
    # 1000 + 2000 + 3000 misses in (1 + 2 + 3) * 10^8 instructions.
    assert workers[4:] == ("600 M", "0", "0.010")
    assert shell[:2] == ("3", "/bin/sh")
    alone, _ = grids(per_process=True)
    assert [row[0] for row in alone.rows] == ["0", "1", "2", "3"]
    assert "in a TLB with 64 entries for code and 64 for data" in alone.title


def test_regions_of_a_program_are_one_row_and_code_counts_once() -> None:
    _, regions = grids(per_process=False)
    rows = {row[0]: row for row in regions.rows}
    names = {
        "server (3 processes): heap",
        "server (3 processes): server text",
        "sh (process 3): heap",
    }
    assert set(rows) == names
    assert rows["server (3 processes): heap"][3] == "12 MiB"
    assert rows["server (3 processes): heap"][5] == "1.000"
    assert rows["server (3 processes): server text"][3] == "3 MiB", "the union of all workers"
    assert "counted once" in regions.title
    assert "in a TLB with 64 entries for code and 64 for data" in regions.title
    _, alone = grids(per_process=True)
    assert len(alone.rows) == 2 * WORKERS + 1
    assert "counted once" not in alone.title


def test_regions_in_the_map_have_the_names_of_their_processes() -> None:
    found = server()
    programs = programs_of(found["processes"], LRU)
    rows = rows_of(found, LRU)
    names = process_names(found["processes"], programs)
    chart = map_chart(rows_by_program(rows, programs), [], 1, names)
    assert chart is not None
    drawn = {value["region"] for value in chart["data"]["values"]}
    assert {"sh (process 3): heap", "server (3 processes): heap"} <= drawn


def test_images_of_one_process_are_not_counted_as_processes() -> None:
    """A shell that executes itself, and its child."""
    heap = region(misses=(10**5, *(0,) * (len(SIZES) - 1)), base=MIB)
    images = [process(0, regions=[heap]), process(1, replaces=0, regions=[heap])]
    found = result(
        *images, process(2, regions=[heap]), process(3, program="/bin/wc", regions=[heap])
    )
    for one in found["processes"][:3]:
        one["program"] = "/bin/sh"
    programs = programs_of(found["processes"], LRU)
    rows = rows_of(found, LRU)
    table = process_grid(rows, {"processes": found["processes"]}, 1, programs)
    assert table is not None
    assert [row[0] for row in table.rows] == ["sh (2 processes, 3 images)", "3"]
    names = process_names(found["processes"], programs)
    assert names["/bin/sh"] == "sh (2 processes, 3 images)"
    regions = region_grid(rows, [], 1, found["processes"], programs)
    assert {row[0] for row in regions.rows} == {
        "sh (2 processes, 3 images): heap",
        "wc (process 3): heap",
    }


def test_programs_with_one_base_name_are_distinguished() -> None:
    """Two servers of two processes each, whose heaps are at the same address."""
    workers = [
        process(
            stream,
            program=f"/{'ab'[stream % 2]}/worker",
            data_misses=(10**6 * (1 + stream % 2), *(0,) * (len(SIZES) - 1)),
            regions=[region(misses=(10**6 * (1 + stream % 2), *(0,) * (len(SIZES) - 1)), base=MIB)],
        )
        for stream in range(4)
    ]
    found = result(*workers)
    programs = programs_of(found["processes"], LRU)
    rows = rows_of(found, LRU)
    names = ["a/worker (2 processes)", "b/worker (2 processes)"]
    table = process_grid(rows, {"processes": found["processes"]}, 1, programs)
    assert table is not None
    assert [row[0] for row in table.rows] == names
    regions = region_grid(rows, [], 1, found["processes"], programs)
    assert sorted(row[0] for row in regions.rows) == [f"{name}: heap" for name in names]
    together = rows_by_program(rows, programs)
    short = short_names(one["program"] for one in found["processes"])
    advice = advise_all(together, LRU, names=short)
    subjects = {item.case.subject for item in advice if item.case.region is not None}
    owners = ("a/worker, 2 processes", "b/worker, 2 processes")
    assert subjects == {f"data of heap ({owner})" for owner in owners}
    # The map marks the size that is advised for the region of that program alone.
    of_a = [item.record() for item in advice if item.case.program == "/a/worker"]
    chart = map_chart(together, of_a, 1, process_names(found["processes"], programs))
    assert chart is not None
    marked = {one["region"] for one in chart["data"]["values"] if one["advised"]}
    assert marked == {f"{names[0]}: heap"}


def test_advice_and_tables_have_the_same_name_of_a_program(
    finish: Callable[..., RunResult],
) -> None:
    """One program has two processes, another of the same base name has one."""
    heap = region(misses=(10**6, *(0,) * (len(SIZES) - 1)), base=8 * MIB)
    paths = ("/a/worker", "/a/worker", "/b/worker")
    found = result(*(process(at, program=path, regions=[heap]) for at, path in enumerate(paths)))
    programs, rows = programs_of(found["processes"], LRU), rows_of(found, LRU)
    names = process_names(found["processes"], programs)
    assert names["/a/worker"] == "a/worker (2 processes)"
    manifest = finish(found).manifest
    advice = advice_records(rows, LRU, read_huge_pages(), None, manifest, programs=programs)
    assert any("heap (a/worker, 2 processes)" in item["text"].lower() for item in advice)


@pytest.mark.parametrize(
    ("paths", "short"),
    [
        (["/usr/bin/sh", "/bin/wc"], ["sh", "wc"]),
        (["/a/worker", "/b/worker", "worker", "/c"], ["a/worker", "b/worker", "worker", "c"]),
        (["/a/b/x", "/a/c/b/x", "/x"], ["a/b/x", "c/b/x", "/x"]),
        (["", "/"], ["", "/"]),
    ],
)
def test_programs_have_short_names(paths: list[str], short: list[str]) -> None:
    assert short_names(paths) == dict(zip(paths, short, strict=True))


def test_long_names_are_cut_for_people() -> None:
    long = f"/opt/{'deep/' * 1000}worker{'r' * 300}"
    own = region(f"{long} data", "data")
    found = result(*(process(stream, program=long, regions=[own]) for stream in range(2)))
    programs, rows = programs_of(found["processes"], LRU), rows_of(found, LRU)
    manifest = {"program": long, "command": [long], "processes": found["processes"]}
    table = process_grid(rows, manifest, 1, programs)
    assert table is not None
    regions = region_grid(rows, [], 1, found["processes"], programs)
    names = [subject_of(manifest), *table.rows[0][:2], regions.rows[0][0]]
    assert [len(name) < 200 for name in names] == [True] * 4
    assert names[0].startswith("…r")
    assert {row["program"] for row in rows_by_program(rows, programs) if "program" in row} == {long}


def gain_of(scope: str, **more: Any) -> dict[str, Any]:
    gain = {"low": 0.02, "expected": 0.03, "high": 0.04}
    about = {"stream": "data", "page_size": 1 << 21, "reason": "gain", "gain": gain}
    return {"scope": scope, **about, **more}


def gains_named(*items: dict[str, Any]) -> list[str]:
    names = process_names(
        [{"stream": 3, "program": "/bin/wc"}, {"stream": 4, "program": "/bin/wc"}]
    )
    chart = gains_chart(items, names)
    return [] if chart is None else [value["name"] for value in chart["data"]["values"]]


def test_gains_of_regions_have_the_names_of_their_processes() -> None:
    heaps = [gain_of("region", region="heap", process=process) for process in (3, 4)]
    assert gains_named(heaps[0]) == ["heap, 2 MiB"]
    assert gains_named(*heaps) == ["wc (process 3): heap, 2 MiB", "wc (process 4): heap, 2 MiB"]


def test_no_gain_is_drawn_where_page_walks_are_too_few() -> None:
    assert gains_named(gain_of("program")) == ["data, 2 MiB"]
    no_gain = [gain_of("program", reason="no-gain"), gain_of("region", reason="no-gain")]
    assert gains_named(*no_gain) == []


@pytest.mark.parametrize("per_process", [False, True])
def test_advice_is_about_a_program_or_about_each_process(per_process: bool) -> None:
    found = server()
    programs = [] if per_process else programs_of(found["processes"], LRU)
    rows = rows_by_program(rows_of(found, LRU), programs)
    records = [
        item.record() for item in advise_all(rows, LRU, names=NAMES) if item.case.region == "heap"
    ]
    if per_process:
        assert sorted(record["process"] for record in records) == [0, 1, 2, WORKERS]
        assert not any("program" in record for record in records)
        return
    (workers,) = (record for record in records if "program" in record)
    assert (workers["program"], workers["processes"]) == ("/usr/bin/server", [0, 1, 2])
    assert "process" not in workers
    assert workers["misses_base"] == 6 * 10**5
    assert workers["touched_bytes_base"] == 12 * MIB
    assert workers["text"].startswith("Data of heap (server, 3 processes): 8 KiB.")


def test_one_process_has_no_rows_of_programs() -> None:
    found = result(process(regions=[region(growth=FLAT)]))
    rows = rows_of(found, LRU)
    programs = programs_of(found["processes"], LRU)
    assert programs == []
    assert process_grid(rows, {"processes": found["processes"]}, 1, programs) is None
    assert [row[0] for row in region_grid(rows, [], 1, []).rows] == ["heap"]


def test_regions_that_alone_gain_too_little_have_the_page_size_of_the_program() -> None:
    """Seven regions of a program with the advice of 8 KiB pages for data; each would save too few
    misses for a change.
    """
    misses = (9000, *(0,) * (len(SIZES) - 1))
    regions = [
        region(f"anon 8.0MiB #{at}", "anonymous", misses=misses, start=at << 32) for at in range(7)
    ]
    data_misses = (10**6, *(0,) * (len(SIZES) - 1))
    found = result(process(data_misses=data_misses, regions=regions, instructions=10**8))
    rows = rows_of(found, LRU)
    advice = [item.record() for item in advise_all(rows, LRU)]
    own = {item["region"]: item for item in advice if item["scope"] == "region"}
    assert {(item["page_size"], item["reason"]) for item in own.values()} == {(4096, "negligible")}
    (row,) = region_grid(rows, advice, 1, []).rows
    assert (row[0], row[-1]) == ("anon (7)", "8 KiB")
    # A region that alone is worth a decision keeps its own.
    own["anon 8.0MiB #3"].update(page_size=4096, reason="memory")
    (row,) = region_grid(rows, advice, 1, []).rows
    assert row[-1] == "4 KiB, 8 KiB"
    # Settings of the program do not reach its stack.
    for item in own.values():
        item.update(reason="negligible", region_kind="stack")
    (row,) = region_grid(rows, advice, 1, []).rows
    assert row[-1] == "4 KiB"
    # Where no larger size of the machine was measured, nothing was judged.
    for item in own.values():
        item.update(reason="largest-size", page_size=4096)
    (row,) = region_grid(rows, advice, 1, []).rows
    assert row[-1] == ""
    assert notable_regions(advice) == []


@pytest.mark.parametrize(
    ("images", "subject", "processes"),
    [
        ([("env", None)], "/usr/bin/env", []),
        ([("env", None), ("nice", 0), ("gzip", 1)], "/usr/bin/gzip (started by env)", []),
        ([("sh", None), ("sh", None), ("ls", 1)], "/usr/bin/sh", ["2 processes"]),
    ],
)
def test_a_program_executed_in_place_of_the_first_one_is_named(
    images: list[tuple[str, int | None]], subject: str, processes: list[str]
) -> None:
    """Images are given with the streams that they replace; others are forked by the first."""
    manifest = {
        "command": [images[0][0]],
        "program": "/usr/bin/" + images[0][0],
        "processes": [
            process(stream, program="/usr/bin/" + name, replaces=replaced)
            for stream, (name, replaced) in enumerate(images)
        ],
    }
    assert subject_of(manifest) == subject
    assert several_processes(manifest) == processes


@pytest.mark.parametrize(
    ("instructions", "subject"),
    [([5, 5], "/usr/bin/timeout"), ([5, 6], "/usr/bin/ls (started by timeout)")],
)
def test_a_forked_program_that_executed_most_instructions_is_named(
    finish: Callable[..., RunResult], instructions: list[int], subject: str
) -> None:
    done = finish(
        result(
            process(0, program="/usr/bin/timeout", instructions=instructions[0]),
            process(1, program="/usr/bin/timeout", instructions=9),
            process(2, program="/usr/bin/ls", replaces=1, instructions=instructions[1]),
        )
    )
    assert done.manifest.get("main_program") == (subject.split()[0] if "by" in subject else None)
    manifest = {**done.manifest, "command": ["timeout", "5", "ls"], "program": "/usr/bin/timeout"}
    assert subject_of(manifest) == subject


@pytest.mark.parametrize(
    ("given", "program", "subject"),
    [
        ("./count", "count", "./count"),
        ("a/../count", "a/../count", "a/../count"),
        ("sort", "/usr/bin/sort", "/usr/bin/sort"),
        ("./sort.oct", "/usr/bin/sort", "/usr/bin/sort"),
    ],
)
def test_a_program_is_named_as_it_was_given(given: str, program: str, subject: str) -> None:
    manifest = {"command": [given], "program": program, "processes": []}
    assert subject_of(manifest) == subject
    # A script's process has the interpreter's name.
    assert subject_of({**manifest, "processes": [process(0, program="/usr/bin/dash")]}) == subject
