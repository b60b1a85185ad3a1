"""The design that `octavo sim` names, and the sentence about it."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from octavo.simulation.choice import choose_design, sentence
from octavo.simulation.configuration import configure_sim
from octavo.simulation.model import RESOLUTION, Simulated
from octavo.simulation.view import grids
from sim_fakes import counts, design, machine, sim_process, sim_result

if TYPE_CHECKING:
    from octavo._core import SimProcess


def test_a_design_that_stopped_is_not_chosen() -> None:
    stopped = design("cheap", counts(), stopped="no block is free")
    slow = design("slow", counts(walk_cycles=900, resident=1 << 20))
    choice = choose_design([stopped, slow])
    assert choice is not None
    assert choice.best is slow
    assert choice.other is None
    assert sentence([stopped, slow]).startswith("The only one that ran to its end, slow loses")
    assert choose_design([stopped]) is None


def test_caches_of_a_designs_own_are_named_beside_other_designs() -> None:
    own, other = dataclasses.replace(design("own"), has_own_caches=True), design()
    assert "own has caches of its own, before a memory" in sentence([other, own])
    assert "caches of" not in sentence([own]) + sentence([other])


def test_a_bound_is_shown_and_never_chosen() -> None:
    bound = machine("bound", counts())
    bound["bound"] = True
    slow = machine("base4k", counts(walk_cycles=900))
    result = sim_result([sim_process([slow, bound])])
    grid = next(grids(result))
    assert grid.head == ("", "base4k", "bound\n(bound)")
    assert not grid.best
    choice = choose_design(result.total)
    assert choice is not None
    assert (choice.best.design, choice.other) == ("base4k", None)
    assert sentence(result.total).startswith("Alone, base4k loses")
    assert sentence([design(is_bound=True)]).startswith("Which design? None: bounds only serve")


def test_the_answer_has_the_time_of_system_calls() -> None:
    """2000 and 1600 cycles, and 400 cycles of system calls in both: 2000 / 2400 = 0.833."""
    stack = {("core.stack", part): 0 for part in ("tlb_l2", "walks", "handlers")}
    base = design("small", counts() | stack | {("core.stack", "base"): 2000})
    huge = design("large", counts() | stack | {("core.stack", "base"): 1600})
    expected = (
        "runs for 0.8 of the time of small (0.833 with the time that its system calls took when "
        "traced), "
    )
    assert expected in sentence([base, huge], 400)
    # Two parts in a hundred are not resolved, and latencies that are added up are not a time.
    assert "with the time" not in sentence([base, huge], 40) + sentence([base, huge])
    added_up = [design("small", counts(walk_cycles=400)), design("large")]
    assert "with the time" not in sentence(added_up, 400)


def test_time_of_system_calls_is_that_of_what_counts() -> None:
    """Of 1000 instructions and 1000 of warm-up half of the time counts: 400 cycles of 4.2 GHz."""
    stack = {("core.stack", part): 0 for part in ("tlb_l2", "walks", "handlers")}
    both = [
        machine(name, counts() | stack | {("core.stack", "base"): cycles})
        for name, cycles in (("small", 2000), ("large", 1600))
    ]
    configuration = configure_sim(
        warm_up=1000, settings={"core.pipeline.frequency_ghz": 4.2, "core.base_cpi": 1.0}
    )
    timed: SimProcess = {**sim_process(both), "kernel_seconds": 800 / 4.2e9}
    assert "(0.833 with the time that" in sim_result([timed], configuration).conclusion()
    unknown = sim_result([sim_process(both)], configuration)
    assert "with the time that" not in unknown.conclusion()


def test_the_sentence_by_hand() -> None:
    """1000 cycles of instructions, 600 of caches: 2000 with 400 of walks, 1600 with none."""
    base = design("small", counts(walk_cycles=300, tlb_cycles=100, resident=996 << 10))
    huge = design("large", counts(resident=1196 << 10))
    assert sentence([base, huge]).startswith(
        "Which design? large: it loses 0.0% of its cycles to translation (small: 20.0%), runs for "
        "0.8 of the time of small, and takes 200 KiB (20.0%) more memory. An additive estimate"
    )
    same = design("same", base.counts)
    assert sentence([base, same]).startswith(
        "Which design? It makes no difference: cycles and memory differ by no more than 2%, which "
        "the simulation does not resolve. small loses 20.0% of its cycles to translation and "
    )
    assert sentence([base]).startswith("Alone, small loses 20.0% of its cycles")


def test_the_smaller_of_two_equally_fast_designs_is_chosen() -> None:
    slower = design("slower", counts(walk_cycles=16, resident=1 << 20))
    larger = design("larger", counts(resident=2 << 20))
    choice = choose_design([larger, slower])
    assert choice is not None
    assert (choice.chosen, choice.other) == ((slower,), larger)
    assert "runs as long, within 2%" in sentence([larger, slower])
    assert "less memory" in sentence([larger, slower])


def test_no_design_is_named_for_a_difference_that_is_not_resolved() -> None:
    """1600 cycles and 16, 8 or none of walks; memory of 100 MiB and 0, 0.5 or 1 of them more."""
    designs = [
        design(f"d{walks}", counts(walk_cycles=walks, resident=(100 << 20) + (memory << 19)))
        for walks, memory in ((16, 0), (8, 1), (0, 2))
    ]
    assert sentence(designs).startswith("Which design? It makes no difference")
    slow = design("slow", counts(walk_cycles=400, resident=100 << 20))
    text = sentence([*designs, slow])
    assert text.startswith("Which design? d16, d8 or d0 (cycles and memory differ by no more than")
    assert "(slow: 20.0%)" in text
    assert grids_of(*designs)[1] == []


def grids_of(*designs: Simulated) -> tuple[dict[str, list[str]], list[str]]:
    """The first table of made-up designs: its rows by name, and the rows with a best cell that are
    compared by resolution.
    """
    made = [machine(one.design, one.counts) for one in designs]
    grid = next(grids(sim_result([sim_process(made)])))
    rows = {name: cells for name, *cells in grid.rows}
    names = [grid.rows[row][0] for row, _ in grid.best]
    compared = ("execution time", "memory with page tables")
    return rows, [name for name in names if name.startswith(compared)]


def test_the_memory_of_the_sentence_is_in_the_table() -> None:
    """Page tables have a row, and are part of the total in the sentence."""
    one = design("one", counts(resident=7936 << 10, walk_cycles=400))
    rows, _ = grids_of(one)
    assert rows["memory, resident at most"] == ["7.75 MiB"]
    assert rows["page tables, at most"] == ["4 KiB"]
    assert rows["memory with page tables, at most"] == ["7.75 MiB"]
    assert "takes 7.75 MiB of memory with page tables" in sentence([one])
    tables = {("os", "peak_page_table_bytes"): 72 << 10}
    one = design("one", {**one.counts, **tables})
    rows, _ = grids_of(one)
    (whole,) = rows["memory with page tables, at most"]
    assert whole == "7.82 MiB"
    assert f"takes {whole} of memory with page tables" in sentence([one])


def test_a_difference_that_is_resolved_is_marked() -> None:
    slow = design("slow", counts(walk_cycles=40, resident=103 << 20))
    fast = design("fast", counts(resident=100 << 20))
    _, marked = grids_of(slow, fast)
    assert [name.split(",")[0] for name in marked] == ["execution time", "memory with page tables"]


made = st.builds(
    lambda walks, resident, stops: design(
        of=counts(walk_cycles=walks, resident=resident), stopped=stops
    ),
    st.integers(0, 3000),
    st.integers(0, 1 << 30),
    st.sampled_from([None, None, "no block is free"]),
)


@given(st.lists(made, min_size=1, max_size=6))
def test_no_design_is_better_than_the_chosen_one_in_time_and_memory(
    designs: list[Simulated],
) -> None:
    choice = choose_design(designs)
    ran = [one for one in designs if one.stopped is None]
    assert (choice is None) == (not ran)
    if choice is None:
        return
    for chosen in choice.chosen:
        assert chosen.cycles <= min(one.cycles for one in ran) * (1 + RESOLUTION)
        for one in ran:
            is_faster = one.cycles <= chosen.cycles
            is_smaller = one.memory_bytes * (1 + RESOLUTION) < chosen.memory_bytes
            assert not (is_faster and is_smaller)
    if choice.other is not None:
        other, best = choice.other, choice.best
        slower = other.cycles > best.cycles * (1 + RESOLUTION)
        larger = other.memory_bytes > best.memory_bytes * (1 + RESOLUTION)
        fewest = min(one.cycles for one in ran)
        assert slower or larger or other.cycles > fewest * (1 + RESOLUTION)
    assert sentence(designs).endswith("simulated either.")
