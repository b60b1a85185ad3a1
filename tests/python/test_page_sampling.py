"""Samples of pages: their choice, their options, and intervals."""

from __future__ import annotations

import contextlib
import math
from array import array
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import octavo
from curve_fakes import curves_process, curves_result, small_configuration
from octavo.base.errors import UsageError
from octavo.tlb_curves.api import CurvesResult
from octavo.tlb_curves.page_sampling import Estimate, PageSample, parse_page_sample, sentence_on
from octavo.tlb_curves.view import grids

if TYPE_CHECKING:
    from octavo._core import Estimates as CoreEstimates


@pytest.mark.parametrize(
    ("text", "sample"),
    [
        ("1/64", PageSample(1 / 64, 1)),
        ("12.5%, seed=9", PageSample(0.125, 9)),
        ("0.5,seed=0", PageSample(0.5, 0)),
        ("1", PageSample(1.0, 1)),
        ("1/4096", PageSample(1 / 4096, 1)),
    ],
)
def test_specifications_of_samples_are_parsed(text: str, sample: PageSample) -> None:
    assert parse_page_sample(text) == sample


@pytest.mark.parametrize("text", ["0", "1/5000", "101%", "2", "", "-1", "1/0", "half", "nan"])
def test_other_rates_are_refused_with_the_range(text: str) -> None:
    with pytest.raises(UsageError, match=r"from 1/4096 to 1: 1/64, 2% or 0\.02"):
        parse_page_sample(text)


def test_other_settings_are_refused() -> None:
    with pytest.raises(UsageError, match="seed"):
        parse_page_sample("1/64,sede=1")
    with pytest.raises(UsageError, match="--sample-pages: `-1` is not a count"):
        parse_page_sample("1/64,seed=-1")
    with pytest.raises(UsageError, match="from 0 to 18446744073709551615"):
        parse_page_sample(f"1/64,seed={2**64}")


@given(st.text(max_size=20))
def test_any_text_is_parsed_or_refused(text: str) -> None:
    with contextlib.suppress(UsageError):
        assert 1 / 4096 <= parse_page_sample(text).rate <= 1


def test_sets_and_two_sizes_are_left_out() -> None:
    sampled: dict[str, Any] = {"sample_pages": "1/8", "two_sizes": None}
    configuration = small_configuration(**sampled)
    assert (configuration.indexes, configuration.two_sizes) == ((), ())
    assert configuration.resolved()["sample_pages"] == {"rate": 0.125, "seed": 1}
    assert any("left out" in note for note in configuration.notes())
    with pytest.raises(UsageError, match="--two-sizes cannot be estimated"):
        small_configuration(sample_pages="1/8")
    exact = small_configuration()
    assert "sample_pages" not in exact.resolved()
    assert not any("left out" in note for note in exact.notes())


def estimates(*numbers: tuple[float, float, float] | None) -> CoreEstimates:
    absent = (math.nan, math.nan, math.nan)
    values, low, high = (
        array("d", column).tobytes()
        for column in zip(*(one or absent for one in numbers), strict=True)
    )
    return {"values": values, "low": low, "high": high}


def sampled_result(processes: int = 1) -> CurvesResult:
    configuration = small_configuration(sample_pages="1/8", two_sizes=None, entries=16)
    made = [curves_process(configuration, number) for number in range(processes)]
    for process in made:
        for stream in process["streams"]:
            stream["stack"], stream["working_sets"] = [], []
            stream["sampled"] = [
                {
                    "page_size": size,
                    "pages": 100,
                    "kept_pages": 12,
                    "misses": estimates(*[None] * 15, (200.4, 150.2, 270.7)),
                    "windows_refs": [10, 1000],
                    "page_refs": estimates(None, (1400.0, 700.0, 2800.0)),
                }
                for size in (4096, 32768)
            ]
    return curves_result(configuration, made)


def rows_of(result: CurvesResult, component: str, **wanted: Any) -> list[Any]:
    return [
        row
        for row in result.rows
        if row["component"] == component
        and "process" not in row
        and all(row.get(name) == value for name, value in wanted.items())
    ]


def test_rows_have_intervals_or_nothing() -> None:
    result = sampled_result()
    *few, last = rows_of(result, "tlb.full", page_size=32768)
    assert [row["entries"] for row in few] == list(range(1, 16))
    for row in few:
        assert {row[name] for name in ("misses", "misses_low", "misses_high", "mpki")} == {None}
    assert (last["misses"], last["misses_low"], last["misses_high"]) == (200, 150, 271)
    assert last["mpki"] == 200.0
    absent, average = rows_of(result, "working_set", page_size=32768)
    assert absent["average_bytes"] is None
    assert absent["normalised_low"] is None
    # 1400 references of the program: a page of 32 KiB on average.
    assert average["average_bytes"] == pytest.approx(32768)
    assert average["average_bytes_low"] == pytest.approx(16384)
    assert average["average_bytes_high"] == pytest.approx(65536)
    assert average["normalised"] == pytest.approx(8)
    assert average["normalised_low"] == pytest.approx(2)
    assert average["normalised_high"] == pytest.approx(32)
    (_, base) = rows_of(result, "working_set", page_size=4096)
    assert (base["normalised_low"], base["normalised"], base["normalised_high"]) == (1, 1, 1)
    counts = {row["counter"]: row["value"] for row in rows_of(result, "sample", page_size=4096)}
    assert counts == {"pages": 100, "kept_pages": 12}
    assert result.table().num_rows == len(result.rows)


def test_intervals_of_several_processes_are_summed() -> None:
    result = sampled_result(processes=2)
    last = rows_of(result, "tlb.full", page_size=4096)[-1]
    assert (last["misses"], last["misses_low"], last["misses_high"]) == (401, 300, 542)
    assert not rows_of(result, "working_set")
    assert result.total["data"].full_misses(4096, 16) == 401
    assert result.total["data"].full_misses(4096, 15) is None


def test_tables_show_intervals_and_gaps() -> None:
    result = sampled_result()
    grid = next(iter(grids(result)))
    row = next(row for row in grid.rows if row[0] == "32 KiB")
    assert row[1] == "4.000\n3.000-5.420"
    assert "8.00\n2.00-32.00" in row
    sample = result.configuration.sample
    assert sample is not None
    sentence = sentence_on(sample, [curves.sampled for curves in result.total.values()])
    assert "12% to 12% in fact" in sentence
    assert "a cell is empty" in sentence


def test_all_pages_give_the_exact_numbers() -> None:
    def rows(**choices: Any) -> list[Any]:
        result = octavo.curves(
            "synth:zipf?table=1MiB&references=20k",
            entries=64,
            windows=[1000],
            without=["sets", "two-sizes"],
            **choices,
        )
        return [row for row in result.rows if row["component"] in ("tlb.full", "working_set")]

    exact = rows()
    sampled = rows(sample_pages="1,seed=5")
    assert len(exact) == 3 * 11 * 65
    for row in sampled:
        for name in ("misses", "average_bytes", "normalised"):
            ends = {row.pop(f"{name}_low", None), row.pop(f"{name}_high", None)}
            assert ends == {row.get(name)}
    assert sampled == exact


def test_sampled_intervals_hold_and_exact_numbers_are_exact() -> None:
    trace = "synth:zipf?table=16MiB&references=50k"
    exact = octavo.curves(trace, streams=["data"], without=["sets", "two-sizes"])
    sampled = octavo.curves(trace, streams=["data"], sample_pages="1/8")
    estimated = 0
    for entries in range(1, 4097):
        truth = exact.total["data"].full_misses(4096, entries)
        estimate = sampled.total["data"].full_estimate(4096, entries)
        assert truth is not None
        if estimate is not None:
            estimated += 1
            assert estimate.low <= truth <= estimate.high
    # A sample is too small for fewer than some 40 entries.
    assert 4000 < estimated < 4096
    counted = {row["counter"]: row["value"] for row in rows_of(sampled, "sample", page_size=4096)}
    assert counted["pages"] == exact.total["data"].stack[4096].pages
    assert counted["kept_pages"] < counted["pages"] / 4


@pytest.mark.parametrize(
    "other", [{"threads": "private"}, {"flush_every": 1000}, {"processes": "flush"}]
)
def test_tlbs_of_one_thread_or_emptied_ones_are_not_sampled(other: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=r"^--sample-pages needs TLBs .*: leave it out, or --"):
        octavo.curves("synth:zipf?table=1MiB&references=1k", sample_pages="1/2", **other)


def test_a_ratio_to_a_number_that_may_be_zero_has_no_estimate() -> None:
    one = Estimate(2.0, 1.0, 3.0)
    assert one.over(Estimate(1.0, 0.0, 2.0)) is None
    assert one.over(one) == Estimate(1.0, 1 / 3, 3.0)
