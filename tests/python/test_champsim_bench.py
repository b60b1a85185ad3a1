"""The comparison with ChampSim: the parsing of its output and of Octavo's rows."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

BENCHES = Path(__file__).resolve().parents[2] / "benches"

# Output of ChampSim, shortened.
TEXT = """\
[VMEM] WARNING: physical memory size is smaller than virtual memory size.

*** ChampSim Multicore Out-of-Order Simulator ***
Warmup Instructions: 4000
Simulation Instructions: 20000
Number of CPUs: 1

Warmup complete CPU 0 instructions: 4001 cycles: 1100 cumulative IPC: 3.637
Simulation complete CPU 0 instructions: 20000 cycles: 16000 cumulative IPC: 1.25

=== Simulation ===
CPU 0 runs a.champsim

Region of Interest Statistics

CPU 0 cumulative IPC: 1.25 instructions: 20000 cycles: 16000
CPU 0 Branch Prediction Accuracy: 97.5% MPKI: 1.5 Average ROB Occupancy at Mispredict: 77.16
Branch type MPKI
BRANCH_CONDITIONAL: 1.5

cpu0->cpu0_STLB TOTAL        ACCESS:        240 HIT:        140 MISS:        100 MSHR_MERGE: 0
cpu0->cpu0_STLB WRITE        ACCESS:          0 HIT:          0 MISS:          0 MSHR_MERGE: 0
cpu0->cpu0_STLB AVERAGE MISS LATENCY: - cycles
cpu0->cpu0_L2C TOTAL        ACCESS:       9000 HIT:       7000 MISS:       2000 MSHR_MERGE: 30
cpu0->cpu0_L2C WRITE        ACCESS:       1000 HIT:        600 MISS:        400 MSHR_MERGE: 10
cpu0->cpu0_L1D TOTAL        ACCESS:      90000 HIT:      81000 MISS:       9000 MSHR_MERGE: 2000
cpu0->cpu0_L1D WRITE        ACCESS:      30000 HIT:      28000 MISS:       2000 MSHR_MERGE: 500
cpu0->cpu0_DTLB TOTAL        ACCESS:      80000 HIT:      79600 MISS:        400 MSHR_MERGE: 160
cpu0->LLC TOTAL        ACCESS:       1600 HIT:        700 MISS:        900 MSHR_MERGE: 0
cpu0->LLC WRITE        ACCESS:        300 HIT:        100 MISS:        200 MSHR_MERGE: 0
Seconds of processor time: 80.00
"""


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHES))
    return importlib.import_module("champsim")


def test_output_of_champsim_is_parsed(bench: ModuleType) -> None:
    outcome = bench.of_champsim(TEXT)
    assert (outcome.instructions, outcome.cycles, outcome.ipc) == (20000, 16000, 1.25)
    assert outcome.misses == {"L1D": 7000, "L2": 1580, "LLC": 700, "DTLB": 240, "STLB": 100}
    assert outcome.mispredicted == pytest.approx(30)
    assert outcome.per_thousand(outcome.misses["L1D"]) == 350
    assert outcome.instructions_per_second == 24000 / 80
    assert bench.of_champsim(TEXT.replace("Seconds", "Hours")).instructions_per_second is None
    assert bench.lengths_of(TEXT) == (4000, 20000)


@pytest.mark.parametrize(
    ("output", "sentence"),
    [
        ("", "has no statistics; its last line is: nothing"),
        ("Warmup\nBus error\n", "has no statistics; its last line is: Bus error"),
        (TEXT[: TEXT.index("cpu0->LLC")], "have no TOTAL of LLC"),
        (TEXT.replace("MSHR_MERGE", "MERGED"), "have no merges of L1D"),
        (TEXT.replace("Warmup Instructions", "W"), "does not begin with the numbers"),
        (TEXT + "CPU 1 cumulative IPC: 1\n", "is of several cores"),
    ],
)
def test_incomplete_output_is_refused(bench: ModuleType, output: str, sentence: str) -> None:
    with pytest.raises(bench.Failure, match=sentence):
        bench.of_champsim(output)


def test_rows_of_octavo_are_read(bench: ModuleType) -> None:
    def row(
        component: str, counter: str, value: int, design: str = bench.DESIGN
    ) -> dict[str, object]:
        return {"design": design, "component": component, "counter": counter, "value": value}

    misses = [
        row(ours, "misses", number) for number, (ours, _) in enumerate(bench.MISSES.values(), 1)
    ]
    core = [row("core", "instructions", 900), row("core", "branches_mispredicted", 9)]
    rows = [*misses, *core, row("core", "cycles", 5, "thp")]
    with pytest.raises(bench.Failure, match="no cycles of a core"):
        bench.of_octavo({"rows": rows}, 100, 2.0)
    outcome = bench.of_octavo({"rows": [*rows, row("core", "cycles", 450)]}, 100, 2.0)
    assert (outcome.ipc, outcome.mispredicted, outcome.instructions_per_second) == (2, 9, 500)
    assert outcome.misses == {"L1D": 1, "L2": 2, "LLC": 3, "DTLB": 4, "STLB": 5}


def test_traces_that_cannot_be_compared_are_refused(bench: ModuleType, tmp_path: Path) -> None:
    short, packed = tmp_path / "short.champsim", tmp_path / "packed.champsim.gz"
    short.write_bytes(bytes(64) * 20_100)
    packed.write_bytes(b"\x1f\x8b" + bytes(64))
    assert bench.length(short, 100, 10**9) == 10_000
    assert bench.length(short, 100, 500) == 500
    with pytest.raises(bench.Failure, match="ends within the warm-up"):
        bench.length(short, 10_100, 500)
    with pytest.raises(bench.Failure, match="is compressed"):
        bench.length(packed, 100, 500)


def test_a_program_is_run_and_its_failure_is_reported(
    bench: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    spent = iter(SimpleNamespace(ru_utime=at, ru_stime=at / 4) for at in (2.0, 6.0))
    with monkeypatch.context() as patched:
        patched.setattr(bench.resource, "getrusage", lambda children: next(spent))
        output, took = bench.run(["sh", "-c", "echo well"], "ChampSim")
    assert (output, took) == ("well\n", 4.0 + 1.0)
    with pytest.raises(bench.Failure, match=r"ChampSim failed with status 3; .*: no such trace"):
        bench.run(["sh", "-c", "echo no such trace >&2; exit 3"], "ChampSim")
    with pytest.raises(bench.Failure, match=r"ChampSim does not run: .*No such file"):
        bench.run(["/nowhere/champsim"], "ChampSim")


def test_the_summary(bench: ModuleType) -> None:
    def outcome(cycles: int, speed: float | None) -> object:
        return bench.Outcome(1000, cycles, dict.fromkeys(bench.MISSES, 10), 5.0, speed)

    pairs = [(outcome(1000, 1.0), outcome(cycles, 100.0)) for cycles in (900, 1000, 1200, 2000)]
    assert bench.summary(pairs) == (
        "Of 4 traces 2 agree within 15% and 3 within 25%; Octavo is 100 times as fast "
        "(geometric mean of 4)."
    )
    untimed = (outcome(1000, None), pairs[1][1])
    assert bench.summary([untimed]) == "Of 1 traces 1 agree within 15% and 1 within 25%."
    assert bench.lines_of({"c": untimed})[0][1][4:] == ["n/a", "0.0", "n/a"]
    times, counts = bench.lines_of({"a": pairs[1], "b": pairs[3]})
    assert times[1] == ["`a`", "1.000", "1.000", "1.00", "0.000", "0.0", "100"]
    assert times[2][:4] == ["`b`", "1.000", "0.500", "0.50"]
    assert counts[1] == ["`a`", *["10.00 : 10.00"] * 5, "5.00 : 5.00"]
