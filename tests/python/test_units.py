from collections.abc import Callable
from math import inf, isnan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.base import units
from octavo.base.errors import UsageError


def test_lists_and_ranges_of_page_sizes_are_sorted_and_unique() -> None:
    assert units.page_sizes("64KiB,4KiB..16KiB,8KiB") == [4096, 8192, 16384, 65536]
    assert len(units.page_sizes(units.DEFAULT_PAGE_SIZES)) == 10
    assert units.page_sizes("4KiB..1GiB")[-1] == 1 << 30


@pytest.mark.parametrize("text", ["", "3KiB", "4KiB..", "2GiB", "4KiB,,8KiB", "big", "4KiB..5KiB"])
def test_other_page_sizes_are_refused_with_the_valid_range(text: str) -> None:
    with pytest.raises(UsageError, match="power of two from 4KiB to 1GiB"):
        units.page_sizes(text)


@pytest.mark.parametrize(
    ("text", "nearest"), [("3k", "4KiB"), ("5MiB", "4MiB"), ("6M", "8MiB"), ("2GiB", "1GiB")]
)
def test_the_nearest_of_a_refused_page_size_is_named(text: str, nearest: str) -> None:
    with pytest.raises(UsageError, match=f"page size `{text}`: the nearest is {nearest};"):
        units.page_size(text)


@pytest.mark.parametrize(("text", "nearest"), [("48", 64), ("45", 32), ("1", 16), ("1MiB", 4096)])
def test_the_nearest_of_a_refused_line_size_is_named(text: str, nearest: int) -> None:
    with pytest.raises(UsageError, match=f"line size `{text}`: the nearest is {nearest};"):
        units.line_size(text)


def test_a_range_runs_upwards() -> None:
    with pytest.raises(UsageError, match="large to small"):
        units.page_sizes("2MiB..4KiB")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        ("250000", 250_000),
        ("10M", 10**7),
        ("2G", 2 * 10**9),
        ("1.5k", 1500),
        ("1t", 10**12),
    ],
)
def test_counts(text: str, value: int) -> None:
    assert units.count(text) == value


ARABIC = "\u0662\u0665"
"""25 in other digits than those of ASCII."""


@pytest.mark.parametrize(
    "read", [units.count, units.counts, units.byte_size, units.percentage, units.duration]
)
@pytest.mark.parametrize("text", [ARABIC, "1_0", "\uff12"])
def test_digits_are_those_of_ascii(read: Callable[[str], object], text: str) -> None:
    with pytest.raises(UsageError, match=f"`{text}`"):
        read(text)


def test_numbers_with_a_fraction() -> None:
    texts = ("2.5", " 20 ", "1e3", "5.", ".5", "-1", "1E400")
    assert [units.decimal(text) for text in texts] == [2.5, 20, 1000, 5, 0.5, -1, inf]
    for text in (ARABIC, "1_0", "", ".", "e3", "nan", "inf", "0x10", "1 0"):
        assert isnan(units.decimal(text))


@pytest.mark.parametrize("digits", [61, 400, 4400])
def test_numbers_of_too_many_digits_are_refused_in_a_sentence(digits: int) -> None:
    message = f"`9{{60}}…` has {digits} digits; give at most 60.$"
    for read in (units.count, units.duration):
        with pytest.raises(UsageError, match=f"^--x: {message}"):
            read("9" * digits, "--x")
    with pytest.raises(UsageError, match=f"^{message}"):
        units.byte_size("9" * digits + "KiB")
    with pytest.raises(UsageError, match=r"^--entries `9{60}…`: give one number for both TLBs"):
        units.entries("9" * digits)
    assert units.count("9" * 60) == units.byte_size("9" * 60) == 10**60 - 1


def test_durations_beyond_what_clocks_hold_are_refused() -> None:
    with pytest.raises(UsageError, match=r"^--x: `1000001h` is too long; give at most 1000000h.$"):
        units.duration("1000001h", "--x")
    assert units.duration("1000000h") == 3.6e9


@pytest.mark.parametrize("text", ["", "-1", "1.5", "M", "10 apples", "1e6"])
def test_other_counts_are_refused(text: str) -> None:
    with pytest.raises(UsageError):
        units.count(text)


def test_entries() -> None:
    assert units.entries("64") == (64, 64)
    assert units.entries("32,128") == (32, 128)
    for text in ("", "0", "-1", "1,2,3", "x", "64,"):
        with pytest.raises(UsageError):
            units.entries(text)


@given(st.integers(12, 30))
def test_page_sizes_read_back_as_written(log2: int) -> None:
    assert units.page_sizes(units.format_bytes(1 << log2)) == [1 << log2]


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (4096, "4 KiB"),
        (5000, "4.88 KiB"),
        (180 << 20, "180 MiB"),
        (3 << 29, "1.50 GiB"),
    ],
)
def test_sizes_as_text(size: int, text: str) -> None:
    assert units.format_bytes(size) == text


def test_counts_and_shares_as_text() -> None:
    assert [units.format_count(n) for n in (0, 9999, 10_000, 1_234_567, 2.5e9, 10**13)] == [
        "0",
        "9999",
        "10.0 k",
        "1.23 M",
        "2.50 G",
        "10.0 T",
    ]
    assert units.format_mpki(None) == "n/a"
    assert units.format_mpki(0) == "0"
    assert units.format_mpki(1e-9) == "<0.001"
    assert [units.format_cpi(n) for n in (None, 0, 1e-9, 0.00123, 0.0999, 1.5646)] == [
        "n/a",
        "0",
        "<0.0001",
        "0.0012",
        "0.0999",
        "1.565",
    ]
    assert units.counts("100k, 3M") == [100_000, 3_000_000]
    assert units.format_growth(0.126) == "+12.6%"
    assert units.format_growth(14.0) == "+1,400%"
    assert units.format_share(None) == "n/a"
    assert units.format_share(-0.0004) == "0.0%"
