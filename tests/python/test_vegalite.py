"""Figures against the JSON Schema of Vega-Lite, and figures drawn without a Vega-Lite engine."""

from __future__ import annotations

import copy
import json
from functools import cache
from pathlib import Path
from typing import Any

import altair
import pytest
from jsonschema import Draft7Validator

import octavo
from octavo.report import curves_data, sim_data
from octavo.report import vegalite as vl
from octavo.report.curves import curves_figures
from octavo.report.run import run_charts
from octavo.report.sim import sim_figures
from octavo.report.theme import Spec, finished, for_page, for_paper

TRACE = "synth:strided?bytes=1MiB&stride=4KiB&references=2k"
POINTS = [{"a": 1, "b": "x"}]


def run_figures() -> dict[str, Spec]:
    return run_charts(octavo.run(TRACE, tlb="itanium2").document())


def figures_of_curves() -> dict[str, Spec]:
    choices: dict[str, Any] = {"streams": ["data"], "entries": 64, "sets": 4, "windows": [100]}
    return curves_figures(
        curves_data.report_data(octavo.curves(TRACE, cache_lines=[64], **choices))
    )


def figures_of_sim() -> dict[str, Spec]:
    return sim_figures(sim_data.report_data(octavo.sim(TRACE, interval=5000)))


@cache
def schema() -> Draft7Validator:
    """The schema of the newest Vega-Lite that Altair knows."""
    *_, newest = sorted(Path(altair.__file__).parent.glob("vegalite/v*/schema/*lite-schema.json"))
    return Draft7Validator(json.loads(newest.read_text(encoding="utf-8")))


def errors_in(spec: Spec) -> list[str]:
    """The places where a specification violates the schema."""
    plain = copy.deepcopy(spec)
    # The schema, unlike Vega, does not know how several legends are laid out.
    plain["config"]["legend"].pop("layout")
    for panel in [plain, *plain.get("concat", []), *plain.get("layer", [])]:
        if "data" in panel:
            # A few records of the many, all of one kind.
            panel["data"]["values"] = panel["data"]["values"][:3]
    return [error.message[:200] for error in schema().iter_errors(plain)]


@pytest.mark.parametrize("figures", [run_figures, figures_of_curves, figures_of_sim])
def test_every_figure_is_valid_vega_lite(figures: Any) -> None:
    made = figures()
    assert len(made) >= 3
    for name, spec in made.items():
        assert errors_in(for_page(spec)) == [], name
        assert errors_in(for_paper(spec)) == [], name


def test_a_misspelt_setting_is_not_valid() -> None:
    chart = vl.Chart(data={"values": POINTS}).mark("line").encode(x=vl.X("a:Q"))
    assert errors_in(finished(chart)) == []
    wrong = chart.encode(x=vl.X("a:Q", axis=vl.Axis(tickCuont=3)))
    assert len(errors_in(finished(wrong))) == 1


def test_a_field_has_a_type() -> None:
    assert vl.X("a:Q", title=None) == {"field": "a", "type": "quantitative", "title": None}
    with pytest.raises(KeyError):
        vl.X("a")


def test_each_method_leaves_the_chart_as_it_was() -> None:
    base = vl.Chart(data={"values": POINTS}).mark("bar")
    base.encode(x=vl.X("a:Q")).properties(width=3).filter("datum.a > 0")
    assert base.spec == {"data": {"values": POINTS}, "mark": {"type": "bar"}}
