"""Tables of curves for people: a few TLBs over all page sizes and pairs of page sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from octavo.analysis.programs import work_in_words
from octavo.base import metrics
from octavo.base.table import Grid
from octavo.base.text import short_path
from octavo.base.units import (
    BASE_PAGE,
    counted,
    format_bytes,
    format_count,
    format_cpi,
    format_growth,
    format_mpki,
    format_share,
)
from octavo.hardware.tlb_presets import Tlb, pair_name
from octavo.tlb_curves.api import CurvesResult
from octavo.tlb_curves.caches import SHOWN_BYTES, SHOWN_WAYS, Caches
from octavo.tlb_curves.classes import Classes, MissClasses, describe
from octavo.tlb_curves.configuration import CurvesConfiguration
from octavo.tlb_curves.model import Pair, StreamCurves, machine_pair_misses, tlb_misses
from octavo.tlb_curves.page_sampling import Estimate

STREAM_NAMES = {"fetch": "Code", "data": "Data", "all": "Both in one TLB"}
_CACHE_NAMES = {"fetch": "Instruction caches", "data": "Data caches", "all": "Unified caches"}
_SHORT_NAMES = {"fetch": "code", "data": "data", "all": "both"}
_FULL_ENTRIES = (16, 64, 512, 1536)
"""Entries of the paper's TLB, of a first-level TLB and of two second-level TLBs."""
_SETS = ((16, 4), (128, 12))
"""Sets and ways of present TLBs with 64 and with 1536 entries."""
_SHOWN_WINDOW_REFS = 10**7
_CRITICAL_ENTRIES = 64
_SHOWN_PLACES = 12
"""Limit of regions, or functions, in a table."""
_NAME_WIDTH = 40


def headline(result: CurvesResult) -> str:
    """The amount of work counted and the time taken."""
    references, instructions = result.work.values()
    rpi = metrics.references_per_instruction(
        references, metrics.rated_instructions(instructions, references)
    )
    rate = [] if rpi is None else [f"{rpi:.3f} references per instruction"]
    sharing = _sharing(result)
    return work_in_words(result.manifest, references, instructions, rates=rate, more=sharing)


def _sharing(result: CurvesResult) -> Iterator[str]:
    """Processes and threads with TLBs, where this is not the default."""
    configuration = result.configuration
    if result.is_shared:
        quantum = f"quantum of {counted(configuration.quantum_instructions, 'instruction')}"
        flushed = ", flushed at each" if configuration.processes == "flush" else ", tagged"
        yield f"{quantum}{flushed}"
    if configuration.threads == "private":
        threads = sum(len(threads) for threads in result.by_thread)
        yield f"{counted(threads, 'thread')} with private TLBs"
    if configuration.flush_every_instructions is not None:
        yield f"flushed every {counted(configuration.flush_every_instructions, 'instruction')}"


def grids(result: CurvesResult) -> Iterator[Grid]:
    """All tables, in the order in which they are read."""
    for stream in _with_references(result):
        grid = _stream_grid(result, stream)
        if len(grid.head) > 1:
            yield grid
    for stream, curves in result.total.items():
        if curves.caches:
            yield _cache_grid(stream, curves)
    yield _policy_grid(result)
    yield _machine_grid(result)
    for stream, curves in result.total.items():
        if curves.classes is not None:
            yield from _class_grids(STREAM_NAMES[stream], curves.classes)


def _with_references(result: CurvesResult) -> dict[str, StreamCurves]:
    """The streams with references; a trace may have data alone."""
    return {stream: curves for stream, curves in result.total.items() if curves.references}


def _stream_grid(result: CurvesResult, stream: str) -> Grid:
    """One stream: TLBs and working set by page size, then by pair of page sizes."""
    curves = result.total[stream]
    lived = result.lived[stream]
    configuration = result.configuration
    window = _shown_window(result)
    full, sets = shown_tlbs(configuration)
    show, unit = _shown(result, curves)
    penalty = configuration.miss_penalty_cycles
    body = []
    for size in configuration.page_sizes:
        cells = [curves.full_misses(size, entries) for entries in full]
        cells += [curves.set_misses("low", size, number, ways) for number, ways in sets]
        byte_refs = None if window is None else lived.byte_refs.get((size, window))
        numbers = (
            *(show(cell, penalty) for cell in cells),
            *_working_set(lived, byte_refs, window),
        )
        if curves.sampled is not None:
            numbers = tuple(
                _sampled(curves, lived, size, (full, window), lambda n: show(n, penalty))
            )
        body.append((format_bytes(size), *numbers))
    for number, pair in enumerate(curves.pairs):
        cells = [pair.full_misses(entries) for entries in full]
        cells += [pair.set_misses("exact", sets, ways) for sets, ways in sets]
        byte_refs = None if window is None else lived.pairs[number].byte_refs.get(window)
        body.append(
            (
                pair_name(pair.small, pair.large),
                *(show(cell, configuration.two_sizes_penalty_cycles) for cell in cells),
                *_working_set(lived, byte_refs, window),
            )
        )
    head = [
        "page size",
        *(f"{entries}\nfull" for entries in full),
        *(f"{number * ways}\n{ways}-way" for number, ways in sets),
        *(["working\nset", "over\n4 KiB"] if window is not None else []),
    ]
    title = f"{STREAM_NAMES[stream]}: {unit}"
    if window is not None:
        title += f"; working set over {counted(window, 'reference')}"
        if len(result.by_process) > 1 and not result.is_shared:
            main = result.counted["processes"][result.main]
            title += f" (process {main['stream']}, {short_path(Path(main['program']).name)})"
    return Grid(title, tuple(head), tuple(body))


def shown_tlbs(
    configuration: CurvesConfiguration,
) -> tuple[list[int], list[tuple[int, int]]]:
    """The TLBs in tables: entries of fully associative TLBs; sets and ways of the others."""
    full = [entries for entries in _FULL_ENTRIES if entries <= configuration.max_entries]
    sets = [
        (number, ways)
        for number, ways in _SETS
        if "low" in configuration.indexes and number <= configuration.max_sets
    ]
    return full, sets


def _sampled(
    curves: StreamCurves,
    lived: StreamCurves,
    size: int,
    asked: tuple[Sequence[int], int | None],
    show: Callable[[int], str],
) -> Iterator[str]:
    """The cells of a page size from a sample, each with its interval below the value."""
    full, window = asked
    for entries in full:
        estimate = curves.full_estimate(size, entries)
        yield _with_ends(estimate, lambda misses: show(round(misses)))
    if window is not None:
        estimate = lived.working_set_estimate(size, window)
        base = lived.working_set_estimate(BASE_PAGE, window)
        time = lived.program_references
        average = estimate.averaged(time) if estimate and time else None
        yield _with_ends(average, lambda number: format_bytes(round(number)))
        ratio = estimate.over(base) if estimate and base and size != BASE_PAGE else None
        yield (
            "1.00" if estimate and size == BASE_PAGE else _with_ends(ratio, lambda it: f"{it:.2f}")
        )


def _with_ends(estimate: Estimate | None, show: Callable[[float], str]) -> str:
    if estimate is None:
        return ""
    if estimate.low == estimate.high:
        return show(estimate.value)
    return f"{show(estimate.value)}\n{show(estimate.low)}-{show(estimate.high)}"


def _class_grids(stream: str, classes: MissClasses) -> Iterator[Grid]:
    """Misses by class, for the regions and the functions with most misses."""
    larger = format_bytes(classes.tlb.larger)
    regions = [(name or "", counts) for (name, *_), counts in classes.regions.items()]
    functions = [
        (_function_name(key, classes), counts) for key, counts in classes.functions.items()
    ]
    for what, places in (("region", regions), ("function", functions)):
        head = (what, "misses", "share", "com-\npulsory", "ca-\npacity", "con-\nflict")
        body = [("all", *_class_cells(classes.total, classes.total))]
        body += [
            (name, *_class_cells(counts, classes.total)) for name, counts in places[:_SHOWN_PLACES]
        ]
        title = f"{stream}: why a TLB misses ({describe(classes.tlb)}), by {what}"
        yield Grid(title, (*head, f"{larger}\npages hit"), tuple(body))


def _function_name(key: tuple[str | None, ...], classes: MissClasses) -> str:
    name, path = key
    file = "no file" if path is None else Path(path).name
    if name is None:
        return f"({file})"
    source = classes.lines.get(key)
    place = file if source is None else f"{Path(source[0]).name}:{source[1]}"
    short = name if len(name) <= _NAME_WIDTH else f"{name[: _NAME_WIDTH - 1]}…"
    return f"{short} ({place})"


def _class_cells(counts: Classes, total: Classes) -> tuple[str, ...]:
    def share(number: int) -> str:
        return format_share(number / counts.misses) if counts.misses else ""

    classes = (counts.compulsory, counts.capacity, counts.conflict, counts.page_size)
    return (
        format_count(counts.misses),
        format_share(counts.misses / total.misses) if total.misses else "",
        *map(share, classes),
    )


def _shown_window(result: CurvesResult) -> int | None:
    """The window of the tables: the policy's, else the paper's, else the longest."""
    configuration = result.configuration
    windows = configuration.windows_refs
    if not windows:
        return None
    if configuration.two_sizes:
        return configuration.two_sizes[0].window_refs
    return _SHOWN_WINDOW_REFS if _SHOWN_WINDOW_REFS in windows else windows[-1]


def _shown(
    result: CurvesResult, curves: StreamCurves
) -> tuple[Callable[[int | None, float], str], str]:
    """A function that formats misses with a penalty, and the name of the unit."""
    configuration, instructions = result.configuration, curves.rated_instructions

    def show(misses: int | None, penalty: float) -> str:
        if misses is None:
            return ""
        if not instructions:
            return _percent(metrics.miss_ratio(misses, curves.references))
        return format_cpi(metrics.cpi_tlb(misses, instructions, penalty))

    name = f"CPI_TLB at {configuration.miss_penalty_cycles:g} cycles a miss"
    if configuration.two_sizes:
        name += f" ({configuration.two_sizes_penalty_cycles:g} with two sizes)"
    return show, name if instructions else "misses per reference"


def _percent(ratio: float | None) -> str:
    if ratio is None:
        return ""
    return f"{100 * ratio:.3f}%" if not 0 < ratio < 0.00001 else "<0.001%"


def _working_set(
    curves: StreamCurves, byte_refs: int | None, window: int | None
) -> tuple[str, ...]:
    """The average in bytes, and its ratio to that of 4 KiB pages; empty without a window."""
    if window is None:
        return ()
    if byte_refs is None:
        return ("", "")
    average = metrics.average_working_set(byte_refs, curves.program_references)
    base = curves.byte_refs.get((BASE_PAGE, window), 0)
    ratio = metrics.normalised_working_set(byte_refs, base)
    return (
        "" if average is None else format_bytes(round(average)),
        "" if ratio is None else f"{ratio:.2f}",
    )


def _cache_grid(stream: str, curves: StreamCurves) -> Grid:
    """One stream: a few caches, by size."""
    unit = "misses per 1000 instructions" if curves.rated_instructions else "misses per look-up"

    def show(caches: Caches, size: int, ways: int) -> str:
        misses = caches.missed(size, ways)
        if misses is None:
            return ""
        rate = caches.rate(misses, curves.rated_instructions)
        return format_mpki(rate) if curves.rated_instructions else _percent(rate)

    shown = [(caches, ways) for caches in curves.caches.values() for ways in SHOWN_WAYS]
    body = tuple(
        (format_bytes(size), *(show(caches, size, ways) for caches, ways in shown))
        for size in SHOWN_BYTES
    )
    head = ("cache", *(f"{caches.line_bytes} B\n{ways}-way" for caches, ways in shown))
    return Grid(f"{_CACHE_NAMES[stream]}: {unit}, by the size of lines and ways", head, body)


def _policy_grid(result: CurvesResult) -> Grid:
    """Promotions, demotions and copied blocks of the policy of two page sizes."""
    body = []
    for stream, curves in _with_references(result).items():
        for pair in curves.pairs:
            counters = pair.counters
            lookups = counters["small_lookups"] + counters["large_lookups"]
            body.append(
                (
                    pair_name(pair.small, pair.large),
                    _SHORT_NAMES[stream],
                    str(pair.threshold_blocks),
                    format_share(counters["large_lookups"] / lookups if lookups else None),
                    format_count(counters["promotions"]),
                    format_count(counters["demotions"]),
                    format_bytes(counters["blocks_copied"] * pair.small),
                    format_bytes(counters["blocks_zeroed"] * pair.small),
                    _critical(curves, pair),
                )
            )
    head = (
        "two sizes",
        "stream",
        "threshold,\nblocks",
        "look-ups\nof large",
        "promo-\ntions",
        "demo-\ntions",
        "copied",
        "zeroed",
        "critical\npenalty",
    )
    window = result.configuration.two_sizes[0].window_refs if body else 0
    title = (
        f"Two page sizes, large while the threshold of blocks was referenced in the last "
        f"{counted(window, 'reference')}"
    )
    return Grid(title, head, tuple(body), left_columns=2)


def _critical(curves: StreamCurves, pair: Pair) -> str:
    """The increase of the miss penalty at which 64 entries of the small size are as good."""
    misses = pair.full_misses(_CRITICAL_ENTRIES)
    base = curves.full_misses(pair.small, _CRITICAL_ENTRIES)
    if misses is None or base is None:
        return ""
    return increase_in_words(metrics.critical_penalty_increase(base, misses))


def increase_in_words(increase: float | None) -> str:
    """An increase of the miss penalty: `+30.0%`, or `6,635 times` if it is above ten times."""
    if increase is None:
        return "no misses"
    if increase > 9:
        return f"{increase + 1:,.0f} times"
    return format_growth(increase) if increase >= 0 else format_share(increase)


def _machine_grid(result: CurvesResult) -> Grid:
    """The TLBs of each machine, with pages of one size and of two sizes."""
    body = []
    streams = result.total
    shows = {name: _shown(result, curves) for name, curves in streams.items()}
    for machine in result.configuration.machines:
        for tlb in machine.tlbs:
            for size in tlb.page_sizes:
                cells = [
                    _machine_cell(curves, tlb, size, shows[name][0], result)
                    for name, curves in streams.items()
                ]
                body.append((machine.title, _tlb_text(tlb), format_bytes(size), *cells))
        for number, pair in enumerate(result.configuration.two_sizes):
            penalty, cells = result.configuration.two_sizes_penalty_cycles, []
            for name, curves in streams.items():
                _, misses = machine_pair_misses(machine, curves.pairs[number]) or (None, None)
                cells.append(shows[name][0](misses, penalty))
            if any(cells):
                body.append((machine.title, "", pair_name(pair.small, pair.large), *cells))
    head = ("machine", "TLB", "page size", *(_SHORT_NAMES[name] for name in streams))
    unit = next(iter(shows.values()))[1] if shows else ""
    return Grid(f"Machines of the paper: {unit}", head, tuple(body), left_columns=3)


def _machine_cell(
    curves: StreamCurves,
    tlb: Tlb,
    size: int,
    show: Callable[[int | None, float], str],
    result: CurvesResult,
) -> str:
    penalty = result.configuration.miss_penalty_cycles
    if curves.sampled is None:
        return show(tlb_misses(curves, tlb, size), penalty)
    estimate = curves.full_estimate(size, tlb.entries) if tlb.sets == 1 else None
    return _with_ends(estimate, lambda misses: show(round(misses), penalty))


def _tlb_text(tlb: Tlb) -> str:
    how = "full" if tlb.sets == 1 else f"{tlb.ways}-way"
    return f"{tlb.entries} {how}"
