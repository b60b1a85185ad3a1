"""Groups of processes that run one program, such as the workers of a server."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, TypedDict

from octavo.analysis.rows import Row, exec_chains, rows_together
from octavo.base.units import format_count
from octavo.hardware.tlb_levels import Machine

if TYPE_CHECKING:
    from octavo._core import Process


class Program(TypedDict):
    """Several process images of one program, in the form of the JSON."""

    program: str
    """Path of the executable."""
    processes: list[int]
    """Their stream numbers."""
    rows: list[Row]
    """Rows about all processes together, then about each region."""


def programs_of(processes: Sequence[Process], machine: Machine) -> list[Program]:
    """The programs that have several processes, in the order of their first processes."""
    members: dict[str, list[Process]] = {}
    for process in processes:
        members.setdefault(process["program"], []).append(process)
    chains = exec_chains(processes)
    return [
        Program(
            program=path,
            processes=[process["stream"] for process in several],
            rows=rows_together(several, machine, chains),
        )
        for path, several in members.items()
        if len(several) > 1
    ]


def rows_by_program(rows: Sequence[Row], programs: Sequence[Program]) -> list[Row]:
    """The rows, with regions of programs in place of regions of their single processes."""
    together = {stream for program in programs for stream in program["processes"]}
    kept = [row for row in rows if row.get("process") not in together or "region" not in row]
    return [*kept, *(row for program in programs for row in _region_rows(program))]


def _region_rows(program: Program) -> Iterator[Row]:
    for row in program["rows"]:
        if "region" in row:
            yield {"program": program["program"], "processes": program["processes"], **row}


def owner_of(record: Mapping[str, Any]) -> str | None:
    """The owner of a row's or an advice's region, in words; None where there is one process.

    `postgres (12 processes)`, `process 3`.
    """
    if "program" in record:
        return program_label(record["program"], len(record["processes"]))
    return None if record.get("process") is None else f"process {record['process']}"


def process_names(
    processes: Sequence[Any], programs: Sequence[Program] = ()
) -> dict[str | None, str]:
    """Longer names of owners of regions: `process 3` → `sort (process 3)`. Of a program that
    executed itself, also the number of its processes: `sh (5 processes)` → `sh (2 processes, 5
    images)`.
    """
    names: dict[str | None, str] = {
        f"process {process['stream']}": (
            f"{PurePath(process['program']).name} (process {process['stream']})"
        )
        for process in processes
    }
    chains = exec_chains(processes) if programs else {}
    for program in programs:
        images = program["processes"]
        count = len({chains.get(image, image) for image in images})
        if count < len(images):
            several = f"{count} process{'es' if count > 1 else ''}, {len(images)} images"
            label = program_label(program["program"], len(images))
            names[label] = f"{PurePath(program['program']).name} ({several})"
    return names


def program_label(path: str, processes: int) -> str:
    """`postgres (12 processes)`."""
    return f"{PurePath(path).name} ({processes} processes)"


def several_processes(manifest: Mapping[str, Any]) -> list[str]:
    """`13 processes`, or nothing for one process; an exec does not begin another process."""
    count = len(set(exec_chains(manifest["processes"]).values()))
    return [f"{count} processes"] if count > 1 else []


def work_in_words(
    manifest: Mapping[str, Any],
    references: int,
    instructions: int,
    *,
    rates: Iterable[str] = (),
    more: Iterable[str] = (),
) -> str:
    """The amount of work counted, the `rates` and `more` given, and the time taken."""
    amount = format_count(instructions) if instructions else "no"
    counted = (f"{format_count(references)} references", f"{amount} instructions", *rates)
    time = f"{manifest['elapsed_seconds']:.1f} s"
    return ", ".join([*counted, *several_processes(manifest), *more, time])
