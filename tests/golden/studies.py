"""The documents of the reproductions, with small traces in place of programs: the numbers that a
study computes from the rows of its simulations, and its answers to the claims.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from octavo.base.units import KIB, MIB
from octavo.studies import (
    base_page_size,
    perforated_pages,
    softvm,
    tailored_page_sizes,
    two_page_sizes,
)
from octavo.studies.perforated_pages import programs, random_accesses, redis
from octavo.studies.perforated_pages.memory import Fragments
from octavo.studies.programs import Program, Subject, to_settings
from octavo.studies.simulation_pool import Done, Pass
from octavo.studies.softvm.sweep import Organisation, one_pass
from octavo.studies.tailored_page_sizes import measurement, memory

Document = dict[str, Any]
Run = Callable[[Sequence[str]], Document]
"""Runs a command of octavo and returns its document."""

PROGRAMS = {"events": "events.oct", "zipf": "zipf.oct", "gups": "gups.oct"}


def document(study: str, run: Run) -> Document:
    """The document that `octavo reproduce STUDY --out` writes as JSON."""
    parsed: Document = json.loads(json.dumps(STUDIES[study](run)))
    return parsed


def _base_page_size(run: Run) -> Document:
    measured = [
        base_page_size.measure(name, run(["run", "--tlb", "lru64", trace])["rows"])
        for name, trace in PROGRAMS.items()
    ]
    return base_page_size.Study(tuple(measured), {}).document()


def _two_page_sizes(run: Run) -> Document:
    measured = [
        two_page_sizes.measure(name, run([*two_page_sizes.ARGUMENTS, trace])["rows"])
        for name, trace in PROGRAMS.items()
    ]
    return two_page_sizes.Study(tuple(measured), {}).document()


def _tailored_page_sizes(run: Run) -> Document:
    designs = ["--design", ",".join(measurement.DESIGNS)]
    simulate = [
        "sim",
        "--timing",
        "additive",
        "--machine",
        tailored_page_sizes.MACHINE,
        "--set",
        "tlb.l2.main.entries=48",
    ]
    time_slicing = ["--processes", "asid", "--quantum", "1000"]

    def measured(name: str, trace: str) -> measurement.Measurement:
        subject = Subject(Program(name, (trace,)), "workload", {})
        touched = run(["run", "--page-sizes", "4KiB,2MiB", trace])
        empty = run([*simulate, *designs, trace])
        counted = tailored_page_sizes.all_counted(empty)
        scarce = to_settings(memory.fragmented(counted["base4k"].resident_bytes))
        compared = ["--design", ",".join(measurement.DESIGNS[:-1])]
        short = run([*simulate, *scarce, *compared, trace])
        shared = run([*simulate, *time_slicing, *compared, trace, trace])
        instructions = tailored_page_sizes.instructions_of(empty)
        return tailored_page_sizes.measure(subject, touched, instructions, counted, short, shared)

    measurements = tuple(measured(*program) for program in PROGRAMS.items())
    (simulated,) = (
        coverage for coverage in memory.coverages() if coverage.memory == "as simulated"
    )
    return tailored_page_sizes.Study(measurements, memory=(simulated,)).document()


def _softvm(run: Run) -> Document:
    swept = [
        Organisation(l1, l2, line, line)
        for l1, l2, line in ((1 * KIB, 512 * KIB, 16), (8 * KIB, 1 * MIB, 32))
    ]

    def measured(name: str, trace: str) -> softvm.Measurement:
        simulate = ["sim", "--timing", "additive", "--machine", softvm.MACHINE]
        half = ["--warm-up", str(softvm.half_of(run(["info", trace])))]
        whole = run([*simulate, *half, "--design", ",".join(softvm.ALL_DESIGNS), trace])
        designs = ",".join(organisation.design for organisation in swept)
        caches = run([*simulate, "--design", designs, trace])
        return softvm.measure(name, whole, [(swept, caches)], run(one_pass(trace)))

    measurements = tuple(measured(*program) for program in PROGRAMS.items())
    return softvm.Study(measurements, {}, 100_000_000).document()


def _perforated_pages(run: Run) -> Document:
    directory = Path.cwd()

    def done(passes: Sequence[Pass]) -> Done:
        return Done({task.key: run(task.arguments) for task in passes}, {}, False)

    size = random_accesses.Size(table_bytes=8 * MIB, warm_references=2000, references=10_000)
    grid = [
        random_accesses.Point(Fragments(0.0, 0.1, "clustered"), is_allocated=True),
        random_accesses.Point(Fragments(0.5, 0.25, "clustered"), is_allocated=True),
        random_accesses.Point(Fragments(1.0, 0.1, "dispersed"), is_allocated=True),
        random_accesses.Point(Fragments(0.0, 0.1, "clustered"), is_allocated=False),
        random_accesses.Point(Fragments(1.0, 0.5, "dispersed"), is_allocated=False),
    ]
    faults = [random_accesses.Faults(portion, "dispersed") for portion in (0.02, 0.1)]
    passes = list(random_accesses.grid_passes(grid, size, directory))
    grid_rows = random_accesses.grid_rows(grid, done(passes))
    passes = list(random_accesses.fault_passes(faults, size, directory))
    fault_rows = random_accesses.fault_rows(faults, done(passes))
    none, *fragmented = (row for row in grid_rows if row.point.is_allocated)
    rows = [programs.ProgramRow(row.point.fragments, row.designs) for row in fragmented]
    measured = [
        programs.ProgramMeasurement("gups", is_virtual, 4, none.designs, tuple(rows))
        for is_virtual in (False, True)
    ]
    server = redis.RedisMeasurement("a stream", 100, 1000, fragmented[0].designs)
    return perforated_pages.Study(
        grid=tuple(grid_rows),
        programs=tuple(measured),
        redis=(server,),
        faults=tuple(fault_rows),
    ).document()


STUDIES: dict[str, Callable[[Run], Document]] = {
    "base-page-size": _base_page_size,
    "two-page-sizes": _two_page_sizes,
    "tailored-page-sizes": _tailored_page_sizes,
    "softvm": _softvm,
    "perforated-pages": _perforated_pages,
}
