"""Figures 7, 8 and 10 of the study of perforated pages: random accesses to 2 GiB with a warm TLB.

The stream is generated during the simulation, and its 2 GiB are frames of the simulated memory, so
the study does not need 2 GiB of this machine. Allocated holes are frames that other owners have in
physical memory, so the program's pages for them lie elsewhere. Unallocated holes are pages that the
program never touches; with them the baseline is `reserved_thp`, which has large pages for regions
that are touched as a whole.

Figure 10 shows the accesses in memory with faulty frames, which are unusable, and compares
Gap-Tolerant Sequential Mapping (GTSM). With dispersed faults, as in the paper, all frames are
equally likely to be faulty; clustered faults, which the paper does not have, are runs of 64 KiB. A
page of GTSM needs 32 sub-blocks of 64 KiB without a fault in a chunk of 4 MiB: the study counts
the chunks that have as many.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from octavo.base.toml import toml_table
from octavo.base.units import BASE_PAGE, GIB, byte_size
from octavo.hardware.machines import Setting
from octavo.studies.perforated_pages.measurement import (
    BASE,
    BASELINE,
    PERFORATED,
    Counted,
    Row,
    all_counted,
)
from octavo.studies.perforated_pages.memory import (
    LAYOUTS,
    REGION,
    Fragments,
    Layout,
    always,
    fragmented,
)
from octavo.studies.programs import PHASES, simulate, to_settings
from octavo.studies.simulation_pool import Done, Pass

MACHINE = "perforated-pages"
TIMING = "out-of-order"
"""The paper's core is out of order. Accesses of the stream do not depend on each other."""
RESERVED = "reserved_thp"
PORTIONS = (0.0, 0.1, 0.25, 0.5, 0.75, 1.0)
FRACTIONS = (0.1, 0.25, 0.5, 0.75, 0.9)
OWN_RULE = "own rule"
"""The name of the experiment under the rule of section III-C."""
RULE_FRACTIONS = (0.1, 0.24)
"""Fractions of holes, both below the quarter that the rule requires."""
OBSERVED = (Fragments(0.18, 0.25, "clustered", 0.22), Fragments(0.50, 0.25, "clustered", 0.49))
"""Section III-C: shares in perforated and in large pages; the rest is in base pages."""

GTSM, IDEAL = "gtsm", "ideal2m"
PAPER_PORTION = 0.055
FAULT_PORTIONS = (0.01, 0.02, 0.03, 0.04, PAPER_PORTION)
_FAULTY_MEMORY = 6
"""Memory as a multiple of the data: 12 GiB, as in section III-C, for 2 GiB."""
_PERFORATED_WITH_FAULTS = f"{PERFORATED}:max_filter_bits=8:min_parts=0"
"""Without the usual rule: as faults are everywhere, it would refuse every region."""

_BASE_ADDRESS = 0x10_0000_0000
_INSTRUCTIONS = 4
"""Instructions for each access."""


@dataclass(frozen=True)
class Size:
    """The size of a run."""

    table_bytes: int = 2 * GIB
    warm_references: int = 150_000
    """References after all pages were touched once, and before counting begins."""
    references: int = 300_000
    """Counted references."""

    @property
    def regions(self) -> int:
        """Regions of 2 MiB."""
        return self.table_bytes // REGION


@dataclass(frozen=True)
class Point:
    """One memory of the grid."""

    fragments: Fragments
    is_allocated: bool
    """Whether pages of holes are allocated elsewhere; otherwise they are never touched."""

    @property
    def key(self) -> str:
        """The unique name of the point's pass."""
        kind = "allocated" if self.is_allocated else "unallocated"
        memory = self.fragments
        axes = f"{memory.clean:g} {memory.portion:g} {memory.fraction:g} {memory.layout}"
        return f"{kind} {axes}"

    @property
    def baseline(self) -> str:
        """The design that has 2 MiB and 4 KiB."""
        return BASELINE if self.is_allocated else RESERVED


@dataclass(frozen=True)
class GridRow(Row):
    """The counts of every design on one memory of the grid."""

    point: Point
    memory_bytes: int
    designs: dict[str, Counted]

    @property
    def baseline(self) -> str:
        """The design that has 2 MiB and 4 KiB."""
        return self.point.baseline

    def record(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "is_allocated": self.point.is_allocated,
            **asdict(self.point.fragments),
            "memory_bytes": self.memory_bytes,
            **self.gains(),
            "designs": super().record(),
        }


def points() -> Iterator[Point]:
    """The points of the grid, then the memories of section III-C. Without holes the other axes have
    no effect, so the grid has one such point.
    """
    for is_allocated in (True, False):
        yield Point(Fragments(0.0, FRACTIONS[0], LAYOUTS[0]), is_allocated)
        for layout in LAYOUTS:
            for fraction in FRACTIONS:
                for portion in PORTIONS[1:]:
                    yield Point(Fragments(portion, fraction, layout), is_allocated)
    for fragments in OBSERVED:
        yield Point(fragments, is_allocated=True)


@dataclass(frozen=True)
class Experiment:
    """Points of the grid again, on a machine with one thing changed."""

    name: str
    points: tuple[Point, ...]
    settings: dict[str, Any]
    policy: str | None = None
    """The policy of perforated pages; None: one that makes a page of every region with holes."""

    def key(self, point: Point) -> str:
        """The unique name of the pass of a point."""
        return f"{self.name}: {point.key}"


def experiments() -> Iterator[Experiment]:
    """The experiments that test why claims about holes differ."""
    yield Experiment(
        "fast cache",
        tuple(Point(Fragments(1.0, 0.9, layout), is_allocated=True) for layout in LAYOUTS),
        {"cache.l2.latency_cycles": 4},
    )
    worst, none = Fragments(1.0, 0.9, "dispersed"), Fragments(0.0, FRACTIONS[0], LAYOUTS[0])
    yield Experiment(
        "small cache",
        tuple(Point(fragments, is_allocated=False) for fragments in (worst, none)),
        {"cache.l2.bytes": "64KiB"},
    )
    rule_points = tuple(
        Point(Fragments(0.5, fraction, layout), is_allocated=True)
        for layout in LAYOUTS
        for fraction in RULE_FRACTIONS
    )
    yield Experiment(OWN_RULE, rule_points, {}, policy=PERFORATED)


def grid_passes(grid: Sequence[Point], size: Size, place: Path) -> Iterator[Pass]:
    """A pass for each point; the streams are described in files at `place`."""
    yield from _passes([(point.key, point, {}, None) for point in grid], size, place / "grid-")


def experiment_passes(tried: Sequence[Experiment], size: Size, place: Path) -> Iterator[Pass]:
    """A pass for each point of the experiments."""
    every = [
        (one.key(point), point, one.settings, one.policy) for one in tried for point in one.points
    ]
    yield from _passes(every, size, place / "experiment-")


def _passes(
    planned: Sequence[tuple[str, Point, dict[str, Any], str | None]], size: Size, place: Path
) -> Iterator[Pass]:
    """A pass for each key, point, further settings, and policy. `place` is a directory and the
    beginning of the names of files for the streams.
    """
    for number, (key, point, more, policy) in enumerate(planned):
        path = place.with_name(f"{place.name}{number}.toml")
        text, warm_up = stream(point, size)
        path.write_text(text, encoding="ascii")
        settings, designs = _machine(point, size, warm_up)
        if policy is not None:
            designs = [*designs[:-1], policy]
        yield simulation(key, settings | more, designs, warm_up, path)


def simulation(
    key: str, settings: dict[str, Any], designs: Sequence[str], warm_up: int, described: Path
) -> Pass:
    """A pass of the study's machine with further settings, over the stream that the file
    `described` describes.
    """
    options = [*to_settings(settings), "--design", ",".join(designs), "--warm-up", str(warm_up)]
    return Pass(key, (*simulate(MACHINE, TIMING), *options, str(described)))


def grid_rows(grid: Sequence[Point], done: Done) -> list[GridRow]:
    """The rows of the points whose pass ran to its end, in order."""
    documents = ((point, done.documents.get(point.key)) for point in grid)
    return [
        GridRow(point, *on_a_memory(result)) for point, result in documents if result is not None
    ]


def experiment_rows(tried: Sequence[Experiment], done: Done) -> dict[str, tuple[GridRow, ...]]:
    """The rows of the experiments whose passes all ran to their end, by name."""
    found = {}
    for one in tried:
        documents = [done.documents.get(one.key(point)) for point in one.points]
        pairs = zip(one.points, documents, strict=True)
        rows = tuple(
            GridRow(point, *on_a_memory(result)) for point, result in pairs if result is not None
        )
        if len(rows) == len(one.points):
            found[one.name] = rows
    return found


def on_a_memory(result: dict[str, Any]) -> tuple[int, dict[str, Counted]]:
    """The bytes of memory of a document's machine, and the counts of each design."""
    memory = result["run"]["configuration"]["machine"]["memory"]
    return byte_size(str(memory["bytes"])), all_counted(result)


def stream(point: Point, size: Size) -> tuple[str, int]:
    """The description of a stream, and the number of instructions of its warm-up.

    A page of each region is touched before any region is touched as a whole, so that pages of holes
    do not take the frames that other regions need.
    """
    pages = size.table_bytes // BASE_PAGE
    unused: dict[str, Setting] = {}
    phases: list[dict[str, Setting]] = []
    if point.is_allocated:
        phases.append({"kind": "strided", "stride": REGION, "references": size.regions})
    elif point.fragments.portion:
        portion, fraction = point.fragments.portion, point.fragments.fraction
        unused = {
            "unused": fraction,
            "unused-portion": portion,
            "unused-layout": point.fragments.layout,
        }
        holes = round(portion * size.regions) * round(fraction * (REGION // BASE_PAGE))
        pages -= holes
    touch: dict[str, Setting] = {"kind": "pointer-chase", "element": BASE_PAGE}
    accesses = size.warm_references + size.references
    phases.append({**touch, "references": pages, **unused})
    phases.append({"kind": "uniform", "references": accesses, **unused})
    common: dict[str, Setting] = {"bytes": size.table_bytes, "base": hex(_BASE_ADDRESS)}
    common["instructions"] = _INSTRUCTIONS
    text = PHASES + "".join(toml_table("phase", {**phase, **common}) for phase in phases)
    touches = pages + (size.regions if point.is_allocated else 0)
    return text, (touches + size.warm_references) * _INSTRUCTIONS


def _machine(point: Point, size: Size, warm_up: int) -> tuple[dict[str, Any], list[str]]:
    """The machine's settings, and the designs."""
    if point.is_allocated:
        settings = fragmented(point.fragments, size.regions)
        return settings, [BASE, BASELINE, always(point.fragments)]
    # Untouched pages are holes; pages without holes become whole before the counting begins.
    untouched = f"unused_are_holes=true:min_parts=0:scan_every_instructions={warm_up // 4}"
    memory = {"memory.bytes": 2 * size.table_bytes}
    return memory, [BASE, RESERVED, f"{PERFORATED}:{untouched}"]


@dataclass(frozen=True)
class Faults:
    """A memory with faulty frames: their share and layout."""

    portion: float
    layout: Layout

    @property
    def key(self) -> str:
        """The unique name of the memory's pass."""
        return f"{self.portion:.1%} of faults, {self.layout}"


@dataclass(frozen=True)
class FaultRow(Row):
    """The counts of every design on one memory with faults."""

    faults: Faults
    memory_bytes: int
    designs: dict[str, Counted]

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
            "perforated_over_gtsm_overlapped": self.relative(PERFORATED, GTSM, "ipc_overlapped"),
            "designs": super().record(),
        }


def faulty_memories() -> Iterator[Faults]:
    """Memories with dispersed faults up to the paper's share, and one with that share clustered."""
    for portion in FAULT_PORTIONS:
        yield Faults(portion, "dispersed")
    yield Faults(PAPER_PORTION, "clustered")


def fault_passes(tried: Sequence[Faults], size: Size, place: Path) -> Iterator[Pass]:
    """A pass for each memory; the stream is described in a file at `place`."""
    path = place / "faults.toml"
    text, warm_up = stream(Point(Fragments(0.0, 0.0, "clustered"), is_allocated=True), size)
    path.write_text(text, encoding="ascii")
    designs = [BASE, BASELINE, _PERFORATED_WITH_FAULTS, GTSM, IDEAL]
    for faults in tried:
        settings: dict[str, Any] = {
            "memory.bytes": _FAULTY_MEMORY * size.table_bytes,
            "memory.fragmentation": {
                "kind": "faults",
                "portion": faults.portion,
                "layout": faults.layout,
            },
        }
        yield simulation(faults.key, settings, designs, warm_up, path)


def fault_rows(tried: Sequence[Faults], done: Done) -> list[FaultRow]:
    """The rows of the memories whose pass ran to its end, in order."""
    documents = ((faults, done.documents.get(faults.key)) for faults in tried)
    return [
        FaultRow(faults, *on_a_memory(result)) for faults, result in documents if result is not None
    ]
