"""T = T_IDEAL + T_L1DTLBM + T_PW, compared with results by hand, and files of `perf stat`."""

from __future__ import annotations

from pathlib import Path

import pytest

from octavo.base.errors import UsageError
from octavo.simulation.execution_time import Measured, read_measured, simulated_time
from octavo.simulation.model import Simulated
from octavo.simulation.perf_stat import PerfStat, read_perf_stat
from sim_fakes import counts, design

REAL = """\
# started on Sun Nov 22 09:00:00 2026

 4000000,,cycles:u,1000123,100.00,,
2000000,,instructions:u,1000123,100.00,0.50,insn per cycle
900000,,dtlb_load_misses.walk_active:u,500,62.50,,
100000,,cpu/dtlb_store_misses.walk_active/u,500,62.50,,
<not supported>,,itlb_misses.walk_active,0,100.00,,
1.25,msec,task-clock,1250000,100.00,1.000,CPUs utilized
"""


def written(tmp_path: Path, text: str) -> str:
    path = tmp_path / "perf.csv"
    path.write_text(text)
    return str(path)


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_a_file_of_perf_stat(tmp_path: Path, separator: str) -> None:
    read = read_perf_stat("--perf-4k", written(tmp_path, REAL.replace(",", separator)))
    assert (read.cycles, read.walk_cycles, read.instructions) == (4e6, 1e6, 2e6)


def test_processors_of_two_kinds_are_added_up(tmp_path: Path) -> None:
    text = (
        "30,,cpu_core/cycles/u,1,100,,\n12,,cpu_atom/cycles/u,1,100,,\n"
        "5,,cpu_core/dtlb_load_misses.walk_pending/,1,100,,\n"
        "9,,cpu/event=0x12,umask=0x1,name=other/u,1,100,,\n"
    )
    read = read_perf_stat("--perf-4k", written(tmp_path, text))
    assert (read.cycles, read.walk_cycles, read.instructions) == (42, 5, None)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has no cycles: measure `cycles` too"),
        ("5,,cycles,1,100,,\n", "has no cycles of page walks: measure dtlb_load_misses.walk_act"),
        ("root:x:0:0:root\n", "line 1, is none of `perf stat -x,`"),
        ("5,,cycles,1\n\nelsewhere\n", "line 3, is none of"),
        ("5,,cycles,1\nmany,,instructions,1\n", "line 2: `many` is not a count"),
        ("-5,,cycles,1\n", "`-5` is not a count"),
        ("inf,,cycles,1\n", "`inf` is not a count"),
        ("nan,,cycles,1\n", "`nan` is not a count"),
        ("x" * ((1 << 20) + 2), "too long for a file"),
    ],
)
def test_files_not_of_perf_stat_are_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        read_perf_stat("--perf-thp", written(tmp_path, text))


def test_binary_files_are_refused(tmp_path: Path) -> None:
    place = tmp_path / "perf.csv"
    place.write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match="is not UTF-8 text"):
        read_perf_stat("--perf-thp", str(place))
    with pytest.raises(UsageError, match="cannot read"):
        read_perf_stat("--perf-thp", str(tmp_path))


def simulated_with(name: str, *, tlb_cycles: int, misses: int, references: int) -> Simulated:
    of = {
        **counts(tlb_cycles=tlb_cycles),
        ("tlb.l1d", "misses"): misses,
        ("walker", "references"): references,
    }
    return design(name, of)


HUGE = simulated_with("thp", tlb_cycles=50, misses=200, references=100)
MEASURED = Measured(
    base=PerfStat("4k", cycles=9000, walk_cycles=4000, instructions=None),
    huge=PerfStat("thp", cycles=8000, walk_cycles=2000, instructions=2000),
)


def test_measured_terms_by_hand() -> None:
    """Huge pages save 1000 cycles and 2000 walk cycles, so half of the walk cycles are lost time.
    Twice as many instructions were measured as simulated.
    """
    assert MEASURED.lost_share == 0.5
    time = MEASURED.time(HUGE, HUGE)
    assert time is not None
    assert time.terms() == {"T_IDEAL": 6900, "T_L1DTLBM": 100, "T_PW": 1000, "T": 8000}
    better = simulated_with("x", tlb_cycles=1, misses=20, references=25)
    time = MEASURED.time(better, HUGE)
    assert time is not None
    assert time.terms() == {"T_IDEAL": 6900, "T_L1DTLBM": 10, "T_PW": 250, "T": 7160}
    assert "50.0% of its walk cycles" in MEASURED.note()


def test_perfect_translation_leaves_the_ideal_time() -> None:
    time = MEASURED.time(simulated_with("x", tlb_cycles=0, misses=0, references=0), HUGE)
    assert time is not None
    assert time.cycles == time.ideal_cycles == 6900


def test_incomparable_measurements_give_no_time() -> None:
    none = simulated_with("thp", tlb_cycles=0, misses=0, references=0)
    assert MEASURED.time(HUGE, none) is None
    assert MEASURED.time(design(instructions=0), design(instructions=0)) is None
    assert MEASURED.time(design(stopped="no block is free"), HUGE) is None
    # More would be lost than was measured.
    assert (
        MEASURED.time(HUGE, simulated_with("thp", tlb_cycles=9000, misses=1, references=1)) is None
    )
    assert simulated_time(design(instructions=0)) is None
    assert simulated_time(design(stopped="no block is free")) is None


def test_simulated_terms_by_hand() -> None:
    time = simulated_time(design(of=counts(walk_cycles=30, tlb_cycles=9)))
    assert time is not None
    assert time.terms() == {"T_IDEAL": 1600, "T_L1DTLBM": 9, "T_PW": 30, "T": 1639}


@pytest.mark.parametrize(
    ("base", "huge", "message"),
    [
        ((9000, 4000), (8000, 4000), "has no fewer cycles of page walks"),
        ((9000, 4000), (9000, 2000), "took no fewer cycles"),
    ],
)
def test_runs_without_usable_differences_are_refused(
    tmp_path: Path, base: tuple[int, int], huge: tuple[int, int], message: str
) -> None:
    files = []
    for name, (cycles, walks) in {"4k": base, "thp": huge}.items():
        file = tmp_path / name
        file.write_text(f"{cycles},,cycles\n{walks},,dtlb_load_misses.walk_duration\n")
        files.append(str(file))
    with pytest.raises(UsageError, match=message):
        read_measured(*files, ["thp"])
