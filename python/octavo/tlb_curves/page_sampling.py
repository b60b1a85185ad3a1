"""Curves from a sample of the pages: the sample and its estimates.

`octavo.traces.sampling` keeps windows of time instead.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from octavo.base import units
from octavo.base.errors import UsageError, choose
from octavo.base.text import quoted
from octavo.tlb_curves.counts import numbers
from octavo.traces.sampling import read_share

if TYPE_CHECKING:
    from octavo._core import Estimates as CoreEstimates
    from octavo._core import SampledSize as CoreSize

LEAST_RATE = Fraction(1, 4096)
"""With fewer pages a TLB of 4096 entries would be as one of a single entry."""
MOST_SEED = 2**64 - 1

NOTE = (
    "Sampled: misses of fully associative TLBs and working sets are estimated from some of the "
    "pages, each with a 95% interval; where too few pages were kept, there is no number. "
    "References, instructions and distinct pages are exact. Set-associative TLBs and two page "
    "sizes cannot be estimated from a sample of pages, and were left out."
)


@dataclass(frozen=True)
class PageSample:
    """Which pages are kept."""

    rate: float
    """The probability that a page is."""
    seed: int = 1

    def for_core(self) -> tuple[float, int]:
        """As the extension takes it."""
        return self.rate, self.seed

    def resolved(self) -> dict[str, Any]:
        """Plain data, for the manifest."""
        return {"rate": self.rate, "seed": self.seed}


def parse_page_sample(text: str) -> PageSample:
    """`1/64`, `2%` or `0.02`, and after it perhaps `,seed=7`. Raises UsageError."""
    share, *settings = (part.strip() for part in text.split(","))
    seed = 1
    for setting in settings:
        name, _, value = setting.partition("=")
        choose(name, ["seed"], "part of --sample-pages")
        seed = units.count(value, "--sample-pages")
    rate = read_share(share)
    if rate is None or not LEAST_RATE <= rate <= 1:
        raise UsageError(
            f"--sample-pages `{quoted(share)}`: give what share of the pages to keep, from "
            f"{LEAST_RATE} to 1: 1/64, 2% or 0.02; ,seed=7 may follow."
        )
    if seed > MOST_SEED:
        raise UsageError(f"--sample-pages: seed {seed}: give a number from 0 to {MOST_SEED}.")
    return PageSample(float(rate), seed)


@dataclass(frozen=True)
class Estimate:
    """An estimate from a sample."""

    value: float
    low: float
    """This and `high` hold the exact number 95 times of 100."""
    high: float

    def __add__(self, other: Estimate) -> Estimate:
        # The same pages may be kept of both, so that errors may add up.
        return Estimate(self.value + other.value, self.low + other.low, self.high + other.high)

    def scaled(self, factor: float) -> Estimate:
        """The estimate times `factor`."""
        return Estimate(factor * self.value, factor * self.low, factor * self.high)

    def averaged(self, count: int) -> Estimate:
        """The estimate divided by `count`."""
        return Estimate(self.value / count, self.low / count, self.high / count)

    def over(self, base: Estimate) -> Estimate | None:
        """Its ratio to another, at worst; None where that may be nothing."""
        if base.low <= 0:
            return None
        return Estimate(self.value / base.value, self.low / base.high, self.high / base.low)


@dataclass(frozen=True)
class SampledSize:
    """Estimates at one page size; None where the sample is too small."""

    pages: int
    """Distinct pages, an exact count."""
    kept_pages: int
    misses: Sequence[Estimate | None]
    """Of a fully associative TLB with n entries, at index n - 1."""
    byte_refs: dict[int, Estimate | None]
    """By window, the bytes in it summed over all references."""


def read_sampled(sizes: Sequence[CoreSize] | None) -> dict[int, SampledSize] | None:
    """By page size, what the extension gives."""
    if sizes is None:
        return None
    return {of["page_size"]: _size(of) for of in sizes}


def sum_sampled(of: Sequence[dict[int, SampledSize] | None]) -> dict[int, SampledSize] | None:
    """Several processes together; working sets do not add up."""
    first, *rest = of
    if first is None:
        return None
    total = first
    for other in rest:
        assert other is not None, "all processes are sampled, or none is"
        total = {size: _sum(total[size], other[size]) for size in total}
    return {size: replace(one, byte_refs={}) for size, one in total.items()}


def _sum(one: SampledSize, other: SampledSize) -> SampledSize:
    both = zip(one.misses, other.misses, strict=True)
    misses = [None if a is None or b is None else a + b for a, b in both]
    return SampledSize(one.pages + other.pages, one.kept_pages + other.kept_pages, misses, {})


def _size(of: CoreSize) -> SampledSize:
    page_refs = zip(of["windows_refs"], _estimates(of["page_refs"]), strict=True)
    return SampledSize(
        pages=of["pages"],
        kept_pages=of["kept_pages"],
        misses=_estimates(of["misses"]),
        byte_refs={
            window: None if one is None else one.scaled(of["page_size"])
            for window, one in page_refs
        },
    )


def _estimates(of: CoreEstimates) -> list[Estimate | None]:
    columns = zip(*(numbers(of[name], "d") for name in ("values", "low", "high")), strict=True)
    return [None if math.isnan(value) else Estimate(value, *ends) for value, *ends in columns]


def full_columns(size: SampledSize, places: Sequence[int]) -> dict[str, Sequence[Any]]:
    """Rows of fully associative TLBs with these numbers of entries, less one."""
    estimates = [size.misses[place] for place in places]
    return {
        "misses": [None if one is None else round(one.value) for one in estimates],
        **miss_ends(estimates),
    }


def miss_ends(estimates: Sequence[Estimate | None]) -> dict[str, Sequence[Any]]:
    """The ends of intervals, for rows."""
    return {
        "misses_low": [None if one is None else math.floor(one.low) for one in estimates],
        "misses_high": [None if one is None else math.ceil(one.high) for one in estimates],
    }


def working_set_columns(
    of: dict[int, Estimate | None], base: dict[int, Estimate | None], references: int
) -> dict[str, Sequence[Any]]:
    """Rows of working sets by window, where `base` is that of base pages."""
    averages = [
        None if one is None or not references else one.averaged(references) for one in of.values()
    ]
    ratios = [
        Estimate(1.0, 1.0, 1.0)
        if one is not None and of is base
        else None
        if one is None or of_base is None
        else one.over(of_base)
        for one, of_base in zip(of.values(), base.values(), strict=True)
    ]
    columns: dict[str, Sequence[Any]] = {"window_refs": list(of)}
    for name, estimates in (("average_bytes", averages), ("normalised", ratios)):
        columns[name] = [None if one is None else one.value for one in estimates]
        columns[f"{name}_low"] = [None if one is None else one.low for one in estimates]
        columns[f"{name}_high"] = [None if one is None else one.high for one in estimates]
    return columns


def sentence_on(sample: PageSample, sizes: Iterable[dict[int, SampledSize] | None]) -> str:
    """The sentence for tables of sampled streams."""
    kept = [size for of in sizes for size in (of or {}).values()]
    shares = [size.kept_pages / size.pages for size in kept if size.pages]
    found = f"{100 * min(shares):.2g}% to {100 * max(shares):.2g}% in fact" if shares else "none"
    return (
        f"SAMPLED: {100 * sample.rate:.3g}% of the pages ({found}), seed {sample.seed}. 95% "
        "intervals stand below the numbers; a cell is empty if too few pages were kept for its TLB "
        "or window. Set-associative TLBs and two page sizes were left out."
    )
