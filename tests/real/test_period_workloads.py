"""Workloads like programs of 1992 and 1997: their results and their working sets."""

from __future__ import annotations

import pytest

from octavo.studies.programs import load_period
from octavo.studies.two_page_sizes import PAPER, STUDY

from .conftest import Octavo, natively, workload

OWN = [one for one in load_period(STUDY) if "/period/" in one.command[0]]
NAMES = [one.name for one in OWN]


def said(name: str, *arguments: int) -> str:
    done = natively(workload(f"period/{name}", *arguments))
    assert done.status == 0, done.stderr
    return done.stdout.decode()


@pytest.mark.parametrize(("queens", "solutions"), [(4, 2), (5, 10), (6, 4), (7, 40), (8, 92)])
def test_the_interpreter_counts_queens(queens: int, solutions: int) -> None:
    assert f"{solutions} solutions" in said("lisp", queens)


def test_the_simulated_processor_sorts_and_adds() -> None:
    state, total, loads = 17, 0, 0
    for _ in range(3):
        values = []
        for _ in range(200):
            state = (state * 1103 + 1231) % 2**32
            values.append(state >> 9)
        # An insertion loads the value, and neighbours up to a smaller one or to the front.
        for place in range(1, 200):
            at, value = place, values[place]
            loads += 1
            while at:
                loads += 1
                if values[at - 1] < value:
                    break
                values[at] = values[at - 1]
                at -= 1
            values[at] = value
        for place, value in enumerate(values):
            loads += 1
            total = (total ^ value * place) % 2**32
    assert said("cpusim", 3) == (f"cpusim: sum {total}, {said('cpusim', 3).split(', ', 1)[1]}")
    assert f" {loads} loads" in said("cpusim", 3)


@pytest.mark.parametrize("name", [*NAMES, "cpusim", "go"])
def test_a_run_repeats(name: str) -> None:
    arguments = {"kernels7": [], "saxpy300": [2], "mesh": [2], "integrals": [20, 1]}
    some = arguments.get(name, [6])
    assert said(name, *some) == said(name, *some)


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_the_working_set_is_near_that_of_the_program_like_it(name: str, octavo: Octavo) -> None:
    """Within a factor of 1.5 of Table 3.1, over the first references; for programs with several
    phases, over a whole shorter run.
    """
    (program,) = (one for one in OWN if one.name == name)
    command = {"kernels7": [program.command[0], "1"], "saxpy300": [program.command[0], "20"]}
    parts = ["--without", "full,sets,two-sizes", "--page-sizes", "4KiB", "--windows", "10M"]
    extent = ["--streams", "all", "--max-instructions", "400M"]
    done = octavo(command.get(name, program.command), *parts, *extent, verb="curves")
    row = done.row(component="working_set")
    paper_bytes = PAPER["table_3_1"][program.like][1] * 1024
    assert paper_bytes / 1.5 <= row["average_bytes"] <= paper_bytes * 1.5
