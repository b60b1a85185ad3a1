"""Claims of the paper on software-managed translation, and the answers of the measurements.

Ours is computed from the measurements, and so is whether both say the same.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import geometric_mean

from octavo.studies.coded_claims import Claim, Found
from octavo.studies.softvm import (
    LEAST_RATE,
    MOST_RATE,
    PHYSICAL,
    RATED,
    SOFTVM,
    VIRTUAL,
    Measurement,
    Study,
)
from octavo.studies.softvm_paper import AVERAGE_CPI, TABLE_5
from octavo.studies.softvm_sweep import L1_SIZES, L2_SIZES, Organisation

_ALIKE = 2.0
"""Two numbers are alike where neither is more than so many times the other."""
_COMPILERS = ("cc1", "cc1plus")
"""The programs that stand for the paper's gcc."""


def _alike(ours: float, paper: float) -> bool:
    return paper / _ALIKE <= ours <= paper * _ALIKE


def _average(study: Study) -> Found | None:
    ours = study.average_cpi
    return None if ours is None else Found(f"{ours:.3f} CPI", _alike(ours, AVERAGE_CPI))


def _write_backs(study: Study) -> Found | None:
    without, with_them = study.average_cpi, study.average_cpi_with_write_backs
    shares = [m.dirty_share for m in study.measurements if m.dirty_share is not None]
    if not without or with_them is None or not shares:
        return None
    grown = with_them / without - 1
    said = (
        f"{with_them:.3f} CPI, {grown:+.0%}; of the lines that misses brought, "
        f"{min(shares):.0%} to {max(shares):.0%} cost a dirty one"
    )
    return Found(said, _alike(grown, 0.5))


def _versus_tlb(study: Study) -> Found | None:
    if not study.measurements:
        return None
    totals = {
        name: sum(m.designs[name].handler_cycles for m in study.measurements)
        for name in (SOFTVM, VIRTUAL, PHYSICAL)
    }
    instructions = sum(m.instructions for m in study.measurements)
    cpi = {name: cycles / instructions for name, cycles in totals.items()}
    said = ", ".join(f"{name} {value:.3f}" for name, value in cpi.items())
    return Found(f"CPI on the same programs: {said}", _alike(cpi[SOFTVM], cpi[PHYSICAL]))


def _ratios(
    measured: Measurement, one: Callable[[Organisation], Organisation | None]
) -> list[float]:
    """Of all organisations that have a partner: overhead over the partner's, where that has any."""
    all_of = dict(measured.sweep)
    partners = ((cpi, one(of)) for of, cpi in all_of.items())
    return [cpi / all_of[of] for cpi, of in partners if of is not None and all_of.get(of)]


def _grown_l2(of: Organisation) -> Organisation | None:
    if of.l2_bytes != L2_SIZES[0]:
        return None
    return Organisation(of.l1_bytes, L2_SIZES[1], of.l1_line_bytes, of.l2_line_bytes)


def _grown_l1(of: Organisation) -> Organisation | None:
    if of.l1_bytes != L1_SIZES[0]:
        return None
    return Organisation(L1_SIZES[-1], of.l2_bytes, of.l1_line_bytes, of.l2_line_bytes)


def _by_compiler(
    study: Study, one: Callable[[Organisation], Organisation | None], paper: float
) -> Found | None:
    said, factors = [], []
    for measured in study.measurements:
        ratios = _ratios(measured, one)
        if measured.program in _COMPILERS and ratios and min(ratios) > 0:
            factors.append(geometric_mean(ratios))
            said.append(
                f"{measured.program} by {factors[-1]:.1f} ({min(ratios):.1f} to {max(ratios):.1f})"
            )
    if not factors:
        return None
    return Found("it falls for " + ", for ".join(said), any(_alike(f, paper) for f in factors))


def _lines(study: Study) -> Found | None:
    factors = []
    for measured in study.measurements:
        for l1_bytes in L1_SIZES:
            for l2_bytes in L2_SIZES:
                some = [
                    cpi
                    for of, cpi in measured.sweep
                    if (of.l1_bytes, of.l2_bytes) == (l1_bytes, l2_bytes)
                ]
                if some and min(some) > 0:
                    factors.append(max(some) / min(some))
    if not factors:
        return None
    said = f"factors of {min(factors):.1f} to {max(factors):.1f}"
    return Found(said, max(factors) >= 2)


def _best(study: Study) -> Found | None:
    best = {m.program: of for m in study.measurements if (of := m.least()) is not None}
    if not best:
        return None
    cpi = [of[1] for of in best.values()]
    few = sum(value < 0.01 for value in cpi)
    return Found(f"{few} of {len(cpi)} programs; the worst has {max(cpi):.3f}", few == len(cpi))


def _protection(study: Study) -> Found | None:
    rates = [m.changes_per_million for m in study.measurements]
    if not rates:
        return None
    cycles = [m.cycles_per_change for m in study.measurements if m.cycles_per_change is not None]
    cost = f", {min(cycles):.0f} to {max(cycles):.0f} cycles each" if cycles else ""
    average = study.average_changes_per_million or 0.0
    said = (
        f"{min(rates):.2f} to {max(rates):.2f} changes per million instructions, {average:.2f} on "
        f"average{cost}"
    )
    return Found(said, min(TABLE_5.values()) <= average <= max(TABLE_5.values()))


def _rates(study: Study) -> Found | None:
    instructions = sum(m.instructions for m in study.measurements)
    if not instructions:
        return None
    changes, cycles, cpi = 0, 0.0, {}
    for rate, design in RATED.items():
        added = [(m, *m.added_by(design, "protection")) for m in study.measurements]
        of_rate = sum(each * m.instructions for m, _, each in added)
        cpi[rate] = of_rate / instructions
        changes += sum(pages for _, pages, _ in added)
        cycles += of_rate
    each = f", {cycles / changes:.0f} cycles each" if changes else ""
    ends = {LEAST_RATE: 0.019, MOST_RATE: 0.164}
    return Found(
        f"{cpi[LEAST_RATE]:.3f} to {cpi[MOST_RATE]:.3f} CPI{each}",
        all(_alike(cpi[rate], paper) for rate, paper in ends.items()),
    )


_START = (
    "these programs run for millions of instructions where the paper's ran for billions, so that "
    "first misses of lines, which no cache saves, are a large part, and most use more memory than "
    "SPEC95's"
)

CLAIMS: tuple[Claim[Study], ...] = (
    Claim(
        "average",
        "table 3",
        "0.033 CPI on average",
        "within a factor of two",
        _average,
        _START,
    ),
    Claim(
        "write-backs",
        "section 5.3",
        "write-backs of 50% of the misses would make it 0.050, 50% more",
        "the increase within a factor of two",
        _write_backs,
        "a program that is ended early leaves most of its dirty lines in the caches, and fetches "
        "bring lines on their own side, where none is dirty",
    ),
    Claim(
        "ultrix",
        "section 5.2",
        "about the overhead of Ultrix on MIPS, which has a TLB",
        "within a factor of two of a TLB's before physical caches, in either direction",
        _versus_tlb,
        "a TLB of 64 entries costs nothing where lines are brought for the first time, each of "
        "which costs a handler here; and it maps 256 KiB, so that programs of today that reuse "
        "more miss in it where caches of 1 MiB hit",
    ),
    Claim(
        "larger-l2",
        "section 5.5",
        "for gcc, an order of magnitude less with an L2 of twice the size",
        "a factor within two of ten",
        lambda study: _by_compiler(study, _grown_l2, 10.0),
        _START,
    ),
    Claim(
        "larger-l1",
        "section 5.5",
        "for gcc, a third with an L1 of 128 KiB in place of 1 KiB",
        "a factor within two of three",
        lambda study: _by_compiler(study, _grown_l1, 3.0),
        "where most misses of the second level are first ones, the handler's own misses in the "
        "first weigh less",
    ),
    Claim(
        "line-size",
        "section 5.5",
        "of caches of one size, the line size changes it by two or more",
        "two or more for some program and size",
        _lines,
        "where few misses are of lines that a longer line would have brought, its size matters "
        "little",
    ),
    Claim(
        "best",
        "section 5.5",
        "less than 0.01 CPI with the best organisation",
        "all programs below 0.01",
        _best,
        _START,
    ),
    Claim(
        "changes",
        "table 5",
        "2.8 to 23.8 changes of protection per million instructions in Mach 3, a thousandth of "
        "that in "
        "Ultrix",
        "the average over all instructions lies within Mach's range",
        _protection,
        "Linux changes protections as sparingly as Ultrix once a program is loaded; where little "
        "else is run, the loader's protection of relocated data weighs more",
    ),
    Claim(
        "change-cost",
        "section 5.4",
        "0.019 to 0.164 CPI at those rates, a change costing 6,908 cycles",
        "both ends within a factor of two",
        _rates,
        "the lines that are there are counted, not assumed, and the page that changes is one that "
        "the second level has a line of",
    ),
)
"""In the order of the report."""
