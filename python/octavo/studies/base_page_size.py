"""The study of the best base page size (SPEC programs under Lackey), on real programs of today.

The paper gives its results in words, without a table of numbers, so each of its statements is
turned into a test with a stated line; whether a program agrees is computed, never judged by eye.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from octavo.rows import Row, stream_counters
from octavo.studies.markdown import table
from octavo.studies.programs import extent_note, load_programs, run_programs
from octavo.units import (
    BASE_PAGE,
    KIB,
    MIB,
    format_bytes,
    format_growth,
    format_mpki,
    format_share,
)
from octavo.view import main_process, whole_program

PROGRAMS = Path(__file__).with_suffix(".toml")
FEWEST_PROGRAMS = 8
SCHEMA = "octavo/base-page-size/1"

LOW_SHARE = 0.10
"""Misses have become low where at most this share of the 4 KiB misses is left."""
HARDLY_SHARE = 0.05
"""Misses hardly fall where no more than this share of the 4 KiB misses is saved."""
FEW_MPKI = 0.1
"""Below this at 4 KiB there were hardly any misses that pages could end."""
SMALL_GROWTH = 0.25
"""The paper's "less than 25%"."""

WORST_LEFT, WORST_GROWTH = 0.40, 0.75
"""The paper's "approximately 1/3" and "approximately 2/3", where memory grows most."""
LARGE_GROWTH = 1.0
"""More than this is a significant increase of the memory required."""

_PAGE_16K = 16 * KIB
_PAGE_32K = 32 * KIB
_PAGE_256K = 256 * KIB
_PAGE_2M = 2 * MIB

Verdict = Literal["agree", "disagree", "too few misses"]
_SHORT: dict[Verdict, str] = {"agree": "yes", "disagree": "no", "too few misses": "few"}


@dataclass(frozen=True)
class Measurement:
    """Counts of one program; shares are of its 4 KiB misses, growth is over 4 KiB pages."""

    program: str
    references: int
    instructions: int
    code_mpki_4k: float
    code_mpki_16k: float
    code_left_16k: float | None
    code_left_256k: float | None
    data_mpki_4k: float
    data_left_16k: float | None
    data_left_32k: float | None
    data_left_256k: float | None
    data_left_2m: float | None
    data_low_at: int | None
    """Smallest page size with low data misses, in bytes; None when none measured has them."""
    touched_bytes_4k: int
    code_bytes_4k: int
    code_growth_16k: float
    code_growth_256k: float
    data_growth_256k: float
    advised_left: float | None
    """Of all 4 KiB misses, those left with 16 KiB pages for code and 256 KiB pages for data."""
    advised_growth: float
    """Of code and data together, with these pages."""


@dataclass(frozen=True)
class Claim:
    """A statement of the paper and the test that stands for it."""

    key: str
    paper: str
    line: str
    """The test in words."""
    verdict: Callable[[Measurement], Verdict]


def _agrees(holds: bool) -> Verdict:
    return "agree" if holds else "disagree"


def _code_16k(m: Measurement) -> Verdict:
    if m.code_left_16k is None or m.code_mpki_4k < FEW_MPKI:
        return "too few misses"
    return _agrees(m.code_left_16k <= LOW_SHARE)


def _code_larger(m: Measurement) -> Verdict:
    if m.code_left_16k is None or m.code_left_256k is None or m.code_mpki_4k < FEW_MPKI:
        return "too few misses"
    return _agrees(m.code_left_16k - m.code_left_256k <= HARDLY_SHARE)


def _data_larger(m: Measurement) -> Verdict:
    if m.data_left_16k is None or m.data_mpki_4k < FEW_MPKI:
        return "too few misses"
    return _agrees(m.data_left_16k > LOW_SHARE)


def _data_256k(m: Measurement) -> Verdict:
    if m.data_mpki_4k < FEW_MPKI:
        return "too few misses"
    return _agrees(m.data_low_at is None or m.data_low_at >= _PAGE_256K)


def _advice(m: Measurement) -> Verdict:
    if m.advised_left is None or m.code_mpki_4k + m.data_mpki_4k < FEW_MPKI:
        return "too few misses"
    return _agrees(m.advised_left <= LOW_SHARE and m.advised_growth < SMALL_GROWTH)


def _worst_misses(m: Measurement) -> Verdict:
    if m.code_left_16k is None or m.code_mpki_4k < FEW_MPKI:
        return "too few misses"
    return _agrees(m.code_left_16k <= WORST_LEFT)


CLAIMS = (
    Claim(
        "code_16k",
        "16 KiB pages nearly end instruction misses",
        f"at most {LOW_SHARE:.0%} of the 4 KiB instruction misses are left at 16 KiB",
        _code_16k,
    ),
    Claim(
        "code_larger",
        "pages above 16 KiB hardly lower instruction misses further",
        f"256 KiB saves at most {HARDLY_SHARE:.0%} of the 4 KiB misses more than 16 KiB does",
        _code_larger,
    ),
    Claim(
        "data_larger",
        "data wants larger pages than 16 KiB",
        f"more than {LOW_SHARE:.0%} of the 4 KiB data misses are left at 16 KiB",
        _data_larger,
    ),
    Claim(
        "data_256k",
        "data misses become low only at 256 KiB or later, for nearly all programs",
        f"more than {LOW_SHARE:.0%} of the 4 KiB data misses are left at 128 KiB",
        _data_256k,
    ),
    Claim(
        "code_memory",
        "memory for code at 16 KiB grows by less than a quarter for most programs",
        f"memory touched by instruction fetches grows by less than {SMALL_GROWTH:.0%} at 16 KiB",
        lambda m: _agrees(m.code_growth_16k < SMALL_GROWTH),
    ),
    Claim(
        "worst_misses",
        "even in the programs with the worst memory, 16 KiB pages leave a third of the instruction "
        "misses",
        f"at most {WORST_LEFT:.0%} of the 4 KiB instruction misses are left at 16 KiB",
        _worst_misses,
    ),
    Claim(
        "worst_memory",
        "and their memory for code grows by two thirds",
        f"memory touched by instruction fetches grows by at most {WORST_GROWTH:.0%} at 16 KiB",
        lambda m: _agrees(m.code_growth_16k <= WORST_GROWTH),
    ),
    Claim(
        "code_memory_larger",
        "larger pages for code significantly increase the memory of several programs",
        f"memory touched by instruction fetches grows by more than {LARGE_GROWTH:.0%} at 256 KiB",
        lambda m: _agrees(m.code_growth_256k > LARGE_GROWTH),
    ),
    Claim(
        "data_memory",
        "memory for data stays almost constant as pages grow",
        f"memory touched by data grows by less than {SMALL_GROWTH:.0%} at 256 KiB",
        lambda m: _agrees(m.data_growth_256k < SMALL_GROWTH),
    ),
    Claim(
        "advice",
        "16 KiB pages for code and 256 KiB pages for large data objects are the best choice",
        f"with 16 KiB for all code and 256 KiB for all data, at most {LOW_SHARE:.0%} of all 4 KiB "
        f"misses are left, and memory touched grows by less than {SMALL_GROWTH:.0%}",
        _advice,
    ),
)


@dataclass(frozen=True)
class Study:
    """All measurements, and the programs that were left out and why."""

    measurements: tuple[Measurement, ...]
    skipped: dict[str, str]
    max_instructions: int | None = None
    """After how many each program was ended; None where it was not."""

    def records(self) -> list[dict[str, Any]]:
        """One flat record for each program: its figures and the verdicts."""
        return [
            {**asdict(m), **{claim.key: claim.verdict(m) for claim in CLAIMS}}
            for m in self.measurements
        ]

    def document(self) -> dict[str, Any]:
        """Plain data for the JSON."""
        return {
            "schema": SCHEMA,
            "claims": [
                {"key": claim.key, "paper": claim.paper, "line": claim.line, **self.tally(claim)}
                for claim in CLAIMS
            ],
            "max_instructions": self.max_instructions,
            "programs": self.records(),
            "skipped": self.skipped,
        }

    def tally(self, claim: Claim) -> dict[str, int]:
        """How many programs agree, disagree, and have too few misses to decide."""
        verdicts = [claim.verdict(m) for m in self.measurements]
        return {
            "agree": verdicts.count("agree"),
            "disagree": verdicts.count("disagree"),
            "too_few": verdicts.count("too few misses"),
        }


def run_study(on_program: Callable[[str], None], max_instructions: int | None = None) -> Study:
    """Runs every program that is installed; `on_program` hears the name of each as it starts. With
    `max_instructions`, each ends after so many.
    """
    measurements, skipped = [], {}
    programs = load_programs(PROGRAMS)
    for name, outcome in run_programs(programs, ["run"], on_program, max_instructions):
        if isinstance(outcome, str):
            skipped[name] = outcome
        else:
            measurements.append(measure(name, outcome["rows"]))
    return Study(tuple(measurements), skipped, max_instructions)


def measure(program: str, rows: Sequence[Row]) -> Measurement:
    """The figures that the claims speak of."""
    rows = main_process(rows)
    whole = whole_program(rows)
    totals = stream_counters(rows)
    code, data = _misses(whole, "fetch"), _misses(whole, "data")
    memory = {
        (row["stream"], row["page_size"]): row for row in whole if row["component"] == "memory"
    }
    per_1000 = 1000 / totals["instructions"]

    def touched(stream: str, page_size: int) -> int:
        return memory[stream, page_size]["touched_bytes"]

    misses = code[BASE_PAGE] + data[BASE_PAGE]
    apart = touched("fetch", BASE_PAGE) + touched("data", BASE_PAGE)
    advised = touched("fetch", _PAGE_16K) + touched("data", _PAGE_256K)
    return Measurement(
        program=program,
        references=totals["references"],
        instructions=totals["instructions"],
        code_mpki_4k=code[BASE_PAGE] * per_1000,
        code_mpki_16k=code[_PAGE_16K] * per_1000,
        code_left_16k=_left(code, _PAGE_16K),
        code_left_256k=_left(code, _PAGE_256K),
        data_mpki_4k=data[BASE_PAGE] * per_1000,
        data_left_16k=_left(data, _PAGE_16K),
        data_left_32k=_left(data, _PAGE_32K),
        data_left_256k=_left(data, _PAGE_256K),
        data_left_2m=_left(data, _PAGE_2M),
        data_low_at=_low_at(data),
        touched_bytes_4k=memory["all", BASE_PAGE]["touched_bytes"],
        code_bytes_4k=touched("fetch", BASE_PAGE),
        code_growth_16k=memory["fetch", _PAGE_16K]["growth"] or 0.0,
        code_growth_256k=memory["fetch", _PAGE_256K]["growth"] or 0.0,
        data_growth_256k=memory["data", _PAGE_256K]["growth"] or 0.0,
        advised_left=(code[_PAGE_16K] + data[_PAGE_256K]) / misses if misses else None,
        advised_growth=advised / apart - 1 if apart else 0.0,
    )


def _misses(whole: Sequence[Row], stream: str) -> dict[int, int]:
    component = f"tlb.{stream}"
    return {row["page_size"]: row["misses"] for row in whole if row["component"] == component}


def _left(misses: dict[int, int], page_size: int) -> float | None:
    base = misses[BASE_PAGE]
    return misses[page_size] / base if base else None


def _low_at(misses: dict[int, int]) -> int | None:
    limit = LOW_SHARE * misses[BASE_PAGE]
    return next((size for size in sorted(misses) if misses[size] <= limit), None)


def to_markdown(study: Study) -> str:
    """The table beside what the paper says, and the count."""
    return "\n".join(
        [
            *_heading(),
            *_extent(study),
            *_figures(study),
            "",
            *_verdicts(study),
            "",
            *_notes(study),
            "",
        ]
    )


def _heading() -> Iterator[str]:
    yield "# The base page size, on real programs"
    yield ""
    yield (
        "Fully associative LRU TLBs, 64 entries for instructions and 64 for data. Misses are per "
        '1000 instructions; "left" is the share of the 4 KiB misses; "low at" is the first page '
        f"size that leaves at most {LOW_SHARE:.0%} of them; memory is what was touched, in "
        "4 KiB pages, by fetches or by data, and growth is over that; it is steeper where a "
        "program touches little."
    )
    yield ""


def _extent(study: Study) -> Iterator[str]:
    for note in extent_note(study.max_instructions):
        yield from (note, "")


def _figures(study: Study) -> Iterator[str]:
    yield "## Code"
    yield ""
    head = ["program", "M instr.", "at 4K", "left 16K", "256K", "memory", "growth 16K", "256K"]
    body = [
        [
            m.program,
            f"{m.instructions / 1e6:.0f}",
            format_mpki(m.code_mpki_4k),
            format_share(m.code_left_16k),
            format_share(m.code_left_256k),
            format_bytes(m.code_bytes_4k),
            format_growth(m.code_growth_16k),
            format_growth(m.code_growth_256k),
        ]
        for m in study.measurements
    ]
    yield from table(head, body)
    yield ""
    yield "## Data"
    yield ""
    head = ["program", "at 4K", "left 16K", "32K", "256K", "2M", "low at", "growth 256K"]
    body = [
        [
            m.program,
            format_mpki(m.data_mpki_4k),
            format_share(m.data_left_16k),
            format_share(m.data_left_32k),
            format_share(m.data_left_256k),
            format_share(m.data_left_2m),
            format_bytes(m.data_low_at) if m.data_low_at else "never",
            format_growth(m.data_growth_256k),
        ]
        for m in study.measurements
    ]
    yield from table(head, body)
    yield ""
    yield "## 16 KiB pages for code and 256 KiB pages for data"
    yield ""
    head = ["program", "memory", "misses left", "growth"]
    body = [
        [
            m.program,
            format_bytes(m.touched_bytes_4k),
            format_share(m.advised_left),
            format_growth(m.advised_growth),
        ]
        for m in study.measurements
    ]
    yield from table(head, body)


def _verdicts(study: Study) -> Iterator[str]:
    yield "## Claims of the paper"
    yield ""
    for number, claim in enumerate(CLAIMS, start=1):
        tally = study.tally(claim)
        decided = tally["agree"] + tally["disagree"]
        yield f"{number}. {claim.paper[0].upper()}{claim.paper[1:]}."
        yield f"   Tested as: {claim.line}."
        yield f"   **{tally['agree']} of {decided} agree.**"
    yield ""
    head = ["program", *(str(number) for number in range(1, len(CLAIMS) + 1))]
    body = [
        [m.program, *(_SHORT[claim.verdict(m)] for claim in CLAIMS)] for m in study.measurements
    ]
    yield from table(head, body)


def _notes(study: Study) -> Iterator[str]:
    yield (
        f'"Few": fewer than {FEW_MPKI} misses per 1000 instructions at 4 KiB, so there is '
        "nothing for larger pages to end; such programs are not counted."
    )
    for name, why in study.skipped.items():
        yield f"Left out: {name} ({why})."
    if len(study.measurements) < FEWEST_PROGRAMS:
        yield f"Only {len(study.measurements)} programs ran; the study wants {FEWEST_PROGRAMS}."
