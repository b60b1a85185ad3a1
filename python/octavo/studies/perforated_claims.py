"""Claims of the paper on perforated pages, and the answers of the measurements.

Its charts are pictures without numbers; every number of its results that its text gives is here,
with the place, or in `LEFT_OUT` with the reason.
"""

from __future__ import annotations

from octavo.studies.coded_claims import Claim
from octavo.studies.perforated_answers import (
    ALIKE,
    SEEN,
    all_holes,
    bitmap_memory,
    bloat,
    clustered_first,
    few_holes,
    fewer_bitmaps,
    filtered,
    gain_at,
    large_misses,
    nested_references,
    no_bloat,
    of_ideal,
    of_server,
    perforated_misses,
    program_gain,
    up_to_half,
    worst_gain,
    worst_loss,
)
from octavo.studies.perforated_fault_answers import before_gtsm, half_of_memory, no_whole_block
from octavo.studies.perforated_grid import OBSERVED
from octavo.studies.perforated_pages import Study

_ADDED = (
    "the paper's core is out of order and overlaps cache misses, but not walks; here cycles are "
    "added up, so that the data's own misses, which no page size saves, weigh more"
)
_OTHER_PROGRAMS = "these are other programs, of other sizes, and cycles are added up"
_IN_GUEST = (
    f"{_OTHER_PROGRAMS}; bits that the TLB does not have are read behind a walk in two dimensions, "
    "since only the guest's page-table entry locates them"
)
_FEW_NODES = (
    "how much the nested TLB and walk caches hold is this Octavo's own choice, and these programs "
    "take some 100 MiB, most of whose nodes they hold"
)
_SMALL = "the server is smaller than the paper's, and its second-level TLB is, too"
_LOCALITY = (
    "all that a look-up of the stream touches beside the value is three words and a bucket; what "
    "else the paper's server touched it does not say"
)
_NO_HOLES = (
    "only untouched pages are holes here, and they are never walked for; whether the paper counts "
    "bitmaps that are read from memory as misses, and how many of its holes had pages, it does "
    "not say"
)
_SERVER, _STREAM = "redis-server", "a stream"

CLAIMS: tuple[Claim[Study], ...] = (
    Claim(
        "seen",
        "Figure 7 and section VII-B",
        "with 50% of the regions fragmented by 25%, clustered, perforated pages are 59.4% faster "
        "than 2 MiB and 4 KiB pages",
        "30% to 119%",
        gain_at(SEEN, 0.297, 1.188),
        _ADDED,
    ),
    Claim(
        "first_run",
        "section III-C",
        "22% of large pages and 18% of perforated ones are 20.3% faster than the large ones alone",
        "10% to 41%",
        gain_at(OBSERVED[0], 0.10, 0.41),
        "of 78% of accesses that walk with base pages beside 22% of large ones, 65% still do with "
        "perforated ones: 20% is what that saves if nothing but walks takes time",
    ),
    Claim(
        "second_run",
        "section III-C",
        "49% of large pages and 50% of perforated ones are 69.4% faster",
        "35% to 139%",
        gain_at(OBSERVED[1], 0.35, 1.39),
        _ADDED,
    ),
    Claim(
        "few_holes",
        "section VII-B",
        "with 10% of holes in half of the regions, nearly all of the performance of large pages "
        "is left",
        "at least 90%, clustered and dispersed",
        few_holes,
        "each reference to a perforated page that the filter does not answer looks up twice",
    ),
    Claim(
        "all_holes",
        "section VII-B",
        "with 90% of holes in all regions they are roughly equivalent to 2 MiB and 4 KiB pages",
        "within 15%",
        all_holes,
        "nearly all references look up two entries, and bitmaps take entries from holes' pages",
    ),
    Claim(
        "up_to_half",
        "section VII-B",
        "with up to 50% of holes performance is better than that of 2 MiB and 4 KiB pages",
        "on every memory of the grid",
        up_to_half,
        "a hole costs a second look-up, and where bitmaps miss too, a read of memory",
    ),
    Claim(
        "clustered_first",
        "section VII-B",
        "holes that are clustered cost less than dispersed ones",
        f"on nine tenths of the memories no more than {ALIKE:.0%} more",
        clustered_first,
        "where most of a page is holes, the filter answers nothing in either case",
    ),
    Claim(
        "filtered",
        "section VII-B, Figure 8",
        "with clustered holes the filter saves 68% of the look-ups of bitmaps",
        "with 25% of holes, between 50% and 86% at most",
        filtered,
        "a run of 128 pages covers two or three of eight parts, wherever it begins",
    ),
    Claim(
        "fewer_bitmaps",
        "section VII-B, Figure 8",
        "so that the TLB holds 58% fewer bitmaps",
        "with 25% of holes, between 40% and 76% for some portion",
        fewer_bitmaps,
        "entries that look-ups want most stay, and under pressure those are fewer in both cases",
    ),
    Claim(
        "worst_loss",
        "section VII-B",
        "holes that are not allocated, dispersed, 90% in all regions: 31.2% slower than the best",
        "16% to 47%",
        worst_loss,
        _ADDED,
    ),
    Claim(
        "worst_gain",
        "section VII-B",
        "which is 2.4 times as fast as 2 MiB and 4 KiB pages",
        "1.6 to 3.6 times",
        worst_gain,
        _ADDED,
    ),
    Claim(
        "bitmaps",
        "section IV-B",
        "bitmaps take 0.003% of memory",
        "0.0025% to 0.004%",
        bitmap_memory,
        "nothing may",
    ),
    Claim(
        "programs_ideal",
        "Figure 9 and section VII-C",
        "on a memory as it was seen (50%, 25% clustered) programs have 93.2% to 99.9% of what "
        "large pages would give without fragmentation",
        "at least 90% for every program",
        of_ideal(0.90, is_virtual=False),
        _OTHER_PROGRAMS,
    ),
    Claim(
        "programs_gain",
        "Figure 9 and section VII-C",
        "and gain 2.0% to 11.5% over 2 MiB and 4 KiB pages",
        "1% to 23%, on average",
        program_gain(0.01, 0.23, is_virtual=False),
        _OTHER_PROGRAMS,
    ),
    Claim(
        "virtual_ideal",
        "Figure 11 and section VII-E",
        "in a virtual machine they have 78.9% to 99.9% of it",
        "at least 75% for every program",
        of_ideal(0.75, is_virtual=True),
        _IN_GUEST,
    ),
    Claim(
        "virtual_gain",
        "Figure 11 and section VII-E",
        "and gain 7.2% to 48.0%",
        "3.6% to 96%, on average",
        program_gain(0.036, 0.96, is_virtual=True),
        _IN_GUEST,
    ),
    Claim(
        "nested_walks",
        "section VII-E",
        "a walk there makes six memory references on average, of 24",
        "3 to 12",
        nested_references,
        _FEW_NODES,
    ),
    Claim(
        "redis_bloat",
        "Table I",
        "large pages take 20% more memory for Redis with values of 16 KiB (92.9 of 77.7 GB)",
        "10% to 40% more",
        of_server(_SERVER, bloat),
        _SMALL,
    ),
    Claim(
        "redis_no_bloat",
        "section III-B",
        "perforated pages take none of that",
        "what 4 KiB pages take, to 1%",
        of_server(_SERVER, no_bloat),
        "nothing may",
    ),
    Claim(
        "redis_misses",
        "section III-B",
        "simulated MPKI are 1.75 with 4 KiB pages and 1.05 with large ones",
        "large pages leave 40% to 80%",
        of_server(_STREAM, large_misses),
        _LOCALITY,
    ),
    Claim(
        "redis_perforated",
        "section III-B",
        "and 1.45 with perforated ones, roughly half of what large pages save",
        "25% to 75% of it",
        of_server(_STREAM, perforated_misses),
        _NO_HOLES,
    ),
    Claim(
        "server_misses",
        "section III-B",
        "the same of a real server: 1.75 and 1.05",
        "large pages leave 40% to 80%",
        of_server(_SERVER, large_misses),
        _SMALL,
    ),
    Claim(
        "server_perforated",
        "section III-B",
        "and 1.45",
        "25% to 75% of what large pages save",
        of_server(_SERVER, perforated_misses),
        _NO_HOLES,
    ),
    Claim(
        "gtsm",
        "Figure 10 and section VII-D",
        "with 5.5% of randomly placed faults, perforated pages are 6.2% before GTSM on average",
        "3.1% to 12.4%, on random accesses",
        before_gtsm,
        "that is where most chunks have no 32 sub-blocks without a fault, so that GTSM has base "
        "pages; and the paper's average is of programs",
    ),
    Claim(
        "no_whole_block",
        "section VII-D",
        "which leave no 2 MiB block whole",
        "no page of 2 MiB",
        no_whole_block,
        "nothing may",
    ),
    Claim(
        "half_of_memory",
        "section VII-D",
        "and up to which GTSM can provide half of memory as large pages",
        "large pages for all of the data, which are a sixth of memory",
        half_of_memory,
        "where each frame of 4 KiB is faulty with 5.5%, a sub-block of 16 is sound with "
        "0.945^16 = 40%, and 32 or more of 64 are with 8%; half of all chunks have so many up to "
        "4.3% of faults. What else the paper has placed at random it does not say",
    ),
)

LEFT_OUT = (
    "Performance of Redis in requests a second, and same-page merging (section III-A), are "
    "measured on a machine.",
    "Section III-B says that large pages have 82% lower MPKI; by Table I (1.00 and 1.83) it is "
    "small pages that have 83% more.",
)
"""The parts of the paper that are left out, and why."""
