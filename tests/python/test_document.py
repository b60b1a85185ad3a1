from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

import octavo
from fakes import FLAT, killed, process, region, result
from octavo.analysis.rows import COLUMNS
from octavo.base.table import arrow_schema
from octavo.report.run import render_run
from octavo.results.archive import files_of
from octavo.runs.result import RunResult
from pages import assert_loads_nothing
from schemas import first_error, validator_of

if TYPE_CHECKING:
    from octavo._core import Result

FALLING = tuple(10_000_000 >> step for step in range(10))


def without_data() -> Result:
    """A program that accessed memory only to fetch its code."""
    made = process(0, data_references=0)
    made["curves"] = [curve for curve in made["curves"] if curve["stream"] == "fetch"]
    for footprint in made["footprints"]:
        if footprint["stream"] == "data":
            footprint["touched_bytes"] = 0
    return result(made)


RESULTS = {
    "no data": without_data(),
    "one": result(process(0, data_misses=FALLING, code_misses=FALLING, regions=[region()])),
    "several": result(process(0, regions=[region()]), process(1, regions=[region()]), untraced=1),
    "levels": result(process(0, data_misses=FALLING, entries=(32, 128))),
    "crashed": result(ended=killed(11)),
    "no instructions": result(process(0, instructions=0)),
    "hostile names": result(
        process(0, regions=[region("</script><b>&", misses=FALLING, path="/x", growth=FLAT)])
    ),
}


@pytest.fixture(params=list(RESULTS))
def made(request: pytest.FixtureRequest, finish: Callable[..., RunResult]) -> RunResult:
    chosen: Result = RESULTS[request.param]
    return finish(chosen, tlb="itanium2" if request.param == "levels" else None)


def test_the_document_keeps_to_its_schema(made: RunResult) -> None:
    assert first_error(validator_of("run"), json.loads(json.dumps(made.document()))) is None


def test_the_document_of_a_trace_keeps_to_its_schema() -> None:
    document = octavo.run("synth:zipf?table=64KiB&references=1k").document()
    assert first_error(validator_of("run"), json.loads(json.dumps(document))) is None


def test_the_schema_refuses_unknown_fields(finish: Callable[..., RunResult]) -> None:
    validator = validator_of("run")
    document = json.loads(json.dumps(finish(RESULTS["one"]).document()))
    document["rows"][0]["surprise"] = 1
    assert not validator.is_valid(document)


def test_the_files_of_a_result(made: RunResult, tmp_path: Path) -> None:
    for name, write in files_of(made).items():
        write(tmp_path / name)
    table = pq.read_table(tmp_path / "rows.parquet")
    assert table.schema == arrow_schema(COLUMNS)
    assert table.num_rows == len(made.rows)
    assert json.loads((tmp_path / "manifest.json").read_text()) == made.manifest
    assert json.loads((tmp_path / "result.json").read_text())["rows"] == made.rows


def test_the_report_loads_nothing(made: RunResult) -> None:
    assert_loads_nothing(render_run(made.document()))


def test_the_report_has_the_answer_and_the_tables(finish: Callable[..., RunResult]) -> None:
    page = render_run(finish(RESULTS["one"]).document())
    assert "Which page size?" in page
    assert "10.0 M" in page
    assert "2 MiB" in page
    assert "prog &#39;&lt;b&gt;&amp;&#39;" in page


def test_a_report_names_the_tlb_of_its_figures(finish: Callable[..., RunResult]) -> None:
    document = finish(RESULTS["one"]).document()
    tlb = "Misses are those of a TLB with 64 entries for code and 64 for data"
    configuration = document["run"]["configuration"]
    configuration["modelled"] = {"name": "zen4"}
    assert f"{tlb}, not of zen4:" in render_run(document)
    configuration["modelled"] = None
    assert f"{tlb}." in render_run(document)


def test_a_report_shows_code_and_no_backticks(finish: Callable[..., RunResult]) -> None:
    document = finish(RESULTS["one"]).document()
    document["run"]["notes"] = ["Of `notes`."]
    document["run"]["warnings"] = ["Of `warnings`."]
    for item in document["advice"]:
        item["text"] = "Which page size? Of `lead`. Of `advice`."
        item["actions"] = [{"text": "Of `actions`.", "command": "run"}]
    page = render_run(document)
    for name in ("notes", "warnings", "lead", "advice", "actions"):
        assert f'Of <code class="inline">{name}</code>.' in page


def test_a_partial_report_is_marked(finish: Callable[..., RunResult]) -> None:
    assert "killed by SIGSEGV" in render_run(finish(RESULTS["crashed"]).document())
