import json
from pathlib import Path

import pytest

from fakes import SIZES, process, result
from octavo.analysis.rows import rows_of
from octavo.hardware.tlb_levels import load_preset
from octavo.studies.base_page_size import (
    Measurement,
    Study,
    measure,
)
from octavo.studies.claims import load_claims
from octavo.studies.inputs import make_inputs
from octavo.studies.programs import Program, fill_in, load_programs, measure_traces
from octavo.studies.reproduction import Request

FALLS_AT_16K = (10_000_000, 5_000_000, 100_000) + (50_000,) * 7
FALLS_AT_256K = (10_000_000,) * 6 + (100_000,) * 4


def measured(
    code: tuple[int, ...],
    data: tuple[int, ...],
    data_growth: float = 0.1,
    code_growth: tuple[float, float] = (0.1, 1.1),
) -> Measurement:
    """A measurement with the given growth of code at 16 and at 256 KiB."""
    grown = [0.0] + [data_growth] * (len(SIZES) - 1)
    at_16k, at_256k = code_growth
    code_grown = [at_16k if size < 256 << 10 else at_256k for size in SIZES]
    made = process(
        0, code_misses=code, data_misses=data, data_growth=grown, code_growth=[0.0, *code_grown[1:]]
    )
    return measure("prog", rows_of(result(made), load_preset("lru64")))


def verdicts(measurement: Measurement) -> dict[str, str]:
    record = measurement.flat()
    return {claim.key: record[claim.key] for claim in load_claims("base_page_size")}


def test_a_program_like_the_paper_agrees() -> None:
    found = measured(FALLS_AT_16K, FALLS_AT_256K)
    assert set(verdicts(found).values()) == {"agree"}
    assert found.code_left_16k == 0.01
    assert found.data_low_at == 256 * 1024
    assert found.code_growth_16k == pytest.approx(0.1, rel=0.05)
    assert found.code_growth_256k == pytest.approx(1.1, rel=0.05)
    assert found.advised_left == 0.01
    assert found.advised_growth == pytest.approx(0.1, rel=0.05)


def test_a_program_unlike_the_paper_disagrees() -> None:
    found = measured(FALLS_AT_256K, FALLS_AT_16K, data_growth=0.5, code_growth=(0.8, 0.9))
    assert set(verdicts(found).values()) == {"disagree"}


def test_a_program_without_misses_decides_nothing() -> None:
    found = measured((0,) * 10, (50_000,) * 10)
    assert verdicts(found)["code_16k"] == "too few misses"
    assert verdicts(found)["data_larger"] == "too few misses"
    assert found.code_left_16k is None


def test_data_may_want_more_than_16k_and_less_than_256k() -> None:
    verdict_of = verdicts(measured(FALLS_AT_16K, (10_000_000,) * 4 + (100_000,) * 6))
    assert verdict_of["data_larger"] == "agree"
    assert verdict_of["data_256k"] == "disagree"


def test_the_worst_programs_lie_between_the_usual_ones_and_none() -> None:
    third = (10_000_000, 5_000_000, 3_300_000) + (3_200_000,) * 7
    worst = verdicts(measured(third, FALLS_AT_256K, code_growth=(0.67, 1.1)))
    assert (worst["code_16k"], worst["worst_misses"]) == ("disagree", "agree")
    assert (worst["code_memory"], worst["worst_memory"]) == ("disagree", "agree")
    assert worst["code_larger"] == "agree"
    half = (10_000_000,) + (5_000_000,) * 9
    worse = verdicts(measured(half, FALLS_AT_256K, code_growth=(0.8, 1.1)))
    assert (worse["worst_misses"], worse["worst_memory"]) == ("disagree", "disagree")


@pytest.mark.parametrize(
    ("data", "data_growth", "verdict"),
    [
        (FALLS_AT_256K, 0.1, "agree"),
        # Too much memory: 16 MiB of data grow by half.
        (FALLS_AT_256K, 0.5, "disagree"),
        # Misses do not fall with the page size: data needs still larger pages.
        ((10_000_000,) * 10, 0.1, "disagree"),
    ],
)
def test_the_advice_needs_few_misses_and_little_memory(
    data: tuple[int, ...], data_growth: float, verdict: str
) -> None:
    assert verdicts(measured(FALLS_AT_16K, data, data_growth))["advice"] == verdict
    few = measured((1000,) * 10, (1000,) * 10)
    assert verdicts(few)["advice"] == "too few misses"


def test_a_wrapper_around_the_program_is_not_measured() -> None:
    wrapper = process(0, instructions=10**8, code_misses=FALLS_AT_256K, program="/bin/sh")
    program = process(1, code_misses=FALLS_AT_16K, data_misses=FALLS_AT_256K)
    both = measure("prog", rows_of(result(wrapper, program), load_preset("lru64")))
    alone = measure("prog", rows_of(result(program), load_preset("lru64")))
    assert both == alone


def test_the_table_counts_agreements() -> None:
    study = Study(
        (measured(FALLS_AT_16K, FALLS_AT_256K), measured(FALLS_AT_256K, FALLS_AT_16K)),
        {"xz": "not installed"},
    )
    text = study.markdown()
    assert "**1 of 2 agree.**" in text
    assert max(len(line) for line in text.splitlines() if line.startswith("|")) <= 80
    assert "Left out: xz (not installed)." in text
    assert "Only 2 programs ran" in text
    document = json.loads(json.dumps(study.document()))
    assert document["claims"][0]["agree"] == 1
    assert document["programs"][0]["program"] == "prog"


def test_missing_programs_are_named_before_the_first_one_runs() -> None:
    programs = [Program("here", (), stream="a stream"), Program("gone", ("no-such-program",))]
    heard: list[str] = []
    skipped: dict[str, str] = {}
    request = Request(on_program=heard.append, say=heard.append)
    measured = measure_traces(programs, request, lambda program, _: program.name, skipped)
    assert measured == ["here"]
    assert heard == ["Left out: gone (not installed: no-such-program)", "here"]
    assert skipped == {"gone": "not installed: no-such-program"}


def test_inputs_are_the_same_every_time(tmp_path: Path) -> None:
    first, second = tmp_path / "1", tmp_path / "2"
    made = []
    for directory in (first, second):
        directory.mkdir()
        make_inputs(directory)
        files = sorted(path for path in directory.rglob("*") if path.is_file())
        made.append({str(path.relative_to(directory)): path.read_bytes() for path in files})
    assert made[0] == made[1]
    assert len(made[0]) == 9


def test_at_least_twelve_programs_with_their_inputs_filled_in() -> None:
    programs = load_programs()
    assert len(programs) >= 12
    inputs = {name: f"/in/{name}" for name in ("text", "sql", "c", "rust", "python", "scratch")}
    for program in programs:
        assert "{text}" not in fill_in(program, inputs)
    used = " ".join(word for program in programs for word in fill_in(program, inputs))
    assert all(path in used for path in inputs.values())
