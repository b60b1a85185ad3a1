"""Figure 8 of the study of software-managed translation: organisations of caches, simulated with
their handlers, and the misses of all caches alone, from one pass over the references.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from octavo.analysis.view import main_process
from octavo.base.units import KIB, format_bytes

SWEEP_INSTRUCTIONS = 10_000_000
"""Instructions of a program of today in the sweep of Figure 8."""
WARM_UP_INSTRUCTIONS, LONG_SWEEP_INSTRUCTIONS = 30_000_000, 30_000_000
"""For a program like the paper's: instructions that fill the caches, then counted instructions."""
DOUBLED_L2 = 2048 * KIB
"""The size of an experiment: twice the paper's largest second-level cache."""
L1_SIZES = tuple(KIB << step for step in range(8))
L2_SIZES = (512 * KIB, 1024 * KIB)
LINES = (16, 32, 64, 128)
SHOWN = ("gcc", "vortex")
"""Programs of the paper that Figure 8 shows."""
WAYS = (1, 2, 4, 8, 16)
"""Ways of the caches that one pass covers; the paper's caches are direct-mapped."""


@dataclass(frozen=True)
class Organisation:
    """The caches of a point of Figure 8; sizes are of each half, in bytes."""

    l1_bytes: int
    l2_bytes: int
    l1_line_bytes: int
    l2_line_bytes: int

    @property
    def design(self) -> str:
        """The design with these caches."""
        return (
            f"softvm:softvm.l1.bytes={self.l1_bytes}:softvm.l1.line_bytes={self.l1_line_bytes}"
            f":softvm.l2.bytes={self.l2_bytes}:softvm.l2.line_bytes={self.l2_line_bytes}"
        )

    def describe(self) -> str:
        """The sizes in words."""
        l1, l2 = format_bytes(self.l1_bytes), format_bytes(self.l2_bytes)
        return f"L1 {l1} in lines of {self.l1_line_bytes} B, L2 {l2} of {self.l2_line_bytes} B"


def organisations() -> Iterator[Organisation]:
    """The organisations of Figure 8: "the L2 linesize is never less than the L1 linesize"."""
    for l2_bytes in L2_SIZES:
        for l1_bytes in L1_SIZES:
            for place, l1_line in enumerate(LINES):
                for l2_line in LINES[place:]:
                    yield Organisation(l1_bytes, l2_bytes, l1_line, l2_line)


def largest(swept: Sequence[Organisation]) -> list[Organisation]:
    """The organisations with the largest caches; programs that Figure 8 does not show are measured
    on these alone.
    """
    sizes = (L1_SIZES[-1], L2_SIZES[-1])
    return [tried for tried in swept if (tried.l1_bytes, tried.l2_bytes) == sizes]


def doubled(swept: Sequence[Organisation]) -> list[Organisation]:
    """The organisations with the largest caches, changed to a second level of DOUBLED_L2."""
    return [replace(organisation, l2_bytes=DOUBLED_L2) for organisation in largest(swept)]


@dataclass(frozen=True)
class Alone:
    """The misses of a cache that stands alone, one for each half."""

    cache_bytes: int
    ways: int
    line_bytes: int
    misses: int
    """Misses of both halves."""


def one_pass(trace: str) -> list[str]:
    """The arguments of the pass of `octavo curves` that covers all caches."""
    return [
        *("curves", "--cache-lines", ",".join(map(str, LINES)), "--streams", "fetch,data"),
        *("--without", "full,sets,working-sets,two-sizes"),
        *("--max-instructions", str(SWEEP_INSTRUCTIONS), trace),
    ]


def read_alone(caches: dict[str, Any]) -> Iterator[Alone]:
    """The misses of the caches of both levels, from the document of the pass of `one_pass`."""
    misses: dict[tuple[int, int, int], int] = {}
    rows = cast("list[dict[str, Any]]", main_process(caches["rows"]))
    for row in rows:
        if row["component"] == "cache.sets":
            shape = (int(row["cache_bytes"]), int(row["ways"]), int(row["line_bytes"]))
            misses[shape] = misses.get(shape, 0) + int(row["misses"])
    for size in (*L1_SIZES, *L2_SIZES):
        for ways in WAYS:
            for line in LINES:
                if (size, ways, line) in misses:
                    yield Alone(size, ways, line, misses[size, ways, line])
