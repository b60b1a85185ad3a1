"""`octavo reproduce all`: runs every paper once, and continues an earlier run."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from called import invoke
from octavo._core import ENGINES, MODEL
from octavo.base.toml import read_toml
from octavo.studies import STUDIES, programs
from octavo.studies.all_papers import AllPapers
from octavo.studies.base_page_size import Study as BasePageSize
from octavo.studies.parts import Keeper, document_of, keeping
from octavo.studies.reproduction import Reproduction, Request

Start = Callable[[str, Request], Reproduction]


ROOT = Path(__file__).parents[2]


def octavo(*arguments: str) -> Result:
    return invoke("reproduce", *arguments)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The studies that are run; none of them measures anything."""
    names: list[str] = []

    def start(name: str, request: Request) -> Reproduction:
        names.append(name)
        return BasePageSize((), {"gzip": "not installed"})

    monkeypatch.setattr("octavo.studies.all_papers.reproduce", start)
    return names


def interrupted_at(name: str, start: Start) -> Start:
    def interrupted(study: str, request: Request) -> Reproduction:
        if study == name:
            raise KeyboardInterrupt
        return start(study, request)

    return interrupted


# --- the command ----------------------------------------------------------------------------------


def test_one_report_has_all_papers(started: list[str], tmp_path: Path) -> None:
    done = octavo("all", "-o", str(tmp_path / "out"))
    assert done.exit_code == 0, done.stderr
    assert started == list(STUDIES)
    assert done.stdout.startswith("# Five papers on the programs of this machine")
    report = (tmp_path / "out/report.md").read_text()
    assert report.startswith(done.stdout)
    for title in ("Talluri et al.", "Guvenilir and Patt", "Jacob and Mudge", "Park et al."):
        assert title in report
    assert report.count("Left out: gzip (not installed).") == len(STUDIES)
    assert not (tmp_path / "out/parts").exists()


def test_an_interrupted_reproduction_continues(
    started: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from octavo.studies import all_papers

    start = all_papers.reproduce
    out = str(tmp_path / "out")
    with monkeypatch.context() as patched:
        patched.setattr(all_papers, "reproduce", interrupted_at(STUDIES[2], start))
        stopped = octavo("all", "-o", out)
    assert stopped.exit_code == 130
    assert "the same command continues" in stopped.stderr
    assert started == list(STUDIES[:2])
    report = (tmp_path / "out/report.md").read_text()
    assert f"Not finished yet: {', '.join(STUDIES[2:])}." in report
    finished = octavo("all", "-o", out)
    assert finished.exit_code == 0, finished.stderr
    assert started == list(STUDIES)
    assert "Not finished yet" not in finished.stdout
    again = octavo("all", "-o", out, "--estimate")
    assert again.stdout == "All 5 papers are done; nothing is left to run.\n"
    assert started == list(STUDIES)


def test_the_estimate_runs_and_writes_nothing(started: list[str], tmp_path: Path) -> None:
    done = octavo("all", "-o", str(tmp_path / "out"), "--estimate", "--json", "-")
    assert done.exit_code == 0
    assert json.loads(done.stdout)["left"] == list(STUDIES)
    shorter = octavo("all", "-o", str(tmp_path / "out"), "--estimate", "--max-instructions", "4M")
    longer = octavo("all", "-o", str(tmp_path / "out"), "--estimate")
    assert (shorter.exit_code, longer.exit_code) == (0, 0)
    assert shorter.stdout != longer.stdout
    assert longer.stdout.startswith("5 of 5 papers to run: about ")
    assert started == []
    assert not (tmp_path / "out").exists()


def test_the_estimate_follows_the_papers_that_are_done(tmp_path: Path) -> None:
    papers = AllPapers(tmp_path / "out", "1", None)
    papers.open(force=False)
    for minutes in (15, 30):
        papers._write(STUDIES[0], BasePageSize((), {}), 60.0 * minutes, {})
        assert "by the papers done here" in papers.estimate()
        # The other papers take 50 + 60 + 60 + 90 minutes, times 1 or 2 on this machine.
        assert ("about 4.3 h" if minutes == 15 else "about 8.7 h") in papers.estimate()


def test_a_claim_of_many_programs_holds_where_most_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    claims = [
        {"key": "a", "paper": "most", "agree": 3, "disagree": 2},
        {"key": "b", "paper": "half", "agree": 2, "disagree": 2},
        {"key": "c", "paper": "none", "agree": 0, "disagree": 0},
    ]
    study = BasePageSize((), {})
    monkeypatch.setattr(BasePageSize, "claims", lambda self: claims)
    assert [verdict.holds for verdict in study.verdicts()] == [True, False, None]
    assert study.verdicts()[0].ours == "3 of 5 programs agree"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["al"], "did you mean `all`?"),
        (["all"], "name one with --out DIR"),
        (["all", "-o", "{out}", "--large"], "--large: all has one size only"),
        (["softvm", "--estimate"], "--estimate: only `octavo reproduce all` has an estimate."),
        (["all", "-o", "{file}"], "is not a directory"),
        (["all", "-o", "{full}"], "is not empty and has no reproduction of all papers"),
        (["all", "-o", "{begun}"], "has a reproduction with 5 instructions a program"),
    ],
)
def test_usage_errors_have_messages(
    started: list[str], tmp_path: Path, arguments: Sequence[str], sentence: str
) -> None:
    names = {name: str(tmp_path / name) for name in ("out", "file", "full", "begun")}
    (tmp_path / "file").write_text("")
    (tmp_path / "full").mkdir()
    (tmp_path / "full/mine.txt").write_text("")
    AllPapers(tmp_path / "begun", "1", 5).open(force=False)
    done = octavo(*(word.format(**names) for word in arguments))
    assert done.exit_code in (2, 125)
    assert sentence in done.stderr
    assert done.stderr.count("\n") == 1
    assert started == []


def test_other_settings_begin_again_with_force(started: list[str], tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    octavo("all", "-o", out, "--max-instructions", "5M")
    again = octavo("all", "-o", out, "--max-instructions", "6M", "--force")
    assert again.exit_code == 0, again.stderr
    assert started == [*STUDIES, *STUDIES]


def test_a_damaged_study_is_named(started: list[str], tmp_path: Path) -> None:
    octavo("all", "-o", str(tmp_path / "out"))
    (tmp_path / "out/softvm/manifest.json").write_text("{}")
    done = octavo("all", "-o", str(tmp_path / "out"))
    assert done.exit_code == 125
    assert "softvm/manifest.json` is damaged: remove it" in done.stderr


# --- parts ----------------------------------------------------------------------------------------


class Octavo:
    """A fake octavo: records its commands, and each trace that it writes is different."""

    def __init__(self) -> None:
        self.commands: list[str] = []

    def document(
        self, arguments: Sequence[str], directory: Path, run: Callable[..., Any]
    ) -> dict[str, Any]:
        self.commands.append(arguments[0])
        if arguments[0] == "record":
            trace = Path(arguments[arguments.index("-o") + 1])
            trace.write_text(f"trace {len(self.commands)}")
            return {}
        return {"read": Path(arguments[-1]).read_text(), "number": len(self.commands)}


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Octavo:
    made = Octavo()
    monkeypatch.setattr(programs, "_document", made.document)
    return made


def study(trace_count: int = 1) -> list[dict[str, Any]]:
    """A study that records `true` and reads the trace twice."""
    program = [programs.Program(f"program {n}", ("true", str(n))) for n in range(trace_count)]

    def measure(_: programs.Program, trace: Path) -> list[dict[str, Any]]:
        passes = (["sim", "--design", "thp", str(trace)], ["run", str(trace)])
        return [programs.document(words, trace.parent) for words in passes]

    measured = programs.measure_traces(program, Request(lambda name: None), measure, {})
    return [one for of in measured for one in of]


def test_a_part_is_computed_once(fake: Octavo, tmp_path: Path) -> None:
    with keeping(Keeper(tmp_path, "1")):
        first = study()
    assert fake.commands == ["record", "sim", "run"]
    with keeping(Keeper(tmp_path, "1")):
        assert study() == first
    assert fake.commands == ["record", "sim", "run"]
    with keeping(Keeper(tmp_path, "2")):
        assert study() != first


def test_documents_outside_a_keeper_are_not_stored(fake: Octavo, tmp_path: Path) -> None:
    with keeping(Keeper(tmp_path, "1")):
        study()
    study()
    assert fake.commands == ["record", "sim", "run"] * 2


def test_programs_have_parts_of_their_own(fake: Octavo, tmp_path: Path) -> None:
    with keeping(Keeper(tmp_path, "1")):
        first = study(2)
        assert len({one["read"] for one in first}) == 2
        assert study(2) == first
    assert len(fake.commands) == 6


@pytest.mark.parametrize("lost", ["*.oct", "*.json.gz"])
def test_parts_of_another_trace_are_not_used(fake: Octavo, tmp_path: Path, lost: str) -> None:
    """A trace that is recorded again is different."""
    with keeping(Keeper(tmp_path, "1")):
        before = study()
    for path in tmp_path.glob(lost):
        path.unlink()
    with keeping(Keeper(tmp_path, "1")):
        after = study()
    assert fake.commands == ["record", "sim", "run"] * 2
    assert {one["read"] for one in before}.isdisjoint(one["read"] for one in after)


def test_a_damaged_part_is_computed_again(tmp_path: Path) -> None:
    made = iter(range(9))

    def compute() -> dict[str, Any]:
        return {"number": next(made)}

    with keeping(Keeper(tmp_path, "1")):
        assert document_of(["run", "true"], compute) == {"number": 0}
        (kept,) = tmp_path.glob("*.json.gz")
        kept.write_bytes(kept.read_bytes()[:-9])
        assert document_of(["run", "true"], compute) == {"number": 1}
        assert document_of(["run", "true"], compute) == {"number": 1}


def test_a_failed_part_is_not_kept(tmp_path: Path) -> None:
    def fail() -> dict[str, Any]:
        raise programs.NotMeasured("no")

    with keeping(Keeper(tmp_path, "1")):
        with pytest.raises(programs.NotMeasured):
            document_of(["run", "true"], fail)
        assert document_of(["run", "true"], lambda: {"now": 1}) == {"now": 1}


def test_a_killed_run_leaves_whole_parts(tmp_path: Path) -> None:
    """The process is killed while it computes the third part."""
    script = f"""
import os, signal
from pathlib import Path
from octavo.studies.parts import Keeper, document_of, keeping

def part(number):
    if number == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return {{"number": number}}

with keeping(Keeper(Path({str(tmp_path)!r}), "1")):
    for number in range(4):
        document_of(["run", str(number)], lambda: part(number))
"""
    import sys

    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == -9
    with keeping(Keeper(tmp_path, "1")):
        found = [document_of(["run", str(n)], lambda: {"number": "new"}) for n in range(4)]
    assert [one["number"] for one in found] == [0, 1, "new", "new"]


def test_the_version_of_parts_covers_every_engine(tmp_path: Path) -> None:
    """The version covers all crates of the extension and their dependencies, except crates that
    measure processors.
    """
    needed: set[str] = set()
    waiting = {"octavo-py"}
    while waiting:
        name = waiting.pop()
        needed.add(name)
        crate = read_toml(ROOT / "crates" / name / "Cargo.toml")
        waiting |= {
            dependency for dependency in crate["dependencies"] if dependency.startswith("octavo-")
        } - needed
    listed = set(re.findall(r'"(octavo-\w+)"', (ROOT / "crates/octavo-py/build.rs").read_text()))
    assert listed == needed - {"octavo-py", "octavo-calibrate"}
    assert ENGINES != MODEL
    assert octavo("all", "--estimate", "--out", str(tmp_path / "out")).exit_code == 0
