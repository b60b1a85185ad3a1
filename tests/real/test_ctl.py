"""A run that is controlled while it goes on: status, start, stop, snapshot, and what ends it."""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from octavo.base.errors import CannotRun
from octavo.control.client import ctl
from octavo.control.place import places
from octavo.control.server import peer_of
from octavo.runs.configuration import MEMORY_WARNING
from schemas import first_error, validator_of

from .conftest import OCTAVO, TIMEOUT_SECONDS, WORKLOADS, Octavo, Traced, natively, workload

PAGE = 4096
# Instructions and pages of a program's own start and of answering a line, generously.
SMALL = 400


class Server:
    """`workloads/requests` under Octavo, with a pipe to its standard input."""

    def __init__(self, place: Path, *options: str, verb: str = "run") -> None:
        self.result = place / "final.json"
        self._place = place
        command = [OCTAVO, verb, "-q", "--json", self.result, *options, "--"]
        self.octavo = subprocess.Popen(
            [*command, WORKLOADS / "requests"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.pid = int(self.said().split()[1])

    def said(self) -> str:
        assert self.octavo.stdout is not None
        return self.octavo.stdout.readline()

    def ask(self, line: str) -> str:
        """A line to the program, and its answer."""
        assert self.octavo.stdin is not None
        self.octavo.stdin.write(f"{line}\n")
        self.octavo.stdin.flush()
        return self.said()

    def ctl(self, action: str, pid: int | None = None) -> dict[str, Any]:
        """The answer of the run."""
        return ctl(pid or self.pid, action)

    def status(self) -> dict[str, Any]:
        return self.ctl("status")

    def snapshot(self) -> Traced:
        answer = Traced(0, b"", b"", self.ctl("snapshot"))
        answer.check()
        assert not answer.run["partial"]
        assert answer.run["exit"]["reason"] == "running"
        return answer

    def end(self) -> Traced:
        """At the end of input."""
        stdout, stderr = self.octavo.communicate(timeout=TIMEOUT_SECONDS)
        document = json.loads(self.result.read_text()) if self.result.exists() else None
        status = self.octavo.returncode
        return Traced(status, stdout.encode(), stderr.encode(), document)


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Any]:
    servers: list[Server] = []

    def start(*options: str, verb: str = "run") -> Server:
        servers.append(Server(tmp_path, *options, verb=verb))
        return servers[-1]

    yield start
    for server in servers:
        if server.octavo.poll() is None:
            server.octavo.terminate()
            server.octavo.communicate(timeout=TIMEOUT_SECONDS)


def memory(traced: Traced) -> int:
    """Pages of data touched by the whole run."""
    row = traced.row(component="memory", stream="data", page_size=PAGE)
    return int(row["touched_bytes"]) // PAGE


def pages(traced: Traced) -> int:
    """Pages touched of the memory that requests store to."""
    rows = traced.rows(component="memory", stream="data", page_size=PAGE, region="requests data")
    return sum(int(row["touched_bytes"]) for row in rows) // PAGE


def test_snapshots_grow_up_to_the_final_result(serve: Any) -> None:
    server = serve()
    seen = []
    for count in (100, 300, 600):
        assert server.ask(f"touch {count}") == f"touched {count}\n"
        seen.append(server.snapshot())
    # A few pages of the same file hold other data.
    first, *later = map(pages, seen)
    assert 100 <= first < 120
    assert [count - first for count in later] == [200, 500]
    for before, after in itertools.pairwise(seen):
        assert before.count("references") < after.count("references")
        old = {_key(row): row for row in before.document["rows"]}
        new = {_key(row): row for row in after.document["rows"]}
        assert old.keys() <= new.keys()
        for key, row in old.items():
            if row["component"] == "memory.huge_pages":
                # A page that was touched in part grows less once the rest of it is touched.
                continue
            for name in ("accesses", "hits", "misses", "touched_bytes", "value"):
                assert row.get(name, 0) <= new[key].get(name, 0), key
    # Killed where it waits, the program has done nothing since.
    os.kill(server.pid, signal.SIGKILL)
    final = server.end()
    assert final.document is not None
    assert final.document["rows"] == seen[-1].document["rows"]
    assert final.run["trace_hash"] == seen[-1].run["trace_hash"]
    assert final.run["partial"], "it was killed"


def _key(row: dict[str, Any]) -> str:
    names = ("accesses", "hits", "misses", "touched_bytes", "peak_resident_bytes", "value")
    derived = ("mpki", "miss_ratio", "growth", "rate", "bytes", "start")
    identity = {
        name: value
        for name, value in row.items()
        if name not in names and not isinstance(value, float) and name not in derived
    }
    return json.dumps(identity, sort_keys=True)


def test_start_and_stop_bound_what_counts(serve: Any) -> None:
    server = serve("--start-after", "ctl")
    server.ask("touch 4000")
    assert not server.status()["counting"]
    with pytest.raises(CannotRun, match="nothing has been counted yet"):
        server.ctl("snapshot")
    server.ctl("start")
    server.ask("touch 50")
    assert not server.ctl("stop")["counting"]
    server.ask("touch 8000")
    first = server.snapshot()
    # Memory is also what was there when counting began.
    assert 4000 <= memory(first) < 4000 + SMALL
    # Exactly what was asked for: the stores of fifty pages, and no others of the eight thousand.
    stopped = server.status()["references"]
    server.ask("touch 8000")
    assert server.status()["references"] == stopped
    server.ctl("start")
    server.ask("touch 1000")
    server.ctl("stop")
    last = server.snapshot()
    assert 8000 <= memory(last) < 8000 + SMALL
    final = server.end()
    assert final.status == 0
    assert not final.run["partial"]
    assert MEMORY_WARNING not in final.run["warnings"]
    assert _misses_and_memory(final) == _misses_and_memory(last)
    assert final.count("references") == last.count("references")


def test_system_calls_after_a_stop_do_not_count(serve: Any) -> None:
    def kernel_seconds(traced: Traced) -> float:
        assert traced.document is not None
        return float(traced.document["advice"][0]["kernel_seconds"])

    server = serve()
    server.ask("touch 1000")
    server.ctl("stop")
    stopped = kernel_seconds(server.snapshot())
    assert stopped > 0
    for _ in range(100):
        server.ask("touch 10")
    assert kernel_seconds(server.snapshot()) == stopped
    assert kernel_seconds(server.end()) == stopped


@pytest.mark.parametrize("verb", ["run", "record"])
def test_a_run_that_is_ended_after_stop_is_whole(
    verb: str, serve: Any, tmp_path: Path, octavo: Octavo
) -> None:
    output = ["-o", str(tmp_path / "phase.oct")] if verb == "record" else []
    server = serve("--start-after", "ctl", *output, verb=verb)
    server.ctl("start")
    server.ask("touch 50")
    server.ctl("stop")
    os.kill(server.pid, signal.SIGTERM)
    # Its input stays open, so that nothing but the signal ends it.
    server.octavo.wait(TIMEOUT_SECONDS)
    assert server.octavo.returncode == 143
    final = octavo([tmp_path / "phase.oct"]) if verb == "record" else server.end()
    assert not final.run["partial"]


def _misses_and_memory(traced: Traced) -> list[dict[str, Any]]:
    return [row for row in traced.document["rows"] if not row["component"].startswith("stream")]


def test_children_that_have_ended_are_in_a_snapshot_too(serve: Any) -> None:
    server = serve()
    server.ask("fork 700")
    server.ask("fork 900")
    # The end of a process is noticed a little later than its parent goes on.
    end = time.monotonic() + TIMEOUT_SECONDS
    while server.status()["streams_live"] > 1:
        assert time.monotonic() < end
    snapshot = server.snapshot()
    assert [process["ended_by"] for process in snapshot.run["processes"]] == [
        "running",
        "exit",
        "exit",
    ]
    assert memory(snapshot) > 1600
    status = server.status()
    assert (status["streams_live"], status["processes_total"]) == (1, 3)


def test_a_daemon_is_followed_and_interrupted(serve: Any) -> None:
    """Its first process has ended: what interrupts the run must reach the one that serves."""
    server = serve()
    daemon = int(server.ask("daemon").split()[1])
    assert daemon != server.pid
    server.ask("touch 500")
    assert memory(server.snapshot()) >= 500
    server.octavo.send_signal(signal.SIGTERM)
    # Its input stays open, so that nothing but the signal ends it.
    server.octavo.wait(TIMEOUT_SECONDS)
    final = server.end()
    assert final.status == 143
    assert memory(final) >= 500
    assert final.run["processes"][-1]["pid"] == daemon
    assert final.run["processes"][-1]["ended_by"] == "signal"


def socket_of(server: Server) -> Path:
    (path,) = [place.path for place in places() if place.octavo_pid == server.octavo.pid]
    return path


def test_the_socket_is_for_its_owner_and_goes_with_the_run(serve: Any) -> None:
    server = serve()
    path = socket_of(server)
    assert stat.S_IMODE(path.lstat().st_mode) == 0o600
    assert server.ctl("status", server.octavo.pid)["pid"] == server.pid
    # A connection that says nothing neither holds up others nor the end.
    with socket.socket(socket.AF_UNIX) as silent:
        silent.connect(str(path))
        assert server.status()["pid"] == server.pid
        assert server.end().status == 0
    assert not path.exists()
    with pytest.raises(CannotRun, match=f"there is no process {server.pid}"):
        server.ctl("status")


def test_a_run_is_awaited_and_so_is_its_failure() -> None:
    """From the moment that the shell has the identifier of the process."""
    command = [OCTAVO, "run", "-q", "--start-after", "ctl", "--", WORKLOADS / "requests"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as octavo:
        waited = natively([OCTAVO, "ctl", str(octavo.pid), "wait"])
        assert waited.status == 0, waited.stderr
        assert b"not counting" in waited.stdout
    for ending in (["run", "--", "/nonexistent"], ["run", "-q", "--", "true"]):
        # Its parent reaps it later: until then it is a process that has ended.
        octavo = subprocess.Popen([OCTAVO, *ending], stderr=subprocess.DEVNULL)
        waited = natively([OCTAVO, "ctl", str(octavo.pid), "wait"])
        while waited.status == 0:
            waited = natively([OCTAVO, "ctl", str(octavo.pid), "wait"])
        assert waited.status == 125
        assert f"process {octavo.pid} has ended, and no run of it answers" in waited.stderr.decode()
        octavo.wait()


def count_searches(listener: socket.socket, pids: set[int], count: int) -> None:
    """Returns when each of these processes has looked for a run this many times."""
    found: Counter[int] = Counter()
    while any(found[pid] < count for pid in pids):
        connection, _ = listener.accept()
        with connection:
            found[peer_of(connection)[0]] += 1


def test_a_wait_says_once_what_it_waits_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def wait(pid: int, *options: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [OCTAVO, "ctl", str(pid), "wait", *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    waiting = "octavo: waiting for a run of process {} ({}) that this user may control; "
    with (
        # A short path, as a socket needs.
        tempfile.TemporaryDirectory() as directory,
        socket.socket(socket.AF_UNIX) as other_run,
        subprocess.Popen(["sleep", "1h"]) as sleeper,
    ):
        other_run.bind(f"{directory}/octavo-{os.getpid()}-0.sock")
        other_run.listen()
        other_run.settimeout(TIMEOUT_SECONDS)
        monkeypatch.setenv("XDG_RUNTIME_DIR", directory)
        waits, quiet = wait(sleeper.pid), wait(sleeper.pid, "-q")
        assert waits.stderr is not None
        assert waits.stderr.readline().startswith(waiting.format(sleeper.pid, "sleep"))
        count_searches(other_run, {waits.pid, quiet.pid}, 10)
        other_run.close()
        monkeypatch.delenv("XDG_RUNTIME_DIR")
        sleeper.kill()
        ended = f"octavo: process {sleeper.pid} has ended, and no run of it answers.\n"
        for one in (waits, quiet):
            assert one.communicate(timeout=TIMEOUT_SECONDS) == ("", ended)
            assert one.returncode == 125
    # A run that begins while it waits.
    run = [OCTAVO, "run", "-q", "--start-after", "ctl", "--", WORKLOADS / "requests"]
    later = ["/bin/sh", "-c", 'read line && exec "$@"', "sh", *map(str, run)]
    with subprocess.Popen(later, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as shell:
        assert shell.stdin is not None
        waits = wait(shell.pid)
        assert waits.stderr is not None
        assert waits.stderr.readline().startswith(waiting.format(shell.pid, "sh"))
        shell.stdin.write(b"\n")
        shell.stdin.flush()
        said, more = waits.communicate(timeout=TIMEOUT_SECONDS)
        assert (waits.returncode, more) == (0, "")
        assert f"octavo {shell.pid}): not counting" in said
        shell.stdin.close()


def test_a_run_is_found_by_what_started_octavo_alone() -> None:
    """`sudo octavo run … &` leaves the process of sudo in `$!`."""
    run = [OCTAVO, "run", "-q", "--start-after", "ctl", "--", WORKLOADS / "requests"]
    started = ["/bin/sh", "-c", '"$@" <&3 & wait', "sh", *map(str, run)]
    with subprocess.Popen(
        ["/bin/sh", "-c", '"$@" 3<&0', "sh", *started],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as launcher:
        waited = natively([OCTAVO, "ctl", str(launcher.pid), "wait"])
        assert waited.status == 0, waited.stderr
        assert b"not counting" in waited.stdout


def test_a_status_names_the_program_as_it_was_started(tmp_path: Path) -> None:
    link = tmp_path / "linked"
    link.symlink_to(WORKLOADS / "requests")
    command = [OCTAVO, "run", "-q", "--", link]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as octavo:
        assert octavo.stdout is not None
        octavo.stdout.readline()
        said = natively([OCTAVO, "ctl", str(octavo.pid), "stop"]).stdout.decode()
    assert said.rstrip().endswith(": linked"), said


def test_programs_that_replace_each_other_are_one_process(tmp_path: Path) -> None:
    command = ["sh", "-c", f"exec env {WORKLOADS / 'requests'}"]
    with subprocess.Popen(
        [OCTAVO, "run", "-q", "--", *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as octavo:
        assert octavo.stdout is not None
        octavo.stdout.readline()
        status = ctl(octavo.pid, "status")
        said = natively([OCTAVO, "ctl", str(octavo.pid), "status"]).stdout.decode()
    assert (status["streams_total"], status["processes_total"]) == (3, 1)
    assert "1 of 1 process live: requests" in said


def test_a_socket_that_a_killed_run_left_is_removed(serve: Any) -> None:
    server = serve()
    path = socket_of(server)
    server.octavo.kill()
    server.end()
    assert path.exists()
    with pytest.raises(CannotRun):
        server.ctl("status")
    assert not path.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.skipif(not shutil.which("setpriv"), reason="needs setpriv")
def test_other_users_get_no_answer(serve: Any) -> None:
    server = serve()
    path = socket_of(server)
    # As if the file's mode had let them through.
    path.chmod(0o666)
    program = (
        "import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); "
        's.sendall(b\'{"action": "status"}\\n\'); print(s.recv(100))'
    )
    argv = ["setpriv", "--reuid", "65534", "--clear-groups", "/usr/bin/python3", "-c", program]
    done = subprocess.run(
        [*argv, str(path)], capture_output=True, text=True, timeout=TIMEOUT_SECONDS
    )
    assert done.stdout in ("b''\n", ""), done.stderr
    assert server.status()["pid"] == server.pid


@pytest.mark.parametrize("verb", ["curves", "sim"])
def test_other_engines_are_controlled_without_snapshots(verb: str, serve: Any) -> None:
    server = serve(verb=verb)
    server.ask("touch 100")
    assert server.status()["counting"]
    server.ctl("stop")
    counted = server.status()["references"]
    server.ask("touch 100")
    assert server.status()["references"] == counted
    with pytest.raises(CannotRun, match=f"octavo {verb} has a result at its end only"):
        server.ctl("snapshot")


def test_a_recording_is_controlled_and_can_be_read_while_it_grows(tmp_path: Path) -> None:
    trace, result = tmp_path / "requests.oct", tmp_path / "grown.json"
    server = Server(tmp_path, "-o", str(trace), verb="record")
    try:
        server.ask("touch 100")
        assert server.status()["counting"]
        server.ctl("stop")
        counted = server.status()["references"]
        server.ask("touch 5000")
        assert server.status()["references"] == counted
        with pytest.raises(CannotRun, match=f"octavo run {trace}"):
            server.ctl("snapshot")
        server.ctl("start")
        for _ in range(200):
            server.ask("touch 2000")
        assert server.status()["references"] > counted
        grown = natively([OCTAVO, "run", "-q", "--json", str(result), str(trace)])
        assert grown.status in (0, 125), grown.stderr
        cut_off = json.loads(result.read_text())["run"]
        assert cut_off["partial"]
    finally:
        server.octavo.communicate(timeout=TIMEOUT_SECONDS)
    assert server.octavo.returncode == 0
    checked = natively([OCTAVO, "check", str(trace)])
    assert checked.status == 0, checked.stdout
    whole = natively([OCTAVO, "run", "-q", "--json", "-", str(trace)])
    rows = json.loads(whole.stdout)["rows"]
    (pages,) = (
        row["touched_bytes"] // PAGE
        for row in rows
        if row["component"] == "memory"
        and row["stream"] == "data"
        and row["page_size"] == PAGE
        and "region" not in row
    )
    # Pages touched while nothing counted are there when counting goes on.
    assert 5000 <= pages < 8000


def test_the_command_writes_whole_results(serve: Any, tmp_path: Path) -> None:
    server = serve()
    server.ask("touch 500")
    out, name = tmp_path / "now", str(server.pid)
    said = natively([OCTAVO, "ctl", name, "status"])
    assert said.status == 0
    assert re.search(rb"requests .*: counting\n.* references, .* 1 of 1 process live", said.stdout)
    written = natively([OCTAVO, "ctl", name, "snapshot", "--out", str(out)])
    assert written.status == 0
    assert b"SNAPSHOT: the program goes on" in written.stdout
    files = {"manifest.json", "result.json", "rows.parquet", "report.html"}
    assert {path.name for path in out.iterdir()} == files
    assert "SNAPSHOT" in (out / "report.html").read_text()
    document = natively([OCTAVO, "ctl", name, "snapshot", "--json", "-"]).stdout
    assert first_error(validator_of("run"), json.loads(document)) is None


def test_what_is_no_run_gets_a_sentence() -> None:
    for arguments, status, sentence in [
        (["1", "snapshoot"], 2, "did you mean `snapshot`?"),
        (["1", "status"], 125, "process 1 is none of a run of octavo"),
        (["4194304", "status"], 125, "there is no process 4194304"),
        (["1", "status", "-o", "x"], 2, "--out is for a snapshot"),
    ]:
        done = natively([OCTAVO, "ctl", *arguments])
        assert done.status == status, done.stderr
        assert sentence in done.stderr.decode()


# --- a part of the run by time or instructions ----------------------------------------------------


def test_a_duration_of_instructions_is_whole(octavo: Octavo) -> None:
    traced = octavo(workload("signals", "spin"), "--start-after", "100k", "--duration", "1M")
    assert traced.status == 0
    assert not traced.run["partial"]
    assert traced.run["exit"]["reason"] == "limit"
    assert traced.run["exit"]["signal"] == signal.SIGINT
    assert 10**6 <= traced.count("instructions") < 10**6 + 200
    traced.check()
    assert traced.run["warnings"][0] == (
        "PART: the program was counted for 1,000,000 instructions (--duration), from instruction "
        "100,000; counts and advice are about that part."
    )
    assert traced.document is not None
    answer = traced.document["advice"][0]["text"]
    assert answer.startswith("For the part that was counted: Which page size?")


def test_a_duration_ends_the_program_as_ctrl_c_does(serve: Any) -> None:
    server = serve("--start-after", "ctl", "--duration", "300ms")
    # The program is at work when counting begins, and ends with a word when it is interrupted.
    server.ask("spin")
    server.ctl("start")
    server.octavo.wait(TIMEOUT_SECONDS)
    final = server.end()
    assert (final.status, final.stdout) == (0, b"bye\n")
    assert (final.run["exit"]["reason"], final.run["exit"]["code"]) == ("limit", 0)
    assert not final.run["partial"]
    assert final.run["configuration"]["phase"] == {
        "start_after_seconds": None,
        "duration_seconds": 0.3,
        "ends_by_instructions": False,
    }


@pytest.mark.parametrize("verb", ["curves", "sim", "record"])
def test_every_live_command_takes_a_part_by_time(verb: str, serve: Any, tmp_path: Path) -> None:
    trace = tmp_path / "part.oct"
    out = ["-o", str(trace)] if verb == "record" else []
    server = serve("--start-after", "ctl", "--duration", "300ms", *out, verb=verb)
    server.ask("touch 5000")
    server.ask("spin")
    assert not server.status()["counting"]
    server.ctl("start")
    final = server.end()
    assert (final.status, final.stdout) == (0, b"bye\n")
    if verb != "record":
        assert not final.run["partial"]
        assert first_error(validator_of(verb), final.document) is None
        if verb == "sim":
            check_present(final.document["rows"])
        return
    assert final.document["about"]["partial_reason"] is None
    assert final.document["about"]["options"]["phase"]["duration_seconds"] == 0.3
    replayed = json.loads(natively([OCTAVO, "run", "-q", "--json", "-", str(trace)]).stdout)
    assert not replayed["run"]["partial"]
    sums = [row for row in replayed["rows"] if row["component"] == "memory" and "region" not in row]
    # The memory is that of the process, as of a live run.
    touched = [row["touched_bytes"] for row in sums if row["stream"] == "data"]
    assert min(touched) >= 5000 * PAGE
    (warning,) = replayed["run"]["warnings"]
    assert warning.startswith("PART: the program was counted for 0.3 s (--duration), from `octavo ")
    simulated = natively([OCTAVO, "sim", "-q", "--json", "-", str(trace)]).stdout
    check_present(json.loads(simulated)["rows"])


def check_present(rows: list[dict[str, Any]]) -> None:
    """Each design has the memory of the server from before its first instruction."""
    of_os = {
        (row["design"], row["counter"]): row["value"] for row in rows if row["component"] == "os"
    }
    for design in ("base4k", "thp"):
        assert of_os[design, "present_bytes"] >= 5000 * PAGE
        assert of_os[design, "resident_bytes"] >= 5000 * PAGE
        assert of_os[design, "faults"] < 1000


@pytest.mark.parametrize("verb", ["curves", "sim"])
def test_a_part_by_time_is_of_a_program(verb: str) -> None:
    refused = natively([OCTAVO, verb, "--duration", "1s", "synth:gups?updates=1k"])
    assert refused.status == 2
    assert b"of a trace, --skip-instructions and --max-instructions choose a part" in refused.stderr


@pytest.mark.parametrize(
    ("options", "is_warned"),
    [
        (("--skip-instructions", "1k"), True),
        (("--tracer", "lackey", "--start-after", "1ms"), True),
        (("--tracer", "lackey", "--duration", "1h"), False),
    ],
)
def test_a_trace_of_a_part_without_the_memory_before_is_warned_of(
    options: tuple[str, ...], is_warned: bool, tmp_path: Path
) -> None:
    trace = tmp_path / "part.oct"
    natively([OCTAVO, "record", "-q", *options, "-o", str(trace), "--", *workload("static_count")])
    replayed = json.loads(natively([OCTAVO, "run", "-q", "--json", "-", str(trace)]).stdout)
    warned = [one for one in replayed["run"]["warnings"] if one.startswith("MEMORY: ")]
    assert len(warned) == is_warned


def test_a_recording_that_never_began_is_no_trace(tmp_path: Path) -> None:
    trace = tmp_path / "none.oct"
    done = natively([OCTAVO, "record", "--start-after", "ctl", "-o", str(trace), "--", "true"])
    assert done.status == 125
    assert b"it ended within the time before `octavo ctl PID start`" in done.stderr
    assert not trace.exists()


def test_a_program_that_ends_before_it_counts_has_no_result(octavo: Octavo) -> None:
    for value, what in [("1h", "60 min of --start-after"), ("ctl", "octavo ctl PID start")]:
        traced = octavo(workload("static_count"), "--start-after", value)
        assert traced.status == 125
        assert what in traced.stderr.decode()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--start-after", "30"], "give a time with its unit"),
        (["--duration", "30m"], "give a time with its unit"),
        (["--duration", "0s"], "--duration: `0s` is not a time"),
        (["--duration", "1s", "--max-instructions", "1M"], "exclude each other"),
        (["--start-after", "1M", "--skip-instructions", "1M"], "mean the same"),
    ],
)
def test_wrong_parts_get_a_sentence(options: list[str], sentence: str, octavo: Octavo) -> None:
    traced = octavo(["true"], *options)
    assert traced.status == 2
    assert sentence in traced.stderr.decode()
    assert re.match(r"octavo: .*\.\n\Z", traced.stderr.decode())


def test_a_trace_has_no_phases() -> None:
    done = natively([OCTAVO, "run", "--duration", "1s", "synth:gups?table=64KiB&updates=100"])
    assert done.status == 2
    assert b"of a trace" in done.stderr
