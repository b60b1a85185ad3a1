"""The output of `octavo apply --pid`: sentences and a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from octavo.applying.collapse import ENDED, Work
from octavo.applying.running import ProcessReport, memory_in_huge_pages
from octavo.base.huge_pages import PMD_PAGE
from octavo.base.table import Grid
from octavo.base.text import plural
from octavo.base.units import NOT_AVAILABLE, counted, format_bytes

_SHOWN_REGIONS = 8
UNDO = (
    "To undo it, restart the program: its pages stay huge until it frees them or the kernel "
    "splits them (after a fork, under memory pressure), and none can be forbidden from outside."
)


def headline(report: ProcessReport, *, dry_run: bool) -> str:
    """The result for one process, or the plan of a dry run, in one sentence."""
    subject = f"{report.name} (process {report.pid})"
    resident = sum(work.mapping.resident_bytes for work in report.works)
    huge = sum(work.mapping.huge for work in report.works)
    if not report.works:
        return f"{subject}: no selected mapping has a whole 2 MiB range in use."
    before = f"{format_bytes(huge)} of {format_bytes(resident)}"
    if dry_run:
        return (
            f"{subject}: 2 MiB pages hold {before}; {_pages(report.planned)} would be made, "
            f"{format_bytes(report.planned * PMD_PAGE)}."
        )
    if report.stopped == ENDED:
        return f"{subject}: it ended meanwhile; {_pages(report.made)} had been made."
    after = format_bytes(memory_in_huge_pages([report]))
    return (
        f"{subject}: 2 MiB pages hold {after} now, {before} before; {_pages(report.made)} made in "
        f"{report.seconds:.2f} s."
    )


def family_headline(reports: Sequence[ProcessReport], *, dry_run: bool) -> str:
    """The result for several processes, or the plan of a dry run, in one sentence."""
    pages = sum(report.planned if dry_run else report.made for report in reports)
    made = "would be made" if dry_run else "made"
    return f"{counted(len(reports), 'process')}: {_pages(pages)} {made}."


def ranges_left_alone(reports: Sequence[ProcessReport]) -> list[str]:
    """Sentences about the ranges that were left alone, by reason."""
    counts = sum((report.left_alone for report in reports), Counter[str]())
    return [
        f"Left as {'it is' if count == 1 else 'they are'}: {_ranges(count)}; {reason}."
        for reason, count in counts.most_common()
    ]


def remarks(report: ProcessReport, *, dry_run: bool) -> list[str]:
    """Sentences about the growth of memory, an early stop, and the ranges left alone."""
    sentences = []
    growth = sum(work.growth for work in report.works)
    if growth:
        verb = "would grow" if dry_run else "grows"
        sentences.append(
            f"Memory {verb} by at most {format_bytes(growth)}: the pages of the ranges not in use."
        )
    if report.stopped is not None and report.stopped != ENDED:
        sentences.append(f"Stopped: {report.stopped}.")
    return sentences + ranges_left_alone([report])


def regions_grid(report: ProcessReport, *, dry_run: bool) -> Grid:
    """The regions with most resident memory, one a row, and all others in a last row."""
    works = sorted(report.works, key=lambda work: -work.mapping.resident_bytes)
    rows = [_row(_name(work), [work]) for work in works[:_SHOWN_REGIONS]]
    rest = works[_SHOWN_REGIONS:]
    if rest:
        rows.append(_row(f"{len(rest)} smaller ones", rest))
    made = "to be made" if dry_run else "made"
    head = ("region", "resident", "huge before", "huge now", f"pages {made}", "left alone")
    return Grid(f"Regions of {report.name}", head, tuple(rows))


def _row(name: str, works: Sequence[Work]) -> tuple[str, ...]:
    after = [work.huge_after for work in works if work.huge_after is not None]
    made = sum(work.done + len(work.todo) for work in works)
    alone = sum(sum((work.left_alone + work.refused).values()) for work in works)
    return (
        name,
        format_bytes(sum(work.mapping.resident_bytes for work in works)),
        format_bytes(sum(work.mapping.huge for work in works)),
        format_bytes(sum(after)) if after else NOT_AVAILABLE,
        str(made),
        str(alone),
    )


def _name(work: Work) -> str:
    mapping = work.mapping
    if mapping.kind == "heap":
        return f"heap, {format_bytes(mapping.bytes)}"
    name = mapping.name or "anonymous"
    return f"{name}, {format_bytes(mapping.bytes)} at {mapping.start:#x}"


def _pages(count: int) -> str:
    return f"{count} {plural(count, 'page')}"


def _ranges(count: int) -> str:
    return f"{count} {plural(count, 'range')} of 2 MiB"
