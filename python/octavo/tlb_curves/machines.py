"""Misses of a machine's TLBs, looked up in curves."""

from __future__ import annotations

from octavo.hardware.tlb_presets import Tlb, TlbMachine
from octavo.tlb_curves.counts import geometry
from octavo.tlb_curves.model import Pair, StreamCurves


def tlb_misses(curves: StreamCurves, tlb: Tlb, page_size: int) -> int | None:
    """Misses of a machine's TLB if all pages have one size; None if unknown."""
    if tlb.sets == 1:
        return curves.full_misses(page_size, tlb.entries)
    return curves.set_misses("low", page_size, tlb.sets, tlb.ways)


def machine_pair_misses(machine: TlbMachine, pair: Pair) -> tuple[Tlb | None, int] | None:
    """Misses of a machine with two page sizes, and the TLB that holds both, if one does."""
    small, large = machine.tlb_of(pair.small), machine.tlb_of(pair.large)
    if small is None or large is None:
        return None
    if small is large:
        full = pair.full.small_misses
        if small.sets != 1 or small.entries > len(full):
            return None
        return small, pair.full.misses(small.entries - 1)
    halves = (("split-small", small), ("split-large", large))
    if any(index not in pair.sets for index, _ in halves):
        return None
    found = [
        geometry(counts, tlb.sets, tlb.ways)
        for index, tlb in halves
        for counts in (pair.sets[index].small_misses, pair.sets[index].large_misses)
    ]
    return None if None in found else (None, sum(number or 0 for number in found))
