"""Answers to the claims of the paper on Tailored Page Sizes, from the measurements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import mean

from octavo.base.units import KIB, MIB, format_share
from octavo.studies.coded_claims import Found
from octavo.studies.tailored_measurement import BASE, COLT, RMM, TPS, Measurement, label
from octavo.studies.tailored_page_sizes import Study

LOCAL = ("xsbench", "graph500")
"""The paper's benchmarks that keep some locality under fragmentation."""


Finder = Callable[[Study], Found | None]
"""None if no measurement decides it."""
Of = Callable[[Measurement], float | None]
"""A figure of a program, where it has one."""


def values_of(measured: Sequence[Measurement], of: Of) -> list[float]:
    """Of the programs that have one."""
    return [value for value in map(of, measured) if value is not None]


def misses_gone(design: str, *, fragmented: bool = False) -> Of:
    """Of a design: Figures 10 and 16."""
    return lambda m: m.misses_gone(design, fragmented=fragmented)


def references_gone(design: str) -> Of:
    """Of a design: Figure 11."""
    return lambda m: m.references_gone(design)


def speedup(design: str, *, smt: bool = False) -> Of:
    """Of a design: Figures 13 and 14."""
    return lambda m: m.speedup(design, smt=smt)


def of_ideal(design: str, *, smt: bool = False) -> Of:
    """Of a design: what it gains of the ideal."""
    return lambda m: m.of_ideal(design, smt=smt)


def on_average(of: Of, low: float, high: float) -> Finder:
    """The average over the programs that count lies between two."""

    def find(study: Study) -> Found | None:
        values = values_of(study.counting, of)
        if not values:
            return None
        text = f"{format_share(mean(values))} of {len(values)} programs on average"
        spread = f"{format_share(min(values))} to {format_share(max(values))}"
        return Found(f"{text}, {spread}", low <= mean(values) <= high)

    return find


def of_one(name: str, of: Of, low: float, high: float) -> Finder:
    """So it is with one program."""

    def find(study: Study) -> Found | None:
        values = values_of([m for m in study.measurements if m.program == name], of)
        return Found(format_share(values[0]), low <= values[0] <= high) if values else None

    return find


def hit_rate(study: Study) -> Found | None:
    """The hit rate of the first level for data with TPS."""
    usable = [m.designs[TPS] for m in study.counting if TPS in m.designs]
    if not usable:
        return None
    rates = [1 - of.misses / of.accesses for of in usable]
    number = sum(rate > 0.99 for rate in rates)
    text = f"{number} of {len(rates)} programs, {format_share(min(rates))} in the worst"
    return Found(text, number == len(rates))


def like_rmm(study: Study) -> Found | None:
    """How far TPS and RMM are apart in references of walks."""
    pairs = _both(study, references_gone(TPS), references_gone(RMM))
    if not pairs:
        return None
    apart = mean(tps - rmm for tps, rmm in pairs)
    return Found(f"TPS eliminates {apart:+.1%} of the references more", abs(apart) <= 0.05)


def rmm_first(study: Study) -> Found | None:
    """For how many programs RMM saves at least as many references of walks."""
    pairs = _both(study, references_gone(TPS), references_gone(RMM))
    if not pairs:
        return None
    number = sum(rmm >= tps for tps, rmm in pairs)
    return Found(f"{number} of {len(pairs)} programs", number * 2 >= len(pairs))


def _both(study: Study, one: Of, other: Of) -> list[tuple[float, float]]:
    pairs = ((one(m), other(m)) for m in study.counting)
    return [(a, b) for a, b in pairs if a is not None and b is not None]


def faster_in_order(study: Study) -> Found | None:
    """The average speed-ups, largest first in the paper."""
    averages = {}
    for design in (TPS, RMM, COLT):
        values = values_of(study.counting, speedup(design))
        if not values:
            return None
        averages[design] = mean(values)
    text = ", ".join(f"{label(name)} {format_share(value)}" for name, value in averages.items())
    return Found(text, averages[TPS] > averages[RMM] > averages[COLT])


def same_memory(study: Study) -> Found | None:
    """Whether TPS has as much data resident as 4 KiB pages have."""
    usable = [m for m in study.measurements if {BASE, TPS} <= set(m.designs)]
    if not usable:
        return None
    same = [m.designs[BASE].resident_bytes == m.designs[TPS].resident_bytes for m in usable]
    return Found(f"the same to the byte for {sum(same)} of {len(same)} programs", all(same))


def middle_coverage(study: Study) -> Found | None:
    """The share of free memory that 64 KiB pages could use here and 2 MiB pages could not."""
    usable = [of for of in study.memory if of.memory == "this machine"]
    if not usable:
        return None
    shares = usable[0].shares
    middle, large = shares[64 * KIB], shares[2 * MIB]
    if middle is None or large is None:
        return None
    text = f"{format_share(middle)} of what is free here at 64 KiB, {format_share(large)} at 2 MiB"
    return Found(text, middle - large >= 0.25)


def local_gain(study: Study) -> Found | None:
    """Misses that TPS eliminates of the benchmarks with locality, under fragmentation."""
    usable = [m for m in study.measurements if m.program in LOCAL]
    values = {m.program: m.misses_gone(TPS, fragmented=True) for m in usable}
    known = {name: value for name, value in values.items() if value is not None}
    if not known:
        return None
    text = ", ".join(f"{name} {format_share(value)}" for name, value in known.items())
    return Found(text, min(known.values()) >= 0.30)


def sizes_used(m: Measurement) -> tuple[int, int]:
    """How many page sizes TPS uses, and how many there are up to the largest one used."""
    used = m.designs[TPS].pages
    return len(used), (max(used) // (4 * KIB)).bit_length()


def all_sizes(study: Study) -> Found | None:
    """Whether programs use most page sizes."""
    usable = [m for m in study.counting if TPS in m.designs and m.designs[TPS].pages]
    if not usable:
        return None
    number = sum(used >= 0.75 * all_ for used, all_ in map(sizes_used, usable))
    text = f"{number} of {len(usable)} programs use three quarters of the sizes up to their largest"
    return Found(text, number == len(usable))


def small_first(study: Study) -> Found | None:
    """Whether most pages are small ones."""
    usable = [m.designs[TPS].pages for m in study.counting if TPS in m.designs]
    usable = [pages for pages in usable if pages]
    if not usable:
        return None
    number = sum(
        sum(n for size, n in pages.items() if size < 2 * MIB) >= sum(pages.values()) / 2
        for pages in usable
    )
    return Found(f"so it is for {number} of {len(usable)} programs", number == len(usable))


def few_pages(study: Study) -> Found | None:
    """How many pages TPS has beside 4 KiB pages."""
    usable = [m for m in study.counting if {TPS, BASE} <= set(m.designs)]
    usable = [m for m in usable if m.designs[TPS].pages and m.designs[BASE].pages]
    if not usable:
        return None
    shares = [
        sum(m.designs[TPS].pages.values()) / sum(m.designs[BASE].pages.values()) for m in usable
    ]
    most = max(sum(m.designs[TPS].pages.values()) for m in usable)
    text = f"{format_share(max(shares))} of those of 4 KiB at most; at most {most} pages"
    return Found(text, max(shares) <= 0.1)
