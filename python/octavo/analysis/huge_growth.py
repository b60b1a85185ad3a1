"""The growth of memory in 2 MiB pages, where a system can give them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from octavo.analysis.advice import Case
from octavo.analysis.rows import HUGE_PAGES, RegionKey, Row, region_key
from octavo.base.huge_pages import PMD_PAGE
from octavo.base.units import BASE_PAGE


def huge_growth(rows: Sequence[Row]) -> int | None:
    """Bytes that the whole program's memory grows by: its processes' own where 2 MiB pages fit, and
    shared memory, but no libraries' data. None where it is not known.
    """
    own = next(
        (
            row["value"]
            for row in rows
            if row["component"] == HUGE_PAGES and "process" not in row and "program" not in row
        ),
        None,
    )
    if own is None:
        return None
    shared: defaultdict[RegionKey, dict[int, int]] = defaultdict(dict)
    for row in rows:
        kind = (row["component"], row.get("stream"), row.get("region_kind"))
        if kind == ("memory", "data", "shared"):
            shared[region_key(row)][row["page_size"]] = row["touched_bytes"]
    return own + sum(max(0, of.get(PMD_PAGE, 0) - of[BASE_PAGE]) for of in shared.values())


def with_growth(case: Case, growth: int | None) -> Case:
    """The data of a whole program with the memory that it has in 2 MiB pages; others as it is."""
    if growth is None or case.stream != "data" or case.region is not None:
        return case
    base = case.base.touched_bytes
    points = []
    for point in case.points:
        if point.page_size == PMD_PAGE:
            touched = min(point.touched_bytes, base + growth)
            share = touched / base - 1 if base else None
            point = replace(point, touched_bytes=touched, growth=share)
        points.append(point)
    return replace(case, points=tuple(points), has_fitting_pages=True)
