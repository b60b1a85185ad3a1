"""The memories of the study of perforated pages: numbers of clean 2 MiB regions, of regions with
holes, and of regions that have room only for base pages.

The policy of the design takes clean blocks first, then regions with holes. So a memory that has
exactly the numbers of both that a program needs gives it the portions on the axes of the paper's
Figures 7 to 11. Everything else (pages of holes, page tables, small mappings) lies in *dense*
regions, which are so full of background memory that no policy perforates them.
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
"""Pairs: the largest fraction of holes, and the share of a dense region that is then taken."""
_SLACK_PAGES = 4096
"""Room for further page tables and shadow nodes, code, and other mappings of a process."""


@dataclass(frozen=True)
class Fragments:
    """How memory is fragmented, as a program sees it."""

    portion: float
    """The share of the program's 2 MiB regions that have holes."""
    fraction: float
    """The share of holes in each of them."""
    layout: Layout
    large: float | None = None
    """The share of regions that are clean; None: all regions without holes. Other regions have base
    pages alone.
    """

    @property
    def clean(self) -> float:
        """The share of regions that are clean."""
        return 1.0 - self.portion if self.large is None else self.large


def dense_fraction(fraction: float) -> float:
    """The share of a dense region that is taken where other regions have this fraction of holes."""
    return next(dense for most, dense in _DENSE if fraction <= most)


def always(fragments: Fragments) -> str:
    """The design of perforated pages whose policy makes a page of every region with these holes,
    and of no dense region.
    """
    # The policy takes regions below this share. Some of them may have base pages of the program.
    percent = floor(100 * dense_fraction(fragments.fraction)) - 1
    return f"{PERFORATED}:max_immovable_percent={percent}:max_filter_bits=8:min_parts=0"


def fragmented(
    fragments: Fragments, regions: int, other_pages: int = 0, *, has_spare: bool = False
) -> dict[str, Any]:
    """Settings of a machine whose memory is fragmented as given for a program of `regions` 2 MiB
    regions and `other_pages` base pages. With `has_spare` there are twice as many regions with
    holes: a program that fills one region after another puts pages of holes into some of them, and
    no more regions become perforated pages than the program needs.
    """
    clean = round(fragments.clean * regions)
    holed = min(round(fragments.portion * regions), regions - clean)
    holes = round(fragments.fraction * REGION_PAGES)
    spare = holed if has_spare else 0
    taken = dense_fraction(fragments.fraction)
    base_pages = (regions - clean - holed) * REGION_PAGES + holed * holes + other_pages
    # Each region has a page table, or a node of a shadow table.
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
