"""The memories of the study of perforated pages: so many of a program's 2 MiB regions clean, so
many with holes, and the rest only good for base pages.

The machine has a policy take clean blocks first, then regions with holes. So a memory that has
exactly as many of both as the program asks for gives it the portions that the paper's Figures 7 to
11 are drawn over. Everything else (holes' pages, page tables, small mappings) lies in *dense*
regions, so full of background memory that no policy perforates them.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, floor
from typing import Any, Literal

from octavo.base.units import BASE_PAGE, MIB
from octavo.studies.perforated_pages.measurement import PERFORATED

Layout = Literal["clustered", "dispersed"]
LAYOUTS: tuple[Layout, ...] = ("clustered", "dispersed")

REGION = 2 * MIB
REGION_PAGES = REGION // BASE_PAGE
_DENSE = ((0.75, 0.8125), (1.0, 0.9375))
"""The share of a dense region that is taken, for fractions of holes up to the first number."""
_SLACK_PAGES = 4096
"""Page tables and shadow nodes beside those counted, code, what else a process maps."""


@dataclass(frozen=True)
class Fragments:
    """How memory is fragmented, as a program sees it."""

    portion: float
    """The share of the program's 2 MiB regions that have holes."""
    fraction: float
    """The share of holes in each of them."""
    layout: Layout
    large: float | None = None
    """The share of regions that are clean; None: all that have no holes. The rest has base pages
    alone."""

    @property
    def clean(self) -> float:
        """The share of regions that are clean."""
        return 1.0 - self.portion if self.large is None else self.large


def dense_fraction(fraction: float) -> float:
    """How much of a dense region is taken, where other regions have this fraction of holes."""
    return next(dense for most, dense in _DENSE if fraction <= most)


def always(fragments: Fragments) -> str:
    """The design of perforated pages whose policy makes a page of each region with these holes, and
    of no dense one.
    """
    # The policy takes regions below this. Base pages of the program may lie in some of them, too.
    percent = floor(100 * dense_fraction(fragments.fraction)) - 1
    return f"{PERFORATED}:max_immovable_percent={percent}:max_filter_bits=8:min_parts=0"


def fragmented(
    fragments: Fragments, regions: int, other_pages: int = 0, *, has_spare: bool = False
) -> dict[str, Any]:
    """Settings of a machine whose memory is like this for a program of so many 2 MiB regions, which
    takes `other_pages` base pages beside. With `has_spare` there are twice as many regions with
    holes: a program that fills one region after another puts pages of holes into some of them, and
    no more become perforated pages than it asks for.
    """
    clean = round(fragments.clean * regions)
    holed = min(round(fragments.portion * regions), regions - clean)
    holes = round(fragments.fraction * REGION_PAGES)
    spare = holed if has_spare else 0
    taken = dense_fraction(fragments.fraction)
    base_pages = (regions - clean - holed) * REGION_PAGES + holed * holes + other_pages
    # Each region has a page table or a shadow's.
    wanted = base_pages + 2 * regions + _SLACK_PAGES
    dense = ceil(wanted / (REGION_PAGES - round(taken * REGION_PAGES)))
    every = clean + holed + spare + dense
    groups = {"dense": _group(dense / every, taken, "clustered")}
    if holed and holes:
        groups["holes"] = _group((holed + spare) / every, fragments.fraction, fragments.layout)
    return {
        "memory.bytes": every * REGION,
        "memory.fragmentation": {"kind": "mixed-holes", "groups": groups},
    }


def _group(portion: float, fraction: float, layout: Layout) -> dict[str, Any]:
    return {"portion": portion, "fraction": fraction, "layout": layout, "holes": "immovable"}
