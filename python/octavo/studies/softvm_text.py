"""The study of software-managed translation as people read it, and as one document."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from octavo.base.units import KIB, format_count
from octavo.studies import softvm_paper as paper
from octavo.studies.coded_claims import answers, claims_document, claims_text
from octavo.studies.markdown import table
from octavo.studies.programs import extent_note
from octavo.studies.softvm import (
    BY_LINE,
    COSTS,
    DESIGNS,
    EVENTS,
    FEWEST_PROGRAMS,
    MOST_RATE,
    RATED,
    SCHEMA,
    SOFTVM,
    TABLE_1,
    TRANSFERS,
    VARIANTS,
    Measurement,
    Study,
)
from octavo.studies.softvm_claims import CLAIMS
from octavo.studies.softvm_sweep import L1_SIZES, L2_SIZES, SWEEP_INSTRUCTIONS, WAYS

_EVENT_NAMES = (
    "L2 D-cache miss",
    "L2 I-cache miss",
    "handler L1 D-miss",
    "handler L2 D-miss",
    "handler loads UPTE",
    "handler L1 I-miss",
    "handler L2 I-miss",
)
_ROW_NAMES = {
    "l1_hit_tlb_hit": "L1 hit, TLB hit",
    "l1_hit_tlb_miss": "L1 hit, TLB miss",
    "l2_hit_tlb_hit": "L1 miss, L2 hit, TLB hit",
    "l2_hit_tlb_miss": "L1 miss, L2 hit, TLB miss",
    "memory_tlb_hit": "L1 miss, L2 miss, TLB hit",
    "memory_tlb_miss": "L1 miss, L2 miss, TLB miss",
}


def to_markdown(study: Study) -> str:
    """The whole page."""
    parts = [
        _head(study),
        _table_1(study),
        _table_3(study),
        _table_4(study),
        _table_5(study),
        _section_4_3(study),
        _figure_8(study),
        claims_text(answers(CLAIMS, study), "no program decides it"),
        _notes(study),
    ]
    return "\n".join("\n".join(part) + "\n" for part in parts)


def to_document(study: Study) -> dict[str, Any]:
    """Every number."""
    return {
        "schema": SCHEMA,
        "max_instructions": study.max_instructions,
        "average_cpi": study.average_cpi,
        "average_cpi_with_write_backs": study.average_cpi_with_write_backs,
        "paper": {
            "table_3": paper.TABLE_3,
            "table_4": {
                "frequencies": [float(of) for of in paper.TABLE_4],
                "overheads": [float(of) for of in paper.overheads()],
                "total": float(paper.total()),
            },
            "cycles_per_change": paper.cycles_per_change(),
        },
        "claims": claims_document(answers(CLAIMS, study)),
        "programs": [measured.record() for measured in study.measurements],
        "skipped": study.skipped,
    }


def _head(study: Study) -> Iterator[str]:
    yield "# Software-managed address translation, on programs of today"
    yield ""
    yield (
        "Jacob and Mudge, HPCA 1997: no TLB, but virtual caches, and a handler in software for "
        "what misses them. 8K/8K direct-mapped L1, 512K/512K L2, lines of 16 bytes, where nothing "
        "else is "
        "said. Below each table stands what the paper has."
    )
    yield ""
    yield from extent_note(study.max_instructions)
    yield ""
    yield "The first half of these filled the caches; what follows is of the second half."


def _table_1(study: Study) -> Iterator[str]:
    yield "## Table 1: what accesses find"
    yield ""
    sides = ("i", "d")
    for side, name in zip(sides, ("I-side", "D-side"), strict=True):
        body = []
        for measured in study.measurements:
            rows = measured.table_1(side)
            body.append([measured.program, *(_percent(rows[row]) for row in TABLE_1)])
        body.append(["paper", *paper.TABLE_1[side]])
        yield from table([name, *_ROW_NAMES.values()], body)
        yield ""
    yield (
        "With a TLB, every row whose TLB misses refills it; with software-managed translation, "
        "the last "
        "two read the page table."
    )


def _table_3(study: Study) -> Iterator[str]:
    yield "## Tables 2 and 3: overhead, in cycles per instruction"
    yield ""
    head = ["program", "instructions", *DESIGNS, "softvm, with write-backs", "dirty"]
    body = [
        [
            measured.program,
            format_count(measured.instructions),
            *(f"{measured.cpi(name):.4f}" for name in DESIGNS),
            f"{measured.cpi_with_write_backs(SOFTVM):.4f}",
            "" if measured.dirty_share is None else f"{measured.dirty_share:.0%}",
        ]
        for measured in study.measurements
    ]
    if study.average_cpi is not None and study.average_cpi_with_write_backs is not None:
        blanks = [""] * (len(DESIGNS) - 1)
        average = [f"{study.average_cpi:.4f}", *blanks]
        ours = f"{study.average_cpi_with_write_backs:.4f}"
        body.append(["weighted average", "", *average, ours, ""])
    yield from table(head, body)
    yield ""
    of_paper = ", ".join(f"{name} {cpi:.3f}" for name, cpi in paper.TABLE_3.items())
    yield (
        f"The paper's Table 3: {of_paper}; weighted average {paper.AVERAGE_CPI:.3f}, and "
        f"{paper.AVERAGE_CPI_WITH_WRITE_BACKS:.3f} with write-backs, if half of the lines are "
        f"dirty. "
        "`dirty`: lines written back for each that a miss brought."
    )
    yield ""
    quoted = ", ".join(f"{name} {cpi} ({share})" for name, (share, cpi) in paper.TABLE_2.items())
    yield (
        f"Table 2, quoted: the TLB's CPI (and share of the run time) of operating systems on "
        f"DECstations: "
        f"{quoted}."
    )


def _table_4(study: Study) -> Iterator[str]:
    yield "## Table 4: where it goes, per 1000 instructions"
    yield ""
    body = [
        [m.program, *(f"{1000 * of:.3f}" for of in m.frequencies), f"{m.cpi(SOFTVM):.6f}"]
        for m in study.measurements
    ]
    body.append(
        ["paper: gcc", *(f"{float(1000 * of):.3f}" for of in paper.TABLE_4), f"{_total():.6f}"]
    )
    body.append(["cycles of each", *map(str, COSTS.of_events()), ""])
    body.append(["paper: gcc, CPI", *(f"{float(of):.6f}" for of in paper.overheads()), ""])
    yield from table(["program", *_EVENT_NAMES, "CPI"], body)


def _total() -> float:
    return float(paper.total())


def _table_5(study: Study) -> Iterator[str]:
    yield "## Table 5: changes of protection"
    yield ""
    formula = paper.cycles_per_change()
    body = [
        [
            m.program,
            f"{m.changes_per_million:.2f}",
            "" if m.cycles_per_change is None else f"{m.cycles_per_change:.0f}",
            f"{m.designs[SOFTVM].sweep_cycles / m.instructions:.5f}",
            f"{m.changes_per_million * formula / 1e6:.5f}",
            *(f"{m.added_by(design, 'protection')[1]:.3f}" for design in RATED.values()),
        ]
        for m in study.measurements
    ]
    for name, rate in paper.TABLE_5.items():
        cpi = f"{float(paper.protection_cpi(rate)):.3f}"
        ends = [cpi if 1000 * rate == end else "" for end in RATED]
        body.append([f"paper: {name}", f"{float(rate):.1f}", str(formula), "", cpi, *ends])
    head = ["program", "per million instructions", "cycles each", "all sweeps, CPI", "formula, CPI"]
    head += [f"at {rate / 1000:.1f} more, CPI" for rate in RATED]
    yield from table(head, body)
    yield ""
    yield (
        f"The formula: {formula} cycles a change, of 256 lines at each level 10 and 50 being "
        f"there. Ours: "
        "what the caches held. `all sweeps` has those for pages that were unmapped or moved, for "
        "synonyms and for single lines, too. The last two columns: what so many changes in a "
        "million instructions add, "
        "each of the page of a line that the second level has; lines that get their right back by "
        "a store are among them."
    )


def _section_4_3(study: Study) -> Iterator[str]:
    yield "## Section 4.3: other tables, less than a page, and devices"
    yield ""
    body = [
        [
            m.program,
            f"{m.cpi(SOFTVM):.4f}",
            *(f"{m.cpi(design):.4f}" for design in VARIANTS.values()),
            f"{m.added_by(BY_LINE, 'protection')[1]:.4f}",
            f"{m.added_by(TRANSFERS, 'dma')[1]:.4f}",
        ]
        for m in study.measurements
    ]
    added = ["changes of lines", "transfers"]
    yield from table(["program", "two-tier", *VARIANTS, *added], body)
    yield ""
    yield (
        "Handlers' CPI with each table; where each line of 16 bytes is protected for itself, it "
        f"has an entry of its own. Then what {MOST_RATE / 1000} sweeps in a million instructions "
        "add: changes of protection of a line, and pages that a device transfers, flushed first. "
        "The paper gives no figures."
    )


def _figure_8(study: Study) -> Iterator[str]:
    count = max((len(m.sweep) for m in study.measurements), default=0)
    yield f"## Figure 8: {count} organisations"
    yield ""
    yield (
        f"CPI of the first {format_count(SWEEP_INSTRUCTIONS)} instructions at most; of each size "
        f"of L1 and "
        "L2 the least and the most of all line sizes."
    )
    yield ""
    head = ["program", "L2", *(f"{size // KIB}K" for size in L1_SIZES)]
    body = []
    for measured in study.measurements:
        for l2_bytes in L2_SIZES:
            cells = [_range_of(measured, l1_bytes, l2_bytes) for l1_bytes in L1_SIZES]
            if any(cells):
                body.append([measured.program, f"{l2_bytes // KIB}K", *cells])
    yield from table(head, body)
    if any(m.alone for m in study.measurements):
        yield ""
        yield from _one_pass(study)


def _one_pass(study: Study) -> Iterator[str]:
    """CPI by associativity, for the same instructions."""
    count = max(len(m.alone) for m in study.measurements)
    yield (
        f"Of {count} caches for each half, one pass over the references (`octavo curves "
        "--cache-lines`) gives the misses: CPI of the handlers' own instructions, "
        f"{COSTS.handler} cycles each, behind some of them, without what handlers miss; the least "
        "and the most of all line sizes. Direct-mapped, with lines of one size in both levels, "
        "they are those of a second level behind any first; with ways, those of a cache that sees "
        "all references."
    )
    yield ""
    shown = [(size, ways) for size in L2_SIZES for ways in WAYS[::2]]
    head = ["program", *(f"{size // KIB}K, {ways}-way" for size, ways in shown)]
    body = [
        [m.program, *(_least_and_most(m.handlers_alone(size, ways)) for size, ways in shown)]
        for m in study.measurements
        if m.alone
    ]
    yield from table(head, body)


def _range_of(measured: Measurement, l1_bytes: int, l2_bytes: int) -> str:
    some = [
        cpi for of, cpi in measured.sweep if of.l1_bytes == l1_bytes and of.l2_bytes == l2_bytes
    ]
    return _least_and_most(some)


def _least_and_most(some: Sequence[float]) -> str:
    return f"{min(some):.3f}-{max(some):.3f}" if some else ""


def _notes(study: Study) -> Sequence[str]:
    lines = [
        "The paper ran SPEC95's integer programs to their ends on a PowerPC. These here are what "
        "a machine "
        "of today has, their inputs made by Octavo, ended early."
    ]
    lines += [f"Left out: {name} ({why})." for name, why in study.skipped.items()]
    if len(study.measurements) < FEWEST_PROGRAMS:
        ran = len(study.measurements)
        lines.append(f"Only {ran} programs ran; the study wants {FEWEST_PROGRAMS}.")
    return lines


def _percent(share: float) -> str:
    return f"{share:.4%}" if share < 0.001 else f"{share:.2%}"


assert len(_EVENT_NAMES) == len(EVENTS)
