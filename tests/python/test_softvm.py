"""The study of software-managed translation: the paper's sums, and numbers from the right rows."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from called import invoke
from octavo.report.figures import figure_files
from octavo.studies.claims import answers
from octavo.studies.programs import load_period
from octavo.studies.softvm import (
    ALL_DESIGNS,
    BY_LINE,
    EVENTS,
    HANDLER_CYCLES,
    MACHINE,
    MORE_ENTRIES,
    MOST_RATE,
    PAPER,
    PHYSICAL,
    RATED,
    SOFTVM,
    TABLE_1,
    VARIANTS,
    Changes,
    Counted,
    Measurement,
    Several,
    Study,
    changes_of_all,
    half_of,
    measure,
    paper_cycles_per_change,
    paper_overheads,
    paper_protection_cpi,
)
from octavo.studies.softvm.figures import figures_of
from octavo.studies.softvm.sweep import Organisation, doubled, largest, organisations

TRACE = "synth:gups?table=2MiB&updates=20k"
SWEPT = (
    Organisation(1024, 512 << 10, 16, 16),
    Organisation(128 << 10, 512 << 10, 16, 16),
    Organisation(1024, 1 << 20, 16, 16),
    Organisation(1024, 512 << 10, 16, 128),
)


def simulated(*designs: str) -> dict[str, Any]:
    arguments = ["sim", "-q", "--machine", MACHINE, "--design", ",".join(designs), "--json", "-"]
    done = invoke(*arguments, TRACE)
    assert done.exit_code == 0, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


@pytest.fixture(scope="module")
def measured() -> Measurement:
    swept = simulated(*(organisation.design for organisation in SWEPT))
    arguments = ["curves", "-q", "--cache-lines", "16..128", "--streams", "fetch,data"]
    nothing = ["--without", "full,sets,working-sets,two-sizes", "--json", "-"]
    done = invoke(*arguments, *nothing, TRACE)
    assert done.exit_code == 0, done.stderr
    return measure("prog", simulated(*ALL_DESIGNS), [(SWEPT, swept)], json.loads(done.stdout))


def test_the_cost_model_gives_each_row_of_table_4() -> None:
    shown = ["0.006970", "0.047560", "0.011920", "0.002880", "0.004770", "0.019700", "0.003150"]
    assert paper_overheads() == [Fraction(overhead) for overhead in shown]
    assert sum(paper_overheads()) == Fraction("0.096950")


def test_a_change_of_protection_costs_as_in_section_5_4() -> None:
    assert paper_cycles_per_change() == 6908 == 10 * 5 + 246 * 3 + 50 * 40 + 206 * 20
    least, most = (float(paper_protection_cpi(Fraction(rate))) for rate in ("2.8", "23.8"))
    assert (round(least, 3), round(most, 3)) == (0.019, 0.164)


def test_costs_are_the_defaults_of_the_machine() -> None:
    configuration = simulated(SOFTVM)["run"]["configuration"]
    assert "cycles" not in configuration["machine"].get("softvm", {}), "they are the usual ones"
    # The same values as in the documentation of the machine's keys.
    assert HANDLER_CYCLES == 10
    assert {cycles for _, cycles, _ in EVENTS.values()} == {10, 20, 90}


def test_the_first_half_is_of_the_longest_process() -> None:
    processes = [{"instructions": 5}, {"instructions": 900}, {"instructions": 400}]
    assert half_of({"instructions": 1305, "processes": processes}) == 450


def test_there_are_160_organisations() -> None:
    every = list(organisations())
    assert len(every) == len(set(every)) == 160
    assert all(organisation.l2_line_bytes >= organisation.l1_line_bytes for organisation in every)


def test_the_figures_come_from_their_rows(measured: Measurement) -> None:
    counts = measured.designs[SOFTVM].counts
    cycles = sum(counts[f"softvm.{name}"] * each for name, (_, each, _) in EVENTS.items())
    assert measured.designs[SOFTVM].handler_cycles == cycles > 0
    assert measured.cpi(SOFTVM) == cycles / measured.instructions
    assert measured.cpi_with_write_backs(SOFTVM) > measured.cpi(SOFTVM)
    for side in ("i", "d"):
        assert sum(measured.table_1(side).values()) == pytest.approx(1)
        assert set(measured.table_1(side)) == set(TABLE_1)
    by = dict(measured.sweep)
    assert by[SWEPT[1]] < by[SWEPT[0]], "a larger first level holds more of the page table"
    assert by[SWEPT[2]] < by[SWEPT[0]], "a larger second level holds more of everything"
    # A setting of the design equals the same setting of the machine.
    other = "softvm:softvm.l1.bytes=1KiB"
    alone = simulated(other)["rows"]
    own = {row["counter"]: row["value"] for row in alone if row["component"] == "softvm"}
    swept = simulated(SWEPT[0].design)["rows"]
    assert own == {row["counter"]: row["value"] for row in swept if row["component"] == "softvm"}


def test_one_pass_gives_the_misses_of_free_translation(measured: Measurement) -> None:
    """Compares direct-mapped levels with lines of the machine's size."""
    rows = simulated("softvm_free")["rows"]
    missed = {
        row["component"]: row["value"]
        for row in rows
        if row["component"].startswith("vcache.") and row["counter"] == "misses"
    }
    by = {
        (cache.cache_bytes, cache.ways, cache.line_bytes): cache.misses for cache in measured.alone
    }
    assert len(by) == 10 * 5 * 4 - 1, "1 KiB has not 16 lines of 128 bytes"
    assert by[8 << 10, 1, 16] == missed["vcache.l1i"] + missed["vcache.l1d"]
    assert by[512 << 10, 1, 16] == missed["vcache.l2i"] + missed["vcache.l2d"] > 0
    least, most = (measured.handlers_alone(512 << 10, ways)[0] for ways in (16, 1))
    assert least <= most == by[512 << 10, 1, 16] * 10 / measured.sweep_instructions
    assert "199 caches for each half" in Study((measured,), {}, 10**6).markdown()


def test_event_rates_are_shown_beside_the_formula(measured: Measurement) -> None:
    changes, cpi = measured.added_by(RATED[MOST_RATE], "protection")
    assert changes == measured.instructions * MOST_RATE // 10**9
    assert 0 < cpi < 2 * float(paper_protection_cpi(Fraction("23.8")))
    _, of_line = measured.added_by(BY_LINE, "protection")
    assert of_line < cpi / 20, "one line of 256 is asked for"
    entries = VARIANTS["two-tier, by lines"]
    assert measured.cpi(entries) > measured.cpi(SOFTVM), "and each has an entry of its own"


def test_the_page_has_all_sections(measured: Measurement) -> None:
    study = Study((measured,), {"cc1": "not installed"}, 10**6)
    page = study.markdown()
    for words in ("0.096950", "6908", "Ultrix 0.042", "Left out: cc1", "Only 1 programs ran"):
        assert words in page, words
    document = study.document()
    assert json.loads(json.dumps(document))["paper"]["cycles_per_change"] == 6908
    assert len(document["claims"]) == 9
    assert figure_files(figures_of(study), ["svg"])
    assert "no program like the paper's decides it" in Study((), {}, 10**6).markdown()


def test_claims_can_agree_and_differ(measured: Measurement) -> None:
    slow = replace(
        measured.designs[SOFTVM], handler_cycles=measured.designs[SOFTVM].handler_cycles * 1000
    )
    fast = replace(slow, handler_cycles=round(0.033 * measured.instructions))

    def average(of: Any) -> bool:
        return claim("average", replace(measured, designs={**measured.designs, SOFTVM: of}))

    assert (average(fast), average(slow)) == (True, False)


@pytest.mark.parametrize(
    ("times", "agrees"), [(0.1, False), (0.45, False), (0.55, True), (1.9, True), (2.2, False)]
)
def test_the_overhead_of_a_tlb_is_neither_much_more_nor_much_less(
    measured: Measurement, times: float, agrees: bool
) -> None:
    def with_cycles(name: str, cycles: float) -> Counted:
        return replace(measured.designs[name], handler_cycles=round(cycles))

    designs = {
        **measured.designs,
        PHYSICAL: with_cycles(PHYSICAL, 10**6),
        SOFTVM: with_cycles(SOFTVM, times * 10**6),
    }
    assert claim("ultrix", replace(measured, designs=designs)) is agrees


@pytest.mark.parametrize(
    ("per_million", "agrees"),
    [(0.0, False), (0.0028, False), (2.7, False), (2.9, True), (23.7, True), (23.9, False)],
)
def test_changes_of_protection_are_as_many_as_in_mach(
    measured: Measurement, per_million: float, agrees: bool
) -> None:
    changes = (Changes("andrew", "mab", per_million),)
    answered = answers("softvm", Study((measured,), {}, 1, changes=changes).values())
    (found,) = (found for claim, found in answered if claim.key == "changes")
    assert found is not None
    assert found.agrees is agrees
    assert "andrew, like mab" in found.ours


def test_workloads_of_table_5_weigh_what_the_papers_do(measured: Measurement) -> None:
    """The paper's mab has 27,314 changes at 15.7 per million instructions, so 1740 million
    instructions; compress has 1298 million.
    """
    changes = (Changes("andrew", "mab", 10.0), Changes("compress", "compress", 1.0))
    average = Study((measured,), {}, 1, changes=changes).values()["changes"]["average"]
    mab, compress = 27314 / 15.7, 3635 / 2.8
    assert average == pytest.approx((10 * mab + compress) / (mab + compress))
    table = {program.like for program in load_period("softvm_changes")}
    assert table == set(PAPER["table_5_per_billion"]) - {"mpeg_play"}
    assert set(PAPER["table_5_changes"]) == set(PAPER["table_5_per_billion"])


def claim(key: str, *measurements: Measurement) -> bool:
    """Whether a claim agrees with some programs."""
    answered = answers("softvm", Study(measurements, {}, 1).values())
    (found,) = (found for claim, found in answered if claim.key == key)
    assert found is not None
    return found.agrees


def test_experiments_give_the_effect_of_one_change(measured: Measurement) -> None:
    caches = [Organisation(128 << 10, 1 << 20, 16, line) for line in (16, 128)]
    twice = doubled(caches)
    assert [organisation.l2_bytes for organisation in twice] == [2 << 20] * 2
    assert largest([*SWEPT, *caches]) == caches
    cpi = {SOFTVM: 0.03, PHYSICAL: 0.2, MORE_ENTRIES: 0.05}
    gcc = replace(
        measured,
        program="gcc",
        like="gcc",
        sweep=((caches[0], 0.08), (caches[1], 0.02)),
        experiment={**cpi, twice[0].design: 0.01, twice[1].design: 0.01},
    )
    values = Study((gcc,), {}).values()
    assert values["more_entries"] == pytest.approx(cpi)
    (fall,) = values["compilers_with_doubled_l2"]
    assert fall["ratios"] == pytest.approx([8, 2])
    assert fall["factor"] == pytest.approx(4)
    assert values["best_cpi_with_doubled_l2"] == [0.01]
    software = gcc.designs[SOFTVM]
    assert gcc.dirty_share
    growth = software.write_back_cycles / software.handler_cycles * 0.5 / gcc.dirty_share
    half = values["half_dirty"]
    assert half["growth"] == pytest.approx(growth)
    assert half["cpi"] == pytest.approx(gcc.cpi(SOFTVM) * (1 + growth))
    assert half["measured_cpi"] == pytest.approx(gcc.cpi_with_write_backs(SOFTVM))
    assert half["dirty"] == [gcc.dirty_share]
    none = Study((measured,), {}).values()
    names = ("more_entries", "compilers_with_doubled_l2", "best_cpi_with_doubled_l2")
    assert not any(none[name] for name in names)
    assert none["changes"] is None


def test_the_best_organisation_is_one_for_all_programs(measured: Measurement) -> None:
    small, *caches = (Organisation(128 << 10, 1 << 20, 16, line) for line in (16, 32, 128))

    def swept(instructions: int, *cpi: float) -> Measurement:
        sweep = tuple(zip(caches, cpi, strict=True))
        return replace(measured, instructions=instructions, sweep=sweep)

    one, other = swept(10**6, 0.001, 0.004), swept(3 * 10**6, 0.016, 0.012)
    one = replace(one, sweep=((small, 0.0), *one.sweep))
    best = Several((one, other)).values()["best"]
    assert best["cpi"] == pytest.approx((0.004 + 3 * 0.012) / 4), "of those that both have"
    assert best["organisation"] == "L1 128 KiB in lines of 16 B, L2 1 MiB of 128 B"
    assert best["of_each"] == [0.0, 0.012], "each with its own"
    assert claim("best", one, other) is False
    assert claim("best", one, swept(3 * 10**6, 0.016, 0.011)) is True
    assert Several((one, replace(other, sweep=((SWEPT[0], 0.0),)))).values()["best"] is None
    assert Several((replace(one, sweep=()),)).values()["best"] is None


def test_changes_of_all_processes_are_for_each_million_instructions() -> None:
    rows = simulated(SOFTVM)["rows"]
    assert changes_of_all(rows) == 0
    for row in rows:
        if row["component"] == "softvm.protection" and row["counter"] == "pages":
            row["value"] = 3
    (instructions,) = {
        row["value"]
        for row in rows
        if row["counter"] == "instructions" and "process" not in row and "stream" not in row
    }
    assert changes_of_all(rows) == pytest.approx(3e6 / instructions)
