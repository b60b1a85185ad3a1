"""Curves from a sample of pages: the sample and its estimates.

`octavo.traces.sampling` samples windows of time instead.
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
"""Least sampling rate, at which a TLB of 4096 entries is scaled to a single entry."""
MOST_SEED = 2**64 - 1

NOTE = (
    "Sampled: misses of fully associative TLBs and working sets are estimated from some of the "
    "pages, each with a 95% interval; where too few pages were kept, there is no number. "
    "References, instructions and distinct pages are exact. Set-associative TLBs and two page "
    "sizes cannot be estimated from a sample of pages, and were left out."
)


@dataclass(frozen=True)
class PageSample:
    """The selection of pages."""

    rate: float
    """The probability that a page is kept."""
    seed: int = 1

    def for_core(self) -> tuple[float, int]:
        """Rate and seed, for the extension."""
        return self.rate, self.seed

    def resolved(self) -> dict[str, Any]:
        """Plain data, for the manifest."""
        return {"rate": self.rate, "seed": self.seed}


def parse_page_sample(text: str) -> PageSample:
    """Parses `1/64`, `2%` or `0.02`, optionally with `,seed=7`. Raises UsageError."""
    share, *settings = (part.strip() for part in text.split(","))
    seed = 1
    for setting in settings:
        name, _, value = setting.partition("=")
        choose(name, ["seed"], "part of --sample-pages")
        seed = units.count(value, "--sample-pages")
    rate = read_share(share)
    if rate is None or not LEAST_RATE <= rate <= 1:
        raise UsageError(
            f"--sample-pages `{quoted(share)}`: give the share of pages to keep, from {LEAST_RATE} "
            "to 1: 1/64, 2% or 0.02; ,seed=7 may follow."
        )
    if seed > MOST_SEED:
        raise UsageError(f"--sample-pages: seed {seed}: give a number from 0 to {MOST_SEED}.")
    return PageSample(float(rate), seed)


@dataclass(frozen=True)
class Estimate:
    """An estimate from a sample."""

    value: float
    low: float
    """Lower bound of the 95% interval."""
    high: float

    def __add__(self, other: Estimate) -> Estimate:
        # Both may be from the same sampled pages, so that errors may add up.
        return Estimate(self.value + other.value, self.low + other.low, self.high + other.high)

    def scaled(self, factor: float) -> Estimate:
        """The estimate times `factor`."""
        return Estimate(factor * self.value, factor * self.low, factor * self.high)

    def averaged(self, count: int) -> Estimate:
        """The estimate divided by `count`."""
        return Estimate(self.value / count, self.low / count, self.high / count)

    def over(self, base: Estimate) -> Estimate | None:
        """The ratio to another estimate, with bounds for the worst case; None where that one may be
        0.
        """
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
    """Misses of a fully associative TLB with n entries, at index n - 1."""
    byte_refs: dict[int, Estimate | None]
    """Bytes in the window, summed over all references, by window."""


def read_sampled(sizes: Sequence[CoreSize] | None) -> dict[int, SampledSize] | None:
    """The extension's estimates, by page size."""
    if sizes is None:
        return None
    return {size["page_size"]: _size(size) for size in sizes}


def sum_sampled(
    processes: Sequence[dict[int, SampledSize] | None],
) -> dict[int, SampledSize] | None:
    """The sum over several processes, without working sets."""
    first, *rest = processes
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


def _size(counted: CoreSize) -> SampledSize:
    page_refs = zip(counted["windows_refs"], _estimates(counted["page_refs"]), strict=True)
    return SampledSize(
        pages=counted["pages"],
        kept_pages=counted["kept_pages"],
        misses=_estimates(counted["misses"]),
        byte_refs={
            window: None if one is None else one.scaled(counted["page_size"])
            for window, one in page_refs
        },
    )


def _estimates(counted: CoreEstimates) -> list[Estimate | None]:
    columns = zip(*(numbers(counted[name], "d") for name in ("values", "low", "high")), strict=True)
    return [None if math.isnan(value) else Estimate(value, *ends) for value, *ends in columns]


def full_columns(size: SampledSize, places: Sequence[int]) -> dict[str, Sequence[Any]]:
    """Columns of the rows of fully associative TLBs; `places` are numbers of entries minus one."""
    estimates = [size.misses[place] for place in places]
    return {
        "misses": [None if one is None else round(one.value) for one in estimates],
        **miss_ends(estimates),
    }


def miss_ends(estimates: Sequence[Estimate | None]) -> dict[str, Sequence[Any]]:
    """Columns with the bounds of intervals."""
    return {
        "misses_low": [None if one is None else math.floor(one.low) for one in estimates],
        "misses_high": [None if one is None else math.ceil(one.high) for one in estimates],
    }


def working_set_columns(
    byte_refs: dict[int, Estimate | None], base: dict[int, Estimate | None], references: int
) -> dict[str, Sequence[Any]]:
    """Columns of the rows of working sets, by window; `base` is `byte_refs` of base pages."""
    averages = [
        None if one is None or not references else one.averaged(references)
        for one in byte_refs.values()
    ]
    ratios = [
        Estimate(1.0, 1.0, 1.0)
        if one is not None and byte_refs is base
        else None
        if one is None or of_base is None
        else one.over(of_base)
        for one, of_base in zip(byte_refs.values(), base.values(), strict=True)
    ]
    columns: dict[str, Sequence[Any]] = {"window_refs": list(byte_refs)}
    for name, estimates in (("average_bytes", averages), ("normalised", ratios)):
        columns[name] = [None if one is None else one.value for one in estimates]
        columns[f"{name}_low"] = [None if one is None else one.low for one in estimates]
        columns[f"{name}_high"] = [None if one is None else one.high for one in estimates]
    return columns


def sentence_on(sample: PageSample, sizes: Iterable[dict[int, SampledSize] | None]) -> str:
    """A sentence about the sample, for tables."""
    kept = [size for stream in sizes for size in (stream or {}).values()]
    shares = [size.kept_pages / size.pages for size in kept if size.pages]
    found = f"{100 * min(shares):.2g}% to {100 * max(shares):.2g}% in fact" if shares else "none"
    return (
        f"SAMPLED: {100 * sample.rate:.3g}% of the pages ({found}), seed {sample.seed}. 95% "
        "intervals stand below the numbers; a cell is empty if too few pages were kept for its TLB "
        "or window. Set-associative TLBs and two page sizes were left out."
    )
