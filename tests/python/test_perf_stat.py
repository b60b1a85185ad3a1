"""Page walks from the counters of `perf stat`, in both output formats."""

from __future__ import annotations

from pathlib import Path

import pytest

from called import invoke
from octavo.base.errors import UsageError
from octavo.calibration.perf_stat import WalkCounts, read_counts, read_walk_counts

INTEL = """\
# started on Tue Nov 24 09:00:00 2026

4000000,,cycles:u,1000123,100.00,,
2000000,,instructions:u,1000123,100.00,0.50,insn per cycle
3000,,dtlb_load_misses.walk_completed:u,500,62.50,,
1000,,cpu/itlb_misses.walk_completed/u,500,62.50,,
90000,,dtlb_load_misses.walk_active:u,500,62.50,,
10000,,itlb_misses.walk_active:u,500,62.50,,
<not supported>,,dtlb_store_misses.walk_completed,0,100.00,,
"""
PENDING = "150000,,dtlb_load_misses.walk_pending:u,1,1,,\n10000,,itlb_misses.walk_pending,1,1,,\n"
AMD = """\
# started on Tue Nov 24 09:00:00 2026


 Performance counter stats for 'sort Cargo.lock' (5 runs):

            12.345 msec task-clock:u                     #    0.950 CPUs utilized    ( +-  0.52% )
         4,000,000      cycles:u                         #    3.123 GHz              (83.33%)
         2,000,000      instructions:u                   #    0.50  insn per cycle
                                                  #    0.10  stalled cycles per insn
             3,000      ls_l1_d_tlb_miss.all_l2_miss:u   ( +-  1.20% )
               600      bp_l1_tlb_miss_l2_tlb_miss.all:u
   <not counted>        ls_tlb_flush.all:u                                           (0.00%)

       0.012345678 seconds time elapsed

       0.010 seconds user
       0.002 seconds sys
"""


def written(tmp_path: Path, text: str) -> str:
    path = tmp_path / "perf.txt"
    path.write_text(text)
    return str(path)


def test_intel_walks_and_their_cycles(tmp_path: Path) -> None:
    name = written(tmp_path, INTEL)
    read = read_walk_counts("--perf", name, "GenuineIntel")
    assert read == WalkCounts(name, 2.0, 0.5, 25.0, is_least=True)
    assert (
        "at least 25.0 cycles a walk, 2.000 walks per 1000 instructions, 0.500" in read.sentence()
    )


def test_the_cycles_of_all_walks_are_preferred(tmp_path: Path) -> None:
    read = read_walk_counts("--perf", written(tmp_path, INTEL + PENDING), "GenuineIntel")
    assert (read.cycles_per_walk, read.is_least) == (40.0, False)


def test_cycles_of_only_some_of_the_walks_give_no_mean(tmp_path: Path) -> None:
    text = "".join(line for line in INTEL.splitlines(True) if "itlb_misses.walk_active" not in line)
    read = read_walk_counts("--perf", written(tmp_path, text), "GenuineIntel")
    assert (read.cycles_per_walk, read.walks_per_1000_instructions) == (None, 2.0)
    assert "cycles of walks were not counted" in read.sentence()


@pytest.mark.parametrize("separator", [",", ".", "'", "\u202f", ""])
def test_the_human_readable_format_is_read(tmp_path: Path, separator: str) -> None:
    text = AMD.replace("4,000,000", separator.join(("4", "000", "000")))
    name = written(tmp_path, text)
    read = read_walk_counts("--perf", name, "AuthenticAMD")
    assert read == WalkCounts(name, 1.8, 0.5, None, is_least=False)
    assert set(read_counts("--perf", name)) == {
        "cycles",
        "instructions",
        "ls_l1_d_tlb_miss.all_l2_miss",
        "bp_l1_tlb_miss_l2_tlb_miss.all",
    }


@pytest.mark.parametrize(
    ("text", "vendor", "message"),
    [
        (INTEL, "AuthenticAMD", "events of Intel, but this processor is AuthenticAMD"),
        (AMD, "GenuineIntel", "events of AMD, but this processor is GenuineIntel"),
        ("5,,cycles,1,100,,\n", "AuthenticAMD", "measure ls_l1_d_tlb_miss.all_l2_miss too"),
        ("5,,cycles,1,100,,\n", "GenuineIntel", "dtlb_load_misses.walk_completed"),
        ("5,,cycles,1,100,,\n", "?", "no events of page walks are known for"),
        ("", "AuthenticAMD", "has no event that was counted"),
        ("<not supported>,,cycles:u,0,100.00,,\n", "AuthenticAMD", "no event that was counted"),
        (AMD.replace(" cycles:u", " other:u"), "AuthenticAMD", "has no cycles"),
        (AMD.replace("2,000,000", "0"), "AuthenticAMD", "has no instructions"),
        ("root:x:0:0:root\n", "AuthenticAMD", "line 1, is none of `perf stat"),
    ],
)
def test_wrong_files_are_refused(tmp_path: Path, text: str, vendor: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        read_walk_counts("--perf", written(tmp_path, text), vendor)


def test_a_wrong_file_is_refused_before_the_measurement(tmp_path: Path) -> None:
    out = tmp_path / "new.toml"
    refused = invoke("calibrate", "-o", str(out), "--perf", written(tmp_path, "none of it\n"))
    assert refused.exit_code == 2
    assert "is none of `perf stat -x,`" in refused.stderr
    assert not out.exists()
