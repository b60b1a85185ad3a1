"""The configuration of a run, resolved to plain values and checked before anything starts."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, get_args

from octavo._core import Analysis, machine_presets
from octavo.base.errors import UsageError, choose
from octavo.base.units import BASE_PAGE, DEFAULT_PAGE_SIZES, page_size, page_sizes
from octavo.hardware.modelled import ModelledMachine, given_machine, this_machine
from octavo.hardware.tlb_levels import (
    DEFAULT_PRESET,
    Machine,
    load_preset,
    preset_names,
    single_level,
)
from octavo.phase import Phase

if TYPE_CHECKING:
    from octavo._core import Result

Layout = Literal["native", "as-traced"]
Tracer = Literal["octavo", "lackey"]

MAX_GROWTH = 0.25
"""Share by which memory may grow: the "less than a quarter" of the study of the best base page
size."""
_MOST_ENTRIES = 1 << 20
"""Far above any TLB that was built."""
_MOST_INSTRUCTIONS = (1 << 63) - 1
"""The range of the counters."""


TLB_NOTE = (
    "The TLBs with curves at every page size are fully associative with true LRU; one set per "
    "process image, empty at its start."
)
MEMORY_NOTE = (
    "Memory is what was touched, in whole pages; nothing is taken from the operating system's "
    "own placement of huge pages."
)
LEVEL_CYCLES_NOTE = (
    "Added cycles are misses times the stated cost of a miss: an additive estimate that leaves "
    "out what an out-of-order core hides."
)
SHARED_THREADS_NOTE = "Threads of a process share its TLBs, in the order in which they were traced."
KERNEL_NOTE = "The kernel's own references and other processes' are not seen."
SHARED_NOTES = (SHARED_THREADS_NOTE, KERNEL_NOTE)
"""Limits of every engine; shown wherever numbers are."""


@dataclass(frozen=True)
class Scope:
    """How a program or a trace is followed, and which part of it counts."""

    layout: Layout
    tracer: Tracer
    follow_children: bool
    skip_instructions: int
    max_instructions: int | None
    between_marks: bool
    phase: Phase | None = field(default=None, kw_only=True)
    """When counting begins and ends by time, of a live run."""

    @property
    def uncounted(self) -> str | None:
        """The part before counting starts, if there is one."""
        if self.phase is not None and self.phase.uncounted is not None:
            return self.phase.uncounted
        return f"{self.skip_instructions} instructions to skip" if self.skip_instructions else None

    @property
    def shared_quantum_instructions(self) -> int | None:
        """The quantum, if the processes of all traces share a core."""
        return None

    @property
    def counts_instructions(self) -> str | None:
        """The option that wants a trace to have instructions, if any does."""
        return None

    def resolved(self) -> dict[str, Any]:
        """Plain data, for the manifest."""
        return {
            "layout": self.layout,
            "tracer": self.tracer,
            "follow_children": self.follow_children,
            "skip_instructions": self.skip_instructions,
            "max_instructions": self.max_instructions,
            "between_marks": self.between_marks,
            **({} if self.phase is None else {"phase": self.phase.resolved()}),
        }

    def sha256(self) -> str:
        """A name for this configuration: the hash of its canonical JSON."""
        text = json.dumps(self.resolved(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    def notes(self) -> list[str]:
        """The assumptions and limits of the model, a sentence each."""
        return list(SHARED_NOTES)


@dataclass(frozen=True)
class Configuration(Scope):
    """A resolved run: two equal configurations on the same stream give the same rows."""

    page_sizes: tuple[int, ...]
    """Bytes, ascending; 4 KiB is always among them, for growth is measured against it."""
    machine: Machine
    modelled: ModelledMachine | None = None
    """The machine whose TLBs are modelled beside `machine`, if there is one."""
    max_growth: float = MAX_GROWTH
    """Share by which memory may grow for larger pages to be advised; it changes no row."""

    def resolved(self) -> dict[str, Any]:
        """Plain data, for the manifest."""
        return {
            "page_sizes": list(self.page_sizes),
            "machine": self.machine.resolved(),
            "modelled": None if self.modelled is None else self.modelled.resolved(),
            **super().resolved(),
        }

    def notes(self) -> list[str]:
        """The assumptions and limits of the model, a sentence each."""
        notes = [TLB_NOTE, *super().notes(), MEMORY_NOTE]
        if any(level.fetch_miss_cycles is not None for level in self.machine.levels):
            notes.append(LEVEL_CYCLES_NOTE)
        return notes if self.modelled is None else [*self.modelled.notes(), *notes]

    def analysis(self) -> Analysis[Result]:
        """The analysis for the extension to run. Raises ValueError."""
        return Analysis.study(
            page_sizes=list(self.page_sizes),
            levels=self.machine.core_levels(),
            layout=self.layout,
            machine=None if self.modelled is None else self.modelled.name,
        )


def resolve_scope(
    *,
    layout: str = "native",
    tracer: str = "octavo",
    follow_children: bool = True,
    skip_instructions: int = 0,
    max_instructions: int | None = None,
    between_marks: bool = False,
    phase: Phase | None = None,
) -> dict[str, Any]:
    """Checks what every kind of run is asked; the fields of a `Scope`. Raises UsageError."""
    if max_instructions is not None and max_instructions < 1:
        raise UsageError("--max-instructions must be at least 1.")
    if skip_instructions < 0:
        raise UsageError("--skip-instructions must not be negative.")
    if max(skip_instructions, max_instructions or 0) > _MOST_INSTRUCTIONS:
        raise UsageError(f"no run has more than {_MOST_INSTRUCTIONS} instructions.")
    choose(layout, get_args(Layout), "layout")
    choose(tracer, get_args(Tracer), "tracer")
    return {
        "layout": layout,
        "tracer": tracer,
        "follow_children": follow_children,
        "skip_instructions": skip_instructions,
        "max_instructions": max_instructions,
        "between_marks": between_marks,
        "phase": phase,
    }


def configure(
    *,
    sizes: Sequence[int] | None = None,
    entries: tuple[int, int] | None = None,
    tlb: str | None = None,
    max_growth: float = MAX_GROWTH,
    **scope: Any,
) -> Configuration:
    """Checks the choices against each other and fills in the defaults. Raises UsageError.

    `scope` is what `resolve_scope` takes.
    """
    if entries is not None and tlb is not None:
        raise UsageError("--entries and --tlb exclude each other: a preset has its own entries.")
    resolved = resolve_scope(**scope)
    if entries is not None and not 1 <= min(entries) <= max(entries) <= _MOST_ENTRIES:
        raise UsageError(f"--entries must be from 1 to {_MOST_ENTRIES}.")
    machine, modelled = single_level(*entries) if entries else load_preset(DEFAULT_PRESET), None
    if tlb in preset_names():
        machine = load_preset(tlb)
    elif entries is None:
        modelled = this_machine() if tlb is None else given_machine(_tlb_name(tlb))
    chosen = page_sizes(DEFAULT_PAGE_SIZES) if sizes is None else sizes
    if not 0 <= max_growth < math.inf:
        raise UsageError("--max-growth must be a percentage from 0 up, such as 25 or 25%.")
    return Configuration(
        page_sizes=with_base(chosen),
        machine=machine,
        modelled=modelled,
        max_growth=max_growth,
        **resolved,
    )


def _tlb_name(name: str) -> str:
    """A machine by the name that `--tlb` has. Raises UsageError."""
    if name.endswith(".toml"):
        return name
    return choose(name, [*preset_names(), *machine_presets()], "TLB")


def with_base(sizes: Sequence[int]) -> tuple[int, ...]:
    """The page sizes and 4 KiB, checked, ascending, each once."""
    return tuple(sorted({BASE_PAGE, *(page_size(str(size)) for size in sizes)}))
