"""The study of Tailored Page Sizes as a page of text and as a document."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from octavo.base.units import (
    format_bytes,
    format_count,
    format_growth,
    format_mpki,
    format_share,
)
from octavo.studies.coded_claims import answers, claims_document, claims_text
from octavo.studies.markdown import table
from octavo.studies.programs import extent_note
from octavo.studies.tailored_measurement import (
    BASE,
    BASELINE,
    DESIGNS,
    FEW_MPKI,
    INTENSE_MPKI,
    RIVALS,
    TPS,
    Measurement,
    label,
)
from octavo.studies.tailored_memory import ROOM, SIZES
from octavo.studies.tailored_page_sizes import MACHINE, SCHEMA, SMT_TURN_INSTRUCTIONS, Study
from octavo.studies.tailored_page_sizes_answers import (
    Of,
    misses_gone,
    of_ideal,
    references_gone,
    speedup,
    values_of,
)
from octavo.studies.tailored_page_sizes_claims import CLAIMS, LEFT_OUT
from octavo.studies.tailored_subjects import usual_entries, usual_instructions

FEWEST_PROGRAMS = 6


def to_document(study: Study) -> dict[str, Any]:
    """Plain data for the JSON."""
    return {
        "schema": SCHEMA,
        "claims": claims_document(answers(CLAIMS, study)),
        "not_told": list(LEFT_OUT),
        "designs": list(DESIGNS),
        "large": study.large,
        "max_instructions": study.max_instructions,
        "programs": [measured.record() for measured in study.measurements],
        "free_memory": [
            {"memory": of.memory, "shares": {str(size): of.shares[size] for size in SIZES}}
            for of in study.memory
        ],
        "skipped": study.skipped,
    }


def to_markdown(study: Study) -> str:
    """Every figure as a table, beside what the paper says."""
    parts = [_heading(study), extent_note(study.max_instructions)]
    if study.measurements:
        parts += [_programs(study), _eliminated(study), _time(study), _time(study, smt=True)]
        parts += [_page_counts(study)]
    parts += [_free_memory(study), claims_text(answers(CLAIMS, study)), _notes(study)]
    return "\n".join(line for part in map(list, parts) if part for line in (*part, ""))


def _heading(study: Study) -> Iterator[str]:
    yield "# Tailored Page Sizes, on workloads and real programs"
    yield ""
    yield (
        f"Each design has a `{MACHINE}` of its own: TPS at the threshold of 100%, the baseline "
        f"`{BASELINE}`, huge pages by reservation. Of a workload the start-up is simulated and not "
        "counted; of a real program everything counts. Averages are over the workloads, and those "
        f"real programs that with 4 KiB pages miss the first-level TLB for data more than "
        f"{INTENSE_MPKI:g} times in 1000 instructions; these are marked by a `*`."
    )
    if not study.large:
        yield ""
        yield (
            "Workloads take some 100 MiB, not gigabytes, and for them the second-level TLB has "
            f"{usual_entries()} entries instead of 1536; the first level, by which Figures 8, 10 "
            f"and 16 are made, is as it was. Real programs end after "
            f"{format_count(usual_instructions())} instructions."
        )


def _name(m: Measurement) -> str:
    return f"{m.program} *" if m.counts else m.program


def _percent(value: float | None) -> str:
    return "–" if value is None else format_share(value)


def _programs(study: Study) -> Iterator[str]:
    yield "## Figures 8 and 9: first-level misses of data, and memory"
    yield ""
    head = ["program", "instr.", "MPKI, 4K", "MPKI, baseline", "memory, 4K", "2M alone", "TPS"]
    body = [
        [
            _name(m),
            format_count(m.instructions),
            format_mpki(m.mpki(BASE)),
            "–" if m.mpki(BASELINE) is None else format_mpki(m.mpki(BASELINE)),
            format_bytes(m.touched_bytes),
            format_growth(m.growth_2m),
            _memory(m),
        ]
        for m in study.measurements
    ]
    yield from table(head, body)


def _memory(m: Measurement) -> str:
    """The memory of TPS relative to that of 4 KiB pages."""
    if not {BASE, TPS} <= set(m.designs):
        return "–"
    base, tps = m.designs[BASE].resident_bytes, m.designs[TPS].resident_bytes
    return "the same" if base == tps else format_growth(tps / base - 1)


def _with_averages(study: Study, columns: dict[str, Of]) -> Iterator[str]:
    body = [[_name(m), *(_percent(of(m)) for of in columns.values())] for m in study.measurements]
    averages = [values_of(study.counting, of) for of in columns.values()]
    cells = [_percent(sum(all_) / len(all_) if all_ else None) for all_ in averages]
    yield from table(["program", *columns], [*body, ["average of *", *cells]])


def _eliminated(study: Study) -> Iterator[str]:
    yield "## Figures 10, 11 and 16: what is eliminated of the baseline's"
    yield ""
    yield (
        "First-level TLB misses of data, references of page walks, and those misses with memory "
        f"fragmented, {ROOM:g} times of it free as the program takes, the baseline's too. A dash: "
        f"the baseline has fewer than {FEW_MPKI:g} in 1000 instructions, or memory ran out."
    )
    yield ""
    rivals = (TPS, *RIVALS)
    yield from _with_averages(
        study,
        {
            **{f"misses, {label(name)}": misses_gone(name) for name in rivals},
            **{f"walks, {label(name)}": references_gone(name) for name in rivals},
            **{f"fragm., {label(name)}": misses_gone(name, fragmented=True) for name in rivals},
        },
    )


def _time(study: Study, *, smt: bool = False) -> Iterator[str]:
    if smt:
        yield "## Figure 14: the same with a second thread"
        yield ""
        yield (
            "Two threads of the core run the program, each with memory of its own; they share TLBs "
            f"and caches by turns of {SMT_TURN_INSTRUCTIONS} instructions."
        )
    else:
        yield "## Figure 13: how much faster, and how much of the ideal"
        yield ""
        yield (
            "T = T_IDEAL + T_L1DTLBM + T_PW of the simulated baseline; T_L1DTLBM scaled by "
            "first-level misses, T_PW by references of walks. The ideal is T_IDEAL."
        )
    yield ""
    rivals = (TPS, *RIVALS)
    faster = {label(name): speedup(name, smt=smt) for name in rivals}
    ideal = {f"of ideal, {label(name)}": of_ideal(name, smt=smt) for name in rivals}
    yield from _with_averages(study, {**faster, **ideal})


def _page_counts(study: Study) -> Iterator[str]:
    yield "## Figure 18: pages of TPS by their size, at the end"
    yield ""
    having_tps = [m for m in study.measurements if TPS in m.designs]
    sizes = sorted({size for m in having_tps for size in m.designs[TPS].pages})
    head = ["page size", *(m.program for m in having_tps)]
    body = [
        [format_bytes(size), *(str(m.designs[TPS].pages.get(size, "")) for m in having_tps)]
        for size in sizes
    ]
    yield from table(head, body)


def _free_memory(study: Study) -> Iterator[str]:
    yield "## Figure 15: free memory that each page size could use"
    yield ""
    body = [
        [format_bytes(size), *(_percent(of.shares[size]) for of in study.memory)] for size in SIZES
    ]
    yield from table(["page size", *(of.memory for of in study.memory)], body)


def _notes(study: Study) -> Iterator[str]:
    yield "Left out:"
    yield ""
    for sentence in LEFT_OUT:
        yield f"- {sentence}"
    for m in study.measurements:
        for where, of in (
            ("", m.designs),
            (" when it is fragmented", m.fragmented),
            (" with a second thread", m.smt),
        ):
            gone = [
                label(name) for name in DESIGNS if name not in of and not (where and name == BASE)
            ]
            if gone:
                yield f"- {m.program} with {', '.join(gone)}: memory ran out{where}."
    for name, why in study.skipped.items():
        yield f"- Left out: {name} ({why})."
    if len(study.measurements) < FEWEST_PROGRAMS:
        yield f"- Only {len(study.measurements)} programs ran; the study wants {FEWEST_PROGRAMS}."
