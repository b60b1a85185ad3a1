"""Linear models of the literature, which predict a design's cycles from its TLB misses and walk
cycles, after runs with 4 KiB and with 2 MiB pages (BASE and HUGE).

They were made for measurements: R, cycles of a run; C, cycles of its page walks; M, walks; and H,
hits of the second-level TLB. Here all four come from the simulation: R is the cycles of its
out-of-order core, and C the sum of the cycles of all walks. So a comparison with the core's cycles
of a design shows the error of a model. Agbarya, Yaniv, Gandhi and Tsafrir compare the models with
measurements: "Predicting
Execution Times With Partial Simulations in Virtual Memory Research: Why and How", MICRO 2020.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from octavo.simulation.execution_time import BASE, HUGE
from octavo.simulation.model import Simulated

SECOND_LEVEL_HIT_CYCLES = 7
"""Cycles of a hit in the second-level TLB (Pham et al.)."""


@dataclass(frozen=True)
class LinearModel:
    """The cycles that a model predicts for the designs."""

    key: str
    """The counter of its rows."""
    name: str
    """Its authors and year."""
    cycles: dict[str, float]
    """Cycles by design; for the designs of its input, those of the core where the formula gives
    these."""


def _walks(base: Simulated, _huge: Simulated) -> Callable[[Simulated], float] | None:
    if not base.walks:
        return None
    of_walk = base.walk_cycles / base.walks
    return lambda one: of_walk * one.walks + base.cycles - base.walk_cycles


def _hits_and_walks(base: Simulated, _huge: Simulated) -> Callable[[Simulated], float]:
    def translation(one: Simulated) -> float:
        return SECOND_LEVEL_HIT_CYCLES * one.count("tlb.l2", "hits") + one.walk_cycles

    rest = base.cycles - translation(base)
    return lambda one: translation(one) + rest


def _from_huge(_base: Simulated, huge: Simulated) -> Callable[[Simulated], float]:
    return lambda one: one.walk_cycles + huge.cycles - huge.walk_cycles


def _line(base: Simulated, huge: Simulated) -> Callable[[Simulated], float] | None:
    between = base.walk_cycles - huge.walk_cycles
    if not between:
        return None
    slope = (base.cycles - huge.cycles) / between
    return lambda one: huge.cycles + slope * (one.walk_cycles - huge.walk_cycles)


_MODELS = (
    ("basu", "Basu et al. 2013: C(4K)/M(4K) M + R(4K) - C(4K)", _walks),
    ("pham", "Pham et al. 2015: 7 H + C + R(4K) - 7 H(4K) - C(4K)", _hits_and_walks),
    ("alam", "Alam et al. 2017: C + R(2M) - C(2M)", _from_huge),
    ("yaniv", "Yaniv and Tsafrir 2016: a line through 4K and 2M", _line),
)


def linear_models(designs: Sequence[Simulated]) -> Iterator[LinearModel]:
    """The models whose input is complete: a core executed `base4k` and `thp`, and both ran to their
    end. Designs that stopped are left out.
    """
    ran = {one.design: one for one in designs if one.is_timed and one.stopped is None}
    if BASE not in ran or HUGE not in ran:
        return
    for key, name, make in _MODELS:
        model = make(ran[BASE], ran[HUGE])
        if model is not None:
            cycles = {design: model(one) for design, one in ran.items()}
            yield LinearModel(key, name, cycles)
