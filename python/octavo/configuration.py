"""What a run is asked to do, resolved to plain values and checked before anything starts."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

from octavo._core import Analysis
from octavo.errors import UsageError, choose
from octavo.tlb_levels import DEFAULT_PRESET, Machine, load_preset, single_level
from octavo.units import BASE_PAGE, DEFAULT_PAGE_SIZES, page_size, page_sizes

if TYPE_CHECKING:
    from octavo._core import Result

Layout = Literal["native", "as-traced"]
Tracer = Literal["octavo", "lackey"]

_MOST_ENTRIES = 1 << 20
"""Far above any TLB that was built."""
_MOST_INSTRUCTIONS = (1 << 63) - 1
"""What the counters hold."""


TLB_NOTE = (
    "TLBs are fully associative with true LRU; one set per process image, empty at its start."
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
"""What no engine models; shown wherever numbers are."""


@dataclass(frozen=True)
class Scope:
    """How a program or a trace is followed, and which part of it counts."""

    layout: Layout
    tracer: Tracer
    follow_children: bool
    skip_instructions: int
    max_instructions: int | None
    between_marks: bool

    @property
    def uncounted(self) -> str | None:
        """What comes before anything is counted, if anything does."""
        return f"{self.skip_instructions} instructions to skip" if self.skip_instructions else None

    @property
    def turn_instructions(self) -> int | None:
        """How long a turn is, where the processes of all traces take turns."""
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
        }

    def sha256(self) -> str:
        """A name for this configuration: the hash of its canonical JSON."""
        text = json.dumps(self.resolved(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    def notes(self) -> list[str]:
        """What is modelled and what is not, a sentence each."""
        return list(SHARED_NOTES)


@dataclass(frozen=True)
class Configuration(Scope):
    """A resolved run: two equal configurations on the same stream give the same rows."""

    page_sizes: tuple[int, ...]
    """Bytes, ascending; 4 KiB is always among them, for growth is measured against it."""
    machine: Machine

    def resolved(self) -> dict[str, Any]:
        """Plain data, for the manifest."""
        machine = self.machine.resolved()
        return {"page_sizes": list(self.page_sizes), "machine": machine, **super().resolved()}

    def notes(self) -> list[str]:
        """What is modelled and what is not, a sentence each."""
        notes = [TLB_NOTE, *super().notes(), MEMORY_NOTE]
        if any(level.fetch_miss_cycles is not None for level in self.machine.levels):
            notes.append(LEVEL_CYCLES_NOTE)
        return notes

    def analysis(self) -> Analysis[Result]:
        """What the extension is to find out. Raises ValueError."""
        return Analysis.study(
            page_sizes=list(self.page_sizes),
            levels=self.machine.core_levels(),
            layout=self.layout,
        )


def resolve_scope(
    *,
    layout: str = "native",
    tracer: str = "octavo",
    follow_children: bool = True,
    skip_instructions: int = 0,
    max_instructions: int | None = None,
    between_marks: bool = False,
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
    }


def configure(
    *,
    sizes: Sequence[int] | None = None,
    entries: tuple[int, int] | None = None,
    tlb: str | None = None,
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
    machine = single_level(*entries) if entries else load_preset(tlb or DEFAULT_PRESET)
    chosen = page_sizes(DEFAULT_PAGE_SIZES) if sizes is None else sizes
    return Configuration(page_sizes=with_base(chosen), machine=machine, **resolved)


def with_base(sizes: Sequence[int]) -> tuple[int, ...]:
    """The page sizes and 4 KiB, checked, ascending, each once."""
    return tuple(sorted({BASE_PAGE, *(page_size(str(size)) for size in sizes)}))
