"""Differences between two results of one command, such as runs before and after a change."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from octavo.analysis.rows import stream_counters
from octavo.analysis.view import whole_program
from octavo.base.errors import UsageError
from octavo.base.table import Grid
from octavo.base.text import quoted
from octavo.base.units import BASE_PAGE, format_bytes, format_count, format_mpki
from octavo.report import curves_data, sim_data
from octavo.runs.result import SCHEMA as RUN_SCHEMA
from octavo.simulation.model import RESOLUTION

SCHEMA = "octavo/diff/1"
LEAST_RATE = 0.001
"""Least difference in misses per 1000 instructions, or references, that counts."""
_ENTRIES = (16, 64, 512, 1024)
"""Entries of the fully associative TLBs of `octavo curves` that are compared."""
_RATE = "per 1000"
_LARGE_CHANGE = 10.0
"""The change from which on no fraction of a percent is shown."""

Verdict = Literal["better", "same", "undecided", "worse", "not judged"]

_WEIGHTY: tuple[Verdict, ...] = ("worse", "better", "undecided")
"""The verdicts on numbers that differ by more than the tolerance, the most important first."""


@dataclass(frozen=True)
class Measure:
    """A number of a result; less is better."""

    value: float
    unit: str
    """`per 1000` (instructions, or references), `bytes`, `cycles` or `references`."""
    is_judged: bool = True
    resolution: float = 0.0
    """The uncertainty of the value, to both sides, as a share of it."""


@dataclass(frozen=True)
class Difference:
    """A number of both results."""

    name: str
    unit: str
    before: float
    after: float
    change: float | None
    """The difference over the value before; None where that is 0."""
    low: float | None
    high: float | None
    """Bounds of the change, where the values have an uncertainty."""
    verdict: Verdict


@dataclass(frozen=True)
class Comparison:
    """All numbers that two results share."""

    differences: tuple[Difference, ...]
    tolerance: float
    only_before: tuple[str, ...]
    only_after: tuple[str, ...]
    remarks: tuple[str, ...]
    """Reasons to doubt that the results can be compared, in sentences."""

    @property
    def verdict(self) -> Verdict:
        """`worse` if any number is, else `better` if any is, else `undecided` if any is, else
        `same`.
        """
        found = {one.verdict for one in self.differences}
        return next((verdict for verdict in _WEIGHTY if verdict in found), "same")

    def sentence(self) -> str:
        """The verdict, with the numbers that are worse or better."""
        by_verdict: dict[str, list[str]] = {}
        for one in self.differences:
            by_verdict.setdefault(one.verdict, []).append(one.name)
        if self.verdict == "same":
            return f"No worse: no number differs by more than {100 * self.tolerance:g}%."
        starts = {"worse": "Worse", "undecided": "Undecided, as the interval contains 0"}
        if "worse" not in by_verdict:
            starts["better"] = "No worse, and better"
        return " ".join(
            f"{starts[verdict]}: {_some(by_verdict[verdict])}."
            for verdict in _WEIGHTY
            if verdict in starts and verdict in by_verdict
        )

    def grid(self) -> Grid:
        """The numbers that differ, with judged numbers first."""
        order: Sequence[Verdict] = (*_WEIGHTY, "not judged", "same")
        shown = [one for one in self.differences if one.before != one.after]
        shown.sort(key=lambda one: order.index(one.verdict))
        rows = tuple(
            (
                one.name,
                _format(one.before, one.unit),
                _format(one.after, one.unit),
                _change(one),
                one.verdict,
            )
            for one in shown
        )
        return Grid("Differences", ("number", "before", "after", "change", "verdict"), rows)

    def document(self) -> dict[str, Any]:
        """The document of `octavo diff --json`."""
        return {
            "schema": SCHEMA,
            "verdict": self.verdict,
            "tolerance": self.tolerance,
            "only_before": list(self.only_before),
            "only_after": list(self.only_after),
            "remarks": list(self.remarks),
            "differences": [asdict(one) for one in self.differences],
        }


def compare(
    before: Mapping[str, Any], after: Mapping[str, Any], tolerance: float = RESOLUTION
) -> Comparison:
    """Compares two documents of `octavo.results.archive.read_document`. A number is worse where it
    grew by more than the share `tolerance`. Raises UsageError for results of different commands,
    and for results without a number in common.
    """
    if before["schema"] != after["schema"]:
        names = (_MEASURES[document["schema"]][0] for document in (before, after))
        raise UsageError("cannot compare a result of `octavo {}` with one of `{}`.".format(*names))
    measures = _MEASURES[before["schema"]][1]
    old, new = dict(measures(before)), dict(measures(after))
    shared = [name for name in old if name in new]
    if not shared:
        raise UsageError(
            "the results have no number in common; give results with the same page sizes or "
            "designs."
        )
    only_before = tuple(name for name in old if name not in new)
    only_after = tuple(name for name in new if name not in old)
    remarks = [*_remarks(before["run"], after["run"])]
    counted = next((name for name in ("instructions", "references") if name in shared), None)
    if counted and abs(new[counted].value - old[counted].value) > tolerance * old[counted].value:
        numbers = " and ".join(format_count(round(one[counted].value)) for one in (old, new))
        remarks.append(f"The results are of different numbers of {counted}: {numbers}.")
    if only_before or only_after:
        remarks.append(
            f"Numbers that only one result has are not compared: {len(only_before)} of the first, "
            f"{len(only_after)} of the second."
        )
    return Comparison(
        tuple(_difference(name, old[name], new[name], tolerance) for name in shared),
        tolerance,
        only_before,
        only_after,
        tuple(remarks),
    )


def _remarks(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    """Sentences about differences in the manifests of two results."""
    for which, manifest in (("first", before), ("second", after)):
        if manifest.get("partial"):
            yield f"The {which} result is partial: {manifest.get('partial_reason')}."
    old, new = _settings(before), _settings(after)
    yield from _other_work(before, after, is_set_alike=old == new)
    timings = [manifest.get("timing", {}).get("name") for manifest in (before, after)]
    if timings[0] != timings[1]:
        yield "The cycles were computed in different ways: {}, and {}.".format(*timings)
    names = [name for name in {**old, **new} if old.get(name) != new.get(name)]
    if names:
        listed = ", ".join(name.replace("_", " ") for name in names)
        yield f"The results were made with different settings: {listed}."


def _other_work(
    before: Mapping[str, Any], after: Mapping[str, Any], *, is_set_alike: bool
) -> Iterator[str]:
    """A sentence where the results are of different programs, arguments or traces."""
    commands = [manifest["command"] for manifest in (before, after)]
    traces = [manifest["trace"] for manifest in (before, after) if manifest.get("trace")]
    if len(traces) == 1:
        # A live run beside a trace: the program that was recorded.
        commands = [_recorded_command(manifest) for manifest in (before, after)]
    shown = [f"`{quoted(shlex.join(command))}`" for command in commands]
    if len(traces) < 2:
        if commands[0] != commands[1]:
            different = "arguments" if commands[0][:1] == commands[1][:1] else "programs"
            yield f"The results are of different {different}: {shown[0]} and {shown[1]}."
    elif before.get("trace_hash") != after.get("trace_hash"):
        # Options that select a part of a trace change the hash, which is of the part that was read.
        recorded = [trace.get("about") for trace in traces]
        is_same = recorded[0] == recorded[1] if all(recorded) else commands[0] == commands[1]
        if is_set_alike or not is_same:
            yield f"The results are of different traces: {shown[0]} and {shown[1]}."


_OF_RECORDINGS = ("tracer", "follow_children")
"""Settings that have no effect when a trace is read."""


def _settings(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration, with the part and the windows that a trace recorded."""
    configuration = manifest.get("configuration", {})
    recorded = (manifest.get("trace") or {}).get("about") or {}
    options = recorded.get("options") or {}
    chosen = {name: value for name, value in options.items() if value}
    of_recording = {name: options[name] for name in _OF_RECORDINGS if name in options}
    own = {name: value for name, value in configuration.items() if value or name not in chosen}
    return chosen | own | of_recording


def _recorded_command(manifest: Mapping[str, Any]) -> list[str]:
    """The command of a result, or of the program that its trace recorded, where that is known."""
    recorded = (manifest.get("trace") or {}).get("about") or {}
    command: list[str] = recorded.get("command") or manifest["command"]
    return command


def _some(names: Sequence[str]) -> str:
    """At most three of the names, separated by semicolons, as names contain commas."""
    more = f"; and {len(names) - 3} more" if len(names) > 3 else ""
    return f"{'; '.join(names[:3])}{more}"


def _difference(name: str, old: Measure, new: Measure, tolerance: float) -> Difference:
    change = new.value / old.value - 1 if old.value else None
    low = high = None
    if change is not None and new.resolution:
        low = (1 + change) * (1 - new.resolution) / (1 + old.resolution) - 1
        high = (1 + change) * (1 + new.resolution) / (1 - old.resolution) - 1
    verdict: Verdict = "same"
    if not (new.is_judged and old.is_judged):
        verdict = "not judged"
    elif not (new.unit == _RATE and abs(new.value - old.value) < LEAST_RATE):
        if new.value > old.value * (1 + tolerance):
            verdict = "worse"
        elif new.value < old.value * (1 - tolerance):
            verdict = "better"
        if verdict != "same" and low is not None and high is not None and low <= 0 <= high:
            verdict = "undecided"
    return Difference(name, new.unit, old.value, new.value, change, low, high, verdict)


def _run_measures(document: Mapping[str, Any]) -> Iterator[tuple[str, Measure]]:
    """Misses of each TLB, and memory, by page size."""
    rows = document["rows"]
    totals = stream_counters(rows)
    yield from _work(totals)
    per = totals["instructions"] or totals["references"]
    for row in whole_program(rows):
        # Rows of allocation sites have a counter, and one name would stand for all of them.
        if "page_size" not in row or "counter" in row:
            continue
        pages = f"{format_bytes(row['page_size'])} pages"
        if "misses" in row:
            rate = 1000 * row["misses"] / per if per else 0.0
            yield f"{row['component']} misses, {pages}", Measure(rate, _RATE)
        elif row["stream"] == "all":
            is_judged = row["page_size"] == BASE_PAGE
            yield f"memory, {pages}", Measure(row["touched_bytes"], "bytes", is_judged)


def _work(counted: Mapping[str, int]) -> Iterator[tuple[str, Measure]]:
    for counter in ("references", "instructions"):
        if counter in counted:
            yield counter, Measure(counted[counter], counter, is_judged=False)


def _sim_measures(data: Mapping[str, Any]) -> Iterator[tuple[str, Measure]]:
    """Cycles, misses and memory of each design."""
    yield from _work(data.get("work", {}))
    cycles: dict[str, float] = {}
    for one in data["cycles"]:
        cycles[one["design"]] = cycles.get(one["design"], 0) + one["cycles"]
    for design, total in cycles.items():
        yield f"{design}: cycles", Measure(total, "cycles", resolution=RESOLUTION)
    for one in data["misses"]:
        yield f"{one['design']}: {one['level']} TLB misses", Measure(one["rate"], _RATE)
    for one in data["memory"]:
        measure = Measure(one["bytes"], "bytes", resolution=RESOLUTION)
        yield f"{one['design']}: memory {one['what']}", measure


def _curves_measures(data: Mapping[str, Any]) -> Iterator[tuple[str, Measure]]:
    """Misses of a few TLBs, and working sets, by page size."""
    yield from _work(data.get("work", {}))
    scale = 1 if data["has_instructions"] else 1000
    for stream, values in data["misses"].items():
        for one in values:
            if one["entries"] in _ENTRIES and one["rate"] is not None:
                name = f"{stream.lower()}: {one['entries']} entries, {one['pages']} pages"
                yield name, Measure(scale * one["rate"], _RATE)


_MEASURES: dict[str, Any] = {
    RUN_SCHEMA: ("run", _run_measures),
    curves_data.SCHEMA: ("curves", _curves_measures),
    sim_data.SCHEMA: ("sim", _sim_measures),
}
"""The command and the numbers of a document, by its schema."""


def _format(value: float, unit: str) -> str:
    if unit == _RATE:
        return f"{format_mpki(value)} {unit}"
    return format_bytes(round(value)) if unit == "bytes" else f"{format_count(round(value))} {unit}"


def _change(one: Difference) -> str:
    if one.change is None:
        return "from 0"
    if one.low is None or one.high is None:
        return shown_change(one.change)
    return f"{shown_change(one.change)} ({shown_change(one.low)} to {shown_change(one.high)})"


def shown_change(change: float) -> str:
    """`+8.1%`, `+1,742%`; `+0.0%` also for a small decrease."""
    if abs(change) >= _LARGE_CHANGE:
        return f"{change:+,.0%}"
    # Adding 0 makes a negative zero positive.
    return f"{round(100 * change, 1) + 0.0:+.1f}%"
