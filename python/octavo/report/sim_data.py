"""The report of a simulation as plain data: `report.json`, the source of pages and figures."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

from octavo.base.units import MIB
from octavo.report.theme import rounded
from octavo.simulation.api import SimResult
from octavo.simulation.model import Counts, Simulated, added, translation_cycles
from octavo.simulation.view import PARTS, grids, headline, remarks

SCHEMA = "octavo/sim-report/1"
MOST_POINTS = 400
"""Limit of points in a line, as more would be indistinguishable; adjacent points are merged."""

Record = dict[str, Any]

_LEVELS = (("l1i", "L1, code"), ("l1d", "L1, data"), ("l1", "L1"), ("l2", "L2"))
_ADDED_PARTS = {"base": "base CPI", "fetches": "caches, code", "data": "caches, data"}
"""Names of parts of summed latencies, where they differ from those of a core model."""
_MEMORY = (
    ("peak_resident_bytes", "resident at most"),
    ("peak_page_table_bytes", "page tables at most"),
    ("bytes_zeroed", "zeroed"),
)
_SERIES: tuple[tuple[str, Callable[[Counts, int], float]], ...] = (
    (
        "translation, cycles per instruction",
        lambda counts, instructions: translation_cycles(counts) / instructions,
    ),
    (
        "page walks, per 1000 instructions",
        lambda counts, instructions: 1000 * counts.get(("walker", "walks"), 0) / instructions,
    ),
    (
        "faults, per 1000 instructions",
        lambda counts, instructions: 1000 * counts.get(("os", "faults"), 0) / instructions,
    ),
)


def report_data(result: SimResult) -> Record:
    """The document of report.json."""
    designs = result.total
    ran = [one for one in designs if one.stopped is None]
    is_of_one = len(result.by_process) > 1 and not result.is_shared
    main = result.manifest["processes"][result.main]
    return {
        "schema": SCHEMA,
        "run": result.manifest,
        "headline": headline(result),
        "work": result.work,
        "answer": result.conclusion(),
        "remarks": list(remarks(result)),
        "designs": [one.design for one in designs],
        "unit": "instructions" if _has_instructions(designs) else "references",
        "grids": [
            {**asdict(grid), "best": [list(cell) for cell in grid.best]}
            for grid in grids(result)
            if grid.rows
        ],
        "misses": list(_misses(ran)),
        "cycles": list(_cycles(ran)) if _has_instructions(designs) else [],
        "memory": list(_memory(designs)),
        "lived": main["program"] if is_of_one else None,
        "series": list(_series(result)),
    }


def _has_instructions(designs: Sequence[Simulated]) -> bool:
    return any(one.instructions for one in designs)


def _misses(ran: Sequence[Simulated]) -> Iterator[Record]:
    """Misses of each TLB level, over instructions or references."""
    for one in ran:
        for level, name in _LEVELS:
            misses = one.misses(level)
            if misses is not None:
                rate = 1000 * misses / (one.instructions or one.references)
                yield {
                    "design": one.design,
                    "level": name,
                    "misses": misses,
                    "rate": rounded(rate),
                }


def _cycles(ran: Sequence[Simulated]) -> Iterator[Record]:
    """Cycles per instruction, by part."""
    for one in ran:
        names = PARTS if one.is_timed else {**PARTS, **_ADDED_PARTS}
        for place, (part, cycles) in enumerate(one.cycles_by_part.items()):
            yield {
                "design": one.design,
                "part": names.get(part, part.replace("_", " ")),
                "place": place,
                "cycles": cycles,
                "rate": rounded(cycles / one.instructions),
            }


def _memory(designs: Sequence[Simulated]) -> Iterator[Record]:
    for one in designs:
        for counter, name in _MEMORY:
            size = one.count("os", counter)
            yield {
                "design": one.design,
                "what": name,
                "bytes": size,
                "mib": rounded(size / MIB),
            }


def _series(result: SimResult) -> Iterator[Record]:
    """The series of all intervals, with several intervals together where there are many."""
    every = result.configuration.interval_instructions
    if every is None:
        return
    for one in result.lived:
        together = -(-len(one.intervals) // MOST_POINTS)
        for first in range(0, len(one.intervals), together or 1):
            part = one.intervals[first : first + together]
            counts, instructions = added(part), every * len(part)
            begun = result.configuration.warm_up_instructions + every * first
            for what, measure in _SERIES:
                value = rounded(measure(counts, instructions))
                yield {"design": one.design, "what": what, "at": begun, "value": value}
