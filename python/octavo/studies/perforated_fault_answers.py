"""Answers to the claims of the paper on memory with faults, from the measurements."""

from __future__ import annotations

from octavo.base.units import format_share
from octavo.studies.coded_claims import Found
from octavo.studies.perforated_answers import two
from octavo.studies.perforated_faults import GTSM, IDEAL, PAPER_PORTION, FaultRow
from octavo.studies.perforated_measurement import BASELINE, PERFORATED
from octavo.studies.perforated_memory import REGION
from octavo.studies.perforated_pages import Study


def _papers(study: Study) -> FaultRow | None:
    return study.with_faults(PAPER_PORTION, "dispersed")


def before_gtsm(study: Study) -> Found | None:
    """How far perforated pages are before GTSM at the paper's share of faults."""
    row = _papers(study)
    if row is None or (ours := row.relative(PERFORATED, GTSM)) is None:
        return None
    hidden = row.relative(PERFORATED, GTSM, overlapped=True)
    text = two(ours - 1, None if hidden is None else hidden - 1)
    # Where faults are fewer GTSM has large pages for all.
    fewer = [of for of in study.faults if of.faults.layout == "dispersed" and of.covered == 1.0]
    last = max(fewer, key=lambda of: of.faults.portion, default=None)
    if last is not None and last is not row and (other := last.relative(PERFORATED, GTSM)):
        text += f"; {other - 1:+.1%} at {last.faults.portion:.1%} of faults"
    return Found(text, 0.031 <= ours - 1 <= 0.124)


def no_whole_block(study: Study) -> Found | None:
    """How many pages of 2 MiB there are at that share."""
    row = _papers(study)
    one = None if row is None else row.designs.get(BASELINE)
    if one is None:
        return None
    return Found(f"{one.large_pages} pages of 2 MiB", one.large_pages == 0)


def half_of_memory(study: Study) -> Found | None:
    """How much of the data, a sixth of memory, GTSM has large pages for at that share."""
    row = _papers(study)
    covered = None if row is None else row.covered
    if row is None or covered is None or (ideal := row.designs.get(IDEAL)) is None:
        return None
    of_memory = covered * ideal.large_pages * REGION / row.memory_bytes
    text = f"{format_share(covered)} of the data, {format_share(of_memory)} of memory"
    return Found(text, covered >= 0.99)
