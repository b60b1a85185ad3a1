"""Figures 7, 8 and 10 of the study of perforated pages: random accesses to 2 GiB, the TLB warm.

The stream is made as it is simulated, and its 2 GiB are frames of a simulated memory: this machine
needs none of them. Holes that are allocated are frames of others in physical memory, so that their
pages lie elsewhere. Holes that are not allocated are pages that the program never touches; there
the baseline is `reserved_thp`, which has large pages where all of a region is touched.

Figure 10 has them in memory with faulty frames, beside Gap-Tolerant Sequential Mapping. Faulty
frames are unusable. Dispersed, each frame is as likely to be faulty as any other, as in the paper;
clustered ones come in runs of 64 KiB, and stand beside it. A page of GTSM needs 32 sub-blocks of
64 KiB of a chunk of 4 MiB without any fault: the study counts how many chunks have so many.
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
"""The paper's core is one. Accesses of the stream are independent of each other."""
RESERVED = "reserved_thp"
PORTIONS = (0.0, 0.1, 0.25, 0.5, 0.75, 1.0)
FRACTIONS = (0.1, 0.25, 0.5, 0.75, 0.9)
OWN_RULE = "own rule"
"""The name of the experiment under the rule of section III-C."""
RULE_FRACTIONS = (0.1, 0.24)
"""Of holes, both less than the quarter that the rule wants."""
OBSERVED = (Fragments(0.18, 0.25, "clustered", 0.22), Fragments(0.50, 0.25, "clustered", 0.49))
"""Section III-C: so much in perforated and in large pages, the rest in base pages."""

GTSM, IDEAL = "gtsm", "ideal2m"
PAPER_PORTION = 0.055
FAULT_PORTIONS = (0.01, 0.02, 0.03, 0.04, PAPER_PORTION)
_FAULTY_MEMORY = 6
"""So many times the data: 12 GiB, the machine of section III-C, for 2 GiB."""
_PERFORATED_WITH_FAULTS = f"{PERFORATED}:max_filter_bits=8:min_parts=0"
"""Faults are everywhere: the usual rule would refuse every region."""

_BASE_ADDRESS = 0x10_0000_0000
_INSTRUCTIONS = 4
"""For each access."""


@dataclass(frozen=True)
class Size:
    """How large a run is."""

    table_bytes: int = 2 * GIB
    warm_references: int = 150_000
    """Before anything is counted, after everything was touched once."""
    references: int = 300_000
    """Counted."""

    @property
    def regions(self) -> int:
        """Of 2 MiB."""
        return self.table_bytes // REGION


@dataclass(frozen=True)
class Point:
    """One memory of the grid."""

    fragments: Fragments
    is_allocated: bool
    """Whether the pages of holes exist, elsewhere; else they are never touched."""

    @property
    def key(self) -> str:
        """A name among the others."""
        of = self.fragments
        kind = "allocated" if self.is_allocated else "unallocated"
        return f"{kind} {of.clean:g} {of.portion:g} {of.fraction:g} {of.layout}"

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
    """The grid; where no region has holes the other axes say nothing, and one point stands for all.
    Behind it the memories of Section III-C.
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
    """The policy that makes perforated pages, in place of one that makes all."""

    def key(self, point: Point) -> str:
        """A name among other passes."""
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
        tuple(Point(of, is_allocated=False) for of in (worst, none)),
        {"cache.l2.bytes": "64KiB"},
    )
    rule = [Fragments(0.5, of, layout) for layout in LAYOUTS for of in RULE_FRACTIONS]
    yield Experiment(
        OWN_RULE, tuple(Point(of, is_allocated=True) for of in rule), {}, policy=PERFORATED
    )


def grid_passes(of: Sequence[Point], size: Size, place: Path) -> Iterator[Pass]:
    """A pass for each point; the streams are described in files at `place`."""
    yield from _passes([(point.key, point, {}, None) for point in of], size, place / "grid-")


def experiment_passes(of: Sequence[Experiment], size: Size, place: Path) -> Iterator[Pass]:
    """A pass for each point of the experiments."""
    every = [
        (one.key(point), point, one.settings, one.policy) for one in of for point in one.points
    ]
    yield from _passes(every, size, place / "experiment-")


def _passes(
    of: Sequence[tuple[str, Point, dict[str, Any], str | None]], size: Size, place: Path
) -> Iterator[Pass]:
    for number, (key, point, more, policy) in enumerate(of):
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
    """A pass of the study's machine, with settings of its own, over the stream that a file
    describes.
    """
    options = [*to_settings(settings), "--design", ",".join(designs), "--warm-up", str(warm_up)]
    return Pass(key, (*simulate(MACHINE, TIMING), *options, str(described)))


def grid_rows(of: Sequence[Point], done: Done) -> list[GridRow]:
    """The rows of those that ran to their end, in order."""
    documents = ((point, done.documents.get(point.key)) for point in of)
    return [GridRow(point, *on_a_memory(of)) for point, of in documents if of is not None]


def experiment_rows(of: Sequence[Experiment], done: Done) -> dict[str, tuple[GridRow, ...]]:
    """The rows of each experiment, by its name; of those whose points all ran to their end."""
    found = {}
    for one in of:
        documents = [done.documents.get(one.key(point)) for point in one.points]
        pairs = zip(one.points, documents, strict=True)
        rows = tuple(GridRow(point, *on_a_memory(of)) for point, of in pairs if of is not None)
        if len(rows) == len(one.points):
            found[one.name] = rows
    return found


def on_a_memory(result: dict[str, Any]) -> tuple[int, dict[str, Counted]]:
    """The bytes of memory that a document's machine has, and what each design did there."""
    memory = result["run"]["configuration"]["machine"]["memory"]
    return byte_size(str(memory["bytes"])), all_counted(result)


def stream(point: Point, size: Size) -> tuple[str, int]:
    """The description of a stream, and after how many instructions it is warm.

    Each region is touched before any is touched whole, so that pages of holes do not take what
    other regions have left.
    """
    pages = size.table_bytes // BASE_PAGE
    unused: dict[str, Setting] = {}
    phases: list[dict[str, Setting]] = []
    if point.is_allocated:
        phases.append({"kind": "strided", "stride": REGION, "references": size.regions})
    elif point.fragments.portion:
        of = point.fragments
        unused = {"unused": of.fraction, "unused-portion": of.portion, "unused-layout": of.layout}
        holes = round(of.portion * size.regions) * round(of.fraction * (REGION // BASE_PAGE))
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
    """Settings, and designs."""
    of = point.fragments
    if point.is_allocated:
        settings = fragmented(of, size.regions)
        return settings, [BASE, BASELINE, always(of)]
    # Untouched pages are holes; pages without holes become whole before the counting begins.
    untouched = f"unused_are_holes=true:min_parts=0:scan_every_instructions={warm_up // 4}"
    memory = {"memory.bytes": 2 * size.table_bytes}
    return memory, [BASE, RESERVED, f"{PERFORATED}:{untouched}"]


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
    """Dispersed ones up to the paper's share; and that share, clustered."""
    for portion in FAULT_PORTIONS:
        yield Faults(portion, "dispersed")
    yield Faults(PAPER_PORTION, "clustered")


def fault_passes(of: Sequence[Faults], size: Size, place: Path) -> Iterator[Pass]:
    """A pass for each memory; the stream is described in a file at `place`."""
    path = place / "faults.toml"
    text, warm_up = stream(Point(Fragments(0.0, 0.0, "clustered"), is_allocated=True), size)
    path.write_text(text, encoding="ascii")
    designs = [BASE, BASELINE, _PERFORATED_WITH_FAULTS, GTSM, IDEAL]
    for faults in of:
        settings: dict[str, Any] = {
            "memory.bytes": _FAULTY_MEMORY * size.table_bytes,
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
