"""Small traces for tests: references as tuples, written and read in any format."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from octavo.traces.by_name import open_trace
from octavo.traces.conversion import convert_trace

Reference = tuple[str, int, int]
"""Kind, address and size."""


def write_csv(path: Path, references: Sequence[Reference]) -> str:
    rows = (f"{kind},{address:#x},{size}\n" for kind, address, size in references)
    path.write_text("kind,address,size\n" + "".join(rows))
    return str(path)


def convert(source: str, target: Path | str) -> str:
    convert_trace(source, str(target), lambda progress: None, force=True)
    return str(target)


def read(name: str, format: str | None = None) -> list[Reference]:
    """All references of a small trace."""
    entries, fault = open_trace(name, format=format).list(entries=1 << 20)
    assert fault is None
    return [
        (entry["kind"], entry["address"], entry["size"])
        for entry in entries
        if entry["kind"] != "event"
    ]


SOME: list[Reference] = [
    ("fetch", 0x40_0000, 3),
    ("load", 0x7FFF_0000_1000, 8),
    ("fetch", 0x40_0003, 2),
    ("store", 0x5555_0000_0008, 4),
    ("modify", 0x5555_0000_0010, 8),
]
