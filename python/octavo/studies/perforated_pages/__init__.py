"""The study of Perforated Pages (Park et al., ISCA 2020): the measurements.

Every figure of the paper's charts is one number here, so that the text and the JSON say the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from octavo.base.temporary import TemporaryDirectory
from octavo.studies.claims import load_study
from octavo.studies.perforated_pages.measurement import (
    BASE,
    BASELINE,
    KINDS,
    PERFORATED,
    Counted,
    gain,
)
from octavo.studies.perforated_pages.memory import LAYOUTS, REGION, Fragments, Layout
from octavo.studies.perforated_pages.programs import SEEN, ProgramMeasurement, measure_programs
from octavo.studies.perforated_pages.random_accesses import (
    FRACTIONS,
    GTSM,
    IDEAL,
    MACHINE,
    OBSERVED,
    PAPER_PORTION,
    PORTIONS,
    Experiment,
    FaultRow,
    Faults,
    GridRow,
    Point,
    Size,
    experiment_passes,
    experiment_rows,
    experiments,
    fault_passes,
    fault_rows,
    faulty_memories,
    grid_passes,
    grid_rows,
    points,
)
from octavo.studies.perforated_pages.redis import (
    RedisMeasurement,
    RedisSize,
    measure_redis,
    missing_server,
)
from octavo.studies.programs import Subject, subjects, usual_scale
from octavo.studies.reproduction import Reproduction, Request
from octavo.studies.simulation_pool import run_passes

STUDY = "perforated_pages"

WORST = Fragments(1.0, 0.9, "dispersed")
_NONE = Fragments(0.0, FRACTIONS[0], LAYOUTS[0])
PANELS: tuple[tuple[str, float, Layout, bool], ...] = (
    ("a", 0.75, "clustered", True),
    ("b", 0.25, "clustered", True),
    ("c", 0.25, "dispersed", True),
    ("d", 0.25, "dispersed", False),
)
"""The panels of Figure 8: name, fraction of holes, layout, and whether holes are allocated."""
AXES = ("portion", "fraction", "layout", "large")
"""Columns of the records that describe the fragmentation of memory."""


@dataclass(frozen=True)
class Panel:
    """The second-level TLB's entries at the end, over the portion of regions with holes."""

    title: str
    held: tuple[tuple[float, Counted], ...]


@dataclass(frozen=True)
class Study(Reproduction):
    """All measurements."""

    folder = STUDY
    grid: tuple[GridRow, ...] = ()
    programs: tuple[ProgramMeasurement, ...] = ()
    redis: tuple[RedisMeasurement, ...] = ()
    faults: tuple[FaultRow, ...] = ()
    experiments: Mapping[str, tuple[GridRow, ...]] = field(default_factory=dict)
    """The rows of each experiment, by its name."""

    def with_faults(self, portion: float, layout: Layout) -> FaultRow | None:
        """The row of one memory with faults."""
        wanted = Faults(portion, layout)
        return next((row for row in self.faults if row.faults == wanted), None)

    def at(self, fragments: Fragments, *, is_allocated: bool = True) -> GridRow | None:
        """The row of one memory of the grid. Memories without holes share one row."""
        for row in self.grid:
            other = row.point.fragments
            is_same = other == fragments or (
                other.portion == fragments.portion == 0 and other.large == fragments.large
            )
            if is_same and row.point.is_allocated == is_allocated:
                return row
        return None

    def contents(self) -> list[Panel]:
        """The panels of Figure 8."""
        panels = []
        for panel, fraction, layout, is_allocated in PANELS:
            held = []
            for portion in PORTIONS:
                one = self.perforated(portion, fraction, layout, is_allocated=is_allocated)
                if one is not None and one.content:
                    held.append((portion, one))
            kind = "allocated" if is_allocated else "unallocated"
            panels.append(Panel(f"({panel}) {fraction:.0%} {layout}, {kind}", tuple(held)))
        return panels

    def perforated(
        self, portion: float, fraction: float, layout: Layout, *, is_allocated: bool = True
    ) -> Counted | None:
        """The counts of perforated pages on one memory of the grid."""
        row = self.at(Fragments(portion, fraction, layout), is_allocated=is_allocated)
        return None if row is None else row.designs.get(PERFORATED)

    def values(self) -> dict[str, Any]:
        """The numbers that the claims are about; None for a number that was not measured."""
        return {
            **self._values_of_grid(),
            "native": self._values_of_programs(is_virtual=False),
            "virtual": self._values_of_programs(is_virtual=True),
            "server": self._values_of_redis("redis-server"),
            "stream": self._values_of_redis("a stream"),
            **self._values_of_faults(),
            **self._values_of_experiments(),
        }

    def _values_of_grid(self) -> dict[str, Any]:
        best, none = (self.at(_NONE, is_allocated=is_allocated) for is_allocated in (True, False))
        ideal = None if best is None else best.designs.get(best.baseline)

        def by_layout(*fractions: float) -> list[list[Counted | None]]:
            memories = [(portion, fraction) for portion in PORTIONS[1:] for fraction in fractions]
            return [[self.perforated(*memory, layout) for memory in memories] for layout in LAYOUTS]

        clustered, dispersed = by_layout(0.25)
        all_holes = [self.at(Fragments(1.0, 0.9, layout)) for layout in LAYOUTS]
        few = [self.perforated(0.5, 0.1, layout) for layout in LAYOUTS]
        worst = {PERFORATED: self.perforated(1.0, 0.9, "dispersed", is_allocated=False)}
        if none is not None:
            worst[BASELINE] = none.designs.get(none.baseline)
        of_worst = {name: one for name, one in worst.items() if one is not None}
        up_to_half = [
            row
            for row in self.grid
            if row.point.is_allocated and row.point.fragments.large is None
            if row.point.fragments.portion and row.point.fragments.fraction <= 0.5
        ]
        return {
            "seen": _gains(self.at(SEEN)),
            "first_run": _gains(self.at(OBSERVED[0])),
            "second_run": _gains(self.at(OBSERVED[1])),
            "left_by_few_holes": [one.ipc / ideal.ipc for one in few if one and ideal],
            "gains_with_all_holes": _known(row.gain() for row in all_holes if row),
            "gains_up_to_half": _known(row.gain() for row in up_to_half),
            "gains_up_to_half_added": _known(row.gain("ipc_added") for row in up_to_half),
            "clustered_over_dispersed": [
                one.ipc / other.ipc
                for one, other in zip(*by_layout(*FRACTIONS), strict=True)
                if one and other
            ],
            "filtered": _known(one.filter_share for one in clustered if one),
            "fewer_bitmaps": [
                1 - one.content["bitmap"] / other.content["bitmap"]
                for one, other in zip(clustered, dispersed, strict=True)
                if one and other and other.content.get("bitmap")
            ],
            "worst_beside_best": _both(of_worst, PERFORATED, BASELINE),
            "worst": _gains(self.at(WORST, is_allocated=False)),
            "bitmap_shares": [
                one.bitmap_bytes / row.memory_bytes
                for row in self.grid
                if (one := row.designs.get(PERFORATED))
            ],
        }

    def _values_of_programs(self, *, is_virtual: bool) -> dict[str, list[float]]:
        """The numbers of the programs on the memory that the paper measured."""
        rows = [
            (measured, row)
            for measured in self.programs
            if measured.is_virtual == is_virtual
            for row in measured.rows
            if row.fragments == SEEN
        ]
        walked = [one for _, row in rows if (one := row.designs.get(PERFORATED)) and one.walks]
        return {
            "of_ideal": _known(measured.of_ideal(row) for measured, row in rows),
            "of_ideal_added": _known(measured.of_ideal(row, "ipc_added") for measured, row in rows),
            "gain": _known(row.gain() for _, row in rows),
            "gain_added": _known(row.gain("ipc_added") for _, row in rows),
            "reads_per_walk": _known(one.reads_per_walk for one in walked),
            "references_per_walk": _known(one.references_per_walk for one in walked),
        }

    def _values_of_redis(self, name: str) -> dict[str, Any]:
        """The numbers of the first measurement whose name begins with `name`."""
        measured = next((one for one in self.redis if one.name.startswith(name)), None)
        if measured is None:
            return dict.fromkeys(("bloat", "growth", "misses", "saved", "first_misses"))
        base, large, one = map(measured.mpki, (BASE, BASELINE, PERFORATED))
        misses = saved = None
        if base and large is not None:
            misses = {"base": base, "large": large}
            if one is not None and base > large:
                every = one + measured.bitmap_mpki
                saved = {
                    "mpki": every,
                    "share": (base - every) / (base - large),
                    "walks": one,
                    "share_of_walks": (base - one) / (base - large),
                }
        return {
            "bloat": measured.bloat,
            "growth": measured.growth(PERFORATED),
            "misses": misses,
            "saved": saved,
            "first_misses": measured.first_misses(),
        }

    def _values_of_faults(self) -> dict[str, Any]:
        row = self.with_faults(PAPER_PORTION, "dispersed")
        if row is None:
            names = ("over_gtsm", "large_pages_with_faults", "covered_by_gtsm", "gtsm_elsewhere")
            return dict.fromkeys(names)
        over, last = _both(row.designs, PERFORATED, GTSM), None
        # With few faults GTSM has large pages for all regions.
        dispersed = [one for one in self.faults if one.faults.layout == "dispersed"]
        fewer = [one for one in dispersed if one.covered == 1.0]
        most = max(fewer, key=lambda one: one.faults.portion, default=None)
        if most is not None and most is not row and (other := most.relative(PERFORATED, GTSM)):
            last = {
                "gain": other - 1,
                "portion": most.faults.portion,
                "covered": most.covered,
            }
        elsewhere = None
        runs = self.with_faults(PAPER_PORTION, "clustered")
        if runs is not None and (of_runs := runs.relative(PERFORATED, GTSM)):
            clustered = {"gain": of_runs - 1, "covered": runs.covered}
            elsewhere = {"clustered": clustered, "last": last}
        large, ideal = row.designs.get(BASELINE), row.designs.get(IDEAL)
        covered = None
        if row.covered is not None and ideal is not None:
            memory = row.covered * ideal.large_pages * REGION / row.memory_bytes
            covered = {"data": row.covered, "memory": memory}
        return {
            "over_gtsm": None if over is None else {**over, "last": last},
            "large_pages_with_faults": None if large is None else large.large_pages,
            "covered_by_gtsm": covered,
            "gtsm_elsewhere": elsewhere,
        }

    def _values_of_experiments(self) -> dict[str, Any]:
        """The numbers of the experiments; None for an experiment that was not made."""
        fast, small = (self.experiments.get(name) for name in ("fast cache", "small cache"))
        of_small = None
        if small is not None:
            worst, none = small
            best = {BASELINE: none.designs[none.baseline], PERFORATED: worst.designs[PERFORATED]}
            of_small = _both(best, PERFORATED, BASELINE)
        return {
            "gains_with_fast_cache": None if fast is None else _known(row.gain() for row in fast),
            "worst_with_small_cache": of_small,
        }

    def document(self) -> dict[str, Any]:
        """Plain data for the JSON."""
        return {
            **super().document(),
            "not_told": load_study(STUDY)["left_out"],
            "partial": self.is_partial,
            "grid": [row.record() for row in self.grid],
            "programs": [measured.record() for measured in self.programs],
            "redis": [measured.record() for measured in self.redis],
            "faults": [row.record() for row in self.faults],
            "experiments": {
                name: [row.record() for row in rows] for name, rows in self.experiments.items()
            },
        }

    def records(self) -> list[dict[str, Any]]:
        """A flat record for each run of a design: its memory, and all counts."""
        records: list[dict[str, Any]] = []

        def add(name: str, holes: str | None, designs: Mapping[str, Counted], **axes: Any) -> None:
            where = {"of": name, "holes": holes, **dict.fromkeys(AXES), **axes}
            for design, counted in designs.items():
                records.append({**where, "design": design, **_flat(counted)})

        for row in self.grid:
            kind = "allocated" if row.point.is_allocated else "unallocated"
            add("random accesses", kind, row.designs, **_axes(row.point.fragments))
        for measured in self.programs:
            mode = "virtual" if measured.is_virtual else "native"
            add(measured.program, mode, measured.ideal)
            for at in measured.rows:
                add(measured.program, mode, at.designs, **_axes(at.fragments))
        for server in self.redis:
            add(server.name, "unallocated", server.designs)
        for row_of_faults in self.faults:
            faults = row_of_faults.faults
            add(
                "faults",
                None,
                row_of_faults.designs,
                layout=faults.layout,
                portion=faults.portion,
            )
        return records

    def page_names(self) -> dict[str, Any]:
        """The names for the page; `at` gives the row of one memory of the grid."""

        def at(portion: float, fraction: float, layout: Layout, allocated: bool) -> GridRow | None:
            return self.at(Fragments(portion, fraction, layout), is_allocated=allocated)

        return {**super().page_names(), "at": at, "scale": usual_scale(), "grid_size": Size()}


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _gains(row: GridRow | None) -> dict[str, float | None] | None:
    """How much faster perforated pages are than large and base pages on one memory."""
    return None if row is None else _both(row.designs, PERFORATED, row.baseline)


def _both(counted: Mapping[str, Counted], design: str, base: str) -> dict[str, float | None] | None:
    """How much faster one design is than another, by each measure of time."""
    more = gain(counted, design, base)
    if more is None:
        return None
    return {
        "gain": more,
        "added": gain(counted, design, base, "ipc_added"),
        "hidden": gain(counted, design, base, "ipc_overlapped"),
    }


def _axes(fragments: Fragments) -> dict[str, Any]:
    return {**asdict(fragments), "large": fragments.clean}


def _flat(counted: Counted) -> dict[str, Any]:
    record = counted.record()
    content = record.pop("content")
    return {**record, **{f"content.{kind}": content.get(kind) for kind in KINDS}}


@dataclass(frozen=True)
class Plan:
    """The memories, programs and experiments of a study."""

    grid: Sequence[Point]
    grid_size: Size
    subjects: Sequence[Subject]
    redis: RedisSize | None
    faults: Sequence[Faults] = ()
    experiments: Sequence[Experiment] = ()
    memories: Sequence[Fragments] = (SEEN,)
    """Memories for the programs; the core executes each program on each memory."""


def usual_plan() -> Plan:
    """The whole grid, every program, Redis, faults."""
    faults = tuple(faulty_memories())
    every = subjects(large=False, machine=MACHINE)
    streamed = [one.program.name.partition(",")[0] for one in every if one.kind == "stream"]
    chosen = [one for one in every if one.kind != "workload" or one.program.name not in streamed]
    return Plan(tuple(points()), Size(), chosen, RedisSize(), faults, tuple(experiments()))


def run_study(request: Request, plan: Plan | None = None) -> Study:
    """Runs the plan. If the user stops it, the study has the results up to that time."""
    plan = plan or usual_plan()
    if plan.redis is not None and (missing := missing_server()):
        request.say(f"Left out: Redis ({missing})")
    with TemporaryDirectory("octavo-study-") as name:
        passes = list(grid_passes(plan.grid, plan.grid_size, Path(name)))
        passes += fault_passes(plan.faults, plan.grid_size, Path(name))
        passes += experiment_passes(plan.experiments, plan.grid_size, Path(name))
        done = run_passes(passes, "random accesses", request.say)
    grid = tuple(grid_rows(plan.grid, done))
    faults = tuple(fault_rows(plan.faults, done))
    tried = experiment_rows(plan.experiments, done)
    skipped = dict(done.failed)
    programs: list[ProgramMeasurement] = []
    redis: list[RedisMeasurement] = []
    is_partial = done.is_partial
    if not is_partial:
        try:
            if plan.redis is not None:
                measure_redis(plan.redis, request.say, redis, skipped)
            if plan.subjects:
                measure_programs(plan.subjects, plan.memories, request, programs, skipped)
        except KeyboardInterrupt:
            is_partial = True
    return Study(
        skipped=skipped,
        max_instructions=request.max_instructions,
        is_partial=is_partial,
        grid=grid,
        programs=tuple(programs),
        redis=tuple(redis),
        faults=faults,
        experiments=tried,
    )
