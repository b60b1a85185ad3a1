"""Cycles by linear models, and with overlapped walks."""

from __future__ import annotations

import pytest

import octavo
from octavo.simulation.linear_models import linear_models
from octavo.simulation.model import Simulated
from octavo.simulation.view import grids

STREAM = "synth:gups?table=64MiB&updates=20k"


def timed(design: str, cycles: int, walks: int, walk_cycles: int, hits: int) -> Simulated:
    counts = {
        ("core", "cycles"): cycles,
        ("core", "cycles_walks"): walk_cycles,
        ("core.stack", "base"): cycles,
        ("walker", "walks"): walks,
        ("tlb.l2", "hits"): hits,
    }
    return Simulated(design, counts, instructions=1000, references=1000, base_cpi=0.25)


BASE = timed("base4k", 10_000, 100, 4000, 50)
HUGE = timed("thp", 7000, 10, 1000, 20)
OTHER = timed("tps", 7500, 25, 2000, 30)


def test_the_models_by_hand() -> None:
    models = {model.key: model.cycles for model in linear_models([BASE, HUGE, OTHER])}
    assert {key: cycles["tps"] for key, cycles in models.items()} == {
        "basu": 40 * 25 + 10_000 - 4000,
        "pham": 7 * 30 + 2000 + 10_000 - 7 * 50 - 4000,
        "alam": 2000 + 7000 - 1000,
        "yaniv": 7000 + 3000 * 1000 / 3000,
    }
    # A model reproduces the cycles that it was fitted to.
    assert {models[key]["base4k"] for key in ("basu", "pham", "yaniv")} == {10_000}
    assert {models[key]["thp"] for key in ("alam", "yaniv")} == {7000}


@pytest.mark.parametrize("missing", [BASE, HUGE])
def test_there_are_no_models_without_both_page_sizes(missing: Simulated) -> None:
    assert not list(linear_models([one for one in (BASE, HUGE, OTHER) if one is not missing]))


def test_models_are_shown_with_the_times_of_the_core() -> None:
    result = octavo.sim(STREAM, designs=["base4k", "thp", "rmm"], timing="out-of-order")
    titles = [grid.title for grid in grids(result)]
    assert "Execution time by linear models, over that of the core" in titles
    rows = [row for row in result.rows if row["component"] == "linear_models"]
    assert len(rows) == 4 * 3
    pair = octavo.sim(STREAM, timing="out-of-order")
    assert not any("linear models" in grid.title for grid in grids(pair))


def test_overlapped_walks_take_at_most_the_cycles_of_all_walks() -> None:
    added = octavo.sim(STREAM, timing="additive")
    overlapped = octavo.sim(STREAM, timing="overlapped")
    for one, other in zip(added.total, overlapped.total, strict=True):
        least = one.count("walker", "cycles_overlapped")
        assert 0 < least <= one.walk_cycles
        assert other.cycles == pytest.approx(one.cycles - one.walk_cycles + least)
        assert other.lost_cycles == pytest.approx(one.lost_cycles - one.walk_cycles + least)
        assert one.counts == other.counts
    assert overlapped.timing.sentence() == "Cycles are overlapped: --timing overlapped asks for it."
    cycles = [
        row["value"]
        for result in (added, overlapped)
        for row in result.rows
        if (row["component"], row["counter"]) == ("core", "cycles") and "interval" not in row
    ]
    assert cycles == [round(one.cycles) for result in (added, overlapped) for one in result.total]
