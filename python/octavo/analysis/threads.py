"""Threads of a program by name: what part of the instructions each has, and what it would gain.

The tracer executes one thread at a time, and a machine executes them side by side. A thread that
wakes up by the clock executes more of the instructions under the tracer than natively, and then
the gain of the whole program is not that of the threads that serve its load.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from octavo.analysis.advice import Advice
from octavo.analysis.gain import LEAST_SHOWN, Gain, Program, gain
from octavo.analysis.walk_advice import memory_with
from octavo.analysis.walk_costs import WalkCosts
from octavo.base.units import BASE_PAGE, format_share

if TYPE_CHECKING:
    from octavo._core import Process, ThreadCounts

_LEAST_SHARE = 0.05
"""The smallest share of the instructions that the answer mentions."""
_MOST_NAMED = 4
"""Limit of names in the answer."""
_UNNAMED, _FURTHER = "unnamed", "further threads"
_NUMBER = re.compile(r"[-#_ ]*\d+$")
_NAME_BYTES = 15
"""Length of the names that the kernel gives to threads."""


@dataclass(frozen=True)
class LargerPages:
    """The larger pages of a stream."""

    page_size: int
    memory_bytes: int
    """The program's memory with them."""


@dataclass(frozen=True)
class ThreadGroup:
    """The threads with one name, numbers at the end of names left out."""

    name: str
    threads: int
    instructions: int
    walks: Mapping[tuple[str, int], int]
    """By stream and page size; empty without a machine."""
    missed_lines: int | None
    kernel_seconds: float | None

    def gain(
        self, program: Program, costs: WalkCosts, pages: Mapping[str, LargerPages]
    ) -> Gain | None:
        """The gain of fewer page walks as a share of the time of these threads; None where the time
        of their system calls is not known, but that of the program's is. `program` has the
        figures of the whole program, `pages` the larger pages of each stream that gets some.
        """
        if self.kernel_seconds is None and program.kernel_seconds:
            return None
        own = replace(
            program,
            instructions=self.instructions,
            walks=sum(walks for (_, size), walks in self.walks.items() if size == BASE_PAGE),
            page_faults=0,
            missed_lines=self.missed_lines,
            kernel_seconds=self.kernel_seconds or 0.0,
        )
        gains = [
            gain(
                own,
                costs,
                larger.page_size,
                self.walks.get((stream, BASE_PAGE), 0),
                self.walks.get((stream, larger.page_size), 0),
                larger.memory_bytes,
            )
            for stream, larger in pages.items()
        ]
        sums = (sum(getattr(one, part) for one in gains) for part in ("low", "expected", "high"))
        return Gain(*(min(1.0, part) for part in sums))


def larger_pages(
    advice: Sequence[Advice], usable: Sequence[int], program: Program
) -> dict[str, LargerPages]:
    """The larger pages of the streams that are to change, in the `usable` page size of each piece
    of advice; where none is to change, those whose gain was judged.
    """

    def pages(sizes: Sequence[int | None]) -> dict[str, LargerPages]:
        return {
            item.case.stream: LargerPages(size, memory_with(program, item.case, point))
            for item, size in zip(advice, sizes, strict=True)
            if item.case.region is None and item.gain_page_size
            for point in item.case.points
            if point.page_size == size and size > BASE_PAGE and point.walks is not None
        }

    return pages(usable) or pages([item.gain_page_size for item in advice])


def thread_groups(
    processes: Sequence[Process], *, kernel_time_counts: bool = True
) -> list[ThreadGroup]:
    """The threads of all processes by name, in descending order of instructions; empty where no
    process has several. `kernel_time_counts` is False where the time of system calls is not that of
    the counted part.
    """
    counted = [(process, process["by_thread"]) for process in processes]
    if all(len(threads) < 2 for _, threads in counted):
        return []
    members: dict[str, list[ThreadCounts]] = {}
    for process, threads in counted:
        for thread in threads:
            members.setdefault(_name(thread, process["program"]), []).append(thread)
    groups = [_group(name, threads, kernel_time_counts) for name, threads in members.items()]
    return sorted(groups, key=lambda group: -group.instructions)


def _name(thread: ThreadCounts, program: str) -> str:
    if thread["number"] is None:
        return _FURTHER
    if thread["name"] is None:
        return _UNNAMED
    if not thread["name"]:
        return PurePath(program).name[:_NAME_BYTES]
    return _NUMBER.sub("", thread["name"]) or thread["name"]


def _group(name: str, threads: Sequence[ThreadCounts], kernel_time_counts: bool) -> ThreadGroup:
    walks: Counter[tuple[str, int]] = Counter()
    for thread in threads:
        for walked in thread["walks"]:
            walks[walked["stream"], walked["page_size"]] += walked["walks"]
    missed = [one for thread in threads if (one := thread["missed_lines"]) is not None]
    times = [time for thread in threads if (time := thread["kernel_seconds"]) is not None]
    return ThreadGroup(
        name=name,
        threads=sum(thread["threads"] for thread in threads),
        instructions=sum(thread["instructions"] for thread in threads),
        walks=walks,
        missed_lines=sum(missed) if len(missed) == len(threads) else None,
        kernel_seconds=sum(times) if kernel_time_counts and len(times) == len(threads) else None,
    )


def thread_records(
    groups: Sequence[ThreadGroup],
    program: Program | None = None,
    costs: WalkCosts | None = None,
    pages: Mapping[str, LargerPages] = {},
) -> list[dict[str, Any]]:
    """Plain data for the JSON; the gains are null without a `program`, or without `pages`."""
    everything = sum(group.instructions for group in groups)
    records = []
    for group in groups:
        found = None
        if program is not None and costs is not None and pages:
            found = group.gain(program, costs, pages)
        records.append(
            {
                "name": group.name,
                "threads": group.threads,
                "instructions": group.instructions,
                "share": group.instructions / everything,
                "walks": [
                    {"stream": stream, "page_size": size, "walks": walks}
                    for (stream, size), walks in group.walks.items()
                ],
                "missed_lines": group.missed_lines,
                "kernel_seconds": group.kernel_seconds,
                "gain": None if found is None else asdict(found),
            }
        )
    return records


def sentence(records: Sequence[Mapping[str, Any]], *, has_faults: bool = False) -> str:
    """The names and gains of threads with a notable share of the instructions; empty where fewer
    than two names have one. `has_faults` says whether page faults are part of the other gains.
    """
    notable = [record for record in records if record["share"] >= _LEAST_SHARE]
    if len(notable) < 2:
        return ""
    named = notable[:_MOST_NAMED]
    gains = [None if record["gain"] is None else Gain(**record["gain"]) for record in named]
    has_gains = any(own is not None and own.is_expected for own in gains)
    parts: list[str] = []
    is_first_gain = True
    for record, own in zip(named, gains, strict=True):
        name, share = _name_of(record), format_share(record["share"])
        parts.append(f"{name} {share}" if parts else f"{name} executed {share} of the instructions")
        if not has_gains or own is None:
            continue
        saves = f"and fewer page walks would save {own} of its time" if is_first_gain else own
        parts[-1] += f", {saves}"
        is_first_gain = False
    others = [record["share"] for record in records[len(named) :]]
    if sum(others) >= LEAST_SHOWN:
        names = "name" if len(others) == 1 else "names"
        parts.append(f"{len(others)} more {names} {format_share(sum(others))}")
    without = ", without page faults" if has_gains and has_faults else ""
    text = f" By thread{without}: {'; '.join(parts)}."
    if has_gains:
        text += (
            " Threads run side by side natively: a server's throughput depends on the threads that "
            "serve its load."
        )
    return text


def _name_of(record: Mapping[str, Any]) -> str:
    several = f" ({record['threads']} threads)" if record["threads"] > 1 else ""
    return f"{record['name']}{several}"
