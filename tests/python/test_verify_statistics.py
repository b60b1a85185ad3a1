"""The intervals of `octavo verify`, compared with counting all cases, and the decisions on them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import pytest

from octavo.verification.experiment import Experiment, Measured, Plan, Run
from octavo.verification.metric import parse_metric
from octavo.verification.outcome import Outcome, conclude, decision_text
from octavo.verification.settings import AS_NOW, Setting
from octavo.verification.statistics import (
    coverage_of,
    level_of_each,
    median_interval,
    ratios,
    values_needed,
)
from octavo.verification.supervisor import Ended
from octavo.verification.view import headline, settings_grid


def counted_coverage(values: int, rank: int) -> float:
    """The exact coverage: each value is below or above the median with equal probability, and all
    combinations are counted.
    """
    ways = list(product((False, True), repeat=values))
    inside = [way for way in ways if sum(way) >= rank and values - sum(way) >= rank]
    return len(inside) / len(ways)


@pytest.mark.parametrize("values", range(1, 13))
def test_coverage_is_that_of_all_cases(values: int) -> None:
    for rank in range(1, (values + 1) // 2 + 1):
        counted = counted_coverage(values, rank)
        assert coverage_of(values, rank) == pytest.approx(counted, abs=1e-15)


@pytest.mark.parametrize("count", range(1, 13))
@pytest.mark.parametrize("level", [0.5, 0.9, 0.95, 0.99])
def test_the_narrowest_interval_of_enough_coverage_is_taken(count: int, level: float) -> None:
    values = [(7 * number) % 13 + number / 100 for number in range(count)]
    found = median_interval(values, level)
    assert found is not None
    ordered = sorted(values)
    candidates = [
        (ordered[rank - 1], ordered[count - rank], counted_coverage(count, rank))
        for rank in range(1, (count + 1) // 2 + 1)
    ]
    enough = [one for one in candidates if one[2] >= level] or candidates[:1]
    assert (found.low, found.high, found.coverage) == pytest.approx(
        min(enough, key=lambda one: one[1] - one[0])
    )
    assert found.low <= found.median <= found.high
    assert found.values == count


def test_no_values_have_no_interval() -> None:
    assert median_interval([]) is None
    single = median_interval([3.0])
    assert single is not None
    assert (single.low, single.median, single.high, single.coverage) == (3, 3, 3, 0)


def test_ratios_are_of_rounds_in_which_both_count() -> None:
    assert ratios([2.0, None, 9.0, 8.0], [1.0, 5.0, None, 2.0]) == [2.0, 4.0]


def test_more_comparisons_need_more_rounds() -> None:
    assert level_of_each(1) == pytest.approx(0.95)
    assert level_of_each(5) == pytest.approx(0.99)
    # 2 / 2^n must not exceed 0.05 and 0.01.
    assert values_needed(0.95) == 6
    assert values_needed(0.99) == 8


# --- the decision --------------------------------------------------------------------------------


def outcome(
    *values: Sequence[float | None],
    metric: str = "time",
    better: str = "",
    command: Sequence[str] = ("prog",),
) -> Outcome:
    """Of settings `as now`, `a`, `b` … with these values by round."""
    measured = []
    for name, own in zip((AS_NOW, "a", "b", "c"), values, strict=False):
        one = Measured(Setting(name, ""))
        one.runs = [
            Run(value, None if value else "it failed", 1.0, Ended(0) if value else None)
            for value in own
        ]
        measured.append(one)
    plan = Plan([*command], parse_metric([metric], better or None))
    experiment = Experiment(measured, rounds=len(values[0]))
    return conclude(plan, experiment, started_at="2026-01-01T00:00:00+00:00")


NOISE = (1.00, 1.02, 0.99, 1.01, 0.98, 1.00, 1.03, 0.99, 1.02, 1.01)


def shifted(mean: float, offset: int = 3) -> list[float]:
    """The same noise in another order around another mean."""
    return [mean * value for value in (*NOISE[offset:], *NOISE[:offset])]


def test_a_gain_beyond_noise_is_found() -> None:
    found = outcome(NOISE, shifted(0.8), shifted(1.0))
    assert found.decision.best.name == "a"
    assert found.decision.beyond_noise
    assert decision_text(found).startswith(
        "Best: a, 19.2% less wall time than now (18.4% to 21.6%;"
    )
    gain = found.summaries[1].gain
    assert gain is not None
    assert gain.low > 0.15
    assert found.document()["decision"]["best"] == "a"


def test_noise_is_no_gain() -> None:
    found = outcome(NOISE, shifted(0.999), shifted(1.001))
    assert found.decision.best.name == AS_NOW
    assert not found.decision.beyond_noise
    assert decision_text(found).startswith("No gain beyond noise")


def test_a_loss_beyond_noise_is_named() -> None:
    found = outcome(NOISE, shifted(1.3))
    assert not found.decision.beyond_noise
    assert decision_text(found).endswith("Worse than now beyond noise: a.")


def test_settings_that_gain_alike_are_named_together() -> None:
    found = outcome(NOISE, shifted(0.8, 5), shifted(0.79), shifted(0.9))
    assert found.decision.best.name == "b"
    assert found.decision.as_good == ("a",)


def test_higher_rates_are_better() -> None:
    found = outcome(NOISE, shifted(1.25), metric="regex:([0-9.]+) per second")
    assert found.decision.beyond_noise
    assert "more" in decision_text(found)
    gain = found.summaries[1].gain
    assert gain is not None
    # A rate that is 1.25 times as high takes 0.8 of the time.
    assert gain.median == pytest.approx(0.2, abs=0.03)
    worse = outcome(NOISE, shifted(1.25), metric="regex:([0-9.]+) per second", better="lower")
    assert worse.decision.worse == ("a",)


def test_few_rounds_decide_nothing() -> None:
    found = outcome(NOISE[:5], [value / 2 for value in NOISE[:5]])
    assert not found.decision.beyond_noise
    assert decision_text(found).startswith("Too few rounds")
    enough = outcome(NOISE[:6], [value / 2 for value in NOISE[:6]])
    assert enough.decision.beyond_noise


def test_many_settings_need_wider_intervals() -> None:
    """With ten rounds a single outlier is left out for one comparison, and not for three."""
    better = [*(0.9 * value for value in NOISE[:9]), 1.1]
    assert outcome(NOISE, better).decision.beyond_noise
    assert not outcome(NOISE, better, shifted(1), shifted(1)).decision.beyond_noise


def test_runs_that_failed_have_no_partner() -> None:
    holes = [None, *(0.8 * value for value in NOISE[1:])]
    found = outcome(NOISE, holes)
    ratio = found.summaries[1].ratio
    assert ratio is not None
    assert ratio.values == 9
    assert found.document()["settings"][1]["failures"] == [{"reason": "it failed", "runs": 1}]


def test_the_table_has_a_line_for_each_setting() -> None:
    found = outcome(NOISE, shifted(0.8), shifted(1.0))
    grid = settings_grid(found)
    assert [row[0] for row in grid.rows] == [AS_NOW, "a", "b"]
    assert grid.best == ((1, 0),)
    assert all(len(row) == len(grid.head) for row in grid.rows)


def test_the_headline_names_the_program_that_a_launcher_starts() -> None:
    command = ("setpriv", "--clear-groups", "gzip", "-9")
    assert headline(outcome(NOISE, NOISE, command=command)).startswith("gzip: wall time")
