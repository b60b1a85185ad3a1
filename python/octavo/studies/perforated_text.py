"""The study of perforated pages as a page of text and as a document."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from octavo.base.units import format_bytes, format_count, format_mpki, format_share
from octavo.studies.coded_claims import answers, claims_document, claims_text
from octavo.studies.markdown import table
from octavo.studies.perforated_claims import CLAIMS, LEFT_OUT
from octavo.studies.perforated_faults import GTSM, IDEAL, FaultRow
from octavo.studies.perforated_grid import FRACTIONS, MACHINE, OBSERVED, PORTIONS, GridRow
from octavo.studies.perforated_measurement import BASE, BASELINE, KINDS, PERFORATED, Counted, gain
from octavo.studies.perforated_memory import LAYOUTS, Fragments, Layout
from octavo.studies.perforated_pages import SCHEMA, Study
from octavo.studies.perforated_programs import FRACTIONS as PROGRAM_FRACTIONS
from octavo.studies.perforated_programs import PORTIONS as PROGRAM_PORTIONS
from octavo.studies.perforated_programs import ProgramMeasurement
from octavo.studies.programs import extent_note, usual_entries

CONTENTS: tuple[tuple[str, float, Layout, bool], ...] = (
    ("a", 0.75, "clustered", True),
    ("b", 0.25, "clustered", True),
    ("c", 0.25, "dispersed", True),
    ("d", 0.25, "dispersed", False),
)
"""Panels of Figure 8: fraction of holes, layout, and whether holes are allocated."""
_KIND_NAMES = dict(zip(KINDS, ("4 KiB", "2 MiB", "perforated", "bitmaps"), strict=True))


def to_document(study: Study) -> dict[str, Any]:
    """Plain data for the JSON."""
    return {
        "schema": SCHEMA,
        "claims": claims_document(answers(CLAIMS, study)),
        "not_told": list(LEFT_OUT),
        "partial": study.is_partial,
        "max_instructions": study.max_instructions,
        "grid": [row.record() for row in study.grid],
        "programs": [measured.record() for measured in study.programs],
        "redis": [measured.record() for measured in study.redis],
        "faults": [row.record() for row in study.faults],
        "skipped": study.skipped,
    }


def to_records(study: Study) -> list[dict[str, Any]]:
    """A flat record for each run of a design: where it ran, and everything counted."""
    records = []
    for row in study.grid:
        kind = "allocated" if row.point.is_allocated else "unallocated"
        where = {"of": "random accesses", "holes": kind, **_axes(row.point.fragments)}
        records += [{**where, "design": name, **_flat(of)} for name, of in row.designs.items()]
    for measured in study.programs:
        mode = "virtual" if measured.is_virtual else "native"
        where = {"of": measured.program, "holes": mode, **_axes(None)}
        records += [{**where, "design": name, **_flat(of)} for name, of in measured.ideal.items()]
        for at in measured.rows:
            where |= _axes(at.fragments)
            records += [{**where, "design": name, **_flat(of)} for name, of in at.designs.items()]
    for server in study.redis:
        where = {"of": server.name, "holes": "unallocated", **_axes(None)}
        records += [{**where, "design": name, **_flat(of)} for name, of in server.designs.items()]
    for of in study.faults:
        layout = of.faults.layout
        where = {"of": "faults", "holes": None, **_axes(None), "layout": layout}
        where["portion"] = of.faults.portion
        records += [{**where, "design": name, **_flat(one)} for name, one in of.designs.items()]
    return records


def _axes(of: Fragments | None) -> dict[str, Any]:
    if of is None:
        return dict.fromkeys(("portion", "fraction", "layout", "large"))
    return {
        "portion": of.portion,
        "fraction": of.fraction,
        "layout": of.layout,
        "large": of.clean,
    }


def _flat(of: Counted) -> dict[str, Any]:
    record = of.record()
    content = record.pop("content")
    return {**record, **{f"content.{kind}": content.get(kind) for kind in KINDS}}


def to_markdown(study: Study) -> str:
    """Every figure as a table, beside what the paper says."""
    parts = [_heading(study), extent_note(study.max_instructions)]
    if study.grid:
        parts += [_grid(study, is_allocated=True), _grid(study, is_allocated=False)]
        parts += [_observed(study), _contents(study)]
    for is_virtual in (False, True):
        of = [measured for measured in study.programs if measured.is_virtual == is_virtual]
        if of:
            parts.append(_programs(of, is_virtual=is_virtual))
    if study.redis:
        parts.append(_redis(study))
    if study.faults:
        parts.append(_faults(study))
    parts += [claims_text(answers(CLAIMS, study)), _notes(study)]
    return "\n".join(line for part in map(list, parts) if part for line in (*part, ""))


def _heading(study: Study) -> Iterator[str]:
    yield "# Perforated pages, on random accesses and real programs"
    yield ""
    yield (
        f"Each design has a `{MACHINE}` of its own, the machine of the paper's Table II. Memory "
        "has exactly as many clean 2 MiB regions, and as many with holes, as a program asks for; "
        f"`{PERFORATED}` makes a page of each region with holes. IPC is by cycles that are added "
        "up, where the paper's core is out of order; in brackets stands what it would be if all "
        "misses of caches by code and data were hidden, and no walk: the paper's core is somewhere "
        "between the two."
    )
    if study.is_partial:
        yield ""
        yield "PARTIAL: the study was stopped; what it had measured by then is here."


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def _relative(
    row: GridRow | FaultRow | None, design: str, *, overlapped: bool = False
) -> float | None:
    """IPC over that of 4 KiB pages on the same memory."""
    more = None if row is None else gain(row.designs, design, BASE, overlapped=overlapped)
    return None if more is None else 1 + more


def _grid(study: Study, *, is_allocated: bool) -> Iterator[str]:
    kind = "allocated elsewhere" if is_allocated else "not allocated"
    yield f"## Figure 7: IPC over 4 KiB pages, holes {kind}"
    yield ""
    if not is_allocated:
        yield f"2 MiB + 4 KiB are those with {FRACTIONS[1]:.0%} of holes."
        yield ""
    head = ["portion", *(f"{portion:.0%}" for portion in PORTIONS)]
    body = []
    for layout in LAYOUTS:
        rows = [
            study.at(Fragments(at, FRACTIONS[1], layout), is_allocated=is_allocated)
            for at in PORTIONS
        ]
        cells = [_both(row, row.point.baseline if row else "") for row in rows]
        body.append([f"2 MiB + 4 KiB, {layout}", *cells])
        for fraction in FRACTIONS:
            rows = [
                study.at(Fragments(at, fraction, layout), is_allocated=is_allocated)
                for at in PORTIONS
            ]
            name = f"perforated, {fraction:.0%} {layout}"
            body.append([name, *(_both(row, PERFORATED) for row in rows)])
    yield from table(head, body)


def _both(row: GridRow | FaultRow | None, design: str) -> str:
    hidden = _relative(row, design, overlapped=True)
    added = _number(_relative(row, design))
    return added if hidden is None else f"{added} ({hidden:.1f})"


def _observed(study: Study) -> Iterator[str]:
    yield "## Section III-C: memory as it was seen"
    yield ""
    head = ["large", "perforated", "IPC, 2 MiB + 4 KiB", "IPC, perforated", "gain"]
    body = []
    for of in OBSERVED:
        row = study.at(of)
        if row is not None:
            value = row.gain()
            ours = "–" if value is None else f"{value:+.1%}"
            cells = [_both(row, BASELINE), _both(row, PERFORATED), ours]
            body.append([f"{of.clean:.0%}", f"{of.portion:.0%}", *cells])
    yield from table(head, body)


def _contents(study: Study) -> Iterator[str]:
    yield "## Figure 8: what the second-level TLB holds at the end"
    yield ""
    yield "Shares of its entries in use; and of look-ups of bitmaps, those that the filter saved."
    yield ""
    head = ["holes", "portion", *_KIND_NAMES.values(), "filtered"]
    body = []
    for panel, fraction, layout, is_allocated in CONTENTS:
        kind = "allocated" if is_allocated else "unallocated"
        for portion in PORTIONS:
            row = study.at(Fragments(portion, fraction, layout), is_allocated=is_allocated)
            one = None if row is None else row.designs.get(PERFORATED)
            if one is not None and one.content:
                every = sum(one.content.values())
                shares = [format_share(one.content[name] / every) for name in KINDS]
                saved = "–" if one.filter_share is None else format_share(one.filter_share)
                name = f"({panel}) {fraction:.0%} {layout}, {kind}"
                body.append([name, f"{portion:.0%}", *shares, saved])
    yield from table(head, body)


def _programs(of: Sequence[ProgramMeasurement], *, is_virtual: bool) -> Iterator[str]:
    figure, where = ("11", "in a virtual machine") if is_virtual else ("9", "native")
    yield f"## Figure {figure}: programs, {where}"
    yield ""
    yield (
        "IPC over that of 4 KiB pages: large pages without fragmentation; then 2 MiB + 4 KiB, and "
        "perforated pages, by portion."
    )
    yield ""
    head = ["program", "memory", "large", "2 MiB + 4 KiB", "perforated"]
    body = []
    for measured in of:
        large = measured.large_gain
        for layout in LAYOUTS:
            for fraction in PROGRAM_FRACTIONS:
                rows = [
                    row
                    for row in measured.rows
                    if (row.fragments.layout, row.fragments.fraction) == (layout, fraction)
                ]
                if not rows:
                    continue
                cells = [
                    " ".join(_number(measured.relative(row, design)) for row in rows)
                    for design in (BASELINE, PERFORATED)
                ]
                name = f"{fraction:.0%} {layout}"
                alone = "–" if large is None else _number(1 + large)
                body.append([measured.program, name, alone, *cells])
    yield from table(head, body)
    yield ""
    if is_virtual:
        yield (
            "The host's memory is fragmented as the guest's is, by itself: which of the guest's "
            "pages get its large ones differs between memories, for 2 MiB + 4 KiB, too. So only "
            "what stands beside one another is to be compared."
        )
        yield ""
    yield (
        f"Portions are {', '.join(f'{portion:.0%}' for portion in PROGRAM_PORTIONS)}. Workloads "
        f"take some 100 MiB, and for them the second-level TLB has {usual_entries()} entries "
        "instead of 1536."
    )


def _redis(study: Study) -> Iterator[str]:
    yield "## Table I and section III-B: Redis"
    yield ""
    yield (
        "The paper: MPKI of 1.75, 1.05 and 1.45; 77.7 GB with 4 KiB pages and 92.9 with 2 MiB. "
        "MPKI are references that are walked for; bitmaps that had to be read from memory, per "
        "1000 instructions, stand beside them."
    )
    yield ""
    head = ["of", "pages", "MPKI", "bitmaps", "memory", "beside 4 KiB", "instr. a look-up"]
    body = []
    for measured in study.redis:
        for design in (BASE, BASELINE, PERFORATED):
            one = measured.designs.get(design)
            if one is not None:
                more, each = measured.growth(design), measured.instructions_per_lookup
                fetches = format_mpki(one.bitmap_fetches * 1000 / one.instructions)
                cells = [format_mpki(one.mpki), fetches, format_bytes(one.resident_bytes)]
                cells.append("–" if more is None else f"{more:+.1%}")
                cells.append("–" if each is None else format_count(each))
                body.append([measured.name, design, *cells])
    yield from table(head, body)


def _faults(study: Study) -> Iterator[str]:
    yield "## Figure 10: memory with faults"
    yield ""
    yield (
        "IPC over 4 KiB pages, of random accesses; how far perforated pages are before GTSM; and "
        "the share of the data that GTSM has large pages for, each of 32 sub-blocks of 64 KiB "
        "without a fault."
    )
    yield ""
    head = ["faults", "2 MiB + 4 KiB", "GTSM", "perforated", "ideal 2 MiB", "over GTSM", "large"]
    body = []
    for row in study.faults:
        cells = [_both(row, design) for design in (BASELINE, GTSM, PERFORATED, IDEAL)]
        ours, covered = row.relative(PERFORATED, GTSM), row.covered
        cells.append("–" if ours is None else f"{ours - 1:+.1%}")
        cells.append("–" if covered is None else format_share(covered))
        body.append([f"{row.faults.portion:.1%} {row.faults.layout}", *cells])
    yield from table(head, body)


def _notes(study: Study) -> Iterator[str]:
    yield "Left out:"
    yield ""
    for sentence in LEFT_OUT:
        yield f"- {sentence}"
    for name, why in study.skipped.items():
        yield f"- Left out: {name} ({why})."
