"""docs/trace-format.md: a reader written from that page alone gives the same entries as Octavo."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any

import pytest

from oct_reader import CHUNK, Damaged, Event, Reference, Trace
from octavo import _core

from .conftest import OCTAVO, WORKLOADS, natively, workload

SCRIPT = "(exit 3); ./dependences; PATH=/no/such:.; exec dependences"
PROGRAMS = {
    "static": workload("static_count"),
    "threads": workload("threads", 2, 1, 1),
    "processes": ["sh", "-c", SCRIPT],
    "small": workload("dependences"),
    "allocations": workload("allocations", 100),
    # Begins counting by running `octavo ctl` itself.
    "part": ["sh", "-c", f"{OCTAVO} ctl $$ start; for i in 1 2 3 4 5; do echo $i; done"],
}
ALL = 1 << 40
UNKNOWN = (1 << 64) - 1

Entry = tuple[Any, ...]
Recorded = Callable[[str], Path]


def record(argv: list[str], path: Path, options: Sequence[str] = ()) -> Path:
    line = [OCTAVO, "record", "--quiet", *options, "-o", path, "--", *argv]
    ended = natively(line, cwd=WORKLOADS)
    assert path.exists(), ended.stderr.decode()
    return path


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """The trace of one of the programs, recorded once."""
    directory = tmp_path_factory.mktemp("traces")
    part = ["--start-after", "ctl", "--no-follow"]
    options = {"allocations": ["--allocations"], "part": part}
    return cache(
        lambda name: record(PROGRAMS[name], directory / f"{name}.oct", options.get(name, ()))
    )


def theirs(path: Path, *, entries: int = ALL, start: int = 0) -> tuple[Sequence[Any], str | None]:
    """The entries that Octavo lists from an instruction on, and the fault of the trace."""
    return _core.Trace.open(str(path)).list(entries=entries, from_instruction=start)


def refuses(path: Path) -> bool:
    """Whether Octavo reports a fault in a trace."""
    try:
        return theirs(path)[1] is not None
    except _core.OctavoError:
        return True


def ours(trace: Trace) -> Iterator[Entry]:
    """The entries of the other reader, without descriptions of processes, which Octavo omits."""
    for entry in trace.entries():
        if isinstance(entry, Reference):
            yield entry
        elif entry.kind != "process":
            yield entry.stream, entry.instruction, "event", describe(entry)


def describe(event: Event) -> str:
    """An event in Octavo's words."""
    words = event.words

    def extent(at: int) -> str:
        return f"{words[at]:#x}-{words[at] + words[at + 1]:#x}"

    def rights(at: int) -> str:
        return "".join(right if words[at] >> bit & 1 else "-" for bit, right in enumerate("rwx"))

    match event.kind.split():
        case ["map"]:
            file = f"{event.path} from {words[5]:#x}"
            source = ("anonymous", file, "stack", "heap", "shared")[words[4]]
            return f"map {extent(0)} {rights(2)} {source}"
        case ["unmap"]:
            return f"unmap {extent(0)}"
        case ["remap"]:
            return f"remap {extent(0)} to {extent(2)}"
        case ["protect"]:
            return f"protect {extent(0)} {rights(2)}"
        case ["advise"]:
            return f"advise {extent(0)} {words[2]}"
        case ["thread", what]:
            return f"thread {words[0]} {what}"
        case ["allocation", "stack"]:
            return " ".join(["allocation stack", str(words[0]), *map(hex, words[1:])])
        case ["allocate"]:
            return f"allocate {extent(0)} by stack {words[2] & 0xFFFFFFFF}"
        case ["release"]:
            return f"release {words[0]:#x}"
        case ["fork"]:
            return f"fork of process {words[0]}"
        case ["exec"]:
            return f"exec {event.path or 'failed'}"
        case ["window", what]:
            places = zip((" instructions", " ms"), words, strict=True)
            known = [f" after {number}{unit}" for unit, number in places if number != UNKNOWN]
            return f"window {what}{''.join(known[:1])}"
        case ["present"]:
            return f"present {extent(0)}" if words[2] & 1 else f"present in part {extent(0)}"
        case [other]:
            return f"{other} {words[0]}"
    raise AssertionError(event)


def difference(some: Iterable[Entry], listing: Iterable[Any]) -> tuple[int, object, object] | None:
    """The first difference between entries and a listing of Octavo: its index and both entries."""
    pairs = enumerate(zip_longest(some, (tuple(entry.values()) for entry in listing)))
    return next(((at, one, other) for at, (one, other) in pairs if one != other), None)


@pytest.mark.parametrize("name", PROGRAMS)
def test_all_references_and_events(name: str, recorded: Recorded):
    trace = Trace(recorded(name))
    listing, fault = theirs(recorded(name))
    assert fault is None
    assert difference(ours(trace), listing) is None
    assert sum(stream.references for stream in trace.streams.values()) > 1000


def test_streams(recorded: Recorded):
    trace = Trace(recorded("processes"))
    assert all(trace.chunks())
    streams = [stream.begin | (stream.end or {}) for _, stream in sorted(trace.streams.items())]
    assert [(s["began"], s["parent"], s["ended"], s["exit_code"]) for s in streams] == [
        ("start", None, "exec", None),
        ("fork", 0, "exit", 3),
        ("fork", 0, "exec", None),
        ("exec", 2, "exit", 0),
        ("exec", 0, "exit", 0),
    ]


def test_a_chunk_after_another(tmp_path: Path):
    """Definitions remain valid after a chunk, bases of addresses do not. Octavo has to seek."""
    path = record(workload("long_store"), tmp_path / "trace.oct")
    begins = [frame.counts[0] for frame in Trace(path).frames() if frame.kind == CHUNK]
    start, end = begins[1] - 1000, begins[1] + 1000
    listing, fault = theirs(path, start=start, entries=10_000)
    assert fault is None
    some = (entry for entry in ours(Trace(path)) if start <= entry[1] < end)
    assert difference(some, (entry for entry in listing if entry["instruction"] < end)) is None


def test_the_part_before_a_cut_is_read(recorded: Recorded, tmp_path: Path):
    whole, path = recorded("processes").read_bytes(), tmp_path / "cut.oct"
    path.write_bytes(whole[: len(whole) // 2])
    listing, fault = theirs(path)
    assert listing
    assert fault is not None
    assert "cut off" in fault
    entries = ours(Trace(path))
    assert difference(islice(entries, len(listing)), listing) is None
    with pytest.raises(Damaged, match="the file was cut"):
        next(entries)


def test_any_changed_byte_is_detected(recorded: Recorded, tmp_path: Path):
    """A trace with a changed byte is reported as damaged by both readers."""
    whole, path = recorded("small").read_bytes(), tmp_path / "damaged.oct"
    for at in range(0, len(whole), 29):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << at % 8]) + whole[at + 1 :])
        with pytest.raises(Damaged):
            all(Trace(path).chunks())
        assert refuses(path), at
