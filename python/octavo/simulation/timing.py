"""The way in which the cycles of a simulation were computed, and the reason for it."""

from __future__ import annotations

from dataclasses import dataclass

from octavo.simulation.configuration import (
    ADDITIVE,
    ADDITIVE_NOTE,
    BY_STREAM,
    CORE_NOTE,
    OUT_OF_ORDER,
    OVERLAPPED,
    OVERLAPPED_NOTE,
    SimConfiguration,
)
from octavo.simulation.execution_time import SIMULATED

INDEPENDENT = (
    "The stream has no register dependences: no instruction waits for another but by memory, so "
    "that times of the core come out too low; --timing additive adds all latencies up."
)
_NOTES = {
    ADDITIVE: [ADDITIVE_NOTE, SIMULATED],
    OVERLAPPED: [OVERLAPPED_NOTE],
    OUT_OF_ORDER: [CORE_NOTE],
}


@dataclass(frozen=True)
class Timing:
    """A way to compute cycles."""

    name: str
    """`additive`, `overlapped` or `out-of-order`."""
    reason: str
    """The reason, as the end of a sentence."""
    warning: str | None = None
    """A defect of the figures, as a sentence."""

    def sentence(self) -> str:
        """The choice and its reason."""
        return f"Cycles are {self.name}: {self.reason}."

    def document(self) -> dict[str, str]:
        """Plain data, for the manifest."""
        return {"name": self.name, "reason": self.reason}

    def notes(self) -> list[str]:
        """The assumptions behind the cycles, a sentence each."""
        return [
            self.sentence(),
            *_NOTES[self.name],
            *([] if self.warning is None else [self.warning]),
        ]


def choose_timing(configuration: SimConfiguration, *, has_dependences: bool) -> Timing:
    """The timing of a simulation; `has_dependences` is about registers in its stream."""
    asked, machine = configuration.timing, configuration.machine
    if asked != BY_STREAM:
        is_low = asked == OUT_OF_ORDER and not has_dependences
        return Timing(asked, f"--timing {asked} asks for it", INDEPENDENT if is_low else None)
    if machine["core"].get("pipeline") is None:
        reason = f"the machine `{machine['name']}` does not describe its core ([core.pipeline])"
        return Timing(ADDITIVE, reason)
    if not has_dependences:
        return Timing(ADDITIVE, "the stream has no register dependences")
    reason = f"the stream has register dependences, and `{machine['name']}` describes its core"
    return Timing(OUT_OF_ORDER, reason)
