"""The report of curves: points of the figures, the page, and the figures for a paper."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from math import exp, log
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import octavo
from called import invoke
from curve_fakes import curves_process, curves_result, falling, small_configuration
from octavo.base.units import KIB, format_bytes, page_size
from octavo.report.curves import answer as curves_answer
from octavo.report.curves import curves_figures, render_curves
from octavo.report.curves_data import report_data
from octavo.report.figures import FORMATS, figure_files
from octavo.report.labels import spread, with_labels
from octavo.report.theme import ordered_colours, wide_legend
from octavo.report.thinning import TOLERANCE, thinned
from octavo.results.archive import files_of
from octavo.tlb_curves.api import CurvesResult
from octavo.tlb_curves.configuration import CurvesConfiguration
from pages import assert_loads_nothing, charts_of


def made(processes: int = 1, **choices: Any) -> CurvesResult:
    configuration = configured(**choices)
    return curves_result(
        configuration, [curves_process(configuration, n) for n in range(processes)]
    )


def configured(**choices: Any) -> CurvesConfiguration:
    chosen = {"streams": ["fetch", "data"], "entries": 64, "sets": 16, **choices}
    return small_configuration(**chosen)


RESULTS = {
    "everything": made(indexes=["low", "xor"]),
    "several processes": made(processes=3),
    "no full": made(without=["full"]),
    "no sets": made(without=["sets"]),
    "no working sets": made(without=["working-sets"]),
    "no two sizes": made(without=["two-sizes"]),
    "caches": made(cache_lines=[16, 64]),
    "caches only": made(without=["full", "sets", "working-sets", "two-sizes"], cache_lines=[64]),
    "classes only": made(
        without=["full", "sets", "working-sets", "two-sizes"], classify="4", classify_sizes=None
    ),
    "no instructions": curves_result(configured(), [curves_process(configured(), instructions=0)]),
}


@pytest.fixture(params=list(RESULTS))
def result(request: pytest.FixtureRequest) -> CurvesResult:
    return RESULTS[request.param]


# --- points of the figures -----------------------------------------------------------------------


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=300), st.booleans(), st.integers(1, 70))
def test_lines_pass_near_every_point_left_out(counts: list[int], falls: bool, first: int) -> None:
    if falls:
        counts.sort(reverse=True)
    kept = list(thinned(counts, first=first))
    assert kept == sorted(set(kept))
    assert {0, len(counts) - 1} <= set(kept)
    assert {place for place in range(len(counts)) if (place + first).bit_count() == 1} <= set(kept)
    heights = [log(max(count, 0.5)) for count in counts]
    for left, right in pairwise(kept):
        for place in range(left + 1, right):
            share = log((place + first) / (left + first)) / log((right + first) / (left + first))
            line = heights[left] + share * (heights[right] - heights[left])
            assert abs(line - heights[place]) <= TOLERANCE + 1e-9


def test_a_smooth_curve_is_drawn_by_few_points() -> None:
    counts = [round(10**12 * exp(-log(1 + place))) for place in range(4096)]
    assert len(list(thinned(counts))) == 13


def test_estimates_are_drawn() -> None:
    trace = "synth:zipf?table=16MiB&references=30k"
    result = octavo.curves(trace, streams=["data"], windows=[10**4], sample_pages="1/8")
    data, sampled = report_data(result), result.total["data"].sampled
    assert sampled is not None
    drawn = data["misses"]["Data"]
    assert {record["pages"] for record in drawn} == {
        format_bytes(size) for size, sample in sampled.items() if any(sample.misses)
    }
    for record in drawn:
        estimate = sampled[page_size(record["pages"])].misses[record["entries"] - 1]
        assert estimate is not None
        assert record["misses"] == round(estimate.value)
    assert data["working_sets"]["Data"][0]["normalised"] == 1


def test_the_figures_hold_the_counts() -> None:
    result = RESULTS["everything"]
    data = report_data(result)
    curves = result.total["data"]
    assert list(data["misses"]) == ["Code", "Data"]
    pairs = {"4 KiB + 32 KiB"}
    sizes = {"4 KiB": 4 * KIB, "32 KiB": 32 * KIB}
    for record in data["misses"]["Data"]:
        if record["pages"] in pairs:
            assert record["misses"] == curves.pairs[0].full_misses(record["entries"])
        else:
            of = curves.full_misses(sizes[record["pages"]], record["entries"])
            assert record["misses"] == of
        assert record["rate"] == pytest.approx(record["misses"], rel=1e-5)
    tables = data["sets"]["Data"]
    assert {pages: set(table) for pages, table in tables.items()} == {
        "4 KiB": {"low", "xor"},
        "32 KiB": {"low", "xor"},
        "4 KiB + 32 KiB": {"exact", "small", "large"},
    }
    assert len(tables["4 KiB"]["low"]) == 5 * 16
    for record in tables["32 KiB"]["xor"]:
        misses = falling(32 * KIB, record["sets"], record["ways"])
        assert record["misses"] == misses
        assert record["cost"] == pytest.approx(20 * misses / 1000, rel=1e-5)
    small = falling(4 * KIB, 1, 16)
    assert {
        "tlb": "16 entries, fully associative",
        "pages": "4 KiB + 32 KiB",
        "misses": small + small // 4,
        "cost": pytest.approx(25 * (small + small // 4) / 1000, rel=1e-5),
    } in data["costs"]["Data"]
    working = {(of["pages"], of["window"]): of for of in data["working_sets"]["Data"]}
    assert working["32 KiB", "10"]["normalised"] == 8
    assert working["4 KiB + 32 KiB", "1000"]["normalised"] == 1.5
    assert working["4 KiB + 32 KiB", "1000"]["size"] == 32 * KIB


def test_the_answer_names_the_smallest_tlbs() -> None:
    result = octavo.curves("synth:zipf?table=16MiB&references=30k", streams=["data"])
    data = report_data(result)
    curves = result.total["data"]
    needed = data["needed"]["Data"]
    assert {record["rate"] for record in needed} == {0.1, 1, 10}
    for record in needed:
        misses = curves.stack[record["size"]].misses
        most = record["rate"] * (curves.rated_instructions or curves.references) / 1000
        assert misses[record["entries"] - 1] <= most
        assert record["entries"] == 1 or misses[record["entries"] - 2] > most
    missing = {**data, "needed": {"Data": []}}
    assert curves_answer(missing) == ""
    one = {"pages": "4 KiB", "size": 4 * KIB, "rate": 1.0, "entries": 1234}
    assert "data needs 1,234 with 4 KiB pages" in curves_answer({**data, "needed": {"Data": [one]}})


@given(st.lists(st.floats(0, 200), min_size=1, max_size=20))
def test_names_of_lines_stand_apart(places: list[float]) -> None:
    found = spread(places, 13, 200)
    gap = min(13, 200 / max(len(places) - 1, 1))
    ordered = sorted(found)
    assert all(later - sooner >= gap - 1e-6 for sooner, later in pairwise(ordered))
    assert ordered[0] >= -1e-6
    assert ordered[-1] <= 200 + 1e-6
    # Names have the order of the ends of their lines.
    by_end = [found[at] for at in sorted(range(len(places)), key=lambda at: places[at])]
    assert by_end == ordered
    if all(later - sooner >= 13 for sooner, later in pairwise(sorted(places))):
        assert found == pytest.approx(places)


@pytest.mark.parametrize("lowest", [2, 1])
def test_names_of_equal_lines_stand_apart(lowest: int) -> None:
    values = [{"of": name, "x": 1, "y": 2} for name in "abc"] + [{"of": "a", "x": 0, "y": lowest}]
    placed = with_labels(values, "of", "x", "y", height=100)
    below = sorted(value["label_dy"] for value in placed if "label_dy" in value)
    assert len(below) == 3
    assert all(b - a >= 13 for a, b in pairwise(below))


def test_long_names_of_a_legend_are_one_below_another_on_a_phone() -> None:
    short, long = (wide_legend(None, ["a", "b" * size])["columns"]["expr"] for size in (9, 30))
    assert short.endswith("? 2 : 5")
    assert long.endswith("? 1 : 5")


def test_colours_run_from_end_to_end() -> None:
    assert ordered_colours(["one"]) == {"one": "#1f77c8"}
    eleven = list(ordered_colours(range(11)).values())
    assert len(set(eleven)) == 11
    assert (eleven[0], eleven[-1]) == ("#1f77c8", "#b08500")


# --- the page ------------------------------------------------------------------------------------


def test_a_page_loads_nothing_and_has_its_charts(result: CurvesResult) -> None:
    page = render_curves(json.loads(json.dumps(report_data(result))))
    assert_loads_nothing(page)
    configuration = result.configuration
    wanted = {
        *({"misses-0", "cpi"} if configuration.max_entries else ()),
        *({"sets"} if configuration.indexes else ()),
        *({"working-sets"} if configuration.windows_refs else ()),
    }
    assert wanted <= set(charts_of(page))
    assert ("misses per reference" in page) == (not result.total["data"].instructions)


def test_rebuilding_gives_the_same_page(result: CurvesResult, tmp_path: Path) -> None:
    for name, write in files_of(result).items():
        write(tmp_path / name)
    before = (tmp_path / "report.html").read_text()
    (tmp_path / "report.html").write_text("")
    done = invoke("report", str(tmp_path))
    assert done.exit_code == 0, done.stderr
    assert (tmp_path / "report.html").read_text() == before


# --- figures for a paper -------------------------------------------------------------------------


def test_figures_are_the_same_each_time(tmp_path: Path) -> None:
    for name, write in files_of(RESULTS["everything"]).items():
        write(tmp_path / name)
    drawn = []
    for _ in range(2):
        done = invoke("report", str(tmp_path), "--figures", "svg,pdf,png")
        assert done.exit_code == 0, done.stderr
        drawn.append({path.name: path.read_bytes() for path in (tmp_path / "figures").iterdir()})
    assert drawn[0] == drawn[1]
    figures = ("misses", "cpi", "working-sets")
    indexes = ("low", "xor", "exact", "small", "large")
    names = [
        name
        for of in ("code", "data")
        for name in (*(f"{name}-{of}" for name in figures), *(f"sets-{of}-{i}" for i in indexes))
    ]
    assert sorted(drawn[0]) == sorted(f"{name}.{suffix}" for name in names for suffix in FORMATS)
    assert drawn[0]["misses-data.png"].startswith(b"\x89PNG")
    pdf = drawn[0]["misses-data.pdf"]
    assert b"/FontFile" in pdf
    assert b"Date" not in pdf


def test_text_in_a_figure_is_text(result: CurvesResult, tmp_path: Path) -> None:
    figures = curves_figures(report_data(result))
    for name, write in figure_files(figures, ["svg"]).items():
        write(tmp_path / name)
        svg = (tmp_path / name).read_text()
        words = set(re.findall(r"<text[^>]*>([^<]+)</text>", svg))
        refers = set(re.findall(r"url\(#(\w+)\)", svg))
        assert refers <= set(re.findall(r'id="(\w+)"', svg))
        assert "NaN" not in svg
        assert "undefined" not in svg
        size = "1 KiB" if name.startswith("caches") else "32 KiB"
        assert any(word.endswith(size) for word in words), (name, words)


def test_a_page_explains_the_critical_penalty_and_names_the_layout() -> None:
    explains = "The critical penalty is by how much a miss may become costlier"
    pages = [
        render_curves(report_data(made(two_sizes=pairs))) for pairs in ([(4 * KIB, 64 * KIB)], [])
    ]
    assert [explains in page for page in pages] == [True, False]
    assert all(" Native layout." in page for page in pages)


def test_working_sets_of_processes_that_share_a_core(tmp_path: Path) -> None:
    """No process has curves of its own there."""
    traces = [f"synth:gups?table=4MiB&updates={number}k" for number in (5, 9)]
    words = ["curves", "-q", "--processes", "asid", "--windows", "10k", "-o", str(tmp_path / "out")]
    done = invoke(*words, *traces)
    assert done.exit_code == 0, done.stderr
    data = json.loads((tmp_path / "out" / "report.json").read_text())
    assert data["lived"] is None
    assert data["working_sets"]["Data"]


@pytest.mark.parametrize(
    ("figures", "words"),
    [
        ("svg,pgn", ["unknown format of figures `pgn`", "did you mean `png`"]),
        ("", ["svg, pdf, png"]),
    ],
)
def test_unknown_formats_are_one_sentence(tmp_path: Path, figures: str, words: list[str]) -> None:
    done = invoke("report", str(tmp_path), "--figures", figures)
    assert done.exit_code == 2
    for word in words:
        assert word in done.stderr
