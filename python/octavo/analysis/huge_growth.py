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
    """Bytes by which the whole program's memory grows: private memory where 2 MiB pages fit, and
    shared memory, without data of libraries. None where it is not known.
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
    return own + sum(max(0, sizes.get(PMD_PAGE, 0) - sizes[BASE_PAGE]) for sizes in shared.values())


def with_growth(case: Case, growth: int | None) -> Case:
    """The case with `growth` as growth at 2 MiB, if it is the data of the whole program."""
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
