"""The study of two page sizes (Talluri et al.): the measurements.

Programs like those of the paper, run to their ends, decide its claims; programs of today are shown
beside them. Every number of the paper's tables and charts is computed here once, so that the page
and the JSON agree.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from octavo.base.units import KIB
from octavo.studies.claims import load_study
from octavo.studies.programs import (
    Program,
    load_period,
    load_programs,
    measure_runs,
    usual_instructions,
)
from octavo.studies.reproduction import Reproduction, Request
from octavo.tlb_curves.rows import CurveRow

STUDY = "two_page_sizes"
PAPER = load_study(STUDY)["paper"]

SMALL, LARGE = 4 * KIB, 32 * KIB
WINDOW_REFS = 10**7
"""T of every figure (sections 3.1 and 4)."""
OTHER_WINDOWS_REFS = (25 * 10**6, 50 * 10**6)
"""Section 4: "not sensitive to varying T through 10, 25 and 50 million references"."""
SIZES = tuple(SMALL << step for step in range(5))
"""4 to 64 KiB (Figure 4.1)."""
PAIRS = (16 * KIB, 32 * KIB, 64 * KIB)
SHAPES = ((8, 2), (16, 2))
"""Sets and ways of the 16-entry and the 32-entry TLB of Figure 5.2."""
FULL_ENTRIES = 16
"""Entries of the fully associative TLB of Figure 5.1."""
SHOWN = (SMALL, 8 * KIB, LARGE)
"""Single sizes of Figures 5.1 and 5.2."""
GROWN = (8 * KIB, 16 * KIB, LARGE)
"""Single sizes of Figure 4.2."""
TODAY_INSTRUCTIONS = usual_instructions()
"""The instructions after which a program of today is ended at the latest."""
ONE_SIZE_CYCLES, TWO_SIZES_CYCLES = 20, 25
"""The cost of a miss in cycles (section 3.2)."""
FEW_CPI = 0.001
"""Below this CPI_TLB with 4 KiB pages, a TLB has too few misses for larger pages to matter."""
LEAST_CPI = 0.0001
"""A smaller CPI_TLB is shown as below this, and compared with others as equal to it."""
LARGE_INDEX = f"bits:{(LARGE // SMALL).bit_length() - 1}"
"""The index that takes the low bits of the large page number from a small page's address."""

ARGUMENTS = (
    *("curves", "--streams", "all", "--page-sizes", "4KiB..64KiB", "--entries", "64"),
    *("--sets", "16", "--index", "low", "--index", LARGE_INDEX),
    *("--windows", "10M,25M,50M", "--two-sizes", "4KiB+16KiB,4KiB+32KiB,4KiB+64KiB"),
)

STRICT_THRESHOLD = "75%"
"""The share of a chunk's blocks that makes it large, in the experiment on half-used chunks."""
STRICT_ARGUMENTS = (
    *("curves", "--streams", "all", "--page-sizes", "4KiB,32KiB", "--windows", "10M,25M,50M"),
    *("--two-sizes", "4KiB+32KiB", "--threshold", STRICT_THRESHOLD, "--without", "full,sets"),
)
MOST_SPREAD = 0.05
"""The largest spread over the windows of a program that does not need that experiment."""


@dataclass(frozen=True)
class Shape:
    """CPI_TLB of one TLB: 20 cycles a miss, 25 with two page sizes."""

    cpi: dict[int, float]
    """CPI_TLB of single sizes, by page size."""
    cpi_two_sizes: float
    critical_increase: float | None
    """The critical increase of the miss penalty; None where two sizes never miss."""


@dataclass(frozen=True)
class SetShape(Shape):
    """CPI of set-associative TLBs; two sizes are indexed exactly."""

    cpi_large_index: float
    """4 KiB pages alone, indexed by the large page number (Table 5.1)."""
    cpi_two_sizes_large_index: float


@dataclass(frozen=True)
class Measurement:
    """The measurements of one program; fetches and data in one TLB, as in the paper."""

    program: str
    references: int
    references_per_instruction: float
    working_set_bytes: float
    """Average working set with 4 KiB pages and a T of ten million references."""
    normalised: dict[int, float]
    """Working sets of single sizes over that with 4 KiB pages, by page size."""
    normalised_pairs: dict[int, float]
    """Working sets of 4 KiB with a larger size, by the larger size."""
    normalised_by_window: dict[int, float]
    """Working sets of 4 KiB with 32 KiB, by T."""
    full: Shape
    sets: tuple[SetShape, ...]
    like: str | None = None
    """The program of the paper that it stands for."""
    is_static: bool = False
    """Whether the program is linked statically."""
    strict_by_window: dict[int, float] | None = None
    """`normalised_by_window` with chunks that are large at STRICT_THRESHOLD; None where that
    experiment was not made.
    """

    @property
    def is_below_single_sizes(self) -> bool:
        """Whether two sizes take less memory than each single size above 4 KiB."""
        return self._is_below(self.normalised_pairs[LARGE])

    @property
    def is_below_single_sizes_strictly(self) -> bool:
        """`is_below_single_sizes` by the experiment at STRICT_THRESHOLD, where it was made."""
        strict = self.strict_by_window
        return self.is_below_single_sizes if strict is None else self._is_below(strict[WINDOW_REFS])

    def _is_below(self, normalised: float) -> bool:
        return normalised < min(self.normalised[size] for size in GROWN)

    @property
    def spread(self) -> float:
        """How much the working set of two sizes varies with T."""
        return _spread(self.normalised_by_window)

    @property
    def strict_spread(self) -> float:
        """`spread` by the experiment at STRICT_THRESHOLD, where it was made."""
        strict = self.strict_by_window
        return self.spread if strict is None else _spread(strict)

    def flat(self) -> dict[str, Any]:
        """Plain data in one flat record: `normalised.8192`, `sets.0.cpi_two_sizes`."""
        return dict(_flattened("", asdict(self)))


@dataclass(frozen=True)
class Study(Reproduction):
    """All measurements, smallest working set first."""

    folder = STUDY
    measurements: tuple[Measurement, ...] = ()
    today: tuple[Measurement, ...] = ()

    def values_today(self) -> dict[str, Any]:
        """The numbers of `values` for the programs of today, without the experiments."""
        return {**values_of(self.today), **_experiments(())}

    def values(self) -> dict[str, Any]:
        """The numbers that the claims are about, of the programs like the paper's and of the
        experiments.
        """
        return {**values_of(self.measurements), **_experiments(self.measurements)}

    def document(self) -> dict[str, Any]:
        """Plain data for the JSON."""
        return {
            **super().document(),
            "programs": [asdict(measured) for measured in self.measurements],
            "today": [asdict(measured) for measured in self.today],
        }


def values_of(measured: Sequence[Measurement]) -> dict[str, Any]:
    """The numbers that the claims are about, program by program; CPI_TLB only of TLBs that miss
    with 4 KiB pages.
    """
    full = [m.full for m in measured if m.full.cpi[SMALL] >= FEW_CPI]
    first = [m.sets[0] for m in measured if m.sets[0].cpi[SMALL] >= FEW_CPI]
    second = [m.sets[1] for m in measured]
    sets = [shape for m in measured for shape in m.sets if shape.cpi[SMALL] >= FEW_CPI]
    indexes = [(shape.cpi_two_sizes, shape.cpi_two_sizes_large_index) for shape in sets]
    return {
        "references_per_instruction": [m.references_per_instruction for m in measured],
        "normalised": {size: [m.normalised[size] for m in measured] for size in SIZES},
        "growth_by_doubling": [
            m.normalised[2 * size] / m.normalised[size] - 1 for m in measured for size in SIZES[:-1]
        ],
        "normalised_pair": [m.normalised_pairs[LARGE] for m in measured],
        "pair_below_single_sizes": [m.is_below_single_sizes for m in measured],
        "spread_over_windows": [m.spread for m in measured],
        "full_fall": {
            size: [_times(shape.cpi[SMALL], shape.cpi[size]) for shape in full] for size in SIZES
        },
        "full_pair_near_large": [
            1 / 1.5 <= _times(shape.cpi_two_sizes, shape.cpi[LARGE]) <= 1.5 for shape in full
        ],
        "full_pair_not_shown": [
            max(shape.cpi_two_sizes, shape.cpi[LARGE]) < LEAST_CPI for shape in full
        ],
        "full_pair_near_large_at_its_penalty": [
            1 / 1.5 <= _times(two, shape.cpi[LARGE]) <= 1.5
            for shape in full
            for two in [shape.cpi_two_sizes * ONE_SIZE_CYCLES / TWO_SIZES_CYCLES]
        ],
        "full_pair_below_8k": [shape.cpi_two_sizes < shape.cpi[8 * KIB] for shape in full],
        "sets_pair_below_small": [shape.cpi_two_sizes < shape.cpi[SMALL] for shape in first],
        "critical_increases": [
            shape.critical_increase
            for shape in sets
            if shape.cpi_two_sizes < shape.cpi[SMALL] and shape.critical_increase is not None
        ],
        "critical_increases_that_miss": [
            shape.critical_increase
            for shape in sets
            if FEW_CPI <= shape.cpi_two_sizes < shape.cpi[SMALL]
            and shape.critical_increase is not None
        ],
        "indexes_not_shown": [max(pair) < LEAST_CPI for pair in indexes],
        "index_differences": [1 - _times(min(pair), max(pair)) for pair in indexes],
        "large_index_over_small": [shape.cpi_large_index / shape.cpi[SMALL] for shape in sets],
        "large_index_over_small_of_more_sets": [
            shape.cpi_large_index / shape.cpi[SMALL]
            for shape in second
            if shape.cpi[SMALL] >= FEW_CPI
        ],
    }


def _spread(by_window: Mapping[int, float]) -> float:
    """How much the largest value is above the least, as a share of the least."""
    return max(by_window.values()) / min(by_window.values()) - 1


def _times(cpi: float, other: float) -> float:
    """The ratio of two CPI_TLB, where both are at least LEAST_CPI as in the tables."""
    return max(cpi, LEAST_CPI) / max(other, LEAST_CPI)


def _experiments(measured: Sequence[Measurement]) -> dict[str, Any]:
    """The numbers of `values_of` for fewer programs: programs that are linked statically, and
    programs whose working set in large pages exceeds the reach of the fully associative TLB. None
    where there is no such program.
    """
    covered = FULL_ENTRIES * LARGE
    parts = {
        "static": [m for m in measured if m.is_static],
        "uncovered": [m for m in measured if m.working_set_bytes * m.normalised[LARGE] > covered],
    }
    parts["static_uncovered"] = [m for m in parts["uncovered"] if m.is_static]
    tried = any(m.strict_by_window is not None for m in measured)
    return {
        **{name: values_of(some) if some else None for name, some in parts.items()},
        "strict_below": [m.is_below_single_sizes_strictly for m in measured] if tried else None,
        "strict_spread": [m.strict_spread for m in measured] if tried else None,
    }


def _flattened(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    inside: Iterable[tuple[Any, Any]]
    if isinstance(value, dict):
        inside = value.items()
    elif isinstance(value, tuple):
        inside = enumerate(value)
    else:
        yield name, value
        return
    for key, part in inside:
        yield from _flattened(f"{name}.{key}" if name else str(key), part)


def run_study(request: Request) -> Study:
    """Runs every program that is installed."""
    skipped: dict[str, str] = {}

    def run(programs: Sequence[Program]) -> tuple[Measurement, ...]:
        def measure_program(program: Program, rows: Iterable[CurveRow]) -> Measurement:
            measured = measure(program.name, rows)
            return replace(measured, like=program.like, is_static=program.is_static)

        measured = measure_runs(ARGUMENTS, programs, request, measure_program, skipped)
        return tuple(sorted(measured, key=lambda one: one.working_set_bytes))

    period = load_period(STUDY)
    like = with_experiment(run(period), period, request)
    limited = [replace(one, max_instructions=TODAY_INSTRUCTIONS) for one in load_programs()]
    return Study(like, skipped, request.max_instructions, run(limited))


def with_experiment(
    measured: Sequence[Measurement], programs: Sequence[Program], request: Request
) -> tuple[Measurement, ...]:
    """The measurements, with the experiment at STRICT_THRESHOLD for programs whose working set with
    two sizes differs from the paper's claims.
    """
    odd = {m.program for m in measured if not m.is_below_single_sizes or m.spread > MOST_SPREAD}
    again = [program for program in programs if program.name in odd]

    def by_window(program: Program, rows: Iterable[CurveRow]) -> tuple[str, dict[int, float]]:
        return program.name, _by_window(_Rows(rows))

    strict = dict(measure_runs(STRICT_ARGUMENTS, again, request, by_window, {}))
    return tuple(replace(m, strict_by_window=strict.get(m.program)) for m in measured)


class _Rows:
    """The rows of the process that made most references, selected by the values of columns."""

    def __init__(self, rows: Iterable[CurveRow]) -> None:
        rows = list(rows)
        references = {
            row["process"]: row["value"]
            for row in rows
            if row.get("counter") == "references" and "process" in row and "stream" in row
        }
        main = max(references, key=lambda process: references[process]) if references else None
        self._rows = [row for row in rows if row.get("process") == main]

    def one(self, component: str, **wanted: Any) -> CurveRow:
        """The only row of a component with these values."""
        (row,) = (
            row
            for row in self._rows
            if row["component"] == component and wanted.items() <= row.items()
        )
        return row

    def count(self, counter: str) -> int:
        """A counter of the process."""
        (value,) = (
            row["value"]
            for row in self._rows
            if row["component"] == "stream" and row["counter"] == counter and "stream" not in row
        )
        return value


def measure(program: str, rows: Iterable[CurveRow]) -> Measurement:
    """The paper's numbers for one program."""
    found = _Rows(rows)
    sizes = {
        size: found.one("working_set", page_size=size, window_refs=WINDOW_REFS) for size in SIZES
    }
    references = found.count("references")
    return Measurement(
        program=program,
        references=references,
        references_per_instruction=references / found.count("instructions"),
        working_set_bytes=sizes[SMALL]["average_bytes"] or 0.0,
        normalised={size: row["normalised"] or 0.0 for size, row in sizes.items()},
        normalised_pairs={large: _pair(found, large, WINDOW_REFS) for large in PAIRS},
        normalised_by_window=_by_window(found),
        full=_full(found),
        sets=tuple(_set_shape(found, sets, ways) for sets, ways in SHAPES),
    )


def _pair(found: _Rows, large: int, window: int) -> float:
    """The normalised working set of 4 KiB and a large size."""
    row = found.one("two_sizes.working_set", small=SMALL, large=large, window_refs=window)
    return row["normalised"] or 0.0


def _by_window(found: _Rows) -> dict[int, float]:
    return {window: _pair(found, LARGE, window) for window in (WINDOW_REFS, *OTHER_WINDOWS_REFS)}


def _full(found: _Rows) -> Shape:
    both = found.one("two_sizes.full", small=SMALL, large=LARGE, entries=FULL_ENTRIES)
    return Shape(
        cpi={
            size: found.one("tlb.full", page_size=size, entries=FULL_ENTRIES)["cpi_tlb"] or 0.0
            for size in SIZES
        },
        cpi_two_sizes=both["cpi_tlb"] or 0.0,
        critical_increase=both["critical_penalty_increase"],
    )


def _set_shape(found: _Rows, sets: int, ways: int) -> SetShape:
    def single(size: int, index: str = "low") -> float:
        row = found.one("tlb.sets", page_size=size, index=index, sets=sets, ways=ways)
        return row["cpi_tlb"] or 0.0

    def two(index: str) -> CurveRow:
        return found.one(
            "two_sizes.sets", small=SMALL, large=LARGE, index=index, sets=sets, ways=ways
        )

    return SetShape(
        cpi={size: single(size) for size in SIZES},
        cpi_two_sizes=two("exact")["cpi_tlb"] or 0.0,
        critical_increase=two("exact")["critical_penalty_increase"],
        cpi_large_index=single(SMALL, LARGE_INDEX),
        cpi_two_sizes_large_index=two("large")["cpi_tlb"] or 0.0,
    )
