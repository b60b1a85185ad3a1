"""The scope of a run: the counted part of a program or trace, how it is traced, and how processes
share a core. It is resolved to plain values and checked before anything starts.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, get_args

from octavo.base.errors import TRILLION, UsageError, check_range, choose
from octavo.base.text import plural
from octavo.tracing.phase import Phase, region_of_interest
from octavo.tracing.windows import Windows, resolve_windows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from octavo._core import Analysis, ProcessCounts

Layout = Literal["native", "as-traced"]
Tracer = Literal["octavo", "lackey"]
Processes = Literal["apart", "asid", "flush"]
"""Each process image by itself; or processes time-sliced, with tagged entries or with flushes."""
ALLOCATION_FRAMES = 8
"""Callers of the allocator that are recorded with each block."""
DEFAULT_QUANTUM_INSTRUCTIONS = 10**6
MOST_INSTRUCTIONS = 1 << 62
"""The largest quantum, warm-up or interval."""
_MOST_COUNTED = (1 << 63) - 1
"""The largest value of a counter."""

SHARED_THREADS_NOTE = "Threads of a process share its TLBs, in the order in which they were traced."
KERNEL_NOTE = "The kernel's own references and other processes' are not seen."
SHARED_NOTES = (SHARED_THREADS_NOTE, KERNEL_NOTE)
"""Limits of every engine, shown with every result."""


@dataclass(frozen=True)
class Scope:
    """The way in which a program is traced or a trace is read, and the counted part."""

    layout: Layout
    tracer: Tracer
    follow_children: bool
    skip_instructions: int
    max_instructions: int | None
    between_marks: bool
    phase: Phase | None = field(default=None, kw_only=True)
    """The beginning and end of counting by time, of a live run."""
    windows: Windows | None = field(default=None, kw_only=True)
    """The parts of a live run that are traced; all of it without windows."""
    allocation_frames: int = field(default=0, kw_only=True)
    """Callers recorded with each block that a live run allocates; 0: no blocks are recorded."""

    def kernel_seconds(self, processes: Sequence[ProcessCounts]) -> float | None:
        """Seconds of processor time of system calls in the counted part; None where not known."""
        if self.skip_instructions or self.max_instructions or self.between_marks:
            # The tracer does not know the counted part.
            return None
        seconds = [process["kernel_seconds"] for process in processes]
        known = [one for one in seconds if one is not None]
        return sum(known) if len(known) == len(seconds) else None

    @property
    def uncounted(self) -> str | None:
        """The part before counting starts, if there is one."""
        if self.phase is not None and self.phase.uncounted is not None:
            return self.phase.uncounted
        skipped = self.skip_instructions
        return f"{skipped:,} {plural(skipped, 'instruction')} to skip" if skipped else None

    def why_nothing(self, otherwise: str) -> str:
        """The reason why no reference was counted; `otherwise` if the scope gives none."""
        if self.between_marks:
            return "it met no begin mark (--marks wants the marks of octavo.h)"
        return f"it ended within the {self.uncounted}" if self.uncounted else otherwise

    @property
    def ends_by_phase(self) -> bool:
        """Whether a live run ends with the counted part."""
        return self.phase is not None and self.phase.has_end

    @property
    def shared_quanta(self) -> tuple[int, int] | None:
        """Instructions of a quantum and of a first one, if the processes of traces share a core."""
        return None

    @property
    def counts_instructions(self) -> str | None:
        """The option that needs a trace with instructions, if there is one."""
        return None

    def recorded(self) -> dict[str, Any]:
        """The settings that change the traced references, for the extension."""
        return {
            "tracer": self.tracer,
            "follow_children": self.follow_children,
            "skip_instructions": self.skip_instructions,
            "max_instructions": self.max_instructions,
            "between_marks": self.between_marks,
            **({} if self.windows is None else {"windows": self.windows.resolved()}),
            **({"allocations": self.allocation_frames} if self.allocation_frames else {}),
        }

    def resolved(self) -> dict[str, Any]:
        """Plain data, for the manifest."""
        return {
            "layout": self.layout,
            **self.recorded(),
            **self.phased(),
        }

    def phased(self) -> dict[str, Any]:
        """The phase for the manifest; empty where counting begins and ends by no time."""
        return {} if self.phase is None else {"phase": self.phase.resolved()}

    def sha256(self) -> str:
        """The hash of the configuration's canonical JSON."""
        import hashlib

        text = json.dumps(self.resolved(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    def notes(self) -> list[str]:
        """The assumptions and limits of the model, a sentence each."""
        return list(SHARED_NOTES)


@dataclass(frozen=True)
class SharedScope(Scope, ABC):
    """A scope in which the processes of several traces may share a core."""

    processes: Processes
    """Whether each process has TLBs, or a machine, of its own, or all share a core."""
    quantum_instructions: int
    """Instructions that a process runs before the next one."""
    first_quantum_instructions: int
    """The first quantum of each process that exists from the beginning."""

    @property
    def shared_quanta(self) -> tuple[int, int] | None:
        """The quanta, if the processes of all traces share a core."""
        quanta = self.quantum_instructions, self.first_quantum_instructions
        return None if self.processes == "apart" else quanta

    @property
    def counts_instructions(self) -> str | None:
        """The option that needs a trace with instructions, if there is one."""
        return None if self.processes == "apart" else f"--processes {self.processes}"

    @abstractmethod
    def analysis(self) -> Analysis[Any]:
        """The analysis for the extension to run. Raises ValueError."""


def resolve_scope(
    *,
    layout: str = "native",
    tracer: str = "octavo",
    follow_children: bool = True,
    skip_instructions: int = 0,
    max_instructions: int | None = None,
    between_marks: bool = False,
    start_after: str | None = None,
    duration: str | None = None,
    window: str | None = None,
    window_warm: int = 0,
    allocations: bool = False,
) -> dict[str, Any]:
    """Checks the options of all kinds of runs; returns fields of a `Scope`. Raises UsageError."""
    skip_instructions, max_instructions, phase = region_of_interest(
        start_after, duration, skip=skip_instructions, most=max_instructions
    )
    if max_instructions is not None and max_instructions < 1:
        raise UsageError("--max-instructions must be at least 1.")
    if skip_instructions < 0:
        raise UsageError("--skip-instructions must not be negative.")
    if max(skip_instructions, max_instructions or 0) > _MOST_COUNTED:
        raise UsageError(f"no run has more than {_MOST_COUNTED // TRILLION}T instructions.")
    choose(layout, get_args(Layout), "layout")
    choose(tracer, get_args(Tracer), "tracer")
    windows = resolve_windows(window, window_warm)
    if windows is not None and tracer != "octavo":
        raise UsageError(
            f"--window needs octavo's own tracer; --tracer {tracer} traces everything."
        )
    if allocations and tracer != "octavo":
        raise UsageError(
            f"--allocations needs octavo's own tracer; --tracer {tracer} sees references alone."
        )
    if windows is not None and skip_instructions:
        raise UsageError(
            "--window and a number of instructions to skip exclude each other, since what lies "
            "outside windows is not traced: give --start-after a time, or `ctl`."
        )
    return {
        "layout": layout,
        "tracer": tracer,
        "follow_children": follow_children,
        "skip_instructions": skip_instructions,
        "max_instructions": max_instructions,
        "between_marks": between_marks,
        "phase": phase,
        "windows": windows,
        "allocation_frames": ALLOCATION_FRAMES if allocations else 0,
    }


def choose_processes(
    processes: str, quantum: int | None, first_quantum: int | None
) -> dict[str, Any]:
    """The fields that a `SharedScope` has in addition to a `Scope`. Raises UsageError."""
    choose(processes, get_args(Processes), "--processes")
    for name, given in (("--quantum", quantum), ("--first-quantum", first_quantum)):
        check_range(name, given, 1, MOST_INSTRUCTIONS, "instructions")
        if given is not None and processes == "apart":
            raise UsageError(f"{name} needs --processes asid or flush.")
    quantum_instructions = DEFAULT_QUANTUM_INSTRUCTIONS if quantum is None else quantum
    first = quantum_instructions if first_quantum is None else first_quantum
    return {
        "processes": processes,
        "quantum_instructions": quantum_instructions,
        "first_quantum_instructions": first,
    }


def time_slicing_note(scope: SharedScope, cores: int = 1) -> str:
    """A sentence about how processes share a core, or are scheduled on several cores."""
    quantum, first = scope.quantum_instructions, scope.first_quantum_instructions
    later = "" if first == quantum else f" after a first turn of {first} each"
    how = "share a core round robin" if cores == 1 else "run one at a time, round robin"
    return (
        f"Processes {how}, with a quantum of {quantum} {plural(quantum, 'instruction')}{later}; "
        "waiting is not modelled."
    )
