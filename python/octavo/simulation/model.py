"""The counters of one design, and the metrics computed from them.

Where an out-of-order core executed the instructions, cycles are its own (`core.cycles`), and
`core.stack` divides them by cause. Else they are a sum
(`octavo.simulation.configuration.ADDITIVE_NOTE`): instructions × base CPI, and the counters
`cycles_…` of `core`, which have the additional cycles of each part.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from octavo.base.errors import nearest
from octavo.base.metrics import rated_instructions
from octavo.base.text import plural, quoted
from octavo.simulation.counter_meanings import is_documented

if TYPE_CHECKING:
    from octavo._core import MachineCounts

Counts = Mapping[tuple[str, str], int]
"""Values by component and counter."""

_CORE = "core"
STACK = "core.stack"
_TRANSLATION = ("tlb_l2", "walks", "handlers")
"""The parts of `core.stack` that belong to translation."""
_CYCLES = "cycles_"
_CACHES = ("cycles_fetches", "cycles_data")
"""The cycles of cache misses; all other such counters belong to translation."""
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
    """The divisor of rates per instruction; 0 where there are too few instructions."""
    references: int
    base_cpi: float
    stopped: str | None = None
    """The reason why it stopped early; then rates per instruction are undefined."""
    intervals: tuple[Counts, ...] = ()
    is_bound: bool = False
    """An ideal bound: shown for comparison, never recommended."""
    has_own_caches: bool = False
    """Whether it has caches of its own, before a memory with latencies of its own."""
    overlaps_walks: bool = False
    """Whether summed cycles have the lower bound of walk cycles in place of their sum."""

    def __repr__(self) -> str:
        references = f"{self.references:,} {plural(self.references, 'reference')}"
        size = f"{references}, {len(self.counts)} {plural(len(self.counts), 'counter')}"
        return f"<Simulated {self.design}: {size}{', stopped' if self.stopped else ''}>"

    @property
    def can_be_chosen(self) -> bool:
        """Whether it ran to its end, and can be built."""
        return self.stopped is None and not self.is_bound

    @property
    def has_counted(self) -> bool:
        """Whether any reference was counted: False where it stopped in the warm-up, or before the
        first reference had a page.
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
        counters = [name for owner, name in self.counts if owner == component]
        components = {owner for owner, _ in self.counts}
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
        """All cycles by part: `base`, then `fetches`, `data`, `tlb_l2`, `walks` …"""
        if self.overlaps_walks:
            return self.overlapped_cycles_by_part
        if not self.is_timed:
            return self.added_cycles_by_part
        parts = {
            counter: value
            for (component, counter), value in self.counts.items()
            if component == STACK
        }
        return {"base": parts.pop("base"), **parts}

    @cached_property
    def added_cycles_by_part(self) -> dict[str, float]:
        """The sum of all latencies, by part."""
        parts = {"base": self.instructions * self.base_cpi}
        for (component, counter), value in self.counts.items():
            if component == _CORE and counter.startswith(_CYCLES):
                parts[counter.removeprefix(_CYCLES)] = value
        return parts

    @property
    def overlapped_cycles_by_part(self) -> dict[str, float]:
        """The sum of all latencies by part, with the lower bound of walk cycles for walks."""
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
        """The sum of all latencies."""
        return sum(self.added_cycles_by_part.values())

    @property
    def lost_cycles(self) -> float:
        """Cycles lost to translation: stall cycles of the core model, else all its latencies."""
        if not self.is_timed:
            overlapped = self.added_cycles - self.cycles
            return self.translation_cycles - overlapped
        return sum(self.cycles_by_part[part] for part in _TRANSLATION)

    @property
    def translation_cycles(self) -> int:
        """The sum of the latencies of translation; see the function `translation_cycles`."""
        return translation_cycles(self.counts)

    @property
    def walk_cycles(self) -> int:
        """Cycles of page walks."""
        return self.count(_CORE, WALKS)

    @property
    def translation_share(self) -> float | None:
        """The share of cycles lost to translation; None without instructions."""
        return self.lost_cycles / self.cycles if self.instructions and self.cycles else None

    @property
    def memory_bytes(self) -> int:
        """The sum of the peaks of resident memory and of page tables."""
        return sum(self.count("os", f"peak_{what}_bytes") for what in ("resident", "page_table"))

    @property
    def walks(self) -> int:
        """Page walks, including walks that end in a fault and their repetitions."""
        return self.count("walker", "walks")

    @property
    def references_per_walk(self) -> float | None:
        """Mean number of page-table entries that a walk reads; None without walks."""
        return self.count("walker", "references") / self.walks if self.walks else None

    def misses(self, level: str) -> int | None:
        """Misses of a level: `l1i`, `l1d`, `l1` (a unified first level), `l2`. None where the
        machine has no such level.
        """
        return self.counted(f"tlb.{level}", "misses")


def translation_cycles(counts: Counts) -> int:
    """Cycles of translation beyond the first-level TLBs: later TLB levels and walks, nested TLBs
    (`cycles_tlb_nested`), and for virtual caches the handler, write-backs and sweeps
    (`cycles_handler`, `cycles_write_backs`, `cycles_sweeps`).
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
    """The sum of each counter; counters that are 0 are kept."""
    total: Counter[tuple[str, str]] = Counter()
    for counts in all_counts:
        # A loop, as the type of `Counter.update` does not accept these mappings.
        for key, value in counts.items():
            total[key] += value
    return dict(total)


def _counts(listed: Iterable[tuple[str, str, int]]) -> Counts:
    return {(component, counter): value for component, counter, value in listed}
