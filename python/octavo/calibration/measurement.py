"""Measures this processor, and computes the figures of a calibration from the samples."""

from __future__ import annotations

import datetime
import json
import math
import os
import platform
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import takewhile
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Literal

from octavo._core import VERSION, available_memory, start_calibration
from octavo.base.background import see_through
from octavo.base.errors import CannotRun, Interrupted, UsageError
from octavo.base.host import busy_processors, cpu_field, read_setting
from octavo.base.huge_pages import PMD_PAGE
from octavo.base.units import BASE_PAGE, GIB, MIB, counted, format_bytes
from octavo.calibration.core import walkers_of, windows_of
from octavo.calibration.file import Calibration, MeasuredHost, Reach, Spread, processor
from octavo.calibration.knees import CurvePoint, Knees, find_knees, quantile, spread_of, undisturbed
from octavo.calibration.perf_stat import WalkCounts

if TYPE_CHECKING:
    from octavo._core import CalibrationSamples, SpreadSamples, WorkingSetSamples

SCHEMA = "octavo/calibration/1"

LEAST_MEMORY = 32 * MIB
MOST_MEMORY = 8 * GIB
_MEMORY_SHARE = 3
"""At most a third of the available memory is used."""
_LEAST_ROUNDS = 3
_BEYOND_REACH = 1.4
"""Multiple of the second level's reach from which on nearly every load walks."""
_FEWEST_STRIDES = 6
_SURELY_COVERED = 48 * BASE_PAGE
"""Bytes that every first level covers: the smallest have 48 entries."""
_LINE_BYTES = 64
_WATCHED_SECONDS = 0.5
_MOST_BUSY = 0.25
"""Number of processors that other work may keep busy."""
_VARYING_CLOCK = 0.05
_TSC_DIFFERS = 0.02
_RETURNED = 3.0
"""Factor by which a first touch is slower where the host had reclaimed the memory."""
_RETURNED_SHARE = 0.25
"""Share of the samples that must be slow, as an interrupt makes single ones slow, too."""
_STABLE = 1.02
"""Limit of the median of times over their lower quartile, for the times to count as stable."""
_DISTURBED = 1.5
"""Factor between rounds from which on loads from memory count as disturbed."""


@dataclass(frozen=True)
class Measurement:
    """A calibration with the samples from which it was computed."""

    calibration: Calibration
    samples: CalibrationSamples
    knees: Mapping[int, Knees]
    """The levels found in the curve of each page size, by the size in bytes."""
    interrupted_by: int | None = None
    """The signal that ended the measurement early."""
    counted: WalkCounts | None = None
    """The counts of a file of `perf stat`."""

    def document(self) -> dict[str, Any]:
        """The document of `octavo calibrate --json`."""
        return {
            "schema": SCHEMA,
            **self.calibration.document(),
            "partial": self.interrupted_by is not None,
            "counted": None if self.counted is None else asdict(self.counted),
            "samples": self.samples,
        }


def measure(
    *,
    quick: bool = False,
    memory_bytes: int | None = None,
    busy: bool = False,
    on_progress: Callable[[Any], None] = lambda progress: None,
) -> Measurement:
    """Measures this processor, in about two minutes; `quick` takes seconds and finds less.

    It uses at most `memory_bytes` of memory, by default a third of the available memory and at most
    8 GiB. A machine that other work keeps busy is refused, unless `busy`. After Ctrl-C, the rounds
    that are complete are kept. Raises UsageError for too little memory, CannotRun where the memory
    cannot be allocated, and Interrupted before there were enough rounds.
    """
    memory = default_memory() if memory_bytes is None else memory_bytes
    if memory < LEAST_MEMORY:
        raise UsageError(
            f"{format_bytes(memory)} of memory are too few: give --memory at least "
            f"{format_bytes(LEAST_MEMORY)}."
        )
    if not busy:
        _refuse_busy()
    job = start_calibration(quick=quick, memory_bytes=memory)
    interrupted_by = see_through(job, on_progress, keeps_result=True)
    samples: CalibrationSamples = json.loads(job.result())
    if samples["rounds"] < _LEAST_ROUNDS:
        if interrupted_by is not None:
            raise Interrupted(interrupted_by, "before enough was measured; nothing is kept")
        raise CannotRun(
            f"only {counted(samples['rounds'], 'round')} measured; {_LEAST_ROUNDS} are needed."
        )
    return evaluate(samples, host=describe(), interrupted_by=interrupted_by)


def _refuse_busy(root: Path = Path("/")) -> None:
    """Raises CannotRun where other programs, or other virtual machines, keep processors busy."""
    busy = busy_processors(_WATCHED_SECONDS, root)
    if busy > _MOST_BUSY:
        raise CannotRun(
            f"other work keeps {busy:.1f} of {os.cpu_count()} processors busy, which disturbs the "
            "measurement: wait until it is done, or give --busy."
        )


def default_memory(root: Path = Path("/")) -> int:
    """The memory used without --memory, in bytes."""
    return min((available_memory(root) or 0) // _MEMORY_SHARE, MOST_MEMORY)


def describe(root: Path = Path("/")) -> MeasuredHost:
    """The machine that Octavo runs on, and the time."""
    model, identity = processor(root)
    now = datetime.datetime.now(datetime.timezone.utc)
    return MeasuredHost(
        cpu_model=model,
        cpu_id=identity,
        measured_at=now.strftime("%Y-%m-%dT%H:%M:%SZ"),
        kernel=platform.release(),
        octavo=VERSION,
        virtualised="hypervisor" in (cpu_field("flags", root) or "").split(),
    )


def evaluate(
    samples: CalibrationSamples, *, host: MeasuredHost, interrupted_by: int | None = None
) -> Measurement:
    """Computes the figures from the samples."""
    ratio = spread_of(samples["core_cycles_per_tick"])
    series = {size: _Series.of(one, ratio.median) for size, one in _by_page_size(samples).items()}
    first_level = _first_level(series[BASE_PAGE]) if BASE_PAGE in series else None
    entry_bytes = None
    if first_level is not None:
        entry_bytes = _entry_bytes(samples, first_level, ratio.median)
    if first_level is not None and entry_bytes is not None:
        series = {
            size: one.without_control_hits(entry_bytes, first_level) for size, one in series.items()
        }
    knees = {size: find_knees(one.curve) for size, one in series.items()}
    costs = {size: one.walks(knees[size].reach, ratio.median) for size, one in series.items()}
    if first_level is not None and entry_bytes == BASE_PAGE:
        # Each 4 KiB piece of a 2 MiB page needs an entry, so pieces of little memory suffice to
        # measure walks to 2 MiB pages.
        pieces = [one for one in samples["spread"] if one["stride_bytes"] < one["page_bytes"]]
        small = _Series.of(pieces, ratio.median).without_control_hits(entry_bytes, first_level)
        of_pieces = small.walks(knees[BASE_PAGE].reach, ratio.median)
        costs[PMD_PAGE] = of_pieces or costs.get(PMD_PAGE, {})
    by_footprint = {size: cost for size, cost in costs.items() if cost}
    walks = {size: _over_all(cost) for size, cost in by_footprint.items()}
    walk_ticks = {
        size // BASE_PAGE: walk.median / ratio.median
        for size, walk in by_footprint.get(BASE_PAGE, {}).items()
    }
    is_partial = interrupted_by is not None
    returned = _returned_memory(samples)
    calibration = Calibration(
        host=host,
        cycles_per_second=samples["ticks_per_second"] * ratio.median,
        tsc_per_second=samples["ticks_per_second"],
        walk_cycles=walks,
        walk_cycles_by_footprint=by_footprint,
        second_level_hit_cycles={
            size: _positive(found.second_level_hit)
            for size, found in knees.items()
            if found.second_level_hit is not None
        },
        tlb={size: one.reach for size, one in knees.items() if one.reach.first or one.reach.second},
        entry_bytes={} if entry_bytes is None else {PMD_PAGE: entry_bytes},
        latency_cycles=_by("bytes", samples["latency"], ratio.median),
        load_cycles=_loads(samples, ratio.median, _dense),
        paced_load_cycles=(paced := _loads(samples, ratio.median, _rare("paced"))),
        displaced_load_cycles=_loads(samples, ratio.median, _rare("displaced")),
        pause_cycles=samples["pause_ticks"] * ratio.median if paced else None,
        parallel_load_cycles={
            one["bytes"]: _by("chases", one["by_chases"], ratio.median)
            for one in samples["parallel"]
            if one["by_chases"][0]["ticks"]
        },
        random_read_cycles=_by("bytes", samples["random"], ratio.median),
        lone_read_cycles=_by("bytes", samples["lone"], ratio.median),
        core={**windows_of(samples["windows"]), **walkers_of(samples["walkers"], walk_ticks)},
        stream_bytes_per_second={
            one["direction"]: spread_of(
                [_LINE_BYTES * samples["ticks_per_second"] / ticks for ticks in one["ticks"]]
            )
            for one in samples["streams"]
            if one["ticks"]
        },
        fault_cycles=_by("page_bytes", samples["faults"], ratio.median),
        returned_fault_cycles={
            size: spread_of(one.ticks).scaled(ratio.median) for size, one in returned.items()
        },
        kept_free_bytes={size: one.kept_bytes for size, one in returned.items() if one.kept_bytes},
        notes=(
            *([f"Interrupted after {samples['rounds']} rounds."] if is_partial else []),
            *_notes(samples, host, ratio, knees, walks, entry_bytes),
            *_returned_notes(samples, returned),
        ),
    )
    return Measurement(calibration, samples, knees, interrupted_by)


@dataclass(frozen=True)
class _FirstLevel:
    """The measured first level of the TLB."""

    entries: float
    second_level_hit: float
    """Cycles of a hit in the second level."""


@dataclass(frozen=True)
class _Series:
    """Samples in ascending order of pages, each with its point of the curve in core cycles."""

    points: Sequence[tuple[SpreadSamples, CurvePoint]]

    @classmethod
    def of(cls, samples: Iterable[SpreadSamples], ratio: float) -> _Series:
        """The series of samples; `ratio` is core cycles per tick."""
        return cls([(one, _point(one, "dependent", ratio)) for one in samples])

    @property
    def curve(self) -> list[CurvePoint]:
        return [point for _, point in self.points]

    def without_control_hits(self, entry_bytes: int, level: _FirstLevel) -> _Series:
        """Subtracts a second-level hit from the control where the control's memory is larger than
        the first level covers.
        """
        covered, hit = entry_bytes * level.entries, level.second_level_hit
        return _Series(
            [
                (one, replace(point, control=[control - hit for control in point.control]))
                if one["control_bytes"] > covered
                else (one, point)
                for one, point in self.points
            ]
        )

    def walks(self, reach: Reach, ratio: float) -> dict[int, Spread]:
        """Cycles that a walk adds, by the bytes of the pages used in turn. It has two numbers of
        pages per octave, and begins where every load walks.

        Low: walks overlap; median: each load waits for the one before; high: the upper quartile.
        """
        if reach.second is None:
            return {}
        least = _BEYOND_REACH * reach.second.median
        found = {}
        for one, point in self.points:
            if not point.cycles or point.pages < least or not _is_half_octave(point.pages):
                continue
            high = quantile(point.cycles, 0.75) - undisturbed(point.control)
            low = min(_point(one, "overlapped", ratio).cost, point.cost)
            found[point.pages * one["stride_bytes"]] = _positive(Spread(low, point.cost, high))
        return found


def _first_level(series: _Series) -> _FirstLevel | None:
    """The first level, from the points whose control surely fits into it; None where it is not
    found.
    """
    sure = [point for one, point in series.points if one["control_bytes"] <= _SURELY_COVERED]
    found = find_knees(sure)
    if found.reach.first is None or found.second_level_hit is None:
        return None
    return _FirstLevel(found.reach.first.median, found.second_level_hit.median)


@dataclass(frozen=True)
class _Returned:
    """First touches of memory that the host had reclaimed while it was free."""

    ticks: Sequence[float]
    kept_bytes: int
    """Bytes that were touched before the first slow touch, so that the host had left them."""


def _returned_memory(samples: CalibrationSamples) -> dict[int, _Returned]:
    """The slow first touches by page size, without sizes of which the host reclaimed nothing."""
    found = {}
    quick = {one["page_bytes"]: median(one["ticks"]) for one in samples["faults"] if one["ticks"]}
    for one in samples["later_faults"]:
        size, pages = one["page_bytes"], one["pages"]
        if size not in quick:
            continue
        are_slow = [ticks > _RETURNED * quick[size] for ticks in one["ticks"]]
        if sum(are_slow) >= _RETURNED_SHARE * len(are_slow) > 0:
            slow = [ticks for ticks, is_slow in zip(one["ticks"], are_slow, strict=True) if is_slow]
            found[size] = _Returned(slow, are_slow.index(True) * pages * size)
    return found


def _returned_notes(samples: CalibrationSamples, found: Mapping[int, _Returned]) -> list[str]:
    notes = []
    for size, returned in found.items():
        seconds = median(returned.ticks) / samples["ticks_per_second"]
        notes.append(
            "The host of this virtual machine reclaims free memory: a first touch of a "
            f"{format_bytes(size)} page of such memory takes {1e6 * seconds:,.0f} microseconds. Of "
            "memory that had been free for some time the host had left "
            f"{format_bytes(returned.kept_bytes)}."
        )
    return notes


def _entry_bytes(samples: CalibrationSamples, level: _FirstLevel, ratio: float) -> int | None:
    """Bytes of a 2 MiB page that a first-level entry covers; None where that is not found.

    Lines at growing distances need more and more entries. They cost no second-level hits as long
    as the entries of the first level cover all of them.
    """
    strides = [one for one in samples["strides"] if one["ticks"]]
    if len(strides) < _FEWEST_STRIDES:
        return None
    cycles = [ratio * median(one["ticks"]) for one in strides]
    most = median(cycles[:2]) + level.second_level_hit / 2
    within = list(takewhile(lambda pair: pair[1] <= most, zip(strides, cycles, strict=True)))
    if len(within) == len(strides):
        return min(PMD_PAGE, strides[-1]["stride_bytes"])
    if not within:
        return None
    last = within[-1][0]
    least = last["lines"] * last["stride_bytes"] / level.entries
    return max(BASE_PAGE, 1 << math.ceil(math.log2(least)))


def _by_page_size(samples: CalibrationSamples) -> dict[int, list[SpreadSamples]]:
    found: dict[int, list[SpreadSamples]] = {}
    for series in samples["spread"]:
        if series["dependent"] and series["stride_bytes"] == series["page_bytes"]:
            found.setdefault(series["page_bytes"], []).append(series)
    return found


def _over_all(walks: Mapping[int, Spread]) -> Spread:
    """One spread for all footprints: low is the lowest cost where walks overlap, median and high
    are the median and the highest cost where each load waits for the one before.
    """
    waiting = [one.median for one in walks.values()]
    return Spread(min(one.low for one in walks.values()), median(waiting), max(waiting))


def _by(key: str, samples: Iterable[Any], ratio: float) -> dict[int, Spread]:
    """Cycles by a key of the samples, without samples that have no times."""
    return {one[key]: spread_of(one["ticks"]).scaled(ratio) for one in samples if one["ticks"]}


def _loads(
    samples: CalibrationSamples, ratio: float, spread: Callable[[WorkingSetSamples], Spread | None]
) -> dict[int, dict[int, Spread]]:
    """Cycles of a load over all lines of a working set, by page size and by bytes."""
    found: dict[int, dict[int, Spread]] = {}
    for one in samples["dense"]:
        for size, times in ((BASE_PAGE, one["small"]), (PMD_PAGE, one["huge"])):
            ticks = spread(times)
            if ticks is not None:
                found.setdefault(size, {})[one["bytes"]] = ticks.scaled(ratio)
    return found


def _dense(times: WorkingSetSamples) -> Spread | None:
    """Low: independent loads; median: each waits for the one before; high: the upper quartile."""
    if not times["dependent"] or not times["overlapped"]:
        return None
    waiting = median(times["dependent"])
    low = min(median(times["overlapped"]), waiting)
    return Spread(low, waiting, quantile(times["dependent"], 0.75))


def _rare(kind: Literal["paced", "displaced"]) -> Callable[[WorkingSetSamples], Spread | None]:
    """A function that returns the spread of loads with a pause, or with other reads, between."""
    return lambda times: spread_of(times[kind]) if times[kind] else None


def _is_half_octave(pages: int) -> bool:
    """Whether a number is a power of two, or one and a half times that. Small numbers are measured
    more densely, and this selection gives them no more weight than large ones.
    """
    return pages >> (pages.bit_length() - 2) << (pages.bit_length() - 2) == pages


def _point(
    one: SpreadSamples, loads: Literal["dependent", "overlapped"], ratio: float
) -> CurvePoint:
    """The point of a curve in cycles; an interrupted round may lack the last control sample."""
    times, control = (
        (one["dependent"], one["control_dependent"])
        if loads == "dependent"
        else (one["overlapped"], one["control_overlapped"])
    )
    pairs = list(zip(times, control, strict=False))
    return CurvePoint(one["pages"], [ratio * a for a, _ in pairs], [ratio * b for _, b in pairs])


def _positive(spread: Spread) -> Spread:
    return Spread(max(spread.low, 0.0), max(spread.median, 0.0), max(spread.high, 0.0))


def _notes(
    samples: CalibrationSamples,
    host: MeasuredHost,
    ratio: Spread,
    knees: Mapping[int, Knees],
    walks: Mapping[int, Spread],
    entry_bytes: int | None,
) -> list[str]:
    """The limits of the figures, a sentence each."""
    notes = []
    if host.virtualised:
        notes.append(
            "This is a virtual machine: a page walk also walks the host's tables, and the host's "
            "page sizes limit what huge pages of this machine save."
        )
    if abs(ratio.median - 1) > _TSC_DIFFERS:
        notes.append(
            f"The core's clock ran at {ratio.median:.2f} times the rate of the time-stamp counter; "
            "cycles are those of the core."
        )
    if ratio.high - ratio.low > _VARYING_CLOCK * ratio.median:
        notes.append(
            f"The core's clock varied between {ratio.low:.2f} and {ratio.high:.2f} times the rate "
            "of the time-stamp counter, so that latencies of memory in cycles vary as much."
        )
    notes += _disturbance(samples, ratio.median)
    notes += _unstable(samples)
    notes += _memory_notes(samples)
    if entry_bytes is not None and entry_bytes < PMD_PAGE:
        notes.append(
            f"An entry of the TLB covers {format_bytes(entry_bytes)} of a 2 MiB page, as where the "
            "host maps this memory with smaller pages: huge pages here make walks cheaper, but do "
            "not make the TLB reach further."
        )
    for size, found in knees.items():
        if found.missing is not None:
            notes.append(f"TLB of {format_bytes(size)} pages: {found.missing}.")
        if size not in walks:
            notes.append(
                f"The walk cost of {format_bytes(size)} pages was not measured: "
                + (
                    "the second level's reach was not found."
                    if found.reach.second is None
                    else "more memory than was used is needed to exceed the second level."
                )
            )
    return notes


def _disturbance(samples: CalibrationSamples, ratio: float) -> list[str]:
    """A note where loads from memory took very different times, as they do beside other work."""
    largest = max((one for one in samples["latency"] if one["ticks"]), key=lambda one: one["bytes"])
    times = spread_of(largest["ticks"]).scaled(ratio)
    if times.high < _DISTURBED * times.low:
        return []
    return [
        f"Other work disturbed the measurement: loads over {format_bytes(largest['bytes'])} took "
        f"{times.low:.0f} to {times.high:.0f} cycles. Costs of walks over much memory, and their "
        "median, may be far too high; measure again when the machine is quiet."
    ]


def _unstable(samples: CalibrationSamples) -> list[str]:
    """A note about latencies that still scattered after all rounds."""
    measured = [one for one in samples["latency"] if one["ticks"]]
    scattered = [
        one["bytes"]
        for one in measured
        if median(one["ticks"]) > _STABLE * undisturbed(one["ticks"])
    ]
    if not scattered:
        return []
    return [
        f"Of {len(measured)} latencies {len(scattered)} still scattered after "
        f"{samples['rounds']} rounds, the least of them over {format_bytes(min(scattered))}."
    ]


def _memory_notes(samples: CalibrationSamples) -> list[str]:
    notes = []
    for one in samples["memory"]:
        if one["page_bytes"] > PMD_PAGE or one["refusal"] is None:
            continue
        setting = read_setting(Path("/sys/kernel/mm/transparent_hugepage/enabled"))
        given, wanted = format_bytes(one["obtained_bytes"]), format_bytes(one["wanted_bytes"])
        notes.append(
            f"Of {wanted} in {format_bytes(one['page_bytes'])} pages the kernel gave {given}: "
            f"{one['refusal']} (transparent huge pages: {setting or 'none'})."
        )
    gigantic = [m for m in samples["memory"] if m["page_bytes"] > PMD_PAGE and m["obtained_bytes"]]
    if gigantic and not any(one["page_bytes"] > PMD_PAGE for one in samples["spread"]):
        given = format_bytes(gigantic[0]["obtained_bytes"])
        notes.append(f"{given} in 1 GiB pages are too few pages to measure.")
    if not any(m["page_bytes"] == PMD_PAGE and m["obtained_bytes"] for m in samples["memory"]):
        notes.append(
            "Without 2 MiB pages there is nothing to compare with: TLB reach and walk cost were "
            "not measured, and latencies include misses of the TLB."
        )
    if samples["huge_bytes_lost"]:
        notes.append(
            f"{format_bytes(samples['huge_bytes_lost'])} of the 2 MiB pages were split while they "
            "were measured."
        )
    return notes
