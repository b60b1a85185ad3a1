"""What a run is asked to do, resolved to plain values and checked before anything starts."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from octavo.errors import UsageError, choose
from octavo.machine import DEFAULT_PRESET, Machine, load_preset, single_level
from octavo.units import BASE_PAGE, DEFAULT_PAGE_SIZES, page_size, page_sizes

Layout = Literal["native", "as-traced"]
Tracer = Literal["octavo", "lackey"]

_MOST_ENTRIES = 1 << 20
"""Far above any TLB that was built."""
_MOST_INSTRUCTIONS = (1 << 63) - 1
"""What the counters hold."""


@dataclass(frozen=True)
class Configuration:
    """A resolved run: two equal configurations on the same stream give the same rows."""

    page_sizes: tuple[int, ...]
    """Bytes, ascending; 4 KiB is always among them, for growth is measured against it."""
    machine: Machine
    layout: Layout
    tracer: Tracer
    follow_children: bool
    skip_instructions: int
    max_instructions: int | None
    between_marks: bool

    def resolved(self) -> dict[str, Any]:
        """Plain data, for the manifest."""
        return {
            "page_sizes": list(self.page_sizes),
            "machine": self.machine.resolved(),
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


def configure(
    *,
    sizes: Sequence[int] | None = None,
    entries: tuple[int, int] | None = None,
    tlb: str | None = None,
    layout: str = "native",
    tracer: str = "octavo",
    follow_children: bool = True,
    skip_instructions: int = 0,
    max_instructions: int | None = None,
    between_marks: bool = False,
) -> Configuration:
    """Checks the choices against each other and fills in the defaults. Raises UsageError."""
    if entries is not None and tlb is not None:
        raise UsageError("--entries and --tlb exclude each other: a preset has its own entries.")
    if max_instructions is not None and max_instructions < 1:
        raise UsageError("--max-instructions must be at least 1.")
    if skip_instructions < 0:
        raise UsageError("--skip-instructions must not be negative.")
    if entries is not None and not 1 <= min(entries) <= max(entries) <= _MOST_ENTRIES:
        raise UsageError(f"--entries must be from 1 to {_MOST_ENTRIES}.")
    if max(skip_instructions, max_instructions or 0) > _MOST_INSTRUCTIONS:
        raise UsageError(f"no run has more than {_MOST_INSTRUCTIONS} instructions.")
    choose(layout, get_args(Layout), "layout")
    choose(tracer, get_args(Tracer), "tracer")
    machine = single_level(*entries) if entries else load_preset(tlb or DEFAULT_PRESET)
    chosen = page_sizes(DEFAULT_PAGE_SIZES) if sizes is None else sizes
    return Configuration(
        page_sizes=tuple(sorted({BASE_PAGE, *(page_size(str(size)) for size in chosen)})),
        machine=machine,
        layout="native" if layout == "native" else "as-traced",
        tracer="octavo" if tracer == "octavo" else "lackey",
        follow_children=follow_children,
        skip_instructions=skip_instructions,
        max_instructions=max_instructions,
        between_marks=between_marks,
    )
