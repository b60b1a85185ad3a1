"""Writes a calibration file; `octavo.calibration` reads it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from octavo.calibration import (
    FORMAT,
    PAGE_SIZES,
    Calibration,
    Reach,
    Spread,
    default_path,
    parse_calibration,
)
from octavo.errors import UsageError
from octavo.machine_configs import toml_value
from octavo.output import check_new_file, failing_with, replace_text
from octavo.units import KIB, MIB

_PAGE_NAMES = {size: name for name, size in PAGE_SIZES.items()}


class CalibrationFile:
    """The place that a calibration is to be written to."""

    def __init__(self, name: str | None, *, force: bool = False) -> None:
        """Checks that the file can be written: one that exists with `force` only, but for the
        default file (`name` is None), whose directory is made. Raises UsageError or CannotRun.
        """
        self.path = default_path() if name is None else Path(name)
        if name is None:
            with failing_with(f"`{self.path}`"):
                self.path.parent.mkdir(parents=True, exist_ok=True)
        check_new_file(
            str(self.path) if name is None else name, force=force or name is None, option="--out"
        )
        self.replaced_date = _measured_at(self.path)
        """When the calibration was measured that is there and will be replaced, if one is."""

    def write(self, calibration: Calibration) -> None:
        """Writes the file whole, or raises CannotRun and leaves what was there before."""
        with failing_with(f"`{self.path}`"):
            replace_text(self.path.resolve(), calibration_toml(calibration))


def _measured_at(path: Path) -> str | None:
    try:
        return parse_calibration(path.read_text(encoding="utf-8"), path).host.measured_at
    except (OSError, UnicodeDecodeError, UsageError):
        return None


def calibration_toml(calibration: Calibration) -> str:
    """The calibration as TOML, with a comment for each table."""
    return "\n".join(_lines(calibration)) + "\n"


def _lines(found: Calibration) -> Iterator[str]:
    yield "# Measured by `octavo calibrate`; docs/calibrate.md describes every key."
    yield f"format = {FORMAT}"
    yield f"cycles_per_second = {found.cycles_per_second:.0f}  # core cycles"
    yield f"tsc_per_second = {found.tsc_per_second:.0f}"
    yield "notes = ["
    yield from (f"  {toml_value(note)}," for note in found.notes)
    yield "]"
    yield ""
    yield "[host]"
    host = found.host
    for key in ("cpu_model", "cpu_id", "measured_at", "kernel", "octavo", "virtualised"):
        yield f"{key} = {toml_value(getattr(host, key))}"
    yield ""
    yield "[walk_cycles]  # added to a load; low: walks overlap, high: each load waits"
    yield from _spreads(found.walk_cycles)
    for page, costs in sorted(found.walk_cycles_by_footprint.items()):
        yield ""
        yield f'[walk_cycles_by_footprint."{_PAGE_NAMES[page]}"]  # by the bytes used in turn'
        for size, spread in sorted(costs.items()):
            yield f'"{_size(size)}" = {_spread(spread)}'
    for page, costs in sorted(found.load_cycles.items()):
        yield ""
        yield f'[load_cycles."{_PAGE_NAMES[page]}"]  # over all lines of a working set, with walks'
        for size, spread in sorted(costs.items()):
            yield f'"{_size(size)}" = {_spread(spread)}'
    yield ""
    yield "[second_level_hit_cycles]  # added to a load, over a hit in the first level"
    yield from _spreads(found.second_level_hit_cycles)
    yield ""
    yield "[tlb]  # entries, by page size"
    for size, reach in sorted(found.tlb.items()):
        yield f'"{_PAGE_NAMES[size]}" = {_reach(reach)}'
    yield ""
    yield "[entry_bytes]  # bytes of a page that one TLB entry covers"
    for size, covered in sorted(found.entry_bytes.items()):
        yield f'"{_PAGE_NAMES[size]}" = "{_size(covered)}"'
    yield ""
    yield "[latency_cycles]  # of a load, by the size of its working set"
    for size, spread in sorted(found.latency_cycles.items()):
        yield f'"{_size(size)}" = {_spread(spread)}'


def _spreads(table: Mapping[int, Spread]) -> Iterator[str]:
    for size, spread in sorted(table.items()):
        yield f'"{_PAGE_NAMES[size]}" = {_spread(spread)}'


def _reach(of: Reach) -> str:
    levels = (("first", of.first), ("second", of.second))
    parts = [f"{name} = {_spread(level)}" for name, level in levels if level is not None]
    return f"{{{', '.join(parts)}}}"


def _spread(of: Spread) -> str:
    return f"{{low = {_number(of.low)}, median = {_number(of.median)}, high = {_number(of.high)}}}"


def _size(size: int) -> str:
    """A size that is read back exactly: `96MiB`, `1536KiB`."""
    for unit in (MIB, KIB):
        if size % unit == 0:
            return f"{size // unit}{'MiB' if unit == MIB else 'KiB'}"
    return f"{size}B"


def _number(value: float) -> str:
    """Four significant digits, or all before the point."""
    return f"{value:.0f}" if value >= 1000 else f"{value:.4g}"
