"""The threads of a program by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from fakes import process
from octavo.analysis.threads import ThreadGroup, sentence, thread_groups, thread_records

if TYPE_CHECKING:
    from octavo._core import Process, ThreadCounts


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


@pytest.mark.parametrize(
    ("instructions", "text"),
    [
        ((960, 40), ""),
        ((600, 400), " By thread: a executed 60.0% of the instructions; b 40.0%."),
    ],
)
def test_the_answer_names_threads_with_a_notable_share(
    instructions: tuple[int, int], text: str
) -> None:
    a, b = instructions
    assert sentence(thread_records(thread_groups([of(thread("a", a), thread("b", b))]))) == text
