"""`octavo list`, `explain`, `diff` and `completion`, and the man pages."""

from __future__ import annotations

import itertools
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import octavo
import octavo._core as _core
from called import invoke as run
from octavo.base.units import format_count
from octavo.cli import COMMANDS
from octavo.cli.list import KINDS
from octavo.report import curves_data, sim_data
from octavo.results.archive import read_document
from octavo.results.difference import compare, shown_change
from octavo.simulation.explanation import explain
from octavo.traces.by_name import formats

ROOT = Path(__file__).parents[2]
SMALL = "synth:zipf?table=4MiB&references=20k"
LARGE = "synth:zipf?table=16MiB&references=20k"


# --- list ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", list(KINDS))
def test_every_name_is_listed(kind: str) -> None:
    document = json.loads(run("list", kind, "--json", "-").stdout)
    assert document["kind"] == kind
    text = run("list", kind).stdout
    assert text.startswith(f"{kind.capitalize()}\n")
    assert document["entries"]
    for entry in document["entries"]:
        assert entry["name"] in text
        assert entry["description"]


def test_every_format_that_is_read_is_listed() -> None:
    entries = json.loads(run("list", "formats", "--json", "-").stdout)["entries"]
    assert [entry["name"] for entry in entries] == [one["name"] for one in formats()]
    assert "parquet" in [entry["name"] for entry in entries]


def test_listed_workloads_are_accepted() -> None:
    for entry in KINDS["workloads"]():
        if entry["name"] not in ("synth:phases", "synth:mix"):
            assert octavo.run(f"{entry['name']}?references=1k").document()["rows"]


# --- explain -------------------------------------------------------------------------------------


@pytest.mark.parametrize("design", [name for name, _ in _core.designs()])
def test_every_design_is_explained(design: str) -> None:
    explained = explain(design)
    assert len(explained.documentation) > 100
    assert "](" not in explained.documentation
    assert dict(explained.parameters)
    assert explained.counters
    unexplained = {
        (component, counter) for component, counter, meaning in explained.counters if not meaning
    }
    assert {one for one in unexplained if not one[0].startswith(("virtual", "softvm"))} == set()


def test_an_explanation_names_paper_parameters_and_counters() -> None:
    done = run("explain", "gtsm")
    assert done.exit_code == 0
    assert "Gap-Tolerant" in done.stdout
    assert "\\n" not in done.stdout
    document = json.loads(run("explain", "tps", "--json", "-").stdout)
    assert "ISCA 2020" in document["documentation"]
    assert document["parameters"]["promotion_threshold_percent"]
    assert "32 fully associative entries" in document["assumptions"]
    softvm = dict(explain("softvm").parameters)
    assert (softvm["softvm.l1.bytes"], softvm["softvm.kernel.table"]) == ("8KiB", "two-tier")
    assert dict(explain("gtsm").parameters)["gtsm.bitmap_entries"] == "32"


def test_an_explanation_lists_counters_with_one_meaning_together() -> None:
    shown = run("explain", "thp").stdout
    assert re.search(r"cache\.l1d +accesses, hits, misses", shown)
    assert re.search(r"core +branches_taken, branches_mispredicted", shown)


@pytest.mark.parametrize("design", ["tps", "softvm"])
def test_an_explanation_in_a_file_or_a_pipe_is_no_wider_than_a_page(
    design: str, tmp_path: Path
) -> None:
    run("explain", design, "--out", str(tmp_path / "file"))
    for text in (run("explain", design).stdout, (tmp_path / "file").read_text()):
        assert max(map(len, text.splitlines())) <= 120
        squeezed = re.sub(r"\s+", "", text)
        assert re.sub(r"\s+", "", explain(design).assumptions) in squeezed


def test_paragraphs_and_items_of_an_explanation_are_wrapped_as_a_whole() -> None:
    """Its lines are those of the source, of which some are longer than a page is wide."""
    for width, design in itertools.product((60, 120), ("pom_tlb", "flattened", "colt")):
        shown = run("explain", design, env={"COLUMNS": str(width)}).stdout
        lines = shown[: shown.index("\nParameters")].splitlines()
        for line, after in itertools.pairwise(lines):
            first = "" if after.startswith("- ") else after.strip().partition(" ")[0]
            fits = len(line) + 1 + len(first) <= width
            assert not (line and first and fits) or line.startswith(("Hardware", design)), line
            assert not (line.startswith("- ") and first) or after.startswith("  ")


def test_an_explanation_has_the_counters_of_the_core() -> None:
    meanings = {(of, counter): meaning for of, counter, meaning in explain("thp").counters}
    assert "they add up to" in meanings["core.stack", "walks"]
    assert "not foreseen" in meanings["core", "branches_mispredicted"]
    assert {component for component, _ in meanings} >= {"core", "core.stack", "memory", "walker"}


# --- diff ----------------------------------------------------------------------------------------


def documents(command: str) -> tuple[Any, Any]:
    if command == "run":
        before, after = (octavo.run(trace).document() for trace in (SMALL, LARGE))
    elif command == "curves":
        before, after = (
            curves_data.report_data(octavo.curves(trace, streams=["data"]))
            for trace in (SMALL, LARGE)
        )
    else:
        before, after = (sim_data.report_data(octavo.sim(trace)) for trace in (SMALL, LARGE))
    return json.loads(json.dumps(before)), json.loads(json.dumps(after))


@pytest.mark.parametrize("command", ["run", "curves", "sim"])
def test_a_larger_table_is_worse(command: str) -> None:
    before, after = documents(command)
    assert compare(before, after).verdict == "worse"
    assert compare(before, before).verdict == "same"
    assert all(one.change in (0, None) for one in compare(before, before).differences)
    back = {one.name: one for one in compare(after, before).differences}
    for one in compare(before, after).differences:
        assert (one.before, one.after) == (back[one.name].after, back[one.name].before)
        if one.verdict == "worse":
            assert one.after > one.before * 1.02
            assert back[one.name].verdict == "better"
        if one.low is not None and one.high is not None:
            assert one.change is not None
            assert one.low < one.change < one.high
    assert compare(before, after, tolerance=10**9).verdict in ("same", "better")


def test_a_tolerance_is_a_share_of_the_value_before() -> None:
    before, _ = documents("sim")
    after = json.loads(json.dumps(before))
    for one in after["cycles"]:
        one["cycles"] *= 1.05
    assert compare(before, after, 0.06).verdict == "same"
    assert compare(before, after, 0.04).verdict == "worse"
    assert compare(after, before, 0.04).verdict == "better"


def test_a_change_whose_interval_contains_0_is_undecided() -> None:
    before, _ = documents("sim")
    after = json.loads(json.dumps(before))
    design = before["designs"][0]
    for one in after["cycles"]:
        one["cycles"] *= 1.03 if one["design"] == design else 1
    compared = compare(before, after)
    cycles = next(one for one in compared.differences if one.name == f"{design}: cycles")
    assert cycles.low is not None
    assert cycles.high is not None
    assert cycles.low < 0 < cycles.high
    assert (cycles.verdict, compared.verdict) == ("undecided", "undecided")
    assert compared.sentence() == f"Undecided, as the interval contains 0: {cycles.name}."
    after["misses"][0]["rate"] += 1
    name = f"{after['misses'][0]['design']}: {after['misses'][0]['level']} TLB misses"
    assert compare(before, after).sentence() == (
        f"Worse: {name}. Undecided, as the interval contains 0: {cycles.name}."
    )
    assert compare(after, before).sentence() == (
        f"No worse, and better: {name}. Undecided, as the interval contains 0: {cycles.name}."
    )


def test_numbers_with_commas_in_their_names_are_separated() -> None:
    before, _ = documents("run")
    after = json.loads(json.dumps(before))
    for row in after["rows"]:
        if row["component"] == "tlb.data":
            row["misses"] *= 2
    sentence = compare(before, after).sentence()
    assert sentence.startswith("Worse: tlb.data misses, 4 KiB pages; tlb.data misses, 8 KiB pages;")
    assert re.search(r"; and \d+ more\.$", sentence)


@pytest.mark.parametrize("command", ["run", "curves", "sim"])
def test_references_and_instructions_are_shown(command: str) -> None:
    before, after = documents(command)
    counted = {one.name: one for one in compare(before, after).differences}
    for name in ("references", "instructions"):
        assert counted[name].verdict == "not judged"
        assert counted[name].before > 0


def test_a_result_of_another_command_replaces_an_earlier_one(tmp_path: Path) -> None:
    place = tmp_path / "result"
    for command, kept in (
        ("run", "result.json"),
        ("curves", "report.json"),
        ("run", "result.json"),
    ):
        assert run(command, SMALL, "-q", "--force", "-o", str(place)).exit_code == 0
        names = {file.name for file in place.iterdir()}
        assert names == {"manifest.json", "report.html", "rows.parquet", kept}
        assert read_document(place)["schema"].startswith(f"octavo/{command}")


def test_figures_of_an_earlier_result_are_removed(tmp_path: Path) -> None:
    place = tmp_path / "result"
    assert run("run", SMALL, "-q", "-o", str(place)).exit_code == 0
    assert run("report", "-q", "--figures", "svg,png", str(place)).exit_code == 0
    assert len(list((place / "figures").iterdir())) > 2
    own = place / "figures" / "own.svg"
    own.write_text("")
    assert run("curves", SMALL, "-q", "--force", "-o", str(place)).exit_code == 0
    assert list((place / "figures").iterdir()) == [own]
    own.unlink()
    assert run("report", "-q", "--figures", "svg", str(place)).exit_code == 0
    assert run("curves", SMALL, "-q", "--force", "-o", str(place)).exit_code == 0
    assert not (place / "figures").exists()


def test_allocation_sites_are_not_compared() -> None:
    before, _ = documents("run")
    after = json.loads(json.dumps(before))
    for document, misses in ((before, [2000, 10]), (after, [10, 2000])):
        document["rows"] += [
            {
                "component": "allocations.tlb",
                "counter": f"main (program.c:{line})",
                "stream": "data",
                "page_size": 4096,
                "misses": missed,
                "mpki": 1.0,
            }
            for line, missed in enumerate(misses)
        ]
    compared = compare(before, after)
    assert compared.verdict == "same"
    assert [one.name for one in compared.differences if "alloc" in one.name] == []


def test_diff_reports_different_work() -> None:
    before, after = documents("sim")
    assert compare(before, before).remarks == ()
    (remark,) = compare(before, after).remarks
    assert remark == f"The results are of different traces: `'{SMALL}'` and `'{LARGE}'`."
    after = json.loads(json.dumps(before))
    after["run"]["timing"]["name"] = "additive"
    before["run"]["timing"]["name"] = "out-of-order"
    after["work"]["instructions"] = 5000
    after["run"]["trace"] = None
    after["run"]["command"] = ["/bin/true"]
    remarks = compare(before, after).remarks
    numbers = format_count(before["work"]["instructions"])
    assert remarks == (
        f"The results are of different programs: `'{SMALL}'` and `/bin/true`.",
        "The cycles were computed in different ways: out-of-order, and additive.",
        f"The results are of different numbers of instructions: {numbers} and 5000.",
    )
    # A live run beside a trace of the same program and part.
    options = {"windows": {"traced": 10}, "skip_instructions": 5, "follow_children": False}
    before["run"]["trace"]["about"] = {"command": ["/bin/true"], "options": options}
    after["run"]["configuration"] |= options
    remarks = compare(before, after).remarks
    assert remarks[0].startswith("The cycles were computed")
    assert not any("settings" in remark for remark in remarks)
    after["run"]["configuration"]["skip_instructions"] = 6
    remarks = compare(before, after).remarks
    assert "The results were made with different settings: skip instructions." in remarks
    before["run"].update(command=["/bin/true", "2"], trace=None)
    assert compare(before, after).remarks[0] == (
        "The results are of different arguments: `/bin/true 2` and `/bin/true`."
    )


def test_the_status_is_the_verdict(tmp_path: Path) -> None:
    for name, trace in (("a", SMALL), ("b", LARGE)):
        octavo_run = run("run", "-q", "-o", str(tmp_path / name), trace)
        assert octavo_run.exit_code == 0, octavo_run.stderr
    a, b = str(tmp_path / "a"), str(tmp_path / "b")
    same = run("diff", a, a)
    assert (same.exit_code, "No worse" in same.stdout) == (0, True)
    worse = run("diff", a, b, "--json", str(tmp_path / "diff.json"))
    assert worse.exit_code == 1
    assert "Worse: " in worse.stdout
    document = json.loads((tmp_path / "diff.json").read_text())
    assert document["verdict"] == "worse"
    assert run("diff", b, a, "-q").stdout == ""


def test_diff_reports_different_configurations(tmp_path: Path) -> None:
    a, b = str(tmp_path / "a"), str(tmp_path / "b")
    assert run("run", "-q", "-o", a, SMALL).exit_code == 0
    fewer = ["--page-sizes", "4KiB", "--max-instructions", "5k"]
    assert run("run", "-q", "-o", b, *fewer, SMALL).exit_code == 0
    summary = run("diff", a, b, "--json", str(tmp_path / "diff.json")).stdout
    remarks = json.loads((tmp_path / "diff.json").read_text())["remarks"]
    assert [remark.split()[:4] for remark in remarks] == [
        ["The", "second", "result", "is"],
        ["The", "results", "were", "made"],
        ["The", "results", "are", "of"],
        ["Numbers", "that", "only", "one"],
    ]
    assert "different numbers of instructions" in remarks[2]
    assert "page sizes" in remarks[1]
    assert all(" ".join(remark.split()[:4]) in summary for remark in remarks)


READING = (
    ["report", "{}"],
    ["diff", "{}", "{}"],
    ["apply", "--from", "{}", "--dry-run", "--", "true"],
)


@pytest.mark.parametrize("words", READING)
def test_a_result_that_is_not_whole_is_refused(words: list[str], tmp_path: Path) -> None:
    place = tmp_path / "a"
    assert run("run", "-q", "-o", str(place), SMALL).exit_code == 0
    command = [word.format(place) for word in words]
    document = json.loads((place / "result.json").read_text())
    for part in ("advice", "rows"):
        if part == "advice" or words[0] != "apply":
            (place / "result.json").write_text(json.dumps({**document, part: None}))
            refused = run(*command)
            assert refused.exit_code in (2, 125)
            assert f"result.json` lacks `{part}`: it is damaged." in refused.stderr
    (place / "manifest.json").unlink()
    refused = run(*command)
    assert refused.exit_code in (2, 125)
    assert f"`{place}` has no `manifest.json`, which is written last" in refused.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["head", "x.oct", "--lines", "-4"], "`-4`: give a whole number from 1 on."),
        (["head", "x.oct", "--lines", "9" * 5000], "from 1 on, of at most 18 digits."),
        (["head", "x.oct", "--process", "4294967296"], "a whole number from 0 to 4294967295."),
        (
            ["head", "x.oct", "--from", "99999999T"],
            "--from 99999999000000000000: give an instruction from 0 to 4611686T.",
        ),
        (
            ["convert", "x.csv", "y.oct", "--max-expansion", "0"],
            "`0` is not a size; give one above 0.",
        ),
        (["head", "x.oct", "--lines", "0"], "`0`: give a whole number from 1 on."),
        (["verify", "--repetitions", "all", "true"], "`all`: give a whole number from 1 to 10000."),
        (["study", "run", "x", "--workers", "\u0662"], "`\u0662`: give a whole number from 1 on."),
        (
            ["curves", SMALL, "--miss-penalty", "\u0662"],
            "`\u0662`: give a number such as 20 or 2.5.",
        ),
        (
            ["curves", SMALL, "--two-sizes-penalty", "1_0"],
            "`1_0`: give a number such as 20 or 2.5.",
        ),
    ],
)
def test_invalid_numbers_are_refused(words: list[str], message: str) -> None:
    done = run(*words)
    assert done.exit_code == 2, done.output
    assert message in done.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["diff", "nowhere", "nowhere"], "cannot read `nowhere/result.json`"),
        (["diff", "a", "b", "--tolerance", "-1"], "--tolerance `-1`: give a number from 0 to 1000"),
        (["list", "designz"], "unknown kind of list `designz`; did you mean `designs`?"),
        (["explain", "tsp"], "octavo: no design `tsp`: give one of base4k, thp, "),
        (["explain", "victima+bse"], "no policy `bse`: give one of base, "),
        (["completion", "tcsh"], "unknown shell `tcsh`"),
        (["calibrate", "--memory", "1q"], "--memory: `1q` is not a size"),
        (["convert", SMALL, "-", "--max-expansion", "1q"], "--max-expansion: `1q` is not a size"),
        (["sim", SMALL, "--quantum", "1q"], "--quantum: `1q` is not a count"),
        (["curves", SMALL, "--first-quantum", "1q"], "--first-quantum: `1q` is not a count"),
        *(
            ([command, "--format", format, SMALL], f"no format to choose: leave out `{format}`.")
            for command in ("run", "curves", "sim", "info", "check", "head")
            for format in ("csv", "parquet")
        ),
        (
            ["convert", "--from", "din", "--to", "csv", SMALL, "-"],
            f"`{SMALL}` is a synthetic trace and has no",
        ),
    ],
)
def test_bad_input_is_one_sentence(words: list[str], message: str) -> None:
    done = run(*words)
    assert done.exit_code == 2
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""


def test_data_sets_are_refused_as_results(tmp_path: Path) -> None:
    out = tmp_path / "results"
    octavo.sweep(SMALL, designs="base4k", out=out, progress=False)
    for words, status in ((["diff", str(out), str(out)], 2), (["report", str(out)], 125)):
        done = run(*words)
        assert done.exit_code == status
        assert f"`{out}` is a data set of many simulations: `octavo study query`" in done.stderr


def test_results_of_two_commands_are_refused() -> None:
    before, _ = documents("run")
    other, _ = documents("sim")
    with pytest.raises(octavo.OctavoError, match="`octavo run` with one of `sim`"):
        compare(before, other)


# --- completion and man pages --------------------------------------------------------------------


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_completes(shell: str) -> None:
    script = run("completion", shell)
    assert script.exit_code == 0
    assert f"_OCTAVO_COMPLETE=complete_{shell}" in script.stdout
    words = "octavo sim --tim"
    environment = {
        "_OCTAVO_COMPLETE": f"complete_{shell}",
        "COMP_WORDS": words,
        "COMP_CWORD": "2",
        "_TYPER_COMPLETE_ARGS": words,
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
    }
    octavo_command = Path(sys.executable).with_name("octavo")
    done = subprocess.run(
        [octavo_command],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "--timing" in done.stdout


@pytest.mark.parametrize(
    ("words", "completed"),
    [
        (["run", "-o", "place", "--js"], "--json"),
        (["sim", "--machine", "zen4", "--tim"], "--timing"),
        (["run", "-o", "one", "-o", "two", "--js"], "--json"),
    ],
)
def test_a_shell_completes_after_an_option_with_a_value(words: list[str], completed: str) -> None:
    environment = {
        "_OCTAVO_COMPLETE": "complete_bash",
        "COMP_WORDS": " ".join(["octavo", *words]),
        "COMP_CWORD": str(len(words)),
    }
    done = subprocess.run(
        [sys.executable, "-m", "octavo"],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, completed, "")


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"COMP_WORDS": "octavo"},
        {"COMP_CWORD": "1"},
        {"COMP_WORDS": "octavo", "COMP_CWORD": "x"},
    ],
)
def test_half_of_a_completion_is_refused(environment: dict[str, str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "octavo"],
        env={**os.environ, "_OCTAVO_COMPLETE": "complete_bash", **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "sets COMP_WORDS and COMP_CWORD." in done.stderr


def test_man_pages_have_every_command(tmp_path: Path) -> None:
    script = ROOT / "scripts/man-pages"
    subprocess.run([sys.executable, script, tmp_path], check=True)
    pages = {path.name for path in tmp_path.iterdir()}
    assert pages == {"octavo.1", *(f"octavo-{command}.1" for command in COMMANDS)}
    text = (tmp_path / "octavo-diff.1").read_text()
    assert text.startswith(".TH OCTAVO-DIFF 1")
    assert r"octavo diff before after \-\-tolerance 5" in text


def test_small_changes_have_no_negative_zero() -> None:
    assert [shown_change(one) for one in (0.0, -0.0, 0.0004, -0.0004)] == ["+0.0%"] * 4
    assert shown_change(-0.0006) == "-0.1%"


def test_large_changes_are_shown_without_fractions() -> None:
    assert [shown_change(one) for one in (0.081, -0.5, 9.99, 17.42, 1502.753)] == [
        "+8.1%",
        "-50.0%",
        "+999.0%",
        "+1,742%",
        "+150,275%",
    ]


def test_help_has_a_whole_line_for_each_command() -> None:
    shown = run("--help").stdout
    assert run("-h").stdout == shown
    for name, line in COMMANDS.items():
        assert f"  {name:<12}{line}\n" in shown


@pytest.mark.parametrize(
    ("name", "usage"),
    [
        ("run", "[OPTIONS] [--] PROGRAM [ARGUMENTS]..."),
        ("verify", "[OPTIONS] [--] [PROGRAM [ARGUMENTS]...]"),
        ("convert", "[OPTIONS] IN [OUT]"),
        ("ctl", "[OPTIONS] PID wait|status|start|stop|snapshot"),
    ],
)
def test_usage_shows_where_arguments_go(name: str, usage: str) -> None:
    assert run(name, "-h").stdout.startswith(f"Usage: octavo {name} {usage}\n")
