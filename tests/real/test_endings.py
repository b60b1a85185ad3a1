"""However a run ends, what was counted up to there is kept and what it is worth is said."""

import fcntl
import json
import os
import pty
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from .conftest import OCTAVO, TIMEOUT_SECONDS, Octavo, natively, read_document, workload

POOL = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages"
"""The pages of 2 MiB that the machine keeps for hugetlbfs."""


@pytest.mark.parametrize(
    ("mode", "status", "signal_name"),
    [
        ("die-segv", 139, "SIGSEGV"),
        ("die-abort", 134, "SIGABRT"),
        ("die-kill", 137, "SIGKILL"),
        ("die-trap", 132, "SIGILL"),
    ],
)
def test_a_deadly_signal(mode: str, status: int, signal_name: str, octavo: Octavo):
    traced = octavo(workload("signals", mode))
    assert traced.stdout == b"before\n"
    assert traced.status == status
    traced.check()
    assert traced.run["partial"]
    assert signal_name in traced.run["partial_reason"]
    # The work before the end was counted: 16384 loads and stores.
    assert traced.count("stores") > 16384


def test_an_instruction_that_valgrind_does_not_know(octavo: Octavo):
    """Not the program's fault, so not its status: natively it may well go on."""
    traced = octavo(workload("signals", "die-avx512"))
    assert traced.stdout == b"before\n"
    assert traced.status == 125
    assert traced.stderr.startswith(b"octavo: ")
    assert b"instruction" in traced.stderr
    assert traced.stderr.count(b"\n") == 1
    traced.check()
    assert traced.run["partial"]
    assert "Unrecognised instruction" in traced.run["exit"]["diagnostics"]


def test_a_program_that_reserves_more_than_the_tracer_has(octavo: Octavo):
    code = "import mmap; mmap.mmap(-1, 8 << 40, flags=0x4022, prot=mmap.PROT_READ)"
    argv = [sys.executable, "-I", "-c", code]
    assert natively(argv).status == 0
    asked = "asked for 8 TiB of address space in one piece and got none: Valgrind has 128 GiB"
    traced = octavo(argv)
    assert traced.status == 1
    assert asked in traced.run["exit"]["diagnostics"]
    traced = octavo(argv, "--start-after", "1min")
    assert traced.status == 125
    assert asked in traced.stderr.decode()


def test_a_mapping_that_the_tracer_refuses_is_explained_where_the_program_goes_on(octavo: Octavo):
    code = (
        "import mmap, sys\n"
        "try: mmap.mmap(-1, int(sys.argv[1]) << 30, flags=0x4022, prot=mmap.PROT_READ)\n"
        "except OSError: print('refused')"
    )
    argv = [sys.executable, "-I", "-c", code]
    assert octavo([*argv, "62"]).stdout == b""
    traced = octavo([*argv, "64"])
    assert (traced.status, traced.stdout) == (0, b"refused\n")
    (warning,) = traced.run["warnings"]
    assert warning.startswith("ADDRESS SPACE: ")
    assert "asked for 64 GiB of address space in one piece and got none: Valgrind has" in warning


def test_a_small_mapping_that_finds_no_room_is_explained_by_the_room_that_is_left(octavo: Octavo):
    code = (
        "import mmap\n"
        "kept = []\n"
        "try:\n"
        "    while True: kept.append(mmap.mmap(-1, 3 << 29, flags=0x4022, prot=mmap.PROT_READ))\n"
        "except OSError: print('refused')"
    )
    traced = octavo([sys.executable, "-I", "-c", code])
    assert (traced.status, traced.stdout) == (0, b"refused\n")
    (warning,) = traced.run["warnings"]
    reason = "Valgrind has 128 GiB in all, and no piece that is free is so large"
    assert f"asked for 1536 MiB of address space in one piece and got none: {reason}" in warning


def test_a_childs_death_is_the_childs_own(octavo: Octavo):
    dying = workload("signals", "die-abort")[0]
    traced = octavo(["sh", "-c", f"'{dying}' die-abort 2>/dev/null; echo $?; exit 4"])
    assert traced.stdout == b"before\n134\n"
    assert traced.status == 4
    assert "signal" in {process["ended_by"] for process in traced.run["processes"]}


class Spinning:
    """`octavo run -- signals spin`, under way: the program has said that it is ready."""

    def __init__(self, result: Path) -> None:
        self.result = result
        self.process = subprocess.Popen(
            [OCTAVO, "run", "--quiet", "--json", result, "--", *workload("signals", "spin")],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == b"ready\n"

    def traced_pid(self) -> int:
        """The traced program: the only child."""
        tasks = Path(f"/proc/{self.process.pid}/task")
        children = [
            pid for task in tasks.iterdir() for pid in (task / "children").read_text().split()
        ]
        (pid,) = map(int, children)
        return pid


@pytest.fixture
def spinning(tmp_path: Path) -> Iterator[Spinning]:
    run = Spinning(tmp_path / "result.json")
    yield run
    run.process.kill()
    run.process.communicate()


def test_sigterm_ends_a_recording_from_python_and_the_process(tmp_path: Path):
    trace = tmp_path / "a.oct"
    code = "import octavo, sys; octavo.record(sys.argv[2:], sys.argv[1]); print('went on')"
    process = subprocess.Popen(
        [sys.executable, "-c", code, trace, *workload("signals", "spin")],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    process.terminate()
    assert process.communicate(timeout=TIMEOUT_SECONDS) == (b"", None)
    assert process.returncode == -signal.SIGTERM
    info = json.loads(natively([OCTAVO, "info", trace, "--json", "-"]).stdout)
    assert info["state"] == "whole"
    assert "SIGTERM" in info["about"]["partial_reason"]


def test_kill_9_of_the_program(spinning: Spinning):
    os.kill(spinning.traced_pid(), signal.SIGKILL)
    assert spinning.process.wait(TIMEOUT_SECONDS) == 137
    document = read_document(spinning.result)
    assert document is not None
    assert document["run"]["partial"]
    assert "SIGKILL" in document["run"]["partial_reason"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_octavo_ends_the_run_and_keeps_its_results(
    number: signal.Signals, spinning: Spinning
):
    pid = spinning.traced_pid()
    spinning.process.send_signal(number)
    assert spinning.process.wait(TIMEOUT_SECONDS) == 128 + number
    document = read_document(spinning.result)
    assert document is not None
    assert number.name in document["run"]["partial_reason"]
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_ctrl_c_on_a_terminal(tmp_path: Path):
    result = tmp_path / "result.json"
    ours, theirs = pty.openpty()

    def take_terminal() -> None:
        os.setsid()
        fcntl.ioctl(theirs, termios.TIOCSCTTY, 0)

    command = [OCTAVO, "run", "--json", result, "--", *workload("signals", "spin")]
    process = subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, preexec_fn=take_terminal
    )
    os.close(theirs)
    shown = b""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while b"ready" not in shown and time.monotonic() < deadline:
        shown += os.read(ours, 4096)
    os.write(ours, b"\x03")
    while True:
        try:
            piece = os.read(ours, 4096)
        except OSError:  # the last one to hold the terminal has gone
            break
        shown += piece
    os.close(ours)
    assert process.wait(TIMEOUT_SECONDS) == 130
    document = read_document(result)
    assert document is not None
    assert "SIGINT" in document["run"]["partial_reason"]
    assert b"partial" in shown.lower()
    assert b"Traceback" not in shown


@pytest.mark.long
def test_a_hundred_deaths_leave_nothing_behind(
    octavo: Octavo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    # Tests beside this one have files of their own in the usual directory.
    monkeypatch.setenv("TMPDIR", str(tmp_path))

    def ours() -> set[str]:
        places = (Path("/dev/shm"), tmp_path)
        return {path.name for place in places for path in place.glob("*octavo*")}

    before = ours()
    for _ in range(100):
        assert octavo(workload("signals", "die-kill")).status == 137
    assert ours() == before


@pytest.mark.skipif(not Path(POOL).exists(), reason="needs hugetlbfs")
def test_pages_of_hugetlbfs_that_a_program_does_not_get_are_named(octavo: Octavo):
    code = (
        "import mmap\n"
        "for gib, flags in (32, 0x40022), (16, 0x40022), (2, 0x40022 | 30 << 26):\n"
        "    try: mmap.mmap(-1, gib << 30, flags=flags)\n"
        "    except OSError: print('refused')"
    )
    traced = octavo([sys.executable, "-I", "-c", code])
    assert (traced.status, traced.stdout) == (0, 3 * b"refused\n")
    small, gigantic = traced.run["warnings"]
    asked = "asked for 2 mappings (48 GiB in all, at most 32 GiB) in 2 MiB pages of hugetlbfs"
    assert f"{asked} and got none" in small
    assert "the largest needs 16,384 of them free" in small
    assert POOL in small
    assert "asked for 2 GiB in 1 GiB pages of hugetlbfs and got none" in gigantic
    assert "it needs 2 of them free" in gigantic


@pytest.mark.skipif(not Path(POOL).exists(), reason="needs hugetlbfs")
def test_a_file_of_hugetlbfs_has_pages_of_its_own_size(octavo: Octavo):
    code = (
        "import mmap, os\n"
        "file = os.memfd_create('pool', os.MFD_HUGETLB | os.MFD_HUGE_2MB)\n"
        "os.ftruncate(file, 32 << 30)\n"
        "try: mmap.mmap(file, 32 << 30, flags=mmap.MAP_SHARED | os.MFD_HUGE_1GB)\n"
        "except OSError: print('refused')"
    )
    traced = octavo([sys.executable, "-I", "-c", code])
    assert (traced.status, traced.stdout) == (0, b"refused\n")
    (warning,) = traced.run["warnings"]
    assert "asked for 32 GiB in 2 MiB pages of hugetlbfs" in warning
