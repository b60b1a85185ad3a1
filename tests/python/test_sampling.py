"""Samples of traces: their options, and the notes about them."""

from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import octavo
from octavo.base.errors import UsageError
from octavo.traces.conversion import Selection, convert_trace
from octavo.traces.sampling import Sample, parse_sample, sentences_on


@pytest.mark.parametrize(
    ("text", "sample"),
    [
        ("10%", Sample(0.1)),
        ("0.25", Sample(0.25)),
        ("1/8", Sample(0.125)),
        ("2.5 %, window=100k", Sample(0.025, 100_000)),
        ("1/3,seed=7,window=2M", Sample(1 / 3, 2_000_000, 7)),
    ],
)
def test_specifications_of_samples_are_parsed(text: str, sample: Sample):
    assert parse_sample(text) == sample


@pytest.mark.parametrize("text", ["", "0", "100%", "1", "3/2", "-1%", "ten", "10%%", "1/0"])
def test_invalid_shares_are_refused(text: str):
    with pytest.raises(UsageError, match="above 0 and below 1"):
        parse_sample(text)


def test_invalid_settings_are_refused():
    with pytest.raises(UsageError, match="did you mean `window`"):
        parse_sample("10%,windows=5")
    with pytest.raises(UsageError, match="--sample: `-1` is not a count"):
        parse_sample("10%,window=-1")
    with pytest.raises(UsageError, match="at least one instruction"):
        parse_sample("10%,window=0")


@given(st.text())
def test_any_text_is_parsed_or_refused(text: str):
    with suppress(UsageError):
        assert 0 < parse_sample(text).fraction < 1


def test_a_sample_needs_a_proportional_number_of_walks(tmp_path: Path):
    """A trace with 30,000 walks and its sample with 3,000 get the same answer."""
    whole = "synth:gups?table=64MiB&updates=30k"
    sample = tmp_path / "sample.oct"
    selection = Selection(sample=parse_sample("10%,window=10k"))
    convert_trace(whole, str(sample), lambda progress: None, selection)
    for trace in (whole, str(sample)):
        answer = octavo.run(trace, tlb="zen5").advice[0]
        assert answer["changes"], answer["text"]


def _statement(windows: int) -> dict[str, object]:
    error = {
        "stream": "data",
        "page_size": 4096,
        "whole_mpki": 2.0,
        "sample_mpki": 2.5,
        "low_mpki": 1.5 if windows > 1 else None,
        "high_mpki": 3.5 if windows > 1 else None,
    }
    stream = {
        "stream": 0,
        "instructions": 10_000_000,
        "kept_instructions": 1_000_000,
        "windows": windows,
        "errors": [error],
    }
    return {"window_instructions": 500_000, "tlb_entries": 64, "streams": [stream]}


def test_the_sampling_error_is_stated():
    share, error = sentences_on(_statement(2))
    assert share == "Kept 10% of 10.0 M instructions, 2 windows of 500 k."
    assert "shows 2.500 data misses" in error
    assert "of the whole trace 2.000" in error
    assert error.endswith("lie between 1.500 and 3.500.")


def test_one_window_gives_no_interval():
    assert sentences_on(_statement(1))[1].endswith("there is no interval from 1 window.")
    assert sentences_on({"streams": []}) == []
