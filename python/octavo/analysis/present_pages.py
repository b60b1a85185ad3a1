"""Memory that already has 2 MiB pages, with this program and this system's settings unchanged.

The kernel gives 2 MiB pages to anonymous memory where a program asks (`madvise`), or everywhere
(`always`) but where the program refuses them; see transhuge.rst of the kernel's documentation.
Shared memory has a setting of its own. Memory of hugetlbfs always has them. Whether the kernel
found free 2 MiB pages during the run is not known here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from octavo.analysis.advice import Advice, Case, Thresholds
from octavo.analysis.rows import Row, region_key
from octavo.base.huge_pages import PMD_PAGE, HugePages
from octavo.base.text import capitalised

ASKED = "asked_huge_bytes"
"""The counter of bytes of a region for which the program asked 2 MiB pages."""
ASKED_SMALL = "asked_small_bytes"
"""The counter of bytes for which it refused huge pages."""
HUGETLB = "hugetlb_bytes"
"""The counter of bytes in pages of hugetlbfs."""
_NEARLY_ALL = 0.9
_LARGE_MAPPING = 2 * PMD_PAGE


def leave_as_is(
    advice: Sequence[Advice], rows: Sequence[Row], host: HugePages, limits: Thresholds
) -> list[Advice]:
    """The advice, with the reason `already` where the memory already has 2 MiB pages.

    The whole program has that reason where its other regions would gain too little.
    """
    counters = (ASKED, ASKED_SMALL, HUGETLB)
    asked = {
        (region_key(row), row["counter"]): row["value"]
        for row in rows
        if row.get("counter") in counters and "region" in row
    }

    def is_so(case: Case, counter: str) -> bool:
        part = asked.get((case.key, counter), 0)
        return is_nearly_all(part, case.base.touched_bytes, case.bytes)

    has = {
        id(item)
        for item in advice
        if item.case.region is not None
        and item.case.stream == "data"
        and (
            is_so(item.case, HUGETLB)
            or (
                not is_so(item.case, ASKED_SMALL)
                and _has(item.case, host, is_asked=is_so(item.case, ASKED))
            )
        )
    }
    gains = (item.gain.expected for item in advice if id(item) in has and item.gain is not None)
    had = sum(gains)
    return [_judged(item, id(item) in has, had, limits) for item in advice]


def _judged(item: Advice, has: bool, had: float, limits: Thresholds) -> Advice:
    """Advice on memory that `has` 2 MiB pages; `had` is the gain of all regions that have them."""
    if not item.changes or item.page_size != PMD_PAGE or item.gain is None:
        return item
    if item.case.region is None:
        has = item.case.stream == "data" and item.gain.expected - had < limits.min_gain
    if not has:
        return item
    text = (
        f"{capitalised(item.case.subject)}: 2 MiB, which it has already, as the program and this "
        f"system are. They save {item.gain} of the time; nothing is to be done."
    )
    return replace(item, reason="already", text=text)


def is_nearly_all(part: int, touched_bytes: int, most_bytes: int | None) -> bool:
    """Whether `part` bytes of a region are nearly all that it has touched.

    A region that moved, like a block that grows, has touched more than the `most_bytes` that it
    had at one time.
    """
    return part >= _NEARLY_ALL * min(touched_bytes, most_bytes or touched_bytes)


def _has(case: Case, host: HugePages, *, is_asked: bool) -> bool:
    if case.path is not None:
        return False
    if case.region_kind == "shared":
        return host.shares_huge_pages and (case.bytes or 0) >= _LARGE_MAPPING
    setting = host.thp_sizes.get(PMD_PAGE)
    if setting == "always":
        # Other memory grows in steps that are too small for 2 MiB pages.
        return case.region_kind == "anonymous" and (case.bytes or 0) >= _LARGE_MAPPING
    return setting == "madvise" and is_asked and case.region_kind in ("anonymous", "heap")
