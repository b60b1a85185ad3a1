"""Claims of the paper on two page sizes, and the answers of the programs here.

Its charts are pictures without numbers; every number that its text gives is here, with the place.
Ours is computed from the measurements, and so is whether both say the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import exp, log
from statistics import mean, median

from octavo.base.units import KIB
from octavo.studies.coded_claims import Claim, Found
from octavo.studies.two_page_sizes import LARGE, SMALL, Measurement, Shape

FEW_CPI = 0.001
"""Below this CPI_TLB with 4 KiB pages a TLB has next to no misses that pages could end."""
_ALIKE = 0.25
"""Two CPI_TLB are alike where they differ by no more than this share of the larger."""
_NEAR = 1.5
"""Two CPI_TLB are near each other where neither is more than this many times the other."""
_CRITICAL_INCREASES = (0.3, 12.0)
"""Section 5.2: from 30% to 1200%."""


def _average(
    values: Callable[[Measurement], float], paper: float
) -> Callable[[Sequence[Measurement]], Found]:
    def find(measured: Sequence[Measurement]) -> Found:
        ours = mean(values(m) for m in measured)
        return Found(f"{ours:.2f}", abs(ours - paper) <= _ALIKE * paper)

    return find


def _doubling(measured: Sequence[Measurement]) -> Found:
    steps = [
        m.normalised[2 * size] / m.normalised[size] - 1
        for m in measured
        for size in m.normalised
        if 2 * size in m.normalised
    ]
    inside = sum(0.005 <= step <= 0.305 for step in steps)
    text = f"{min(steps):.0%} to {max(steps):.0%}; {inside} of {len(steps)} steps within"
    return Found(text, inside >= 0.75 * len(steps))


def _pair_range(measured: Sequence[Measurement]) -> Found:
    ours = [m.normalised_pairs[LARGE] for m in measured]
    text = f"{min(ours):.2f} to {max(ours):.2f}, average {mean(ours):.2f}"
    return Found(text, max(ours) <= 1.25 and abs(mean(ours) - 1.1) <= 0.1)


def _pair_below_all(measured: Sequence[Measurement]) -> Found:
    below = sum(
        m.normalised_pairs[LARGE] < min(m.normalised[size] for size in (8 * KIB, 16 * KIB, LARGE))
        for m in measured
    )
    return Found(f"{below} of {len(measured)} programs", below == len(measured))


def _insensitive(measured: Sequence[Measurement]) -> Found:
    spread = max(
        max(m.normalised_by_window.values()) / min(m.normalised_by_window.values()) - 1
        for m in measured
    )
    return Found(f"at most {spread:.0%}", spread <= 0.05)


def _fall(
    shape: Callable[[Measurement], Shape], size: int, low: float, high: float
) -> Callable[[Sequence[Measurement]], Found | None]:
    """How many times lower CPI_TLB is with one larger size, by the geometric mean."""

    def find(measured: Sequence[Measurement]) -> Found | None:
        falls = [
            of.cpi[SMALL] / max(of.cpi[size], FEW_CPI / 100)
            for of in map(shape, measured)
            if of.cpi[SMALL] >= FEW_CPI
        ]
        if not falls:
            return None
        ours = exp(mean(map(log, falls)))
        text = f"{ours:.1f} times (median {median(falls):.1f}, {len(falls)} programs)"
        return Found(text, low <= ours <= high)

    return find


def _share(
    shape: Callable[[Measurement], Shape],
    holds: Callable[[Shape], bool],
    at_least: float,
    at_most: float = 1.0,
) -> Callable[[Sequence[Measurement]], Found | None]:
    """Of the programs that have misses, for how many something holds."""

    def find(measured: Sequence[Measurement]) -> Found | None:
        usable = [of for of in map(shape, measured) if of.cpi[SMALL] >= FEW_CPI]
        if not usable:
            return None
        number = sum(map(holds, usable))
        agrees = at_least * len(usable) <= number <= at_most * len(usable)
        return Found(f"{number} of {len(usable)} programs", agrees)

    return find


def _critical(measured: Sequence[Measurement]) -> Found | None:
    """Two sizes are charged 25% more for a miss. So where CPI_TLB is lower nevertheless, the
    critical increase is above 25% whatever the program does.
    """
    increases = [
        of.critical_increase
        for m in measured
        for of in m.sets
        if of.cpi[SMALL] >= FEW_CPI
        and of.cpi_two_sizes < of.cpi[SMALL]
        and of.critical_increase is not None
    ]
    if not increases:
        return None
    text = f"{min(increases):.0%} to {max(increases):.0%}"
    least, most = _CRITICAL_INCREASES
    return Found(text, least <= min(increases) and max(increases) <= most)


def _is_near_large(of: Shape) -> bool:
    """Whether two sizes cost about what the large size alone does."""
    one, other = sorted((of.cpi_two_sizes, of.cpi[LARGE]))
    return other <= _NEAR * one


def _alike(one: float, other: float) -> bool:
    return abs(one - other) <= _ALIKE * max(one, other)


def _both_indexes(measured: Sequence[Measurement]) -> Found | None:
    usable = [of for m in measured for of in m.sets if of.cpi[SMALL] >= FEW_CPI]
    if not usable:
        return None
    number = sum(_alike(of.cpi_two_sizes, of.cpi_two_sizes_large_index) for of in usable)
    return Found(f"{number} of {len(usable)} cases", number > len(usable) / 2)


def _large_index_alone(measured: Sequence[Measurement]) -> Found | None:
    usable = [of for m in measured for of in m.sets if of.cpi[SMALL] >= FEW_CPI]
    if not usable:
        return None
    worse = [of.cpi_large_index / of.cpi[SMALL] for of in usable]
    return Found(f"{median(worse):.1f} times in the median", median(worse) >= 1.5)


_SCATTERED = "programs of today map many libraries, whose parts in use are small and far apart"

CLAIMS: tuple[Claim[Sequence[Measurement]], ...] = (
    Claim(
        "rpi",
        "Table 3.1",
        "1.15 to 1.50 references per instruction",
        "every program lies between 1.1 and 1.6",
        lambda measured: Found(
            f"{min(m.references_per_instruction for m in measured):.2f} to "
            f"{max(m.references_per_instruction for m in measured):.2f}",
            all(1.1 <= m.references_per_instruction <= 1.6 for m in measured),
        ),
        "x86-64 instructions may load and store in one, and there are 16 registers, not SPARC's "
        "windows",
    ),
    Claim(
        "ws_32k",
        "section 4",
        "the normalised working set at 32 KiB is 1.67 on average",
        "within a quarter of it",
        _average(lambda m: m.normalised[32 * KIB], 1.67),
        _SCATTERED,
    ),
    Claim(
        "ws_64k",
        "section 4",
        "and 2.03 at 64 KiB",
        "within a quarter of it",
        _average(lambda m: m.normalised[64 * KIB], 2.03),
        _SCATTERED,
    ),
    Claim(
        "doubling",
        "section 4",
        "doubling the page size enlarges the working set by 1% to 30%",
        "three quarters of all steps from 4 to 64 KiB do",
        _doubling,
        f"{_SCATTERED}; and a working set of few pages grows in larger steps",
    ),
    Claim(
        "ws_pair",
        "section 4",
        "that of 4 KiB and 32 KiB together is 1.01 to 1.22, 1.1 on average",
        "none is above 1.25, and the average is within 0.1",
        _pair_range,
        "a chunk becomes large at half of its blocks, so that it may take twice the memory, and "
        "small working sets come nearer to that",
    ),
    Claim(
        "ws_pair_below",
        "section 4",
        "which is less than with any single size above 4 KiB",
        "so it is for every program",
        _pair_below_all,
        "dense programs gain nothing either way, and differ in the third digit",
    ),
    Claim(
        "insensitive",
        "section 4",
        "and varies by a few percent with T of 10, 25 and 50 million references",
        "by no more than 5%",
        _insensitive,
        "programs shorter than T have all their memory in the window",
    ),
    Claim(
        "full_32k",
        "section 5.1",
        "16 entries, fully associative: CPI_TLB falls about eight-fold at 32 KiB",
        "by the geometric mean, 5 to 20 times",
        _fall(lambda m: m.full, 32 * KIB, 5, 20),
        "a TLB that maps all of a small working set misses next to nothing, so that the factor "
        "has no upper end; scattered references gain less than eight-fold",
    ),
    Claim(
        "full_8k",
        "section 5.1",
        "and 8 KiB nearly halve it",
        "by the geometric mean, 1.5 to 2.5 times",
        _fall(lambda m: m.full, 8 * KIB, 1.5, 2.5),
        "references that are scattered gain less than half",
    ),
    Claim(
        "full_pair",
        "section 5.1",
        "two sizes come near 32 KiB alone, the rest being mostly the dearer miss",
        f"for half of the programs, neither is more than {_NEAR} times the other",
        _share(lambda m: m.full, _is_near_large, 0.5),
        "what lies in sparse chunks stays in small pages, and misses there",
    ),
    Claim(
        "full_pair_8k",
        "section 5.1",
        "and for many programs do better than 8 KiB alone",
        "for half of the programs",
        _share(lambda m: m.full, lambda of: of.cpi_two_sizes < of.cpi[8 * KIB], 0.5),
        "as with 32 KiB alone",
    ),
    Claim(
        "sets_pair",
        "section 5.2",
        "two-way, exact index: two sizes do better than 4 KiB for 8 of 12 programs",
        "for half to five sixths of the programs, with 16 entries",
        _share(lambda m: m.sets[0], lambda of: of.cpi_two_sizes < of.cpi[SMALL], 1 / 2, 5 / 6),
        "small and large pages share eight sets, and meet in them by chance",
    ),
    Claim(
        "critical",
        "section 5.2",
        "where they do, the miss penalty may grow by 30% to 1200%",
        "every such increase lies between 30% and 1200%",
        _critical,
        "every gain above the 25% that two sizes are charged is listed, however small; and a TLB "
        "that maps all of a small working set with large pages misses next to nothing, so that "
        "the increase has no upper end",
    ),
    Claim(
        "both_indexes",
        "section 5.2.1",
        "exact index and large page number are comparable for more than half",
        f"in more than half of the cases they differ by no more than {_ALIKE:.0%}",
        _both_indexes,
        "blocks of a chunk that stayed small compete for two ways",
    ),
    Claim(
        "large_index_alone",
        "section 5.2.1",
        "4 KiB pages alone, indexed by the large page number, miss much more",
        "1.5 times in the median",
        _large_index_alone,
        "a TLB of eight sets has many conflicts with any index",
    ),
)
