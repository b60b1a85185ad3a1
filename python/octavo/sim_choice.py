"""Which design to choose, and why, in one sentence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from octavo.sim_model import Simulated
from octavo.units import format_bytes, format_count, format_share

NEGLIGIBLE_SHARE = 0.005
"""Of all cycles: two designs that are as near as that take the same time, and memory decides."""
LEAST_SHARE = 0.001
"""Of memory that is told as a share."""
NOT_IN_IT = (
    "An additive estimate, without what an out-of-order core overlaps and without the operating "
    "system's own time."
)


@dataclass(frozen=True)
class Choice:
    """A design, and what it is compared with."""

    chosen: Simulated
    other: Simulated | None
    """The first other design that could have been chosen."""


def choose_design(designs: Sequence[Simulated]) -> Choice | None:
    """The design with the fewest cycles; of those that are about as good, the one with least
    memory. What stopped for want of memory, and bounds, are left out; None where nothing is left.
    """
    ran = [one for one in designs if one.can_be_chosen]
    if not ran:
        return None
    fewest = min(_cost(one) for one in ran)
    spared = NEGLIGIBLE_SHARE if ran[0].instructions else 0
    near = [one for one in ran if _cost(one) <= fewest * (1 + spared)]
    chosen = min(near, key=memory_bytes)
    return Choice(chosen, next((one for one in ran if one is not chosen), None))


def memory_bytes(one: Simulated) -> int:
    """Data and page tables, each where there is most of them."""
    return sum(one.count("os", f"peak_{what}_bytes") for what in ("resident", "page_table"))


def sentence(designs: Sequence[Simulated]) -> str:
    """The answer, with its price."""
    choice = choose_design(designs)
    if choice is None and all(one.is_bound for one in designs):
        return "Which design? None: bounds are to compare others with; give some, by --design."
    if choice is None:
        return (
            "Which design? None: with all of them memory ran out; give the machine more, by "
            "--set memory.bytes=…"
        )
    chosen, other = choice.chosen, choice.other
    memory = f"{format_bytes(memory_bytes(chosen))} of memory"
    if other is None:
        has_stopped = any(one.stopped is not None for one in designs)
        alone = "The only one that ran to its end" if has_stopped else "Alone"
        told = f"loses {_lost(chosen)} to translation and takes {memory}"
        return f"{alone}, {chosen.design} {told}. {NOT_IN_IT}"
    ran = [one for one in designs if one.can_be_chosen]
    if len({(_cost(one), memory_bytes(one)) for one in ran}) == 1:
        told = f"each loses {_lost(chosen)} to translation and takes {memory}"
        return f"Which design? It makes no difference: {told}. {NOT_IN_IT}"
    return f"Which design? {chosen.design}: it {_beside(chosen, other)}. {NOT_IN_IT}"


def _cost(one: Simulated) -> float:
    """All cycles; where nobody knows the instructions, those of translation."""
    return one.cycles if one.instructions else one.translation_cycles


def _lost(one: Simulated, of: str = " of its cycles") -> str:
    share = one.translation_share
    if share is None:
        return f"{format_count(one.translation_cycles)} cycles"
    return f"{format_share(share)}{of}"


def _beside(chosen: Simulated, other: Simulated) -> str:
    """What it is better by than another, and what that takes."""
    own, others = memory_bytes(chosen), memory_bytes(other)
    if own == others:
        memory = f"takes the same memory ({format_bytes(own)})"
    else:
        more_share = abs(own - others) / others if others else 0.0
        share = f" ({format_share(more_share)})" if more_share >= LEAST_SHARE else ""
        more = "more" if own > others else "less"
        memory = f"takes {format_bytes(abs(own - others))}{share} {more} memory"
    parts = [f"loses {_lost(chosen)} to translation ({other.design}: {_lost(other, of='')})"]
    if chosen.instructions:
        times = chosen.cycles / other.cycles
        near = 1 - NEGLIGIBLE_SHARE < times < 1 + NEGLIGIBLE_SHARE
        told = "as long, within half a percent" if near else f"for {times:.3g} of its time"
        parts.append(f"runs {told}")
    return f"{', '.join(parts)}, and {memory}"
