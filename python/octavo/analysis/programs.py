"""Groups of processes that run one program, such as the workers of a server."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, TypedDict

from octavo.analysis.rows import Row, exec_chains, rows_together
from octavo.base.text import plural, short_path
from octavo.base.units import counted
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


Owner = str | int | None
"""The owner of a region: the path of a program of several processes, or the stream number of a
process; None where there is one process."""


def owner_of(record: Mapping[str, Any]) -> Owner:
    """The owner of a row's or an advice's region."""
    return record["program"] if "program" in record else record.get("process")


def process_names(processes: Sequence[Any], programs: Sequence[Program] = ()) -> dict[Owner, str]:
    """Owners of regions in words: `sort (process 3)`, `postgres (12 processes)`. Of a program that
    executed itself, also the number of its images: `sh (2 processes, 5 images)`.
    """
    short = short_names(process["program"] for process in processes)
    names: dict[Owner, str] = {
        process["stream"]: f"{short[process['program']]} (process {process['stream']})"
        for process in processes
    }
    chains = exec_chains(processes) if programs else {}
    for program in programs:
        path, images = program["program"], len(program["processes"])
        count = len({chains.get(image, image) for image in program["processes"]})
        several = f"{count} {plural(count, 'process')}"
        names[path] = f"{short[path]} ({several}{f', {images} images' if count < images else ''})"
    return names


def short_names(paths: Iterable[str]) -> dict[str, str]:
    """The last component of each path; as many more as distinguish those that end alike:
    `a/worker`, `b/worker`.
    """
    parts = {path: PurePath(path).parts for path in paths}
    names: dict[str, str] = {}
    length = 1
    while len(names) < len(parts):
        ends = {
            path: short_path("/".join(parts[path][-length:]).replace("//", "/"))
            for path in parts
            if path not in names
        }
        alike = Counter(ends.values())
        names |= {
            path: end for path, end in ends.items() if alike[end] == 1 or length >= len(parts[path])
        }
        length += 1
    return names


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
    executed = counted(instructions, "instruction") if instructions else "no instructions"
    amounts = (counted(references, "reference"), executed, *rates)
    time = f"{manifest['elapsed_seconds']:.1f} s"
    return ", ".join([*amounts, *several_processes(manifest), *more, time])
