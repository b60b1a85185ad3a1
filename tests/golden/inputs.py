"""Traces and files that the cases read, generated with the same contents each time."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path

import pyarrow
import xxhash

Reference = tuple[str, int, int]
"""Kind, address and size."""


def references(count: int) -> Iterator[Reference]:
    """Instructions in a loop, with a load or store in one of 300 pages after every second one."""
    state = 1
    for n in range(count):
        yield "fetch", 0x40_1000 + n % 1500 * 4, 4
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        if n % 2:
            page = (state >> 40) % 300 * (state >> 20 & 3) // 3
            kind = "store" if state >> 60 < 5 else "load"
            yield kind, 0x7F00_0000_0000 + page * 4096 + (state >> 30 & 0xFF8), 8


def pinatrace(count: int) -> bytes:
    """The text of Pin's example tool pinatrace, which has data references only."""
    letters = {"load": "R", "store": "W"}
    lines = (
        f"0x401000: {letters[kind]} {address:#x}\n"
        for kind, address, _ in references(count)
        if kind != "fetch"
    )
    return ("".join(lines) + "#eof\n").encode()


def gem5(count: int) -> bytes:
    """gem5's packets: Protocol Buffers messages of tick, command, address, size and flags."""

    def message(body: bytes) -> bytes:
        return _varint(len(body)) + body

    commands = {"fetch": (1, 0x100), "load": (1, 0), "store": (4, 0)}
    packets = b"gem5" + message(b"\x0a\x01x\x10\x00\x18\x01")
    for tick, (kind, address, size) in enumerate(references(count)):
        command, flags = commands[kind]
        fields = enumerate((tick, command, address, size, flags), start=1)
        packets += message(
            b"".join(bytes([number << 3]) + _varint(value) for number, value in fields)
        )
    return packets


def drmemtrace(count: int) -> bytes:
    """One thread of a trace of DynamoRIO, in records of type, size and address or number."""
    thread = 4243
    begin = [(25, 0, 7), (28, 12, 7), (28, 9, 0x40), (22, 0, thread), (24, 0, 4242), (28, 2, 13)]
    kinds = {"load": 0, "store": 1, "fetch": 10}
    records = [(kinds[kind], size, address) for kind, address, size in references(count)]
    records = [*begin, *records, (23, 0, thread), (26, 0, 0)]
    return b"".join(struct.pack("<HHQ", *record) for record in records)


def snapshot(*, with_frames: bool) -> bytes:
    """A snapshot of 128 MiB: free blocks of all orders, and fixed and movable memory."""
    state, orders, runs = 1, [0] * 11, b""
    frame, frames = 0, 1 << 15
    while frame < frames:
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        order = min((state >> 33) % 11, (frame & -frame).bit_length() - 1 if frame else 10)
        kind = (0, 2, 3)[(state >> 60) % 3]
        orders[order] += kind == 0
        runs += _varint((1 << order) * 8 + kind)
        frame += 1 << order
    zone = {"node": 0, "name": "DMA", "free_blocks": orders, "regions": None}
    head = {"taken_at_seconds": 1, "kernel": "", "memory_frames": frames, "zones": [zone]}
    header = json.dumps({**head, "process": None, "missing": []}).encode()
    stored = pyarrow.Codec("zstd").compress(runs, asbytes=True) if with_frames else b""
    lengths = len(header), len(stored), len(runs) if with_frames else 0
    body = b"OCTMEM\r\n" + struct.pack("<IIQQ", 1, *lengths) + header + stored
    return body + struct.pack("<Q", xxhash.xxh3_64_intdigest(body))


def _varint(number: int) -> bytes:
    low = number & 0x7F
    return bytes([low | 0x80]) + _varint(number >> 7) if number > 0x7F else bytes([low])


PHASES = """\
kind = "phases"
repeat = 2

[[phase]]
kind = "sequential"
bytes = "1MiB"
references = "5k"

[[phase]]
kind = "mix"
references = "10k"

[[phase.part]]
kind = "zipf"
theta = 0.8
weight = 3

[[phase.part]]
kind = "pointer-chase"
bytes = "2MiB"
"""

MACHINE = """\
extends = "zen4"
description = "Zen 4 whose second TLB takes what the first evicts"

[tlb.l2]
fill = "victim"
"""


def make(directory: Path) -> None:
    """Writes the inputs that are not made by the commands in cases.toml."""
    (directory / "data.pinatrace").write_bytes(pinatrace(4000))
    (directory / "requests.ptrc").write_bytes(gem5(4000))
    (directory / "thread.memtrace").write_bytes(drmemtrace(4000))
    (directory / "victim.toml").write_text(MACHINE)
    (directory / "phases.toml").write_text(PHASES)
    (directory / "frames.octmem").write_bytes(snapshot(with_frames=True))
    (directory / "orders.octmem").write_bytes(snapshot(with_frames=False))
