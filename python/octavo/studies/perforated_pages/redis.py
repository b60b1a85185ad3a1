"""Table I and section III-B of the study of perforated pages: the misses that large pages save
Redis, and the memory that they cost.

Redis is measured twice: a traced redis-server of a size that fits here, and a stream of the paper's
size with the references of the server's look-ups. A look-up of the stream reads a bucket of the
hash table, three words of small objects, and a value from end to end. Values of 16 KiB lie in slots
of 20 KiB, the size class of jemalloc for 16 KiB and a header. The share of free slots is chosen so
that large pages take as much more memory as in Table I: the paper gives that ratio, not the misses.
"""

from __future__ import annotations

import random
import shutil
import socket
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from io import BufferedRWPair
from pathlib import Path
from typing import IO, Any

import octavo._core as _core
from octavo.base.temporary import TemporaryDirectory
from octavo.base.toml import toml_table
from octavo.base.units import BASE_PAGE, GIB, KIB, MIB, format_bytes, format_count
from octavo.hardware.machines import Setting
from octavo.studies.perforated_pages.measurement import (
    BASE,
    BASELINE,
    PERFORATED,
    Counted,
    all_counted,
)
from octavo.studies.perforated_pages.random_accesses import MACHINE
from octavo.studies.programs import PHASES, NotMeasured, events, simulate, to_settings
from octavo.studies.reproduction import Say
from octavo.studies.simulation_pool import Pass, run_passes

SERVER = "redis-server"
VALUE_BYTES = 16 * KIB
_WAIT_SECONDS = 120
PAPER_GIB = {BASELINE: 92.9, BASE: 77.7}
"""Table I."""
FREE_SLOTS = round(1 - PAPER_GIB[BASE] / PAPER_GIB[BASELINE], 4)
DESIGNS = (BASE, BASELINE, f"{PERFORATED}:unused_are_holes=true:min_parts=0")
"""Untouched pages are holes: memory is that of 4 KiB pages."""
USUAL_INSTRUCTIONS = 14_700
"""Instructions of a look-up of Redis 7.0 with such values, for machines without redis-server."""

_SLOT_BYTES = 20 * KIB
_SPAN_BYTES = VALUE_BYTES + 64
"""A value and its header, in whole lines."""
_LINE = 64
_OBJECT_BYTES = 96
"""An entry of the hash table, its key, and the value's small object."""
_READS = {"buckets": 1, "objects": 3, "values": _SPAN_BYTES // _LINE}
"""References of a look-up to each table."""


@dataclass(frozen=True)
class RedisSize:
    """The sizes of the server and of the stream."""

    keys: int = 20_000
    lookups: int = 20_000
    settings: tuple[str, ...] = ("tlb.l2.main.entries=48",)
    """Settings of the server's machine: a second-level TLB as much smaller as the server is."""
    stream_keys: int = 4_000_000
    stream_lookups: int = 1_000_000


@dataclass(frozen=True)
class RedisMeasurement:
    """The counts of one server, or of the stream that stands for it."""

    name: str
    keys: int
    lookups: int
    designs: dict[str, Counted]

    @property
    def instructions_per_lookup(self) -> float | None:
        """Instructions of a counted look-up."""
        counted = next(iter(self.designs.values()), None)
        return None if counted is None else counted.instructions / self.lookups

    @property
    def bloat(self) -> float | None:
        """How much more memory large pages take than 4 KiB pages: 0.2 for 20%."""
        return self.growth(BASELINE)

    def growth(self, design: str) -> float | None:
        """How much more memory a design takes than 4 KiB pages."""
        one, base = self.designs.get(design), self.designs.get(BASE)
        if one is None or base is None:
            return None
        return one.resident_bytes / base.resident_bytes - 1

    def mpki(self, design: str) -> float | None:
        """TLB misses per 1000 instructions."""
        one = self.designs.get(design)
        return None if one is None else one.mpki

    @property
    def bitmap_mpki(self) -> float:
        """Bitmaps fetched from memory, per 1000 instructions."""
        one = self.designs.get(PERFORATED)
        return 0.0 if one is None else one.bitmap_fetches * 1000 / one.instructions

    def first_misses(self) -> dict[str, float] | None:
        """By design, misses of the first-level TLB for data per 1000 instructions; None if a design
        did not run to its end.
        """
        names = {BASE: "base", BASELINE: "large", PERFORATED: "perforated"}
        if not names.keys() <= self.designs.keys():
            return None
        named = ((name, self.designs[design]) for design, name in names.items())
        return {name: one.first_misses * 1000 / one.instructions for name, one in named}

    def record(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "name": self.name,
            "keys": self.keys,
            "lookups": self.lookups,
            "instructions_per_lookup": self.instructions_per_lookup,
            "bloat": self.bloat,
            "designs": {name: counted.record() for name, counted in self.designs.items()},
        }


@dataclass(frozen=True)
class _Prepared:
    """A stream that is ready to simulate."""

    name: str
    keys: int
    lookups: int
    options: tuple[str, ...]
    trace: Path


def measure_redis(
    size: RedisSize, say: Say, measured: list[RedisMeasurement], skipped: dict[str, str]
) -> None:
    """Adds the server and the stream to `measured`, or the reason why one was left out to
    `skipped`. Raises KeyboardInterrupt where the user stops the passes.
    """
    instructions = float(USUAL_INSTRUCTIONS)
    with TemporaryDirectory("octavo-redis-") as name:
        for what in ("the server", "the stream"):
            try:
                if what == "the server":
                    made = _recorded(size, Path(name), say)
                else:
                    made = _describe_stream(size, instructions, Path(name))
            except NotMeasured as why:
                skipped[f"Redis, {what}"] = str(why)
                continue
            common = (*simulate(MACHINE), *made.options, "--design")
            passes = [Pass(design, (*common, design, str(made.trace))) for design in DESIGNS]
            done = run_passes(passes, f"Redis, {what}", say)
            designs: dict[str, Counted] = {}
            for result in done.documents.values():
                designs.update(all_counted(result))
            for design, reason in done.failed.items():
                skipped[f"Redis, {what}, {design}"] = reason
            one = RedisMeasurement(made.name, made.keys, made.lookups, designs)
            if designs:
                measured.append(one)
                instructions = one.instructions_per_lookup or instructions
            if done.is_partial:
                raise KeyboardInterrupt


def _describe_stream(size: RedisSize, instructions: float, place: Path) -> _Prepared:
    path = place / "stream.toml"
    text, warm_up = stream(size, round(instructions))
    path.write_text(text, encoding="ascii")
    # All tables, and a tenth more for page tables.
    wanted = (
        size.stream_keys * (_SLOT_BYTES + _OBJECT_BYTES + 8) / (1 - FREE_SLOTS) * 1.1 + 64 * MIB
    )
    settings = to_settings({"memory.bytes": -(-int(wanted) // (4 * MIB)) * 4 * MIB})
    name = f"a stream of {format_count(size.stream_keys)} keys"
    options = (*settings, "--warm-up", str(warm_up))
    return _Prepared(name, size.stream_keys, size.stream_lookups, options, path)


def stream(size: RedisSize, instructions: int) -> tuple[str, int]:
    """The description of the stream with a number of instructions per look-up, and the number of
    instructions after which all memory has been touched.
    """
    slots = round(size.stream_keys / (1 - FREE_SLOTS))
    tables = {
        "buckets": (1 << (size.stream_keys - 1).bit_length()) * 8,
        "objects": size.stream_keys * _OBJECT_BYTES,
        "values": slots * _SLOT_BYTES,
    }
    unused: dict[str, Setting] = {"unused": FREE_SLOTS, "unused-slot": _SLOT_BYTES}
    places: dict[str, dict[str, Setting]] = {}
    at = 64 * GIB
    for name, table_bytes in tables.items():
        places[name] = {"bytes": table_bytes, "base": hex(at)}
        at += -(-table_bytes // (2 * MIB)) * 2 * MIB
    text, touches = PHASES, 0
    for name, table_bytes in tables.items():
        pages = -(-table_bytes // BASE_PAGE)
        touch: dict[str, Setting] = {"kind": "strided", "stride": BASE_PAGE}
        if name == "values":
            pages = (slots - round(slots * FREE_SLOTS)) * (_SLOT_BYTES // BASE_PAGE)
            touch = {"kind": "pointer-chase", "element": BASE_PAGE, **unused}
        text += toml_table(
            "phase", {**touch, **places[name], "references": pages, "instructions": 1}
        )
        touches += pages
    reads = sum(_READS.values())
    every: dict[str, Setting] = {"instructions": max(round(instructions / reads), 1)}
    text += f'\n[[phase]]\nkind = "mix"\nreferences = {size.stream_lookups * reads}\n'
    for name, weight in _READS.items():
        part: dict[str, Setting] = {"kind": "uniform", "weight": weight, **places[name], **every}
        if name == "objects":
            part |= {"element": _OBJECT_BYTES}
        if name == "values":
            part |= {"element": _SLOT_BYTES, "access": _LINE, "span": _SPAN_BYTES, **unused}
        text += toml_table("phase.part", part)
    return text, touches


def _recorded(size: RedisSize, place: Path, say: Say) -> _Prepared:
    made = record_server(size.keys, size.lookups, place, say)
    settings = [word for setting in size.settings for word in ("--set", setting)]
    options = (*settings, "--warm-up", str(made.lookups_from))
    return _Prepared(made.name, size.keys, size.lookups, options, made.trace)


@dataclass(frozen=True)
class Recorded:
    """A server's trace."""

    name: str
    trace: Path
    lookups_from: int
    """The instruction at which look-ups begin."""


def missing_server() -> str | None:
    """The reason why the server cannot run here; None if it can."""
    return f"{SERVER} is not installed" if shutil.which(SERVER) is None else None


def record_server(keys: int, lookups: int, place: Path, say: Say) -> Recorded:
    """Records a server that stores `keys` keys and then does `lookups` look-ups."""
    if missing := missing_server():
        raise NotMeasured(missing)
    contents = f"{format_count(keys)} keys of {format_bytes(VALUE_BYTES)}"
    say(f"tracing {SERVER}, {contents}")
    trace, address = place / "redis.oct", place / "socket"
    record = [sys.executable, "-m", "octavo", "record", "-q", "--force", "-o", str(trace), "--"]
    serve = [SERVER, "--port", "0", "--unixsocket", str(address), "--dir", str(place), "--save", ""]
    options = ["--appendonly", "no", "--enable-module-command", "local"]
    with (place / "output").open("w+b") as output:
        server = subprocess.Popen(
            [*record, *serve, *options],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        try:
            mark = str(_core.__file__)
            _ask(address, (keys, lookups), mark, server)
            server.wait(_WAIT_SECONDS)
        except (OSError, EOFError, subprocess.TimeoutExpired) as error:
            raise NotMeasured(f"{SERVER}: {_last_line(output) or error}") from error
        finally:
            if server.poll() is None:
                server.terminate()
                with suppress(subprocess.TimeoutExpired):
                    server.wait(_WAIT_SECONDS)
    return Recorded(f"{SERVER}, {contents}", trace, _lookups_from(trace, mark))


def _last_line(output: IO[bytes]) -> str:
    output.seek(0)
    lines = output.read().decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else ""


def _ask(
    address: Path, numbers: tuple[int, int], mark: str, server: subprocess.Popen[bytes]
) -> None:
    """Stores every key, leaves a mark in the trace, looks random keys up, and ends the server.

    The mark is a library that is not a module of Redis: it is mapped, refused and unmapped again.
    """
    keys, lookups = numbers
    with socket.socket(socket.AF_UNIX) as client:
        _connect(client, address, server)
        with client.makefile("rwb") as stream:
            value = b"v" * VALUE_BYTES
            for key in range(keys):
                _command(stream, b"SET", b"key:%d" % key, value)
            _command(stream, b"MODULE", b"LOAD", mark.encode())
            choose = random.Random(1)
            for _ in range(lookups):
                _command(stream, b"GET", b"key:%d" % choose.randrange(keys))
            _send(stream, b"SHUTDOWN", b"NOSAVE")


def _connect(client: socket.socket, address: Path, server: subprocess.Popen[bytes]) -> None:
    """Connects as soon as the server listens."""
    until = time.monotonic() + _WAIT_SECONDS
    while True:
        try:
            client.connect(str(address))
        except OSError:
            if server.poll() is not None or time.monotonic() > until:
                raise
            time.sleep(0.1)
        else:
            return


def _send(stream: BufferedRWPair, *words: bytes) -> None:
    """Sends a command in the protocol of Redis."""
    parts = (b"$%d\r\n%s\r\n" % (len(word), word) for word in words)
    stream.write(b"*%d\r\n%s" % (len(words), b"".join(parts)))
    stream.flush()


def _command(stream: BufferedRWPair, *words: bytes) -> None:
    """Sends a command and reads its answer."""
    _send(stream, *words)
    answer = stream.readline()
    if not answer.endswith(b"\n"):
        raise EOFError("it ended early")
    if answer.startswith(b"$"):
        stream.read(int(answer[1:]) + 2)


def _lookups_from(trace: Path, mark: str) -> int:
    """The instruction at which the look-ups begin: the library `mark` is unmapped again."""
    is_mapped = False
    for event in events(trace):
        is_mapped |= event["event"].startswith("map ") and mark in event["event"]
        if is_mapped and event["event"].startswith("unmap "):
            return int(event["instruction"])
    raise NotMeasured(f"{SERVER} did not map the library that marks the beginning of the look-ups")
