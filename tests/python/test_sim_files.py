"""`octavo sim` on the command line, and the files that it writes."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from jsonschema_rs import Validator

import octavo
from called import invoke, octavo_sim
from octavo._core import designs
from octavo.report.page import in_parts
from octavo.report.sim import render_sim, sim_figures
from octavo.report.sim_charts import difference_panels, same_misses
from octavo.report.sim_data import MOST_POINTS, report_data
from octavo.report.theme import UNORDERED, log_ticks
from octavo.simulation.api import SimResult
from octavo.simulation.configuration import TIMINGS, configure_sim
from octavo.simulation.rows import COLUMNS
from octavo.simulation.view import PARTS, remarks
from pages import assert_loads_nothing, charts_of
from schemas import first_error, validator_of
from sim_fakes import STRIDED, counts, machine, sim_process, sim_result
from traces_made import write_csv

DOCS = Path(__file__).parents[2] / "docs"
COUNTED = {"accesses", "hits", "misses"}
WITH_SETTINGS = [
    "tps:promotion_threshold_percent=50:span=round-up",
    "tps:vector_bits=16",
    "softvm:softvm.l2.bytes=1MiB",
    "conventional+thp:max_ptes_none=0",
    "trident:exchange=4KiB",
]
TRACE = "synth:zipf?table=16MiB&references=20k"
"""Without register dependences."""
PROGRAM = str(Path(__file__).parents[1] / "golden/traces/events.oct")
"""With register dependences."""


@pytest.fixture(scope="module")
def validator() -> Validator:
    return validator_of("sim")


@pytest.fixture(scope="module")
def documents(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("documents")
    plain = write_csv(folder / "data.csv", [("load", 4096 * page, 8) for page in range(50)])
    several = [sim_process([machine("base4k", counts())], number) for number in range(3)]
    faults = ["memory.fragmentation={kind = 'faults', portion = 0.01, layout = 'dispersed'}"]
    every = [name for name, _ in designs()]
    made = {
        "real": octavo.sim(TRACE, interval=5000, warm_up=3000),
        "all designs": octavo.sim(TRACE, designs=every),
        "all designs in a guest": octavo.sim(
            TRACE, designs=[name for name in every if name != "mosaic"], virtualised=True
        ),
        "unified": octavo.sim(TRACE, "r3000", ["base4k", "mix_tlb"]),
        "prefetchers": octavo.sim(TRACE, "zen4", ["base4k"], timing="out-of-order"),
        "measured": octavo.sim(TRACE, **measured_files(folder)),
        "no instructions": octavo.sim(plain),
        "virtualised": octavo.sim(
            TRACE, virtualised=True, host_policy="base", settings=[f"host.{faults[0]}"]
        ),
        "hashed frames of a host": octavo.sim(TRACE, designs=["base4k"], host_policy="iceberg"),
        "six hash functions": octavo.sim(
            TRACE, designs=["conventional+hashed:functions=6"], virtualised=True
        ),
        "gaps of a host": octavo.sim(
            TRACE, designs=["gtsm"], virtualised=True, settings=[f"host.{faults[0]}"]
        ),
        "perforated in a guest": octavo.sim(TRACE, designs=["perforated"], virtualised=True),
        "settings of designs": octavo.sim(TRACE, designs=WITH_SETTINGS),
        "stopped": octavo.sim(TRACE, settings=["memory.bytes=4MiB"]),
        "faulty, merging": octavo.sim(TRACE, designs=["gtsm:same_pages=base"], settings=faults),
        "out of order": octavo.sim(TRACE, timing="out-of-order"),
        "several processes": sim_result(several, configure_sim(designs=["base4k"])),
    }
    return {name: json.loads(json.dumps(result.document())) for name, result in made.items()}


def measured_files(folder: Path) -> dict[str, str]:
    base, huge = folder / "4k", folder / "thp"
    base.write_text("9000000,,cycles,1,100,,\n700000,,dtlb_load_misses.walk_active,1,100,,\n")
    huge.write_text("8800000,,cycles,1,100,,\n200000,,dtlb_load_misses.walk_active,1,100,,\n")
    return {"perf_4k": str(base), "perf_thp": str(huge)}


def test_documents_keep_to_the_schema(documents: dict[str, Any], validator: Validator) -> None:
    for name, document in documents.items():
        assert first_error(validator, document) is None, name
    components = {row["component"] for row in documents["measured"]["rows"]}
    assert {"execution_time.simulated", "execution_time.measured"} <= components


def test_the_schema_refuses_other_documents(
    documents: dict[str, Any], validator: Validator
) -> None:
    document = documents["real"]

    def accepts(row: dict[str, Any]) -> bool:
        return validator.is_valid({**document, "rows": [row]})

    by_kind = {tuple(row): row for row in document["rows"]}
    assert len(by_kind) == 3
    for row in by_kind.values():
        assert accepts(row)
        assert not accepts({**row, "surprise": 1})
        assert not accepts({**row, "value": -1})
        assert not accepts({**row, "component": "elsewhere"})
        for column in row.keys() - {"interval"}:
            assert not accepts({name: value for name, value in row.items() if name != column}), (
                column
            )
    assert not accepts({**by_kind["component", "counter", "value"], "design": "thp"})
    configuration = document["run"]["configuration"]
    for column in configuration:
        less = copy.deepcopy(document)
        del less["run"]["configuration"][column]
        assert not validator.is_valid(less), column
    more = copy.deepcopy(document)
    more["run"]["configuration"]["surprise"] = 1
    assert not validator.is_valid(more)
    for name in ("tps:span", "tps:span=", "tps:=1", "tps+", "tps+base+base", ":span=1"):
        other = copy.deepcopy(document)
        other["run"]["configuration"]["designs"] = [name]
        assert not validator.is_valid(other), name


LEVELS = ("l1i", "l1d", "l1", "l2")


def test_every_counter_is_explained(documents: dict[str, Any]) -> None:
    pages = [(DOCS / name).read_text() for name in ("sim.md", "core.md", "softvm.md")]
    lines = [line.split(" | ") for page in pages for line in page.splitlines()]
    explained = {
        (component, counter)
        for components, counters, *_ in (line for line in lines if len(line) == 3)
        for component in re.findall(r"`([^`]+)`", components)
        for counter in re.findall(r"`([^`]+)`", counters)
    }
    counted = {
        (row["component"], row["counter"])
        for document in documents.values()
        for row in document["rows"]
        if "design" in row
    }
    named = {
        (re.sub(r"^(.*)os\.pages\.\d.*", r"\1os.pages.SIZE", walker), counter)
        for component, counter in counted
        for walker in [re.sub(r"^(walker\..*)cache\.l\d$", r"\1cache.lN", component)]
    }
    unexplained = named - explained
    arrays = {
        counter
        for counter in unexplained
        if re.fullmatch(r"tlb\.(l\w+|nested)\.[\w-]+", counter[0])
    }
    # Some arrays have more counters than COUNTED: those of a format of entries.
    of_arrays = {counter for component, counter in explained if component == "tlb.l2.ARRAY"}
    assert {counter for _, counter in arrays} == of_arrays
    assert of_arrays >= COUNTED
    assert not named - arrays - explained, sorted(named - arrays - explained)
    some_designs_have = {"bytes_mapped_untouched", "fallbacks", "compactions", "frames_compacted"}
    with_tiers = {"reads", "writes"}
    where_others_fill = {"filled_by_others"}
    of_phases = {"present_bytes"}
    any_array = {(f"tlb.{of}.ARRAY", name) for of in LEVELS for name in of_arrays}
    assert any_array <= explained
    never_reported = explained - named - any_array
    assert {
        counter for _, counter in never_reported
    } <= some_designs_have | with_tiers | where_others_fill | of_phases


def test_every_row_has_columns_of_the_table(documents: dict[str, Any]) -> None:
    found = {
        column for document in documents.values() for row in document["rows"] for column in row
    }
    assert found == set(COLUMNS)


def test_the_command_writes_the_result_of_the_call(tmp_path: Path) -> None:
    place, file, json_file = tmp_path / "out", tmp_path / "rows.parquet", tmp_path / "it.json"
    options = ["--interval", "5k", "--set", "memory.bytes=1GiB", "--design", "thp,base4k"]
    status, errors = octavo_sim(*options, "--check", "-o", str(place), TRACE)
    assert (status, "open" in errors, "Which design? " in errors) == (0, True, True)
    assert octavo_sim(*options, "-q", "-o", str(file), "--json", str(json_file), TRACE) == (0, "")
    called = octavo.sim(
        TRACE, designs=["thp", "base4k"], settings={"memory.bytes": "1GiB"}, interval=5000
    )
    document = json.loads(json_file.read_text())
    assert document["schema"] == "octavo/sim/1"
    assert document["rows"] == called.rows
    assert pq.read_table(file) == called.table()
    assert pq.read_table(place / "rows.parquet") == called.table()
    files = {path.name for path in place.iterdir()}
    assert files == {"rows.parquet", "manifest.json", "report.json", "report.html"}
    status, errors = octavo_sim(*options, "-o", str(place), TRACE)
    assert (status, "--force overwrites" in errors) == (2, True)


def test_the_core_model_gives_times() -> None:
    status, errors = octavo_sim("--timing", "out-of-order", "--design", "base4k,thp", TRACE)
    assert status == 0
    for text in (
        "cycles per instruction",
        "the same, all latencies added up, over base4k",
        "Cycles of the core, by what the next instruction waited for",
        "page walks",
        "Times are of the machine's core model, which executes on a wrong path at most what the "
        "right path shares with it",
    ):
        assert text in " ".join(errors.split()), text
    assert "An additive estimate" not in errors


def test_timing_changes_counters_of_cores_only() -> None:
    designs = ["base4k", "thp", "tps", "softvm"]
    chosen, added, overlapped, timed = (
        octavo.sim(PROGRAM, designs=designs, timing=name) for name in TIMINGS
    )
    assert chosen.rows == timed.rows
    assert [one.counts for one in added.total] == [one.counts for one in overlapped.total]
    for before, after in zip(added.total, timed.total, strict=True):
        new = {key: value for key, value in after.counts.items() if key not in before.counts}
        assert {of for of, _ in new} == {"core", "core.stack", "memory"}
        assert {**before.counts, **new} == after.counts
        stack = sum(value for (component, _), value in new.items() if component == "core.stack")
        assert stack == new["core", "cycles"] == after.cycles
        assert new["core", "instructions"] == after.instructions


@pytest.mark.parametrize(
    ("options", "name", "message"),
    [
        ({}, "out-of-order", "has register dependences, and `skylake` describes its core"),
        ({"machine": "r3000", "designs": ["base4k"]}, "additive", "`r3000` does not describe"),
        ({"command": TRACE}, "additive", "the stream has no register dependences"),
        ({"command": TRACE, "timing": "out-of-order"}, "out-of-order", "asks for it"),
        ({"timing": "additive"}, "additive", "--timing additive asks for it"),
    ],
)
def test_the_stream_chooses_the_timing(options: dict[str, Any], name: str, message: str) -> None:
    result = octavo.sim(**{"command": PROGRAM, **options})
    assert (result.timing.name, message in result.timing.sentence()) == (name, True)
    assert result.manifest["timing"] == {"name": name, "reason": result.timing.reason}
    assert all(one.is_timed == (name == "out-of-order") for one in result.total)
    assert result.timing.sentence() in result.manifest["notes"]


def test_a_core_without_dependences_gets_a_warning() -> None:
    status, errors = octavo_sim("--timing", "out-of-order", TRACE)
    assert status == 0
    assert "times of the core come out too low" in " ".join(errors.split())
    assert "too low" not in octavo_sim("--timing", "out-of-order", PROGRAM)[1]


def test_designs_may_be_given_in_several_options() -> None:
    status, errors = octavo_sim("--design", "thp", "--design", "base4k", TRACE)
    assert status == 0
    assert "thp  base4k" in " ".join(line for line in errors.splitlines() if "base4k" in line)


def test_help_names_the_designs() -> None:
    done = invoke("sim", "--help")
    assert done.exit_code == 0
    assert "base4k" in done.stdout
    assert "transparent huge pages of 2 MiB" in done.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--design", "tph", TRACE], "octavo: no design `tph`: give one of base4k, thp"),
        (["--machine", "skylak", TRACE], "did you mean `skylake`?"),
        (["--timing", "out-of-ordr", TRACE], "did you mean `out-of-order`?"),
        (
            ["--timing", "out-of-order", "--machine", "r3000", TRACE],
            "octavo: --timing out-of-order: the machine `r3000` does not say how its core executes "
            "instructions: give it [core.pipeline], or --timing additive",
        ),
        (["--set", "tlb", TRACE], "--set: tlb: give KEY=VALUE"),
        (["--cores", "300", TRACE], "--cores 300: give a number from 1 to 256"),
        (["--interval", "5", TRACE], "--interval 5: give instructions from 1000 to 4611686T."),
        (["--interval", "much", TRACE], "`much` is not a count"),
        (["--perf-4k", "/nowhere", "--perf-thp", "/nowhere", TRACE], "cannot read `/nowhere`"),
        (["--format", "csv", "prog", "arg"], "are traces: with --processes asid or flush they"),
        (["--no-follow", TRACE], "is for a program"),
        ([TRACE, TRACE], "are traces: with --processes asid or flush they share a core"),
    ],
)
def test_invalid_options_are_refused(words: list[str], message: str, tmp_path: Path) -> None:
    json_file = tmp_path / "it.json"
    status, error = octavo_sim("--json", str(json_file), *words)
    assert status == 2
    assert error.startswith("octavo: ")
    assert message in error
    assert error.count("\n") == 1
    assert not json_file.exists()


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (["memory.bytes=4KiB"], 125),
        (["memory.bytes=8KiB", "--design", "base4k,softvm,perfect_l1"], 125),
        (["memory.bytes=64KiB", "--warm-up", "20000"], 125),
        # A design keeps the counts from before it stopped.
        (["memory.bytes=64KiB"], 0),
        # There is room for the page table of thp alone.
        (["memory.bytes=4128KiB"], 0),
    ],
)
def test_the_command_fails_where_no_design_counted_anything(
    words: list[str], status: int, tmp_path: Path
) -> None:
    json_file = tmp_path / "it.json"
    found, error = octavo_sim("-q", "--json", str(json_file), "--set", *words, STRIDED)
    assert found == status
    message = (
        "octavo: no design counted anything; base4k: no block of 4KiB is free: 0 frames of 4 KiB"
    )
    assert error.startswith(message) if status else not error
    assert error.count("\n") == bool(status)
    assert "base4k stopped: " in json.loads(json_file.read_text())["run"]["notes"][0]


def test_equal_misses_are_those_of_the_designs_that_have_the_level() -> None:
    misses = [("L1", "base4k"), ("L1", "thp"), ("L2", "base4k"), ("L2", "thp"), ("L2", "ideal")]
    values = [{"level": level, "design": design, "rate": 0.5} for level, design in misses]
    assert same_misses({"unit": "instructions", "misses": values}) == [
        "L1: 0.500 misses per 1000 instructions in base4k, thp.",
        "L2: 0.500 misses per 1000 instructions in each design.",
    ]


def test_the_report_is_self_contained() -> None:
    data = json.loads(json.dumps(report_data(octavo.sim(TRACE, interval=5000))))
    page = render_sim(data)
    assert_loads_nothing(page)
    charts = charts_of(page)
    shown = [name for name in charts if not name.startswith("series")]
    assert shown == ["difference-0", "difference-1", "parts", "misses-0", "misses-1"]
    assert len(charts) > len(shown)
    # Several panels in one have no size in a page.
    assert all(chart["spec"]["width"] == "container" for chart in charts.values())
    for part in in_parts(data["answer"]):
        assert part in page.replace("&#39;", "'")
    assert '<td class="best">' in page
    for figure in sim_figures(data).values():
        assert "base4k" in json.dumps(figure)


def test_the_answer_of_a_partial_run_begins_with_its_question() -> None:
    answer = "Which design? thp: it is best. It takes more memory."
    assert in_parts(answer) == ("Which design?", "thp: it is best.", "It takes more memory.")
    partial = in_parts(f"For the part that ran: {answer}")
    assert partial == ("For the part that ran: Which design?", *in_parts(answer)[1:])
    assert in_parts("No design ran. Why?")[0] == ""


def test_the_report_draws_the_counts() -> None:
    result = octavo.sim(TRACE, interval=5000, warm_up=2000)
    data = report_data(result)
    base = result.design("base4k")
    (drawn,) = (
        value["misses"]
        for value in data["misses"]
        if (value["design"], value["level"]) == ("base4k", "L1, data")
    )
    assert drawn == base.misses("l1d")
    parts = [value["cycles"] for value in data["cycles"] if value["design"] == "base4k"]
    assert sum(parts) == base.cycles
    walks = [
        value
        for value in data["series"]
        if value["design"] == "base4k" and value["what"].startswith("page walks")
    ]
    assert [value["at"] for value in walks] == [
        2000 + 5000 * number for number in range(len(base.intervals))
    ]
    for value, counted in zip(walks, base.intervals, strict=True):
        assert value["value"] == counted["walker", "walks"] / 5
    assert {value["bytes"] for value in data["memory"] if value["design"] == "thp"} == {
        result.design("thp").count("os", name)
        for name in ("peak_resident_bytes", "peak_page_table_bytes", "bytes_zeroed")
    }


def test_ties_are_shown_as_ties() -> None:
    """A design that differs by less than a simulation resolves is neither better nor worse."""
    walk_cycles = {"base": 400, "tie": 410, "slow": 900, "fast": 0}
    made = [machine(name, counts(walk_cycles=cycles)) for name, cycles in walk_cycles.items()]
    panels = difference_panels(report_data(sim_result([sim_process(made)])))
    drawn = panels["Cycles, over base"].spec["data"]["values"]
    verdicts = {one["design"]: one["verdict"] for one in drawn}
    assert verdicts == {"base": "same", "tie": "same", "slow": "more", "fast": "less"}
    figures = {one["design"]: "not resolved" in one["figure"] for one in drawn}
    assert figures == {"base": False, "tie": True, "slow": False, "fast": False}


def test_figures_of_differences_have_the_signs_of_the_axes() -> None:
    walk_cycles = {"base": 40_000, "close": 39_990, "fast": 0}
    made = [machine(name, counts(walk_cycles=cycles)) for name, cycles in walk_cycles.items()]
    panels = difference_panels(report_data(sim_result([sim_process(made)])))
    figures = {
        one["design"]: one["figure"] for one in panels["Cycles, over base"].spec["data"]["values"]
    }
    assert figures["close"] == "0.0%, not resolved"
    assert re.fullmatch("\N{MINUS SIGN}[0-9.]+%", figures["fast"])


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (0.25, 0.25, [0.25]),
        (0.26, 0.3333, [0.26, 0.333]),
        (0.9, 30, [1, 2, 5, 10, 20]),
        (0.5, 2000, [1, 10, 100, 1000]),
    ],
)
def test_a_logarithmic_axis_has_numbers(low: float, high: float, ticks: list[float]) -> None:
    assert log_ticks(low, high) == ticks


def test_notes_explain_why_walks_exceed_misses() -> None:
    page = render_sim(report_data(octavo.sim(TRACE)))
    assert "page walks can be more than misses of the last TLB level" in page


def test_parts_of_cycles_have_the_names_of_the_table() -> None:
    """The figure and the table show the same counters of a core."""
    parts_of_core = ("base", "branches", "data_llc", "tlb_l2", "walks", "handlers")
    stack = {("core.stack", part): 100 for part in parts_of_core}
    timed = report_data(sim_result([sim_process([machine("base", {**counts(), **stack})])]))
    assert [one["part"] for one in timed["cycles"]] == [PARTS[part] for part in parts_of_core]
    added = report_data(sim_result([sim_process([machine("base", counts())])]))
    parts = {one["part"] for one in added["cycles"]}
    assert parts == {"base CPI", "caches, data", "caches, code", "second-level TLB", "page walks"}


def of_intervals(number: int) -> SimResult:
    """Intervals with as many walks as their number."""
    intervals = [{("walker", "walks"): at} for at in range(number)]
    made = machine("base4k", counts(), intervals=intervals)
    return sim_result([sim_process([made])], configure_sim(designs=["base4k"], interval=1000))


@pytest.mark.parametrize("number", [1, MOST_POINTS, MOST_POINTS + 1, 5 * MOST_POINTS - 3])
def test_long_series_are_merged(number: int) -> None:
    series = report_data(of_intervals(number))["series"]
    walks = [value for value in series if value["what"].startswith("page walks")]
    assert len(walks) <= MOST_POINTS
    assert len(walks) >= min(number, MOST_POINTS // 2)
    ends = [*(value["at"] for value in walks[1:]), 1000 * number]
    widths = [end - value["at"] for value, end in zip(walks, ends, strict=True)]
    total = sum(value["value"] * width / 1000 for value, width in zip(walks, widths, strict=True))
    assert total == pytest.approx(sum(range(number)), rel=1e-4)


@pytest.mark.parametrize(
    ("walk_cycles", "ratio"),
    [
        # With the 500 cycles that 1000 instructions take by themselves.
        ([500, 500, 600, 600], None),
        ([500, 500, 9999, 800, 800], "1.30"),
        ([500, 500, 250, 250], "0.75"),
        ([0, 900, 900], None),
    ],
)
def test_a_program_that_changes_over_time_is_noted(
    walk_cycles: list[int], ratio: str | None
) -> None:
    intervals = [{("core", "cycles_walks"): cycles} for cycles in walk_cycles]
    made = machine("base4k", counts(), intervals=intervals)
    result = sim_result([sim_process([made])], configure_sim(designs=["base4k"], interval=1000))
    assert result.configuration.base_cpi == 0.5
    notes = [text for text in remarks(result) if text.startswith("Not steady")]
    assert list(result.steadiness_notes()) == notes
    if ratio is None:
        assert not notes
    else:
        assert f"base4k takes {ratio} times the cycles of the first half" in notes[0]


def test_a_report_of_stopped_designs() -> None:
    """Stopped designs are in no figure."""
    data = report_data(octavo.sim(TRACE, settings=["memory.bytes=4MiB"]))
    assert sim_figures(data) == {}
    assert data["remarks"][0] in render_sim(data).replace("&#39;", "'")


def test_colours_are_enough_for_many_designs() -> None:
    names = [f"d{at}" for at in range(len(UNORDERED) + 2)]
    designs = [
        machine(name, counts(), intervals=[{("walker", "walks"): at + 1}])
        for at, name in enumerate(names)
    ]
    data = report_data(sim_result([sim_process(designs)], configure_sim(interval=1000)))
    page = render_sim(data)
    scales = list(colours_of_designs(charts_of(page)))
    assert scales
    for scale in scales:
        assert scale["domain"] == names
        assert scale["range"] == [*UNORDERED, *UNORDERED[:2]]
    assert all(f">{name}<" in page for name in names)


def colours_of_designs(spec: Any) -> Iterator[dict[str, Any]]:
    """The scales of all colours of designs in the charts."""
    if isinstance(spec, list):
        for part in spec:
            yield from colours_of_designs(part)
    elif isinstance(spec, dict):
        colour = spec.get("color")
        if isinstance(colour, dict) and colour.get("field") == "design":
            yield colour["scale"]
        for part in spec.values():
            yield from colours_of_designs(part)


def test_a_report_is_rebuilt(tmp_path: Path) -> None:
    place = tmp_path / "out"
    assert octavo_sim("-q", "-o", str(place), TRACE)[0] == 0
    page = (place / "report.html").read_text()
    (place / "report.html").unlink()
    done = invoke("report", str(place), "--figures", "svg")
    assert done.exit_code == 0, done.stderr
    assert (place / "report.html").read_text() == page
    drawn = {path.name for path in (place / "figures").iterdir()}
    assert drawn == {"misses.svg", "cycles.svg", "differences.svg"}
