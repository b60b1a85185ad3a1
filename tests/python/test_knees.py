"""Knees of computed curves: sharp and gradual ones, noise, disturbances, missing levels."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cases import cases
from octavo.calibration.knees import CurvePoint, Knees, find_knees, quantile

PAGES = [8 + step for step in range(8)]
PAGES = [size << octave for octave in range(11) for size in PAGES if size << octave <= 12288]
ROUNDS = 15
HIT, WALK = 7.0, 40.0


def sharp(first: int, second: int) -> Callable[[int], float]:
    """Two fully associative LRU levels with cyclic accesses: all hit, or all miss."""
    return lambda pages: 0.0 if pages <= first else HIT if pages <= second else HIT + WALK


def gradual(first: int, second: int) -> Callable[[int], float]:
    """A second level with unevenly filled sets: misses from 0.6 to 1.6 times its entries."""

    def cost(pages: int) -> float:
        if pages <= first:
            return 0.0
        share = (pages / second - 0.6) / 1.0
        return HIT + WALK * min(max(share, 0.0), 1.0)

    return cost


def curve(
    cost: Callable[[int], float], *, noise: float = 0.0, seed: int = 1, most: int = PAGES[-1]
) -> list[CurvePoint]:
    """Rounds of a curve; each sample has a normal error, and one in ten is disturbed."""
    draw = random.Random(seed)

    def sample(cycles: float) -> float:
        disturbed = draw.random() < 0.1 and noise > 0
        return cycles + draw.gauss(0, noise) + (draw.uniform(0, 300) if disturbed else 0)

    def samples(cycles: float) -> list[float]:
        return [sample(cycles) for _ in range(ROUNDS)]

    return [
        CurvePoint(pages, samples(4 + cost(pages)), samples(4.0))
        for pages in PAGES
        if pages <= most
    ]


def entries(found: Knees) -> tuple[float | None, float | None]:
    reach = found.reach
    return (
        None if reach.first is None else reach.first.median,
        None if reach.second is None else reach.second.median,
    )


@pytest.mark.parametrize(("first", "second"), [(64, 2048), (32, 1536), (96, 4096), (72, 3072)])
def test_sharp_steps_are_found_exactly(first: int, second: int) -> None:
    found = find_knees(curve(sharp(first, second)))
    assert entries(found) == (first, second)
    assert found.missing is None
    reach = found.reach.first
    assert reach is not None
    assert reach.low == first
    assert reach.high == PAGES[PAGES.index(first) + 1]
    assert found.second_level_hit is not None
    assert found.second_level_hit.median == HIT


@settings(max_examples=cases(10))
@given(st.integers(0, 10**6), st.floats(0.05, 2.0))
def test_noise_and_disturbances_move_no_sharp_step_by_more_than_its_bounds(
    seed: int, noise: float
) -> None:
    """A step hidden by noise is reported as missing."""
    found = find_knees(curve(sharp(64, 2048), noise=noise, seed=seed))
    for reach, true in ((found.reach.first, 64), (found.reach.second, 2048)):
        if reach is None:
            assert found.missing is not None
            continue
        assert reach.low <= true < reach.high
        assert true / 1.3 <= reach.median <= true * 1.3


def test_sharp_steps_are_nearly_always_found() -> None:
    both = (64, 2048)
    found = [entries(find_knees(curve(sharp(*both), noise=1.0, seed=seed))) for seed in range(40)]
    assert sum(None not in one for one in found) >= 38


@settings(max_examples=cases(10))
@given(st.integers(0, 10**6))
def test_a_gradual_step_is_half_done_at_its_entries(seed: int) -> None:
    found = find_knees(curve(gradual(64, 2048), noise=0.5, seed=seed))
    reach = found.reach.second
    assert reach is not None
    assert reach.low <= 0.75 * 2048
    assert 0.8 * 2048 <= reach.median <= 1.3 * 2048
    assert reach.high >= 1.4 * 2048


def test_rounds_that_disagree_widen_the_bounds() -> None:
    quiet = find_knees(curve(gradual(64, 2048))).reach.second
    noisy = find_knees(curve(gradual(64, 2048), noise=1.5)).reach.second
    assert quiet is not None
    assert noisy is not None
    assert noisy.high - noisy.low >= quiet.high - quiet.low


def test_absent_levels_are_not_found() -> None:
    flat = find_knees(curve(lambda pages: 0.0, noise=0.3))
    assert entries(flat) == (None, None)
    assert flat.second_level_hit is None
    assert flat.missing == f"no step up to {PAGES[-1]} pages"
    small = find_knees(curve(sharp(64, 2048), most=512))
    assert entries(small) == (64, None)
    assert small.missing == "no second step up to 512 pages"
    assert small.second_level_hit is not None
    short = find_knees(curve(sharp(64, 2048), most=72))
    assert entries(short) == (None, None)
    assert find_knees([]).missing == "too few numbers of pages were measured"


def test_an_incomplete_second_step_is_not_guessed() -> None:
    found = find_knees(curve(gradual(64, 2048), most=2048))
    assert entries(found) == (64, None)
    assert found.missing is not None
    assert "begins at 1408 pages and is not over at 2048" in found.missing
    assert entries(find_knees(curve(sharp(64, 2048), most=3584))) == (64, 2048)
    assert entries(find_knees(curve(sharp(64, 2048), most=2304)))[1] is None


def test_without_a_second_level_only_the_first_is_found() -> None:
    found = find_knees(curve(lambda pages: max(0, pages - 64) / 4))
    assert entries(found) == (64, None)
    assert found.missing == "beyond the first level the cost rises without a flat part"
    assert found.second_level_hit is None


def test_levels_that_overlap_are_not_guessed() -> None:
    found = find_knees(curve(sharp(64, 192)))
    assert entries(found)[1] is None
    assert found.missing is not None


def test_noise_above_the_step_finds_nothing() -> None:
    found = find_knees(curve(sharp(64, 2048), noise=300.0))
    assert entries(found) == (None, None)
    assert found.missing is not None


def test_a_cost_from_the_start_is_no_knee() -> None:
    found = find_knees(curve(lambda pages: 20.0 * PAGES.index(pages)))
    assert entries(found) == (None, None)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=30))
def test_quantiles_lie_among_the_samples(samples: list[float]) -> None:
    assert quantile(samples, 0.0) == min(samples)
    assert quantile(samples, 1.0) == max(samples)
    assert min(samples) <= quantile(samples, 0.3) <= quantile(samples, 0.7) <= max(samples)
