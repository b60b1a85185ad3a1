"""Latencies of kinds of computation: they change the core's cycles of a program as expected."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from .conftest import Octavo

LOOPS = 100_000
# Each loop is a chain of one kind of instruction.
BODIES = {
    "multiply": '"imul $3, %0, %0" : "+r"(number)',
    "divide": '"xor %%edx, %%edx; div %1" : "+a"(number) : "r"(7L) : "rdx"',
    "float": '"mulsd %0, %0" : "+x"(real)',
    "float_divide": '"divsd %0, %0" : "+x"(real)',
}
SOURCE = """
int main(void) {
   unsigned long number = 1UL << 60;
   double real = 1.5;
   for (long i = 0; i < LOOPS; i++) __asm__ volatile(BODY);
   return number == 42 && real == 42;
}
"""


def cycles(octavo: Octavo, program: Path, kind: str, latency: int) -> int:
    """Cycles of the program with a latency of the kind of its loop."""
    options = ["--timing", "out-of-order", "--design", "base4k"]
    setting = f"core.pipeline.latencies.{kind}={latency}"
    traced = octavo([program], *options, "--set", setting, verb="sim")
    (row,) = traced.rows(component="core", counter="cycles", design="base4k")
    assert isinstance(row["value"], int)
    return row["value"]


@pytest.mark.parametrize("kind", BODIES)
def test_a_chain_takes_the_latency_of_its_instructions(
    kind: str, tmp_path: Path, octavo: Octavo
) -> None:
    source = tmp_path / "loop.c"
    source.write_text(SOURCE.replace("LOOPS", str(LOOPS)).replace("BODY", BODIES[kind]))
    subprocess.run(["gcc", "-O2", "-o", tmp_path / "loop", source], check=True)
    slow, slower = (cycles(octavo, tmp_path / "loop", kind, latency) for latency in (50, 80))
    # Each iteration takes 30 cycles longer; code outside the loop has a few such instructions, too.
    assert slower - slow == pytest.approx(30 * LOOPS, rel=0.01)
