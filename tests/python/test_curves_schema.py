"""The documents of curves are valid by docs/curves.schema.json, which refuses invalid ones."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from jsonschema_rs import Validator

import octavo
from curve_fakes import curves_process, curves_result, small_configuration
from octavo.tlb_curves.api import CurvesResult
from octavo.tlb_curves.rows import COLUMNS
from schemas import first_error, schema_of, validator_of
from traces_made import write_csv

SMALL: dict[str, Any] = {"entries": 8, "sets": 4, "windows": [10, 1000], "policy_window": 1000}


@pytest.fixture(scope="module")
def validator() -> Validator:
    return validator_of("curves")


def real(trace: str = "synth:zipf?table=1MiB&references=5k", **choices: Any) -> CurvesResult:
    return octavo.curves(trace, **{**SMALL, **choices})


def everything(processes: int = 1) -> CurvesResult:
    chosen = small_configuration(
        sizes=[4096, 1 << 22],
        entries=64,
        sets=16,
        presets=["all"],
        indexes=["low", "xor", "bits:3"],
        two_sizes=[(4096, 1 << 22), (4096, 1 << 18)],
    )
    images = [curves_process(chosen, number) for number in range(processes)]
    return curves_result(chosen, images)


@pytest.fixture(scope="module")
def documents(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("documents")
    plain = write_csv(folder / "data.csv", [("load", 4096 * page, 8) for page in range(50)])
    made = {
        "real": real(),
        "classes": real(classify="4x2", classify_sizes="4KiB+64KiB"),
        "threads": real(threads="private", flush_every=1000),
        "sample": real(sample_pages="1/2", two_sizes=None),
        "no instructions": real(str(plain)),
        "caches": real(cache_lines=[16, 64], without=["full", "sets", "two-sizes"]),
        "few": real(without=["full", "sets", "two-sizes"]),
        "everything": everything(),
        "several processes": everything(3),
    }
    return {name: json.loads(json.dumps(result.document())) for name, result in made.items()}


def test_real_documents_keep_to_the_schema(documents: dict[str, Any], validator: Validator) -> None:
    for name, document in documents.items():
        assert first_error(validator, document) is None, name


def test_every_column_and_component_is_known(documents: dict[str, Any]) -> None:
    defined = schema_of("curves")["$defs"]
    columns: set[str] = {"process", "thread", "component"}
    components = set()
    for about in defined.values():
        columns |= set(about.get("properties", {}))
        of = about.get("properties", {}).get("component", {})
        components |= set(of.get("enum", [of.get("const")])) - {None}
    assert set(COLUMNS) <= columns
    found = {row["component"] for document in documents.values() for row in document["rows"]}
    assert found == components


def test_a_row_with_missing_or_other_columns_is_refused(
    documents: dict[str, Any], validator: Validator
) -> None:
    rows = {
        row["component"]: row
        for name in ("everything", "classes")
        for row in documents[name]["rows"]
    }
    optional = {"critical_penalty_increase", "second_probes", "stream", "process"}
    optional |= {"ways", "sets", "entries"}
    document = copy.deepcopy(documents["real"])

    def accepts(row: dict[str, Any]) -> bool:
        return validator.is_valid({**document, "rows": [row]})

    for component, row in rows.items():
        assert accepts(row), component
        assert not accepts({**row, "surprise": 1}), component
        for column in row.keys() - optional:
            less = {name: value for name, value in row.items() if name != column}
            assert not accepts(less), (component, column)
            assert not accepts({**row, column: [1]}), (component, column)
            if isinstance(row[column], int):
                assert not accepts({**row, column: -2}), (component, column)
    assert not accepts({**rows["tlb.full"], "sets": 2})
    assert not accepts({**rows["tlb.sets"], "index": "exact"})


def test_a_configuration_of_something_else_is_refused(
    documents: dict[str, Any], validator: Validator
) -> None:
    document = documents["few"]
    configuration = document["run"]["configuration"]
    for column in configuration:
        less = {name: value for name, value in configuration.items() if name != column}
        changed = {**document, "run": {**document["run"], "configuration": less}}
        assert not validator.is_valid(changed), column
    more = {**configuration, "surprise": 1}
    assert not validator.is_valid({**document, "run": {**document["run"], "configuration": more}})
    assert not validator.is_valid({**document, "run": {**document["run"], "surprise": 1}})
