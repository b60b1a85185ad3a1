"""Advice from the page walks of a modelled machine and from page faults: whether the time that
larger pages save is worth their memory.

Only page sizes with TLB entries in the machine are judged, 4 KiB and 2 MiB on most. The walks and
page faults that each size saves are turned into a share of the program's time, with an interval
(`octavo.analysis.gain`). A size is advised where its expected gain reaches `Thresholds.min_gain`
and the memory that it takes is acceptable.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from octavo.analysis.advice import (
    Advice,
    Case,
    Point,
    Reason,
    Thresholds,
    cases_to_advise,
    is_allowed,
)
from octavo.analysis.gain import NO_FAULTS, NO_GAIN, Gain, PageFaults, Program, gain
from octavo.analysis.huge_growth import huge_growth, with_growth
from octavo.analysis.native_time import NativeTime
from octavo.analysis.rows import CORE_CACHE, FAULTS, Row, memory_by_size, stream_counters
from octavo.analysis.walk_costs import WalkCosts
from octavo.base.huge_pages import PMD_PAGE
from octavo.base.text import capitalised
from octavo.base.units import (
    BASE_PAGE,
    counted,
    format_bytes,
    format_count,
    format_mpki,
    format_share,
)
from octavo.hardware.tlb_levels import Machine

_WALKS_A_FAULT = 100
"""Page walks in near caches that take as long as one page fault."""
_BEST_SHARE = 0.95
"""The share of the best gain that a smaller size must reach to be preferred."""


def advise_by_walks(
    rows: Sequence[Row],
    machine: Machine,
    costs: WalkCosts,
    limits: Thresholds = Thresholds(),
    *,
    with_faults: bool = True,
    native: NativeTime | None = None,
    kernel_seconds: float = 0.0,
    names: Mapping[str, str] = {},
) -> list[Advice]:
    """Advice for code, for data, then for each large region, in descending order of walks.

    `with_faults` says whether page faults at first touches count. `native` is the native time of
    the counted part, if that is known. `kernel_seconds` is the processor time of its system calls.
    `names` has a short name of each program.
    """
    if not with_faults:
        rows = [row for row in rows if row["component"] != FAULTS]
    whole, large = cases_to_advise(rows, machine, names)
    growth = huge_growth(rows)
    whole = [with_growth(case, growth) for case in whole]
    program = program_of(rows, whole, native, kernel_seconds)
    return [_advise(case, program, costs, limits) for case in (*whole, *large)]


def program_of(
    rows: Sequence[Row], whole: Sequence[Case], native: NativeTime | None, kernel_seconds: float
) -> Program:
    """The figures that the program's time is estimated from."""
    counted = stream_counters(rows)
    return Program(
        instructions=counted.get("instructions") or counted.get("references", 0),
        walks=sum(case.base.walks or 0 for case in whole),
        touched_bytes=memory_by_size(rows).get(BASE_PAGE, 0),
        page_faults=sum(case.base.page_faults or 0 for case in whole),
        missed_lines=next((row["value"] for row in rows if row["component"] == CORE_CACHE), None),
        native=native,
        kernel_seconds=kernel_seconds,
    )


def _advise(case: Case, program: Program, costs: WalkCosts, limits: Thresholds) -> Advice:
    gains = {
        point.page_size: _gain(case, point, program, costs)
        for point in case.points
        if point.walks is not None and point.page_size > BASE_PAGE
    }
    allowed = {size: own for size, own in gains.items() if is_allowed(case, case.at(size), limits)}
    chosen, reason, judged = _choose(case, gains, allowed, limits)
    best, of_walks, cycles, returned = None, None, None, ""
    if judged is not None:
        best, point = gains[judged], case.at(judged)
        of_walks = _gain(case, replace(point, page_faults=None), program, costs)
        cycles = (
            costs.walk(BASE_PAGE, program.touched_bytes),
            costs.walk(judged, memory_with(program, case, point)),
        )
        usual = _gain(case, point, program, costs.without_returned_memory())
        if usual.expected - best.expected >= limits.min_gain:
            returned = _of_returned_memory(costs, judged)
    return Advice(
        case=case,
        page_size=chosen,
        reason=reason,
        text=_sentence(case, chosen, reason, judged, best or NO_GAIN, costs, limits) + returned,
        basis="walks",
        gain=best,
        walk_cycles=cycles,
        gain_page_size=judged,
        gain_of_walks=of_walks,
    )


def _gain(case: Case, point: Point, program: Program, costs: WalkCosts) -> Gain:
    return gain(
        program,
        costs,
        point.page_size,
        case.base.walks or 0,
        point.walks or 0,
        memory_with(program, case, point),
        _faults(case, point),
    )


def _faults(case: Case, point: Point) -> PageFaults:
    if point.page_faults is None:
        return NO_FAULTS
    return PageFaults(
        base=case.base.page_faults or 0,
        large=point.huge_page_faults,
        again=point.huge_page_faults_again,
        left=point.page_faults - point.huge_page_faults,
    )


def memory_with(program: Program, case: Case, point: Point) -> int:
    """The program's memory where the case's pages have the point's size."""
    return program.touched_bytes + max(0, point.touched_bytes - case.base.touched_bytes)


def _choose(
    case: Case, gains: dict[int, Gain], allowed: dict[int, Gain], limits: Thresholds
) -> tuple[int, Reason, int | None]:
    """The advised size, why it is not another, and the size whose gain decided it."""
    if case.base.touched_bytes == 0:
        return BASE_PAGE, "no-references", None
    if not gains:
        return BASE_PAGE, "largest-size", None
    best = _best(gains)
    if gains[best].expected < limits.min_gain or _is_few(case, best, limits):
        return BASE_PAGE, "no-gain", best
    if allowed:
        size = _best(allowed)
        if allowed[size].expected >= limits.min_gain:
            return size, "gain" if size == best else "memory", size
    return BASE_PAGE, "memory", best


def _saved_walks(case: Case, size: int) -> int:
    """The page walks that pages of a size save, in all."""
    return (case.base.walks or 0) - (case.at(size).walks or 0)


def _saved_faults(case: Case, size: int) -> int:
    """The page faults that pages of a size save, in all; 0 where the counts are not known."""
    left = case.at(size).page_faults
    return 0 if left is None else (case.base.page_faults or 0) - left


def _is_few(case: Case, size: int, limits: Thresholds) -> bool:
    """Whether pages of a size save too few walks and page faults in all to change anything."""
    walks = _saved_walks(case, size) + _WALKS_A_FAULT * _saved_faults(case, size)
    return walks < limits.negligible_misses


def _best(gains: dict[int, Gain]) -> int:
    """The smallest size with nearly the highest gain."""
    most = max(gain.expected for gain in gains.values())
    least = most - (1 - _BEST_SHARE) * abs(most)
    return min(size for size, gain in gains.items() if gain.expected >= least)


def _sentence(
    case: Case,
    chosen: int,
    reason: Reason,
    judged: int | None,
    found: Gain,
    costs: WalkCosts,
    limits: Thresholds,
) -> str:
    subject = capitalised(case.subject)
    if reason == "no-references":
        return f"{subject}: no references, nothing to change."
    if judged is None:
        return f"{subject}: not judged, as 4 KiB is the only page size of the machine measured."
    base, point = case.base, case.at(judged)
    if reason == "no-gain":
        if (base.walks or 0) == 0 and not base.page_faults:
            return f"{subject}: keep 4 KiB. No gain expected: no page walks."
        if found.expected >= limits.min_gain:
            faults = _saved_faults(case, judged)
            also = f" and {counted(faults, 'page fault')}" if faults > 0 else ""
            return (
                f"{subject}: keep 4 KiB. No gain expected: {format_bytes(judged)} pages would save "
                f"{counted(_saved_walks(case, judged), 'page walk')}{also} in all, and "
                f"fewer than {format_count(limits.negligible_misses)} are not a reason to change "
                "anything."
            )
        lead = "Little gain expected" if found.is_expected else "No gain expected"
        return (
            f"{subject}: keep 4 KiB. {lead}: page walks are {_walks(base)}, "
            f"{_faults_of(base)}and {format_bytes(judged)} pages would {found.consequence} "
            f"({costs.label()})."
        )
    # The growth of the case alone; the answer and the tables have that of the whole program.
    grown = point.touched_bytes - base.touched_bytes
    most = "" if case.has_fitting_pages and judged == PMD_PAGE else "up to "
    memory = f"by {most}{format_bytes(grown)} ({format_share(point.growth)})"
    if chosen == BASE_PAGE:
        return (
            f"{subject}: keep 4 KiB. {format_bytes(judged)} pages would save {found} of "
            f"the time, but its memory would grow {memory}, more than {limits.max_growth:.0%} "
            "(--max-growth)."
        )
    beyond = " Larger pages take too much memory." if reason == "memory" else ""
    unit = " in all" if base.walks_mpki is None else " per 1000 instructions"
    before = _walks(base).removesuffix(unit)
    falls = f"Page walks fall from {before} to {_walks(point)}"
    if base.page_faults and point.page_faults is not None:
        before, after = format_count(base.page_faults), format_count(point.page_faults)
        falls += f", page faults from {before} to {after}" if before != after else ""
    grows = f"grows {memory}{limits.exception(point.growth)}" if grown > 0 else "does not grow"
    return (
        f"{subject}: {format_bytes(chosen)}. {falls}, which saves {found} of the time "
        f"({costs.label()}); its memory {grows}.{beyond}"
    )


def _of_returned_memory(costs: WalkCosts, size: int) -> str:
    """A sentence about first touches of memory that the host has taken back."""
    each = costs.returned_fault(size)
    if each is None:
        return ""
    microseconds = 1e6 * each.median / costs.clock.median
    return (
        f" That is with a first touch of a {format_bytes(size)} page taking {microseconds:,.0f} "
        "microseconds, since the host of this virtual machine takes free memory back; of a longer "
        "run these are a smaller share."
    )


def _faults_of(point: Point) -> str:
    """`page faults are 26.6 k in all, `; empty where there are none, or they are not known."""
    faults = point.page_faults
    return f"page faults are {format_count(faults)} in all, " if faults else ""


def _walks(point: Point) -> str:
    if point.walks_mpki is None:
        return f"{format_count(point.walks or 0)} in all"
    return f"{format_mpki(point.walks_mpki)} per 1000 instructions"
