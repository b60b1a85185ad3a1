"""Processes of one program, put together: a server's workers are one thing to its user."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from octavo.rows import Row, instructions_by_process

_COMMON = ("text", "shared")
"""Kinds of regions whose pages processes share; each process has the other kinds for itself."""


@dataclass(frozen=True)
class Program:
    """The process images of one program, by stream number."""

    path: str
    members: tuple[int, ...]

    @property
    def label(self) -> str:
        """`postgres ×12`; the number of the process where there is only one."""
        if len(self.members) == 1:
            return str(self.members[0])
        return f"{PurePath(self.path).name} ×{len(self.members)}"


def programs_of(processes: Sequence[dict[str, Any]], *, per_process: bool) -> list[Program]:
    """The processes of a manifest by program, in the order in which programs began.

    With `per_process` each process stands alone.
    """
    members: dict[Any, list[int]] = {}
    paths: dict[Any, str] = {}
    for process in processes:
        key = process["stream"] if per_process else process["program"]
        members.setdefault(key, []).append(process["stream"])
        paths[key] = process["program"]
    return [Program(paths[key], tuple(streams)) for key, streams in members.items()]


def shares_of(rows: Iterable[Row], program: Program) -> dict[int, float]:
    """The share of the program's instructions that each of its processes has executed.

    A rate of a process, weighted with its share, adds up to that of the program.
    """
    instructions = instructions_by_process(rows)
    total = sum(instructions.get(stream, 0) for stream in program.members)
    return {
        stream: instructions.get(stream, 0) / total if total else 0.0 for stream in program.members
    }


def memory_together(kind: str, touched_bytes: Mapping[int | None, int]) -> int:
    """Memory of a region in several processes: of code and shared memory, which they have in
    common, that of the process that touched most; of everything else the sum.
    """
    return max(touched_bytes.values()) if kind in _COMMON else sum(touched_bytes.values())
