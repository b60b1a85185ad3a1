"""--out, --json, --quiet and --force mean the same in every command."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import typer

from called import invoke as octavo
from fakes import FakeRun, result
from octavo.cli import app
from traces_made import SOME, write_csv

MADE = "synth:gups?table=64KiB&updates=100"
COMMANDS: dict[str, list[str]] = {
    "run": [MADE],
    "curves": [MADE],
    "sim": [MADE],
    "ctl": ["1", "status"],
    "record": ["-o", "{new}", "--", "true"],
    "info": [MADE],
    "head": [MADE],
    "convert": [MADE, "{new}"],
    "check": [MADE],
    "apply": ["--dry-run", "--", "true"],
    "snapshot": ["-o", "{new}"],
    "verify": ["--", "true"],
    "list": ["designs"],
    "explain": ["base4k"],
    "machines": ["skylake"],
    "calibrate": ["--busy", "-o", "{new}"],
    "report": ["{directory}"],
    "diff": ["{directory}", "{directory}"],
    "reproduce": ["base-page-size"],
}
"""Each command with arguments that let it begin."""
SHOWING = (["info"], ["head"], ["check"], ["machines", "skylake"], ["list", "machines"])
"""Commands that show text on standard output."""


def showing(words: list[str], csv: str) -> list[str]:
    return words if words[0] in ("machines", "list") else [*words, csv]


@pytest.fixture
def csv(tmp_path: Path) -> str:
    return write_csv(tmp_path / "some.csv", SOME)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_the_output_options(name: str) -> None:
    group = typer.main.get_command(app)
    assert isinstance(group, typer.core.TyperGroup)
    # The script of `completion` goes where its user sends it, and a study file names its data set.
    assert set(group.commands) == {*COMMANDS, "completion", "study"}
    named = {tuple(option.opts) for option in group.commands[name].params}
    assert {("--out", "-o"), ("--json",), ("--quiet", "-q"), ("--force",)} <= named


@pytest.mark.parametrize("name", COMMANDS)
def test_json_overwrites_a_file_only_with_force(name: str, tmp_path: Path) -> None:
    place = tmp_path / "kept.json"
    place.write_text("kept")
    names = {"new": str(tmp_path / "new.oct"), "directory": str(tmp_path)}
    arguments = [word.format(**names) for word in COMMANDS[name]]
    done = octavo(name, "--json", str(place), *arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr == f"octavo: `{place}` exists; --force overwrites it.\n"
    assert place.read_text() == "kept"


@pytest.mark.parametrize("end", ["/", "/.", "/.."])
@pytest.mark.parametrize(
    "words",
    [
        ["info", MADE, "--json"],
        ["info", MADE, "--out"],
        ["run", MADE, "--json"],
        ["convert", "--to", "csv", MADE],
    ],
    ids=" ".join,
)
def test_the_name_of_a_directory_is_refused_for_a_file(
    words: list[str], end: str, tmp_path: Path
) -> None:
    name = f"{tmp_path}/new/directory{end}"
    done = octavo(*words, name)
    assert (done.exit_code, done.stdout) == (125, "")
    assert done.stderr == (
        f"octavo: cannot write `{name}`: this is the name of a directory; name a file.\n"
    )
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("name", ["run", "curves", "sim", "info", "head", "check", "convert"])
def test_no_output_replaces_the_trace_that_is_read(name: str, csv: str, tmp_path: Path) -> None:
    before = Path(csv).read_bytes()
    Path(tmp_path / "link.csv").symlink_to(csv)
    target = [str(tmp_path / "new.oct")] if name == "convert" else []
    done = octavo(name, "--force", "--json", str(tmp_path / "link.csv"), csv, *target)
    assert (done.exit_code, done.stdout) == (2, "")
    assert "link.csv` is read; give another file." in done.stderr
    assert Path(csv).read_bytes() == before


def test_a_document_does_not_replace_the_study_file(tmp_path: Path) -> None:
    file = tmp_path / "study.toml"
    file.write_text("")
    done = octavo("study", "status", str(file), "--json", str(file), "--force")
    assert (done.exit_code, file.read_text()) == (2, "")
    assert "is read; give another file." in done.stderr


def test_force_overwrites_json(csv: str, tmp_path: Path) -> None:
    place = tmp_path / "old.json"
    place.write_text("old")
    assert octavo("info", csv, "--json", str(place), "--force", "-q").exit_code == 0
    assert json.loads(place.read_text())["trace"] == csv


@pytest.mark.parametrize("words", SHOWING)
def test_out_has_the_text_shown_without_it(words: list[str], csv: str, tmp_path: Path) -> None:
    command = showing(words, csv)
    shown = octavo(*command).stdout
    place = tmp_path / "shown.txt"
    done = octavo(*command, "-o", str(place), "-q")
    assert (done.exit_code, done.stdout, done.stderr) == (0, "", "")
    assert place.read_text() == shown != ""
    again = octavo(*command, "--out", str(place))
    assert (again.exit_code, again.stdout) == (2, "")
    assert "--force overwrites it" in again.stderr
    assert octavo(*command, "--out", str(place), "--force").exit_code == 0
    assert octavo(*command, "-o", "-").stdout == shown


@pytest.mark.parametrize("words", SHOWING)
def test_text_and_json_go_to_different_places(words: list[str], csv: str, tmp_path: Path) -> None:
    command = showing(words, csv)
    done = octavo(*command, "-o", str(tmp_path / "text"), "--json", "-")
    assert json.loads(done.stdout)
    assert (tmp_path / "text").exists()
    done = octavo(*command, "-o", "-", "--json", "-")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "both go to standard output" in done.stderr
    same = str(tmp_path / "same")
    done = octavo(*command, "-o", same, "--json", f"{tmp_path}/./same")
    assert done.exit_code == 2
    assert "give each a file of its own" in done.stderr


def test_a_conversion_names_its_file_by_either_way(csv: str, tmp_path: Path) -> None:
    one, other = tmp_path / "one.din", tmp_path / "other.din"
    assert octavo("convert", csv, str(one), "-q").exit_code == 0
    done = octavo("convert", csv, "-o", str(other), "-q", "--json", "-")
    assert one.read_bytes() == other.read_bytes()
    document = json.loads(done.stdout)
    assert document["schema"] == "octavo/convert/1"
    assert (document["from"], document["to"], document["format"]) == (csv, str(other), "din")
    for wrong in ([csv], [csv, "a.din", "-o", "b.din"]):
        refused = octavo("convert", *wrong)
        assert refused.exit_code == 2
        assert "octavo convert IN -o OUT" in refused.stderr


def test_a_recording_needs_a_name() -> None:
    done = octavo("record", "--", "true")
    assert done.exit_code == 2
    assert done.stderr == (
        "octavo: no FILE given for the trace: octavo record -o FILE -- PROGRAM.\n"
    )


def test_a_run_writes_its_rows_alone_to_a_parquet_file(
    tmp_path: Path, pretend: Callable[[FakeRun], None]
) -> None:
    pretend(FakeRun(result()))
    place = tmp_path / "rows.parquet"
    assert octavo("run", "-q", "-o", str(place), "prog").exit_code == 0
    assert place.read_bytes()[:4] == b"PAR1"
    assert "--force overwrites it" in octavo("run", "-q", "-o", str(place), "prog").stderr


def test_a_report_can_be_written_elsewhere(
    tmp_path: Path, pretend: Callable[[FakeRun], None]
) -> None:
    pretend(FakeRun(result()))
    source, other = tmp_path / "source", tmp_path / "deep" / "other"
    assert octavo("run", "-q", "--out", str(source), "prog").exit_code == 0
    page = (source / "report.html").read_text()
    assert octavo("report", str(source), "-o", str(other)).exit_code == 0
    assert [path.name for path in other.iterdir()] == ["report.html"]
    assert (other / "report.html").read_text() == page
    again = octavo("report", str(source), "-o", str(other))
    assert (again.exit_code, "--force" in again.stderr) == (2, True)
    assert octavo("report", str(source), "-o", str(other), "--force").exit_code == 0
    done = octavo("report", str(source), "--json", "-")
    assert json.loads(done.stdout) == json.loads((source / "result.json").read_text())
    assert (source / "manifest.json").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["run", MADE], "--out -: several files are written"),
        (["curves", MADE], "--out -: several files are written"),
        (["snapshot"], "-o -: this is not written to standard output; name a file."),
        (["record", "--", "true"], "--out -: this is not written to standard output"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_standard_output_is_no_place_for_files(words: list[str], message: str) -> None:
    done = octavo(words[0], "-o", "-", *words[1:])
    assert done.exit_code == 2
    assert message in done.stderr
    assert not Path("-").exists()


@pytest.mark.parametrize("end", ["", "/"])
def test_the_report_is_named_with_one_slash(csv: str, tmp_path: Path, end: str) -> None:
    done = octavo("run", csv, "--out", f"{tmp_path}/out{end}")
    named = f"Written to {tmp_path}/out{end}; open {tmp_path}/out/report.html for the figures."
    assert named in done.stderr.replace("\n", " ")
