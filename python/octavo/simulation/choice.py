"""The choice of a design, with the reason, in one sentence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from octavo.base.units import format_bytes, format_count, format_share
from octavo.simulation.model import RESOLUTION, Simulated

NOT_IN_IT = (
    "An additive estimate: what a core overlaps, walks as well as misses of data, is not "
    "simulated, so the real share of translation may be lower or higher; the operating system's "
    "own time is not simulated either."
)
NOT_IN_OVERLAPPED = (
    "An estimate: walks overlap as far as the machine's walkers allow, which is further than in a "
    "core, and all other latencies are added up; the operating system's own time is not simulated."
)
NOT_IN_TIME = (
    "Times are of the machine's core model, which executes on a wrong path at most what the right "
    "path shares with it, and prefetches only where the machine has prefetchers; the operating "
    "system's own time is not simulated."
)


@dataclass(frozen=True)
class Choice:
    """The best designs, and the first design that is worse."""

    chosen: tuple[Simulated, ...]
    """The best design, with all that differ from it by no more than RESOLUTION."""
    other: Simulated | None
    """The first design that could be chosen and is worse."""

    @property
    def best(self) -> Simulated:
        """The first of the best designs."""
        return self.chosen[0]


def choose_design(designs: Sequence[Simulated]) -> Choice | None:
    """The designs with the fewest cycles, and of these the designs with the least memory. Cycles,
    and bytes, that differ by no more than RESOLUTION count as equal.

    Designs that stopped early, and bounds, are left out; None where no design is left.
    """
    ran = [one for one in designs if one.can_be_chosen]
    if not ran:
        return None
    fewest = min(_cost(one) for one in ran)
    fast = [one for one in ran if _cost(one) <= fewest * (1 + RESOLUTION)]
    least = min(one.memory_bytes for one in fast)
    chosen = [one for one in fast if one.memory_bytes <= least * (1 + RESOLUTION)]
    other = next((one for one in ran if not any(one is best for best in chosen)), None)
    return Choice(tuple(chosen), other)


def sentence(designs: Sequence[Simulated], kernel_cycles: float = 0.0) -> str:
    """The answer to "which design?", with its cost. `kernel_cycles` were spent in system calls and
    are not simulated; 0 where they are not known.
    """
    choice = choose_design(designs)
    if choice is None and all(one.is_bound for one in designs):
        return (
            "Which design? None: bounds only serve for comparison; give other designs by --design."
        )
    if choice is None:
        return (
            "Which design? None: each stopped before its end, for the reason given above; where "
            "memory ran out, give the machine more, by --set memory.bytes=…, or what its snapshot "
            "has in use, by --set memory.fragmentation.kind=empty."
        )
    best, other = choice.best, choice.other
    # The same number as in the table.
    memory = f"{format_bytes(best.memory_bytes)} of memory with page tables"
    costs = f"loses {_lost(best)} to translation and takes {memory}"
    if other is not None:
        names = _listed([one.design for one in choice.chosen], "or")
        is_tied = len(choice.chosen) > 1
        tied, subject = (f" ({_UNRESOLVED})", best.design) if is_tied else ("", "it")
        beside = _beside(best, other, kernel_cycles)
        return f"Which design? {names}{tied}: {subject} {beside}. {_limits(designs)}"
    if len(choice.chosen) > 1:
        # The figures of the first design stand for all, which differ by at most RESOLUTION.
        return (
            f"Which design? It makes no difference: {_UNRESOLVED}. {best.design} {costs}. "
            f"{_limits(designs)}"
        )
    has_stopped = any(one.stopped is not None for one in designs)
    alone = "The only one that ran to its end" if has_stopped else "Alone"
    return f"{alone}, {best.design} {costs}. {_limits(designs)}"


def _limits(designs: Sequence[Simulated]) -> str:
    """The limits of the answer."""
    own = [one.design for one in designs if one.has_own_caches]
    if 0 < len(own) < len(designs):
        has, its = ("has", "its") if len(own) == 1 else ("have", "their")
        return (
            f"{_listed(own, 'and')} {has} caches of {its} own, before a memory with latencies of "
            f"{its} own, so that times beside the other designs compare these, too: "
            f"`octavo explain {own[0]}` names the keys. {_not_simulated(designs)}"
        )
    return _not_simulated(designs)


def _not_simulated(designs: Sequence[Simulated]) -> str:
    if any(one.is_timed for one in designs):
        return NOT_IN_TIME
    return NOT_IN_OVERLAPPED if any(one.overlaps_walks for one in designs) else NOT_IN_IT


_UNRESOLVED = (
    f"cycles and memory differ by no more than {RESOLUTION:.0%}, which the simulation does not "
    "resolve"
)


def _cost(one: Simulated) -> float:
    """All cycles; without instructions, the cycles of translation."""
    return one.cycles if one.instructions else one.lost_cycles


def _listed(names: Sequence[str], word: str) -> str:
    return f"{', '.join(names[:-1])} {word} {names[-1]}" if len(names) > 1 else names[0]


def _lost(one: Simulated, ending: str = " of its cycles") -> str:
    share = one.translation_share
    if share is None:
        return f"{format_count(one.lost_cycles)} cycles"
    return f"{format_share(share)}{ending}"


def _beside(best: Simulated, other: Simulated, kernel_cycles: float) -> str:
    """The comparison of two designs in cycles, time and memory."""
    parts = [f"loses {_lost(best)} to translation ({other.design}: {_lost(other, ending='')})"]
    if best.instructions:
        times = best.cycles / other.cycles
        is_equal = 1 / (1 + RESOLUTION) <= times <= 1 + RESOLUTION
        parts.append(
            f"runs as long, within {RESOLUTION:.0%}"
            if is_equal
            else f"runs for {times:.3g} of the time of {other.design}"
        )
        if best.is_timed and not is_equal and kernel_cycles > RESOLUTION * other.cycles:
            whole = (best.cycles + kernel_cycles) / (other.cycles + kernel_cycles)
            parts[-1] += f" ({whole:.3g} with the time that its system calls took when traced)"
    return f"{', '.join(parts)}, and {_memory_beside(best, other)}"


def _memory_beside(best: Simulated, other: Simulated) -> str:
    own, others = best.memory_bytes, other.memory_bytes
    if abs(own - others) <= RESOLUTION * min(own, others):
        return (
            f"takes as much memory, within {RESOLUTION:.0%} ({format_bytes(own)} with page tables)"
        )
    more = "more" if own > others else "less"
    share = f" ({format_share(abs(own - others) / others)})" if others else ""
    return f"takes {format_bytes(abs(own - others))}{share} {more} memory"
