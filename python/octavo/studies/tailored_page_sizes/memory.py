"""The fragmented memories of the study of Tailored Page Sizes.

The paper took that of a heavily loaded server, with just enough of it free for its benchmarks. Here
it is made: so many free blocks of each size, in the same shares for every program, and not much
more in all than the program takes. This machine's own, as it is now, stands beside it in Figure 15.
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
"""Of Figure 15: 4 KiB to 16 MiB."""
ROOM = 1.25
"""Free memory for each byte that is resident with 4 KiB pages: page tables are in it, too."""
SPARE_BYTES = 4 * MIB
MEMORY_PER_FREE = 4
"""Memory in all for each byte that is free, so that free blocks find places where no two are
buddies."""


@dataclass(frozen=True)
class Coverage:
    """How much of a free memory each page size could use, alone."""

    memory: str
    """The machine or server that it is from."""
    shares: dict[int, float | None]
    """By page size; None if unknown."""


def fragmented(resident_bytes: int) -> dict[str, Any]:
    """Settings of a machine whose memory is just enough for a program that takes so much."""
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
    """The memory of the simulations, and that of this machine now, if it may be read."""
    covered = {size: sum(of for block, of in SHARES.items() if block >= size) for size in SIZES}
    yield Coverage("as simulated", dict(covered))
    with TemporaryDirectory("octavo-study-") as name:
        try:
            taken = take_snapshot(Path(name) / "now.octmem")
        except OctavoError:
            return
    shares = {size["page_size_bytes"]: size["share"] for size in taken.summary["coverage"]}
    yield Coverage("this machine", {size: shares.get(size) for size in SIZES})
