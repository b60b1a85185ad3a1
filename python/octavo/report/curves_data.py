"""The report of curves as plain data: `report.json`, from which pages and figures are made.

The rows have every number; the report keeps only as many points as a figure can show.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import asdict
from functools import partial
from itertools import groupby
from typing import Any

from octavo.base import metrics
from octavo.base.units import BASE_PAGE, format_bytes, format_count
from octavo.hardware.tlb_presets import pair_name
from octavo.report.theme import rounded
from octavo.report.thinning import thinned
from octavo.tlb_curves.api import CurvesResult
from octavo.tlb_curves.caches import SHOWN_BYTES, SHOWN_WAYS
from octavo.tlb_curves.model import StreamCurves
from octavo.tlb_curves.view import STREAM_NAMES, grids, headline, shown_tlbs

SCHEMA = "octavo/curves-report/1"
WAYS = tuple(range(1, 17))
NEEDED = (10.0, 1.0, 0.1)
"""Misses per 1000 instructions, or references, for which the needed entries are shown."""
_PAIR_INDEXES = ("exact", "small", "large")

Record = dict[str, Any]


def report_data(result: CurvesResult) -> Record:
    """The document of report.json."""
    configuration = result.configuration
    shown = {
        STREAM_NAMES[name]: _Shown(result, name)
        for name, curves in result.total.items()
        if curves.references
    }
    main = result.manifest["processes"][result.main]
    is_of_one = len(result.by_process) > 1 and not result.is_shared
    return {
        "schema": SCHEMA,
        "run": result.manifest,
        "headline": headline(result),
        "work": result.work,
        "has_instructions": any(curves.rated_instructions for curves in result.total.values()),
        "lived": main["program"] if is_of_one else None,
        "sizes": [[size, format_bytes(size)] for size in configuration.page_sizes],
        "pairs": [pair_name(pair.small, pair.large) for pair in configuration.two_sizes],
        "windows": [_window_name(window) for window in configuration.windows_refs],
        "grids": [asdict(grid) for grid in grids(result) if grid.rows],
        "misses": {name: list(stream.misses()) for name, stream in shown.items()},
        "needed": {name: list(stream.needed()) for name, stream in shown.items()},
        "costs": {name: list(stream.costs()) for name, stream in shown.items()},
        "working_sets": {name: list(stream.working_sets()) for name, stream in shown.items()},
        "sets": {name: stream.sets() for name, stream in shown.items()},
        "lines": [format_bytes(size) for size in configuration.line_sizes],
        "caches": {name: list(stream.caches()) for name, stream in shown.items()},
    }


class _Shown:
    """The records of one stream's figures."""

    def __init__(self, result: CurvesResult, stream: str) -> None:
        self._configuration = result.configuration
        self._curves = result.total[stream]
        self._lived = result.lived[stream]
        self._byte_refs = {**self._lived.byte_refs, **_sampled_byte_refs(self._lived)}

    def misses(self) -> Iterator[Record]:
        """Misses of fully associative TLBs by entries, for each page size and pair."""
        for size, stack in self._curves.stack.items():
            yield from self._curve(format_bytes(size), stack.misses)
        for size, sampled in (self._curves.sampled or {}).items():
            for has_estimate, of_run in groupby(
                enumerate(sampled.misses), lambda at: at[1] is not None
            ):
                run = [(place, one.value) for place, one in of_run if one is not None]
                if has_estimate:
                    counts = [round(value) for _, value in run]
                    yield from self._curve(format_bytes(size), counts, run[0][0] + 1)
        for pair in self._curves.pairs:
            entries = range(1, len(pair.full.small_misses) + 1)
            counts = [pair.full.misses(number - 1) for number in entries]
            yield from self._curve(pair_name(pair.small, pair.large), counts)

    def needed(self) -> Iterator[Record]:
        """The entries of a fully associative TLB for each of the rates NEEDED, by page size; no
        record where more entries would be needed than were counted.
        """
        rated = self._curves.rated_instructions or self._curves.references
        for size, stack in self._curves.stack.items():
            for rate in NEEDED:
                most = rate * rated / 1000
                # Misses fall as entries increase.
                entries = bisect_left(stack.misses, -most, key=lambda count: -count) + 1
                if entries <= len(stack.misses):
                    pages = format_bytes(size)
                    yield {"pages": pages, "size": size, "rate": rate, "entries": entries}

    def _curve(self, pages: str, counts: Any, first: int = 1) -> Iterator[Record]:
        for place in thinned(counts, first=first):
            misses = counts[place]
            rate = _rate(self._curves, misses)
            yield {"pages": pages, "entries": place + first, "misses": misses, "rate": rate}

    def costs(self) -> Iterator[Record]:
        """Miss costs of a few TLBs, for each page size and pair."""
        full, sets = shown_tlbs(self._configuration)
        for entries in full:
            for pages, misses, penalty in self._of_all(full=entries):
                yield self._cost(f"{entries} entries, fully associative", pages, misses, penalty)
        for number, ways in sets:
            name = f"{number * ways} entries, {ways}-way"
            for pages, misses, penalty in self._of_all(sets=(number, ways)):
                yield self._cost(name, pages, misses, penalty)

    def _of_all(
        self, full: int = 0, sets: tuple[int, int] = (1, 1)
    ) -> Iterator[tuple[str, int, float]]:
        """One TLB's misses for each page size and pair, and the cycles of a miss."""
        configuration = self._configuration
        for size in configuration.page_sizes:
            misses = (
                self._curves.full_misses(size, full)
                if full
                else self._curves.set_misses("low", size, *sets)
            )
            if misses is not None:
                yield format_bytes(size), misses, configuration.miss_penalty_cycles
        for pair in self._curves.pairs:
            misses = pair.full_misses(full) if full else pair.set_misses("exact", *sets)
            if misses is not None:
                name = pair_name(pair.small, pair.large)
                yield name, misses, configuration.two_sizes_penalty_cycles

    def _cost(self, tlb: str, pages: str, misses: int, penalty: float) -> Record:
        cost = _cost(self._curves, misses, penalty)
        return {"tlb": tlb, "pages": pages, "misses": misses, "cost": cost}

    def caches(self) -> Iterator[Record]:
        """Misses of the caches that the terminal also shows."""
        for caches in self._curves.caches.values():
            for ways in SHOWN_WAYS:
                for size in SHOWN_BYTES:
                    misses = caches.missed(size, ways)
                    if misses is not None:
                        yield {
                            "line": format_bytes(caches.line_bytes),
                            "ways": f"{ways}-way",
                            "bytes": size,
                            "misses": misses,
                            "rate": _rounded(caches.rate(misses, self._curves.rated_instructions)),
                        }

    def working_sets(self) -> Iterator[Record]:
        """Average working sets, relative to those with 4 KiB pages."""
        lived = self._lived
        for (size, window), byte_refs in self._byte_refs.items():
            yield from self._working_set(format_bytes(size), size, window, byte_refs, "one")
        for pair in lived.pairs:
            for window, byte_refs in pair.byte_refs.items():
                name = pair_name(pair.small, pair.large)
                yield from self._working_set(name, pair.large, window, byte_refs, "two")

    def _working_set(
        self, pages: str, size: int, window: int, byte_refs: int, sizes: str
    ) -> Iterator[Record]:
        base = self._byte_refs.get((BASE_PAGE, window), 0)
        normalised = metrics.normalised_working_set(byte_refs, base)
        average = metrics.average_working_set(byte_refs, self._lived.program_references)
        if normalised is not None and average is not None:
            yield {
                "pages": pages,
                "size": size,
                "sizes": sizes,
                "window": _window_name(window),
                "normalised": _rounded(normalised),
                "average": format_bytes(round(average)),
            }

    def sets(self) -> dict[str, dict[str, list[Record]]]:
        """Miss costs of all sets and ways, by page size and index."""
        configuration = self._configuration
        if not configuration.indexes:
            return {}
        curves, found = self._curves, {}
        for size in configuration.page_sizes:
            found[format_bytes(size)] = {
                index: self._table(
                    partial(curves.set_misses, index, size), configuration.miss_penalty_cycles
                )
                for index in configuration.indexes
            }
        for pair in curves.pairs:
            found[pair_name(pair.small, pair.large)] = {
                index: self._table(
                    partial(pair.set_misses, index), configuration.two_sizes_penalty_cycles
                )
                for index in _PAIR_INDEXES
                if index in pair.sets
            }
        return found

    def _table(self, count_misses: Any, penalty: float) -> list[Record]:
        levels = self._configuration.max_sets.bit_length()
        return [
            {
                "sets": 1 << level,
                "ways": ways,
                "misses": misses,
                "cost": _cost(self._curves, misses, penalty),
            }
            for level in range(levels)
            for ways in WAYS
            if (misses := count_misses(1 << level, ways)) is not None
        ]


def _sampled_byte_refs(curves: StreamCurves) -> dict[tuple[int, int], int]:
    """`StreamCurves.byte_refs`, estimated from a sample of the pages if there is one."""
    return {
        (size, window): round(one.value)
        for size, sampled in (curves.sampled or {}).items()
        for window, one in sampled.byte_refs.items()
        if one is not None
    }


def _window_name(refs: int) -> str:
    """`10 M`."""
    number, _, unit = format_count(refs).partition(" ")
    return f"{float(number):g} {unit}".rstrip()


def _rate(curves: StreamCurves, misses: int) -> float | None:
    """Misses per 1000 instructions, or per reference where there are no instructions."""
    if curves.rated_instructions:
        return _rounded(metrics.mpki(misses, curves.rated_instructions))
    return _rounded(metrics.miss_ratio(misses, curves.references))


def _cost(curves: StreamCurves, misses: int, penalty: float) -> float | None:
    """CPI_TLB, or misses per reference where there are no instructions."""
    if curves.rated_instructions:
        return _rounded(metrics.cpi_tlb(misses, curves.rated_instructions, penalty))
    return _rounded(metrics.miss_ratio(misses, curves.references))


def _rounded(value: float | None) -> float | None:
    return None if value is None else rounded(value)
