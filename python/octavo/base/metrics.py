"""The metrics of Talluri et al., "Tradeoffs in supporting two page sizes", section 3.2.

Plain functions of counts. None means undefined: a metric whose divisor is 0, such as one per
instruction of a trace that holds no instructions.
"""

from __future__ import annotations

MISS_PENALTY_CYCLES = 20.0
"""Section 3.2: "a reasonable estimate for TLB misses handled in software"."""
TWO_SIZES_PENALTY_CYCLES = 25.0
"""Section 2.3: a handler for two page sizes takes about 25% longer."""


MOST_REFERENCES_PER_INSTRUCTION = 100
"""No program makes more on average: a trace with more lacks most of its instructions."""


def rated_instructions(instructions: int, references: int) -> int:
    """The instructions that misses and cycles are divided by. It is 0, so that every metric per
    instruction is undefined, where a trace lacks most of the instructions of its references.
    """
    return instructions if references <= MOST_REFERENCES_PER_INSTRUCTION * instructions else 0


def references_per_instruction(references: int, instructions: int) -> float | None:
    """RPI (Table 3.1)."""
    return _ratio(references, instructions)


def misses_per_instruction(misses: int, instructions: int) -> float | None:
    """MPI (section 3.2)."""
    return _ratio(misses, instructions)


def mpki(misses: int, instructions: int) -> float | None:
    """Misses per 1000 instructions: 1000 MPI."""
    return _ratio(1000 * misses, instructions)


def miss_ratio(misses: int, references: int) -> float | None:
    """Misses per reference: MPI / RPI (section 3.2)."""
    return _ratio(misses, references)


def cpi_tlb(misses: int, instructions: int, penalty_cycles: float) -> float | None:
    """The CPI contribution of TLB misses: MPI × miss penalty (section 3.2)."""
    mpi = misses_per_instruction(misses, instructions)
    return None if mpi is None else mpi * penalty_cycles


def average_working_set(byte_refs: int, references: int) -> float | None:
    """s(T, ps): the bytes in the window, averaged over the program's references (section 3.2)."""
    return _ratio(byte_refs, references)


def normalised_working_set(byte_refs: int, base_byte_refs: int) -> float | None:
    """WS normalised: s(T, ps) / s(T, 4 KiB), over the same references (section 3.2)."""
    return _ratio(byte_refs, base_byte_refs)


def critical_penalty_increase(base_misses: int, misses: int) -> float | None:
    """Δmp: by how much the miss penalty may grow before two page sizes are no better.

    MPI(4 KiB) / MPI(ps) - 1 (section 3.2); 0.3 is 30%. Negative where two sizes miss more often.
    None where they do not miss at all.
    """
    ratio = _ratio(base_misses, misses)
    return None if ratio is None else ratio - 1


def _ratio(above: int, below: int) -> float | None:
    return above / below if below else None
