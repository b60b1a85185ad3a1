"""Answers to the claims of the paper on perforated pages, from the measurements."""

from __future__ import annotations

from collections.abc import Callable
from statistics import mean

from octavo.base.units import format_mpki, format_share
from octavo.studies.coded_claims import Found
from octavo.studies.perforated_grid import FRACTIONS, PORTIONS, GridRow
from octavo.studies.perforated_measurement import BASE, BASELINE, PERFORATED, Counted
from octavo.studies.perforated_memory import LAYOUTS, Fragments
from octavo.studies.perforated_pages import Study
from octavo.studies.perforated_programs import ProgramMeasurement, ProgramRow
from octavo.studies.perforated_redis import RedisMeasurement

Finder = Callable[[Study], Found | None]
"""None if no measurement decides it."""

SEEN = Fragments(0.5, 0.25, "clustered")
"""The memory that the paper measured on a machine (section III-C)."""
WORST = Fragments(1.0, 0.9, "dispersed")
_NONE = Fragments(0.0, FRACTIONS[0], LAYOUTS[0])
ALIKE = 0.02
"""Two IPC are alike where they differ by no more than this share."""


def two(additive: float, overlapped: float | None) -> str:
    """A gain by the additive model, and if misses of the caches were all hidden."""
    text = f"{additive:+.1%}"
    return text if overlapped is None else f"{text} ({overlapped:+.1%} were cache misses hidden)"


def gain_at(fragments: Fragments, low: float, high: float) -> Finder:
    """The gain over large and base pages on one memory lies between two."""

    def find(study: Study) -> Found | None:
        row = study.at(fragments)
        ours = None if row is None else row.gain()
        if row is None or ours is None:
            return None
        return Found(two(ours, row.gain(overlapped=True)), low <= ours <= high)

    return find


def _perforated(row: GridRow | None) -> Counted | None:
    return None if row is None else row.designs.get(PERFORATED)


def worst_loss(study: Study) -> Found | None:
    """How far behind 2 MiB pages the worst case of unallocated holes is."""
    worst = _perforated(study.at(WORST, is_allocated=False))
    best = study.at(_NONE, is_allocated=False)
    ideal = None if best is None else best.designs.get(best.point.baseline)
    if worst is None or ideal is None:
        return None
    lost = 1 - worst.ipc / ideal.ipc
    hidden = 1 - worst.ipc_overlapped / ideal.ipc_overlapped
    return Found(two(-lost, -hidden), 0.156 <= lost <= 0.468)


def worst_gain(study: Study) -> Found | None:
    """How many times as fast as large and base pages it is."""
    row = study.at(WORST, is_allocated=False)
    ours = None if row is None else row.gain()
    if row is None or ours is None:
        return None
    hidden = row.gain(overlapped=True) or 0.0
    text = f"{1 + ours:.2f} times ({1 + hidden:.2f} were cache misses hidden)"
    return Found(text, 1.6 <= 1 + ours <= 3.6)


def few_holes(study: Study) -> Found | None:
    """The share of 2 MiB pages' performance left with 10% of holes in half of the regions."""
    best = study.at(_NONE)
    ideal = None if best is None else best.designs.get(best.point.baseline)
    shares = []
    for layout in LAYOUTS:
        one = _perforated(study.at(Fragments(0.5, 0.1, layout)))
        if one is not None and ideal is not None:
            shares.append(one.ipc / ideal.ipc)
    if not shares:
        return None
    text = f"{format_share(min(shares))} to {format_share(max(shares))} of it"
    return Found(text, min(shares) >= 0.9)


def all_holes(study: Study) -> Found | None:
    """The gain with 90% of holes in all regions."""
    gains = [row.gain() for layout in LAYOUTS if (row := study.at(Fragments(1.0, 0.9, layout)))]
    known = [value for value in gains if value is not None]
    if not known:
        return None
    text = f"{min(known):+.1%} to {max(known):+.1%}"
    return Found(text, max(map(abs, known)) <= 0.15)


def up_to_half(study: Study) -> Found | None:
    """On how many memories with up to half of the regions' pages holes something is gained."""
    gains = [
        value
        for row in study.grid
        if row.point.is_allocated and row.point.fragments.large is None
        if row.point.fragments.portion and row.point.fragments.fraction <= 0.5
        if (value := row.gain()) is not None
    ]
    if not gains:
        return None
    number = sum(value > 0 for value in gains)
    text = f"on {number} of {len(gains)}, {min(gains):+.1%} in the worst case"
    return Found(text, number == len(gains))


def clustered_first(study: Study) -> Found | None:
    """On how many memories clustered holes cost no more than dispersed ones."""
    ratios = []
    for portion in PORTIONS[1:]:
        for fraction in FRACTIONS:
            one, other = (
                _perforated(study.at(Fragments(portion, fraction, layout))) for layout in LAYOUTS
            )
            if one is not None and other is not None:
                ratios.append(one.ipc / other.ipc)
    if not ratios:
        return None
    number = sum(ratio >= 1 - ALIKE for ratio in ratios)
    text = f"on {number} of {len(ratios)}, {mean(ratios) - 1:+.1%} on average"
    return Found(text, number >= 0.9 * len(ratios))


def filtered(study: Study) -> Found | None:
    """The largest share of look-ups that the filter saves where a quarter is clustered holes."""
    shares = [
        one.filter_share
        for portion in PORTIONS[1:]
        if (one := _perforated(study.at(Fragments(portion, 0.25, "clustered"))))
        if one.filter_share is not None
    ]
    if not shares:
        return None
    return Found(f"up to {format_share(max(shares))}", 0.5 <= max(shares) <= 0.86)


def fewer_bitmaps(study: Study) -> Found | None:
    """How many fewer bitmap entries the TLB holds where the same holes are clustered."""
    fewer = []
    for portion in PORTIONS[1:]:
        one, other = (_perforated(study.at(Fragments(portion, 0.25, layout))) for layout in LAYOUTS)
        if one is not None and other is not None and other.content.get("bitmap"):
            fewer.append(1 - one.content["bitmap"] / other.content["bitmap"])
    if not fewer:
        return None
    text = f"{format_share(mean(fewer))} on average, {format_share(max(fewer))} at most"
    return Found(text, any(0.40 <= value <= 0.76 for value in fewer))


def bitmap_memory(study: Study) -> Found | None:
    """The share of memory that bitmaps take."""
    shares = [
        one.bitmap_bytes / row.memory_bytes for row in study.grid if (one := _perforated(row))
    ]
    if not shares:
        return None
    return Found(f"{max(shares):.4%} at most", 0.000025 <= max(shares) <= 0.00004)


# --- programs


def _seen(
    study: Study, of: Callable[[ProgramMeasurement, ProgramRow], float | None], *, is_virtual: bool
) -> list[float]:
    """A figure of every program, on the memory that the paper had found."""
    values = (
        of(measured, row)
        for measured in study.programs
        if measured.is_virtual == is_virtual
        for row in measured.rows
        if row.fragments == SEEN
    )
    return [value for value in values if value is not None]


def of_ideal(low: float, *, is_virtual: bool) -> Finder:
    """Every program has at least so much of the IPC of large pages without fragmentation."""

    def find(study: Study) -> Found | None:
        values = _seen(study, lambda m, row: m.of_ideal(row), is_virtual=is_virtual)
        if not values:
            return None
        text = f"{format_share(min(values))} to {format_share(max(values))}"
        return Found(f"{text} of {len(values)} programs", min(values) >= low)

    return find


def program_gain(low: float, high: float, *, is_virtual: bool) -> Finder:
    """On average the programs gain between two over large and base pages."""

    def find(study: Study) -> Found | None:
        values = _seen(study, lambda _, row: row.gain(), is_virtual=is_virtual)
        if not values:
            return None
        text = f"{min(values):+.1%} to {max(values):+.1%}, {mean(values):+.1%} on average"
        return Found(text, low <= mean(values) <= high)

    return find


def nested_references(study: Study) -> Found | None:
    """The memory references of an average walk in two dimensions, with lines of bitmaps."""
    walks = [
        (entries, value)
        for measured in study.programs
        if measured.is_virtual
        for row in measured.rows
        if row.fragments == SEEN
        if (one := row.designs.get(PERFORATED)) is not None
        if (entries := one.references_per_walk) is not None
        if (value := one.reads_per_walk) is not None
    ]
    if not walks:
        return None
    values = [value for _, value in walks]
    text = (
        f"{mean(values):.1f} on average, {min(values):.1f} to {max(values):.1f}; without lines of "
        f"bitmaps {mean(entries for entries, _ in walks):.1f}"
    )
    return Found(text, 3 <= mean(values) <= 12)


# --- Redis


def of_server(name: str, of: Callable[[RedisMeasurement], Found | None]) -> Finder:
    """Answers from the first measurement whose name begins so."""

    def find(study: Study) -> Found | None:
        for measured in study.redis:
            if measured.name.startswith(name):
                return of(measured)
        return None

    return find


def bloat(measured: RedisMeasurement) -> Found | None:
    """How much more memory large pages take."""
    ours = measured.bloat
    if ours is None:
        return None
    return Found(f"{ours:+.1%}", 0.10 <= ours <= 0.40)


def no_bloat(measured: RedisMeasurement) -> Found | None:
    """How much more memory perforated pages take."""
    ours = measured.growth(PERFORATED)
    return None if ours is None else Found(f"{ours:+.1%}", abs(ours) <= 0.01)


def large_misses(measured: RedisMeasurement) -> Found | None:
    """How many of the misses large pages leave: 1.05 of 1.75."""
    base, large = measured.mpki(BASE), measured.mpki(BASELINE)
    if not base or large is None:
        return None
    text = f"{format_mpki(base)} and {format_mpki(large)}, {format_share(large / base)}"
    return Found(text, 0.4 <= large / base <= 0.8)


def perforated_misses(measured: RedisMeasurement) -> Found | None:
    """The share of large pages' savings that perforated pages keep."""
    base, large = measured.mpki(BASE), measured.mpki(BASELINE)
    one = measured.mpki(PERFORATED)
    if base is None or large is None or one is None or base <= large:
        return None
    share = (base - one) / (base - large)
    return Found(f"{format_mpki(one)}, {format_share(share)} of it", 0.25 <= share <= 0.75)
