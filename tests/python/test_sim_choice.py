"""Which design `octavo sim` names, and what its sentence says."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from octavo.sim_choice import NEGLIGIBLE_SHARE, choose_design, memory_bytes, sentence
from octavo.sim_model import Simulated
from octavo.sim_view import grids
from sim_fakes import counts, design, machine, sim_process, sim_result


def test_a_design_that_stopped_is_not_chosen() -> None:
    stopped = design("cheap", counts(), stopped="no block is free")
    dear = design("dear", counts(walk_cycles=900, resident=1 << 20))
    choice = choose_design([stopped, dear])
    assert choice is not None
    assert choice.chosen is dear
    assert choice.other is None
    assert sentence([stopped, dear]).startswith("The only one that ran to its end, dear loses")
    assert choose_design([stopped]) is None


def test_a_bound_is_shown_and_never_chosen() -> None:
    bound = machine("bound", counts())
    bound["bound"] = True
    dear = machine("base4k", counts(walk_cycles=900))
    result = sim_result([sim_process([dear, bound])])
    grid = next(grids(result))
    assert grid.head == ("", "base4k", "bound\n(bound)")
    assert not grid.best
    choice = choose_design(result.total)
    assert choice is not None
    assert (choice.chosen.design, choice.other) == ("base4k", None)
    assert sentence(result.total).startswith("Alone, base4k loses")
    assert sentence([design(is_bound=True)]).startswith("Which design? None: bounds are")


def test_the_sentence_by_hand() -> None:
    """1000 cycles of instructions, 600 of caches: 2000 with 400 of walks, 1600 with none."""
    base = design("small", counts(walk_cycles=300, tlb_cycles=100, resident=996 << 10))
    huge = design("large", counts(resident=1196 << 10))
    assert sentence([base, huge]).startswith(
        "Which design? large: it loses 0.0% of its cycles to translation (small: 20.0%), runs for "
        "0.8 of its time, and takes 200 KiB (20.0%) more memory. An additive estimate"
    )
    same = design("same", base.counts)
    assert sentence([base, same]).startswith(
        "Which design? It makes no difference: each loses 20.0% of its cycles to translation and "
    )
    assert sentence([base]).startswith("Alone, small loses 20.0% of its cycles")


def test_of_two_that_are_as_fast_the_smaller_is_chosen() -> None:
    slower = design("slower", counts(walk_cycles=7, resident=1 << 20))
    larger = design("larger", counts(resident=2 << 20))
    choice = choose_design([larger, slower])
    assert choice is not None
    assert (choice.chosen, choice.other) == (slower, larger)
    assert "runs as long, within half a percent" in sentence([larger, slower])
    assert "less memory" in sentence([larger, slower])


made = st.builds(
    lambda walks, resident, stops: design(
        of=counts(walk_cycles=walks, resident=resident), stopped=stops
    ),
    st.integers(0, 3000),
    st.integers(0, 1 << 30),
    st.sampled_from([None, None, "no block is free"]),
)


@given(st.lists(made, min_size=1, max_size=6))
def test_no_other_is_better_in_all_ways(designs: list[Simulated]) -> None:
    choice = choose_design(designs)
    ran = [one for one in designs if one.stopped is None]
    assert (choice is None) == (not ran)
    if choice is None:
        return
    chosen = choice.chosen
    assert chosen.cycles <= min(one.cycles for one in ran) * (1 + NEGLIGIBLE_SHARE)
    for one in ran:
        is_faster = one.cycles <= chosen.cycles
        assert not (is_faster and memory_bytes(one) < memory_bytes(chosen))
    assert sentence(designs).endswith("time.")
