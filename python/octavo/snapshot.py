"""Snapshots of a machine's memory: takes, stores and describes them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import octavo._core as _core
from octavo.base.files import NewFile
from octavo.base.table import Grid
from octavo.base.units import counted, format_bytes, format_count, format_share

if TYPE_CHECKING:
    from octavo._core import SnapshotSummary

SCHEMA = "octavo/snapshot/1"


@dataclass(frozen=True)
class MemorySnapshot:
    """The memory of a machine at one moment, in numbers."""

    file: str
    """The file of the snapshot."""
    summary: SnapshotSummary
    """All reported figures; the states of frames are only in the file."""

    def document(self) -> dict[str, Any]:
        """The document of `octavo snapshot --json`."""
        return {"schema": SCHEMA, "file": self.file, **self.summary}


def take_snapshot(
    file: str | os.PathLike[str], *, pid: int | None = None, force: bool = False
) -> MemorySnapshot:
    """Writes the memory of this machine as it is now to `file`.

    Data that may not be read is left out and listed in the summary's `missing`; with `pid` the
    snapshot also records the physical layout of that process. Raises OctavoError if there is no
    such process, or the file cannot be written or exists and is not to be overwritten.
    """
    new = NewFile(os.fspath(file), force=force, option="-o")
    write, snapshot = captured(new.name, pid)
    new.write(write)
    return snapshot


def captured(file: str, pid: int | None = None) -> tuple[Callable[[Path], None], MemorySnapshot]:
    """Takes a snapshot of this machine's memory. Returns a function that writes it to a file, and
    its summary. Raises OctavoError.
    """
    content, summary = _core.take_snapshot(pid=pid)

    def write(place: Path) -> None:
        place.write_bytes(content)

    return write, MemorySnapshot(file, json.loads(summary))


def read_snapshot(file: str | os.PathLike[str]) -> MemorySnapshot:
    """Reads a file that `take_snapshot` wrote. Raises OctavoError for any other file."""
    name = os.fspath(file)
    return MemorySnapshot(name, json.loads(_core.read_snapshot(name)))


def headline(snapshot: MemorySnapshot) -> str:
    """A summary in one line."""
    summary = snapshot.summary
    known = "every frame" if summary["exact"] else "free blocks by order, not where they lie"
    free, memory = format_bytes(summary["free_bytes"]), format_bytes(summary["memory_bytes"])
    return f"{snapshot.file}: {known}; {free} of {memory} free, Linux {summary['kernel']}"


def facts(summary: SnapshotSummary) -> list[str]:
    """Further facts, a sentence each."""
    sentences = []
    states = summary["states"]
    if states is not None:
        parts = ", ".join(f"{format_bytes(size)} {name}" for name, size in states.items() if size)
        sentences.append(f"Frames: {parts}.")
    if summary["movable_share"] is not None:
        share = format_share(summary["movable_share"])
        sentences.append(f"2 MiB regions that Linux keeps for what may be moved: {share}.")
    process = summary["process"]
    if process is not None:
        pages = counted(process["resident_frames"], "page")
        sentences.append(
            f"Process {process['pid']} ({process['name']}): {pages} of 4 KiB in memory."
        )
    sentences += [f"Missing: {sentence}." for sentence in summary["missing"]]
    return sentences


def coverage_grid(summary: SnapshotSummary) -> Grid:
    """Free memory that each page size could use (Guvenilir and Patt, ISCA 2020, Figure 15)."""
    process = summary["process"]
    head: tuple[str, ...] = ("page size", "free blocks", "usable", "of free memory")
    body: list[tuple[str, ...]] = []
    for size in summary["coverage"]:
        blocks, usable = size["free_blocks"], size["usable_bytes"]
        cells = (
            format_bytes(size["page_size_bytes"]),
            "" if blocks is None else format_count(blocks),
            "unknown" if usable is None else format_bytes(usable),
            "" if usable is None else format_share(size["share"]),
        )
        mapped = size["process_bytes"]
        body.append(cells if mapped is None else (*cells, format_bytes(mapped)))
    if process is not None:
        head = (*head, "could map of the process")
    return Grid("Free memory by page size", head, tuple(body))
