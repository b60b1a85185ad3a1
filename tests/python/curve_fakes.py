"""Fake curves with numbers that each test chooses."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal

from fakes import finished, process
from octavo._core import MAX_WAYS
from octavo.tlb_curves.api import CurvesResult
from octavo.tlb_curves.configuration import CurvesConfiguration, configure_curves

if TYPE_CHECKING:
    from octavo._core import CurvesProcess, TwoSizesSets
    from octavo._core import StreamCurves as CoreCurves
    from octavo._core import TwoSizesCurves as CorePair

Misses = Callable[[int, int, int], int]
"""Misses by page size, sets and ways; a fully associative TLB has one set."""
Index = Literal["small", "large", "exact", "split-small", "split-large"]

INDEXES: tuple[Index, ...] = ("small", "large", "exact", "split-small", "split-large")


def words(numbers: Iterable[int]) -> bytes:
    return array("Q", numbers).tobytes()


def full(misses: Misses, page_size: int, entries: int) -> bytes:
    """Misses of fully associative TLBs of 1 to `entries` entries."""
    return words(misses(page_size, 1, ways) for ways in range(1, entries + 1))


def table(misses: Misses, page_size: int, most_sets: int) -> bytes:
    """Misses of set-associative TLBs of 1, 2, 4 … `most_sets` sets, for each number of ways."""
    return words(
        misses(page_size, 1 << level, ways)
        for level in range(most_sets.bit_length())
        for ways in range(1, MAX_WAYS + 1)
    )


def falling(page_size: int, sets: int, ways: int) -> int:
    """Misses that fall with each larger parameter and are different for each TLB."""
    return 10**9 // (page_size * sets * ways + sets)


def pair(configuration: CurvesConfiguration, number: int, misses: Misses) -> CorePair:
    """Two sizes: the given misses on small pages, and a quarter as many on large pages."""
    chosen = configuration.two_sizes[number]
    entries, sets = configuration.max_entries, configuration.max_sets

    def quarter(page_size: int, sets: int, ways: int) -> int:
        return misses(page_size, sets, ways) // 4

    def nothing(page_size: int, sets: int, ways: int) -> int:
        return 0

    def of(index: Index) -> TwoSizesSets:
        small = nothing if index == "split-large" else misses
        large = nothing if index == "split-small" else quarter
        return {
            "index": index,
            "small_misses": table(small, chosen.small, sets),
            "large_misses": table(large, chosen.small, sets),
            "invalidated": table(nothing, chosen.small, sets),
        }

    return {
        **chosen.core(),
        "counters": {
            "small_lookups": 600,
            "large_lookups": 400,
            "promotions": 7,
            "demotions": 5,
            "blocks_copied": 20,
            "blocks_zeroed": 8,
        },
        "small_misses": full(misses, chosen.small, entries),
        "large_misses": full(quarter, chosen.small, entries),
        "invalidated": full(nothing, chosen.small, entries),
        "sets": [of(index) for index in INDEXES],
        "windows_refs": list(configuration.windows_refs),
        "working_set_byte_refs": [
            chosen.small * window * 3 // 2 for window in configuration.windows_refs
        ],
    }


def stream_curves(
    configuration: CurvesConfiguration,
    stream: str,
    references: int,
    misses: Misses = falling,
    program_references: int | None = None,
) -> CoreCurves:
    """Curves of a stream. The working set, summed over references, is `window` pages."""
    sizes, entries, sets = (
        configuration.page_sizes,
        configuration.max_entries,
        configuration.max_sets,
    )
    return {
        "stream": stream,  # type: ignore[typeddict-item]
        "references": references,
        "program_references": references if program_references is None else program_references,
        "stack": [
            {"page_size": size, "pages": 1, "misses": full(misses, size, entries)}
            for size in sizes
            if entries
        ],
        "sets": [
            {"page_size": size, "index": index, "misses": table(misses, size, sets)}
            for index in configuration.indexes
            for size in sizes
        ],
        "caches": [
            {"line_bytes": size, "lookups": references, "misses": table(misses, size, 4)}
            for size in configuration.line_sizes
        ],
        "working_sets": [
            {"page_size": size, "window_refs": window, "page_refs": window}
            for size in sizes
            for window in configuration.windows_refs
        ],
        "two_sizes": [
            pair(configuration, number, misses) for number in range(len(configuration.two_sizes))
        ],
        "classes": [],
        "cores": [],
        "sampled": None,
    }


def curves_process(
    configuration: CurvesConfiguration,
    number: int = 0,
    *,
    instructions: int = 1000,
    data_references: int = 400,
    misses: Misses = falling,
) -> CurvesProcess:
    made = process(number, instructions=instructions, data_references=data_references)
    references = {"fetch": instructions, "data": data_references}
    references["all"] = sum(references.values())
    counts: Any = {
        key: value for key, value in made.items() if key not in ("curves", "footprints", "regions")
    }
    streams = [
        stream_curves(configuration, stream, references[stream], misses, references["all"])
        for stream in configuration.streams
    ]
    whole: CurvesProcess = counts | {"streams": streams}
    return whole


def small_configuration(**choices: Any) -> CurvesConfiguration:
    """A configuration of few TLBs."""
    return configure_curves(
        **{
            "sizes": [4096, 32768],
            "streams": ["data"],
            "entries": 8,
            "sets": 4,
            "windows": [10, 1000],
            "two_sizes": [(4096, 32768)],
            "policy_window": 1000,
            **choices,
        }
    )


def curves_result(
    configuration: CurvesConfiguration,
    processes: Sequence[CurvesProcess],
) -> CurvesResult:
    """Finished curves of made-up processes."""
    manifest, counted = finished(processes, configuration)
    return CurvesResult(manifest, configuration, counted)
