"""Claims of the paper on Tailored Page Sizes, and the answers of the programs here.

Its charts are pictures without numbers; every number of its results that its text gives is here,
with the place, or in `LEFT_OUT` with the reason. Ours is computed, and so is whether both say the
same.
"""

from __future__ import annotations

from octavo.studies.coded_claims import Claim
from octavo.studies.tailored_measurement import BASELINE, COLT, RMM, TPS
from octavo.studies.tailored_page_sizes_answers import (
    all_sizes,
    faster_in_order,
    few_pages,
    hit_rate,
    like_rmm,
    local_gain,
    middle_coverage,
    misses_gone,
    of_ideal,
    of_one,
    on_average,
    references_gone,
    rmm_first,
    same_memory,
    small_first,
    speedup,
)

GUPS = "gups"


_COLD = (
    "runs are short: first touches, which no design saves, are a larger part of all misses than in "
    "runs of hours"
)
_LITTLE_LOST = (
    "the baseline itself may lose less here than on the paper's machine, so that less can be "
    "gained: cache misses are added up in full, and the page tables of smaller memories stay in "
    "the caches"
)

_OTHER_THREAD = (
    f"{_LITTLE_LOST}; and the second thread does the same here, where the paper does not say what "
    "it did"
)

CLAIMS = (
    Claim(
        "misses_tps",
        "Figure 10",
        "TPS eliminates 98.0% of the first-level misses of data (97% in the abstract)",
        "at least 90%, on average",
        on_average(misses_gone(TPS), 0.90, 1.0),
        _COLD,
    ),
    Claim(
        "hit_rate",
        "section I",
        "it raises the hit rate of the first level to more than 99%",
        "for every program",
        hit_rate,
        "a workload of nothing but random accesses misses wherever its pages are more than entries",
    ),
    Claim(
        "misses_colt",
        "Figure 10",
        "CoLT eliminates 36.6% of them",
        "15% to 60%, on average",
        on_average(misses_gone(COLT), 0.15, 0.60),
        "which pages lie side by side depends on the operating system",
    ),
    Claim(
        "misses_colt_gups",
        "Figure 10",
        "and next to none for GUPS",
        "at most 10%",
        of_one(GUPS, misses_gone(COLT), -0.10, 0.10),
        "a table of some hundred MiB is not gigabytes: a few times the reach is a part of it",
    ),
    Claim(
        "misses_rmm",
        "Figure 10",
        "RMM eliminates none, as its range TLB stands beside the second level",
        "-5% to 5%, on average",
        on_average(misses_gone(RMM), -0.05, 0.05),
        "it backs memory when it is mapped, so that its first level sees other page sizes",
    ),
    Claim(
        "references_tps",
        "Figure 11 and the abstract",
        "TPS eliminates about 98% of the memory references of page walks",
        "at least 90%, on average",
        on_average(references_gone(TPS), 0.90, 1.0),
        f"{_COLD}; each is two walks, the one that faults and the one after it",
    ),
    Claim(
        "references_rmm",
        "Figure 11",
        "RMM and TPS do nearly the same",
        "on average they differ by at most 5% of the references",
        like_rmm,
        "RMM has no first touches, as it backs memory when it is mapped",
    ),
    Claim(
        "rmm_first",
        "Figure 11",
        "RMM is generally slightly ahead",
        "for half of the programs",
        rmm_first,
        "a range TLB has few entries, and programs of today map many libraries",
    ),
    Claim(
        "growth",
        "Figure 9",
        "with 2 MiB pages alone memory grows but modestly",
        "by at most 25%, on average",
        on_average(lambda m: m.growth_2m, 0.0, 0.25),
        "a program of a few MiB grows by the tails of its mappings, whatever it does",
    ),
    Claim(
        "same_memory",
        "section IV-B",
        "at the threshold of 100%, TPS uses exactly the memory of 4 KiB pages",
        "the same bytes for every program",
        same_memory,
        "nothing may",
    ),
    Claim(
        "speedup_tps",
        "Figure 13",
        "TPS makes programs 15.7% faster",
        "by 8% to 31%, on average",
        on_average(speedup(TPS), 0.08, 0.31),
        _LITTLE_LOST,
    ),
    Claim(
        "speedup_rmm",
        "Figure 13",
        "RMM 9.4%",
        "by 5% to 19%, on average",
        on_average(speedup(RMM), 0.05, 0.19),
        _LITTLE_LOST,
    ),
    Claim(
        "speedup_colt",
        "Figure 13",
        "CoLT 2.7%",
        "by 1% to 6%, on average",
        on_average(speedup(COLT), 0.01, 0.06),
        _LITTLE_LOST,
    ),
    Claim(
        "order",
        "Figure 13",
        "so that TPS is before RMM, and RMM before CoLT",
        "by the averages",
        faster_in_order,
        "CoLT saves first-level misses and RMM saves walks, and where there are few walks that is "
        "less",
    ),
    Claim(
        "of_ideal",
        "Figure 13",
        "TPS gains 99.2% of what an ideal translation would",
        "at least 90%, on average",
        on_average(of_ideal(TPS), 0.90, 1.0),
        _COLD,
    ),
    Claim(
        "speedup_tps_smt",
        "Figure 14",
        "with a second thread TPS makes programs 21.6% faster",
        "by 11% to 43%, on average",
        on_average(speedup(TPS, smt=True), 0.11, 0.43),
        _OTHER_THREAD,
    ),
    Claim(
        "speedup_rmm_smt",
        "Figure 14",
        "RMM 15.2%",
        "by 8% to 30%, on average",
        on_average(speedup(RMM, smt=True), 0.08, 0.30),
        _OTHER_THREAD,
    ),
    Claim(
        "speedup_colt_smt",
        "Figure 14",
        "CoLT 4.7%",
        "by 2% to 10%, on average",
        on_average(speedup(COLT, smt=True), 0.02, 0.10),
        "both threads touch memory by turns here, so that the frames of either alternate, and "
        "nothing lies side by side that could be coalesced",
    ),
    Claim(
        "of_ideal_smt",
        "Figure 14",
        "TPS gains 97.7% of what an ideal translation would",
        "at least 90%, on average",
        on_average(of_ideal(TPS, smt=True), 0.90, 1.0),
        _COLD,
    ),
    Claim(
        "coverage",
        "Figure 15",
        "a loaded machine's free memory has much contiguity between 4 KiB and 2 MiB",
        "64 KiB pages could use a quarter more of it than 2 MiB pages",
        middle_coverage,
        "this machine is another one, and may have much free memory that is not fragmented",
    ),
    Claim(
        "fragmented_gups",
        "Figure 16",
        "under fragmentation GUPS gains little from TPS",
        "at most 15% of the misses",
        of_one(GUPS, misses_gone(TPS, fragmented=True), -0.15, 0.15),
        "a smaller table is in fewer blocks",
    ),
    Claim(
        "fragmented_local",
        "Figure 16",
        "XSBench and Graph500 gain much",
        "at least 30% of the misses",
        local_gain,
        "what they gain is the part of their accesses that is local, and that depends on sizes",
    ),
    Claim(
        "all_sizes",
        "Figure 18",
        "each program uses nearly all page sizes",
        "three quarters of those up to its largest",
        all_sizes,
        "a workload of one or two arrays needs but the sizes that these are made of",
    ),
    Claim(
        "small_first",
        "Figure 18",
        "there are more of the smaller pages",
        "half of all pages are below 2 MiB",
        small_first,
        "an array that is filled from end to end becomes a few large pages",
    ),
    Claim(
        "few_pages",
        "Figure 18",
        "and few in all",
        "at most a tenth of the pages of 4 KiB",
        few_pages,
        "a program that scatters few touches over many mappings has nothing that could grow",
    ),
)

LEFT_OUT = (
    "Figures 2, 3, 12 and 17 (page walks with SMT and virtual machines, the first level in a "
    "cycle-based core, walk cycles that are lost time, 0.16% of system time) are measured on a "
    "machine or in another simulator: `octavo sim --perf-4k --perf-thp` takes such measurements.",
    f"The baseline of all is `{BASELINE}`, as in the paper.",
)
"""The parts of the paper that are left out, and why."""
