"""From the extension's result to rows: one flat list of plain records.

A row says one thing about one component. The whole program comes first; then each process, when
there is more than one; then each region of each process. The columns are listed in docs/rows.md.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Literal, TypedDict, TypeVar, get_args

from octavo._core import OctavoError
from octavo.curves_metrics import rated_instructions
from octavo.tlb_levels import Machine
from octavo.units import BASE_PAGE

if TYPE_CHECKING:
    from octavo._core import (
        Curve,
        Footprint,
        MachineCurve,
        Process,
        ProcessCounts,
        Region,
        Result,
    )


AnyCurve = TypeVar("AnyCurve", "Curve", "MachineCurve")


class Row(TypedDict, total=False):
    """One row; a column that does not apply is absent. Sizes are bytes."""

    process: int
    """Stream number of the process; absent where the row is about all of them."""
    region: str
    region_kind: str
    path: str | None
    start: int
    """Lowest address of the region, in the layout that was asked for."""
    bytes: int
    """Largest extent of the region."""
    mappings: int
    component: str
    """Dotted path: stream, stream.events, tlb.fetch, tlb.data, tlb.l2.fetch, …, machine.l1.fetch,
    machine.l2.data, …, memory."""
    counter: str
    value: int
    stream: str
    """fetch, data or all."""
    page_size: int
    entries: int
    ways: int
    accesses: int
    hits: int
    misses: int
    mpki: float | None
    """Misses per 1000 instructions; None where too few instructions were counted."""
    added_cycles: int | None
    """Misses times what a miss at this level adds; None where the machine's source is silent."""
    touched_bytes: int
    growth: float | None
    """Touched memory over that in 4 KiB pages, less one; None where nothing was touched."""
    peak_resident_bytes: int | None


class Miscount(OctavoError):
    """Counts that do not add up: a bug of ours, never shown as a result."""


_StreamCounter = Literal[
    "references",
    "instructions",
    "fetches",
    "loads",
    "stores",
    "modifies",
    "segments",
    "threads",
    "thread_switches",
]
_STREAM_COUNTERS: tuple[_StreamCounter, ...] = get_args(_StreamCounter)


def rows_of(result: Result, machine: Machine) -> list[Row]:
    """Every row of a run, the whole program first."""
    processes = result["processes"]
    rows = list(_program_rows(result, machine))
    several = len(processes) > 1
    for process in processes:
        if several:
            key = Row(process=process["stream"])
            rows += [{**key, **row} for row in _process_rows(process, machine)]
    for process in processes:
        key = Row(process=process["stream"]) if several else Row()
        for region in process["regions"]:
            identity: Row = {**key, **_region_key(region)}
            rows += [{**identity, **row} for row in _region_rows(region, process, machine)]
    return rows


def component_of(level: int, stream: str) -> str:
    """`tlb.data` for level 1, `tlb.l2.data` for level 2."""
    return f"tlb.{stream}" if level == 1 else f"tlb.l{level}.{stream}"


def stream_counters(rows: Iterable[Row]) -> dict[str, int]:
    """The whole program's `stream` counters by name."""
    return {
        row["counter"]: row["value"]
        for row in rows
        if row["component"] == "stream" and "process" not in row and "region" not in row
    }


def instructions_by_process(rows: Iterable[Row]) -> dict[int, int]:
    """Instructions of each process by its stream number; empty where there is only one process."""
    return {
        row["process"]: row["value"]
        for row in rows
        if row.get("counter") == "instructions" and "process" in row and "region" not in row
    }


def machine_component(level: int, stream: str) -> str:
    """`machine.l1.data`: a level of the modelled machine's TLBs."""
    return f"machine.l{level}.{stream}"


def machine_depth(rows: Iterable[Row]) -> int:
    """The last level of the modelled machine's TLBs, whose misses are page walks; 0 without one."""
    depth = 0
    while any(row["component"] == machine_component(depth + 1, "data") for row in rows):
        depth += 1
    return depth


def _program_rows(result: Result, machine: Machine) -> Iterator[Row]:
    processes = result["processes"]
    for counter, value in summed_counters(processes).items():
        yield _count("stream", counter, value)
    yield _count("stream", "processes", len(processes))
    yield _count("stream", "untraced_processes", result["untraced_processes"])
    yield from _event_rows(processes)
    curves = [curve for process in processes for curve in process["curves"]]
    instructions = sum(process["instructions"] for process in processes)
    whole = _with_unused(_summed_curves(curves), machine)
    references = sum(process["references"] for process in processes)
    rated = rated_instructions(instructions, references)
    yield from _curve_rows(whole, rated, machine)
    machine_curves = [curve for process in processes for curve in process["machine_curves"]]
    yield from _machine_rows(_summed_curves(machine_curves), rated)
    yield from _footprint_rows(_summed_footprints(processes))


def _process_rows(process: Process, machine: Machine) -> Iterator[Row]:
    for counter, value in summed_counters([process]).items():
        yield _count("stream", counter, value)
    yield from _event_rows([process])
    whole = _with_unused(process["curves"], machine)
    yield from _curve_rows(whole, _rated(process), machine)
    yield from _machine_rows(process["machine_curves"], _rated(process))
    yield from _footprint_rows(process["footprints"])


def _region_key(region: Region) -> Row:
    return Row(
        region=region["name"],
        region_kind=region["kind"],
        path=region["path"],
        start=region["start"],
        bytes=region["bytes"],
        mappings=region["mappings"],
    )


def _region_rows(region: Region, process: Process, machine: Machine) -> Iterator[Row]:
    fetches, data = region["fetch_references"], region["data_references"]
    yield _count("stream", "references", fetches + data)
    yield _count("stream", "fetch_references", fetches)
    yield _count("stream", "data_references", data)
    yield from _curve_rows(region["curves"], _rated(process), machine)
    yield from _machine_rows(region["machine_curves"], _rated(process))
    yield from _footprint_rows(region["footprints"])


def _rated(process: Process) -> int:
    return rated_instructions(process["instructions"], process["references"])


def _count(component: str, counter: str, value: int) -> Row:
    return Row(component=component, counter=counter, value=value)


def summed_counters(processes: Iterable[ProcessCounts]) -> dict[str, int]:
    """The stream's counters, over all processes. Raises Miscount."""
    totals: dict[str, int] = dict.fromkeys(_STREAM_COUNTERS, 0)
    for process in processes:
        if process["references"] != process["fetches"] + process["loads"] + process["stores"]:
            raise Miscount(
                f"process {process['stream']}: references are not fetches + loads + stores; "
                "this is a bug in Octavo, please report it."
            )
        for counter in _STREAM_COUNTERS:
            totals[counter] += process[counter]
    return totals


def _event_rows(processes: Iterable[Process]) -> Iterator[Row]:
    for name, number in event_counts(processes):
        yield _count("stream.events", name, number)


def event_counts(processes: Iterable[ProcessCounts]) -> list[tuple[str, int]]:
    """Events by name, over all processes."""
    events: Counter[str] = Counter()
    for process in processes:
        events.update(process["events"])
    return sorted(events.items())


def _summed_curves(curves: Iterable[AnyCurve]) -> list[AnyCurve]:
    """Each process image has TLBs of its own; accesses and misses add up."""
    totals: dict[tuple[str, int, int], AnyCurve] = {}
    for curve in curves:
        key = (curve["stream"], curve["level"], curve["page_size"])
        total = totals.setdefault(key, {**curve, "accesses": 0, "misses": 0})
        total["accesses"] += curve["accesses"]
        total["misses"] += curve["misses"]
    return list(totals.values())


def _with_unused(curves: Sequence[Curve], machine: Machine) -> Iterator[Curve]:
    """The curves, and zeros for a TLB that nothing was looked up in: a program without data."""
    yield from curves
    used = {curve["stream"] for curve in curves}
    sizes = {curve["page_size"] for curve in curves}
    streams: tuple[Literal["fetch", "data"], ...] = ("fetch", "data")
    for stream in streams:
        if stream in used:
            continue
        for level, entries in enumerate((tlb.entries(stream) for tlb in machine.levels), start=1):
            for size in sizes:
                yield {
                    "stream": stream,
                    "page_size": size,
                    "level": level,
                    "entries": entries,
                    "accesses": 0,
                    "misses": 0,
                }


def _curve_rows(curves: Iterable[Curve], instructions: int, machine: Machine) -> Iterator[Row]:
    ordered = sorted(curves, key=lambda c: (c["level"], c["stream"] != "fetch", c["page_size"]))
    _check_conservation(ordered)
    for curve in ordered:
        stream, level, misses = curve["stream"], curve["level"], curve["misses"]
        cycles = machine.levels[level - 1].miss_cycles(stream)
        yield Row(
            component=component_of(level, stream),
            stream=stream,
            page_size=curve["page_size"],
            entries=curve["entries"],
            ways=curve["entries"],
            accesses=curve["accesses"],
            hits=curve["accesses"] - misses,
            misses=misses,
            mpki=1000 * misses / instructions if instructions else None,
            added_cycles=None if cycles is None else cycles * misses,
        )


def _machine_rows(curves: Iterable[MachineCurve], instructions: int) -> Iterator[Row]:
    ordered = sorted(curves, key=lambda c: (c["level"], c["stream"] != "fetch", c["page_size"]))
    for curve in ordered:
        accesses, misses = curve["accesses"], curve["misses"]
        yield Row(
            component=machine_component(curve["level"], curve["stream"]),
            stream=curve["stream"],
            page_size=curve["page_size"],
            entries=curve["entries"],
            ways=curve["ways"],
            accesses=accesses,
            hits=accesses - misses,
            misses=misses,
            mpki=1000 * misses / instructions if instructions else None,
            added_cycles=None,
        )


def _check_conservation(curves: Iterable[Curve]) -> None:
    """Misses are no more than accesses, and a level is accessed by the misses of the one before."""
    by_level: defaultdict[int, dict[tuple[str, int], Curve]] = defaultdict(dict)
    for curve in curves:
        by_level[curve["level"]][curve["stream"], curve["page_size"]] = curve
        above = by_level[curve["level"] - 1].get((curve["stream"], curve["page_size"]))
        wrong = curve["misses"] > curve["accesses"]
        if wrong or (above is not None and above["misses"] != curve["accesses"]):
            raise Miscount(
                f"{component_of(curve['level'], curve['stream'])} at {curve['page_size']} bytes: "
                "accesses, hits and misses do not add up; this is a bug in Octavo, "
                "please report it."
            )


def _summed_footprints(processes: Sequence[Process]) -> list[Footprint]:
    """Touched memory adds up over processes, but for what they share, which counts once; their
    peaks need not coincide, so those do not add up.
    """
    totals: dict[tuple[str, int], Footprint] = {}
    largest: Counter[tuple[str, int]] = Counter()
    for process in processes:
        for footprint in process["footprints"]:
            key: tuple[str, int] = (footprint["stream"], footprint["page_size"])
            total = totals.setdefault(key, {**footprint, "touched_bytes": 0})
            total["touched_bytes"] += footprint["touched_bytes"]
            largest[key] = max(largest[key], footprint["touched_bytes"])
            if len(processes) > 1:
                total["peak_resident_bytes"] = None
    for stream_and_size, again in _counted_again(processes).items():
        # A large page may hold shared memory and memory of the process' own.
        if stream_and_size in totals:
            total = totals[stream_and_size]
            total["touched_bytes"] = max(total["touched_bytes"] - again, largest[stream_and_size])
    return list(totals.values())


def _counted_again(processes: Sequence[Process]) -> Counter[tuple[str, int]]:
    """Bytes, by stream and page size, that a sum over processes counts more than once: text of one
    file, and shared memory at one address. What one process touches most of it is taken for all.
    """
    seen: defaultdict[tuple[object, ...], list[Region]] = defaultdict(list)
    for process in processes:
        for region in process["regions"]:
            if region["kind"] == "text" and region["path"]:
                seen["text", region["path"]].append(region)
            elif region["kind"] == "shared":
                seen["shared", region["name"], region["start"]].append(region)
    again: Counter[tuple[str, int]] = Counter()
    for regions in seen.values():
        by_size: defaultdict[tuple[str, int], list[int]] = defaultdict(list)
        for region in regions if len(regions) > 1 else ():
            for footprint in region["footprints"]:
                of_size = by_size[footprint["stream"], footprint["page_size"]]
                of_size.append(footprint["touched_bytes"])
        for stream_and_size, sizes in by_size.items():
            again[stream_and_size] += sum(sizes) - max(sizes)
    return again


def _footprint_rows(footprints: Iterable[Footprint]) -> Iterator[Row]:
    order = ("fetch", "data", "all")
    ordered = sorted(footprints, key=lambda f: (order.index(f["stream"]), f["page_size"]))
    base = {f["stream"]: f["touched_bytes"] for f in ordered if f["page_size"] == BASE_PAGE}
    for footprint in ordered:
        touched = footprint["touched_bytes"]
        in_base_pages = base.get(footprint["stream"], 0)
        yield Row(
            component="memory",
            stream=footprint["stream"],
            page_size=footprint["page_size"],
            touched_bytes=touched,
            growth=touched / in_base_pages - 1 if in_base_pages else None,
            peak_resident_bytes=footprint["peak_resident_bytes"],
        )
