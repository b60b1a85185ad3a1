"""Programs like those of two papers: their list, their requirements, and their place in reports."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from octavo.studies import programs, softvm, two_page_sizes
from octavo.studies.claims import Found, environment, load_claims
from octavo.studies.programs import Program, load_period, load_programs
from octavo.studies.reproduction import Request


def test_each_program_of_the_papers_has_one_like_it() -> None:
    wanted = {"verilog", *two_page_sizes.PAPER["table_3_1"]}
    assert {one.like for one in load_period(two_page_sizes.STUDY)} == wanted
    assert {one.like for one in load_period(softvm.STUDY)} == set(softvm.PAPER["table_3"])


@pytest.mark.parametrize("study", [two_page_sizes.STUDY, softvm.STUDY])
def test_names_differ_from_those_of_today_s_programs(study: str) -> None:
    names = [one.name for one in (*load_period(study), *load_programs())]
    assert len(names) == len(set(names))


def test_a_program_is_missing_with_any_command_that_it_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = Program("a", ("sh", "-c", "true"))
    assert here.missing() is None
    assert replace(here, needs=("sh", "no-such-tool")).missing() == "not installed: no-such-tool"
    assert Program("a", ("no-such-tool",)).missing() == "not installed: no-such-tool"
    monkeypatch.setattr(programs, "DISPLAY_SERVER", "no-such-server")
    assert replace(here, display=True).missing() == "not installed: no-such-server"
    monkeypatch.setattr(programs, "BUILT", tmp_path)
    (own,) = (one for one in load_period(softvm.STUDY) if one.name == "cpusim")
    assert own.missing() == "not built: `make workloads`"


def test_a_display_is_there_while_its_client_runs_and_ends_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = tmp_path / "server"
    ended = tmp_path / "ended"
    server.write_text(
        f"#!{sys.executable}\n"
        "import os, signal, sys, time\n"
        f"signal.signal(signal.SIGTERM, lambda *_: (open({str(ended)!r}, 'w').close(), "
        "os._exit(0)))\n"
        "fd = int(sys.argv[sys.argv.index('-displayfd') + 1])\n"
        "os.write(fd, b'7\\n')\nos.close(fd)\n"
        "signal.pause()\n"
    )
    server.chmod(0o755)
    monkeypatch.setattr(programs, "DISPLAY_SERVER", str(server))
    client = Program("client", ("true", "{display}"), like="x", display=True)
    commands: list[list[str]] = []

    def document(arguments: list[str], place: Path) -> dict[str, Any]:
        commands.append(arguments)
        assert not ended.exists()
        return {"rows": []}

    monkeypatch.setattr(programs, "document", document)
    skipped: dict[str, str] = {}
    request = Request(on_program=lambda name: None)
    run = programs.measure_runs(
        ["run"], [client], request, lambda program, rows: program.name, skipped
    )
    assert (run, skipped) == (["client"], {})
    assert commands == [["run", "--", "true", ":7"]]
    assert ended.exists()
    server.write_text(f"#!{sys.executable}\n")
    programs.measure_runs(["run"], [client], request, lambda program, rows: program.name, skipped)
    assert skipped == {"client": f"{server} does not start"}


def test_the_smaller_limit_ends_a_program(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = []

    def document(arguments: list[str], place: Path) -> dict[str, Any]:
        limits.append(arguments[1:-2])
        return {"rows": []}

    monkeypatch.setattr(programs, "document", document)
    for of_request, of_program in ((None, None), (5, None), (None, 7), (5, 7), (9, 7)):
        one = Program("one", ("true",), max_instructions=of_program)
        request = Request(on_program=lambda name: None, max_instructions=of_request)
        programs.measure_runs(["run"], [one], request, lambda program, rows: None, {})
    assert limits == [
        [],
        ["--max-instructions", "5"],
        ["--max-instructions", "7"],
        ["--max-instructions", "5"],
        ["--max-instructions", "7"],
    ]


def test_today_s_programs_stand_beside_and_decide_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    study = two_page_sizes.Study((), {})
    assert all(found is None for _, found in study.answered())
    (first, *_) = load_claims(two_page_sizes.STUDY)
    monkeypatch.setattr(
        two_page_sizes.Study, "answered_today", lambda self: {first.key: Found("2.5", False)}
    )
    text = (
        environment()
        .from_string(
            "{% import 'shared.md' as shared %}{{ shared.claims_text(claims, today=today) }}"
        )
        .render(**study.page_names())
    )
    assert "Today's programs: 2.5 (differs)." in text
    assert "**Differs**" not in text
