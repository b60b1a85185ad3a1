"""The calibration file: the figures of this machine's processor from `octavo calibrate`.

`load_calibration` reads it, `CalibrationFile` writes it; docs/calibrate.md describes every key. A
file that was measured on another processor is ignored with a note, since its figures would be wrong
here. A damaged file is an error, since the user expects it to be used.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from octavo.base.errors import CannotRun, UsageError
from octavo.base.files import NewFile
from octavo.base.host import configuration_directory, cpu_field, open_regular
from octavo.base.text import printable, quoted
from octavo.base.toml import TomlError, parse_toml, toml_value
from octavo.base.units import BASE_PAGE, KIB, MIB, byte_size

FORMAT = 1
"""The version of the file's format; a reader refuses every other one."""

PAGE_SIZES = {"4KiB": 4 << 10, "2MiB": 2 << 20, "1GiB": 1 << 30}
"""The page sizes of x86-64 in bytes, by their names as keys in the file."""
STREAMS = ("read", "write")
CORE_FIGURES = ("reorder_buffer", "rename_registers", "load_queue", "store_queue", "walkers")
"""Names of the structures of a core that limit instructions, renamed registers, loads, stores and
page walks in flight."""


@dataclass(frozen=True)
class Spread:
    """A measured quantity with its uncertainty: low <= median <= high.

    The meaning of the bounds depends on the quantity: see docs/calibrate.md.
    """

    low: float
    median: float
    high: float

    def record(self) -> dict[str, float]:
        """Plain data for the JSON."""
        return asdict(self)

    def scaled(self, by: float) -> Spread:
        """The spread in another unit."""
        return Spread(self.low * by, self.median * by, self.high * by)


@dataclass(frozen=True)
class Reach:
    """Entries of the TLBs for pages of one size; None for a level that was not found."""

    first: Spread | None
    """Entries of the first level. Low: the most pages that all hit when used in turn; high: the
    fewest that all miss."""
    second: Spread | None
    """Entries of the second level, with bounds as for the first."""


@dataclass(frozen=True)
class MeasuredHost:
    """The machine that was measured, and when."""

    cpu_model: str
    """`model name` of /proc/cpuinfo."""
    cpu_id: str
    """Vendor, family, model and stepping: virtual machines often share one model name."""
    measured_at: str
    """UTC, as `2026-11-23T06:50:00Z`."""
    kernel: str
    octavo: str
    """The version of Octavo that measured."""
    virtualised: bool
    """Whether the machine is a virtual one, so that its page walks are two-dimensional."""


class _WrongValue(Exception):
    """A key of a file with a wrong value; its arguments are the key and the error in words."""


def _read_number(value: Any, key: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _WrongValue(key, "is not a number" if value is not None else "is missing")
    if not math.isfinite(value) or value < 0:
        raise _WrongValue(key, f"is {value}: give a finite number of at least 0")
    return float(value)


def _read_rate(value: Any, key: str) -> float:
    rate = _read_number(value, key)
    if rate < 1:
        raise _WrongValue(key, "is not positive")
    return rate


def _read_spread(value: Any, key: str) -> Spread:
    if not isinstance(value, dict):
        raise _WrongValue(key, "is not a table of low, median and high")
    parts = (part.name for part in fields(Spread))
    spread = Spread(*(_read_number(value.get(part), f"{key}.{part}") for part in parts))
    if not spread.low <= spread.median <= spread.high:
        raise _WrongValue(key, "is not in the order low <= median <= high")
    return spread


def _read_reach(value: Any, key: str) -> Reach:
    if not isinstance(value, dict):
        raise _WrongValue(key, "is not a table of first and second")
    levels = ("first", "second")
    return Reach(
        *(_read_spread(value[name], f"{key}.{name}") if name in value else None for name in levels)
    )


def _read_bytes(value: Any, key: str) -> int:
    if not isinstance(value, str):
        raise _WrongValue(key, 'is not a string such as "4KiB"')
    try:
        return byte_size(value)
    except UsageError as error:
        raise _WrongValue(key, f"is wrong: {str(error).rstrip('.')}") from None


@dataclass(frozen=True)
class _Keys:
    """The keys of a table in the file."""

    read: Callable[[str], Any]
    """Parses the text of a key; raises UsageError."""
    write: Callable[[Any], str] = str


def _one_of(names: Iterable[str]) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text not in names:
            raise UsageError(f"give one of {', '.join(names)}")
        return text

    return read


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise UsageError("give a number of at least 1")
    return int(text)


def _size(size: int) -> str:
    """A size in a notation that is read back exactly: `96MiB`, `1536KiB`."""
    for unit in (MIB, KIB):
        if size % unit == 0:
            return f"{size // unit}{'MiB' if unit == MIB else 'KiB'}"
    return f"{size}B"


_PAGE_NAMES = {size: name for name, size in PAGE_SIZES.items()}
_PAGES = _Keys(lambda text: PAGE_SIZES[_one_of(PAGE_SIZES)(text)], _PAGE_NAMES.__getitem__)
_SIZES = _Keys(byte_size, _size)
_CHASES = _Keys(_count)


def _table(about: str, *keys: _Keys, read: Callable[[Any, str], Any] = _read_spread) -> Any:
    """A field that is a table in the file, or nested tables where it has two keys. `about` is the
    comment behind its heading, and `read` parses a value.
    """
    return field(default_factory=dict, metadata={"about": about, "keys": keys, "read": read})


@dataclass(frozen=True)
class Calibration:
    """Figures of one processor; all cycles are core cycles.

    Tables by page size have sizes in bytes as keys, in ascending order, and no entry for a size
    that was not measured. The file has the tables in this order.
    """

    host: MeasuredHost
    cycles_per_second: float
    """Core cycles per second during the measurement; the clock of a core may vary."""
    tsc_per_second: float
    """Ticks of the time-stamp counter per second."""
    walk_cycles: Mapping[int, Spread] = _table(
        "added to a load; low: walks overlap, high: each load waits", _PAGES
    )
    """Cycles that a walk adds to a load, by page size. Low: independent loads, whose walks overlap;
    median and high: each load waits for the one before."""
    pause_cycles: float | None = None
    """Cycles of the pause of `paced_load_cycles`; None where no such loads were measured."""
    walk_cycles_by_footprint: Mapping[int, Mapping[int, Spread]] = _table(
        "by the bytes used in turn", _PAGES, _SIZES
    )
    """Cycles of a walk by page size and by the bytes that are used in turn: the more bytes, the
    farther from the core are the page tables."""
    load_cycles: Mapping[int, Mapping[int, Spread]] = _table(
        "over all lines of a working set, with walks", _PAGES, _SIZES
    )
    """Cycles of a load over all lines of a working set, by page size and by bytes. It includes the
    walks of its misses, while data and page tables compete for the caches. Low: independent loads;
    median and high: each load waits for the one before."""
    paced_load_cycles: Mapping[int, Mapping[int, Spread]] = _table(
        "the same, with a pause behind each load", _PAGES, _SIZES
    )
    """Cycles of a load that waits for the one before and for a pause of `pause_cycles`. The more
    time between walks, the more of the page table other work evicts from the caches."""
    displaced_load_cycles: Mapping[int, Mapping[int, Spread]] = _table(
        "the same, with reads of other memory behind each load", _PAGES, _SIZES
    )
    """Cycles of a load that waits for the one before and for reads of 64 random lines of other
    memory, which evict the page table from the caches."""
    second_level_hit_cycles: Mapping[int, Spread] = _table(
        "added to a load, over a hit in the first level", _PAGES
    )
    """Cycles that a second-level hit adds to a load over a first-level hit, by page size."""
    tlb: Mapping[int, Reach] = _table("entries, by page size", _PAGES, read=_read_reach)
    """TLB entries, by page size."""
    entry_bytes: Mapping[int, int] = _table(
        "bytes of a page that one TLB entry covers", _PAGES, read=_read_bytes
    )
    """Bytes of a page that one TLB entry covers, by page size: less than the page where the host
    of a virtual machine has smaller pages."""
    latency_cycles: Mapping[int, Spread] = _table(
        "of a load, by the size of its working set", _SIZES
    )
    """Latency of a load with few TLB misses, by the bytes of its working set."""
    parallel_load_cycles: Mapping[int, Mapping[int, Spread]] = _table(
        "of a load, by chases that run at once", _SIZES, _CHASES
    )
    """Cycles of a load, by the bytes of the working set and by the number of independent pointer
    chases that run at once."""
    random_read_cycles: Mapping[int, Spread] = _table(
        "of a random read, by the size of its working set", _SIZES
    )
    """Cycles of a random read that waits for the one before, by the bytes of the working set. They
    include the computation of its address; faster reads have filled the caches before."""
    lone_read_cycles: Mapping[int, Spread] = _table(
        "the same, where no faster reads came before", _SIZES
    )
    """Cycles of a random read without faster reads before: the caches hold only what such slow
    reads leave in them."""
    core: Mapping[str, Spread] = _table(
        "entries; low: find room, high: are all", _Keys(_one_of(CORE_FIGURES))
    )
    """Entries of the structures of the core, by names in `CORE_FIGURES`."""
    stream_bytes_per_second: Mapping[str, Spread] = _table(
        "of one core, from beginning to end", _Keys(_one_of(STREAMS))
    )
    """Bandwidth of one core that reads (`read`) or writes (`write`) memory from end to end."""
    fault_cycles: Mapping[int, Spread] = _table(
        "of a first touch of a page and its return, by page size", _PAGES
    )
    """Cycles of a first touch of a page of anonymous memory, by page size, with its zeroing and its
    return to the kernel."""
    returned_fault_cycles: Mapping[int, Spread] = _table(
        "the same of memory that the host had taken back", _PAGES
    )
    """Cycles of a first touch of memory that the host of a virtual machine had reclaimed while it
    was free, by page size; empty where no reclaim was seen."""
    kept_free_bytes: Mapping[int, int] = _table(
        "free memory that the host was seen to leave", _PAGES, read=_read_bytes
    )
    """Bytes of free memory that the host did not reclaim, by page size: for the sizes in
    `returned_fault_cycles`, without zeros."""
    notes: tuple[str, ...] = ()
    """The limits of the figures, a sentence each."""
    path: Path | None = None
    """The file from which it was read."""

    def walk_at(self, page_size: int, footprint_bytes: int) -> Spread | None:
        """Cycles of a walk where `footprint_bytes` are in use, from the nearest measured footprint
        on a logarithmic scale; None where the page size was not measured.
        """
        measured = self.walk_cycles_by_footprint.get(page_size)
        if not measured:
            return self.walk_cycles.get(page_size)
        wanted = math.log2(max(footprint_bytes, 1))
        return measured[min(measured, key=lambda size: abs(math.log2(size) - wanted))]

    def load_at(self, page_size: int, working_set_bytes: int) -> Spread | None:
        """Cycles of a load over a working set in pages of that size, interpolated as `_between`
        does; None for a working set below the smallest measured one.
        """
        return _between(self.load_cycles.get(page_size), working_set_bytes)

    def paced_load_at(self, page_size: int, working_set_bytes: int) -> Spread | None:
        """Cycles of a load with a pause before it, interpolated like `load_at`."""
        return _between(self.paced_load_cycles.get(page_size), working_set_bytes)

    def displaced_load_at(self, page_size: int, working_set_bytes: int) -> Spread | None:
        """Cycles of a load with reads of other memory before it, interpolated like `load_at`."""
        return _between(self.displaced_load_cycles.get(page_size), working_set_bytes)

    def walk_share(self, working_set_bytes: int) -> float | None:
        """Share of loads that walk, in random order over all lines of a working set in 4 KiB pages:
        loads from pages without a second-level entry. None where that level's reach is unknown.
        """
        reach = self.tlb.get(BASE_PAGE)
        if reach is None or reach.second is None:
            return None
        return max(0.0, 1 - reach.second.median * BASE_PAGE / working_set_bytes)

    def walk_seconds(self, page_size: int) -> Spread | None:
        """Seconds that a page walk adds to a load; None where it was not measured."""
        cycles = self.walk_cycles.get(page_size)
        if cycles is None:
            return None
        rate = self.cycles_per_second
        return Spread(cycles.low / rate, cycles.median / rate, cycles.high / rate)

    def document(self) -> dict[str, Any]:
        """The figures as plain data, page sizes and working sets in bytes."""
        plain = asdict(self)
        del plain["path"]
        return {**_with_text_keys(plain), "notes": list(self.notes)}


def _with_text_keys(table: dict[Any, Any]) -> dict[str, Any]:
    pairs = table.items()
    return {
        str(key): _with_text_keys(value) if isinstance(value, dict) else value
        for key, value in pairs
    }


def default_path(environment: Mapping[str, str] = os.environ) -> Path:
    """The default file of `octavo calibrate` and `load_calibration`: `octavo/calibration.toml` in
    $XDG_CONFIG_HOME, or in ~/.config where that is not set.
    """
    return configuration_directory(environment) / "calibration.toml"


def processor(root: Path = Path("/")) -> tuple[str, str]:
    """The model name of this processor, and its vendor, family, model and stepping."""
    parts = [
        f"{short} {cpu_field(name, root) or '?'}".strip()
        for short, name in (
            ("", "vendor_id"),
            ("family", "cpu family"),
            ("model", "model"),
            ("stepping", "stepping"),
        )
    ]
    return cpu_field("model name", root) or "unknown", " ".join(parts)


def load_calibration(
    path: str | os.PathLike[str] | None = None,
    *,
    note: Callable[[str], None] | None = None,
    root: Path = Path("/"),
) -> Calibration | None:
    """The calibration of this processor from `path`, by default `default_path()`.

    Returns None where the default file does not exist, and where a file was measured on another
    processor: then `note` is called with a sentence about it. Raises UsageError for a file that is
    not a calibration of this version, and CannotRun for a file that cannot be read, also where
    `path` names no file.
    """
    place = default_path() if path is None else Path(path)
    try:
        if path is None and not place.exists():
            return None
        with open_regular(place) as file:
            text = file.read()
    except UnicodeDecodeError:
        raise _wrong(place, "it is not text in UTF-8") from None
    except OSError as error:
        raise CannotRun(f"cannot read `{place}`: {error.strerror or error}.") from None
    found = parse_calibration(text, place)
    model, identity = processor(root)
    if (found.host.cpu_model, found.host.cpu_id) != (model, identity):
        if note is not None:
            note(
                f"`{printable(str(place))}` is ignored: it was measured on "
                f"{quoted(found.host.cpu_model)} ({quoted(found.host.cpu_id)}), this processor is "
                f"{model} ({identity}); `octavo calibrate` measures it."
            )
        return None
    return found


def parse_calibration(text: str, place: Path) -> Calibration:
    """The calibration in the text of a file. Raises UsageError, which names `place`."""
    try:
        document = parse_toml(text)
    except TomlError as error:
        raise _wrong(place, f"it is no TOML: {error}") from None
    if document.get("format") != FORMAT:
        found = quoted(document.get("format", "none"))
        raise _wrong(place, f"its `format` is {found}, this version reads {FORMAT}")
    try:
        return _calibration(document, place)
    except _WrongValue as wrong:
        key, what = wrong.args
        raise _wrong(place, f"`{quoted(key)}` {what}") from None


def _wrong(place: Path, what: str) -> UsageError:
    return UsageError(
        f"`{printable(str(place))}` is not a calibration: {what}; `octavo calibrate --force` "
        "writes a new one."
    )


def _calibration(document: dict[str, Any], place: Path) -> Calibration:
    host = _table_of(document, "host")
    notes = document.get("notes", [])
    if not isinstance(notes, list) or not all(isinstance(one, str) for one in notes):
        raise _WrongValue("notes", "is not a list of strings")
    pause = _table_of(document, "pause")
    return Calibration(
        host=MeasuredHost(**{one.name: _of_host(host, one.name) for one in fields(MeasuredHost)}),
        cycles_per_second=_read_rate(document.get("cycles_per_second"), "cycles_per_second"),
        tsc_per_second=_read_rate(document.get("tsc_per_second"), "tsc_per_second"),
        pause_cycles=_read_rate(pause.get("cycles"), "pause.cycles")
        if "pause" in document
        else None,
        notes=tuple(notes),
        path=place,
        **{
            table.name: _values(
                document, table.name, table.metadata["keys"], table.metadata["read"]
            )
            for table in fields(Calibration)
            if table.metadata
        },
    )


def _table_of(document: dict[str, Any], key: str) -> dict[str, Any]:
    table = document.get(key, {})
    if not isinstance(table, dict):
        raise _WrongValue(key, "is not a table")
    return table


def _of_host(host: dict[str, Any], key: str) -> Any:
    value = host.get(key)
    if key == "virtualised" and not isinstance(value, bool):
        raise _WrongValue(f"host.{key}", "is neither true nor false")
    if key != "virtualised" and not isinstance(value, str):
        raise _WrongValue(f"host.{key}", "is not a string" if key in host else "is missing")
    return value


def _values(
    document: dict[str, Any], name: str, keys: Sequence[_Keys], read: Callable[[Any, str], Any]
) -> dict[Any, Any]:
    """The values of a table in ascending order of its keys; nested tables where there are several
    `keys`.
    """
    found = {}
    first, *others = keys
    for text, value in _table_of(document, name).items():
        key = f"{name}.{text}"
        try:
            size = first.read(text)
        except UsageError as error:
            raise _WrongValue(key, f"has a wrong key: {str(error).rstrip('.')}") from None
        found[size] = _values({key: value}, key, others, read) if others else read(value, key)
    return dict(sorted(found.items()))


def _between(measured: Mapping[int, Spread] | None, bytes_: int) -> Spread | None:
    """The spread at a size, interpolated between the two nearest measured sizes on a logarithmic
    scale; None below the smallest measured size.
    """
    if not measured or bytes_ < min(measured):
        return None
    below = max(size for size in measured if size <= bytes_)
    above = min((size for size in measured if size > bytes_), default=below)
    if above == below:
        return measured[below]
    part = math.log2(bytes_ / below) / math.log2(above / below)
    ends = zip(*(asdict(measured[size]).values() for size in (below, above)), strict=True)
    return Spread(*((1 - part) * one + part * other for one, other in ends))


class CalibrationFile:
    """The file to which a calibration is to be written."""

    def __init__(self, name: str | None, *, force: bool = False) -> None:
        """Checks that the file can be written. Without `force`, only the default file (`name` is
        None) may exist. Raises UsageError or CannotRun.
        """
        self.path = default_path() if name is None else Path(name)
        place = str(self.path) if name is None else name
        self._file = NewFile(place, force=force or name is None, option="--out")
        self.replaced_date = _measured_at(self.path)
        """The date of the calibration in the file that will be replaced, if there is one."""

    def write(self, calibration: Calibration) -> None:
        """Writes the file whole, or raises CannotRun and leaves an existing file as it was."""
        self._file.write(calibration_toml(calibration))


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
    for key, value in asdict(found.host).items():
        yield f"{key} = {toml_value(value)}"
    for one in fields(found):
        value, metadata = getattr(found, one.name), one.metadata
        if metadata:
            yield from _table_lines(one.name, metadata["about"], value, metadata["keys"])
        elif one.name == "pause_cycles" and value is not None:
            yield ""
            yield "[pause]  # behind each paced load"
            yield f"cycles = {_number(value)}"


def _table_lines(
    name: str, about: str, values: Mapping[Any, Any], keys: Sequence[_Keys]
) -> Iterator[str]:
    """A heading and a line for each key; or nested tables where there are several `keys`."""
    first, *others = keys
    if others:
        for key, inner in sorted(values.items()):
            yield from _table_lines(f'{name}."{first.write(key)}"', about, inner, others)
        return
    yield ""
    yield f"[{name}]  # {about}"
    for key, value in sorted(values.items()):
        yield f'"{first.write(key)}" = {_text(value)}'


def _text(value: Spread | Reach | int) -> str:
    if isinstance(value, Reach):
        levels = (("first", value.first), ("second", value.second))
        parts = [f"{name} = {_text(level)}" for name, level in levels if level is not None]
    elif isinstance(value, Spread):
        parts = [f"{name} = {_number(part)}" for name, part in asdict(value).items()]
    else:
        return f'"{_size(value)}"'
    return f"{{{', '.join(parts)}}}"


def _number(value: float) -> str:
    """The value with four significant digits, or with all digits before the point."""
    return f"{value:.0f}" if value >= 1000 else f"{value:.4g}"
