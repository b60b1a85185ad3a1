"""The study of the best base page size (Weisberg and Wiseman, IRI 2009), on real programs of today.

Whether a program agrees with a statement of the paper is computed, never judged by eye.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from octavo.analysis.rows import Row, stream_counters
from octavo.analysis.view import main_process, whole_program
from octavo.base.units import BASE_PAGE, KIB, MIB
from octavo.studies.claims import answers, load_claims
from octavo.studies.programs import Program, load_programs, measure_runs
from octavo.studies.reproduction import Reproduction, Request

STUDY = "base_page_size"
LOW_SHARE = 0.10
"""Misses have become low where at most this share of the 4 KiB misses is left."""
FEW_MPKI = 0.1
"""Below this at 4 KiB there were hardly any misses that pages could end."""
_VERDICTS = {True: "agree", False: "disagree", None: "too few misses"}


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
    """The smallest page size with low data misses, in bytes; None if no measured size has them."""
    touched_bytes_4k: int
    code_bytes_4k: int
    code_growth_16k: float
    code_growth_256k: float
    data_growth_256k: float
    advised_left: float | None
    """The share of 4 KiB misses that is left with 16 KiB pages for code and 256 KiB for data."""
    advised_growth: float
    """Growth of code and data together, with these pages."""

    def flat(self) -> dict[str, Any]:
        """The figures and the verdict on each claim, by its key."""
        answered = answers(STUDY, {**asdict(self), "few": FEW_MPKI})
        verdicts = {
            claim.key: _VERDICTS[None if found is None else found.agrees]
            for claim, found in answered
        }
        return {**asdict(self), **verdicts}


@dataclass(frozen=True)
class Study(Reproduction):
    """All measurements."""

    folder = STUDY
    measurements: tuple[Measurement, ...] = ()

    def claims(self) -> list[dict[str, Any]]:
        """For each claim, how many programs agree, disagree, and have too few misses to decide."""
        records = self.records()
        claims = []
        for claim in load_claims(STUDY):
            verdicts = [record[claim.key] for record in records]
            agree, disagree, too_few = map(verdicts.count, _VERDICTS.values())
            tally = {"agree": agree, "disagree": disagree, "too_few": too_few}
            claims.append({"key": claim.key, "paper": claim.paper, "line": claim.line, **tally})
        return claims

    def document(self) -> dict[str, Any]:
        """Plain data for the JSON."""
        return {**super().document(), "programs": self.records()}

    def page_names(self) -> dict[str, Any]:
        """How many programs agree with each claim."""
        return {"claims": self.claims()}


def run_study(request: Request) -> Study:
    """Runs every program that is installed."""
    skipped: dict[str, str] = {}

    def measure_program(program: Program, rows: Sequence[Row]) -> Measurement:
        return measure(program.name, rows)

    measured = measure_runs(["run"], load_programs(), request, measure_program, skipped)
    return Study(tuple(measured), skipped, request.max_instructions)


def measure(program: str, rows: Sequence[Row]) -> Measurement:
    """The numbers that the claims are about, from the rows of one program."""
    rows = main_process(rows)
    whole = whole_program(rows)
    totals = stream_counters(rows)
    memory = {
        (row["stream"], row["page_size"]): row for row in whole if row["component"] == "memory"
    }
    per_1000 = 1000 / totals["instructions"]

    def misses(stream: str) -> dict[int, int]:
        rows = (row for row in whole if row["component"] == f"tlb.{stream}")
        return {row["page_size"]: row["misses"] for row in rows}

    def touched(stream: str, page_size: int) -> int:
        return memory[stream, page_size]["touched_bytes"]

    def growth(stream: str, page_size: int) -> float:
        return memory[stream, page_size]["growth"] or 0.0

    code, data = misses("fetch"), misses("data")
    low = (size for size in sorted(data) if data[size] <= LOW_SHARE * data[BASE_PAGE])
    code_size, data_size = 16 * KIB, 256 * KIB
    left = code[code_size] + data[data_size]
    apart = touched("fetch", BASE_PAGE) + touched("data", BASE_PAGE)
    advised = touched("fetch", code_size) + touched("data", data_size)
    return Measurement(
        program=program,
        references=totals["references"],
        instructions=totals["instructions"],
        code_mpki_4k=code[BASE_PAGE] * per_1000,
        code_mpki_16k=code[16 * KIB] * per_1000,
        code_left_16k=_share(code[16 * KIB], code[BASE_PAGE]),
        code_left_256k=_share(code[256 * KIB], code[BASE_PAGE]),
        data_mpki_4k=data[BASE_PAGE] * per_1000,
        data_left_16k=_share(data[16 * KIB], data[BASE_PAGE]),
        data_left_32k=_share(data[32 * KIB], data[BASE_PAGE]),
        data_left_256k=_share(data[256 * KIB], data[BASE_PAGE]),
        data_left_2m=_share(data[2 * MIB], data[BASE_PAGE]),
        data_low_at=next(low, None),
        touched_bytes_4k=touched("all", BASE_PAGE),
        code_bytes_4k=touched("fetch", BASE_PAGE),
        code_growth_16k=growth("fetch", 16 * KIB),
        code_growth_256k=growth("fetch", 256 * KIB),
        data_growth_256k=growth("data", 256 * KIB),
        advised_left=_share(left, code[BASE_PAGE] + data[BASE_PAGE]),
        advised_growth=advised / apart - 1 if apart else 0.0,
    )


def _share(misses: int, base: int) -> float | None:
    return misses / base if base else None
