"""Time slicing of processes: the options, checked."""

from __future__ import annotations

from typing import Literal, cast, get_args

from octavo.base.errors import UsageError, choose

Processes = Literal["apart", "asid", "flush"]
"""Each process image by itself; or time-sliced, with tagged entries or with flushes."""
DEFAULT_QUANTUM_INSTRUCTIONS = 10**6
MOST_INSTRUCTIONS = 1 << 62


def choose_processes(processes: str, quantum: int | None) -> tuple[Processes, int]:
    """The choice, and the quantum in instructions. Raises UsageError."""
    choose(processes, get_args(Processes), "--processes")
    if quantum is not None and not 1 <= quantum <= MOST_INSTRUCTIONS:
        raise UsageError(f"--quantum {quantum}: give instructions from 1 to {MOST_INSTRUCTIONS}.")
    if quantum is not None and processes == "apart":
        raise UsageError("--quantum needs --processes asid or flush.")
    quantum_instructions = DEFAULT_QUANTUM_INSTRUCTIONS if quantum is None else quantum
    return cast("Processes", processes), quantum_instructions


def time_slicing_note(quantum_instructions: int) -> str:
    """How processes share a core, in a sentence."""
    return (
        f"Processes share a core round robin, with a quantum of {quantum_instructions} "
        "instructions; waiting is not modelled."
    )
