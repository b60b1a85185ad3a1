"""The study of Tailored Page Sizes with real programs: a small study and the whole study."""

import subprocess
from pathlib import Path

import pytest

from octavo.studies.programs import Program, Subject
from octavo.studies.reproduction import Request
from octavo.studies.tailored_page_sizes import run_study
from octavo.studies.tailored_page_sizes.measurement import BASE, BASELINE, TPS

from .conftest import OCTAVO, WORKLOADS


def test_a_workload_is_counted_from_its_region_on():
    """GUPS over 128 MiB: more than the 64 MiB that 32 entries of 2 MiB reach."""
    arguments = ("--table", "128MiB", "--updates", "100k", "--check", "no")
    gups = Program("gups", (str(WORKLOADS / "gups"), *arguments))
    missing = Program("missing", ("no-such-program",))
    started: list[str] = []
    study = run_study(
        Request(started.append),
        chosen=[Subject(gups, "workload", {}), Subject(missing, "program", {})],
    )
    assert started == ["gups"]
    assert study.skipped == {"missing": "not installed: no-such-program"}
    (m,) = study.measurements
    # An update is some ten instructions; filling the table was tens of millions.
    assert 1_000_000 < m.instructions < 2_000_000
    assert m.designs[BASE].resident_bytes == m.designs[TPS].resident_bytes > 128 << 20
    baseline = m.designs[BASELINE]
    assert baseline.misses > 30_000
    metrics = m.metrics()
    gone, fragmented = metrics["misses_gone"][TPS], metrics["misses_gone_fragmented"][TPS]
    assert gone is not None
    assert fragmented is not None
    assert gone > 0.9
    assert fragmented < 0.3
    assert max(m.fragmented[TPS].pages) <= 4 << 20 < max(m.designs[TPS].pages)


def test_a_program_that_ends_before_its_region_is_left_out():
    gups = Program("gups", (str(WORKLOADS / "gups"), "--table", "16MiB", "--check", "no"))
    study = run_study(
        Request(lambda name: None, max_instructions=100_000), chosen=[Subject(gups, "workload", {})]
    )
    assert not study.measurements
    assert study.skipped["gups"] == "it was ended before its region of interest"


@pytest.mark.long
def test_the_whole_study(tmp_path: Path):
    out = tmp_path / "out"
    done = subprocess.run(
        [OCTAVO, "reproduce", "tailored-page-sizes", "--out", out],
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    page = (out / "tailored-page-sizes.md").read_text()
    assert "the same to the byte for" in page
    assert "| gups *" in page
    assert (out / "figure-10.svg").exists()
