"""The configuration of a run, resolved to plain values and checked before anything starts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from octavo._core import Analysis, machine_presets
from octavo.analysis.allocations import WRAPPERS
from octavo.analysis.native_time import NativeTime
from octavo.base.errors import UsageError, choose
from octavo.base.units import DEFAULT_PAGE_SIZES, page_sizes, with_base
from octavo.hardware.machines import check_kind
from octavo.hardware.modelled import ModelledMachine, can_be_modelled, given_machine, this_machine
from octavo.hardware.preset_files import preset_names
from octavo.hardware.tlb_levels import DEFAULT_PRESET, Machine, load_preset, single_level
from octavo.tracing.scope import Scope, resolve_scope

if TYPE_CHECKING:
    from octavo._core import Result

MAX_GROWTH = 0.25
"""Share by which memory may grow: the "less than a quarter" of the study of the best base page
size."""
_MOST_ENTRIES = 1 << 20
"""Limit of entries, far above any TLB that was built."""


TLB_NOTE = (
    "The TLBs with curves at every page size are fully associative with true LRU. Each process "
    "image has its own, empty at its start."
)
MEMORY_NOTE = (
    "Memory is the pages that were touched, in the given page size. Huge pages of the operating "
    "system do not change it."
)
MEMORY_WARNING = (
    "MEMORY: only pages touched while the run counted are in memory and growth; memory that the "
    "program used at other times is left out, so its real growth is likely a smaller share."
)
LEVEL_CYCLES_NOTE = (
    "Added cycles are misses times the stated cost of a miss: an additive estimate, from which the "
    "cycles that an out-of-order core hides are not subtracted."
)


@dataclass(frozen=True)
class Configuration(Scope):
    """A resolved run: two equal configurations on the same stream give the same rows."""

    page_sizes: tuple[int, ...]
    """Bytes, ascending; always with 4 KiB, against which growth is measured."""
    machine: Machine
    modelled: ModelledMachine | None = None
    """The machine whose TLBs are modelled beside `machine`, if there is one."""
    max_growth: float = MAX_GROWTH
    """Share by which memory may grow for larger pages to be advised; it changes no row."""
    native: NativeTime | None = None
    """The native time of the counted part, if known; it changes no row."""
    allocation_wrappers: tuple[str, ...] = ()
    """Functions that allocate for their callers, besides the usual ones."""

    def resolved(self) -> dict[str, Any]:
        """Plain data, for the manifest."""
        return {
            "page_sizes": list(self.page_sizes),
            "machine": self.machine.resolved(),
            "modelled": None if self.modelled is None else self.modelled.resolved(),
            **super().resolved(),
            **(
                {"allocation_wrappers": list(self.allocation_wrappers)}
                if self.allocation_wrappers
                else {}
            ),
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
            allocation_wrappers=[*WRAPPERS, *self.allocation_wrappers],
        )


def configure(
    *,
    sizes: Sequence[int | str] | None = None,
    entries: tuple[int, int] | None = None,
    tlb: str | None = None,
    max_growth: float = MAX_GROWTH,
    native_seconds: float | Sequence[float] | None = None,
    allocation_wrappers: Sequence[str] = (),
    **scope: Any,
) -> Configuration:
    """Checks the choices against each other and fills in the defaults. Raises UsageError.

    `scope` are the arguments of `resolve_scope`.
    """
    if entries is not None and tlb is not None:
        raise UsageError("--entries and --tlb exclude each other: a preset has its own entries.")
    resolved = resolve_scope(**scope)
    if entries is not None and not (
        len(entries) == 2 and all(one in range(1, _MOST_ENTRIES + 1) for one in entries)
    ):
        raise UsageError(f"--entries must be from 1 to {_MOST_ENTRIES}.")
    machine, modelled = single_level(*entries) if entries else load_preset(DEFAULT_PRESET), None
    if tlb in preset_names("levels"):
        machine = load_preset(tlb)
    elif entries is None:
        modelled = this_machine() if tlb is None else given_machine(_tlb_name(tlb))
    chosen = page_sizes(DEFAULT_PAGE_SIZES) if sizes is None else sizes
    if not 0 <= max_growth < math.inf:
        raise UsageError("--max-growth must be a percentage from 0 up, such as 25 or 25%.")
    native = None if native_seconds is None else _native_time(native_seconds)
    if native is not None and modelled is None:
        raise UsageError(
            "--native-time is for gains of time, which are estimated for a machine: give no "
            "--entries, and a machine as --tlb."
        )
    return Configuration(
        page_sizes=with_base(chosen),
        machine=machine,
        modelled=modelled,
        max_growth=max_growth,
        native=native,
        allocation_wrappers=tuple(allocation_wrappers),
        **resolved,
    )


def _native_time(seconds: float | Sequence[float]) -> NativeTime:
    """The time in user mode, or in user mode and in the kernel. Raises UsageError."""
    times = [seconds] if isinstance(seconds, int | float) else [*seconds]
    if len(times) not in (1, 2) or not (0 < times[0] < math.inf and 0 <= times[-1] < math.inf):
        raise UsageError(
            "--native-time must be a time above 0, such as 3.1s, or two: in user mode and in the "
            "kernel, such as 2.2s,0.9s."
        )
    return NativeTime(*times)


def _tlb_name(name: str) -> str:
    """The value of `--tlb`, checked. Raises UsageError for an unknown name."""
    if name.endswith(".toml") or name in machine_presets():
        return name
    modelled = [machine for machine in machine_presets() if can_be_modelled(machine)]
    names = [*preset_names("levels"), *modelled]
    if name not in names:
        check_kind(name)
    return choose(name, names, "TLB")
