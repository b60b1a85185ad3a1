"""The figures of the explanations are up to date, and are parts of the site's pages."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

import octavo._core as _core
from called import invoke
from octavo.report.mechanisms import FIGURES
from octavo.simulation.explanation import explain

ROOT = Path(__file__).parents[2]
PLACE = ROOT / "docs/explanation"


def test_figures_equal_those_of_the_script(tmp_path: Path) -> None:
    subprocess.run([sys.executable, ROOT / "scripts/explanation-figures", tmp_path], check=True)
    drawn = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert drawn == {path.name: path.read_text() for path in (PLACE / "figures").iterdir()}


def test_each_explanation_has_a_figure() -> None:
    pages = {path.stem for path in PLACE.glob("*.md")} - {"index"}
    figures = {path.stem for path in (PLACE / "figures").glob("*.svg")}
    assert pages == figures
    for page in pages:
        assert f"](figures/{page}.svg)" in (PLACE / f"{page}.md").read_text()


def test_texts_of_figures_stay_inside() -> None:
    """By the average width of a letter, at most 0.62 of its height."""
    for draw in FIGURES.values():
        figure = draw().svg()
        (height,) = map(int, re.findall(r'viewBox="0 0 480 (\d+)"', figure))
        for tag, text in re.findall(r"<text ([^>]*)>([^<]*)</text>", figure):
            given = dict(re.findall(r'([\w-]+)="([^"]*)"', tag))
            width = 0.62 * int(given["font-size"]) * len(text)
            left = (
                int(given["x"])
                - {"start": 0.0, "middle": 0.5, "end": 1.0}[given["text-anchor"]] * width
            )
            assert left >= 0, text
            assert left + width <= 480, text
            assert int(given["font-size"]) <= int(given["y"]) <= height - 4, text


@pytest.mark.parametrize("design", [name for name, _ in _core.designs()])
def test_every_design_has_a_figure(design: str, tmp_path: Path) -> None:
    place = tmp_path / "figure.svg"
    done = invoke("explain", design, "--figure", str(place))
    assert done.exit_code == 0, done.output
    figure = ElementTree.fromstring(place.read_text(encoding="utf-8"))
    assert figure.tag == "{http://www.w3.org/2000/svg}svg"
    assert len(figure.attrib["aria-label"]) > 30
    assert len(list(figure.iter("{http://www.w3.org/2000/svg}rect"))) >= 2


def test_hardware_under_a_policy_is_explained_with_its_settings() -> None:
    named, given = explain("victima"), explain("victima+mthp:defrag=never:victima.predictor=always")
    assert (given.hardware, given.policy) == ("victima", "mthp:defrag=never")
    assert given.about.startswith("Linux's multi-size transparent huge pages")
    assert given.documentation == named.documentation
    assert given.assumptions == named.assumptions
    parameters = dict(given.parameters)
    assert parameters["defrag"] == "never"
    assert parameters["victima.predictor"] == "always"
    assert dict(named.parameters)["victima.predictor"] == "bounds"
    assert ("tlb.blocks", "hits") in {(of, counter) for of, counter, _ in given.counters}


def test_places_of_figures_are_checked_first(tmp_path: Path) -> None:
    place = tmp_path / "figure.svg"
    place.write_text("mine")
    for options, sentence in (
        (["--figure", str(place)], "--force"),
        (["--figure", str(tmp_path / "figure.png")], "give the name of an .svg file"),
        (["--figure", str(place), "--out", str(place), "--force"], "both name"),
    ):
        done = invoke("explain", "tps", *options)
        assert done.exit_code == 2, done.output
        assert sentence in done.stderr
    assert place.read_text() == "mine"
