"""Parts of the measured time of a load: the computation of its address, its walk, and its data."""

from __future__ import annotations

from dataclasses import dataclass

from octavo.base.huge_pages import PMD_PAGE
from octavo.base.units import BASE_PAGE, format_bytes
from octavo.calibration.file import Calibration, Spread

FEWEST_SIZES = 4
"""Fewest working sets over which loads must have been measured for a fit."""


@dataclass(frozen=True)
class Served:
    """A load that a cache serves."""

    cycles: float
    """Without TLB misses and the computation of an address."""
    loads: str
    """The loads over the working set that the cache holds, in words."""


def chased(found: Calibration, working_set_bytes: int) -> Served:
    """The load of a chase over a working set."""
    spread = found.latency_cycles[working_set_bytes]
    return Served(
        spread.median - translation_cycles(found, working_set_bytes),
        f"{spread_text(spread)} over {format_bytes(working_set_bytes)}",
    )


def read_at_random(found: Calibration, working_set_bytes: int) -> Served:
    """The random read over a working set, or the load of a chase where random reads were not
    measured over it. Faster reads have filled the caches before random reads, so that others fill
    less of the last cache than in a chase.
    """
    address, spread = address_cycles(found), found.random_read_cycles.get(working_set_bytes)
    if address is None or spread is None:
        return chased(found, working_set_bytes)
    return Served(
        spread.median - address - translation_cycles(found, working_set_bytes),
        f"{spread_text(spread)} of random reads, {address:.3g} of them for the address, over "
        f"{format_bytes(working_set_bytes)}",
    )


def address_cycles(found: Calibration) -> float | None:
    """Cycles of the computation of an address in a random read, which takes equally long for hits
    and misses; None where too few random reads were measured.
    """
    reads, chases = found.random_read_cycles, found.latency_cycles
    if len(reads) <= FEWEST_SIZES or min(reads) not in chases:
        return None
    return reads[min(reads)].median - chases[min(reads)].median


def translation_cycles(
    found: Calibration, working_set_bytes: int, most_walked_bytes: int | None = None
) -> float:
    """Cycles that TLB misses add to a load over a working set in 2 MiB pages, from the shares of
    pages that miss in both levels and that hit in the second. A walk takes as long as over a
    working set of `most_walked_bytes`, if that is smaller.
    """
    reach = found.tlb.get(BASE_PAGE)
    covered = found.entry_bytes.get(PMD_PAGE, PMD_PAGE)
    pages = working_set_bytes / covered

    def missing(level: Spread | None) -> float:
        return 0.0 if level is None else max(0.0, 1 - level.median / pages)

    first = missing(reach.first if reach else None)
    second = missing(reach.second if reach else None)
    hit = found.second_level_hit_cycles.get(BASE_PAGE)
    walk = found.walk_at(PMD_PAGE, min(working_set_bytes, most_walked_bytes or working_set_bytes))
    return (first - second) * (hit.median if hit else 0.0) + second * (walk.median if walk else 0.0)


def spread_text(spread: Spread) -> str:
    """`96.56 (95.05 to 100.4)`."""
    return f"{spread.median:.4g} ({spread.low:.4g} to {spread.high:.4g})"
