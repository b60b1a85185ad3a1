"""Where the options of octavo end and those of the traced program begin."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from called import invoke as octavo
from fakes import FakeRun, result
from traces_made import SOME, write_csv

VERBS = ("run", "curves", "sim")


@pytest.fixture
def trace(tmp_path: Path) -> str:
    return write_csv(tmp_path / "some.csv", SOME)


@pytest.mark.parametrize("verb", VERBS)
def test_options_may_follow_a_trace(verb: str, trace: str) -> None:
    done = octavo(verb, trace, "--quiet", "--json", "-")
    assert (done.exit_code, done.stderr) == (0, "")
    assert json.loads(done.stdout)["run"]["command"] == [trace]


@pytest.mark.parametrize("verb", VERBS)
def test_options_may_stand_on_both_sides_of_a_trace(verb: str, trace: str) -> None:
    done = octavo(verb, "--quiet", "synth:gups?table=64KiB&updates=100", "--json", "-")
    assert (done.exit_code, done.stderr) == (0, "")
    assert octavo(verb, "-q", trace, "--layout", "nativ").stderr.startswith("octavo: unknown")


@pytest.mark.parametrize("verb", VERBS)
def test_a_file_that_cannot_be_started_is_a_trace_if_a_format_follows(
    verb: str, tmp_path: Path
) -> None:
    place = tmp_path / "dump"
    place.write_text("0 1000\n")
    assert octavo(verb, str(place), "--format=din", "-q").exit_code == 0


def test_options_may_stand_between_traces() -> None:
    made = "synth:gups?table=64KiB&updates=100"
    done = octavo("sim", made, "--processes", "asid", made, "-q", "--quantum=1k", "--json", "-")
    assert (done.exit_code, done.stderr) == (0, "")
    assert json.loads(done.stdout)["run"]["command"] == [made, made]


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("words", [["more"], ["--", "more"]])
def test_a_trace_takes_no_arguments(verb: str, words: list[str], trace: str) -> None:
    done = octavo(verb, trace, *words)
    assert done.exit_code == 2
    assert f"`{trace}` is a trace and takes no arguments, so `more`" in done.stderr


def test_no_word_after_the_separator_is_an_option(
    trace: str, pretend: Callable[[FakeRun], None]
) -> None:
    done = octavo("run", "--", trace, "--quiet")
    assert done.exit_code == 2
    assert "so `--quiet` cannot follow it" in done.stderr
    pretend(FakeRun(result()))
    done = octavo("run", "--json", "-", "--", "prog", "--json", "--", "-q")
    assert json.loads(done.stdout)["run"]["command"] == ["prog", "--json", "--", "-q"]
    assert "note:" not in done.stderr


def test_options_after_a_program_are_the_programs(pretend: Callable[[FakeRun], None]) -> None:
    pretend(FakeRun(result()))
    done = octavo("run", "--json", "-", "prog", "--its-option", "-x")
    assert json.loads(done.stdout)["run"]["command"] == ["prog", "--its-option", "-x"]
    assert "note:" not in done.stderr


@pytest.mark.parametrize("option", ["--page-sizes=4KiB", "-q", "--no-follow", "--help"])
def test_an_option_of_octavo_after_a_program_is_noted(
    option: str, pretend: Callable[[FakeRun], None]
) -> None:
    pretend(FakeRun(result()))
    done = octavo("run", "prog", "--other", option)
    assert done.exit_code == 0
    first = done.stderr.splitlines()[0]
    assert first.startswith(f"octavo: note: `{option}` after `prog` is an option of the program")
    assert "octavo run [OPTIONS] -- prog" in first
    assert octavo("run", "-q", "prog", option).stderr == ""


def test_record_notes_an_output_option_after_the_program() -> None:
    done = octavo("record", "true", "-o", "true.oct")
    assert done.exit_code == 2
    assert "note: `-o` after `true` is an option of the program" in done.stderr


@pytest.mark.parametrize("verb", [*VERBS, "record"])
@pytest.mark.parametrize("words", [["--no-follow"], ["--"]])
def test_a_missing_program_is_named(verb: str, words: list[str]) -> None:
    done = octavo(verb, *words)
    assert done.exit_code == 2
    assert f"no PROGRAM given; write it after the options: octavo {verb} -- PROGRAM" in done.stderr


def test_an_empty_name_is_no_program() -> None:
    assert octavo("run", "").stderr == "octavo: the name of the program is empty.\n"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["run", "--machine", "zen4"], "octavo run has no option --machine; octavo sim has it."),
        (["run", "--machne=zen4"], "has no option --machne; did you mean --machine of octavo sim?"),
        (["run", "--jsn", "-"], "octavo run has no option --jsn; did you mean --json?"),
        (["machines", "--tlb", "lru64"], "octavo machines has no option --tlb; octavo run has it."),
        (["run", "--no-folow"], "has no option --no-folow; did you mean --no-follow?"),
        (["curves", "--frobnicate"], "octavo curves has no option --frobnicate."),
        (["--verion"], "octavo has no option --verion; did you mean --version?"),
    ],
)
def test_an_unknown_option_is_refused_with_its_command_or_the_nearest(
    words: list[str], sentence: str
) -> None:
    done = octavo(*words, "true")
    assert done.exit_code == 2
    assert done.stderr.endswith(f"{sentence}\n")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["run", "-o", "one", "-o", "two", "prog"], "--out is given twice; give it once."),
        (["run", "synth:gups", "-o", "one", "--out", "two"], "--out is given twice; give it once."),
        (["sim", *["--json=-"] * 3, "synth:gups"], "--json is given 3 times; give it once."),
        (["head", "-n", "5", "x.oct", "-n", "6"], "--lines is given twice; give it once."),
        (
            ["study", "run", "--workers=1", "x", "--workers=2"],
            "--workers is given twice; give it once.",
        ),
    ],
)
def test_a_second_value_of_an_option_is_refused(words: list[str], sentence: str) -> None:
    done = octavo(*words)
    assert done.exit_code == 2
    assert done.stderr.endswith(f"Error: {sentence}\n")


def test_help_comes_before_a_second_value() -> None:
    assert octavo("run", "-o", "one", "-o", "two", "--help").exit_code == 0


def test_options_of_several_values_and_flags_repeat(trace: str) -> None:
    settings = ["--set", "core.count=2", "--set", "memory.bytes=1GiB", "--set", "core.count=1"]
    done = octavo("sim", "-q", "-q", *settings, "--design", "thp", "--design", "base4k", trace)
    assert (done.exit_code, done.stderr) == (0, "")


def test_options_of_the_program_repeat(pretend: Callable[[FakeRun], None]) -> None:
    pretend(FakeRun(result()))
    words = ["prog", "-o", "one", "-o", "two"]
    done = octavo("run", "--json", "-", "--", *words)
    assert json.loads(done.stdout)["run"]["command"] == words


def test_an_option_of_many_commands_that_precedes_the_command_goes_after_it() -> None:
    done = octavo("--json", "-", "run", "true")
    assert "octavo has no option --json; octavo run, octavo curves, octavo sim and" in done.stderr
    assert done.stderr.endswith(" others have it, after the command.\n")
