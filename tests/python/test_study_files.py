"""`octavo study`: files are checked as a whole, and the actions of the command."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

import octavo
from called import invoke
from octavo.base.errors import CannotRun, UsageError
from octavo.sweeps import recordings
from octavo.sweeps.data_set import DataSet
from octavo.sweeps.study_file import read_study
from octavo.tracing.recording import RecordedTrace
from schemas import first_error, validator_of
from sim_fakes import STRIDED
from test_sweeps import ZIPF, files
from traces_made import convert

STUDY = f"""
designs = ["base4k", "thp"]

[traces]
strided = "{STRIDED}"
zipf = "{ZIPF}"

[parameters]
"core.base_cpi" = [0.5, 1.0]
"""


def study(*arguments: str) -> Result:
    """Runs the command; a document on standard output is checked against its schema."""
    done = invoke("study", *arguments)
    if arguments[-2:] == ("--json", "-") and done.stdout:
        assert first_error(validator_of("study"), json.loads(done.stdout)) is None
    return done


@pytest.fixture
def path(tmp_path: Path) -> str:
    place = tmp_path / "study.toml"
    place.write_text(STUDY)
    return str(place)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The file of a study that has run, for tests that only read the results."""
    place = tmp_path_factory.mktemp("finished") / "study.toml"
    place.write_text(STUDY)
    assert study("run", str(place), "-q").exit_code == 0
    return str(place)


def written(tmp_path: Path, text: str) -> str:
    place = tmp_path / "one.toml"
    place.write_text(text)
    return str(place)


def test_a_study_is_a_sweep(path: str, tmp_path: Path) -> None:
    done = study("run", path, "--quiet", "--json", "-")
    assert (done.exit_code, done.stderr) == (0, "")
    document = json.loads(done.stdout)
    assert (document["planned"], document["done"], document["failed"]) == (8, 8, {})
    octavo.sweep(
        {"strided": STRIDED, "zipf": ZIPF},
        settings={"core.base_cpi": [0.5, 1.0]},
        out=tmp_path / "sweep",
    )
    assert files(tmp_path / "study.results") == files(tmp_path / "sweep")


def test_processes_of_several_programs_share_the_machines_of_a_study(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A list of traces may name programs. Recorded traces and simulated cells are used again."""
    recorded = tmp_path / "recorded.oct"
    convert(ZIPF, recorded)

    def record(command: Any, path: Path) -> Any:
        path.write_bytes(recorded.read_bytes())
        return RecordedTrace(str(path), {"exit": {"reason": "exited"}}, 1, 1, 1, 1, 0.0)

    monkeypatch.setattr(recordings, "record", record)
    text = 'designs = "thp"\nprocesses = "asid"\nquantum = "10k"\ncores = 2\n'
    text += f'[traces]\nmix = ["ls", "{STRIDED}", "recorded.oct"]\n[programs]\nls = ["ls"]\n'
    path = written(tmp_path, text)
    done = study("run", path, "-q", "--json", "-")
    assert (done.exit_code, done.stderr) == (0, "")
    references = {one["trace"]: one["references"] for one in json.loads(done.stdout)["simulations"]}
    sim = octavo.sim(
        [str(recorded), STRIDED, str(recorded)], designs="thp", processes="asid", quantum=10_000
    )
    assert references == {
        "mix": sim.total[0].references,
        "ls": octavo.sim(str(recorded), designs="thp").total[0].references,
    }
    next((tmp_path / "one.results").rglob("*.parquet")).unlink()
    assert study("resume", path).stderr.startswith("2 simulations, 1 of them there already")
    apart = written(tmp_path, text.replace('processes = "asid"\nquantum = "10k"\n', ""))
    done = study("run", apart)
    assert (done.exit_code, "with processes asid or flush they share" in done.stderr) == (2, True)
    path = written(tmp_path, text.replace("10k", "10q"))
    assert "one.toml: quantum: `10q` is not a count" in study("run", path).stderr
    for names in ("[]", "[3]"):
        wrong = written(tmp_path, f'processes = "asid"\n[traces]\nmix = {names}\n')
        assert "`traces` has a value that is not a string." in study("run", wrong).stderr


def test_an_estimate_runs_nothing(path: str, tmp_path: Path) -> None:
    done = study("run", path, "--estimate", "--json", "-")
    assert done.exit_code == 0
    assert json.loads(done.stdout)["estimate"]["simulations"] == 8
    assert "8 simulations: about" in done.stderr
    assert not files(tmp_path / "study.results")


def test_one_simulation_is_singular(tmp_path: Path) -> None:
    path = written(tmp_path, f'traces = "{STRIDED}"\ndesigns = "thp"')
    assert study("run", path, "--estimate").stderr.startswith("1 simulation: about ")
    shown = study("run", path).stderr.splitlines()
    assert shown[0].startswith("1 simulation: about ")
    assert shown[-1].endswith("one.results: 1 simulation.")
    again = study("run", path).stderr
    assert again.startswith("1 simulation, there already: nothing is left to do.")
    failing = written(tmp_path, 'traces = "broken.csv"\ndesigns = "thp"')
    (tmp_path / "broken.csv").write_text("load,1000,8\nload,x,8\n")
    assert study("run", failing).stderr.endswith("octavo: 1 simulation failed.\n")


def test_status_resume_query_and_diff(path: str, tmp_path: Path) -> None:
    assert "not a data set of results: `octavo study run`" in study("status", path).stderr
    assert "not a data set" in study("resume", path).stderr
    study("run", path, "-q")
    removed = next((tmp_path / "study.results").rglob("*.parquet"))
    removed.unlink()
    assert "7 of 8 simulations" in study("status", path).stderr
    assert study("resume", path, "-q").exit_code == 0
    assert removed.exists()
    sql = "select design, count(*) as n from simulations group by design order by design"
    answer = json.loads(study("query", path, sql, "--json", "-").stdout)
    assert answer["rows"] == [{"design": "base4k", "n": 4}, {"design": "thp", "n": 4}]
    sql = "select sum(value) as walks from rows where component = 'walker' and counter = 'walks'"
    assert study("query", path, sql).stdout.startswith("walks")
    nothing = study("query", path, "select * from simulations where design = 'none'")
    assert (nothing.stdout, nothing.exit_code) == ("", 0)
    assert "No rows; " in nothing.stderr
    assert study("query", path, "select nothing").exit_code == 2
    assert study("query", path, "-- nothing").exit_code == 2
    none = study("query", path, "select * from simulations where design = 'none'", "--json", "-")
    assert json.loads(none.stdout)["rows"] == []
    assert study("diff", path, path).exit_code == 0
    other = tmp_path / "other.toml"
    other.write_text(STUDY.replace("0.5, 1.0", "0.5") + '"core.count" = 1\n')
    study("run", str(other), "-q")
    done = study("diff", path, str(other), "--json", "-")
    assert done.exit_code == 1
    assert {one["metric"] for one in json.loads(done.stdout)["differences"]} == {"key"}


def test_a_diff_of_disjoint_studies_names_their_differences(finished: str, tmp_path: Path) -> None:
    other = tmp_path / "other.toml"
    pairs = [
        (STUDY.replace('"base4k", "thp"', '"tps"'), "different designs (base4k, thp; tps)."),
        (STUDY.replace("0.5, 1.0", "10.0, 9.0"), "different core.base_cpi (0.5, 1.0; 9.0, 10.0)."),
        (
            f'designs = "thp"\nmachines = "zen3"\ntraces = {{short = "{STRIDED}"}}',
            "different traces (strided, zipf; short), machines (skylake; zen3), "
            "core.base_cpi (0.5, 1.0; none).",
        ),
    ]
    for number, (text, sentence) in enumerate(pairs):
        other.write_text(f'out = "{number}"\n{text}')
        study("run", str(other), "-q")
        done = study("diff", finished, str(other))
        message = " ".join(done.stdout.split())
        assert (
            message
            == f"`{finished}` and `{other}` have no simulation in common: they have {sentence}"
        )
        assert done.exit_code == 1
    zipped = 'combine = "zipped"\nmachines = "skylake"\n' + STUDY
    one, two = tmp_path / "one.toml", tmp_path / "two.toml"
    one.write_text(zipped)
    two.write_text(zipped.replace('["base4k", "thp"]', '["thp", "base4k"]'))
    for each in (one, two):
        study("run", str(each), "-q")
    message = study("diff", str(one), str(two)).stdout
    assert message.endswith("in common: no combination of their values is in both.\n")


def test_a_diff_names_the_simulations_that_one_study_lacks(path: str, tmp_path: Path) -> None:
    other = tmp_path / "other.toml"
    other.write_text(STUDY.replace('"base4k", "thp"', '"thp", "tps"'))
    for each in (path, str(other)):
        study("run", each, "-q")
    lines = [line.split() for line in study("diff", path, str(other)).stdout.splitlines()[1:]]
    assert ["strided,", "skylake,", "base4k,", "0.5", "result", "yes", "no"] in lines
    assert ["zipf,", "skylake,", "tps,", "1.0", "result", "no", "yes"] in lines
    for gone in (tmp_path / "study.results").rglob("*.parquet"):
        gone.unlink()
    done = study("diff", path, str(other))
    assert "study.results` has no results of the study yet." in done.stderr


VALUES = {
    "sum(80000::bigint)": 640_000,
    "1.50::decimal(4, 2)": 1.5,
    "'a'::blob": "61",
    "date '2020-02-01'": "2020-02-01",
    "timestamp '2020-02-01 12:30:00'": "2020-02-01T12:30:00",
    "time '12:30'": "12:30:00",
    "interval 3 day": [0, 3, 0],
    "[2::decimal, 0 / 0::double]": [2, None],
    "{'a': 1e400::double}": {"a": None},
    "0 / 0::double": None,
    "170141183460469231731687303715884105727::hugeint": 2**127 - 1,
}


def test_every_type_of_a_query_is_written_as_json(finished: str) -> None:
    columns = ", ".join(f"{sql} c{number}" for number, sql in enumerate(VALUES))
    done = study("query", finished, f"select {columns} from simulations", "--json", "-")
    (row,) = json.loads(done.stdout)["rows"]
    assert list(row.values()) == list(VALUES.values())
    done = study("query", finished, "select date '20000-01-01'")
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1)
    assert "cast such values to text." in done.stderr


def test_columns_of_one_name_are_numbered(finished: str) -> None:
    done = study("query", finished, "select 1 as a, 2 as a, 3 as b, 4 as a", "--json", "-")
    assert json.loads(done.stdout)["rows"] == [{"a": 1, "a_1": 2, "b": 3, "a_2": 4}]
    done = study("query", finished, "select 1 as a, 2 as a")
    assert done.stdout.split() == ["a", "a_1", "1", "2"]


@pytest.mark.parametrize(
    "sql",
    [
        "copy (select 1) to 'written'",
        "attach 'written'",
        "create table written as select 1",
        "select 1; select 2",
        "select 1; copy (select 1) to 'written'",
    ],
)
def test_a_query_is_one_select(
    sql: str, finished: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = study("query", finished, sql)
    assert (done.exit_code, done.stdout) == (2, "")
    assert "query: give one select" in done.stderr
    assert not Path("written").exists()


@pytest.mark.parametrize(
    ("sql", "near"),
    [
        ("select * from simulation", 'Did you mean "simulations"'),
        ("select desig from simulations", 'Candidate bindings: "design"'),
        ("select walker.walks from simulations", 'Candidate tables: "simulations"'),
    ],
)
def test_an_unknown_name_in_a_query_is_answered_with_known_ones(
    sql: str, near: str, finished: str
) -> None:
    done = study("query", finished, sql)
    assert (done.exit_code, done.stdout) == (2, "")
    assert near in done.stderr
    assert done.stderr.endswith(".\n")
    assert "!" not in done.stderr


def test_a_long_table_is_truncated_with_a_note(finished: str) -> None:
    done = study("query", finished, "select * from range(3000000)")
    assert done.stdout.split()[-1] == "999"
    assert "and 2,999,000 more rows; --json has all." in done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_query(number: int, finished: str) -> None:
    sql = "select count(*) from range(1000000000) a, range(1000) b where a.range % 7 = b.range % 3"
    run = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED, finished, sql, str(int(number))],
        stderr=subprocess.PIPE,
        text=True,
    )
    message = run.communicate(timeout=300)[1]
    assert (run.returncode, message) == (128 + number, "octavo: interrupted.\n")


INTERRUPTED = """
import os, signal, sys, threading, time
signal.signal(signal.SIGINT, signal.default_int_handler)
from octavo.__main__ import main
from octavo.sweeps import queries
answer = queries._answer
def slow(connection, sql):
    threading.Timer(0.5, os.kill, (os.getpid(), int(sys.argv[3]))).start()
    return answer(connection, sql)
queries._answer = slow
main(["study", "query", *sys.argv[1:3]])
"""
"""Sends a signal once the query has begun."""


def test_zipped_lists_go_side_by_side(tmp_path: Path) -> None:
    text = f"""combine = "zipped"
traces = ["{STRIDED}", "{ZIPF}"]
machines = ["skylake", "zen3"]
designs = "thp"
[parameters]
"core.base_cpi" = [0.5, 1.0]
"""
    plan = read_study(written(tmp_path, text)).plan()
    labels = [tuple(one.labels.values()) for one in plan.planned]
    assert labels == [(STRIDED, "skylake", "thp", None, 0.5), (ZIPF, "zen3", "thp", None, 1.0)]
    longer = text.replace('["skylake", "zen3"]', '["skylake", "zen3", "zen4"]')
    with pytest.raises(UsageError, match="traces has 2, machines has 3"):
        read_study(written(tmp_path, longer)).plan()


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ('trace = "x"', "unknown key `trace`; did you mean `traces`?"),
        ('combine = "zip"', "`combine` is crossed or zipped, not `zip`."),
        ("designs = 3", "`designs` is a text or a list."),
        ("seeds = [1.5]", "`seeds` has a value that is not a whole number from 0."),
        ("seeds = -1", "`seeds` has a value that is not a whole number from 0."),
        ("machines = []", "`machines` is empty."),
        ("programs = {ls = 'ls'}", "`programs.ls` is a list of texts"),
        ("programs = {'../ls' = ['ls']}", "`programs.../ls`: the name is part of a file's name"),
        ('programs = {"" = ["ls"]}', "no / and no control characters"),
        ('programs = {"l\\u0007s" = ["ls"]}', r"`programs.l\x07s`: the name is part"),
        (f"programs = {{{'l' * 201} = ['ls']}}", "it has from 1 to 200 bytes"),
        ("programs = {a = ['ls']}", "`a` names a trace and a program"),
    ],
)
def test_each_error_has_its_message(line: str, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        read_study(written(tmp_path, f'format = 3\n{line}\n[traces]\na = "{STRIDED}"\n'))
    assert "one.toml: `format` is a text." in str(caught.value)
    assert sentence in str(caught.value)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "give `traces`, `programs` or both."),
        ("traces = ", "is no TOML file"),
        (f'traces = "{STRIDED}"\nmachines = "skylak"', "did you mean `skylake`"),
        (f'traces = "{STRIDED}"\ndesigns = "thpp"', "did you mean `thp`"),
        (
            f'traces = "{STRIDED}"\nparameters = {{"core.cpi" = 1}}',
            "=1: `parameters`: core.cpi: there",
        ),
        (
            f'traces = "{STRIDED}"\ndesigns = "thp:gtsm.bitmap_entries=2"',
            "all designs share one machine: give it by `parameters`.",
        ),
        (
            f'traces = "{STRIDED}"\ninterval = 5',
            "one.toml: interval 5: give instructions from 1000",
        ),
        ('traces = "none.oct"', "none.oct"),
        (f'traces = "{STRIDED}"\nwarm_up = "many"', "one.toml: warm_up: `many` is not a count"),
        (
            f'traces = "{STRIDED}"\nparameters = {{a = {[1] * 999}, b = {[1] * 999}, c = [1, 2]}}',
            "one.toml: 1,996,002 combinations of settings: a sweep has at most 1,000,000",
        ),
        (
            f'traces = "{STRIDED}"\nparameters = {{a = {[1] * 999}}}\nseeds = {[*range(1002)]}',
            "one.toml: 2,001,996 simulations: a sweep has at most",
        ),
        (
            f'traces = "{STRIDED}"\nvirtualised = true\nparameters = {{host = "none"}}',
            "virtualised wants a host, and `host=none` of `parameters` removes it",
        ),
        ('traces = "a\\u0000b"', "one.toml: a text has a NUL character"),
        (f'traces = "{STRIDED}"\nparameters = {{"a\\u0000b" = 1}}', "has a NUL character"),
        (f"traces = {'[' * 5000}{']' * 5000}", "is no TOML file: cannot recurse further"),
    ],
)
def test_nothing_of_an_invalid_study_runs(text: str, sentence: str, tmp_path: Path) -> None:
    path = written(tmp_path, text)
    done = study("run", path)
    assert done.exit_code in (2, 125)
    assert sentence in done.stderr
    assert not (tmp_path / "one.results").exists()


def test_damaged_lines_of_a_journal_are_left_out(path: str, tmp_path: Path) -> None:
    study("run", path, "-q")
    out = tmp_path / "study.results"
    removed = next(out.rglob("*.parquet"))
    removed.unlink()
    (journal,) = (out / "journal").glob("*.jsonl")
    whole = journal.read_bytes()
    timed = json.loads(whole.splitlines()[0])
    failed = {"at": 1.0, "failed": [removed.stem], "why": "x"}
    wrong = [None, [], 5, {"seconds": "x"}, {"seconds": float("nan")}, {"at": 1, "failed": 5}]
    for key, values in {"at": ["x", None], "failed": [None, [[1]], 5], "why": [3]}.items():
        wrong += [{**failed, key: value} for value in values]
    for value in ("x", float("nan"), float("inf"), -1, 10**400, True, None):
        wrong.append({**timed, "seconds": value})
    wrong += [{**timed, "kind": value} for value in (["synthetic"], {}, "x", 3)]
    wrong += [{**timed, "designs": value} for value in ({}, "x", None)]
    for key in timed:
        wrong.append({name: value for name, value in timed.items() if name != key})
    lines = [*map(json.dumps, wrong), '{"at": 1, "fai', "[" * 100_000]
    journal.write_bytes(whole + b"\xff\xfe\n" + "\n".join(lines).encode())
    done = study("status", path, "--json", "-")
    assert (done.exit_code, json.loads(done.stdout)["failed"]) == (0, {})
    estimates = []
    for text in (journal.read_bytes(), whole):
        journal.write_bytes(text)
        estimates.append(study("run", path, "--estimate", "--json", "-").stdout)
    assert estimates[0] == estimates[1]
    journal.write_bytes(whole + json.dumps(failed).encode())
    done = study("status", path, "--json", "-")
    assert json.loads(done.stdout)["failed"] == {removed.stem: "x"}


def test_arguments_after_the_file_are_those_of_the_action(path: str) -> None:
    assert "takes no more words" in study("run", path, "more").stderr
    assert "wants a query in SQL" in study("query", path).stderr
    assert "wants a second study file" in study("diff", path).stderr
    assert "did you mean `status`" in study("statsu", path).stderr


def test_options_unused_by_an_action_are_refused(path: str) -> None:
    study("run", path, "-q")
    for option in (["--on", "ray"], ["--workers", "2"], ["--estimate"]):
        for words in (["status", path], ["query", path, "select 1"], ["diff", path, path]):
            done = study(*words, *option)
            assert (done.exit_code, f"study {words[0]} simulates nothing" in done.stderr) == (
                2,
                True,
            )
    done = study("run", path, "--on", "ray", "--workers", "2")
    assert (done.exit_code, done.stderr) == (
        2,
        "octavo: workers 2: they are of this machine; leave them out with ray.\n",
    )


def test_a_program_that_cannot_be_recorded_is_refused_before_others_are(tmp_path: Path) -> None:
    (tmp_path / "listing").write_text("echo hello\n")
    (tmp_path / "listing").chmod(0o755)
    for program, why in (
        ("sort-none", "no program `sort-none` on PATH"),
        (str(tmp_path / "listing"), f"`{tmp_path}/listing` is neither an ELF program nor a script"),
    ):
        text = f'designs = "thp"\n[programs]\nls = ["ls"]\nsort = ["{program}", "x"]\n'
        path = written(tmp_path, text)
        done = study("run", path)
        assert done.exit_code == 2
        assert f"{path}: `programs.sort`: {why}" in done.stderr
        assert not (tmp_path / "one.results").exists()


@pytest.mark.long
def test_programs_are_recorded_once(tmp_path: Path) -> None:
    path = written(tmp_path, 'designs = "thp"\n[programs]\ntrue = ["true"]\n')
    assert study("run", path, "-q").exit_code == 0
    (trace,) = (tmp_path / "one.results/recordings").iterdir()
    before = trace.stat().st_mtime_ns
    assert study("run", path, "-q").exit_code == 0
    assert trace.stat().st_mtime_ns == before


def test_an_interrupted_recording_is_not_used(tmp_path: Path) -> None:
    """The interrupt arrives while the traced program waits for a writer of its pipe."""
    pipe, out = tmp_path / "pipe", tmp_path / "one.results"
    os.mkfifo(pipe)
    text = f'designs = "thp"\n[programs]\ncat = ["cat", "{pipe}"]\n'
    run = subprocess.Popen(
        [sys.executable, "-m", "octavo", "study", "run", written(tmp_path, text)],
        stderr=subprocess.PIPE,
        text=True,
    )
    writer = -1
    while writer < 0:
        assert run.poll() is None
        with suppress(OSError):  # no reader yet
            writer = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
        time.sleep(0.01)
    assert list(out.glob("staging/*.oct"))
    run.send_signal(signal.SIGTERM)
    message = run.communicate()[1]
    os.close(writer)
    assert run.returncode == 128 + signal.SIGTERM
    assert "octavo: interrupted before" in message
    assert not [path for path in out.rglob("*") if path.suffix in (".oct", ".parquet")]


def test_the_first_of_two_recordings_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = read_study(written(tmp_path, 'designs = "thp"\n[programs]\nls = ["ls"]\n'))
    data_set = DataSet(given.out)
    names = []

    def record(command: Any, path: Path) -> Any:
        names.append(path)
        path.write_text(f"{len(names)}")
        if len(names) == 1:
            recordings.record_program(given, "ls", data_set)
        about = {"exit": {"reason": "exited"}}
        return RecordedTrace(str(path), about, 1, 1, 1, 1, 0.0)

    monkeypatch.setattr(recordings, "record", record)
    recordings.record_program(given, "ls", data_set)
    assert given.recording("ls").read_text() == "2"
    assert len(set(names)) == 2
    assert not list(given.out.glob("staging/*"))


def test_a_recording_with_a_failed_tracer_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = read_study(written(tmp_path, 'designs = "thp"\n[programs]\nls = ["ls"]\n'))

    def record(command: Any, path: Path) -> Any:
        path.write_text("some")
        about = {"exit": {"reason": "tracer-failed"}, "partial_reason": "the tracer failed: x"}
        return RecordedTrace(str(path), about, 1, 1, 1, 1, 0.0)

    monkeypatch.setattr(recordings, "record", record)
    with pytest.raises(CannotRun, match="`ls` is not recorded: the tracer failed: x"):
        recordings.record_program(given, "ls", DataSet(given.out))
    assert given.unrecorded == ["ls"]
    assert not list(given.out.glob("staging/*"))


def test_the_failure_of_a_recorded_program_is_reported(tmp_path: Path) -> None:
    text = 'designs = "thp"\n[programs]\nf = ["sh", "-c", "echo out; exit 3"]\n'
    text += 's = ["sh", "-c", "kill -SEGV $$"]\n'
    command = [sys.executable, "-m", "octavo", "study", "run", written(tmp_path, text)]
    done = subprocess.run([*command, "--json", "-"], capture_output=True, text=True, check=True)
    document = json.loads(done.stdout)
    assert first_error(validator_of("study"), document) is None
    sentences = {
        "f": "STATUS 3: the program ended with this error status",
        "s": "the program was killed by SIGSEGV",
    }
    assert document["failed_programs"] == sentences
    assert "\nout\n" in done.stderr
    for message in (done.stderr, study("status", command[-1]).stderr):
        for name, why in sentences.items():
            assert f"`{name}`: {why}; its recording is used as it is.\n" in message


def killed_study(tmp_path: Path, name: str, kills: int, count: int) -> dict[str, bytes]:
    """The data set of a study that is killed a number of times, each time after it has made
    progress.
    """
    traces: dict[str, Any] = {f"t{n}": f"{ZIPF}&seed={n}" for n in range(10)}
    cpis = [0.5 + n / 100 for n in range(count)]
    named = ", ".join(f'{key} = "{uri}"' for key, uri in traces.items())
    text = [f"traces = {{{named}}}"]
    text += ['designs = ["base4k", "thp"]', f'parameters = {{"core.base_cpi" = {cpis}}}']
    place = tmp_path / f"{name}.toml"
    place.write_text("\n".join(text))
    out = tmp_path / f"{name}.results"
    command = [sys.executable, "-m", "octavo", "study", "run", str(place), "-q"]
    for _ in range(kills):
        before = len(files(out))
        run = subprocess.Popen(command)
        while run.poll() is None and len(files(out)) <= before:
            time.sleep(0.01)
        run.send_signal(signal.SIGKILL)
        run.wait()
    subprocess.run(command, check=True)
    return files(out)


@pytest.mark.long
def test_a_study_killed_ten_times_has_the_same_results(tmp_path: Path) -> None:
    killed = killed_study(tmp_path, "killed", kills=10, count=50)
    assert len(killed) == 1000
    assert killed == killed_study(tmp_path, "whole", kills=0, count=50)
