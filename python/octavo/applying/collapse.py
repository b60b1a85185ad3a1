"""Makes 2 MiB pages in the mappings of a running process: plans the work and performs it."""

from __future__ import annotations

import errno
import os
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from octavo.applying.mappings import Mapping, parse_mappings
from octavo.applying.remote import RemoteProcess, looking_at
from octavo.applying.selection import Selection
from octavo.base.errors import CannotRun
from octavo.base.huge_pages import PMD_PAGE
from octavo.base.units import BASE_PAGE

_RANGE_PAGES = PMD_PAGE // BASE_PAGE

ENDED = "the process has ended"
SPARSE = "too little of the range is in use (--min-fill)"
FORKED = "the range is shared with another process since a fork"
MISPLACED = "the mapping begins elsewhere in a 2 MiB range than in its file"
FORBIDDEN = "the program or the kernel forbids huge pages here (MADV_NOHUGEPAGE)"
_REASONS = {
    errno.EINVAL: "the kernel makes no huge page of this range (EINVAL)",
    errno.ENOMEM: "the machine has no free 2 MiB of memory in one piece (ENOMEM)",
    errno.EBUSY: "the limit of the memory cgroup is reached (EBUSY)",
    errno.EAGAIN: "the kernel is using pages of the range, as for input and output (EAGAIN)",
    errno.ESRCH: ENDED,
}
_HOPELESS = frozenset({errno.ENOMEM, errno.EBUSY})
"""Errors with which the next range would fail, too."""
_MOST_AT_ONCE = 16
"""Limit of ranges in one call, which takes some tens of milliseconds and cannot be interrupted."""
_NO_PRIVILEGE = (
    "changing the memory of another process needs the capability CAP_SYS_NICE: run octavo as root "
    "(sudo), or start the program by `octavo apply -- PROGRAM`, which needs no privilege."
)


@dataclass
class Work:
    """The planned and the finished work on one mapping; counts are of 2 MiB ranges."""

    mapping: Mapping
    todo: list[int] = field(default_factory=list)
    """Addresses of ranges to collapse."""
    growth: int = 0
    """Bytes that the pages of these ranges would add to memory."""
    done: int = 0
    left_alone: Counter[str] = field(default_factory=Counter)
    """Ranges in use that are not to be collapsed, by the reason."""
    blocked: Counter[str] = field(default_factory=Counter)
    """Ranges of `left_alone` that are full enough and would be collapsed without the reason."""
    refused: Counter[str] = field(default_factory=Counter)
    """Ranges that the kernel did not collapse, by the reason."""
    huge_after: int | None = None
    """Bytes in 2 MiB pages at the end; None where the mapping has gone."""
    resident_after: int | None = None


def read_mappings(pid: int) -> list[Mapping]:
    """All mappings of a process. Raises CannotRun."""
    with looking_at(pid):
        return parse_mappings(Path(f"/proc/{pid}/smaps").read_bytes())


def plan(
    process: RemoteProcess, mappings: Iterable[Mapping], selection: Selection, min_fill: float
) -> list[Work]:
    """The work on the selected mappings; `min_fill` is the share of a range that must be in use,
    and in use by this process alone unless the mapping is shared memory.
    """
    return [
        _survey(process, mapping, min_fill)
        for mapping in mappings
        if mapping.ranges() and mapping.resident_bytes
        if selection.wants(mapping.kind, mapping.bytes)
    ]


def _survey(process: RemoteProcess, mapping: Mapping, min_fill: float) -> Work:
    work = Work(mapping)
    ranges = mapping.ranges()
    if "ht" in mapping.flags:
        return work
    at = ranges.start
    while at in ranges:
        page = process.find_used(at, ranges[-1] + PMD_PAGE)
        if page is None:
            break
        used, is_huge = page
        at = used // PMD_PAGE * PMD_PAGE
        if not is_huge:
            _judge(process, work, at, min_fill)
        at += PMD_PAGE
    return work


def _judge(process: RemoteProcess, work: Work, address: int, min_fill: float) -> None:
    present, exclusive = process.pages_in_use(address)
    own = present if work.mapping.kind == "shared" else exclusive
    is_filled = present >= min_fill * _RANGE_PAGES
    if not present:
        return
    if "nh" in work.mapping.flags:
        reason = FORBIDDEN
    elif not work.mapping.is_aligned:
        reason = MISPLACED
    elif own >= min_fill * _RANGE_PAGES:
        work.todo.append(address)
        work.growth += PMD_PAGE - present * BASE_PAGE
        return
    else:
        reason = FORKED if is_filled else SPARSE
    work.left_alone[reason] += 1
    work.blocked[reason] += is_filled


def perform(
    process: RemoteProcess, works: Iterable[Work], go_on: Callable[[int], bool]
) -> str | None:
    """Collapses the planned ranges. After each call, `go_on` gets the number of pages made so far
    and returns whether to continue.

    Adjacent ranges are collapsed in one call, since each call makes all processors drain their
    lists of new pages (`lru_add_drain_all`), and one by one only where that fails.

    Returns the reason why it stopped early, or None. Raises CannotRun without the privilege.
    """
    made = 0
    for work in works:
        while work.todo:
            count = _neighbours(work.todo)
            if count > 1 and process.collapse(work.todo[0], count) == 0:
                del work.todo[:count]
                work.done += count
                made += count
                if not go_on(made):
                    return None
                continue
            number = process.collapse(work.todo[0])
            if number == errno.EPERM:
                raise CannotRun(_NO_PRIVILEGE)
            if number == errno.ENOSYS:
                raise CannotRun("this kernel has no process_madvise; Linux 5.10 brought it.")
            reason = _REASONS.get(number, os.strerror(number))
            if number == errno.ESRCH or (number and process.has_ended):
                return ENDED
            if number in _HOPELESS:
                work.refused[reason] += len(work.todo)
                work.todo.clear()
                return reason
            work.todo.pop(0)
            if number == 0:
                work.done += 1
                made += 1
            else:
                work.refused[reason] += 1
            if not go_on(made):
                return None
    return None


def _neighbours(addresses: list[int]) -> int:
    """The number of adjacent ranges at the beginning, at most _MOST_AT_ONCE."""
    count = 1
    while (
        count < min(len(addresses), _MOST_AT_ONCE)
        and addresses[count] == addresses[count - 1] + PMD_PAGE
    ):
        count += 1
    return count


def measure(pid: int, works: Iterable[Work]) -> None:
    """Reads how much of each mapping is in 2 MiB pages after the work."""
    try:
        mappings = read_mappings(pid)
    except CannotRun:
        return
    for work in works:
        first, end = work.mapping.start, work.mapping.end
        # A mapping may have been split meanwhile, or merged into another.
        now = [mapping for mapping in mappings if first <= mapping.start < end]
        if now:
            work.huge_after = sum(mapping.huge for mapping in now)
            work.resident_after = sum(mapping.resident_bytes for mapping in now)
