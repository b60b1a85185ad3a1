"""Tables of simulations that people read: a column for each design."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from octavo.analysis.programs import work_in_words
from octavo.base.table import Grid
from octavo.base.text import short_path
from octavo.base.units import (
    counted,
    format_bytes,
    format_count,
    format_cpi,
    format_mpki,
    format_share,
)
from octavo.simulation.api import SimResult
from octavo.simulation.configuration import OUT_OF_ORDER
from octavo.simulation.execution_time import BASE, HUGE, MEASURED_SOURCE, ExecutionTime
from octavo.simulation.linear_models import linear_models
from octavo.simulation.model import RESOLUTION, Simulated, stop_notes

Value = float | None
"""None if the machine lacks the component."""

_LEVELS = {
    "l1i": "L1 TLB misses of code",
    "l1d": "L1 TLB misses of data",
    "l1": "L1 TLB misses",
    "l2": "L2 TLB misses",
}


@dataclass(frozen=True)
class _Measure:
    """A row of the table."""

    name: str
    value: Callable[[Simulated], Value]
    show: Callable[[float], str]
    is_marked: bool = True
    """Whether the least value of the row is marked as the best."""
    needs_end: bool = True
    """Whether a machine that stopped early has no value."""
    resolution: float = RESOLUTION
    """Values that differ by no more than this share count as equal."""


def headline(result: SimResult) -> str:
    """The amount of work simulated and the time taken."""
    warm = result.configuration.warm_up_instructions
    after = [f"after {counted(warm, 'instruction')} of warm-up"] if warm else []
    return work_in_words(result.manifest, *result.work.values(), more=after)


def grids(result: SimResult) -> Iterator[Grid]:
    """All tables, in the order in which they are read."""
    name = result.configuration.machine["name"]
    if result.is_shared:
        yield _grid(f"{name}, all processes time-sliced", result.total)
    elif len(result.by_process) == 1:
        yield _grid(name, result.total)
    else:
        main = result.counted["processes"][result.main]
        program = short_path(Path(main["program"]).name)
        yield _grid(f"{name}, all processes, each alone on it", result.total)
        which = f"process {main['stream']} ({program}), which did most"
        yield _grid(f"{name}, {which}", result.by_process[result.main])
    if result.timing.name == OUT_OF_ORDER:
        yield _stack_grid(result.total)
        yield from _model_grid(result.total)
    for source, times in result.times():
        yield _time_grid(source, result.total, times)


def remarks(result: SimResult) -> Iterator[str]:
    """Sentences about values that are missing from the tables, or are of unlike parts."""
    yield from stop_notes(result.total)
    yield from result.unused_settings()
    yield from result.steadiness_notes()
    if result.timing.warning is not None:
        yield result.timing.warning
    for source, times in result.times():
        if source == MEASURED_SOURCE and not any(times):
            yield (
                "No execution time: the measurements do not match the simulation, for example "
                "because they are of another program, input or part."
            )


def _grid(machine: str, designs: Sequence[Simulated]) -> Grid:
    """The main metrics, a row each."""
    first = next((one for one in designs if one.stopped is None), designs[0])
    body: list[tuple[str, ...]] = []
    best: list[tuple[int, int]] = []
    for measure in _measures(first, _other_tlbs(designs)):
        values = [
            None if one.stopped is not None and measure.needs_end else measure.value(one)
            for one in designs
        ]
        buildable = [value for value, one in zip(values, designs, strict=True) if not one.is_bound]
        if all(value is None for value in buildable or values):
            continue
        if measure.is_marked:
            best += [(len(body), 1 + at) for at in _least(values, designs, measure.resolution)]
        cells = ("" if value is None else measure.show(value) for value in values)
        body.append((measure.name, *cells))
    heads = map(_head, designs)
    return Grid(f"On {machine}", ("", *heads), tuple(body), best=tuple(best))


def _head(one: Simulated) -> str:
    if one.stopped is not None:
        return f"{one.design}\n(stopped)"
    return f"{one.design}\n(bound)" if one.is_bound else one.design


def _least(values: Sequence[Value], designs: Sequence[Simulated], resolution: float) -> list[int]:
    """The indices of the least values; empty where all values count as equal."""
    ran = [
        (value, at)
        for at, value in enumerate(values)
        if value is not None and designs[at].can_be_chosen
    ]
    least = min((value for value, _ in ran), default=None)
    if least is None:
        return []
    best = [at for value, at in ran if value <= least * (1 + resolution)]
    return [] if len(best) == len(ran) else best


def _other_tlbs(designs: Iterable[Simulated]) -> list[str]:
    """The components `tlb.NAME` that count misses and are not levels: structures that a design, or
    the machine of a guest, has in addition.
    """
    found = (
        component
        for one in designs
        for component, counter in one.counts
        if counter == "misses" and re.fullmatch(r"tlb\.\w+", component)
    )
    return [name for name in dict.fromkeys(found) if name.removeprefix("tlb.") not in _LEVELS]


def _measures(first: Simulated, other_tlbs: Iterable[str]) -> Iterator[_Measure]:
    """All rows; times are relative to those of `first`."""
    per = first.instructions or first.references
    unit = "instructions" if first.instructions else "references"

    def rate(count: Callable[[Simulated], Value]) -> Callable[[Simulated], Value]:
        def per_thousand(one: Simulated) -> Value:
            value = count(one)
            return None if value is None or not per else 1000 * value / per

        return per_thousand

    if first.instructions:
        if first.is_timed:
            yield _Measure("cycles per instruction", lambda one: one.cycles / per, format_cpi)
            yield _Measure(
                "translation, share of cycles lost", lambda one: one.translation_share, format_share
            )
            yield _ratio(f"execution time, over {first.design}", lambda one: one.cycles, first)
            added = f"the same, all latencies added up, over {first.design}"
            yield _ratio(added, lambda one: one.added_cycles, first)
        yield _Measure(
            "translation, cycles per instruction, added up",
            lambda one: one.translation_cycles / per,
            format_cpi,
        )
        if not first.is_timed:
            yield _Measure(
                "translation, share of all cycles",
                lambda one: one.translation_share,
                format_share,
            )
            estimate = f"execution time, over {first.design}, an estimate"
            yield _ratio(estimate, lambda one: one.cycles, first)
    for level, name in _LEVELS.items():
        misses = rate(partial(Simulated.misses, level=level))
        yield _Measure(f"{name}, per 1000 {unit}", misses, format_mpki)
    for component in other_tlbs:
        for counter, name in (("accesses", "look-ups"), ("misses", "misses")):
            counted = rate(partial(Simulated.counted, component=component, counter=counter))
            title = f"{name} of {component}, per 1000 {unit}"
            yield _Measure(title, counted, format_mpki, is_marked=False)
    yield _Measure(f"page walks, per 1000 {unit}", rate(lambda one: one.walks), format_mpki)
    yield _Measure(
        "references of a walk",
        lambda one: one.references_per_walk,
        lambda value: f"{value:.2f}",
        is_marked=False,
    )
    yield _Measure("cycles of walks", lambda one: one.walk_cycles, format_count)
    yield _os("memory, resident at most", "peak_resident_bytes", _bytes)
    if ("os", "present_bytes") in first.counts:
        yield _os("of it, there when the phase began", "present_bytes", _bytes)
    yield _os("page tables, at most", "peak_page_table_bytes", _bytes)
    memory = "memory with page tables, at most"
    yield _Measure(memory, lambda one: one.memory_bytes, _bytes, needs_end=False)
    tables = "other tables of the design"
    yield _Measure(tables, _table_bytes, _bytes, is_marked=False, needs_end=False)
    yield _os("faults", "faults")
    yield _os("zeroed", "bytes_zeroed", _bytes)
    yield _os("promotions", "promotions", is_marked=False)
    if ("host.os", "faults") in first.counts:
        memory = "memory of the host, resident at most"
        yield _os(memory, "peak_resident_bytes", _bytes, component="host.os")
        yield _os("faults of the host", "faults", component="host.os")
        yield _os("walks that found a page splintered", "splintered", component="walker")


def _table_bytes(one: Simulated) -> int | None:
    """Memory of a design's tables other than page tables; None where it has none."""
    counters = ("design_table_bytes", "bitmap_bytes")
    systems = ("os", "host.os")
    return sum(one.counted(system, name) or 0 for system in systems for name in counters) or None


def _ratio(name: str, time: Callable[[Simulated], float], first: Simulated) -> _Measure:
    """A time over that of the first design."""
    return _Measure(
        name,
        lambda one: time(one) / time(first) if time(first) else None,
        lambda value: f"{value:.3f}",
    )


def _os(
    name: str,
    counter: str,
    show: Callable[[float], str] = format_count,
    *,
    component: str = "os",
    is_marked: bool = True,
) -> _Measure:
    """A counter of the operating system, or of another component."""
    return _Measure(
        name, lambda one: one.count(component, counter), show, is_marked, needs_end=False
    )


def _bytes(value: float) -> str:
    return format_bytes(round(value))


def _stack_grid(designs: Sequence[Simulated]) -> Grid:
    """The cycles of the core model by part, as shares."""
    every = designs[0].cycles_by_part
    parts = [part for part in every if any(one.cycles_by_part.get(part) for one in designs)]
    body = tuple(
        (PARTS.get(part, part), *(_share_of(one, part) for one in designs)) for part in parts
    )
    heads = (one.design for one in designs)
    return Grid("Cycles of the core, by what the next instruction waited for", ("", *heads), body)


PARTS = {
    "base": "nothing, operands, or execution",
    "branches": "a mispredicted branch",
    "fetches": "instruction cache misses",
    "tlb_l2": "second-level TLB",
    "walks": "page walks",
    "data_l2": "data from the L2 cache",
    "data_llc": "data from the last-level cache",
    "data_memory": "data from memory",
    "stores": "room in the store queue",
    "handlers": "software that serves misses",
}
"""Names of the counters of `core.stack`: the causes for which the next instruction waited."""


def _model_grid(designs: Sequence[Simulated]) -> Iterator[Grid]:
    """Predicted cycles of linear models over the core's, for designs that are not their input."""
    given = {BASE, HUGE}
    others = [one for one in designs if one.design not in given and one.stopped is None]
    if not others:
        return
    body = [
        (model.name, *(f"{model.cycles[one.design] / one.cycles:.3f}" for one in others))
        for model in linear_models(designs)
    ]
    if body:
        title = "Execution time by linear models, over that of the core"
        yield Grid(title, ("", *(one.design for one in others)), tuple(body))


def _share_of(one: Simulated, part: str) -> str:
    cycles = one.cycles_by_part.get(part, 0)
    return format_share(cycles / one.cycles) if one.cycles else ""


def _time_grid(
    source: str, designs: Sequence[Simulated], times: Sequence[ExecutionTime | None]
) -> Grid:
    """The terms of the execution time of each design."""
    terms = [{} if time is None else time.terms() for time in times]
    names = next((list(one) for one in terms if one), [])
    body = tuple(
        (name, *(format_count(one[name]) if one else "" for one in terms)) for name in names
    )
    heads = (one.design for one in designs)
    title = f"Execution time T = T_IDEAL + T_L1DTLBM + T_PW in cycles, {source}"
    return Grid(title, ("", *heads), body)
