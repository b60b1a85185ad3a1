"""The counters of one design, and the metrics computed from them.

Where an out-of-order core executed the instructions, cycles are its own (`core.cycles`), and
`core.stack` says what they went to. Else they are added up
(`octavo.simulation.configuration.ADDITIVE_NOTE`): instructions × base CPI, and the counters
`cycles_…` of `core`, each of which says what its part costs beyond that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from octavo.base.errors import nearest
from octavo.base.metrics import rated_instructions
from octavo.base.text import quoted
from octavo.simulation.counter_meanings import is_documented

if TYPE_CHECKING:
    from octavo._core import MachineCounts

Counts = Mapping[tuple[str, str], int]
"""Values by component and counter."""

_CORE = "core"
STACK = "core.stack"
_TRANSLATION = ("tlb_l2", "walks", "handlers")
"""The parts of `core.stack` that are translation's."""
_CYCLES = "cycles_"
_CACHES = ("cycles_fetches", "cycles_data")
"""The cycles of cache misses; all other cycles are translation's."""
WALKS = "cycles_walks"
RESOLUTION = 0.02
"""Two designs whose cycles, or bytes of memory, differ by no more than this share count as equal.
One design on memory with other free frames (`memory.fragmentation.seed` 1 to 6) differs
from itself by up to 1.1% in cycles, because frames decide which lines of the caches collide, and
that is chance; twice that is asked of a difference between designs. docs/sim.md has the figures.
"""


@dataclass(frozen=True, repr=False)
class Simulated:
    """The results of a design for a process image, or for all of them."""

    design: str
    counts: Counts
    instructions: int
    """The divisor of numbers per instruction: 0 where there are too few."""
    references: int
    base_cpi: float
    stopped: str | None = None
    """Why it stopped early: its counters end there, and rates by instruction are undefined."""
    intervals: tuple[Counts, ...] = ()
    is_bound: bool = False
    """An ideal bound: shown for comparison, never recommended."""
    has_own_caches: bool = False
    """Whether it has caches of its own, before a memory with latencies of its own."""
    overlaps_walks: bool = False
    """Whether added cycles count the least that walks take, not their sum."""

    def __repr__(self) -> str:
        size = f"{self.references:,} references, {len(self.counts)} counters"
        return f"<Simulated {self.design}: {size}{', stopped' if self.stopped else ''}>"

    @property
    def can_be_chosen(self) -> bool:
        """Whether it ran to its end, and can be built."""
        return self.stopped is None and not self.is_bound

    @property
    def has_counted(self) -> bool:
        """Whether any reference was counted: not where it stopped in the warm-up, or before the
        first one had a page.
        """
        changed = {component for (component, _), value in self.counts.items() if value}
        has_pages = any(component.startswith("os.pages.") for component in changed)
        is_past_warm_up = any(not component.startswith("os") for component in changed)
        return self.stopped is None or (has_pages and is_past_warm_up)

    def count(self, component: str, counter: str) -> int:
        """A counter, 0 where the machine has none. Raises KeyError where no machine has it."""
        if (component, counter) not in self.counts:
            self._check_counter(component, counter)
        return self.counts.get((component, counter), 0)

    def _check_counter(self, component: str, counter: str) -> None:
        """Raises KeyError for a counter that the pages on simulations do not have."""
        if is_documented(component, counter):
            return
        counters = [name for of, name in self.counts if of == component]
        components = {of for of, _ in self.counts}
        meant = nearest(counter, counters) if counters else nearest(component, components)
        unknown = f"no counter `{quoted(counter)}` of the component `{quoted(component)}`"
        raise KeyError(unknown + (f"; did you mean `{meant}`?" if meant else ""))

    def counted(self, component: str, counter: str) -> int | None:
        """A counter, None where the machine has none."""
        return self.counts.get((component, counter))

    @property
    def is_timed(self) -> bool:
        """Whether an out-of-order core executed the instructions."""
        return (STACK, "base") in self.counts

    @cached_property
    def cycles_by_part(self) -> dict[str, float]:
        """All cycles, by what they go to: `base`, then `fetches`, `data`, `tlb_l2`, `walks` …"""
        if self.overlaps_walks:
            return self.overlapped_cycles_by_part
        if not self.is_timed:
            return self.added_cycles_by_part
        parts = {counter: value for (of, counter), value in self.counts.items() if of == STACK}
        return {"base": parts.pop("base"), **parts}

    @cached_property
    def added_cycles_by_part(self) -> dict[str, float]:
        """All latencies added up, by what they go to."""
        parts = {"base": self.instructions * self.base_cpi}
        for (component, counter), value in self.counts.items():
            if component == _CORE and counter.startswith(_CYCLES):
                parts[counter.removeprefix(_CYCLES)] = value
        return parts

    @property
    def overlapped_cycles_by_part(self) -> dict[str, float]:
        """All latencies added up, with the least that walks take in place of their sum."""
        parts = dict(self.added_cycles_by_part)
        if "walks" in parts:
            parts["walks"] = min(parts["walks"], self.count("walker", "cycles_overlapped"))
        return parts

    @property
    def cycles(self) -> float:
        """All cycles."""
        return sum(self.cycles_by_part.values())

    @property
    def added_cycles(self) -> float:
        """All latencies added up."""
        return sum(self.added_cycles_by_part.values())

    @property
    def lost_cycles(self) -> float:
        """Cycles lost to translation: those in which a core waited for it, else all of its own."""
        if not self.is_timed:
            overlapped = self.added_cycles - self.cycles
            return self.translation_cycles - overlapped
        return sum(self.cycles_by_part[part] for part in _TRANSLATION)

    @property
    def translation_cycles(self) -> int:
        """Cycles of translation, as `translation_cycles` adds them up."""
        return translation_cycles(self.counts)

    @property
    def walk_cycles(self) -> int:
        """Cycles of page walks."""
        return self.count(_CORE, WALKS)

    @property
    def translation_share(self) -> float | None:
        """The part of all cycles that is translation; None without instructions."""
        return self.lost_cycles / self.cycles if self.instructions and self.cycles else None

    @property
    def memory_bytes(self) -> int:
        """Data and page tables, each at the time when there were most of them."""
        return sum(self.count("os", f"peak_{what}_bytes") for what in ("resident", "page_table"))

    @property
    def walks(self) -> int:
        """Page walks, those that end in a fault, and those after it, among them."""
        return self.count("walker", "walks")

    @property
    def references_per_walk(self) -> float | None:
        """Page-table entries that a walk reads."""
        return self.count("walker", "references") / self.walks if self.walks else None

    def misses(self, level: str) -> int | None:
        """Misses of a level: `l1i`, `l1d`, `l1` (where it is one for both), `l2`. None where the
        machine has no such level.
        """
        return self.counted(f"tlb.{level}", "misses")


def translation_cycles(counts: Counts) -> int:
    """Cycles of translation behind the first-level TLBs: later TLB levels and walks, and what a
    design has in addition or instead: nested TLBs (`cycles_tlb_nested`), and of virtual caches the
    handler, write-backs and sweeps (`cycles_handler`, `cycles_write_backs`, `cycles_sweeps`).
    """
    return sum(
        value
        for (component, counter), value in counts.items()
        if component == _CORE and counter.startswith(_CYCLES) and counter not in _CACHES
    )


def simulated(
    machine: MachineCounts,
    instructions: int,
    references: int,
    base_cpi: float,
    *,
    overlaps_walks: bool = False,
) -> Simulated:
    """The results of a design for one process image."""
    return Simulated(
        design=machine["design"],
        counts=_counts(machine["counters"]),
        instructions=instructions,
        references=references,
        base_cpi=base_cpi,
        stopped=machine["stopped"],
        is_bound=machine["bound"],
        has_own_caches=machine["own_caches"],
        intervals=tuple(_counts(interval) for interval in machine["intervals"]),
        overlaps_walks=overlaps_walks,
    )


def stop_notes(designs: Iterable[Simulated]) -> Iterator[str]:
    """A sentence for each design that stopped early."""
    for one in designs:
        if one.stopped is not None:
            yield (
                f"{one.design} stopped: {one.stopped}. Its counts end there, and nothing is "
                "concluded from them."
            )


def summed(of_processes: Sequence[Simulated]) -> Simulated:
    """The results of a design for all process images, each on machines of its own."""
    first = of_processes[0]
    references = sum(one.references for one in of_processes)
    return replace(
        first,
        counts=added(one.counts for one in of_processes),
        instructions=rated_instructions(sum(one.instructions for one in of_processes), references),
        references=references,
        stopped=next((one.stopped for one in of_processes if one.stopped is not None), None),
        intervals=(),
    )


def added(all_counts: Iterable[Counts]) -> Counts:
    """Sums, counter for counter; what counts nothing stays, as 0."""
    total: Counter[tuple[str, str]] = Counter()
    for counts in all_counts:
        # `update` would do, but for its signature.
        for key, value in counts.items():
            total[key] += value
    return dict(total)


def _counts(listed: Iterable[tuple[str, str, int]]) -> Counts:
    return {(component, counter): value for component, counter, value in listed}
