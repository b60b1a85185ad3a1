"""The study of Tailored Page Sizes: numbers come from the right rows, and claims can fail."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from called import invoke
from octavo import machine, sim
from octavo.base.units import KIB, MIB, byte_size
from octavo.report.figures import figure_files
from octavo.simulation.execution_time import ExecutionTime
from octavo.studies.claims import answers
from octavo.studies.programs import (
    NotMeasured,
    Program,
    Subject,
    document,
    extent,
    stream_program,
    subjects,
    to_settings,
    usual_scale,
)
from octavo.studies.reproduction import Request
from octavo.studies.tailored_page_sizes import (
    Study,
    all_counted,
    instructions_of,
    measure,
)
from octavo.studies.tailored_page_sizes.figures import figures_of
from octavo.studies.tailored_page_sizes.measurement import (
    BASE,
    BASELINE,
    COLT,
    DESIGNS,
    OVER_BASELINE,
    PERFECT_L1,
    PERFECT_L2,
    TPS,
    Counted,
    Measurement,
    core_time,
)
from octavo.studies.tailored_page_sizes.memory import SHARES, SIZES, Coverage, coverages, fragmented
from pages import panels_of
from traces_made import write_csv

TRACE = "synth:gups?table=8MiB&updates=20k"
FIGURES = [f"figure-{number}" for number in (8, 9, 10, 11, 13, 14, 15, 16, 18)]


def counted(misses: int, references: int, pages: dict[int, int] | None = None) -> Counted:
    time = ExecutionTime(1000.0, misses * 0.1, references * 0.2)
    return Counted(100_000, misses, references, 1 << 20, time, pages or {4 * KIB: 256})


def like_the_paper(name: str, kind: Any = "workload") -> Measurement:
    """A program with the averages of the paper."""
    tailored = {4 * KIB << step: 1 for step in range(8)}
    return Measurement(
        program=name,
        kind=kind,
        instructions=100_000,
        touched_bytes=1 << 20,
        growth_2m=0.1,
        designs={
            BASELINE: counted(1000, 1000),
            BASE: counted(5000, 9000),
            TPS: counted(20, 20, tailored),
            COLT: counted(950 if name == "gups" else 400, 880),
            "rmm": counted(1000, 15),
            OVER_BASELINE: counted(1000, 1000),
        },
        fragmented={BASELINE: counted(1000, 1000), TPS: counted(990 if name == "gups" else 500, 9)},
        smt={
            BASELINE: counted(1000, 1000),
            TPS: counted(20, 20),
            COLT: counted(700, 900),
            "rmm": counted(1000, 100),
        },
    )


def unlike_the_paper(name: str) -> Measurement:
    """A program with the opposite results."""
    large = {4 * KIB: 1, 64 * MIB: 200}
    grown = replace(counted(1500, 700, large), resident_bytes=2 << 20)
    designs = {
        BASELINE: counted(1000, 1000),
        BASE: counted(1000, 1000),
        TPS: grown,
        COLT: counted(10, 10),
        "rmm": counted(700, 990),
        OVER_BASELINE: counted(900, 990),
    }
    gains = {BASELINE: counted(1000, 1000), TPS: counted(100 if name == "gups" else 999, 900)}
    return replace(
        like_the_paper(name), growth_2m=2.0, designs=designs, fragmented=gains, smt=designs
    )


def memory(middle: float) -> tuple[Coverage, ...]:
    (made,) = (coverage for coverage in coverages() if coverage.memory == "as simulated")
    here = {size: 1.0 if size == 4 * KIB else middle if size < MIB else 0.3 for size in SIZES}
    return (made, Coverage("this machine", dict(here)))


@pytest.fixture
def study() -> Study:
    names = ("gups", "graph500", "xsbench")
    return Study(tuple(map(like_the_paper, names)), {"xz": "not installed"}, memory=memory(0.8))


def test_every_claim_can_agree_and_differ(study: Study) -> None:
    unlike = Study(
        tuple(unlike_the_paper(m.program) for m in study.measurements), memory=memory(0.3)
    )
    nothing = Study()
    answered = (
        answers("tailored_page_sizes", tried.values()) for tried in (study, unlike, nothing)
    )
    for (claim, agreed), (_, differed), (_, undecided) in zip(*answered, strict=True):
        assert agreed is not None, claim.key
        assert agreed.agrees, (claim.key, agreed)
        assert differed is not None, claim.key
        assert not differed.agrees, (claim.key, differed)
        assert undecided is None, claim.key


def test_figures_are_the_papers_formulas() -> None:
    m = like_the_paper("prog")
    assert m.mpki(BASELINE) == 10.0
    metrics = m.metrics()
    assert metrics["misses_gone"][TPS] == pytest.approx(0.98)
    assert metrics["misses_gone"][COLT] == pytest.approx(0.6)
    assert metrics["references_gone"]["rmm"] == pytest.approx(0.985)
    assert metrics["misses_gone_fragmented"][TPS] == pytest.approx(0.5)
    assert "rmm" not in metrics["misses_gone_fragmented"]
    # T_IDEAL 1000, T_L1DTLBM 100, T_PW 200, of which TPS has a fiftieth each.
    time = m.time(m.designs, TPS)
    assert time is not None
    assert (time.ideal_cycles, time.tlb_cycles, time.walk_cycles) == pytest.approx((1000, 2, 4))
    assert metrics["speedup"][TPS] == pytest.approx(1300 / 1006 - 1)
    assert metrics["of_ideal"][TPS] == pytest.approx(0.98)
    few = replace(m, instructions=10**8).metrics()
    assert few["misses_gone"][TPS] is None, "the baseline has a hundredth in 1000 instructions"


def test_workloads_count_and_real_programs_that_miss_much_stand_apart() -> None:
    m = like_the_paper("prog", "program")
    assert (m.counts, m.is_intense) == (False, True)
    few = replace(m, designs={**m.designs, BASE: counted(500, 500)})
    assert not few.is_intense, "exactly five in a thousand instructions"
    few = replace(few, kind="workload")
    assert (few.counts, few.is_intense) == (True, False)


def test_the_terms_of_a_time_are_what_perfect_levels_save() -> None:
    time = core_time({BASELINE: 130.0, PERFECT_L1: 100.0, PERFECT_L2: 110.0})
    assert time == ExecutionTime(100.0, 10.0, 20.0)
    hidden = core_time({BASELINE: 99.0, PERFECT_L1: 100.0, PERFECT_L2: 101.0})
    assert hidden == ExecutionTime(100.0, 0.0, 0.0)
    assert core_time({BASELINE: 130.0, PERFECT_L1: 100.0}) is None
    m = replace(like_the_paper("prog"), core_time=time)
    # The misses of TPS are a fiftieth of the baseline's, its walks too.
    assert m.metrics()["speedup"][TPS] == pytest.approx(130.0 / 100.6 - 1)
    assert m.metrics()["speedup_added"][TPS] == pytest.approx(1300 / 1006 - 1)


def test_rmm_has_the_first_level_misses_of_the_baselines_pages() -> None:
    m = like_the_paper("prog")
    m = replace(m, designs={**m.designs, "rmm": counted(1500, 0), OVER_BASELINE: counted(900, 70)})
    metrics = m.metrics()
    assert metrics["misses_gone"]["rmm"] == pytest.approx(-0.5)
    assert metrics["misses_gone"][OVER_BASELINE] == pytest.approx(0.1)
    time = m.time(m.designs, "rmm")
    assert time is not None
    assert (time.tlb_cycles, time.walk_cycles) == pytest.approx((90.0, 0.0))


def test_the_page_and_the_document(study: Study) -> None:
    text = study.markdown()
    for wanted in (
        "Figures 8 and 9", "Figures 10, 11 and 16", "Figure 13", "Figure 15", "Figure 18",
        "Left out: xz (not installed).", "Only 3 programs ran",
        "gups with colt, rmm: memory ran out when it is fragmented",
        "Figure 14: the same with a second", "the same to the byte for 3 of 3 programs",
    ):  # fmt: skip
        assert wanted in text
    assert "gups with base4k" not in text, "it is not simulated there"
    averages = [line for line in text.splitlines() if line.startswith("| average of *")]
    assert "98.0%" in averages[0]
    made = json.loads(json.dumps(study.document()))
    assert len(made["claims"]) == 25
    assert made["programs"][0]["misses_gone"]["tps"] == pytest.approx(0.98)
    assert made["free_memory"][0]["shares"]["4096"] == pytest.approx(1.0)
    flat = study.measurements[0].flat()
    assert flat["misses_gone.tps"] == pytest.approx(0.98)
    assert not any(isinstance(value, dict) for value in flat.values())
    assert "Left out: xz" in Study(skipped=study.skipped).markdown()


def test_the_figures_are_the_papers(study: Study, tmp_path: Path) -> None:
    figures = figures_of(study)
    assert list(figures) == FIGURES
    for name, write in figure_files(figures, ["svg"]).items():
        write(tmp_path / name)
        words = set(re.findall(r"<text[^>]*>([^<]+)</text>", (tmp_path / name).read_text()))
        assert {"as simulated"} <= words if "15" in name else {"gups", "xsbench"} <= words, name

    def values(name: str) -> list[dict[str, Any]]:
        (only,) = panels_of(figures[name])
        return only

    tps = [point["value"] for point in values("figure-10") if point["design"] == TPS]
    assert tps == [pytest.approx(0.98)] * 3
    assert len(values("figure-16")) == 3, "what ran out of memory has no bar"
    assert {point["size"] for point in values("figure-18")} == {
        4 * KIB << step for step in range(8)
    }
    assert list(figures_of(Study(memory=memory(0.5)))) == ["figure-15"]


def test_fragmented_memory_is_just_enough_and_has_its_shares() -> None:
    assert sum(SHARES.values()) == pytest.approx(1.0)
    settings = fragmented(100 * MIB)
    made = machine("skylake", settings)["memory"]
    blocks = made["fragmentation"]["free_blocks"]
    free = {int(size): number for size, number in _bytes_of(blocks)}
    total = sum(size * number for size, number in free.items())
    assert 125 * MIB < total < 132 * MIB
    assert free[64 * KIB] * 64 * KIB / total == pytest.approx(SHARES[64 * KIB], abs=0.002)
    result = sim(TRACE, designs=[BASELINE, TPS], settings=fragmented(8 * MIB))
    for one in result.total:
        assert one.stopped is None
        assert one.count("os", "resident_bytes") >= 8 * MIB
        assert one.count("os.pages.2MiB", "mapped") <= 1, "2 MiB are 3% of what is free"


def _bytes_of(blocks: dict[str, int]) -> list[tuple[int, int]]:
    units = {"KiB": KIB, "MiB": MIB}
    return [(int(size[:-3]) * units[size[-3:]], number) for size, number in blocks.items()]


def test_the_study_measures_the_simulated_design(tmp_path: Path) -> None:
    """Runs the study's commands on a trace of random updates and compares their documents."""
    touched = document(["run", "--page-sizes", "4KiB,2MiB", TRACE], tmp_path)
    empty = document(["sim", "--design", ",".join(DESIGNS), TRACE], tmp_path)
    short = document(
        ["sim", *to_settings(fragmented(9 * MIB)), "--design", f"{BASELINE},{TPS}", TRACE], tmp_path
    )
    shared_options = ["--processes", "asid", "--quantum", "100"]
    shared = document(
        ["sim", *shared_options, "--design", f"{BASELINE},{TPS}", TRACE, TRACE], tmp_path
    )
    subject = Subject(Program("updates", (TRACE,)), "workload", {})
    m = measure(subject, touched, instructions_of(empty), all_counted(empty), short, shared)
    direct = sim(TRACE, designs=DESIGNS)
    for one in direct.total:
        mine = m.designs[one.design]
        assert mine.misses == one.misses("l1d")
        assert mine.time.cycles == pytest.approx(one.cycles)
        assert sum(size * n for size, n in mine.pages.items()) == one.count("os", "resident_bytes")
    assert set(m.fragmented) == set(m.smt) == {BASELINE, TPS}
    both = sim([TRACE, TRACE], designs=[TPS], processes="asid", quantum=100).design(TPS)
    assert m.smt[TPS].misses == both.misses("l1d")
    assert m.smt[TPS].time.cycles == pytest.approx(both.cycles)
    assert m.smt[BASELINE].misses > 2 * m.designs[BASELINE].misses, "they share its entries"
    assert m.designs[TPS].resident_bytes == m.designs[BASE].resident_bytes
    assert max(m.designs[TPS].pages) > 2 * MIB >= max(m.fragmented[TPS].pages)
    assert m.touched_bytes >= 8 * MIB
    assert m.instructions > 20_000


def test_a_design_that_runs_out_of_memory_is_left_out(tmp_path: Path) -> None:
    result = document(["sim", "--set", "memory.bytes=1MiB", "--design", "base4k", TRACE], tmp_path)
    assert all_counted(result) == {}


def test_the_region_of_a_workload_is_counted(tmp_path: Path) -> None:
    trace = Path(write_csv(tmp_path / "no-marks.csv", [("load", 4096, 8)]))
    program = Program("made", ("made",))
    assert extent(Subject(program, "program", {}), trace) == (0, None)
    with pytest.raises(NotMeasured, match="it was ended before its region of interest"):
        extent(Subject(program, "workload", {}), trace)


def test_sizes_of_workloads() -> None:
    usual, large = (subjects(large=is_large, machine="skylake") for is_large in (False, True))
    assert [subject.program.name for subject in usual] == [
        subject.program.name for subject in large
    ]
    workloads = [subject for subject in usual if subject.kind == "workload"]
    assert [subject.program.name for subject in workloads] == [
        "gups", "graph500", "xsbench", "ycsb", "hashjoin", "random_reads", "btree",
    ]  # fmt: skip
    for small, grown in zip(workloads, large, strict=False):
        assert small.settings
        assert not grown.settings
        assert small.program.command != grown.program.command
    for name in ("skylake", "perforated-pages"):
        whole = machine(name)
        small, *_ = subjects(large=False, machine=name)
        scaled = machine(name, small.settings)
        entries = [settings["tlb"]["l2"]["main"]["entries"] for settings in (whole, scaled)]
        assert entries[0] == usual_scale() * entries[1]
        last = "llc" if name == "skylake" else "l2"
        of_caches = [
            byte_size(str(settings["cache"][last]["bytes"])) for settings in (whole, scaled)
        ]
        assert of_caches[0] == usual_scale() * of_caches[1]
        assert {settings["entries"] for settings in scaled["walker"]["caches"].values()} == {1}
        assert scaled["tlb"]["l1d"] == whole["tlb"]["l1d"]
    (stream,) = (subject for subject in usual if subject.kind == "stream")
    assert (stream.program.name, stream.settings) == ("gups, 4 GiB", {})
    rest = usual[len(workloads) + 1 :], large[len(workloads) + 1 :]
    assert {subject.kind for all_ in rest for subject in all_} == {"program"}
    limits = [{subject.program.max_instructions for subject in all_} for all_ in rest]
    assert limits == [{100_000_000}, {None}]


def test_reproduce_writes_the_tables_and_the_figures(
    study: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    requested = []

    def pretend(request: Request) -> Study:
        requested.append((request.max_instructions, request.large))
        return study

    monkeypatch.setattr("octavo.studies.tailored_page_sizes.run_study", pretend)
    out = tmp_path / "out"
    arguments = ["reproduce", "tailored-page-sizes", "--max-instructions", "5M", "--large"]
    done = invoke(*arguments, "--out", str(out))
    assert done.exit_code == 0, done.stderr
    assert requested == [(5_000_000, True)]
    assert done.stdout == study.markdown()
    tables = [f"tailored-page-sizes.{suffix}" for suffix in ("json", "md", "parquet")]
    figures = [f"{name}.{suffix}" for name in FIGURES for suffix in ("pdf", "svg")]
    assert {path.name for path in out.iterdir()} == {*tables, *figures}


def test_another_study_has_no_larger_size() -> None:
    done = invoke("reproduce", "two-page-sizes", "--large")
    assert done.exit_code == 2
    assert "two-page-sizes has one size only" in done.stderr


def test_a_stream_touches_each_page_before_it_counts(tmp_path: Path) -> None:
    of: dict[str, Any] = {"kind": "gups", "bytes": "8MiB", "updates": 1000, "instructions": 6}
    subject = Subject(stream_program("made", of | {"base": "0x1000000000"}), "workload", {})
    described = tmp_path / "stream.toml"
    assert subject.program.stream is not None
    described.write_text(subject.program.stream)
    begin, end = extent(subject, described)
    assert (begin, end) == (2048, None)
    assert extent(subject, described, 100) == (2048, 2148)
    (one,) = sim(str(described), designs=[BASE], warm_up=begin).total
    assert one.instructions == 1000 * 6
    assert one.count("os", "peak_resident_bytes") >= 8 * MIB
    assert one.count("os", "faults") <= 1, "all was touched, but for the loop's code"
