"""`octavo verify` as a user calls it, on small programs."""

from __future__ import annotations

import json
import mmap
import os
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import octavo
from called import invoke
from fakes import write_calibration
from octavo.actions.file_text import read_ahead, read_in_small_pages
from octavo.analysis.stored_result import programs_of_run, read_run
from octavo.base.errors import CannotRun, Interrupted, UsageError
from octavo.base.huge_pages import PMD_PAGE, read_huge_pages
from octavo.base.units import MIB
from octavo.verification import api
from octavo.verification.experiment import Experimenter, Measured
from octavo.verification.metric import Reading
from octavo.verification.outcome import Summary, predicted_gain
from octavo.verification.settings import (
    AS_NOW,
    THP_DISABLE,
    Setting,
    candidates,
    select,
    setting_of_words,
)
from octavo.verification.supervisor import Ended
from octavo.verification.view import progress_text
from schemas import first_error, validator_of
from verify_tree import THP, chosen, make_tree

PYTHON = sys.executable
pytestmark = pytest.mark.usefixtures("needs_settings")


def verify(*arguments: str, **more: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [PYTHON, "-m", "octavo", "verify", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        **more,
    )


def document(*arguments: str, **more: Any) -> dict[str, Any]:
    """The JSON document, which keeps to its schema."""
    done = verify("--json", "-", "-q", *arguments, **more)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    found: dict[str, Any] = json.loads(done.stdout)
    assert first_error(validator_of("verify"), found) is None
    return found


def setting(found: dict[str, Any], name: str) -> dict[str, Any]:
    (one,) = (one for one in found["settings"] if one["name"] == name)
    record: dict[str, Any] = one
    return record


# --- programs that end ---------------------------------------------------------------------------

COUNT = "import os, sys; print(os.environ.get('RATE', '5'), 'things per second', *sys.argv[1:])"
RATE = ("--metric", "regex:([0-9]+) things per second")


def test_numbers_of_the_output_decide(tmp_path: Path) -> None:
    program = [PYTHON, "-S", "-c", COUNT]
    found = document(
        *("--repetitions", "6", *RATE, "--settings", "RATE=6", "--try", "RATE=6", "--", *program)
    )
    assert found["rounds"] == 6
    assert [one["name"] for one in found["settings"]] == [AS_NOW, "RATE=6"]
    assert [one["failures"] for one in found["settings"]] == [[], []]
    assert setting(found, AS_NOW)["values"] == [5.0] * 6
    assert setting(found, "RATE=6")["ratio"]["median"] == pytest.approx(1.2)
    assert found["decision"]["best"] == "RATE=6"
    assert found["decision"]["beyond_noise"]
    assert "20.0% more" in found["decision"]["text"]


def test_the_table_goes_to_standard_error_and_output_to_the_user() -> None:
    arguments = ("--repetitions", "2", "--settings", "thp-disable", "--", "echo", "hello")
    done = verify(*arguments)
    assert done.returncode == 0, done.stderr
    # Each of the two settings runs once before the rounds, and once in each of the two rounds.
    assert done.stdout == "hello\n" * 6
    assert done.stderr.startswith("Too few rounds to separate a difference from noise: 2 counted")
    assert "thp-disable" in done.stderr
    assert "lower is better; 2 rounds of 2 settings" in done.stderr


def test_text_and_json_go_to_files(tmp_path: Path) -> None:
    text, file = tmp_path / "table", tmp_path / "json"
    arguments = ("-o", str(text), "--json", str(file), "--repetitions", "1", "--", "true")
    done = verify(*arguments)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert "Wall time in seconds, by setting" in text.read_text()
    assert json.loads(file.read_text())["schema"] == "octavo/verify/1"
    again = verify(*arguments)
    assert again.returncode == 2
    assert "exists; --force overwrites it." in again.stderr


@pytest.mark.parametrize("name", ["seconds", "ready_seconds"])
@pytest.mark.parametrize("value", [-1.0, 0.0, float("nan"), float("inf")])
def test_times_in_python_are_positive(name: str, value: float) -> None:
    given: Any = {name: value}
    with pytest.raises(octavo.OctavoError, match=f"^{name} .*: give a time above 0.$"):
        octavo.verify(["true"], **given)


def test_a_host_that_takes_memory_back_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "octavo").mkdir()
    write_calibration(
        tmp_path / "octavo/calibration.toml",
        """
[fault_cycles]
"2MiB" = {low = 400000, median = 400000, high = 400000}
[returned_fault_cycles]
"2MiB" = {low = 12000000, median = 12900000, high = 13000000}
""",
    )
    expected = "takes 5.0 ms longer for each 2 MiB page that it touches"
    before = octavo.verify(["true"], repetitions=1).notes
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    after = octavo.verify(["true"], repetitions=1).notes
    assert [any(expected in note for note in notes) for notes in (before, after)] == [False, True]


def test_a_file_at_standard_input_is_given_to_every_run(tmp_path: Path) -> None:
    file = tmp_path / "words"
    file.write_text("skipped\nword\n" * 20)
    with file.open() as words:
        os.lseek(words.fileno(), len("skipped\n"), os.SEEK_SET)
        found = document(
            *("--repetitions", "1", "--metric", "regex:([0-9]+)", "--better", "higher"),
            *("--settings", "thp-disable", "--", "wc", "-c"),
            stdin=words,
        )
    assert [one["values"] for one in found["settings"]] == [[13 * 20 - 8]] * 2


TOUCH = """\
import mmap, os, signal, sys
size, advice, forks, mark = [*map(int, sys.argv[1:4]), sys.argv[4]]
area = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
area.madvise(advice)
if forks:
    os.fork()
for place in range(0, size, 4096):
    area[place] = 1
with open(mark, "a") as file:
    file.write("x")
signal.pause()
"""


def touching(size: int, advice: int, forks: int, mark: Path) -> dict[str, Any]:
    """A server that holds memory in one process or two, inspected once it holds all."""
    ready = f"test $(wc -c < {mark} || echo 0) = {1 + forks} && rm {mark}"
    mark.touch()
    return document(
        *("--repetitions", "1", "--metric", "time:true", "--ready", ready),
        *("--settings", "thp-disable", "--"),
        *(PYTHON, "-S", "-c", TOUCH, str(size), str(advice), str(forks), str(mark)),
    )


def test_memory_and_faults_of_all_processes_are_counted(tmp_path: Path) -> None:
    size = 24 * MIB
    found = touching(size, mmap.MADV_NOHUGEPAGE, 1, tmp_path / "mark")
    now = setting(found, AS_NOW)
    assert now["minor_faults"] >= 2 * size // 4096
    assert 2 * size <= now["peak_resident_bytes"] <= 2 * size + 64 * MIB
    assert sum(now["huge_bytes"].values()) == 0


@pytest.mark.skipif(
    read_huge_pages().thp_sizes.get(PMD_PAGE) not in ("madvise", "always"),
    reason="this kernel gives no 2 MiB pages where they are asked for",
)
def test_huge_pages_are_those_that_a_setting_leaves(tmp_path: Path) -> None:
    size = 64 * MIB
    found = touching(size, mmap.MADV_HUGEPAGE, 0, tmp_path / "mark")
    now, without = setting(found, AS_NOW), setting(found, "thp-disable")
    assert 0 < now["huge_bytes"]["anonymous"] <= size + 2 * MIB
    assert max(region["huge_bytes"] for region in now["regions"]) > 0
    assert sum(without["huge_bytes"].values()) == 0
    assert without["minor_faults"] > size // 4096


SWITCH = """\
import ctypes, pathlib, signal, sys
assert ctypes.CDLL(None).prctl(41, int(sys.argv[1]), 0, 0, 0) == 0
pathlib.Path(sys.argv[2]).touch()
signal.pause()
"""


@pytest.mark.parametrize("off", [True, False])
def test_a_program_that_switches_huge_pages_off_is_noted(tmp_path: Path, off: bool) -> None:
    mark = tmp_path / "mark"
    found = document(
        *("--repetitions", "1", "--metric", "time:true", "--ready", f"rm {mark}"),
        # The switch of this setting is not the program's own, and has no note.
        *("--settings", "thp-disable", "--"),
        *(PYTHON, "-S", "-c", SWITCH, str(int(off)), str(mark)),
    )
    notes = [text for text in found["notes"] if "PR_SET_THP_DISABLE" in text]
    assert len(notes) == off


@pytest.mark.parametrize(
    ("page_size", "peak", "huge", "lacks"),
    [
        (PMD_PAGE, MIB, 0, True),
        (PMD_PAGE, MIB, PMD_PAGE, False),
        (PMD_PAGE, None, 0, False),
        (None, MIB, 0, False),
    ],
    ids=["none", "some", "not looked at", "gives none"],
)
def test_a_setting_that_gives_no_huge_pages_is_known(
    page_size: int | None, peak: int | None, huge: int, lacks: bool
) -> None:
    measured = Measured(Setting("glibc-thp", "", page_size=page_size))
    nothing = (None, None, None)
    summary = Summary(measured, *nothing, peak, {"anonymous": huge}, {}, False, None, None, None)
    assert summary.lacks_huge_pages == lacks


def spent_in(file: Path) -> list[float]:
    """Seconds of processor time that a program wrote, a line for each run."""
    return [float(line) for line in file.read_text().splitlines()]


def test_processor_time_is_of_the_program_alone(tmp_path: Path) -> None:
    file = tmp_path / "spent"
    text = "import sys, time\nfor _ in range(3_000_000): pass\n"
    text += "open(sys.argv[1], 'a').write(f'{time.process_time()}\\n')"
    busy = [PYTHON, "-S", "-c", text, str(file)]
    found = api.verify(busy, metric=["cpu"], repetitions=1, settings=["thp-disable"])
    (value,) = found.document()["settings"][0]["values"]
    assert min(spent_in(file)) <= value < max(spent_in(file)) + 0.1


def test_tries_are_measured_with_the_chosen_settings() -> None:
    found = api.verify(["true"], repetitions=1, settings=["thp-disable"], tries=["MARK=1"])
    names = [setting["name"] for setting in found.document()["settings"]]
    assert names == ["as now", "thp-disable", "MARK=1"]


@pytest.mark.parametrize(("rounds", "few"), [(2, " (too few: 6 is the least)"), (6, "")])
def test_progress_names_rounds_that_are_too_few(rounds: int, few: str) -> None:
    """The least number of rounds is the one for a single comparison, as in the result."""
    seen: list[str] = []
    api.verify(
        ["true"],
        repetitions=rounds,
        settings=["thp-disable"],
        on_progress=lambda progress: seen.append(progress_text(progress)),
    )
    assert seen[0].startswith("beforehand, as now, ")
    assert any(text.startswith(f"round 1 of {rounds}{few}, ") for text in seen)


def test_processes_left_behind_are_ended() -> None:
    leaving = ["sh", "-c", "sleep 1000 & exit 0"]
    found = api.verify(leaving, repetitions=1, settings=["thp-disable"])
    assert "left processes behind; they were ended after each run." in " ".join(found.notes)


def test_the_predicted_gain_is_shown(tmp_path: Path) -> None:
    gain = {"low": 0.05, "expected": 0.12, "high": 0.2}
    data = {"scope": "program", "stream": "data", "gain": gain, "gain_page_size": PMD_PAGE}
    data |= {"page_size": PMD_PAGE, "usable_page_size": PMD_PAGE, "region_kind": None}
    file = tmp_path / "result.json"
    file.write_text(json.dumps({"schema": "octavo/run/1", "advice": [{"scope": "answer"}, data]}))
    (tmp_path / "manifest.json").write_text("{}")
    arguments = ("--repetitions", "1", "--settings", "X=1", "--try", "X=1", "--", "true")
    found = document("--from", str(tmp_path), *arguments)
    assert setting(found, AS_NOW)["predicted"] is None
    assert setting(found, "X=1")["predicted"] == {"page_size": PMD_PAGE, **gain, "of": "data"}
    done = verify("--from", str(file), *arguments)
    assert "12.0% (5.0% to 20.0%)" in done.stderr
    text = " ".join(done.stderr.split())
    assert "Predicted for X=1: the time that 2 MiB pages for all data save" in text
    assert predicted_gain({"advice": [{**data, "gain": None}]}) is None
    file.write_text(json.dumps({"schema": "octavo/sim/1"}))
    with pytest.raises(CannotRun, match="is not a result of `octavo run`"):
        read_run(str(tmp_path))


def test_the_prediction_of_a_setting_covers_the_memory_it_reaches() -> None:
    """The switch does not reach one of the regions. A library that is loaded late does not reach
    the page faults at first touches.
    """
    switch = {"kind": "malloc", "name": "switch 2MiB", "page_size": PMD_PAGE, "command": "A=1 x"}
    library = {**switch, "kind": "apply", "name": "preload 2MiB"}
    walks = {"low": 0.01, "expected": 0.04, "high": 0.1}
    whole = {
        "scope": "program",
        "stream": "data",
        "reason": "gain",
        "page_size": PMD_PAGE,
        "usable_page_size": PMD_PAGE,
        "gain_page_size": PMD_PAGE,
        "gain": {"low": 0.05, "expected": 0.12, "high": 0.2},
        "gain_of_walks": walks,
        "actions": [switch, library],
    }
    arenas = {
        **whole,
        "scope": "region",
        "region": "malloc arena of a thread",
        "region_kind": "anonymous",
        "gain": {"low": 0.02, "expected": 0.03, "high": 0.05},
        "gain_of_walks": {"low": 0.0, "expected": 0.01, "high": 0.02},
        "actions": [library],
    }
    document = {"advice": [{"scope": "answer"}, whole, arenas]}

    def predicted(name: str, **more: Any) -> tuple[float, str] | None:
        found = predicted_gain(document, Setting(name, "", page_size=PMD_PAGE, **more))
        return None if found is None else (round(found.expected, 6), found.of)

    assert predicted("switch 2MiB") == (0.09, "setting")
    assert predicted("preload 2MiB", is_late=True) == (0.04, "setting")
    assert predicted("other 2MiB") == (0.12, "data")
    # A library that the advice does not name reaches all memory that is not shared.
    library |= {"name": "shared 2MiB", "kind": "thp"}
    arenas["region_kind"] = "shared"
    assert predicted("preload 2MiB", is_late=True) == (0.03, "setting")
    assert predicted_gain(document, Setting("thp-disable", "")) is None


@pytest.mark.parametrize("lacking", ["reason", "usable_page_size"])
def test_advice_that_cannot_be_read_is_refused_before_anything_runs(
    tmp_path: Path, lacking: str
) -> None:
    gain = {"low": 0.05, "expected": 0.12, "high": 0.2}
    action = {"kind": "malloc", "name": "X=1", "page_size": PMD_PAGE, "command": "X=1 true"}
    data = {"scope": "program", "stream": "data", "gain": gain, "gain_page_size": PMD_PAGE}
    data |= {"reason": "gain", "usable_page_size": PMD_PAGE, "actions": [action]}
    del data[lacking]
    # A `run` whose fields have other types.
    run = {"program": 3, "directory": 3, "processes": [3]}
    file = tmp_path / "result.json"
    file.write_text(json.dumps({"schema": "octavo/run/1", "advice": [data], "run": run}))
    done = verify("--from", str(file), "--try", "X=1", "--", "touch", str(tmp_path / "run"))
    assert (done.returncode, (tmp_path / "run").exists()) == (125, False)
    assert "its advice is damaged, or of another version." in done.stderr
    assert programs_of_run({"run": run}) == ()


@pytest.mark.parametrize(("traced", "is_other"), [("/usr/bin/sort", True), (None, False)])
def test_a_result_of_another_program_is_noted(
    tmp_path: Path, traced: str | None, is_other: bool
) -> None:
    program = shutil.which("true") if traced is None else traced
    result = {"schema": "octavo/run/1", "advice": [], "run": {"program": program}}
    file = tmp_path / "result.json"
    file.write_text(json.dumps(result))
    done = verify(
        "--from", str(file), "--repetitions", "1", "--settings", "thp-disable", "--", "true"
    )
    assert ("is of another program, `/usr/bin/sort`." in done.stderr) == is_other


# --- programs that fail --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("metric", "script", "sentence"),
    [
        ("time", "exit 3", "cannot be measured as it is: it ended with status 3."),
        (RATE[1], "echo too bad >&2; exit 3", "status 3 (its last line: too bad)"),
        (RATE[1], "echo too bad", "is not in the output (its last line: too bad)"),
        ("time", "kill -SEGV $$", "ended with signal SIGSEGV"),
    ],
)
def test_a_program_that_fails_is_not_measured(metric: str, script: str, sentence: str) -> None:
    with pytest.raises(CannotRun) as refused:
        api.verify(["sh", "-c", script], metric=[metric])
    assert sentence in str(refused.value)


def test_a_setting_under_which_the_program_fails_is_left_out() -> None:
    program = ("sh", "-c", "exit ${STATUS:-0}")
    found = document("--repetitions", "1", "--try", "STATUS=4", "--", *program)
    assert setting(found, "STATUS=4")["dropped"] == "it ended with status 4"
    assert setting(found, "STATUS=4")["values"] == []


def test_occasional_failures_do_not_count(tmp_path: Path) -> None:
    """The third run fails. It is the first one that is timed."""
    script = f"echo x >> {tmp_path}/runs; test $(wc -l < {tmp_path}/runs) != 3"
    arguments = ("--repetitions", "3", "--settings", "thp-disable", "--", "sh", "-c", script)
    found = document(*arguments)
    failures = [failure for one in found["settings"] for failure in one["failures"]]
    assert failures == [{"reason": "it ended with status 1", "runs": 1}]
    assert sum(one["values"].count(None) for one in found["settings"]) == 1
    assert setting(found, "thp-disable")["ratio"]["values"] == 2


@pytest.mark.parametrize(
    ("arguments", "status", "sentence"),
    [
        (["--", "no-such-program-here"], 127, "no program `no-such-program-here` on PATH"),
        (["--settings", "thp-for-al 2MiB", "--", "true"], 2, "unknown setting `thp-for-al 2MiB`"),
        (["--settings", "thp-for-all 2MiB", "--", "true"], 2, "add --allow-system"),
        (["--settings", "thp-for-all", "--", "true"], 2, "add --allow-system"),
        (
            ["--settings", "jemalloc-thp", "--", "true"],
            2,
            "setting `jemalloc-thp` does not apply to `true`: it is for programs with jemalloc "
            "(recognised here: glibc's malloc).",
        ),
        (
            ["--settings", "thp-disable,glibc-thp 2MiB", "--", PYTHON],
            2,
            ": Python manages this memory itself, and has settings of its own.",
        ),
        (
            ["--settings", "glibc-hugetlb", "--", "true"],
            2,
            ": this kernel has no pages of its size.",
        ),
        (["--time", "soon", "--", "true"], 2, "--time: `soon` is not a duration"),
        (
            ["--ready", "true", "--", "true"],
            2,
            "--ready goes with a server: --metric command:COMMAND, time:COMMAND or cpu:COMMAND.",
        ),
        (["--ready", "port:x", "--metric", "time:x", "--", "true"], 2, "from 1 to 65535"),
        (
            ["--ready", "port:\u0668\u0660", "--metric", "time:x", "--", "true"],
            2,
            "from 1 to 65535",
        ),
        (["--try", "", "--", "true"], 2, "--try is empty"),
        (["--try", "'", "--", "true"], 2, "No closing quotation"),
        (["--restore", "true"], 2, "--restore takes no PROGRAM"),
        (["--from", "/no/such/dir", "--", "true"], 125, "cannot read `/no/such/dir`"),
        (["--repetitions", "1"], 2, "no PROGRAM given"),
    ],
)
def test_invalid_options_are_errors(
    arguments: list[str], status: int, sentence: str, tmp_path: Path
) -> None:
    words = ["verify", "--sysfs-root", str(make_tree(tmp_path)), *arguments]
    done = invoke(*words)
    assert done.exit_code == status, done.stderr
    assert sentence in done.stderr


# --- interrupts ----------------------------------------------------------------------------------

INTERRUPT = """\
import os, signal, sys, time
runs = sys.argv[1]
with open(runs, "a") as file:
    file.write("x")
if os.path.getsize(runs) == 7:
    supervisor = open(f"/proc/{os.getppid()}/stat").read().rpartition(")")[2].split()
    os.kill(int(supervisor[1]), signal.SIGINT)
    time.sleep(1000)
"""


def test_an_interrupt_keeps_finished_rounds(tmp_path: Path) -> None:
    """The program interrupts its seventh run: two runs before the rounds, two rounds of two runs,
    and the first run of the third round.
    """
    file = tmp_path / "result.json"
    root = make_tree(tmp_path)
    before = chosen(root)
    arguments = ("--json", str(file), "--allow-system", "--sysfs-root", str(root), "--settings")
    program = (PYTHON, "-S", "-c", INTERRUPT, str(tmp_path / "runs"))
    done = verify(*arguments, "thp-for-all 2MiB", "--", *program)
    assert done.returncode == 130, done.stderr
    assert chosen(root) == before
    assert not (root / "var/lib/octavo/saved-settings.json").exists()
    assert done.stderr.startswith("INTERRUPTED: these are the rounds that were finished.")
    found = json.loads(file.read_text())
    assert first_error(validator_of("verify"), found) is None
    assert (found["interrupted_by"], found["rounds"]) == (2, 2)
    assert (tmp_path / "runs").stat().st_size == 7


def test_the_program_is_ended_with_a_killed_octavo(tmp_path: Path) -> None:
    """The program keeps a pipe open as long as it lives."""
    script = (
        "import os, signal, time\n"
        "parent = open(f'/proc/{os.getppid()}/stat').read().rpartition(')')[2].split()[1]\n"
        "os.kill(int(parent), signal.SIGKILL)\n"
        "os.close(0); time.sleep(1000)\n"
    )
    done = verify("--", PYTHON, "-S", "-c", script)
    # `verify` returned, so the program, which kept the pipe open, has ended.
    assert done.returncode == -9


# --- servers -------------------------------------------------------------------------------------

SERVE = """\
import socket, sys
server = socket.socket()
server.bind(("127.0.0.1", 0))
server.listen()
open(sys.argv[1], "w").write(str(server.getsockname()[1]))
while True:
    with server.accept()[0] as client:
        client.sendall(b"GET: 120.5 requests per second\\n")
"""
ASK = (
    f'{PYTHON} -S -c \'import socket; port = int(open("PORT").read()); '
    'client = socket.create_connection(("127.0.0.1", port)); '
    "print(client.recv(99).decode())'"
)


def test_a_server_is_awaited_measured_and_ended(tmp_path: Path) -> None:
    ask = ASK.replace("PORT", str(tmp_path / "port"))
    prepared = tmp_path / "prepared"
    found = document(
        *("--repetitions", "1", "--metric", f"command:{ask}", "--prepare", f"echo >> {prepared}"),
        *("--settings", "thp-disable", "--"),
        *(PYTHON, "-S", "-c", SERVE, str(tmp_path / "port")),
    )
    assert [one["values"] for one in found["settings"]] == [[120.5], [120.5]]
    assert found["metric"]["name"] == "requests per second"
    assert found["metric"]["better"] == "higher"
    assert setting(found, AS_NOW)["peak_resident_bytes"] > MIB
    assert len(prepared.read_text()) == 4


BUSY = """\
import signal, sys, time
def work(*_):
    began = time.process_time()
    for _ in range(3_000_000):
        pass
    open(sys.argv[1] + ".spent", "a").write(f"{time.process_time() - began}\\n")
    open(sys.argv[1], "w").write("done")
signal.signal(signal.SIGUSR1, work)
open(sys.argv[1] + ".pid", "w").write(str(__import__("os").getpid()))
while True:
    signal.pause()
"""


def test_processor_time_of_a_server_is_that_of_the_load(tmp_path: Path) -> None:
    """The load makes the server work, and waits for the end of the work."""
    mark = tmp_path / "mark"
    # The load removes the files, so that the next server is not taken for this one.
    load = f"kill -USR1 $(cat {mark}.pid) && until test -s {mark}; do sleep 0.01; done"
    load += f" && rm {mark} {mark}.pid"
    found = api.verify(
        [PYTHON, "-S", "-c", BUSY, str(mark)],
        metric=[f"cpu:{load}"],
        ready=f"test -s {mark}.pid",
        repetitions=1,
        settings=["thp-disable"],
    )
    values = [value for one in found.summaries for value in one.measured.values]
    assert len(values) == 2
    spent = spent_in(Path(f"{mark}.spent"))
    for value in values:
        assert value is not None
        assert min(spent) <= value < max(spent) + 0.1


def test_a_daemon_is_a_server_too(tmp_path: Path) -> None:
    """The first process ends at once, and the socket belongs to a grandchild in another session."""
    daemon = "import os\nif os.fork(): os._exit(0)\nos.setsid()\nif os.fork(): os._exit(0)\n"
    # The load removes the file: the next server is ready when it has written its own.
    load = f"time:rm {tmp_path}/port"
    found = document(
        *("--repetitions", "1", "--metric", load, "--ready", f"test -s {tmp_path}/port"),
        *("--settings", "thp-disable", "--"),
        *(PYTHON, "-S", "-c", daemon + SERVE, str(tmp_path / "port")),
    )
    assert setting(found, AS_NOW)["values"][0] > 0
    assert setting(found, AS_NOW)["failures"] == []


def test_a_daemon_that_ends_is_no_server() -> None:
    """The last process is an orphan, as its parent has ended."""
    daemon = "import os\nif os.fork(): os._exit(0)\nos.setsid()\nif os.fork(): os._exit(0)\n"
    with pytest.raises(CannotRun, match="the server ended by itself"):
        api.verify([PYTHON, "-S", "-c", daemon + "os._exit(7)"], metric=["time:true"])


@pytest.mark.parametrize(
    ("options", "program", "sentence"),
    [
        ({}, "exit 3", "the server ended by itself with status 3"),
        ({"ready_seconds": 0.2}, "exec sleep 100", "the server did not listen within 0.2 s"),
        ({"ready": "no-such-word"}, "exec sleep 100", "finds no command `no-such-word` (--ready)"),
        (
            {"ready": "false", "ready_seconds": 0.2},
            "exec sleep 100",
            "the server was not ready by `false` within 0.2 s",
        ),
        ({"ready": "true", "metric": ["command:exit 5"]}, "exec sleep 100", "--metric ended with"),
        (
            {"ready": "true", "metric": ["time:sleep 1000"]},
            "exit 3",
            "ended by itself with status 3",
        ),
        ({"ready": "true", "prepare": "exit 5"}, "exec sleep 100", "--prepare ended with status 5"),
        (
            {"ready": "true"},
            "exec sleep 100",
            "no format that Octavo knows and is not a number alone",
        ),
    ],
)
def test_a_failed_server_is_reported(options: dict[str, Any], program: str, sentence: str) -> None:
    with pytest.raises(CannotRun) as refused:
        api.verify(["sh", "-c", program], **{"metric": ["command:echo nothing"], **options})
    assert sentence in str(refused.value)


# --- settings ------------------------------------------------------------------------------------


def test_system_settings_hold_during_a_run_and_not_after(tmp_path: Path) -> None:
    root = make_tree(tmp_path)
    before = chosen(root)
    names = [name for name in sorted(before) if name.startswith(THP)]
    for name in names:
        (root / name.lstrip("/")).write_text(f"{before[name]}\n")
    files = " ".join(f"{root}{name}" for name in names)
    log = tmp_path / "log"
    done = verify(
        *("--repetitions", "1", "--allow-system", "--sysfs-root", str(root)),
        *("--settings", "thp-for-all 2MiB,thp-for-all 64KiB", "--"),
        *("sh", "-c", f"cat {files} | tr '\\n' ' ' >> {log}; echo >> {log}"),
    )
    assert done.returncode == 0, done.stderr
    assert chosen(root) == before
    # The general setting, and those of 2 MiB and of 64 KiB. Each of three combinations runs twice.
    seen = sorted(line.strip() for line in log.read_text().splitlines())
    wanted = ["madvise inherit never", "madvise always never", "madvise inherit always"]
    assert seen == sorted(2 * wanted)


def test_restore_without_changed_settings_does_nothing(tmp_path: Path) -> None:
    root = make_tree(tmp_path)
    done = verify("--restore", "--sysfs-root", str(root))
    assert (done.returncode, done.stderr.split(":")[0]) == (0, "Nothing to restore")


def test_candidates_depend_on_the_machine(tmp_path: Path) -> None:
    root = make_tree(tmp_path)
    found, _ = candidates(["sort"], read_huge_pages(root, libc="glibc 2.36"))
    names = [one.name for one in found]
    assert names[0] == AS_NOW
    assert {"glibc-thp 2MiB", "thp-disable", "thp-for-all 2MiB", "thp-for-all 64KiB"} <= {*names}
    # Settings of the program come before those of the system.
    assert [bool(one.system) for one in found] == sorted(bool(one.system) for one in found)
    assert not any(one.prefix for one in found)
    (root / f"{THP}/enabled".lstrip("/")).unlink()
    found, notes = candidates(["sort"], read_huge_pages(root))
    assert [one.name for one in found] == [AS_NOW]
    assert "no transparent huge pages" in notes[0]


def test_the_preloaded_library_is_tried_without_the_start_of_octavo(tmp_path: Path) -> None:
    found, notes = candidates(["sort"], read_huge_pages(make_tree(tmp_path), kernel="6.18"))
    preloaded = [one for one in found if one.name.startswith("preload")]
    if not preloaded:
        assert "not built" in notes[0]
        return
    assert preloaded[0].argv(["sort", "x"]) == ["sort", "x"]
    assert preloaded[0].environment["LD_PRELOAD"].endswith(".so")
    assert preloaded[0].environment["OCTAVO_APPLY_FILL"] == "50"
    found, _ = candidates(
        ["sort"], read_huge_pages(make_tree(tmp_path), kernel="6.18"), min_fill_percent=30
    )
    other = next(one for one in found if one.name.startswith("preload"))
    assert other.environment["OCTAVO_APPLY_FILL"] == "30"


def test_a_users_own_values_are_kept() -> None:
    own = Setting("x", "", environment={"GLIBC_TUNABLES": "b=2", "OTHER": "new"})
    joined = own.environment_over({"GLIBC_TUNABLES": "a=1", "OTHER": "old", "HOME": "/"})
    assert joined == {"GLIBC_TUNABLES": "a=1:b=2", "OTHER": "new", "HOME": "/"}


def test_text_in_huge_pages_is_that_of_its_own_setting_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page cache keeps text in huge pages, so other settings must not use the same file."""
    file = tmp_path / "text"
    file.write_bytes(bytes(8192))
    monkeypatch.setattr("octavo.actions.file_text.why_not", lambda *host: None)
    text = read_ahead(str(file), read_huge_pages())
    assert text is not None
    settings = [Setting(AS_NOW, ""), Setting(text.name, "", prefix=text.prefix)]
    monkeypatch.setattr(api, "candidates", lambda *given: (settings, []))
    read: list[str] = []
    monkeypatch.setattr("octavo.verification.experiment.read_in_small_pages", read.append)
    found = octavo.verify(["true"], repetitions=3)
    runs = sum(1 + len(one.measured.runs) for one in found.summaries if one.name == text.name)
    assert runs >= 1
    assert read == [str(file)] * runs
    read_in_small_pages(str(file))


@pytest.mark.parametrize("end", ["as much", "more", "not looked at", "failed", "interrupted"])
def test_text_is_restored_unless_a_run_is_known_to_have_had_no_more_in_huge_pages(
    monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    monkeypatch.setattr("octavo.actions.file_text.why_not", lambda *host: None)
    text = read_ahead("/usr/bin/true", read_huge_pages())
    assert text is not None
    settings = [Setting(AS_NOW, ""), Setting(text.name, "", prefix=text.prefix)]
    monkeypatch.setattr(api, "candidates", lambda *given: (settings, []))

    def measured(self: Experimenter, setting: Setting, *, is_timed: bool) -> tuple[Ended, Reading]:
        ended = Ended(0, samples=1)
        ended.huge_bytes["file"] = 4 * MIB
        if setting.name == AS_NOW:
            return ended, Reading(1.0)
        if end == "interrupted":
            os.kill(os.getpid(), signal.SIGINT)
            self._tick()
        if end == "failed":
            raise CannotRun("it ended with exit status 1")
        if end == "more":
            ended.huge_bytes["file"] = 6 * MIB
        return (Ended(0) if end == "not looked at" else ended), Reading(1.0)

    monkeypatch.setattr(Experimenter, "_measured", measured)
    read: list[str] = []
    monkeypatch.setattr("octavo.verification.experiment.read_in_small_pages", read.append)
    with suppress(Interrupted):
        octavo.verify(["true"], repetitions=1)
    # After a run before the rounds that fails or is interrupted, no other run follows.
    runs = {"as much": 0, "failed": 1, "interrupted": 1}.get(end, 2)
    assert read == ["/usr/bin/true"] * runs


def test_sigterm_reaches_the_handler_of_the_python_program_that_calls() -> None:
    arrived: list[int] = []
    left = [signal.SIGTERM]

    def interrupt(progress: object) -> None:
        if left:
            os.kill(os.getpid(), left.pop())

    before = signal.signal(signal.SIGTERM, lambda number, frame: arrived.append(number))
    try:
        with suppress(Interrupted):
            octavo.verify(["true"], repetitions=100, on_progress=interrupt)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert arrived == [signal.SIGTERM]


def test_a_program_without_huge_anonymous_memory_is_not_measured_without_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its text may be in huge pages, which PR_SET_THP_DISABLE does not change."""
    settings = [Setting(AS_NOW, ""), Setting(THP_DISABLE, "", thp_disable=0), Setting("x", "")]
    monkeypatch.setattr(api, "candidates", lambda *given: (settings, []))
    found = octavo.verify(["true"], repetitions=1)
    dropped = {one.name: one.measured.dropped for one in found.summaries}
    why = "anonymous memory of the program has no huge pages as it is"
    assert dropped == {AS_NOW: None, THP_DISABLE: why, "x": None}


def test_words_of_try_are_variables_then_options() -> None:
    found = setting_of_words("A=1 B='x y' -XX:+UseTransparentHugePages C=3")
    assert found.environment == {"A": "1", "B": "x y"}
    assert found.arguments == ("-XX:+UseTransparentHugePages", "C=3")
    assert found.argv(["java", "Main"]) == [
        "java",
        "-XX:+UseTransparentHugePages",
        "C=3",
        "Main",
    ]


def test_settings_are_chosen_by_name() -> None:
    known = [Setting(name, "") for name in (AS_NOW, "a", "b")]
    assert [one.name for one in select(known, ["b"])] == [AS_NOW, "b"]
    assert [one.name for one in select(known, None)] == [AS_NOW, "a", "b"]
    with pytest.raises(UsageError, match="unknown setting `c`"):
        select(known, ["b", "c"])


def test_a_setting_is_chosen_without_its_page_size_where_there_is_one() -> None:
    sized = ("preload 2MiB", "thp 2MiB", "thp 64KiB")
    known = [Setting(name, "") for name in (AS_NOW, *sized, "thp-disable")]
    assert [one.name for one in select(known, ["preload", "thp-disable"])][1:] == [
        "preload 2MiB",
        "thp-disable",
    ]
    with pytest.raises(UsageError, match="setting `thp`: give `thp 2MiB` or `thp 64KiB`"):
        select(known, ["thp"])
    with pytest.raises(UsageError, match="`perload`; did you mean `preload 2MiB`"):
        select(known, ["perload"])
