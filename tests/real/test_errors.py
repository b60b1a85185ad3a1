"""Failures are one sentence, with a status of their own and no incomplete result."""

import json
import os
import struct
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from .conftest import OCTAVO, Octavo, natively, workload

SAY = ["sh", "-c", "echo the program ran"]


def assert_refused(traced, status: int, *words: str) -> None:
    """One line on standard error, nothing on standard output, no result."""
    assert traced.status == status
    assert traced.stdout == b""
    said = traced.stderr.decode()
    assert said.startswith("octavo: ")
    assert said.count("\n") == 1
    assert said.endswith((".\n", "?\n", ")\n"))
    for word in words:
        assert word in said
    assert traced.document is None


def executable(path: Path, content: bytes) -> str:
    path.write_bytes(content)
    path.chmod(0o755)
    return str(path)


def elf_header(*, bits: int, machine: int) -> bytes:
    """The beginning of an executable of another kind."""
    identity = b"\x7fELF" + bytes([bits // 32, 1, 1]) + bytes(9)
    return identity + struct.pack("<HHI", 2, machine, 1) + bytes(40)


def test_no_such_program(octavo: Octavo):
    assert_refused(octavo(["no-such-program-anywhere"]), 127, "no-such-program-anywhere")
    assert_refused(octavo(["./no/such/program"]), 127)


@pytest.mark.parametrize("verb", ["run", "curves", "sim", "record", "verify", "apply"])
def test_a_program_is_named_as_it_was_written(verb: str, tmp_path: Path, octavo: Octavo):
    options = ["-o", "new.oct"] if verb == "record" else []
    traced = octavo(["./nosuch"], *options, verb=verb, cwd=tmp_path)
    assert_refused(traced, 127, "no such program: `./nosuch`.")
    if verb == "apply":
        here = os.path.relpath(workload("static_count")[0], tmp_path)
        traced = octavo([here], verb=verb, cwd=tmp_path)
        assert_refused(traced, 125, f"`{here}` is statically linked")


def test_not_executable(tmp_path: Path, octavo: Octavo):
    plain = tmp_path / "plain"
    plain.write_bytes(Path("/bin/true").read_bytes())
    assert_refused(octavo([plain]), 126, "not executable")
    assert_refused(octavo([tmp_path]), 126, "directory")


@pytest.mark.parametrize(("bits", "machine"), [(32, 3), (64, 183)], ids=["i386", "aarch64"])
def test_a_foreign_binary(bits: int, machine: int, tmp_path: Path, octavo: Octavo):
    program = executable(tmp_path / "foreign", elf_header(bits=bits, machine=machine))
    assert_refused(octavo([program]), 126, "x86-64")


def test_a_setting_that_does_not_apply(octavo: Octavo):
    traced = octavo(workload("static_count"), "--settings", "preload", verb="verify")
    assert_refused(traced, 2, "setting `preload` does not apply to", "it is statically linked")


def test_no_program_at_all(tmp_path: Path, octavo: Octavo):
    assert_refused(octavo([executable(tmp_path / "text", b"just words\n")]), 126)
    assert_refused(octavo([executable(tmp_path / "empty", b"")]), 126)


def test_no_valgrind(tmp_path: Path, octavo: Octavo):
    traced = octavo(["/bin/true"], "--tracer", "lackey", env={"PATH": str(tmp_path)})
    assert_refused(traced, 125, "Valgrind", "apt-get install valgrind")


def test_an_old_valgrind(tmp_path: Path, octavo: Octavo):
    executable(tmp_path / "valgrind", b"#!/bin/sh\necho valgrind-3.15.0\n")
    path = f"{tmp_path}:{os.environ['PATH']}"
    traced = octavo(SAY, "--tracer", "lackey", env={"PATH": path})
    assert_refused(traced, 125, "3.15.0", "3.19")


def test_no_tracer(tmp_path: Path, octavo: Octavo):
    assert_refused(octavo(SAY, env={"OCTAVO_TOOL_DIR": str(tmp_path)}), 125)


@pytest.mark.parametrize(
    "options",
    [
        ("--page-sizes", "5KiB"),
        ("--page-sizes", "2KiB"),
        ("--entries", "0"),
        ("--layout", "nativ"),
        ("--tracer", "pin"),
        ("--tlb", "itanium3"),
        ("--max-instructions", "many"),
    ],
    ids=" ".join,
)
def test_wrong_options(options: Sequence[str], octavo: Octavo):
    assert_refused(octavo(SAY, *options), 2)


def test_outputs_that_cannot_be_written_are_refused_before_the_run(tmp_path: Path, octavo: Octavo):
    assert_refused(octavo(SAY, "--json", "/proc/no/result.json"), 125)
    assert_refused(octavo(SAY, "--json", str(tmp_path)), 125)
    file = tmp_path / "file"
    file.write_text("precious\n")
    assert_refused(octavo(SAY, "--out", str(file)), 125)
    full = tmp_path / "full"
    full.mkdir()
    (full / "precious").touch()
    assert_refused(octavo(SAY, "--out", str(full)), 2, "--force")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "full"]


def test_a_full_disk(octavo: Octavo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    traced = octavo(["/bin/true"], "--json", "/dev/full")
    assert_refused(traced, 125, "No space left")
    (kept,) = tmp_path.glob("octavo-*/full")
    assert str(kept.parent) in traced.stderr.decode()


def in_namespace(script: str) -> list[str]:
    """A shell script with mounts of its own; skips where that is not allowed."""
    unshare = ["unshare", "--mount", "--propagation", "private"]
    if natively([*unshare, "mount", "-t", "tmpfs", "none", "/mnt"]).status:
        pytest.skip("mounting in a namespace of one's own needs root")
    return [*unshare, "sh", "-euc", script]


def test_a_disk_that_fills_up_leaves_no_half_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    script = f"""
    mkdir {tmp_path}/small
    mount -t tmpfs -o size=64k none {tmp_path}/small
    status=0
    '{OCTAVO}' run --quiet --out {tmp_path}/small/out -- true || status=$?
    ls -A {tmp_path}/small
    exit $status
    """
    ended = natively(in_namespace(script))
    assert ended.status == 125
    assert b"No space left" in ended.stderr
    assert ended.stdout == b""


SHARED_MEMORY = {
    "missing": """
        mount -t tmpfs none /dev
        mknod -m 666 /dev/null c 1 3
        mknod -m 666 /dev/zero c 1 5
        mknod -m 666 /dev/urandom c 1 9
        """,
    "read-only": "mount -t tmpfs -o ro none /dev/shm",
    "tiny": "mount -t tmpfs -o size=4k none /dev/shm",
}


@pytest.mark.parametrize("shm", SHARED_MEMORY.values(), ids=SHARED_MEMORY.keys())
def test_dev_shm_is_not_needed(shm: str, tmp_path: Path):
    program = " ".join(workload("gups", 1, 10_000))
    run = f"'{OCTAVO}' run --quiet --json {tmp_path}/result.json -- {program}"
    ended = natively(in_namespace(f"{shm}\n{run}"))
    assert ended.status == 0, ended.stderr.decode()
    assert (tmp_path / "result.json").exists()


@pytest.mark.usefixtures("needs_settings")
@pytest.mark.parametrize(
    ("words", "times"),
    [
        (["run"], 1),
        (["curves", "--entries", "16", "--without", "sets,two-sizes"], 1),
        (["sim", "--design", "base4k"], 1),
        (["record", "--out", "trace.oct"], 1),
        (["verify", "--settings", "as now", "--repetitions", "2"], 3),
        (["apply"], 1),
    ],
    ids=lambda words: words[0] if isinstance(words, list) else None,
)
def test_json_on_standard_output_is_alone_there(words: list[str], times: int, tmp_path: Path):
    """The program's output goes to standard error."""
    ended = natively([OCTAVO, *words, "--json", "-", "--", *SAY], cwd=tmp_path)
    assert ended.status == 0, ended.stderr.decode()
    assert json.loads(ended.stdout)["schema"].startswith("octavo/")
    assert ended.stderr.count(b"the program ran\n") == times


def test_without_json_the_program_keeps_its_standard_output(tmp_path: Path):
    for options in ([], ["--json", str(tmp_path / "result.json")]):
        ended = natively([OCTAVO, "run", *options, "--", *SAY])
        assert ended.stdout == b"the program ran\n"
        assert b"the program ran" not in ended.stderr
        assert ended.stderr  # the table


def test_json_goes_to_standard_output_where_standard_error_is_closed():
    ended = natively(["sh", "-c", f"'{OCTAVO}' run --json - -- sh -c 'echo it ran' 2>&-"])
    assert ended.status == 0
    assert json.loads(ended.stdout)["rows"]


def test_plain_where_there_is_no_terminal():
    ended = natively([OCTAVO, "run", "--", *workload("matmul", 20)])
    assert ended.status == 0
    assert b"\x1b" not in ended.stderr
    assert b"\r" not in ended.stderr


def test_the_usual_doors_answer():
    for arguments in (["--help"], ["run", "--help"], ["--version"]):
        done = subprocess.run([OCTAVO, *arguments], capture_output=True, text=True)
        assert done.returncode == 0
        assert "ctavo" in done.stdout


@pytest.mark.parametrize("words", [["list", "machines"], ["machines", "skylake"]])
def test_a_full_standard_output_is_named(words: list[str]):
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run([OCTAVO, *words], stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 125
    assert done.stderr == "octavo: cannot write to standard output: No space left on device.\n"


def test_memory_that_is_full_is_a_sentence(tmp_path: Path):
    """Deep inside of an engine, and in the middle of its work."""
    curves = f"'{OCTAVO}' curves -q --force -o out 'synth:gups?table=4GiB&updates=20M'"
    ended = natively(["sh", "-c", f"ulimit -v 500000; exec {curves}"], cwd=tmp_path)
    said = ended.stderr.decode()
    assert (ended.status, ended.stdout) == (125, b"")
    assert said.startswith("octavo: memory is full")
    assert said.count("\n") == 1
    assert "the limit of address space (`ulimit -v`) is 500000 KiB" in said
    assert "`ulimit -v unlimited` lifts it" in said


def test_a_program_is_found_without_path(tmp_path: Path):
    """As `execvp` finds it: in the system's own directories."""
    for verb in (["run"], ["record", "-o", str(tmp_path / "trace.oct")]):
        ended = natively(["env", "-u", "PATH", OCTAVO, *verb, "-q", "--", "echo", "found"])
        assert (ended.status, ended.stdout, ended.stderr) == (0, b"found\n", b"")


def test_too_few_descriptors_to_start_valgrind_are_explained():
    ended = natively(["sh", "-c", f"ulimit -n 7; exec '{OCTAVO}' run -q -- true"])
    said = ended.stderr.decode()
    assert ended.status == 125
    assert said.count("\n") == 1
    assert "the limit of open files (`ulimit -n`) is 7" in said
