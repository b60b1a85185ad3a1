"""Rows of a run: the extension's result as one flat list of plain records.

A row says one thing about one component. The whole program comes first; then each process, when
there is more than one; then each region of each process. The columns are listed in docs/rows.md.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Literal, TypedDict, TypeVar, get_args

from octavo._core import OctavoError, memory_counted_again
from octavo.base.huge_pages import PMD_PAGE
from octavo.base.metrics import rated_instructions
from octavo.base.table import columns_of
from octavo.base.units import BASE_PAGE
from octavo.hardware.tlb_levels import Machine

if TYPE_CHECKING:
    from octavo._core import (
        Curve,
        Footprint,
        MachineCurve,
        Process,
        ProcessCounts,
        Region,
        Result,
        Touched,
    )


AnyCurve = TypeVar("AnyCurve", "Curve", "MachineCurve")


class Row(TypedDict, total=False):
    """One row; a column that does not apply is absent. Sizes are bytes."""

    process: Annotated[int, "int32"]
    """Stream number of the process; absent where the row is about all processes."""
    program: str
    """Path of the program whose processes the row is about; only in rows of a `Program`."""
    processes: list[int]
    """Stream numbers of the program's processes."""
    region: str
    region_kind: str
    path: str | None
    start: Annotated[int, "uint64"]
    """Lowest address of the region, in the chosen layout."""
    bytes: Annotated[int, "uint64"]
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
    """Misses times the cycles that a miss at this level adds; None where the machine's source does
    not give these."""
    touched_bytes: int
    growth: float | None
    """Touched memory over touched memory in 4 KiB pages, minus one; None without any."""
    peak_resident_bytes: int | None


FAULTS = "memory.faults"
"""The component of page faults."""
PAGE_FAULTS, HUGE_PAGE_FAULTS = "page_faults", "huge_page_faults"
HUGE_PAGE_FAULTS_AGAIN = "huge_page_faults_again"
"""Its counters: all page faults, the ones that give a 2 MiB page, and the part of these that gets
memory which the process had given back."""
HUGE_PAGES = "memory.huge_pages"
"""The component of the growth of a process's private memory in 2 MiB pages."""
GROWTH_BYTES = "growth_bytes"
CORE_CACHE = "cache.core"
"""The component of the caches that are private to a core."""
MISSED_LINES = "missed_lines"
_OWN_KINDS = ("heap", "anonymous", "stack", "thread-stack")

COLUMNS = columns_of(Row, without=("program", "processes"))
"""The columns of rows.parquet and their Arrow types, the same for every run."""


RegionKey = tuple[int | None, str | None, str | None, int | None]
"""Process, program, name and start of a region in the rows of a run."""


def region_key(row: Row) -> RegionKey:
    """The key of the region that a row is about."""
    return row.get("process"), row.get("program"), row["region"], row["start"]


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
    chains = exec_chains(processes)
    rows = list(_sums(processes, machine, chains))
    rows.append(_count("stream", "processes", len(processes)))
    rows.append(_count("stream", "untraced_processes", result["untraced_processes"]))
    several = len(processes) > 1
    for process in processes:
        if several:
            key = Row(process=process["stream"])
            rows += [{**key, **row} for row in _sums([process], machine, chains)]
    for process in processes:
        key = Row(process=process["stream"]) if several else Row()
        rows += [{**key, **row} for row in _region_rows([process], machine, chains)]
    return rows


def exec_chains(processes: Sequence[ProcessCounts]) -> dict[int, int]:
    """The stream number of the first image of each image's process, by stream number. Images of one
    process replace each other by exec and never live at the same time.
    """
    return _descents(processes, "exec")


def _descents(processes: Sequence[ProcessCounts], by: Literal["fork", "exec"]) -> dict[int, int]:
    """The first image from which each image descends by `by` alone, by stream number."""
    first: dict[int, int] = {}
    for process in sorted(processes, key=lambda process: process["stream"]):
        stream, parent = process["stream"], process["parent_stream"]
        if process["began_by"] == by and parent is not None:
            first[stream] = first.get(parent, parent)
        else:
            first[stream] = stream
    return first


def rows_together(
    processes: Sequence[Process], machine: Machine, chains: Mapping[int, int]
) -> list[Row]:
    """The rows of several processes as if they were one: regions of one name, kind and file are one
    region, and memory that the processes share counts once. `chains` is that of all processes.
    """
    return [*_sums(processes, machine, chains), *_region_rows(processes, machine, chains)]


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


def memory_by_size(rows: Sequence[Row]) -> dict[int, int]:
    """Bytes of all memory of the whole program by page size: the most at one time if that is known,
    else all that was touched.
    """
    peaks = peak_memory_by_size(rows)
    return {
        row["page_size"]: peaks.get(row["page_size"], row["touched_bytes"])
        for row in all_memory(rows)
    }


def peak_memory_by_size(rows: Iterable[Row]) -> dict[int, int]:
    """The most bytes of the whole program's memory at one time by page size, where it is known."""
    return {
        row["page_size"]: peak
        for row in all_memory(rows)
        if (peak := row["peak_resident_bytes"]) is not None
    }


def all_memory(rows: Iterable[Row]) -> Iterator[Row]:
    """The rows about all memory of the whole program, one for each page size."""
    return (
        row
        for row in rows
        if row["component"] == "memory" and row["stream"] == "all"
        if "process" not in row and "region" not in row
    )


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
    components = {row["component"] for row in rows}
    depth = 0
    while not components.isdisjoint(_machine_components(depth + 1)):
        depth += 1
    return depth


def machine_sizes(rows: Iterable[Row]) -> set[int]:
    """The page sizes that the modelled machine has entries for; empty without one."""
    return {row["page_size"] for row in rows if row["component"] in _machine_components(1)}


def _machine_components(level: int) -> list[str]:
    """The components of a level for fetches and for data; a trace may lack one of them."""
    return [machine_component(level, stream) for stream in ("fetch", "data")]


def _sums(
    processes: Sequence[Process], machine: Machine, chains: Mapping[int, int]
) -> Iterator[Row]:
    """The rows about all memory of the processes."""
    for counter, value in summed_counters(processes).items():
        yield _count("stream", counter, value)
    for name, number in event_counts(processes):
        yield _count("stream.events", name, number)
    rated = rated_of(processes)
    curves = [curve for process in processes for curve in process["curves"]]
    yield from _curve_rows(_with_unused(_summed_curves(curves), machine), rated, machine)
    machine_curves = [curve for process in processes for curve in process["machine_curves"]]
    yield from _machine_rows(_summed_curves(machine_curves), rated)
    footprints = [(process["stream"], process["footprints"]) for process in processes]
    regions = [(process, region) for process in processes for region in process["regions"]]
    yield from _footprint_rows(_summed_footprints(footprints, regions, processes, chains))
    yield from _fault_rows(regions)
    yield from _growth_rows(regions, chains)
    missed = [process["missed_lines"] for process in processes]
    if None not in missed:
        lines = sum(one or 0 for one in missed)
        yield Row(component=CORE_CACHE, counter=MISSED_LINES, value=lines, stream="data")


def _region_rows(
    processes: Sequence[Process], machine: Machine, chains: Mapping[int, int]
) -> Iterator[Row]:
    """The rows of each region; the same region in several processes has the same rows."""
    same: defaultdict[tuple[object, ...], list[tuple[Process, Region]]] = defaultdict(list)
    for process in processes:
        for region in process["regions"]:
            # Names are unique within a process.
            same[region["name"], region["kind"], region["path"]].append((process, region))
    rated = rated_of(processes)
    for members in same.values():
        regions = [region for _, region in members]
        key = _region_key(regions)
        for row in _rows_of_region(members, rated, machine, processes, chains):
            yield {**key, **row}


def _region_key(regions: Sequence[Region]) -> Row:
    first = regions[0]
    return Row(
        region=first["name"],
        region_kind=first["kind"],
        path=first["path"],
        start=min(region["start"] for region in regions),
        bytes=max(region["bytes"] for region in regions),
        mappings=sum(region["mappings"] for region in regions),
    )


def _rows_of_region(
    members: Sequence[tuple[Process, Region]],
    rated: int,
    machine: Machine,
    processes: Sequence[Process],
    chains: Mapping[int, int],
) -> Iterator[Row]:
    regions = [region for _, region in members]
    fetches = sum(region["fetch_references"] for region in regions)
    data = sum(region["data_references"] for region in regions)
    yield _count("stream", "references", fetches + data)
    yield _count("stream", "fetch_references", fetches)
    yield _count("stream", "data_references", data)
    kinds = {
        "asked_huge_bytes": sum(region["asked_huge_bytes"] for region in regions),
        "asked_small_bytes": sum(region["asked_small_bytes"] for region in regions),
        "hugetlb_bytes": sum(region["hugetlb_bytes"] for region in regions),
        "malloc_bytes": sum(region["malloc_bytes"] for region in regions),
    }
    for counter, value in kinds.items():
        if value:
            yield _count("stream", counter, value)
    curves = [curve for region in regions for curve in region["curves"]]
    yield from _curve_rows(_summed_curves(curves), rated, machine)
    machine_curves = [curve for region in regions for curve in region["machine_curves"]]
    yield from _machine_rows(_summed_curves(machine_curves), rated)
    footprints = [(process["stream"], region["footprints"]) for process, region in members]
    yield from _footprint_rows(_summed_footprints(footprints, members, processes, chains))
    yield from _fault_rows(members)


def rated_of(processes: Sequence[Process]) -> int:
    """Instructions by which misses are divided; 0 where too few were counted."""
    instructions = sum(process["instructions"] for process in processes)
    return rated_instructions(instructions, sum(process["references"] for process in processes))


def _count(component: str, counter: str, value: int) -> Row:
    return Row(component=component, counter=counter, value=value)


def summed_counters(processes: Iterable[ProcessCounts]) -> dict[str, int]:
    """The stream counters, summed over all processes. Raises Miscount."""
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


def event_counts(processes: Iterable[ProcessCounts]) -> list[tuple[str, int]]:
    """The number of events by name, over all processes."""
    events: Counter[str] = Counter()
    for process in processes:
        events.update(process["events"])
    return sorted(events.items())


def _summed_curves(curves: Iterable[AnyCurve]) -> list[AnyCurve]:
    """The curves, summed over process images, each of which has TLBs of its own."""
    totals: dict[tuple[str, int, int], AnyCurve] = {}
    for curve in curves:
        key = (curve["stream"], curve["level"], curve["page_size"])
        total = totals.setdefault(key, {**curve, "accesses": 0, "misses": 0})
        total["accesses"] += curve["accesses"]
        total["misses"] += curve["misses"]
    return list(totals.values())


def _with_unused(curves: Sequence[Curve], machine: Machine) -> Iterator[Curve]:
    """The curves, and zeros for a TLB without any lookup, as in a program without data."""
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
        stream, level = curve["stream"], curve["level"]
        cycles = machine.levels[level - 1].miss_cycles(stream)
        added = None if cycles is None else cycles * curve["misses"]
        component, ways = component_of(level, stream), curve["entries"]
        yield _curve_row(component, curve, ways, instructions, added)


def _machine_rows(curves: Iterable[MachineCurve], instructions: int) -> Iterator[Row]:
    ordered = sorted(curves, key=lambda c: (c["level"], c["stream"] != "fetch", c["page_size"]))
    for curve in ordered:
        component = machine_component(curve["level"], curve["stream"])
        yield _curve_row(component, curve, curve["ways"], instructions, None)


def _curve_row(
    component: str, curve: Curve | MachineCurve, ways: int, instructions: int, added: int | None
) -> Row:
    return Row(
        component=component,
        stream=curve["stream"],
        page_size=curve["page_size"],
        entries=curve["entries"],
        ways=ways,
        accesses=curve["accesses"],
        hits=curve["accesses"] - curve["misses"],
        misses=curve["misses"],
        mpki=1000 * curve["misses"] / instructions if instructions else None,
        added_cycles=added,
    )


def _check_conservation(curves: Iterable[Curve]) -> None:
    """Checks that misses are no more than accesses, and that the accesses of a level are the misses
    of the level before. Raises Miscount.
    """
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


def _summed_footprints(
    each: Sequence[tuple[int, Sequence[Footprint]]],
    regions: Sequence[tuple[Process, Region]],
    processes: Sequence[Process],
    chains: Mapping[int, int],
) -> list[Footprint]:
    """The sum of touched memory. Pages of `regions` that processes share count once. Of images that
    replaced each other by exec only the largest counts. Peaks are not summed, as processes need not
    have them at the same time.
    """
    if len(each) == 1:
        return list(each[0][1])
    totals: dict[_FootprintKey, Footprint] = {}
    counted: defaultdict[frozenset[int], set[_FootprintKey]] = defaultdict(set)
    for key, members in _by_key(each).items():
        largest: dict[int, tuple[int, int]] = {}
        for stream, footprint in members:
            one = (footprint["touched_bytes"], stream)
            largest[chains[stream]] = max(one, largest.get(chains[stream], one))
        peaks = [footprint["peak_resident_bytes"] for _, footprint in members]
        totals[key] = {
            **members[0][1],
            "touched_bytes": sum(touched for touched, _ in largest.values()),
            "peak_resident_bytes": None
            if len(largest) > 1
            else max((peak for peak in peaks if peak is not None), default=None),
        }
        counted[frozenset(stream for _, stream in largest.values())].add(key)
    for streams, keys in counted.items():
        images = _images([one for one in regions if one[0]["stream"] in streams], processes)
        for again in memory_counted_again(images, sorted({size for _, size in keys})):
            key = again["stream"], again["page_size"]
            if key in keys:
                totals[key]["touched_bytes"] -= again["touched_bytes"]
    return list(totals.values())


_FootprintKey = tuple[str, int]


def _by_key(
    each: Iterable[tuple[int, Sequence[Footprint]]],
) -> dict[_FootprintKey, list[tuple[int, Footprint]]]:
    """The footprints by stream and page size, each with the stream number of its process."""
    found: defaultdict[_FootprintKey, list[tuple[int, Footprint]]] = defaultdict(list)
    for stream, footprints in each:
        for footprint in footprints:
            found[footprint["stream"], footprint["page_size"]].append((stream, footprint))
    return found


def _images(
    regions: Iterable[tuple[Process, Region]], processes: Sequence[Process]
) -> list[tuple[int, list[tuple[str | None, int, Touched]]]]:
    """The regions of each process, with the process from which it descends by fork alone."""
    family = _descents(processes, "fork")
    parts: defaultdict[int, list[tuple[str | None, int, Touched]]] = defaultdict(list)
    for process, region in regions:
        file = None if region["path"] is None else f"{region['kind']} {region['path']}"
        parts[process["stream"]].append((file, region["start"], region["touched"]))
    return [(family[stream], own) for stream, own in parts.items()]


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


def _fault_rows(regions: Iterable[tuple[Process, Region]]) -> Iterator[Row]:
    """Page faults of the regions, without forked processes, which have their parent's pages."""
    faults = [region["page_faults"] for process, region in regions if process["began_by"] != "fork"]
    base = sum(one["base"] for one in faults)
    huge = sum(one["huge"] for one in faults)
    if base:
        for size, counter, value in (
            (BASE_PAGE, PAGE_FAULTS, base),
            (PMD_PAGE, PAGE_FAULTS, huge + sum(one["left"] for one in faults)),
            (PMD_PAGE, HUGE_PAGE_FAULTS, huge),
            (PMD_PAGE, HUGE_PAGE_FAULTS_AGAIN, sum(one["huge_again"] for one in faults)),
        ):
            yield Row(component=FAULTS, counter=counter, value=value, stream="data", page_size=size)


def _is_forked(process: ProcessCounts) -> bool:
    return process["began_by"] == "fork"


def _is_own(
    region: Region,
    stream: int,
    parents: Mapping[int, int | None],
    of_stream: Mapping[int, Sequence[Region]],
) -> bool:
    """Whether a forked process mapped a region itself: no ancestor has memory at its addresses.
    False where an ancestor is not among the processes.
    """
    parent = parents[stream]
    while parent is not None:
        if parent not in parents:
            return False
        for other in of_stream.get(parent, ()):
            if (
                other["start"] < region["start"] + region["bytes"]
                and region["start"] < other["start"] + other["bytes"]
            ):
                return False
        parent = parents[parent]
    return True


def _growth_rows(
    regions: Iterable[tuple[Process, Region]], chains: Mapping[int, int]
) -> Iterator[Row]:
    """The growth of all regions, without memory that forked processes have from their parents. Of
    images that replaced each other by exec, only the one that grows most counts. A trace without
    heaps and mappings has no such row.
    """
    by_image: Counter[int] = Counter()
    is_known = False
    regions = list(regions)
    of_stream: defaultdict[int, list[Region]] = defaultdict(list)
    parents: dict[int, int | None] = {}
    for process, region in regions:
        of_stream[process["stream"]].append(region)
        parents[process["stream"]] = process["parent_stream"] if _is_forked(process) else None
    for process, region in regions:
        # Many processes have many regions that do not grow, whose addresses need no comparison.
        matters = region["huge_growth_bytes"] > 0 or not is_known
        if not _is_forked(process) or (
            matters and _is_own(region, process["stream"], parents, of_stream)
        ):
            by_image[process["stream"]] += region["huge_growth_bytes"]
            is_known |= region["kind"] in _OWN_KINDS
    most: dict[int, int] = {}
    for image, growth in by_image.items():
        most[chains[image]] = max(growth, most.get(chains[image], 0))
    if is_known:
        yield Row(
            component=HUGE_PAGES,
            counter=GROWTH_BYTES,
            value=sum(most.values()),
            stream="data",
            page_size=PMD_PAGE,
        )


_NUMBERED = re.compile(r" (?:[\d.]+(?:KiB|MiB|GiB)(?: #\d+)?|\(small\))$")


def family_of(region: str) -> str:
    """The name without size and number: `jemalloc arena 2.0MiB #7` is a `jemalloc arena`."""
    return _NUMBERED.sub("", region)
