"""The study of two page sizes as a page of text and as a document."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from octavo.base.units import KIB, format_bytes, format_count, format_cpi
from octavo.studies.coded_claims import Answered, answers, claims_document, claims_text
from octavo.studies.markdown import table
from octavo.studies.programs import extent_note
from octavo.studies.two_page_sizes import (
    FEWEST_PROGRAMS,
    LARGE,
    PAIRS,
    SCHEMA,
    SHAPES,
    SIZES,
    SMALL,
    Measurement,
    SetShape,
    Study,
)
from octavo.studies.two_page_sizes_claims import CLAIMS

_SHOWN = (SMALL, 8 * KIB, LARGE)
"""Single sizes of Figures 5.1 and 5.2."""


def to_document(study: Study) -> dict[str, Any]:
    """Plain data for the JSON."""
    return {
        "schema": SCHEMA,
        "claims": claims_document(_answers(study)),
        "max_instructions": study.max_instructions,
        "programs": [measured.record() for measured in study.measurements],
        "skipped": study.skipped,
    }


def to_markdown(study: Study) -> str:
    """Every table and figure beside what the paper says."""
    parts = [_heading(), extent_note(study.max_instructions)]
    if study.measurements:
        parts += [_workloads(study), _working_sets(study), _full(study)]
        parts += [_sets(study, number) for number in range(len(SHAPES))]
        parts += [_indexes(study, number) for number in range(len(SHAPES))]
        parts.append(claims_text(_answers(study), "no program misses enough to decide it"))
    parts.append(_notes(study))
    return "\n".join(line for part in map(list, parts) if part for line in (*part, ""))


def _answers(study: Study) -> list[Answered]:
    if not study.measurements:
        return [(claim, None) for claim in CLAIMS]
    return answers(CLAIMS, study.measurements)


def _heading() -> Iterator[str]:
    yield "# Two page sizes, on real programs"
    yield ""
    yield (
        "Instructions and data in one TLB with LRU, as in the paper. A chunk of the large size is "
        "one page while at least half of its 4 KiB blocks were referenced in the last ten million "
        "references. CPI_TLB is at 20 cycles a miss, 25 with two page sizes. Programs with the "
        "smallest working set come first."
    )


def _workloads(study: Study) -> Iterator[str]:
    yield "## Table 3.1: the programs"
    yield ""
    head = ["program", "references", "working set", "refs per instr."]
    body = [
        [
            m.program,
            format_count(m.references),
            format_bytes(round(m.working_set_bytes)),
            f"{m.references_per_instruction:.3f}",
        ]
        for m in study.measurements
    ]
    yield from table(head, body)


def _working_sets(study: Study) -> Iterator[str]:
    yield "## Figures 4.1 and 4.2: normalised working set, T = 10 M references"
    yield ""
    singles = [size for size in SIZES if size != SMALL]
    head = ["program", *map(_short, singles), *(f"4K+{_short(large)}" for large in PAIRS)]

    def cells(m: Measurement) -> list[float]:
        return [
            *(m.normalised[size] for size in singles),
            *(m.normalised_pairs[large] for large in PAIRS),
        ]

    body = [[m.program, *(f"{cell:.2f}" for cell in cells(m))] for m in study.measurements]
    averages = [
        sum(column) / len(column)
        for column in zip(*(cells(m) for m in study.measurements), strict=True)
    ]
    body.append(["average", *(f"{cell:.2f}" for cell in averages)])
    yield from table(head, body)


def _full(study: Study) -> Iterator[str]:
    yield "## Figure 5.1: CPI_TLB, 16 entries, fully associative"
    yield ""
    body = [
        [
            m.program,
            *(format_cpi(m.full.cpi[size]) for size in _SHOWN),
            format_cpi(m.full.cpi_two_sizes),
            _increase(m.full.critical_increase),
        ]
        for m in study.measurements
    ]
    yield from table(_cpi_head(), body)


def _sets(study: Study, number: int) -> Iterator[str]:
    sets, ways = SHAPES[number]
    yield f"## Figure 5.2: CPI_TLB, {sets * ways} entries, two-way, exact index"
    yield ""
    body = []
    for m in study.measurements:
        of = m.sets[number]
        body.append(
            [
                m.program,
                *(format_cpi(of.cpi[size]) for size in _SHOWN),
                format_cpi(of.cpi_two_sizes),
                _increase(of.critical_increase),
            ]
        )
    yield from table(_cpi_head(), body)


def _indexes(study: Study, number: int) -> Iterator[str]:
    sets, ways = SHAPES[number]
    yield f"## Table 5.1: CPI_TLB by index, {sets * ways} entries, two-way"
    yield ""
    head = ["program", "4K", "4K, large index", "4K+32K, large index", "4K+32K, exact index"]

    def cells(of: SetShape) -> list[float]:
        return [
            of.cpi[SMALL],
            of.cpi_large_index,
            of.cpi_two_sizes_large_index,
            of.cpi_two_sizes,
        ]

    body = [
        [m.program, *(format_cpi(cell) for cell in cells(m.sets[number]))]
        for m in study.measurements
    ]
    yield from table(head, body)


def _notes(study: Study) -> Iterator[str]:
    yield (
        "The paper traced twelve programs on SPARC, eight of them SPEC benchmarks of 1989, with "
        "83 M to 9.2 G references and working sets of 146 KB to 2.9 MB. These here are what a "
        "machine of today has, their inputs made by Octavo."
    )
    for name, why in study.skipped.items():
        yield f"Left out: {name} ({why})."
    if len(study.measurements) < FEWEST_PROGRAMS:
        yield f"Only {len(study.measurements)} programs ran; the study wants {FEWEST_PROGRAMS}."


def _cpi_head() -> Sequence[str]:
    return ["program", *map(_short, _SHOWN), "4K+32K", "critical"]


def _short(size: int) -> str:
    return f"{size // KIB}K"


def _increase(increase: float | None) -> str:
    return "no misses" if increase is None else f"{increase:+.0%}"
