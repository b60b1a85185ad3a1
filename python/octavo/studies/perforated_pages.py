"""The study of Perforated Pages (Park et al., ISCA 2020): the measurements.

Every figure of the paper's charts is one number here, so that the text and the JSON say the same.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from octavo.studies.perforated_faults import FaultRow, Faults, fault_passes, fault_rows
from octavo.studies.perforated_faults import memories as faulty_memories
from octavo.studies.perforated_grid import (
    GridRow,
    Point,
    Size,
    grid_passes,
    grid_rows,
    points,
)
from octavo.studies.perforated_memory import Fragments, Layout
from octavo.studies.perforated_programs import ProgramMeasurement, measure_programs
from octavo.studies.perforated_redis import RedisMeasurement, RedisSize, measure_redis
from octavo.studies.programs import Subject, subjects
from octavo.studies.simulation_pool import Say, run_passes

SCHEMA = "octavo/perforated-pages/1"


@dataclass(frozen=True)
class Study:
    """All measurements, and what was left out and why."""

    grid: tuple[GridRow, ...] = ()
    programs: tuple[ProgramMeasurement, ...] = ()
    redis: tuple[RedisMeasurement, ...] = ()
    skipped: dict[str, str] = field(default_factory=dict)
    faults: tuple[FaultRow, ...] = ()
    is_partial: bool = False
    """Whether the user stopped it."""
    max_instructions: int | None = None
    """After how many each program was ended; None where it was not."""

    def with_faults(self, portion: float, layout: Layout) -> FaultRow | None:
        """The row of one memory with faults."""
        wanted = Faults(portion, layout)
        return next((row for row in self.faults if row.faults == wanted), None)

    def at(self, fragments: Fragments, *, is_allocated: bool = True) -> GridRow | None:
        """The row of one memory of the grid. Where no region has holes, one stands for all."""
        for row in self.grid:
            of = row.point.fragments
            is_same = of == fragments or (
                of.portion == fragments.portion == 0 and of.large == fragments.large
            )
            if is_same and row.point.is_allocated == is_allocated:
                return row
        return None


@dataclass(frozen=True)
class Plan:
    """How much a study does."""

    grid: Sequence[Point]
    grid_size: Size
    subjects: Sequence[Subject]
    redis: RedisSize | None
    faults: Sequence[Faults] = ()


def usual_plan() -> Plan:
    """The whole grid, every program, Redis, faults."""
    faults = tuple(faulty_memories())
    return Plan(tuple(points()), Size(), subjects(large=False), RedisSize(), faults)


def run_study(
    on_program: Callable[[str], None],
    say: Say,
    max_instructions: int | None = None,
    plan: Plan | None = None,
) -> Study:
    """Runs everything; `on_program` gets the name of each program as it starts, `say` the
    progress of the rest. If the user stops the study, it holds what was done.
    """
    plan = plan or usual_plan()
    with tempfile.TemporaryDirectory(prefix="octavo-study-") as name:
        passes = list(grid_passes(plan.grid, plan.grid_size, Path(name)))
        passes += fault_passes(plan.faults, plan.grid_size, Path(name))
        done = run_passes(passes, "random accesses", say)
    grid = tuple(grid_rows(plan.grid, done))
    faults = tuple(fault_rows(plan.faults, done))
    skipped = dict(done.failed)
    programs: list[ProgramMeasurement] = []
    redis: list[RedisMeasurement] = []
    is_partial = done.is_partial
    if not is_partial and plan.redis is not None:
        redis, without, is_partial = measure_redis(plan.redis, say)
        skipped |= without
    if not is_partial and plan.subjects:
        programs, without, is_partial = measure_programs(
            plan.subjects, on_program, say, max_instructions
        )
        skipped |= without
    measured = (grid, tuple(programs), tuple(redis))
    return Study(*measured, skipped, faults, is_partial, max_instructions)
