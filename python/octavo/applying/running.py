"""`octavo apply --pid`: collapses the memory in use, and with `--watch` also new memory later."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from octavo.applying.budget import Budget
from octavo.applying.collapse import ENDED, Work, measure, perform, plan, read_mappings
from octavo.applying.remote import RemoteProcess
from octavo.applying.selection import Selection
from octavo.base.errors import CannotRun
from octavo.base.huge_pages import MIN_FILL, PMD_PAGE
from octavo.base.processes import (
    descendants,
    has_huge_pages_disabled,
    is_kernel_thread,
    minor_faults,
    name_of,
)

_ENOUGH_FAULTS = 256
"""Page faults that fill half a 2 MiB range; fewer bring nothing new to collapse."""
_SHORTEST_SECONDS, _LONGEST_SECONDS = 0.2, 10.0
"""Limits of the time between two passes of a watch."""

GoOn = Callable[[int], bool]
"""Called after each range with the number of pages made so far; returns whether to continue."""


@dataclass(frozen=True)
class Order:
    """An order to collapse memory of running processes."""

    selection: Selection
    min_fill: float = MIN_FILL
    """The share of a 2 MiB range that must be in use."""
    dry_run: bool = False


@dataclass
class ProcessReport:
    """The result for one process."""

    pid: int
    name: str
    works: list[Work] = field(default_factory=list)
    seconds: float = 0.0
    stopped: str | None = None
    """The reason why some planned ranges were not tried; None where all were."""

    @property
    def made(self) -> int:
        """Pages of 2 MiB made."""
        return sum(work.done for work in self.works)

    @property
    def planned(self) -> int:
        """Pages of 2 MiB that were to be made."""
        refused = sum(sum(work.refused.values()) for work in self.works)
        return self.made + refused + sum(len(work.todo) for work in self.works)

    @property
    def left_alone(self) -> Counter[str]:
        """Ranges that stay as they are, by the reason."""
        return sum((work.left_alone + work.refused for work in self.works), Counter())

    def record(self) -> dict[str, Any]:
        """Plain data for the JSON."""
        return {
            "pid": self.pid,
            "name": self.name,
            "seconds": self.seconds,
            "planned_pages": self.planned,
            "made_pages": self.made,
            "stopped": self.stopped,
            "regions": [_region_record(work) for work in self.works],
        }


def _region_record(work: Work) -> dict[str, Any]:
    mapping = work.mapping
    return {
        "kind": mapping.kind,
        "name": mapping.name,
        "start": mapping.start,
        "bytes": mapping.bytes,
        "resident_bytes_before": mapping.resident_bytes,
        "resident_bytes": work.resident_after,
        "huge_bytes_before": mapping.huge,
        "huge_bytes": work.huge_after,
        "growth_bytes": work.growth,
        "planned_pages": work.done + len(work.todo) + sum(work.refused.values()),
        "made_pages": work.done,
        "refused": dict(work.refused),
        "left_alone": dict(work.left_alone),
    }


def apply_once(pid: int, order: Order, go_on: GoOn) -> ProcessReport:
    """Collapses the memory in use of the selected mappings. Raises CannotRun."""
    started = time.monotonic()
    report = ProcessReport(pid, name_of(pid))
    with RemoteProcess(pid) as process:
        if is_kernel_thread(pid):
            raise CannotRun(
                f"process {pid} is a thread of the kernel; it has no memory of its own."
            )
        try:
            mappings = read_mappings(pid)
            report.works = plan(process, mappings, order.selection, order.min_fill)
            if not order.dry_run:
                report.stopped = perform(process, report.works, go_on)
        except OSError:
            if not process.has_ended:
                raise
            report.stopped = ENDED
        if not order.dry_run:
            measure(pid, report.works)
        if process.has_ended:
            report.stopped = ENDED
    report.seconds = time.monotonic() - started
    return report


def apply_to_all(pids: Iterable[int], order: Order, go_on: GoOn) -> list[ProcessReport]:
    """Calls `apply_once` for several processes; later ones that have ended are left out.

    Raises CannotRun, also where the first process has ended.
    """
    reports: list[ProcessReport] = []
    for pid in pids:
        if reports and minor_faults(pid) is None:
            continue
        try:
            reports.append(apply_once(pid, order, go_on))
        except CannotRun:
            if not reports or minor_faults(pid) is not None:
                raise
    return reports


def check_can_have_huge_pages(pid: int) -> None:
    """Raises CannotRun for a process that may have no huge pages."""
    if has_huge_pages_disabled(pid):
        raise CannotRun(
            f"process {pid} has switched huge pages off for itself (prctl PR_SET_THP_DISABLE), and "
            "only the process itself can switch them on."
        )


def family(pid: int, *, children: bool) -> list[int]:
    """The process, and with `children` its descendants."""
    return [pid, *descendants(pid)] if children else [pid]


class Watch:
    """Makes pages of memory touched since the watch was made, until the process ends.

    `budget` is the share of one processor that it may use.
    """

    def __init__(self, pid: int, order: Order, *, children: bool, budget: float) -> None:
        self._pid, self._order, self._children = pid, order, children
        self._budget = Budget(budget)
        self._faults = self._faults_now()
        self.made = 0
        """Pages of 2 MiB that the watch made."""

    def run(self) -> None:
        """Returns when the process has ended. Raises CannotRun."""
        interval = _SHORTEST_SECONDS
        with RemoteProcess(self._pid) as process:
            while not process.wait(max(interval, self._budget.seconds_to_credit())):
                is_busy = any(report.made for report in self._look())
                interval = _SHORTEST_SECONDS if is_busy else min(2 * interval, _LONGEST_SECONDS)

    def _faults_now(self) -> dict[int, int]:
        pids = family(self._pid, children=self._children)
        return {pid: faults for pid in pids if (faults := minor_faults(pid)) is not None}

    def _go_on_from(self, before: int) -> GoOn:
        def go_on(made: int) -> bool:
            self.made = before + made
            return not self._budget.is_spent()

        return go_on

    def _look(self) -> list[ProcessReport]:
        now = self._faults_now()
        # All memory of a process seen for the first time is new.
        known = {pid: self._faults.get(pid, 0) for pid in now}
        reports = []
        for pid, faults in now.items():
            if faults - known[pid] < _ENOUGH_FAULTS or self._budget.is_spent():
                continue
            try:
                report = apply_once(pid, self._order, self._go_on_from(self.made))
            except CannotRun:
                if minor_faults(pid) is None:
                    continue
                raise
            reports.append(report)
            if not any(work.todo for work in report.works):
                known[pid] = faults
        self._faults = known
        return reports


def memory_in_huge_pages(reports: Iterable[ProcessReport]) -> int:
    """Bytes in 2 MiB pages at the end, without hugetlbfs, over all reports."""
    works = (work for report in reports for work in report.works)
    return sum(work.mapping.huge if work.huge_after is None else work.huge_after for work in works)


def obstacle(reports: Sequence[ProcessReport]) -> str | None:
    """The most frequent reason why no page was made; None where some were made, or where no range
    needed one: all were too empty, or in huge pages already.
    """
    if any(report.made for report in reports):
        return None
    works = [work for report in reports for work in report.works]
    reasons = sum((work.refused for work in works), Counter())
    reasons[ENDED] += sum(len(work.todo) for work in works)
    if not reasons.total() and not memory_in_huge_pages(reports):
        reasons = sum((work.blocked for work in works), Counter())
    return max(reasons, key=reasons.__getitem__) if reasons.total() else None


def bytes_made(reports: Iterable[ProcessReport]) -> int:
    """Bytes of the 2 MiB pages made."""
    return PMD_PAGE * sum(report.made for report in reports)
