"""Fake results and runs with numbers that each test chooses."""

import itertools
import stat
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from octavo._core import Touched
from octavo.calibration.file import processor
from octavo.tracing.manifest import Circumstances, build_manifest
from octavo.tracing.scope import Scope

if TYPE_CHECKING:
    from octavo._core import (
        Curve,
        Exit,
        Footprint,
        MachineCurve,
        Process,
        Progress,
        Region,
        Result,
    )
else:
    # At run time the extension's records are plain dictionaries.
    Curve = Exit = Footprint = MachineCurve = Process = Progress = Region = Result = dict

KIB = 1024
SIZES = tuple(4 * KIB << step for step in range(10))
Stream = Literal["fetch", "data"]


def curves(
    stream: Stream, misses: Sequence[int], *, accesses: int = 10**9, entries: Sequence[int] = (64,)
) -> list[Curve]:
    """Curves over SIZES. Each further level has half of the misses of the level before."""
    made: list[Curve] = []
    for size, number in zip(SIZES, misses, strict=False):
        looked_up = accesses
        for level, count in enumerate(entries, start=1):
            made.append(
                Curve(
                    stream=stream,
                    page_size=size,
                    level=level,
                    entries=count,
                    accesses=looked_up,
                    misses=number >> (level - 1),
                )
            )
            looked_up = number >> (level - 1)
    return made


def data_walks(walks: int, walks_huge: int) -> list[MachineCurve]:
    """Curves of a machine with this many page walks for data in 4 KiB and in 2 MiB pages, whose
    second level never hits.
    """
    return [
        data_curve(size, level, misses)
        for size, misses in ((4 * KIB, walks), (512 * 4 * KIB, walks_huge))
        for level in (1, 2)
    ]


def data_curve(page_size: int, level: int, misses: int, *, accesses: int = 10**8) -> MachineCurve:
    """The curve of a fully associative level of 64 entries of a machine."""
    return MachineCurve(
        stream="data",
        page_size=page_size,
        level=level,
        entries=64,
        ways=64,
        accesses=accesses,
        misses=misses,
    )


def footprints(
    stream: Literal["fetch", "data", "all"],
    growth: Sequence[float],
    *,
    base: int = 16 * 1024 * KIB,
    peak: int | None = None,
) -> list[Footprint]:
    """Footprints over SIZES with the given growth over 4 KiB."""
    return [
        Footprint(
            stream=stream,
            page_size=size,
            touched_bytes=round(base * (1 + more)),
            peak_resident_bytes=None if peak is None else round(peak * (1 + more)),
        )
        for size, more in zip(SIZES, growth, strict=False)
    ]


FLAT = (0.0,) * len(SIZES)
UNKNOWN = Touched()
"""Without pages that other processes may share."""


def region(
    name: str = "heap",
    kind: str = "heap",
    *,
    stream: Stream = "data",
    misses: Sequence[int] = (1000,) * len(SIZES),
    growth: Sequence[float] = FLAT,
    base: int = 8 * 1024 * KIB,
    path: str | None = None,
    start: int = 0x5555_5000_0000,
    entries: Sequence[int] = (64,),
    accesses: int = 10**8,
    touched: Touched | None = None,
) -> Region:
    return Region(
        name=name,
        kind=kind,  # type: ignore[typeddict-item]
        path=path,
        start=start,
        bytes=base,
        mappings=1,
        asked_huge_bytes=0,
        asked_small_bytes=0,
        hugetlb_bytes=0,
        malloc_bytes=0,
        page_faults={"base": 0, "huge": 0, "huge_again": 0, "left": 0},
        huge_growth_bytes=0,
        fetch_references=accesses if stream == "fetch" else 0,
        data_references=accesses if stream == "data" else 0,
        curves=curves(stream, misses, accesses=accesses, entries=entries),
        machine_curves=[],
        footprints=footprints(stream, growth, base=base) + footprints("all", growth, base=base),
        touched=touched or UNKNOWN,
    )


def process(
    stream: int = 0,
    *,
    code_misses: Sequence[int] = (0,) * len(SIZES),
    data_misses: Sequence[int] = (0,) * len(SIZES),
    code_growth: Sequence[float] = FLAT,
    data_growth: Sequence[float] = FLAT,
    code_base: int = 1024 * KIB,
    data_base: int = 16 * 1024 * KIB,
    instructions: int = 10**9,
    regions: Sequence[Region] = (),
    entries: Sequence[int] = (64,),
    data_references: int = 4 * 10**8,
    program: str = "/usr/bin/true",
    replaces: int | None = None,
) -> Process:
    """A process image: the program itself, a fork of it, or an image that replaces the stream
    `replaces` by exec.
    """
    fetches = instructions
    return Process(
        stream=stream,
        parent_stream=None if stream == 0 else replaces or 0,
        pid=1000 + stream,
        program=program,
        began_by="start" if stream == 0 else "fork" if replaces is None else "exec",
        ended_by="exit",
        exit_code=0,
        instructions=instructions,
        fetches=fetches,
        loads=data_references // 2,
        stores=data_references - data_references // 2,
        modifies=data_references // 10,
        references=fetches + data_references,
        segments=1000,
        folded_references=0,
        kernel_seconds=None,
        first_folded_address=None,
        address_bits=0,
        threads=1,
        thread_switches=0,
        events={"map": 10, "unmap": 2},
        curves=[
            *curves("fetch", code_misses, accesses=fetches, entries=entries),
            *curves("data", data_misses, accesses=data_references, entries=entries),
        ],
        footprints=[
            *footprints("fetch", code_growth, base=code_base),
            *footprints("data", data_growth, base=data_base),
            *footprints("all", data_growth, base=code_base + data_base, peak=data_base),
        ],
        machine_curves=[],
        regions=list(regions),
        knows_memory=True,
        missed_lines=None,
        by_thread=[],
        stream_hash=f"{stream:032x}",
    )


def exited(code: int = 0) -> Exit:
    return Exit(code=code, signal=None, reason="exited", diagnostics="")


def killed(signal: int, reason: Literal["signalled", "interrupted"] = "signalled") -> Exit:
    return Exit(code=None, signal=signal, reason=reason, diagnostics="")


def result(*processes: Process, ended: Exit | None = None, untraced: int = 0) -> Result:
    return Result(
        exit=ended or exited(),
        elapsed_seconds=1.5,
        processes=list(processes) or [process()],
        untraced_processes=untraced,
    )


def progress(*, running: bool, seconds: float = 1.0) -> Progress:
    return Progress(
        running=running,
        elapsed_seconds=seconds,
        references=123_456_789,
        instructions=100_000_000,
        resident_bytes=45 << 20,
        streams_live=1,
        streams_total=1,
        processes_total=1,
        programs=["/usr/bin/prog"],
        counting=True,
        over=False,
    )


class FakeRun:
    """A run that ends after a number of waits, or when it is stopped."""

    def __init__(
        self,
        outcome: Result,
        *,
        waits: int = 2,
        during: Callable[["FakeRun"], None] = lambda run: None,
    ) -> None:
        self.outcome = outcome
        self.signals: list[int] = []
        self.noted = False
        self.counting: list[bool] = []
        self.ended_by: list[int] = []
        self.softly = False
        self.stopped = False
        self.started = False
        self._ticks = itertools.count(1)
        self._waits = waits
        self._during = during

    def start(self) -> int:
        self.started = True
        return 4711

    def wait(self, timeout_seconds: float) -> Progress:
        tick = next(self._ticks)
        self._during(self)
        return progress(running=tick < self._waits and not self.stopped, seconds=float(tick))

    def signal(self, number: int) -> None:
        self.signals.append(number)

    def note_interrupted(self) -> None:
        self.noted = True

    def set_counting(self, counting: bool) -> None:
        self.counting.append(counting)

    def end_softly(self) -> None:
        self.softly = True

    def end_region(self, number: int) -> None:
        self.ended_by.append(number)

    def snapshot(self) -> Result | None:
        return self.outcome

    def stop(self) -> None:
        self.stopped = True

    def result(self) -> Result:
        return self.outcome


def write_calibration(path: Path, tables: str) -> None:
    """Writes a calibration of this processor at 2.5 GHz with the given tables."""
    model, cpuid = processor()
    path.write_text(
        f"""format = 1
cycles_per_second = 2.5e9
tsc_per_second = 2.5e9
notes = []
[host]
cpu_model = "{model}"
cpu_id = "{cpuid}"
measured_at = "2026-11-23T06:50:00Z"
kernel = "6.12"
octavo = "0.1.0"
virtualised = true
{tables}"""
    )


def write_script(path: Path, body: str) -> None:
    """Writes an executable shell script."""
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)


def finished(processes: Sequence[Any], scope: Scope) -> tuple[dict[str, Any], Any]:
    """The manifest of a run of made-up processes, and the run in the form of the extension."""
    counted: Any = {
        "exit": exited(),
        "elapsed_seconds": 1.5,
        "processes": list(processes),
        "untraced_processes": 0,
    }
    facts = Circumstances(
        command=["prog"],
        program=Path("/usr/bin/prog"),
        directory="/tmp",
        started_at=datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc),
        valgrind_version="3.19.0",
        configuration=scope,
        interrupted_by=None,
    )
    return build_manifest(counted, facts), counted
