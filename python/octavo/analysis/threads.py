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

from octavo.analysis.gain import Gain, Program, gain
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
class ThreadGroup:
    """The threads with one name, numbers at the end of names left out."""

    name: str
    threads: int
    instructions: int
    walks: Mapping[tuple[str, int], int]
    """By stream and page size; empty without a machine."""
    missed_lines: int | None
    kernel_seconds: float | None

    def gain(self, program: Program, costs: WalkCosts, sizes: Mapping[str, int]) -> Gain:
        """The gain of fewer page walks as a share of the time of these threads. `program` has the
        figures of the whole program, `sizes` the page size of each stream that becomes larger.
        """
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
                size,
                self.walks.get((stream, BASE_PAGE), 0),
                self.walks.get((stream, size), 0),
                program.touched_bytes,
            )
            for stream, size in sizes.items()
        ]
        sums = (sum(getattr(one, part) for one in gains) for part in ("low", "expected", "high"))
        return Gain(*(min(1.0, part) for part in sums))


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
    sizes: Mapping[str, int] = {},
) -> list[dict[str, Any]]:
    """Plain data for the JSON; the gains are null without a `program`, or without `sizes`."""
    everything = sum(group.instructions for group in groups)
    records = []
    for group in groups:
        found = None
        if program is not None and costs is not None and sizes:
            found = asdict(group.gain(program, costs, sizes))
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
                "gain": found,
            }
        )
    return records


def sentence(records: Sequence[Mapping[str, Any]]) -> str:
    """The names and gains of threads with a notable share of the instructions; empty where fewer
    than two names have one.
    """
    notable = [record for record in records if record["share"] >= _LEAST_SHARE]
    if len(notable) < 2:
        return ""
    gains = [None if record["gain"] is None else Gain(**record["gain"]) for record in notable]
    has_gains = any(gain is not None and gain.is_expected for gain in gains)
    named = list(zip(notable, gains, strict=True))[:_MOST_NAMED]
    (first, first_gain), *others = named
    parts = [f"{_name_of(first)} executed {format_share(first['share'])} of the instructions"]
    if has_gains:
        parts[0] += f", and fewer page walks would save {first_gain} of its time"
    for record, gain in others:
        of_time = f", {gain}" if has_gains else ""
        parts.append(f"{_name_of(record)} {format_share(record['share'])}{of_time}")
    text = f" By thread: {'; '.join(parts)}."
    if has_gains:
        text += (
            " Threads run side by side natively: a server's throughput gains what the threads gain "
            "that serve its load."
        )
    return text


def _name_of(record: Mapping[str, Any]) -> str:
    several = f" ({record['threads']} threads)" if record["threads"] > 1 else ""
    return f"{record['name']}{several}"
