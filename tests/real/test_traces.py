"""Traces of real programs: what is recorded is what a live run sees, and nothing gets lost."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from octavo.cli import app
from octavo.traces.by_name import open_trace

from .conftest import OCTAVO, TIMEOUT_SECONDS, Ended, Octavo, natively, workload
from .test_errors import in_namespace

EXACT_SUFFIXES = ("lackey", "csv", "parquet")
"""Of the formats that hold kind, address and size of every reference."""
OTHER_SUFFIXES = ("din", "xdin", "champsim", "cloudsuite")
STEADY = {"PYTHONHASHSEED": "0"}
"""Settings that make two runs of a program equal."""

PROGRAMS = {
    "gzip": ["gzip", "-9", "--stdout", "/etc/passwd"],
    # The interpreter itself, and no shim in front of it.
    "python": [os.path.realpath(sys.executable), "-S", "-c", "print(sum(range(1000)))"],
}


def octavo_does(*arguments: str | Path, **how: Any) -> Ended:
    return natively([OCTAVO, *arguments], **how)


def record(output: Path, argv: Sequence[str], *options: str) -> Ended:
    return octavo_does("record", "--quiet", "-o", output, *options, "--", *argv, env=STEADY)


def document_of(*arguments: str | Path, **how: Any) -> dict[str, Any]:
    """The JSON document of a command that succeeds."""
    ended = octavo_does(*arguments, "--json", "-", **how)
    assert ended.status == 0, ended.stderr.decode()
    document: dict[str, Any] = json.loads(ended.stdout)
    return document


def references(trace: Path, process: int | None = None) -> str:
    """A hash of all (kind, address, size), in order."""
    entries, fault = open_trace(str(trace)).list(entries=10**8, stream=process)
    assert fault is None
    digest = hashlib.sha256()
    for entry in entries:
        if entry["kind"] != "event":
            digest.update(f"{entry['kind']},{entry['address']},{entry['size']}\n".encode())
    return digest.hexdigest()


def assert_refused(ended: Ended, *words: str, status: int = 125) -> None:
    """One sentence on standard error, and nothing else."""
    said = ended.stderr.decode()
    assert ended.status == status, said
    assert ended.stdout == b""
    assert said.startswith("octavo: ")
    assert said.count("\n") == 1
    for word in words:
        assert word in said


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recording of `true`, some hundred thousand references."""
    path = tmp_path_factory.mktemp("small") / "true.oct"
    assert record(path, ["/bin/true"]).status == 0
    return path


# --- recording ---------------------------------------------------------------------------------


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_trace_gives_the_result_of_the_live_run(program: str, tmp_path: Path, octavo: Octavo):
    argv = PROGRAMS[program]
    # System calls do not take the same time in two runs: gains are shares of a known one.
    known = ("--native-time", "1s")
    live = octavo(argv, *known, env=STEADY)
    trace = tmp_path / f"{program}.oct"
    recorded = record(trace, argv)
    assert (recorded.status, recorded.stdout) == (0, live.stdout)
    replayed = octavo([trace], *known)
    assert replayed.status == 0
    assert live.document is not None
    assert replayed.document is not None
    assert replayed.document["rows"] == live.document["rows"]
    assert replayed.run["trace_hash"] == live.run["trace_hash"]
    assert replayed.run["trace"]["about"]["command"] == argv
    answers = [traced.document["advice"][0] for traced in (live, replayed)]
    assert all(answer.pop("kernel_seconds") > 0 for answer in answers)
    assert replayed.document["advice"] == live.document["advice"]


def test_a_recording_keeps_the_programs_manners(tmp_path: Path):
    trace = tmp_path / "a.oct"
    ended = octavo_does(
        *("record", "-o", trace, "--json", tmp_path / "a.json", "--"),
        *("sh", "-c", "cat; echo oops >&2; exit 7"),
        stdin=b"said\n",
    )
    assert (ended.status, ended.stdout) == (7, b"said\n")
    assert b"oops\n" in ended.stderr
    assert b", 2 processes, " in ended.stderr
    document = json.loads((tmp_path / "a.json").read_text())
    assert document["bytes"] == trace.stat().st_size
    assert document["about"]["exit"]["status"] == 7
    info = document_of("info", trace)
    assert info["references"] == document["references"]
    assert len(info["processes"]) == document["processes"]
    assert info["about"]["exit"]["status"] == 7
    assert octavo_does("check", trace).status == 0


def test_an_exec_does_not_count_as_a_process(tmp_path: Path):
    trace = tmp_path / "a.oct"
    recorded = octavo_does("record", "-o", trace, "--", "env", "true")
    assert recorded.status == 0
    assert b" instructions, 1 process, " in recorded.stderr
    assert [one["began_by"] for one in document_of("info", trace)["processes"]] == ["start", "exec"]


def test_each_process_of_a_recording_has_a_thread(tmp_path: Path):
    """Also between a fork and an exec: the thread that forked goes on."""
    trace = tmp_path / "a.oct"
    assert record(trace, ["sh", "-c", "/bin/true; (exit 0); exit 0"]).status == 0
    processes = document_of("info", trace)["processes"]
    assert {(one["began_by"], one["ended_by"]) for one in processes} == {
        ("start", "exit"),
        ("fork", "exec"),
        ("exec", "exit"),
        ("fork", "exit"),
    }
    assert {one["threads"] for one in processes} == {1}


def test_an_existing_trace_is_precious(tmp_path: Path):
    trace = tmp_path / "a.oct"
    trace.write_text("precious")
    assert_refused(record(trace, ["true"]), "--force", status=2)
    assert_refused(record(trace, ["no-such-program"], "--force"), status=127)
    assert trace.read_text() == "precious"
    assert record(trace, ["true"], "--force").status == 0
    assert document_of("info", trace)["state"] == "whole"


def test_nothing_traced_leaves_no_file(tmp_path: Path):
    trace = tmp_path / "a.oct"
    assert_refused(record(trace, ["true"], "--marks"), "no begin mark")
    assert not trace.exists()
    assert_refused(record(Path("/proc/no/a.oct"), ["true"]), "No such file")


def test_a_trace_that_cannot_be_written_on(tmp_path: Path):
    full = "cannot write `/dev/full`: No space left on device."
    assert_refused(record(Path("/dev/full"), ["true"]), full)
    script = f"""
    mkdir {tmp_path}/small
    mount -t tmpfs -o size=32k none {tmp_path}/small
    '{OCTAVO}' record --quiet -o {tmp_path}/small/a.oct -- {" ".join(workload("gups", 1, 500000))}
    """
    ended = natively(in_namespace(script))
    assert ended.status == 125
    assert b"No space left" in ended.stderr


def test_an_interrupt_keeps_a_whole_trace(tmp_path: Path):
    trace = tmp_path / "a.oct"
    process = subprocess.Popen(
        [OCTAVO, "record", "--quiet", "-o", trace, "--", *workload("signals", "spin")],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    process.send_signal(signal.SIGTERM)
    assert process.wait(TIMEOUT_SECONDS) == 128 + signal.SIGTERM
    process.stdout.close()
    info = document_of("info", trace)
    assert info["state"] == "whole"
    assert "SIGTERM" in info["about"]["partial_reason"]


def test_a_killed_recorder_leaves_a_cut_trace(tmp_path: Path, octavo: Octavo):
    trace = tmp_path / "a.oct"
    process = subprocess.Popen(
        [OCTAVO, "record", "--quiet", "-o", trace, "--", *workload("longrun", 10**11)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},  # the killed process cannot clean up
    )
    try:
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while not trace.exists() or trace.stat().st_size < 20_000:
            assert time.monotonic() < deadline
            assert process.poll() is None
            time.sleep(0.05)
        process.kill()
        process.wait(TIMEOUT_SECONDS)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
    info = document_of("info", trace)
    assert info["state"] == "cut"
    assert info["references"] > 100_000
    assert b"CUT" in octavo_does("info", trace).stdout
    replayed = octavo([trace])
    assert replayed.status == 125
    assert replayed.run["partial"]
    assert replayed.count("references") == info["references"]
    assert octavo_does("check", trace).status == 125


# --- converting --------------------------------------------------------------------------------


def test_no_reference_is_lost_on_the_way(small: Path, tmp_path: Path):
    expected = references(small)
    for suffix in EXACT_SUFFIXES:
        there, back = tmp_path / f"a.{suffix}", tmp_path / f"a.{suffix}.oct"
        for arguments in ((small, there), (there, back)):
            ended = here("convert", *arguments)
            assert ended.status == 0, ended.stderr.decode()
        assert references(back) == expected, suffix


def test_losses_are_reported(small: Path, tmp_path: Path):
    ended = octavo_does("convert", small, tmp_path / "a.din.xz")
    assert b"sizes" in ended.stderr
    assert b"events" in ended.stderr
    assert ended.stdout == b""


def test_through_pipes(small: Path, tmp_path: Path, octavo: Octavo):
    text = octavo_does("convert", "--quiet", "--to", "lackey", small, "-").stdout
    out = tmp_path / "out.oct"
    ended = octavo_does("convert", "-", out, stdin=gzip.compress(text))
    assert ended.status == 0, ended.stderr.decode()
    assert references(out) == references(small)
    piped = octavo(["-"], stdin=small.read_bytes())
    assert piped.run["trace_hash"] == octavo([small]).run["trace_hash"]


def test_one_process_of_several(tmp_path: Path):
    trace = tmp_path / "a.oct"
    assert record(trace, ["sh", "-c", "/bin/true; /bin/true"]).status == 0
    number = document_of("info", trace)["processes"][-1]["stream"]
    assert_refused(octavo_does("convert", trace, tmp_path / "a.csv"), "--process")
    ended = octavo_does("convert", "--process", str(number), trace, tmp_path / "a.csv")
    assert ended.status == 0
    assert references(tmp_path / "a.csv") == references(trace, number)
    assert_refused(octavo_does("convert", "--process", "99", trace, tmp_path / "b.oct"), "99")


def test_native_layout_gives_the_results_of_the_recorded_trace(small: Path, tmp_path: Path):
    def rows(*arguments: str | Path, without: str = "") -> list[dict[str, Any]]:
        all_rows = document_of(*arguments, "--quiet")["rows"]
        named = [{**row, "run": ""} for row in all_rows]
        return [row for row in named if not without or not row["component"].startswith(without)]

    native = {suffix: tmp_path / f"native.{suffix}" for suffix in ("oct", "xdin", *EXACT_SUFFIXES)}
    own = native["oct"]
    for path in native.values():
        assert here("convert", "--quiet", "--layout", "native", small, path).status == 0
    counted = rows("curves", small)
    assert rows("curves", own) == counted
    # Formats without events hold none of the stream itself.
    counted = [row for row in counted if not row["component"].startswith("stream")]
    for path in set(native.values()) - {own}:
        assert rows("curves", path, without="stream") == counted, path.name
    # Branch predictors see instructions where they were traced, so that cores differ a little. So
    # do samples of lines, which are chosen by traced addresses.
    for command in (
        ["sim", "--timing", "additive", "--design", "base4k,thp"],
        ["run"],
    ):
        both = [rows(*command, trace, without="cache.core") for trace in (own, small)]
        assert both[0] == both[1], command
    assert octavo_does("check", own).status == 0
    traced = tmp_path / "traced.csv"
    assert here("convert", "--quiet", small, traced).status == 0
    assert references(traced) == references(small) != references(native["csv"])
    assert rows("curves", traced, without="stream") != counted


def test_layouts_that_cannot_be_native_are_refused(small: Path, tmp_path: Path):
    text, native, out = tmp_path / "a.csv", tmp_path / "a.oct", tmp_path / "out.oct"
    assert here("convert", small, text).status == 0
    assert here("convert", "--layout", "native", small, native).status == 0
    for source in (text, native, "synth:gups?table=64KiB&updates=1k"):
        for options in ([], ["--keep-partial"], ["--sample", "50%,window=10"]):
            ended = here("convert", "--layout", "native", *options, source, out)
            assert_refused(ended, str(source), "native layout")
            assert not out.exists()
    ended = here("convert", "--layout", "nativ", small, out)
    assert_refused(ended, "as-traced, native", status=2)


# --- damage ------------------------------------------------------------------------------------


def here(*arguments: str | Path) -> Ended:
    """A command in this process: it begins at once."""
    done = CliRunner().invoke(app, [str(word) for word in arguments], prog_name="octavo")
    return Ended(done.exit_code, done.stdout_bytes, done.stderr_bytes)


def cut_short(whole: bytes) -> bytes:
    return whole[: len(whole) * 2 // 3 - 1]


def with_a_flipped_bit(whole: bytes) -> bytes:
    """In the middle of what is compressed or encoded; text may well survive it."""
    at = len(whole) // 2
    return whole[:at] + bytes([whole[at] ^ 0x80]) + whole[at + 1 :]


def of_nothing(whole: bytes) -> bytes:
    return b""


@pytest.mark.parametrize(
    "suffix", ["oct", *EXACT_SUFFIXES, *OTHER_SUFFIXES, "csv.gz", "lackey.xz", "champsim.zst"]
)
def test_damage_is_one_sentence(suffix: str, small: Path, tmp_path: Path):
    whole, broken, out = (tmp_path / name for name in (f"a.{suffix}", f"b.{suffix}", "out.oct"))
    assert here("convert", "--quiet", small, whole).status == 0
    damages = [cut_short, of_nothing]
    if suffix not in OTHER_SUFFIXES:
        damages.append(with_a_flipped_bit)
    for damage in damages:
        broken.write_bytes(damage(whole.read_bytes()))
        ended = here("convert", broken, out)
        if damage is cut_short and not ended.status:
            # Text that was cut right behind a line is a whole, shorter text.
            assert suffix in ("lackey", "csv", "din", "xdin")
            assert broken.read_bytes().endswith(b"\n")
            out.unlink()
            continue
        assert_refused(ended, broken.name)
        assert not out.exists()
    wrong = "lackey" if "csv" in suffix else "csv"
    ended = here("convert", "--from", wrong, whole, out)
    assert_refused(ended, whole.name)
    assert sorted(path.name for path in tmp_path.iterdir()) == [whole.name, broken.name]


@pytest.mark.parametrize("command", ["run", "info", "head", "check"])
def test_other_files_are_refused_by_all_commands(command: str, tmp_path: Path):
    junk = tmp_path / "junk.csv"
    junk.write_bytes(b"PK\x03\x04 no trace at all")
    assert_refused(here(command, junk), "junk.csv")


def test_ctrl_c_leaves_nothing_half(tmp_path: Path):
    """Even where the trace comes through a pipe that has stopped to give."""
    out = tmp_path / "out.oct"
    process = subprocess.Popen(
        [OCTAVO, "convert", "--from", "din", "-", out],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdin is not None
    process.stdin.write(b"2 400000\n" * 4096)
    process.stdin.flush()
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while not any(tmp_path.iterdir()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    assert process.wait(TIMEOUT_SECONDS) == 130
    assert process.stderr is not None
    assert b"interrupted" in process.stderr.read()
    process.stdin.close()
    process.stderr.close()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.long
def test_a_long_recording_is_small_and_whole(tmp_path: Path, octavo: Octavo):
    trace = tmp_path / "a.oct"
    assert record(trace, workload("matmul", 200)).status == 0
    info = document_of("info", trace)
    assert info["bytes_per_reference"] < 1
    assert octavo_does("check", trace).status == 0
    replayed = octavo([trace])
    assert replayed.count("references") == info["references"]


@pytest.mark.parametrize("command", ["check", "info", "head"])
def test_a_closed_pipe_ends_the_command_quietly(command: str) -> None:
    """With the status that a shell reports for SIGPIPE. A closed standard output is a failure."""
    trace = "synth:gups?table=64KiB&updates=10"
    reader, writer = os.pipe()
    os.close(reader)
    gone = subprocess.run([OCTAVO, command, trace], stdout=writer, stderr=subprocess.PIPE)
    os.close(writer)
    assert (gone.returncode, gone.stderr) == (141, b"")
    closed = natively(["sh", "-c", '"$@" >&-', "sh", OCTAVO, command, trace])
    assert closed.status == 125
    assert b"closed" in closed.stderr


def test_a_conversion_to_a_closed_standard_output_is_a_failure() -> None:
    convert = [OCTAVO, "convert", "--to", "csv", "synth:gups?table=64KiB&updates=10", "-"]
    closed = natively(["sh", "-c", '"$@" >&-', "sh", *convert])
    assert closed.status == 125
    assert b"closed" in closed.stderr


def test_info_names_a_program_as_it_was_started(tmp_path: Path):
    """redis-server of Debian is a symbolic link to redis-check-rdb."""
    link, trace = tmp_path / "started", tmp_path / "true.oct"
    link.symlink_to("/bin/true")
    assert record(trace, [str(link)]).status == 0
    assert [one["program"] for one in document_of("info", trace)["processes"]] == [str(link)]
