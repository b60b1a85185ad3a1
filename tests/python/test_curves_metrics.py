"""The paper's metrics, by the identities that it states (section 3.2)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.base import metrics
from octavo.tlb_curves.view import increase_in_words

counts = st.integers(1, 10**15)
alike = st.integers(10**6, 10**9)


@given(misses=counts, references=counts, instructions=counts)
def test_the_metrics_follow_from_one_another(
    misses: int, references: int, instructions: int
) -> None:
    cpi = metrics.cpi_tlb(misses, instructions, 20)
    mpi = metrics.misses_per_instruction(misses, instructions)
    rpi = metrics.references_per_instruction(references, instructions)
    ratio = metrics.miss_ratio(misses, references)
    assert cpi is not None
    assert mpi is not None
    assert rpi is not None
    assert mpi == pytest.approx(cpi / 20)
    assert ratio == pytest.approx(mpi / rpi)
    assert metrics.mpki(misses, instructions) == pytest.approx(1000 * mpi)


@given(base=alike, misses=alike, instructions=counts)
def test_the_critical_increase_makes_both_equal(base: int, misses: int, instructions: int) -> None:
    """1.25 CPI(4 KiB) / CPI(two sizes) - 1, and at that penalty both cost the same."""
    increase = metrics.critical_penalty_increase(base, misses)
    before = metrics.cpi_tlb(base, instructions, 20)
    two_sizes = metrics.cpi_tlb(misses, instructions, 25)
    assert increase is not None
    assert before is not None
    assert two_sizes is not None
    assert increase == pytest.approx(1.25 * before / two_sizes - 1, rel=1e-9, abs=1e-9)
    assert metrics.cpi_tlb(misses, instructions, 20 * (1 + increase)) == pytest.approx(before)


def test_figures_of_the_paper() -> None:
    """matrix300: CPI_TLB 1.56 and 0.11 at 20 cycles; twice the working set is 2.0."""
    assert metrics.cpi_tlb(78, 1000, 20) == pytest.approx(1.56)
    assert metrics.critical_penalty_increase(130, 100) == pytest.approx(0.30)
    assert metrics.normalised_working_set(3 * 32768, 12 * 4096) == 2.0
    assert metrics.average_working_set(4096 * 30, 10) == 12288.0


def test_metrics_without_a_base_are_undefined() -> None:
    assert metrics.cpi_tlb(5, 0, 20) is None
    assert metrics.mpki(5, 0) is None
    assert metrics.references_per_instruction(5, 0) is None
    assert metrics.miss_ratio(0, 0) is None
    assert metrics.critical_penalty_increase(5, 0) is None
    assert metrics.normalised_working_set(5, 0) is None


@pytest.mark.parametrize(
    ("increase", "words"),
    [
        (None, "no misses"),
        (-0.25, "-25.0%"),
        (0.3, "+30.0%"),
        (8.5, "+850%"),
        (6634.34, "6,635 times"),
    ],
)
def test_an_increase_of_the_penalty_in_words(increase: float | None, words: str) -> None:
    assert increase_in_words(increase) == words
