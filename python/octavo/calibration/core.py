"""Sizes of the structures of a core, by samples: instructions, registers, loads, stores, walks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING

from octavo.calibration.file import Spread
from octavo.calibration.knees import spread_of, undisturbed

if TYPE_CHECKING:
    from octavo._core import WalkerSamples, WindowSamples

_FILLED = {
    "mixed": ("reorder_buffer", 2),
    "additions": ("rename_registers", 2),
    "loads": ("load_queue", 2),
    "stores": ("store_queue", 0),
}
"""The structure that each filler fills, and how many entries of it the two loads that miss take."""
_STEP = 1.5
"""A pair of loads takes twice as long once they do not overlap: a step is half of that."""
_FEWEST_BELOW, _FEWEST_ABOVE = 4, 3
"""Numbers of instructions on either side of a step: a disturbed one alone makes none."""


def windows_of(samples: Sequence[WindowSamples]) -> dict[str, Spread]:
    """Entries of what the fillers fill; nothing for a filler that shows no step.

    Low: so many surely find room; high: so many surely are all; median: their middle.
    """
    found = {}
    for filler, (name, own) in _FILLED.items():
        of_filler = [one for one in samples if one["filler"] == filler and one["ticks"]]
        counts = [one["instructions"] for one in of_filler]
        step = _step([undisturbed(one["ticks"]) for one in of_filler])
        if step is not None:
            low, high = counts[step - 1] + own, counts[step] + own - 1
            found[name] = Spread(low, (low + high) / 2, high)
    return found


def _step(times: Sequence[float]) -> int | None:
    """The first place from which on times are over the step; None where there is none."""
    for place in range(_FEWEST_BELOW, len(times) - _FEWEST_ABOVE + 1):
        most = _STEP * median(times[:place])
        if all(time > most for time in times[place : place + _FEWEST_ABOVE]):
            return place
    return None


def walkers_of(
    samples: Sequence[WalkerSamples], walk_ticks: Mapping[int, float]
) -> dict[str, Spread]:
    """Page walks at once, where more chases make a load no faster: the ticks of a walk over those
    between loads (Little's law). `walk_ticks` has what a walk takes, by pages, for those numbers of
    pages that walk at every load.

    Low and high: the 10% and 90% quantiles over the numbers of pages.
    """
    at_once = []
    for one in samples:
        times = [undisturbed(of["ticks"]) for of in one["by_chases"] if of["ticks"]]
        if times and walk_ticks.get(one["pages"], 0) > 0:
            at_once.append(walk_ticks[one["pages"]] / min(times))
    return {"walkers": spread_of(at_once)} if at_once else {}
