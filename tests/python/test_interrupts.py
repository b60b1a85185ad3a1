"""Signals at known points: while modules load, while results are written, while a run ends."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import octavo as octavo_api
from called import invoke as octavo
from fakes import FakeRun, process, progress, region, result
from octavo.base import background
from octavo.base.background import see_through
from octavo.base.errors import Interrupted
from octavo.base.files import OutputDirectory
from octavo.base.signals import HANDLED, Interrupts, uninterrupted
from octavo.terminal.live import LiveLine
from octavo.tracing.session import drive

Install = Callable[[FakeRun], None]
RESULTS = ["manifest.json", "report.html", "result.json", "rows.parquet"]

AT_EVERY_IMPORT = """\
import os, signal, sys
is_child = False
def interrupt(event, arguments):
    global is_child
    if event != "import" or is_child or arguments[0].partition(".")[0] == "encodings":
        return
    ours, theirs = os.pipe()
    is_child = (child := os.fork()) == 0
    if is_child:
        os.dup2(theirs, 2)
        os.close(ours)
        os.close(theirs)
        os.kill(os.getpid(), signal.SIGINT)
        return
    os.close(theirs)
    with open(ours, "rb") as pipe:
        text = pipe.read().decode()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    os.write(1, f"{status} {text!r} {arguments[0]}\\n".encode())
before = set(sys.modules)
import octavo.__main__
print(*sorted(set(sys.modules) - before), flush=True)
sys.addaudithook(interrupt)
octavo.__main__.main()
"""


def after_each_import(*arguments: str) -> list[str]:
    """How `octavo` ends if Ctrl-C arrives at an import: a line for each import, in order."""
    done = subprocess.run(
        [sys.executable, "-c", AT_EVERY_IMPORT, *arguments],
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    assert done.stderr == ""
    return done.stdout.splitlines()


def test_ctrl_c_at_any_import_prints_nothing() -> None:
    unguarded, *ends, version = after_each_import("--version")
    assert unguarded == "octavo octavo.__main__"
    assert version.startswith("octavo ")
    assert {end.rpartition(" ")[0] for end in ends} == {"130 ''"}
    assert len(ends) > 100
    assert ends[0].endswith("octavo.base.signals")
    assert ends[-1].endswith("octavo._core")


def signalling(number: int) -> Callable[[object], Callable[[Path], None]]:
    """Makes writers that begin a file and then send a signal."""

    def writer(result: object) -> Callable[[Path], None]:
        def write(path: Path) -> None:
            path.write_text("begun")
            signal.raise_signal(number)

        return write

    return writer


@pytest.mark.parametrize("number", HANDLED)
def test_a_signal_while_results_are_written_leaves_nothing(
    number: signal.Signals, pretend: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    pretend(FakeRun(result()))
    with monkeypatch.context() as patched:
        patched.setattr("octavo.results.archive.rows_writer", signalling(number))
        done = octavo("run", "-q", "--out", str(out), "prog")
    assert done.exit_code == 128 + number
    assert done.stderr == "octavo: interrupted.\n"
    assert not out.exists()
    assert octavo("run", "-q", "--out", str(out), "prog").exit_code == 0
    assert sorted(path.name for path in out.iterdir()) == RESULTS


def test_a_signal_while_one_file_is_written_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("octavo.results.archive.rows_writer", signalling(signal.SIGTERM))
    rows = tmp_path / "rows.parquet"
    done = octavo("curves", "-q", "--out", str(rows), "synth:strided?references=100")
    assert done.exit_code == 143
    assert list(tmp_path.iterdir()) == []


def test_a_signal_while_files_are_renamed_is_deferred(
    pretend: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    pretend(FakeRun(result()))
    replace = Path.replace

    def interrupted_replace(path: Path, target: Path) -> Path:
        signal.raise_signal(signal.SIGTERM)
        return replace(path, target)

    monkeypatch.setattr(Path, "replace", interrupted_replace)
    assert octavo("run", "-q", "--out", str(out), "prog").exit_code == 143
    assert sorted(path.name for path in out.iterdir()) == RESULTS


def test_files_of_a_killed_run_are_no_result(tmp_path: Path) -> None:
    (tmp_path / ".octavo-killed").mkdir()
    OutputDirectory(str(tmp_path), force=False).close()
    assert (tmp_path / ".octavo-killed").exists()


def test_an_error_caused_by_an_interrupt_is_reported_as_an_interrupt(
    pretend: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def disguise(result: object) -> None:
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            raise RuntimeError from None

    pretend(FakeRun(result()))
    monkeypatch.setattr("octavo.results.archive.rows_writer", disguise)
    done = octavo("run", "-q", "--out", str(tmp_path / "out"), "prog")
    assert (done.exit_code, done.stderr) == (130, "octavo: interrupted.\n")


def test_signals_are_deferred() -> None:
    with Interrupts() as interrupts:
        with uninterrupted():
            signal.raise_signal(signal.SIGTERM)
            assert interrupts.first is None
        assert interrupts.first == signal.SIGTERM


def test_an_ignored_hang_up_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Interrupts() as interrupts:
            signal.raise_signal(signal.SIGHUP)
            assert interrupts.first is None
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize(("waits", "quiet"), [(1, False), (3, False), (3, True)])
def test_an_interrupted_run_reports_its_next_step(waits: int, quiet: bool) -> None:
    """Once, before the result is computed, whether the program ends at once or later."""
    console = Console(file=StringIO(), width=100)

    def interrupt(run: FakeRun) -> None:
        if not run.signals:
            os.kill(os.getpid(), signal.SIGTERM)

    run = FakeRun(result(process(0, regions=[region()])), waits=waits, during=interrupt)
    with LiveLine(console, quiet=quiet) as line:
        assert drive(run, line.show, delivered=lambda number: False) == signal.SIGTERM
    message = "" if quiet else "Interrupted by SIGTERM: finishing with what ran until now.\n"
    assert console.file.getvalue() == message  # type: ignore[attr-defined]


class InterruptedRead:
    """A trace that is interrupted while it is read."""

    def wait(self, timeout_seconds: float) -> object:
        os.kill(os.getpid(), signal.SIGINT)
        return progress(running=False)

    def stop(self) -> None:
        raise AssertionError


@pytest.mark.parametrize("keeps_result", [True, False])
def test_an_interrupted_read_is_marked_in_its_result(keeps_result: bool) -> None:
    console = Console(file=StringIO(), width=100)
    with LiveLine(console, quiet=False) as line:
        see_through(InterruptedRead(), line.show, keeps_result=keeps_result)
    assert bool(console.file.getvalue()) is keeps_result  # type: ignore[attr-defined]


class SlowWork:
    """Work that is interrupted at the start, and ends when `stop` has been called three times."""

    def __init__(self, interrupts: int, references: int = 1) -> None:
        self.interrupts, self.references, self.stops = interrupts, references, 0

    def wait(self, timeout_seconds: float) -> object:
        for _ in range(self.interrupts):
            os.kill(os.getpid(), signal.SIGINT)
        self.interrupts = 0
        return {**progress(running=self.stops < 3), "references": self.references}

    def stop(self) -> None:
        self.stops += 1


def test_slow_work_ends_with_its_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "GIVE_UP_SECONDS", 0.0)
    assert see_through(SlowWork(1), lambda progress: None, keeps_result=True) == signal.SIGINT
    with pytest.raises(Interrupted, match="interrupted again before the counts were complete"):
        see_through(SlowWork(2), lambda progress: None, keeps_result=True)
    with pytest.raises(Interrupted, match="before anything was counted"):
        see_through(SlowWork(1, references=0), lambda progress: None, keeps_result=True)
    with pytest.raises(Interrupted, match="before anything was counted"):
        see_through(SlowWork(2, references=0), lambda progress: None, keeps_result=True)
    with pytest.raises(Interrupted, match="before anything was counted"):
        see_through(SlowWork(1), lambda progress: None)


def test_an_interrupted_synthetic_trace_has_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "GIVE_UP_SECONDS", 0.0)
    assert interrupted_call(octavo_api.sim, signal.SIGINT).partial


LONG = "synth:gups?table=64MiB&updates=10G"


def interrupted_call(
    call: Callable[..., Any], number: int, trace: str = LONG, least: int = 1
) -> Any:
    """The result of a call from Python that a signal interrupts after `least` references."""
    left = [number]

    def interrupt(progress: Any) -> None:
        if left and progress["references"] >= least:
            os.kill(os.getpid(), left.pop())

    return call(trace, on_progress=interrupt)


@pytest.mark.parametrize("call", [octavo_api.run, octavo_api.curves, octavo_api.sim])
def test_an_interrupt_while_a_pipe_is_silent_keeps_the_counts(call: Callable[..., Any]) -> None:
    ours, theirs = os.pipe()
    try:
        os.write(theirs, b"I  00400000,4\n L 10000000,8\n" * 1000)
        done = interrupted_call(call, signal.SIGINT, f"/dev/fd/{ours}", least=1998)
    finally:
        os.close(theirs)
        os.close(ours)
    assert done.partial
    assert "interrupted by SIGINT" in done.manifest["partial_reason"]
    # The last instruction may have more references to come.
    assert "1998 references" in done.headline()


@pytest.mark.parametrize("call", [octavo_api.run, octavo_api.curves, octavo_api.sim])
def test_sigterm_in_a_call_from_python_reaches_the_callers_handler(
    call: Callable[..., Any],
) -> None:
    arrived: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: arrived.append(number))
    try:
        done = interrupted_call(call, signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert arrived == [signal.SIGTERM]
    assert (done.partial, done.interrupted_by) == (True, signal.SIGTERM)
    assert "interrupted by SIGTERM" in done.manifest["partial_reason"]
    # Ctrl-C is for the call alone.
    assert interrupted_call(call, signal.SIGINT).interrupted_by == signal.SIGINT


def test_sigterm_ends_a_python_program_that_does_not_handle_it() -> None:
    program = (
        "import os, octavo\n"
        f"octavo.sim({LONG!r}, on_progress=lambda progress: os.kill(os.getpid(), 15))\n"
        "print('went on')"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, timeout=300, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGTERM, b"", b"")


def into_a_full_disk(*arguments: str, temporary: Path | None = None) -> str:
    """The error message of a command whose standard output is on a full disk. The command may
    write temporary files to `temporary`.
    """
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "octavo", *arguments],
            stdout=full,
            stderr=subprocess.PIPE,
            env={**os.environ, **({} if temporary is None else {"TMPDIR": str(temporary)})},
            text=True,
            timeout=300,
            check=False,
        )
    assert done.returncode == 125
    assert done.stderr.startswith("octavo: ")
    assert done.stderr.count("\n") == 1
    return done.stderr


SMALL = "synth:strided?references=100"


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["--version"],
        ["run", "--help"],
        ["list", "machines"],
        ["machines", "skylake"],
        ["info", SMALL],
        ["head", SMALL],
        ["convert", "--to", "csv", SMALL, "-"],
        ["completion", "bash"],
    ],
    ids=" ".join,
)
def test_a_full_standard_output_is_a_one_line_error(arguments: list[str]) -> None:
    said = into_a_full_disk(*arguments)
    assert said == "octavo: cannot write to standard output: No space left on device.\n"


@pytest.mark.parametrize("command", ["run", "curves", "sim", "info", "head", "check"])
def test_a_document_is_kept_if_standard_output_is_full(command: str, tmp_path: Path) -> None:
    message = into_a_full_disk(command, *("-q", "--json", "-", SMALL), temporary=tmp_path)
    (kept,) = tmp_path.iterdir()
    assert message == (
        "octavo: cannot write to standard output: No space left on device; the result is in "
        f"`{kept}`.\n"
    )
    name = "trace" if command == "info" else command
    assert json.loads((kept / "result.json").read_text())["schema"] == f"octavo/{name}/1"


DEFERS = """
import os, signal
from octavo.base.signals import DeferredStops
with DeferredStops() as stops:
    os.kill(os.getpid(), signal.SIGTSTP)
    os.write(1, b"before ")
    stops.stop_if_asked()
    os.write(1, b"after ")
    stops.stop_if_asked()
os.kill(os.getpid(), signal.SIGTSTP)
os.write(1, b"end")
"""


def stopped(process: subprocess.Popen[bytes]) -> bool:
    """Waits until a process stops or ends; returns whether it has stopped."""
    _, status = os.waitpid(process.pid, os.WUNTRACED)
    if not os.WIFSTOPPED(status):
        process.returncode = os.waitstatus_to_exitcode(status)
    return os.WIFSTOPPED(status)


def test_ctrl_z_is_deferred_until_it_is_asked_for() -> None:
    # In a group of its own, since the kernel stops no group whose parents are of another session.
    process = subprocess.Popen(
        [sys.executable, "-c", DEFERS], stdout=subprocess.PIPE, preexec_fn=os.setpgrp
    )
    assert process.stdout is not None
    for text in (b"before ", b"after "):
        assert stopped(process)
        assert os.read(process.stdout.fileno(), 100) == text
        process.send_signal(signal.SIGCONT)
    assert not stopped(process)
    assert process.stdout.read() == b"end"
    assert process.returncode == 0


def test_ctrl_z_stops_verify_between_two_runs(tmp_path: Path) -> None:
    """Each run asks for a stop, and then takes as long as a program."""
    program = "kill -TSTP $(cat pid); head -c 20000000 /dev/zero | md5sum > sum; echo >> runs"
    words = [sys.executable, "-m", "octavo", "verify", "-q", "--repetitions", "1", "--"]
    process = subprocess.Popen(
        ["sh", "-c", 'echo $$ > pid; exec "$@"', "sh", *words, "sh", "-c", program],
        preexec_fn=os.setpgrp,
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    stops = 0
    while stopped(process):
        stops += 1
        assert len((tmp_path / "runs").read_text()) == stops
        process.send_signal(signal.SIGCONT)
    assert process.returncode == 0
    # After the last run there is no stop.
    assert len((tmp_path / "runs").read_text()) == stops + 1 > 2
