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
"""The structure that each filler fills, and its entries that the two loads that miss take."""
_STEP = 1.5
"""Factor of time that counts as a step: two loads that no longer overlap take twice as long."""
_FEWEST_BELOW, _FEWEST_ABOVE = 4, 3
"""Fewest samples on either side of a step, so that a single disturbed one makes no step."""


def windows_of(samples: Sequence[WindowSamples]) -> dict[str, Spread]:
    """Entries of the structures that the fillers fill, without those that show no step.

    Low: the most entries that were seen to fit; high: one less than the fewest that were seen not
    to fit; median: the middle between both.
    """
    found = {}
    for filler, (name, own) in _FILLED.items():
        series = [one for one in samples if one["filler"] == filler and one["ticks"]]
        counts = [one["instructions"] for one in series]
        step = _step([undisturbed(one["ticks"]) for one in series])
        if step is not None:
            low, high = counts[step - 1] + own, counts[step] + own - 1
            found[name] = Spread(low, (low + high) / 2, high)
    return found


def _step(times: Sequence[float]) -> int | None:
    """The index of the first time after the step; None without a step."""
    for place in range(_FEWEST_BELOW, len(times) - _FEWEST_ABOVE + 1):
        most = _STEP * median(times[:place])
        if all(time > most for time in times[place : place + _FEWEST_ABOVE]):
            return place
    return None


def walkers_of(
    samples: Sequence[WalkerSamples], walk_ticks: Mapping[int, float]
) -> dict[str, Spread]:
    """The number of page walks at once, by Little's law: the ticks of a walk over the ticks between
    loads, at the number of chases beyond which loads become no faster. `walk_ticks` are the ticks
    of a walk, by the number of pages, for numbers of pages at which every load walks.

    Low and high: the 10% and 90% quantiles over the numbers of pages.
    """
    at_once = []
    for one in samples:
        times = [undisturbed(chases["ticks"]) for chases in one["by_chases"] if chases["ticks"]]
        if times and walk_ticks.get(one["pages"], 0) > 0:
            at_once.append(walk_ticks[one["pages"]] / min(times))
    return {"walkers": spread_of(at_once)} if at_once else {}
