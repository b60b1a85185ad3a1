"""Figure 10 of the study of perforated pages: random accesses to 2 GiB in memory with faulty
frames, beside Gap-Tolerant Sequential Mapping.

Faulty frames are unusable. Dispersed, each frame is as likely to be faulty as any other, as in
the paper; clustered ones come in runs of 64 KiB, and stand beside it. A page of GTSM needs
32 sub-blocks of 64 KiB of a chunk of 4 MiB without any fault: the study counts how many chunks have
so many.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from octavo.base.units import MIB
from octavo.studies.perforated_grid import Point, Size, on_a_memory, simulation, stream
from octavo.studies.perforated_measurement import (
    BASE,
    BASELINE,
    PERFORATED,
    Counted,
    gain,
)
from octavo.studies.perforated_memory import Fragments, Layout
from octavo.studies.simulation_pool import Done, Pass

GTSM, IDEAL = "gtsm", "ideal2m"
CHUNK = 4 * MIB
"""Of which a page of GTSM is made."""
PAPER_PORTION = 0.055
PORTIONS = (0.01, 0.02, 0.03, 0.04, PAPER_PORTION)
_MEMORY = 6
"""So many times the data: 12 GiB, the machine of section III-C, for 2 GiB."""
_PERFORATED = f"{PERFORATED}:max_filter_bits=8:min_parts=0"
"""Faults are everywhere: the usual rule would refuse every region."""


@dataclass(frozen=True)
class Faults:
    """A memory of which so much is faulty."""

    portion: float
    layout: Layout

    @property
    def key(self) -> str:
        """A name among other passes."""
        return f"{self.portion:.1%} of faults, {self.layout}"


@dataclass(frozen=True)
class FaultRow:
    """The counts of every design on one memory."""

    faults: Faults
    memory_bytes: int
    designs: dict[str, Counted]

    def relative(self, design: str, base: str = BASE, *, overlapped: bool = False) -> float | None:
        """The IPC of one design over that of another."""
        more = gain(self.designs, design, base, overlapped=overlapped)
        return None if more is None else 1 + more

    @property
    def covered(self) -> float | None:
        """The share of the data's regions that GTSM has a large page for."""
        one, ideal = self.designs.get(GTSM), self.designs.get(IDEAL)
        if one is None or ideal is None or not ideal.large_pages:
            return None
        return (one.gapped_pages + one.large_pages) / ideal.large_pages

    def record(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "portion": self.faults.portion,
            "layout": self.faults.layout,
            "memory_bytes": self.memory_bytes,
            "gtsm_covered": self.covered,
            "perforated_over_gtsm": self.relative(PERFORATED, GTSM),
            "perforated_over_gtsm_overlapped": self.relative(PERFORATED, GTSM, overlapped=True),
            "designs": {name: of.record() for name, of in self.designs.items()},
        }


def memories() -> Iterator[Faults]:
    """Dispersed ones up to the paper's share; and that share, clustered."""
    for portion in PORTIONS:
        yield Faults(portion, "dispersed")
    yield Faults(PAPER_PORTION, "clustered")


def fault_passes(of: Sequence[Faults], size: Size, place: Path) -> Iterator[Pass]:
    """A pass for each memory; the stream is described in a file at `place`."""
    path = place / "faults.toml"
    text, warm_up = stream(Point(Fragments(0.0, 0.0, "clustered"), is_allocated=True), size)
    path.write_text(text, encoding="ascii")
    designs = [BASE, BASELINE, _PERFORATED, GTSM, IDEAL]
    for faults in of:
        settings: dict[str, Any] = {
            "memory.bytes": _MEMORY * size.table_bytes,
            "memory.fragmentation": {
                "kind": "faults",
                "portion": faults.portion,
                "layout": faults.layout,
            },
        }
        yield simulation(faults.key, settings, designs, warm_up, path)


def fault_rows(of: Sequence[Faults], done: Done) -> list[FaultRow]:
    """The rows of those that ran to their end, in order."""
    documents = ((faults, done.documents.get(faults.key)) for faults in of)
    return [FaultRow(faults, *on_a_memory(of)) for faults, of in documents if of is not None]
