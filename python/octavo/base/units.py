"""Sizes, counts and durations: parsing of options, and formatting for people.

Sizes are bytes and are written in powers of 1024 (KiB, MiB, GiB); counts are written in powers
of 1000 (k, M, G).
"""

import re
from collections.abc import Callable, Sequence
from fractions import Fraction
from math import inf, log2, nan

from octavo._core import MAX_LINE_BYTES, MIN_LINE_BYTES, parse_page_size
from octavo.base.errors import UsageError
from octavo.base.text import plural, quoted

KIB = 1 << 10
MIB = 1 << 20
GIB = 1 << 30

BASE_PAGE = 4 * KIB
"""The page size of x86-64 that every other page size is compared with."""

DEFAULT_PAGE_SIZES = "4KiB..2MiB"

NOT_AVAILABLE = "n/a"
"""Shown in place of a number that has no value."""

_MOST_DIGITS = 60
_COUNT_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_SECONDS = {"": 1.0, "ms": 0.001, "s": 1.0, "sec": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
_MOST_HOURS = 1_000_000
"""The longest duration; the system's clocks and timers reach beyond it."""


def page_size(text: str) -> int:
    """`64KiB` → 65536."""
    try:
        return parse_page_size(text)
    except ValueError as error:
        raise UsageError(f"{error}.") from None


def page_sizes(text: str) -> list[int]:
    """`4KiB,64KiB` or `4KiB..2MiB` or both mixed → sizes in bytes, ascending, each once."""
    return _sizes(text, page_size, "page sizes")


def with_base(sizes: Sequence[int | str]) -> tuple[int, ...]:
    """The page sizes and 4 KiB, checked, ascending, each once."""
    return tuple(sorted({BASE_PAGE, *(page_size(str(size)) for size in sizes)}))


def line_sizes(text: str) -> list[int]:
    """`16B,64B` or `16..128` → sizes of cache lines in bytes, ascending, each once."""
    return _sizes(text, line_size, "line sizes")


def line_size(text: str) -> int:
    """`64`, `64B` or `4KiB` → bytes of a cache line, a power of two."""
    size = byte_size(text)
    if not MIN_LINE_BYTES <= size <= MAX_LINE_BYTES or size & (size - 1):
        nearest = 1 << round(log2(min(max(size, MIN_LINE_BYTES), MAX_LINE_BYTES)))
        raise UsageError(
            f"line size `{quoted(text.strip())}`: the nearest is {nearest}; give a power of two of "
            f"bytes from {MIN_LINE_BYTES} to {MAX_LINE_BYTES}, such as 64."
        )
    return size


def _sizes(text: str, parse: Callable[[str], int], what: str) -> list[int]:
    sizes: set[int] = set()
    for part in text.split(","):
        first, dots, last = part.partition("..")
        low = parse(first)
        high = parse(last) if dots else low
        if high < low:
            raise UsageError(
                f"{what} `{quoted(part.strip())}`: the range runs from large to small."
            )
        while low <= high:
            sizes.add(low)
            low *= 2
    return sorted(sizes)


def entries(text: str) -> tuple[int, int]:
    """`64` → (64, 64); `32,128` → 32 entries for instructions and 128 for data."""
    parts = text.split(",")
    if len(parts) > 2 or not all(re.fullmatch(r"\s*[1-9][0-9]{0,59}\s*", part) for part in parts):
        raise UsageError(
            f"--entries `{quoted(text)}`: give one number for both TLBs, such as 64, or two, "
            "such as 32,64 for instructions and data."
        )
    return int(parts[0]), int(parts[-1])


def count(text: str, option: str = "") -> int:
    """`10M` → 10 000 000; k, M, G and T are powers of 1000. Raises UsageError, which names the
    option.
    """
    lead = f"{option}: " if option else ""
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([kmgt]?)", text.strip().lower())
    if match is None:
        raise UsageError(
            f"{lead}`{quoted(text)}` is not a count: give a number such as 250000, 10M or 2G."
        )
    _check_digits(match[1], lead)
    number = Fraction(match[1]) * _COUNT_UNITS[match[2]]
    if number.denominator != 1:
        raise UsageError(f"{lead}`{quoted(text)}` is not a whole number.")
    return int(number)


def counts(text: str, option: str = "") -> list[int]:
    """`100k,10M` → [100 000, 10 000 000]. Raises UsageError, which names the option."""
    return [count(part, option) for part in text.split(",")]


def byte_size(text: str, option: str = "") -> int:
    """`64GiB` → 68 719 476 736; K, M, G, T and P are powers of 1024, with or without `iB`, and
    so is EiB. Raises UsageError, which names the option.
    """
    lead = f"{option}: " if option else ""
    # An `e` alone looks like an exponent.
    unit = r"([kmgtp]?|e(?=i?b))(?:i?b)?"
    match = re.fullmatch(rf"([0-9]+(?:\.[0-9]+)?)\s*{unit}", text.strip().lower())
    if match is None:
        raise UsageError(
            f"{lead}`{quoted(text)}` is not a size: give bytes, or a number such as 512MiB or "
            "64GiB."
        )
    _check_digits(match[1], lead)
    number = Fraction(match[1]) * 1024 ** " kmgtpe".index(match[2] or " ")
    if number == 0:
        raise UsageError(f"{lead}`{quoted(text)}` is not a size; give one above 0.")
    if number.denominator != 1:
        raise UsageError(f"{lead}`{quoted(text)}` is not a whole number of bytes.")
    return int(number)


def _check_digits(digits: str, lead: str = "") -> None:
    """Refuses a number of too many digits; Python converts none of more than 4300."""
    length = len(digits.replace(".", ""))
    if length > _MOST_DIGITS:
        raise UsageError(
            f"{lead}`{quoted(digits)}` has {length} digits; give at most {_MOST_DIGITS}."
        )


def format_bytes(size: int) -> str:
    """65536 → `64 KiB`; sizes that are not a whole number of units get three digits."""
    unit, name = unit_of(size)
    whole, rest = divmod(size, unit)
    return f"{whole} {name}" if not rest else f"{_three_digits(size / unit)} {name}"


def unit_of(size: int) -> tuple[int, str]:
    """The largest unit that is at most `size`: 65536 → (1024, `KiB`)."""
    for unit, name in ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if size >= unit:
            return unit, name
    return 1, "B"


def format_count(number: float) -> str:
    """1234567 → `1.23 M`; below ten thousand every digit is shown."""
    if number < 10_000:
        return f"{number:.0f}"
    for unit, name in ((10**12, "T"), (10**9, "G"), (10**6, "M")):
        if number >= unit:
            return f"{_three_digits(number / unit)} {name}"
    return f"{_three_digits(number / 1000)} k"


def counted(number: int, noun: str) -> str:
    """`1 page`, `2 pages`, `1.23 M pages`."""
    return f"{format_count(number)} {plural(number, noun)}"


def format_mpki(mpki: float | None) -> str:
    """Misses per 1000 instructions; `n/a` where too few instructions were counted."""
    if mpki is None:
        return NOT_AVAILABLE
    if mpki == 0:
        return "0"
    return f"{mpki:.3f}" if mpki >= 0.001 else "<0.001"


def format_cpi(cycles: float | None) -> str:
    """Cycles per instruction; `n/a` where too few instructions were counted."""
    if cycles is None:
        return NOT_AVAILABLE
    if cycles == 0:
        return "0"
    if cycles < 0.0001:
        return "<0.0001"
    return f"{cycles:.4f}" if cycles < 0.1 else f"{cycles:.3f}"


def format_share(fraction: float | None) -> str:
    """0.123 → `12.3%`; `n/a` for None."""
    if fraction is None:
        return NOT_AVAILABLE
    percent = 100 * fraction
    if abs(percent) >= 99.95:
        return f"{percent:,.0f}%"
    # Adding 0 makes a negative zero positive.
    return f"{round(percent, 1) + 0.0:.1f}%"


def format_growth(fraction: float | None) -> str:
    """A growth over 4 KiB pages: 0.123 → `+12.3%`."""
    share = format_share(fraction)
    return share if fraction is None else f"+{share}"


def _three_digits(value: float) -> str:
    return f"{value:.2f}" if value < 9.995 else f"{value:.1f}" if value < 99.95 else f"{value:.0f}"


def decimal(text: str) -> float:
    """`2.5` or `1e3` in ASCII digits → 2.5, 1000.0; nan for any other text."""
    match = re.fullmatch(
        r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[-+]?[0-9]+)?", text.strip().lower()
    )
    return float(match[0]) if match else nan


def percentage(text: str, option: str = "percentage", most: float | None = None) -> float:
    """`25`, `25%` or `2.5%` → 0.25, 0.25, 0.025. Raises UsageError, which names the option, for
    text that is no number, and for numbers below 0 or above `most` percent.
    """
    number = decimal(text.strip().removesuffix("%"))
    if not 0 <= number < inf or (most is not None and number > most):
        bounds = "0 up" if most is None else f"0 to {most:g}"
        raise UsageError(
            f"{option} `{quoted(text)}`: give a number from {bounds}, such as 25 or 25%."
        )
    return number / 100


def duration(text: str, option: str = "", *, or_zero: bool = False) -> float:
    """`90s` → 90.0; `5min` → 300.0. A number alone is seconds; ms, s, min and h are known.

    Raises UsageError, which names the option, for anything else, and for 0 unless `or_zero`.
    """
    lead = f"{option}: " if option else ""
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*([a-z]*)", text.strip().lower())
    unit = None if match is None else _SECONDS.get(match[2])
    if match is None or unit is None:
        raise UsageError(
            f"{lead}`{quoted(text)}` is not a duration: give a number such as 30s, 5min or 1.5h."
        )
    _check_digits(match[1], lead)
    seconds = float(match[1]) * unit
    if seconds == 0 and not or_zero:
        raise UsageError(f"{lead}`{quoted(text)}` is not a time; give one above 0.")
    if seconds > _MOST_HOURS * _SECONDS["h"]:
        raise UsageError(f"{lead}`{quoted(text)}` is too long; give at most {_MOST_HOURS}h.")
    return seconds


def format_duration(seconds: float) -> str:
    """`0.25 s`, `7 s`, `3 min`, `2.5 h`."""
    if seconds < 100:
        return f"{seconds:.2g} s" if seconds < 1 else f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
