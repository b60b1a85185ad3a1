"""Advice from the curves: the page size beyond which misses hardly fall and memory grows.

The study of the best base page size (SPEC programs under Lackey) chose by eye a size with a
substantial fall in TLB misses and hardly any growth in memory. Here the same choice is a rule with
three stated thresholds, applied to code and to data of the whole program and of each large region.
from the rows alone.

The rule is for a TLB without a machine: misses are those of its last level, and fewer misses are
not turned into a speed-up. Where a machine is modelled, `octavo.analysis.walk_advice` judges by
page walks and their time instead.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from octavo.analysis.gain import Gain
from octavo.analysis.rows import (
    FAULTS,
    HUGE_PAGE_FAULTS,
    HUGE_PAGE_FAULTS_AGAIN,
    PAGE_FAULTS,
    RegionKey,
    Row,
    component_of,
    machine_component,
    machine_depth,
    peak_memory_by_size,
)
from octavo.base.text import capitalised
from octavo.base.units import BASE_PAGE, MIB, format_bytes, format_growth, format_mpki, format_share
from octavo.calibration.file import Spread
from octavo.hardware.tlb_levels import Machine

Reason = Literal[
    "misses-flat",
    "memory",
    "largest-size",
    "negligible",
    "no-references",
    "no-gain",
    "gain",
    "already",
]
Basis = Literal["misses", "walks"]

LARGE_REGION_BYTES = 1 * MIB
LARGE_REGION_MISS_SHARE = 0.05
GROWTH_BEGINS = 0.05
"""Memory starts to grow at the first page size that takes this share more than 4 KiB pages."""

FLOOR_OF_MEMORY = 0.01
"""Share of the machine's memory below which growth is not a reason to refuse."""

_MISS_CYCLES_ESTIMATE = 30
"""Cycles of a walk that finds its entries in near caches: an upper guess."""


@dataclass(frozen=True)
class Thresholds:
    """The thresholds of the rules."""

    max_growth: float = 0.25
    """Memory growth over 4 KiB pages that is acceptable; the study's "less than a quarter"."""
    flat_share: float = 0.05
    """Share of the 4 KiB misses that a smaller page size may leave unsaved."""
    negligible_mpki: float = 0.1
    """Misses saved per 1000 instructions below which nothing should be changed. An estimate: at 20
    to 30 cycles a miss and one cycle an instruction, 0.1 is 0.2% to 0.3% of the cycles."""
    negligible_misses: int = 10_000
    """Misses saved in all below which nothing should be changed, however short the run. An
    estimate: at 30 cycles a miss and 3 GHz, 10 000 are 0.1 ms."""
    growth_floor_bytes: int = 8 * MIB
    """Growth in bytes that is not a reason to refuse, however large its share."""
    memory_bytes: int | None = None
    """The machine's memory, of which a growth by 1% is acceptable, too; None where not known."""
    min_gain: float = 0.01
    """Share of the program's time that the expected gain of a change must reach."""

    def allows(self, growth: float | None, growth_bytes: int) -> bool:
        """Whether memory may grow by this share and this number of bytes."""
        return (growth or 0) <= self.max_growth or growth_bytes < self._floor_bytes

    def exception(self, growth: float | None) -> str:
        """The words after the figure of a growth that `allows` accepts although it is beyond
        `max_growth`; empty within that limit.
        """
        if (growth or 0) <= self.max_growth:
            return ""
        floor = format_bytes(self._floor_bytes)
        if self._floor_bytes > self.growth_floor_bytes:
            floor += f", {FLOOR_OF_MEMORY:.0%} of this machine's memory"
        return f" (accepted beyond {self.max_growth:.0%}: below {floor})"

    @property
    def _floor_bytes(self) -> int:
        return max(self.growth_floor_bytes, int((self.memory_bytes or 0) * FLOOR_OF_MEMORY))


@dataclass(frozen=True)
class Point:
    """One page size, with its misses, walks, page faults and memory."""

    page_size: int
    misses: int
    mpki: float | None
    touched_bytes: int
    """For a stream of the whole program at most its memory at one time, if that is known."""
    growth: float | None
    walks: int | None = None
    """Page walks of the modelled machine; None without one, or without entries of the size."""
    walks_mpki: float | None = None
    """Page walks per 1000 instructions."""
    page_faults: int | None = None
    """Page faults at first touches of the data; None where they are not known."""
    huge_page_faults: int = 0
    """The page faults that give a page of this size."""
    huge_page_faults_again: int = 0
    """The huge page faults that get memory which the process had given back."""


@dataclass(frozen=True)
class Case:
    """One stream of the program or of a region, over the page sizes measured."""

    stream: Literal["fetch", "data"]
    points: tuple[Point, ...]
    process: int | None = None
    program: str | None = None
    """Path of the program, where the case is about several of its processes."""
    program_name: str | None = None
    """Name of the program in sentences."""
    processes: tuple[int, ...] = ()
    """Stream numbers of these processes."""
    region: str | None = None
    region_kind: str | None = None
    path: str | None = None
    start: int | None = None
    bytes: int | None = None
    has_fitting_pages: bool = False
    """Whether the 2 MiB point counts 2 MiB pages only where the kernel can give them, and 4 KiB
    pages elsewhere, instead of all memory in 2 MiB pages."""

    def at(self, page_size: int) -> Point:
        """The point of a page size that was measured."""
        return next(point for point in self.points if point.page_size == page_size)

    @property
    def key(self) -> RegionKey:
        """The key of its region in the rows."""
        return self.process, self.program, self.region, self.start

    @property
    def base(self) -> Point:
        """The point at 4 KiB, which is always measured."""
        return self.at(BASE_PAGE)

    @property
    def grows_from(self) -> int | None:
        """First page size at which memory has grown by GROWTH_BEGINS; None if none measured has."""
        sizes = (point.page_size for point in self.points if (point.growth or 0) >= GROWTH_BEGINS)
        return next(sizes, None)

    @property
    def subject(self) -> str:
        """The subject of the case, in words: `code`, `data`, `code of libc.so.6 text`."""
        kind = "code" if self.stream == "fetch" else "data"
        if self.region is None:
            return kind
        owner = ""
        if self.program is not None:
            owner = f" ({self.program_name}, {len(self.processes)} processes)"
        elif self.process is not None:
            owner = f" (process {self.process})"
        return f"{kind} of {self.region}{owner}"


@dataclass(frozen=True)
class Advice:
    """The advice for one case, with the figures that decided it."""

    case: Case
    page_size: int
    """The advised size; 4 KiB where nothing should be changed."""
    reason: Reason
    """Why the advised size is not larger."""
    text: str
    basis: Basis = "misses"
    """The measure that it rests on: misses of a TLB alone, or page walks of a machine."""
    gain: Gain | None = None
    """The share of time that the advised size, or the best refused one, saves."""
    walk_cycles: tuple[Spread, Spread] | None = None
    """Cycles of a walk to 4 KiB pages, and to pages of `gain_page_size`."""
    gain_page_size: int | None = None
    """The size that `gain` is about; None where no larger size was judged."""
    gain_of_walks: Gain | None = None
    """The gain of walks alone, where pages become larger after their first touches."""

    @property
    def changes(self) -> bool:
        """Whether anything other than 4 KiB is advised."""
        return self.page_size != BASE_PAGE

    def record(self) -> dict[str, Any]:
        """Plain data for the JSON; the columns are listed in docs/rows.md."""
        case, base, chosen = self.case, self.case.base, self.case.at(self.page_size)
        place = {
            "process": case.process,
            "program": case.program,
            "processes": list(case.processes) or None,
            "region": case.region,
            "region_kind": case.region_kind,
            "path": case.path,
            "start": case.start,
            "bytes": case.bytes,
        }
        return {
            "scope": "program" if case.region is None else "region",
            "stream": case.stream,
            **{name: value for name, value in place.items() if value is not None},
            "page_size": self.page_size,
            "reason": self.reason,
            "misses_base": base.misses,
            "misses": chosen.misses,
            "mpki_base": base.mpki,
            "mpki": chosen.mpki,
            "touched_bytes_base": base.touched_bytes,
            "touched_bytes": chosen.touched_bytes,
            "growth": chosen.growth,
            "growth_bytes": chosen.touched_bytes - base.touched_bytes,
            "memory_grows_from": case.grows_from,
            "basis": self.basis,
            **self._walk_record(base, chosen),
            "text": self.text,
        }

    def _walk_record(self, base: Point, chosen: Point) -> dict[str, Any]:
        """The fields about walks; none where the advice does not rest on them."""
        if self.basis != "walks":
            return {}
        cycles = self.walk_cycles
        faults = {"page_faults_base": base.page_faults, "page_faults": chosen.page_faults}
        if base.page_faults is None:
            faults = {}
        return {
            "walks_base": base.walks,
            "walks": chosen.walks,
            "walks_mpki_base": base.walks_mpki,
            "walks_mpki": chosen.walks_mpki,
            **faults,
            "gain": None if self.gain is None else asdict(self.gain),
            "gain_page_size": self.gain_page_size,
            "gain_of_walks": None if self.gain_of_walks is None else asdict(self.gain_of_walks),
            "walk_cycles_base": None if cycles is None else asdict(cycles[0]),
            "walk_cycles": None if cycles is None else asdict(cycles[1]),
        }


def advise_all(
    rows: Sequence[Row],
    machine: Machine,
    limits: Thresholds = Thresholds(),
    *,
    names: Mapping[str, str] = {},
) -> list[Advice]:
    """Advice for code, for data, then for each large region, in descending order of misses. `names`
    has a short name of each program.
    """
    whole, large = cases_to_advise(rows, machine, names)
    return [advise(case, limits) for case in (*whole, *large)]


def cases_to_advise(
    rows: Sequence[Row], machine: Machine, names: Mapping[str, str]
) -> tuple[list[Case], list[Case]]:
    """Code and data of the whole program, and each large region in descending order of walks and
    misses.
    """
    cases = list(cases_of(rows, machine, names))
    whole = {case.stream: case for case in cases if case.region is None}
    large = [case for case in cases if case.region is not None and is_large(case, whole)]
    large.sort(key=lambda case: (-(case.base.walks or 0), -case.base.misses, case.subject))
    return list(whole.values()), large


def cases_of(rows: Iterable[Row], machine: Machine, names: Mapping[str, str]) -> Iterator[Case]:
    """The two streams of the whole program, and the streams of each region that has references."""
    rows = list(rows)
    depth = machine_depth(rows)
    peaks = peak_memory_by_size(rows)
    groups: defaultdict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for row in rows:
        if "page_size" in row:
            owner = (row.get("process"), row.get("program"))
            key = (owner, row.get("region"), row.get("start"), row["stream"])
            groups[key].append(row)
    for ((process, program), region, _, stream), members in groups.items():
        if stream == "all" or (process is not None and region is None):
            continue
        last = component_of(machine.depth, stream)
        misses = {row["page_size"]: row for row in members if row["component"] == last}
        walking = machine_component(depth, stream)
        walks = {row["page_size"]: row for row in members if row["component"] == walking}
        memory = {row["page_size"]: row for row in members if row["component"] == "memory"}
        if BASE_PAGE not in misses or BASE_PAGE not in memory:
            continue
        faults = _page_faults(members)
        first = members[0]
        at_once = peaks if region is None else {}
        base_bytes = _at_most(memory[BASE_PAGE], at_once)
        yield Case(
            stream=stream,
            points=tuple(
                _point(
                    misses[size],
                    _at_most(memory[size], at_once),
                    base_bytes,
                    walks.get(size),
                    faults.get(size, {}),
                )
                for size in sorted(misses)
            ),
            process=process,
            program=program,
            program_name=names.get(program, program),
            processes=tuple(first.get("processes", ())),
            region=region,
            region_kind=first.get("region_kind"),
            path=first.get("path"),
            start=first.get("start"),
            bytes=first.get("bytes"),
        )


def advise(case: Case, limits: Thresholds) -> Advice:
    """Applies the rule to one case."""
    chosen, reason = _choose(case, limits)
    return Advice(
        case=case,
        page_size=chosen.page_size,
        reason=reason,
        text=_sentence(case, chosen, reason, limits),
    )


def overall_text(advice: Sequence[Advice], usable: Sequence[int]) -> str:
    """The answer to "which page size?" in one line.

    `usable` is, for each piece of advice, the size in bytes that this processor has for it.
    """
    whole = {item.case.stream: item for item in advice if item.case.region is None}
    sized = list(zip(advice, usable, strict=True))
    usable_whole = {item.case.stream: size for item, size in sized if item.case.region is None}
    wanted, here = [item.page_size for item in whole.values()], list(usable_whole.values())
    larger = {
        (item.case.process, item.case.program, item.case.region)
        for item, size in sized
        if item.page_size > whole[item.case.stream].page_size
        or size > usable_whole[item.case.stream]
    }
    if any(item.changes for item in whole.values()):
        text = f"{_by_stream(whole, wanted)}."
        if here != wanted:
            text += f" With the sizes of this processor: {_by_stream(whole, here)}."
    elif larger:
        text = "4 KiB for the program as a whole."
    else:
        text = "4 KiB: nothing should be changed."
    if larger:
        regions = "1 region wants" if len(larger) == 1 else f"{len(larger)} regions want"
        text += f" {regions} larger pages."
    return f"Which page size? {text}"


def _by_stream(streams: Iterable[str], sizes: Sequence[int]) -> str:
    """`4 KiB for code, 64 KiB for data`, or `4 KiB for both`."""
    if len(sizes) > 1 and len(set(sizes)) == 1:
        return f"{format_bytes(sizes[0])} for both"
    names = ("code" if stream == "fetch" else "data" for stream in streams)
    return ", ".join(
        f"{format_bytes(size)} for {name}" for name, size in zip(names, sizes, strict=True)
    )


def _at_most(memory: Row, peaks: Mapping[int, int]) -> int:
    """Upper bound of a stream's bytes at one time: all that it touched, or the peak of all memory
    if that is less.
    """
    touched = memory["touched_bytes"]
    return min(touched, peaks.get(memory["page_size"], touched))


def _page_faults(rows: Iterable[Row]) -> dict[int, dict[str, int]]:
    """The counters of page faults, by page size."""
    counts: defaultdict[int, dict[str, int]] = defaultdict(dict)
    for row in rows:
        if row["component"] == FAULTS:
            counts[row["page_size"]][row["counter"]] = row["value"]
    return counts


def _point(
    misses: Row,
    touched_bytes: int,
    base_bytes: int,
    walks: Row | None,
    faults: Mapping[str, int],
) -> Point:
    return Point(
        page_size=misses["page_size"],
        misses=misses["misses"],
        mpki=misses["mpki"],
        touched_bytes=touched_bytes,
        growth=touched_bytes / base_bytes - 1 if base_bytes else None,
        walks=None if walks is None else walks["misses"],
        walks_mpki=None if walks is None else walks["mpki"],
        page_faults=faults.get(PAGE_FAULTS),
        huge_page_faults=faults.get(HUGE_PAGE_FAULTS, 0),
        huge_page_faults_again=faults.get(HUGE_PAGE_FAULTS_AGAIN, 0),
    )


def is_large(case: Case, whole: dict[Literal["fetch", "data"], Case]) -> bool:
    """Whether a region is worth advice of its own."""
    if case.base.touched_bytes >= LARGE_REGION_BYTES:
        return True
    total = whole[case.stream].base.misses
    return case.base.misses > 0 and case.base.misses >= LARGE_REGION_MISS_SHARE * total


def _choose(case: Case, limits: Thresholds) -> tuple[Point, Reason]:
    base = case.base
    if base.touched_bytes == 0:
        return base, "no-references"
    allowed = _allowed(case, limits)
    chosen = _knee(allowed, base, limits)
    unlimited = _knee(case.points, base, limits)
    held_by_memory = not is_allowed(case, unlimited, limits)
    if _is_negligible(base, allowed, limits):
        worth_more = held_by_memory and not _is_negligible(base, case.points, limits)
        return base, "memory" if worth_more else "negligible"
    if held_by_memory:
        return chosen, "memory"
    at_end = chosen.page_size == case.points[-1].page_size > BASE_PAGE
    return chosen, "largest-size" if at_end else "misses-flat"


def _allowed(case: Case, limits: Thresholds) -> list[Point]:
    """The page sizes with acceptable growth, 4 KiB among them."""
    return [point for point in case.points if is_allowed(case, point, limits)]


def is_allowed(case: Case, point: Point, limits: Thresholds) -> bool:
    """Whether a page size takes an acceptable amount of memory more than 4 KiB."""
    return limits.allows(point.growth, point.touched_bytes - case.base.touched_bytes)


def _knee(points: Sequence[Point], base: Point, limits: Thresholds) -> Point:
    """The smallest size that leaves no more than a small share of the 4 KiB misses unsaved."""
    fewest = min(point.misses for point in points)
    enough = fewest + limits.flat_share * base.misses
    return next(point for point in points if point.misses <= enough)


def _is_negligible(base: Point, points: Sequence[Point], limits: Thresholds) -> bool:
    fewest = min(points, key=lambda point: point.misses)
    if base.misses - fewest.misses < limits.negligible_misses:
        return True
    if base.mpki is None or fewest.mpki is None:
        return False
    return base.mpki - fewest.mpki < limits.negligible_mpki


def _sentence(case: Case, chosen: Point, reason: Reason, limits: Thresholds) -> str:
    base = case.base
    subject = capitalised(case.subject)
    if reason == "no-references":
        return f"{subject}: no references, nothing to change."
    if reason == "negligible":
        allowed = _allowed(case, limits)
        saved = base.misses - min(point.misses for point in allowed)
        # Says that the number leaves out sizes whose memory growth is not acceptable.
        within = (
            ""
            if len(allowed) == len(case.points)
            else f" within {limits.max_growth:.0%} more memory"
        )
        return (
            f"{subject}: keep 4 KiB. It misses {_per_1000(base)}, and what larger pages{within} "
            f"could save of that is negligible ({_estimate(saved, limits)})."
        )
    if chosen.page_size == BASE_PAGE and reason == "misses-flat":
        return (
            f"{subject}: keep 4 KiB. It misses {_per_1000(base)}, of which larger pages save no "
            f"more than {limits.flat_share:.0%}."
        )
    if chosen.page_size == BASE_PAGE:
        return (
            f"{subject}: keep 4 KiB. It misses {_per_1000(base)}, but the sizes that would help "
            f"take more than {limits.max_growth:.0%} more memory{_beyond(case, limits)}."
        )
    return (
        f"{subject}: {format_bytes(chosen.page_size)}. Misses fall from {_figure(base)} to "
        f"{_figure(chosen)} {_unit(chosen)}, memory grows by {format_share(chosen.growth)}"
        f"{limits.exception(chosen.growth)}; "
        f"{_why_not_larger(case, reason, limits)}."
    )


def _why_not_larger(case: Case, reason: Reason, limits: Thresholds) -> str:
    if reason == "memory":
        return (
            f"larger pages miss less but take more than {limits.max_growth:.0%} more memory"
            f"{_beyond(case, limits)}"
        )
    if reason == "largest-size":
        return "it is the largest size measured"
    if case.grows_from is None:
        return "past it misses hardly fall"
    grows = format_bytes(case.grows_from)
    return f"past it misses hardly fall, and memory starts to grow at {grows}"


def _beyond(case: Case, limits: Thresholds) -> str:
    """The figures of the size that memory forbids: ` (at 64 KiB: 0.120 and +61.0%)`."""
    forbidden = _knee(case.points, case.base, limits)
    figures = f"{_figure(forbidden)} and {format_growth(forbidden.growth)}"
    return f" (at {format_bytes(forbidden.page_size)}: {figures})"


def _figure(point: Point) -> str:
    return str(point.misses) if point.mpki is None else format_mpki(point.mpki)


def _unit(point: Point) -> str:
    return "in all" if point.mpki is None else "per 1000 instructions"


def _per_1000(point: Point) -> str:
    return f"{_figure(point)} times {_unit(point)}"


def _estimate(saved: int, limits: Thresholds) -> str:
    """The negligible saving in words, labelled as an estimate."""
    if saved < limits.negligible_misses:
        return f"{saved} in all, less than 0.1 ms by estimate"
    share = limits.negligible_mpki / 1000 * _MISS_CYCLES_ESTIMATE
    return f"below {share:.1%} of the cycles by estimate"
