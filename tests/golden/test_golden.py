"""Each case has the kept rows, apart from renames."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from octavo import _core
from octavo.studies import STUDIES

from . import corpus
from .corpus import Cases, Renames, Row, differences

CASES = Cases.read()


@pytest.fixture(scope="session")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of all inputs."""
    place = tmp_path_factory.mktemp("golden")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        CASES.make_inputs(place)
    return place


def renames() -> Renames:
    return Renames.read(corpus.RENAMES.read_text())


@pytest.mark.parametrize("case", CASES.commands)
def test_rows_equal_the_kept_ones(
    case: str, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(directory)
    lines = differences(map(renames().apply, corpus.kept(case)), corpus.run(CASES.commands[case]))
    if lines:
        pytest.fail(corpus.report(case, lines), pytrace=False)


def test_every_kept_file_belongs_to_a_case() -> None:
    assert set(corpus.ROWS.iterdir()) == set(map(corpus.kept_in, CASES.commands))


def test_every_rename_is_needed() -> None:
    needed = renames()
    if needed.all():
        for case in CASES.commands:
            for row in corpus.kept(case):
                needed.apply(row)
    assert needed.used == needed.all()


def words(group: str) -> Iterator[str]:
    """The words of all command lines of a group, split at commas, colons and pluses."""
    for command in (*CASES.inputs, *CASES.commands.values()):
        if command[0] in (group, "convert"):
            for word in command:
                yield from word.replace("+", ",").replace(":", ",").split(",")


def test_every_machine_design_and_policy_has_a_case() -> None:
    machines = set(_core.machine_presets())
    names = {item[0] for item in (*_core.designs(), *_core.policies())}
    assert (machines | names) - set(words("sim")) == set()
    assert machines - set(words("machines")) == set()


def test_every_study_has_a_case() -> None:
    cases = {command[1] for command in CASES.commands.values() if command[0] == "reproduce"}
    assert cases == set(STUDIES)


def test_every_trace_format_has_a_case() -> None:
    read = " ".join(words("run"))
    without = [
        form["name"]
        for form in _core.trace_formats()
        if not any(f".{suffix}" in read for suffix in form["suffixes"])
    ]
    assert without == ["perf"], "samples are refused"


# --- the comparison itself -----------------------------------------------------------------------

KEPT: list[Row] = [
    {"component": "tlb.l2", "counter": "misses", "design": "tps", "value": 5},
    {"component": "os", "counter": "stale", "design": "tps", "value": 2},
    {"component": "memory", "page_size": 4096, "growth": 0.5},
]


def test_the_order_of_rows_is_no_difference() -> None:
    assert differences(KEPT, reversed(KEPT)) == []


def test_a_difference_names_its_row_and_both_values() -> None:
    found: list[Row] = [
        {"component": "tlb.l2", "counter": "misses", "design": "tps", "value": 6},
        {"component": "os", "counter": "new", "design": "tps", "value": 2},
        {"component": "memory", "page_size": 4096, "growth": None},
    ]
    assert differences(KEPT, found) == [
        "component=memory page_size=4096: growth expected 0.5, found None",
        "component=os counter=new design=tps: expected no such row, found value 2",
        "component=os counter=stale design=tps: expected value 2, found no such row",
        "component=tlb.l2 counter=misses design=tps: value expected 5, found 6",
    ]
    assert differences(KEPT, [*KEPT, KEPT[0]]) == [
        "component=tlb.l2 counter=misses design=tps: expected 1 such rows, found 2"
    ]


def test_a_report_is_short() -> None:
    text = corpus.report("case", [str(n) for n in range(100)])
    assert text.splitlines()[0] == "case: 100 rows differ"
    assert text.splitlines()[-1] == "  … and 88 more"
    assert len(text.splitlines()) == 14


def test_renames_change_columns_words_and_counters() -> None:
    renamed = Renames.read("""
        [columns]
        design = "hardware"
        [counters]
        "os stale" = "machine pending"
        [values.component]
        "tlb.l2" = "tlb.second"
        os = "kernel"
    """)
    found = [
        {"component": "tlb.second", "counter": "misses", "hardware": "tps", "value": 5},
        {"component": "machine", "counter": "pending", "hardware": "tps", "value": 2},
        {"component": "memory", "page_size": 4096, "growth": 0.5},
    ]
    assert differences(map(renamed.apply, KEPT), found) == []
    assert renamed.used == renamed.all()


def test_an_unneeded_rename_is_detected() -> None:
    renamed = Renames.read('[values.counter]\nmises = "missed"\n')
    assert [renamed.apply(row) for row in KEPT] == KEPT
    assert renamed.used == set() != renamed.all()


def test_an_unknown_table_of_renames_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown table `counter`"):
        Renames.read('[counter]\na = "b"\n')


def test_a_rename_does_not_merge_two_counters() -> None:
    merged = Renames.read('[values.counter]\nstale = "misses"\n[values.component]\nos = "tlb.l2"\n')
    found = [KEPT[0], KEPT[2]]
    assert len(differences(map(merged.apply, KEPT), found)) == 1
