"""The fragmented memories of the study of Tailored Page Sizes.

The paper used the memory of a heavily loaded server with just enough free memory for its
benchmarks. This study generates one: free blocks of each size, in the same shares for every
program, and in all a little more than the program takes. Figure 15 also has the current memory of
this machine.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from octavo._core import OctavoError
from octavo.base.temporary import TemporaryDirectory
from octavo.base.units import KIB, MIB
from octavo.snapshot import take_snapshot

SHARES = {
    4 * KIB: 0.05,
    8 * KIB: 0.06,
    16 * KIB: 0.08,
    32 * KIB: 0.11,
    64 * KIB: 0.14,
    128 * KIB: 0.16,
    256 * KIB: 0.15,
    512 * KIB: 0.12,
    MIB: 0.08,
    2 * MIB: 0.03,
    4 * MIB: 0.02,
}
"""The share of free memory that lies in blocks of each size."""
SIZES = tuple(4 * KIB << step for step in range(13))
"""The page sizes of Figure 15: 4 KiB to 16 MiB."""
ROOM = 1.25
"""Free memory, including page tables, for each byte that is resident with 4 KiB pages."""
SPARE_BYTES = 4 * MIB
MEMORY_PER_FREE = 4
"""Total memory for each free byte: enough places for free blocks of which no two are buddies."""


@dataclass(frozen=True)
class Coverage:
    """The shares of free memory that single page sizes could use."""

    memory: str
    """The name of the memory."""
    shares: dict[int, float | None]
    """The share by page size; None if unknown."""


def fragmented(resident_bytes: int) -> dict[str, Any]:
    """Settings of a machine with just enough free memory for a program of `resident_bytes`."""
    free_bytes = int(resident_bytes * ROOM) + SPARE_BYTES
    blocks = {size: round(share * free_bytes / size) for size, share in SHARES.items()}
    memory_bytes = -(-free_bytes * MEMORY_PER_FREE // (4 * MIB)) * 4 * MIB
    return {
        "memory.bytes": memory_bytes,
        "memory.fragmentation": {
            "kind": "order-mix",
            "free_blocks": {f"{size // KIB}KiB": number for size, number in blocks.items()},
            "movable_share": 0.0,
        },
    }


def coverages() -> Iterator[Coverage]:
    """The simulated memory, and the current memory of this machine, if it may be read."""
    covered: dict[int, float | None] = {
        size: sum(share for block, share in SHARES.items() if block >= size) for size in SIZES
    }
    yield Coverage("as simulated", covered)
    with TemporaryDirectory("octavo-study-") as name:
        try:
            taken = take_snapshot(Path(name) / "now.octmem")
        except OctavoError:
            return
    shares = {size["page_size_bytes"]: size["share"] for size in taken.summary["coverage"]}
    yield Coverage("this machine", {size: shares.get(size) for size in SIZES})
