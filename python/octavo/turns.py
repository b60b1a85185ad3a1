"""Processes that take turns: what is asked for of them, checked."""

from __future__ import annotations

from typing import Literal, cast, get_args

from octavo.errors import UsageError, choose

Processes = Literal["apart", "asid", "flush"]
"""Each process image by itself; or in turns, told apart by an identifier, or by flushing."""
DEFAULT_QUANTUM_INSTRUCTIONS = 10**6
MOST_INSTRUCTIONS = 1 << 62


def choose_processes(processes: str, quantum: int | None) -> tuple[Processes, int]:
    """The choice, and how long a turn is. Raises UsageError."""
    choose(processes, get_args(Processes), "--processes")
    if quantum is not None and not 1 <= quantum <= MOST_INSTRUCTIONS:
        raise UsageError(f"--quantum {quantum}: give instructions from 1 to {MOST_INSTRUCTIONS}.")
    if quantum is not None and processes == "apart":
        raise UsageError("--quantum is how long a turn is: give --processes asid or flush with it.")
    turn = DEFAULT_QUANTUM_INSTRUCTIONS if quantum is None else quantum
    return cast("Processes", processes), turn


def turns_note(quantum_instructions: int) -> str:
    """How turns are taken, in a sentence."""
    return (
        f"Processes take turns, round robin, of {quantum_instructions} instructions each; waiting "
        "is not seen."
    )
