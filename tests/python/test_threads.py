"""The threads of a program by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from fakes import data_walks, footprints, process, region, result
from octavo.analysis.gain import Program
from octavo.analysis.rows import rows_of
from octavo.analysis.threads import (
    ThreadGroup,
    larger_pages,
    sentence,
    thread_groups,
    thread_records,
)
from octavo.analysis.view import thread_grid
from octavo.analysis.walk_advice import advise_by_walks
from octavo.analysis.walk_costs import WalkCosts, walk_costs
from octavo.base.huge_pages import read_huge_pages
from octavo.base.units import KIB, MIB
from octavo.hardware.modelled import given_machine
from octavo.hardware.tlb_levels import load_preset
from octavo.runs.result import RunResult, advice_records

if TYPE_CHECKING:
    from octavo._core import PageFaults, Process, ThreadCounts

LRU = load_preset("lru64")


def thread(
    name: str | None, instructions: int, number: int | None = 1, threads: int = 1
) -> ThreadCounts:
    return {
        "number": number,
        "threads": threads,
        "name": name,
        "kernel_seconds": None if name is None else 0.5,
        "instructions": instructions,
        "missed_lines": None,
        "walks": [],
    }


def of(*threads: ThreadCounts, program: str = "/usr/bin/server2") -> Process:
    return {**process(program=program), "by_thread": list(threads)}


def named(groups: list[ThreadGroup]) -> list[tuple[str, int, int]]:
    return [(group.name, group.threads, group.instructions) for group in groups]


def test_threads_of_one_name_are_together() -> None:
    threads = (
        thread("", 2),
        thread("GC Thread#0", 3),
        thread("GC Thread#1", 4),
        thread("io-12", 5),
    )
    found = thread_groups([of(*threads), of(thread("io-3", 6))])
    assert named(found) == [("io", 2, 11), ("GC Thread", 2, 7), ("server2", 1, 2)]
    assert [group.kernel_seconds for group in found] == [1.0, 1.0, 0.5]


def test_a_name_of_digits_alone_is_kept() -> None:
    assert named(thread_groups([of(thread("17", 1), thread("main", 2))])) == [
        ("main", 1, 2),
        ("17", 1, 1),
    ]


def test_processes_of_one_thread_have_none() -> None:
    assert thread_groups([of(thread("a", 1)), of(thread("b", 1))]) == []


def test_threads_without_names_are_shown_as_such() -> None:
    further = thread(None, 4, None, threads=35), thread(None, 8, None, threads=25)
    found = thread_groups([of(thread(None, 1), thread(None, 2, 96), further[0]), of(further[1])])
    assert named(found) == [("further threads", 60, 12), ("unnamed", 2, 3)]


def test_kernel_time_of_another_part_does_not_count() -> None:
    found = thread_groups([of(thread("a", 1), thread("b", 2))], kernel_time_counts=False)
    assert [group.kernel_seconds for group in found] == [None, None]


def test_the_table_has_threads_with_what_is_known_of_them() -> None:
    walking: ThreadCounts = {
        **thread("io-1", 4000),
        "walks": [{"stream": "data", "page_size": 4 * KIB, "walks": 6}],
    }
    processes = [of(walking, thread("io-2", 4000), thread(None, 2000))]
    records = thread_records(thread_groups(processes))
    records[0]["gain"] = {"low": 0.01, "expected": 0.05, "high": 0.1}
    grid = thread_grid({"threads": records})
    assert grid is not None
    assert grid.rows == (
        ("io", "2", "8000", "80.0%", "", "0.750", "1.000 s", "about 5.0% (1.0% to 10.0%)"),
        ("unnamed", "1", "2000", "20.0%", "", "", "", ""),
    )
    assert thread_grid({}) is None


@pytest.mark.parametrize(
    ("instructions", "text"),
    [
        ((960, 40), ""),
        ((600, 400), " By thread: a executed 60.0% of the instructions; b 40.0%."),
        (
            (600, 380, 20),
            " By thread: a executed 60.0% of the instructions; b 38.0%; 1 more name 2.0%.",
        ),
        ((60_000, 39_999, 1), " By thread: a executed 60.0% of the instructions; b 40.0%."),
        (
            (300, 250, 200, 120, 100, 30),
            " By thread: a executed 30.0% of the instructions; b 25.0%; c 20.0%; d 12.0%; "
            "2 more names 13.0%.",
        ),
    ],
)
def test_the_answer_names_threads_with_a_notable_share(
    instructions: tuple[int, ...], text: str
) -> None:
    threads = [thread(name, count) for name, count in zip("abcdef", instructions, strict=False)]
    assert sentence(thread_records(thread_groups([of(*threads)]))) == text


def test_a_gain_that_is_not_known_is_left_out_of_the_answer() -> None:
    records = thread_records(thread_groups([of(thread("a", 6), thread("b", 4))]))
    records[1]["gain"] = {"low": 0.1, "expected": 0.2, "high": 0.3}
    assert sentence(records).startswith(
        " By thread: a executed 60.0% of the instructions; b 40.0%, and fewer page walks would "
        "save about 20.0% (10.0% to 30.0%) of its time. Threads"
    )


def costs() -> WalkCosts:
    """Estimated costs: calibration files of this machine are not read."""
    of_machine = walk_costs(given_machine("zen3"))
    return replace(of_machine, source="preset", measured={}, entry_bytes={})


def program_of_threads(
    *threads: ThreadCounts, growth: float = 0.0, faults: PageFaults | None = None
) -> Process:
    """A program that walks 10^7 times with 4 KiB pages, and half as often with 2 MiB pages."""
    heap = region()
    heap["huge_growth_bytes"] = int(64 * MIB * growth)
    heap["page_faults"] = faults or heap["page_faults"]
    made = of(*threads)
    made["regions"] = [heap]
    grown = [0.0, *[growth] * 9]
    made["footprints"] = [
        footprint
        for stream in ("fetch", "data", "all")
        for footprint in footprints(stream, grown, base=64 * MIB)
    ]
    made["machine_curves"] = data_walks(10**7, 5 * 10**6)
    return made


def walking(name: str, instructions: int, share: float) -> ThreadCounts:
    """A thread with a share of the page walks."""
    made = thread(name, instructions)
    made["walks"] = [
        {"stream": "data", "page_size": 4 * KIB, "walks": int(10**7 * share)},
        {"stream": "data", "page_size": 2 * MIB, "walks": int(5 * 10**6 * share)},
    ]
    return made


def test_a_thread_that_does_all_the_work_gains_as_much_as_the_program() -> None:
    """Walks of larger pages take longer where these take more memory."""
    made = program_of_threads(walking("all", 10**9, 1.0), walking("none", 0, 0.0), growth=5000.0)
    whole = advise_by_walks(rows_of(result(made), LRU), LRU, costs(), kernel_seconds=1.0)
    (data,) = [item for item in whole if item.case.stream == "data" and item.case.region is None]
    run = Program(10**9, 10**7, 64 * MIB, kernel_seconds=1.0)
    pages = larger_pages([data], [data.page_size], run)
    (group, _) = thread_groups([made])
    own = replace(group, kernel_seconds=1.0).gain(run, costs(), pages)
    assert own == data.gain
    less = {"data": replace(pages["data"], memory_bytes=64 * MIB)}
    assert own != replace(group, kernel_seconds=1.0).gain(run, costs(), less)


def test_threads_whose_time_in_the_kernel_is_not_known_have_no_gain() -> None:
    made = program_of_threads(walking("a", 10**9, 1.0))
    group = ThreadGroup("further threads", 4, 10**9, {("data", 4 * KIB): 10**7}, None, None)
    (data,) = [
        item
        for item in advise_by_walks(rows_of(result(made), LRU), LRU, costs())
        if item.case.stream == "data" and item.case.region is None
    ]
    for seconds, has_gain in ((0.0, True), (1.0, False)):
        run = Program(10**9, 10**7, 64 * MIB, kernel_seconds=seconds)
        pages = larger_pages([data], [data.page_size], run)
        (record,) = thread_records([group], run, costs(), pages)
        assert (record["gain"] is not None) == has_gain


@pytest.mark.parametrize("is_sparse", [False, True])
def test_gains_of_threads_are_not_promised_where_the_answer_expects_a_loss(
    is_sparse: bool, finish: Callable[..., RunResult]
) -> None:
    """Of a sparse program each 2 MiB page has a fault and saves one."""
    faults: PageFaults = {
        "base": 100_000,
        "huge": 100_000 if is_sparse else 200,
        "huge_again": 0,
        "left": 0,
    }
    made = program_of_threads(
        walking("a", 6 * 10**8, 0.5), walking("b", 4 * 10**8, 0.5), faults=faults
    )
    whole = result(made)
    (answer, *_) = advice_records(
        rows_of(whole, LRU),
        LRU,
        read_huge_pages(),
        ["server"],
        finish(whole, "zen3").manifest,
        costs=costs(),
        threads=thread_groups([made]),
    )
    assert (answer["gain"]["expected"] < 0) == is_sparse
    assert [one["gain"] is None for one in answer["threads"]] == [is_sparse] * 2
    assert ("By thread, without page faults: a executed" in answer["text"]) != is_sparse
    assert ("By thread: a executed" in answer["text"]) == is_sparse
    assert ("of its time" in answer["text"]) != is_sparse
