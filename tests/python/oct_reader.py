"""A reader of native traces, written from docs/trace-format.md alone.

It is independent of Octavo's code, is written to be read, and refuses a file that violates any rule
that can be checked.
"""

from __future__ import annotations

import json
import os
import struct
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow
import xxhash

STARTS = [b"OCTAVO\r\n" + struct.pack("<II", version, 0) for version in (1, 2, 3)]
HEADER = struct.Struct("<4s5I5Q")
BODY = struct.Struct("<2Q15I")
ZSTD = pyarrow.Codec("zstd")

MANIFEST, STREAM_BEGINS, CHUNK, STREAM_ENDS, INDEX = range(1, 6)
ITEMS = ("fetch", "load", "store", "modify")
DEFINITION, ALLOCATION_STACK = 1, 19
# The other records by kind: the name, the number of words, and whether a path follows them.
RECORDS = {
    2: ("process", 14, True),
    3: ("map", 6, True),
    4: ("unmap", 2, False),
    5: ("remap", 4, False),
    6: ("protect", 3, False),
    7: ("advise", 3, False),
    8: ("thread starts", 1, False),
    9: ("thread runs", 1, False),
    10: ("thread ends", 1, False),
    11: ("fork", 1, False),
    12: ("exec", 0, True),
    13: ("signal", 1, False),
    14: ("mark", 1, False),
    15: ("exit", 1, False),
    16: ("translation", 2, False),
    17: ("window begins", 2, False),
    18: ("window ends", 2, False),
    20: ("allocate", 4, False),
    21: ("release", 1, False),
    22: ("present", 3, False),
}


class Damaged(Exception):
    """The file violates docs/trace-format.md."""


def check(holds: bool, what: str) -> None:
    """Raises Damaged if a condition does not hold."""
    if not holds:
        raise Damaged(what)


class Reference(NamedTuple):
    """An access to memory. `instruction` is the number of its instruction in the stream, from 0."""

    stream: int
    instruction: int
    kind: str  # of ITEMS; a modify counts as two references
    address: int
    size: int
    atomic: bool


class Event(NamedTuple):
    """A record that is not a definition. `instruction` is the number of instructions before it."""

    stream: int
    instruction: int
    kind: str  # of RECORDS
    words: tuple[int, ...]
    path: str | None


class Item(NamedTuple):
    """One item of a segment's definition."""

    kind: str
    size: int
    guarded: bool
    atomic: bool
    address: int  # of a fetch; for data, the offset from the address of its group
    joined: bool
    offset: int  # its instruction in the segment; -1 is the last one of the segment before


class Segment(NamedTuple):
    """A segment's definition."""

    instructions: int
    items: list[Item]


class Frame(NamedTuple):
    """A frame; the counts are the three that only a chunk has."""

    kind: int
    stream: int
    counts: tuple[int, int, int]
    first: bytes
    second: bytes


class Chunk(NamedTuple):
    """A chunk's words. The counts are the instructions before it, its own instructions, and its
    references.
    """

    stream: int
    counts: tuple[int, int, int]
    words: array[int]


@dataclass
class Stream:
    """A stream: the contents of its first and last frame, and the totals of its chunks."""

    begin: dict[str, Any]
    end: dict[str, Any] | None = None
    instructions: int = 0
    references: int = 0
    hash: Any = field(default_factory=xxhash.xxh3_128)
    segments: list[Segment] = field(default_factory=list)


class Trace:
    """A native trace. It is read once: by `chunks`, or by `entries`, which interprets chunks."""

    def __init__(self, path: Path) -> None:
        self.data = path.read_bytes()
        self.manifest: dict[str, Any] | None = None
        self.streams: dict[int, Stream] = {}

    def frames(self) -> Iterator[Frame]:
        """Every frame but the index, which is compared with the others."""
        place, index = len(STARTS[0]), b""
        check(self.data[:place] in STARTS, "no native trace of version 1 to 3")
        while (frame := self.frame(place)).kind != INDEX:
            yield frame
            index += struct.pack("<QIIQQQ", place, frame.kind, frame.stream, *frame.counts)
            place += HEADER.size + len(frame.first) + len(frame.second)
        check((frame.first, frame.second) == (index, b""), "the index")
        end = struct.pack("<Q", place) + b"OCTAVOIX"
        check(self.data[place + HEADER.size + len(index) :] == end, "the end of the file")

    def frame(self, place: int) -> Frame:
        """The frame at an offset."""
        at = place + HEADER.size
        header = self.data[place:at]
        check(len(header) == HEADER.size, "the file was cut: no index")
        magic, kind, stream, size1, size2, checksum, *counts, hash1, hash2 = HEADER.unpack(header)
        check(magic == b"OFR\n" and MANIFEST <= kind <= INDEX, "a frame's beginning")
        low = xxhash.xxh3_64_intdigest(header[:20] + bytes(4) + header[24:]) & 0xFFFF_FFFF
        check(low == checksum, "a header's checksum")
        first, second = self.data[at : at + size1], self.data[at + size1 : at + size1 + size2]
        check(len(first) + len(second) == size1 + size2, "the file was cut in a frame")
        check(xxhash.xxh3_64_intdigest(first) == hash1, "a first part's checksum")
        check(xxhash.xxh3_64_intdigest(second) == hash2, "a second part's checksum")
        return Frame(kind, stream, (counts[0], counts[1], counts[2]), first, second)

    def chunks(self) -> Iterator[Chunk]:
        """The words of all streams, chunk by chunk. Also sets the manifest and the streams."""
        for frame in self.frames():
            check(self.manifest is not None or frame.kind == MANIFEST, "a manifest comes first")
            if frame.kind == MANIFEST:
                self.manifest = json.loads(frame.first)
                continue
            if frame.kind == STREAM_BEGINS:
                check(frame.stream not in self.streams, "a stream begins once")
                self.streams[frame.stream] = Stream(json.loads(frame.first))
                continue
            stream = self.streams[frame.stream]
            check(stream.end is None, "nothing comes after a stream's end")
            if frame.kind == CHUNK:
                instructions, references, words = decode(frame.first, frame.second)
                check(frame.counts == (stream.instructions, instructions, references), "counts")
                stream.instructions += instructions
                stream.references += references
                stream.hash.update(words)
                yield Chunk(frame.stream, frame.counts, words)
            else:
                stream.end = json.loads(frame.first)
                check(stream.end["instructions"] == stream.instructions, "instructions")
                check(stream.end["references"] == stream.references, "references")
                check(stream.end["words_xxh3_128"] == stream.hash.hexdigest(), "hash of words")
        check(all(stream.end for stream in self.streams.values()), "every stream ends")

    def entries(self) -> Iterator[Reference | Event]:
        """References and events, in the order of the file."""
        for chunk in self.chunks():
            yield from interpret(chunk, self.streams[chunk.stream].segments)


def decode(first: bytes, second: bytes) -> tuple[int, int, array[int]]:
    """The body of a chunk: its instructions, its references and its words."""
    instructions, references, e, a, r, w, s, *stored = BODY.unpack_from(first)
    check(e + a + w <= 1 << 22, "words of a chunk")
    body, ends = first + second, list(accumulate(stored, initial=BODY.size))
    check((ends[1], ends[10]) == (len(first), len(body)), "bytes of sections")

    def section(number: int, size: int) -> bytes:
        content = body[ends[number] : ends[number + 1]]
        check((content == b"") == (size == 0), "an empty section")
        return ZSTD.decompress(content, decompressed_size=size, asbytes=True) if size else b""

    records = array("Q", section(0, 8 * w))
    gaps = array("I", section(1, 4 * r))
    numbers = array("I", section(2, 4 * s))
    sites = [[0] * count for count in array("I", section(3, 4 * s))]
    code, width = ("B", 1) if s <= 1 << 8 else ("H", 2) if s <= 1 << 16 else ("I", 4)
    sequence = iter(array(code, section(4, width * e)))
    symbols = section(5, a)
    check(max(symbols, default=0) < 20, "a symbol")
    deltas: list[Iterator[int]] = [iter([0] * a)]
    for number, code, width in ((1, "b", 1), (2, "h", 2), (3, "i", 4), (4, "q", 8)):
        many = sum(symbols.count(4 * number + base) for base in range(4))
        stored_deltas = section(5 + number, many * width)
        content = bytearray(stored_deltas)
        if width >= 4:
            for plane in range(width):
                content[plane::width] = stored_deltas[plane * many : (plane + 1) * many]
        deltas.append(iter(array(code, content)))

    words: array[int] = array("Q")
    executed = at = seen = last = before_last = 0
    next_symbol = iter(symbols)
    for gap in [*gaps, e - sum(gaps)]:  # executions before each record, and after the last one
        for _ in range(gap):
            which = next(sequence)
            if which >= seen:
                check(which == seen, "the order of first executions")
                seen += 1
            words.append(numbers[which])
            site = sites[which]
            for item, before in enumerate(site):
                address = 0
                if symbol := next(next_symbol):
                    base = (0, before, last, before_last)[symbol % 4]
                    address = (base + next(deltas[symbol // 4])) % 2**64
                    site[item], last, before_last = address, address, last
                words.append(address)
        executed += gap
        if at < w:
            end = at + 1 + records[at] % 2**32
            words.extend(records[at:end])
            at = end
    check((executed, at, seen, len(words)) == (e, w, s, e + a + w), "the contents of a chunk")
    return instructions, references, words


def interpret(chunk: Chunk, segments: list[Segment]) -> Iterator[Reference | Event]:
    """Decodes a chunk's words by the definitions of its stream. The chunk may add definitions."""
    words, (instruction, instructions, references) = chunk.words, chunk.counts
    at, last = 0, instruction + instructions
    while at < len(words):
        header, at = words[at], at + 1
        if header >> 63:
            content = words[at : at + header % 2**32]
            at += len(content)
            if header >> 48 & 0xFF == DEFINITION:
                define(content, segments)
            else:
                yield event(chunk.stream, instruction, header >> 48 & 0xFF, content)
            continue
        segment = segments[header]
        group = 0
        for kind, size, guarded, atomic, address, joined, offset in segment.items:
            if kind != "fetch":
                if not joined:
                    group, at = words[at], at + 1
                if guarded and group == 0:
                    continue
                address = (group + address) % 2**64
            number = max(0, instruction + offset)
            yield Reference(chunk.stream, number, kind, address, size, atomic)
            references -= 2 if kind == "modify" else 1
        instruction += segment.instructions
    check((instruction, references) == (last, 0), "the counts of a chunk")


def define(words: array[int], segments: list[Segment]) -> None:
    """Adds a segment to those of a stream, or replaces one."""
    number, at, instruction = words[0] % 2**32, 2, -1
    items: list[Item] = []
    groups: list[list[Item]] = []
    for _ in range(words[0] >> 32):
        bits, at = words[at], at + 1
        kind, size, address = ITEMS[bits & 3], bits >> 16 & 0xFFFF, 0
        if kind == "fetch":
            address, at, instruction = words[at], at + 1, instruction + 1
        else:
            address = bits >> 32 & 0xFFFF
        check(1 <= size <= 4096, "an item's size")
        guarded, atomic, joined = (bool(bits >> bit & 1) for bit in (2, 3, 4))
        items.append(Item(kind, size, guarded, atomic, address, joined, instruction))
        if joined:
            groups[-1].append(items[-1])
        elif kind != "fetch":
            groups.append([items[-1]])
    for group in groups:
        check(min(item.address for item in group) == 0, "the lowest offset of a group")
        check(all(item.address + item.size <= 4096 for item in group), "a group's reach")
        check(len(group) == 1 or not any(item.guarded for item in group), "a guarded item")
    check(words[1] == instruction + 1, "a definition's instructions")
    for _ in range(words[1]):
        has_late = words[at + 1] >> 23 & 1
        at += 5 if has_late else 3
    check(len(words) == at, "a definition's words")
    check(number <= len(segments), "a segment's number")
    segments[number : number + 1] = [Segment(words[1], items)]


def event(stream: int, instruction: int, kind: int, words: array[int]) -> Event:
    """A record that is not a definition."""
    if kind == ALLOCATION_STACK:  # without the names of the functions
        return Event(
            stream, instruction, "allocation stack", (words[0], *words[2 : 2 + words[1]]), None
        )
    name, many, has_path = RECORDS[kind]
    path = None
    if has_path:
        size, content = words[many], words[many + 1 :].tobytes()
        check(content == content[:size].ljust((size + 7) // 8 * 8, b"\0"), "a path")
        path = os.fsdecode(content[:size])
    check(has_path or len(words) == many, "a record's words")
    return Event(stream, instruction, name, tuple(words[:many]), path)
