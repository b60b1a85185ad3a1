"""`octavo apply` on programs that fill a known region and wait."""

from __future__ import annotations

import ctypes
import errno
import json
import os
import re
import shlex
import shutil
import signal
import struct
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.real.conftest import OCTAVO, TIMEOUT_SECONDS, Ended, natively, workload
from typer.testing import CliRunner

from octavo.applying.collapse import read_mappings
from octavo.applying.remote import RemoteProcess
from octavo.cli import app
from schemas import first_error, validator_of

pytestmark = pytest.mark.usefixtures("needs_settings")

MIB = 1 << 20
REGION_MIB = 32
ENOUGH = 0.9
"""The share of the region that must be in huge pages."""
PR_SET_THP_DISABLE, PR_CAPBSET_DROP, CAP_SYS_NICE = 41, 24, 23
PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS = 22, 38


@dataclass
class Resident:
    """A running `workloads/resident`."""

    process: subprocess.Popen[str]
    pid: int
    """The process that has the region."""
    start: int
    bytes: int

    def huge_share(self) -> float:
        """The share of the region in 2 MiB pages."""
        huge = sum(
            mapping.huge
            for mapping in read_mappings(self.pid)
            if mapping.start < self.start + self.bytes and mapping.end > self.start
        )
        return huge / self.bytes

    def wait_until_huge(self) -> None:
        """Returns when the region is in huge pages."""
        end = time.monotonic() + TIMEOUT_SECONDS
        while self.huge_share() < ENOUGH:
            assert time.monotonic() < end, f"only {self.huge_share():.0%} became huge"
            time.sleep(0.05)

    def ask(self, line: str) -> str:
        """Writes a line and reads the answer."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()

    def end(self, status: int) -> None:
        """Checks that no page was changed, and ends the program with this status."""
        assert self.ask("count") == str(self.bytes // 4096)
        self.ask(f"exit {status}")
        assert self.process.wait(TIMEOUT_SECONDS) == status


Start = Callable[..., Resident]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts `resident` in a mode, after the words `before` of another command, and waits for its
    region.
    """
    started: list[subprocess.Popen[str]] = []

    def begin(
        mode: str,
        before: Sequence[str | Path] = (),
        line: str = "",
        first: Callable[[subprocess.Popen[str]], None] = lambda process: None,
        **how: Any,
    ) -> Resident:
        process = subprocess.Popen(
            [*map(str, before), *workload("resident", REGION_MIB, mode)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            **how,
        )
        started.append(process)
        assert process.stdin is not None
        assert process.stdout is not None
        first(process)
        process.stdin.write(line)
        process.stdin.flush()
        pid, address, size = process.stdout.readline().split()
        return Resident(process, int(pid), int(address, 16), int(size))

    yield begin
    for process in started:
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
def _collapse() -> None:
    """Skips if this kernel or this user cannot collapse the memory of another process."""
    with subprocess.Popen(
        workload("resident", 4), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        _, address, _ = process.stdout.readline().split()
        with RemoteProcess(process.pid) as remote:
            number = remote.collapse(int(address, 16))
        assert process.stdin is not None
        process.stdin.close()
    if number:
        pytest.skip(f"process_madvise(MADV_COLLAPSE): {os.strerror(number)}")


@pytest.fixture(scope="module")
def _own_collapse() -> None:
    """Skips if this kernel cannot collapse the memory of the calling process."""
    page = ctypes.create_string_buffer(4 * MIB)
    ctypes.memset(page, 1, 4 * MIB)
    address = -(-ctypes.addressof(page) // (2 * MIB)) * 2 * MIB
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.madvise(ctypes.c_void_p(address), ctypes.c_size_t(2 * MIB), 25):
        pytest.skip(f"madvise(MADV_COLLAPSE): {os.strerror(ctypes.get_errno())}")


outside = pytest.mark.usefixtures("_collapse")
inside = pytest.mark.usefixtures("_own_collapse")


def apply(*words: str | Path | int) -> Ended:
    """Runs the command in this process, which is faster; these commands execute no program."""
    done = CliRunner().invoke(app, ["apply", *map(str, words)], prog_name="octavo")
    return Ended(done.exit_code, done.stdout_bytes, done.stderr_bytes)


FAMILY = """\
import subprocess, sys
others = [subprocess.Popen(["cat"], stdin=-1, stdout=-3) for _ in range(14)]
status = subprocess.call(sys.argv[1:])
for other in others: other.communicate()
sys.exit(status)
"""
"""Runs a program beside fourteen idle processes, which end after it."""


# --- a process that runs -------------------------------------------------------------------------


@outside
@pytest.mark.parametrize("mode", ["plain", "heap"])
def test_a_running_program_gets_huge_pages(mode: str, start: Start, tmp_path: Path) -> None:
    program = start(mode)
    assert program.huge_share() < 1 - ENOUGH
    file = tmp_path / "done.json"
    done = apply("--pid", program.pid, "--json", file)
    assert done.status == 0, done.stderr
    assert program.huge_share() >= ENOUGH
    document = json.loads(file.read_text())
    assert first_error(validator_of("apply"), document) is None
    assert document["made_bytes"] >= ENOUGH * program.bytes
    assert f"resident (process {program.pid}): 2 MiB pages hold" in done.stdout.decode()
    text = " ".join(done.stdout.decode().split())
    assert document["processes"][0]["text"] in text
    assert document["undo"] in text
    again = apply("--pid", program.pid, "--json", "-")
    assert json.loads(again.stdout)["made_bytes"] == 0
    assert again.status == 0
    program.end(7)


@outside
def test_a_dry_run_changes_nothing(start: Start) -> None:
    program = start("plain")
    done = apply("--pid", program.pid, "--dry-run", "--json", "-")
    document = json.loads(done.stdout)
    assert first_error(validator_of("apply"), document) is None
    assert document["processes"][0]["planned_pages"] >= REGION_MIB // 2
    assert (document["made_bytes"], program.huge_share()) == (0, 0)
    text = apply("--pid", program.pid, "--dry-run").stdout.decode()
    assert "would be made" in text
    assert document["processes"][0]["text"] in " ".join(text.split())
    assert document["undo"] is None
    program.end(0)


@outside
def test_children_are_changed_only_with_the_option(start: Start) -> None:
    program = start("fork")
    parent = program.process.pid
    assert program.pid != parent
    assert apply("--pid", parent, "-q").status == 0
    assert program.huge_share() == 0
    assert apply("--pid", parent, "-q", "--children").status == 0
    assert program.huge_share() >= ENOUGH
    program.end(4)


@outside
def test_the_summary_has_a_line_for_each_of_many_processes(start: Start) -> None:
    program = start("plain", ["python3", "-c", FAMILY])
    done = apply("--pid", program.process.pid, "--children", "--json", "-", "--dry-run")
    assert len(json.loads(done.stdout)["processes"]) == 16
    shown = apply("--pid", program.process.pid, "--children").stdout.decode()
    assert "and 4 more processes; --json has all." in shown
    assert re.search(r"^16 processes: 1[6-9] pages made\.$", shown, flags=re.MULTILINE)
    assert "Regions of" not in shown
    assert program.huge_share() >= ENOUGH
    program.end(0)


@outside
def test_only_advised_regions_are_changed(start: Start, tmp_path: Path) -> None:
    program = start("both")
    result = write_result(tmp_path, heap=2 * MIB, anonymous=4096)
    document = json.loads(result.read_text())
    result.write_text(json.dumps({**document, "run": {"program": "/usr/bin/sort"}}))
    done = apply("--pid", program.pid, "--from", result)
    assert done.status == 0
    assert "The result of --from is of another program, `/usr/bin/sort`." in done.stderr.decode()
    assert program.huge_share() >= ENOUGH
    anonymous = [one for one in read_mappings(program.pid) if one.kind == "anonymous"]
    assert max(one.bytes for one in anonymous) >= REGION_MIB * MIB
    assert not any(one.huge for one in anonymous)
    program.end(0)


@outside
def test_a_watch_makes_pages_of_new_memory_until_the_process_ends(start: Start) -> None:
    watch: subprocess.Popen[bytes] | None = None

    def watch_it(process: subprocess.Popen[str]) -> None:
        nonlocal watch
        command = [OCTAVO, "apply", "--pid", str(process.pid), "--watch"]
        watch = subprocess.Popen(command, stderr=subprocess.PIPE)
        assert watch.stderr is not None
        assert b"Watching" in watch.stderr.readline()

    program = start("late", line="\n", first=watch_it)
    assert watch is not None
    with watch:
        program.wait_until_huge()
        program.end(0)
        assert watch.stderr is not None
        rest = watch.stderr.read().decode()
        assert watch.wait(TIMEOUT_SECONDS) == 0
    assert "The watch made 16 pages of 2 MiB; the process has ended." in rest


@outside
def test_ctrl_c_ends_a_watch_with_its_result(start: Start, tmp_path: Path) -> None:
    program = start("plain")
    file = tmp_path / "done.json"
    with subprocess.Popen(
        [OCTAVO, "apply", "--pid", str(program.pid), "--watch", "--json", str(file)],
        stderr=subprocess.PIPE,
    ) as watch:
        assert watch.stderr is not None
        assert b"Watching" in watch.stderr.readline()
        watch.send_signal(signal.SIGINT)
        assert b"interrupted" in watch.stderr.read()
        assert watch.wait(TIMEOUT_SECONDS) == 130
    assert json.loads(file.read_text())["made_bytes"] >= ENOUGH * program.bytes
    program.end(0)


def call_prctl(number: int, value: int) -> Callable[[], None]:
    libc = ctypes.CDLL(None)
    return lambda: libc.prctl(number, value, 0, 0, 0)


def test_a_missing_capability_is_an_error(start: Start) -> None:
    program = start("plain")
    done = subprocess.run(
        [OCTAVO, "apply", "--pid", str(program.pid)],
        capture_output=True,
        text=True,
        preexec_fn=call_prctl(PR_CAPBSET_DROP, CAP_SYS_NICE),
    )
    assert (done.returncode, done.stdout) == (125, "")
    assert done.stderr.startswith("octavo: changing the memory of another process needs the cap")
    assert done.stderr.count("\n") == 1
    program.end(0)


def test_a_process_with_disabled_huge_pages_is_refused(start: Start) -> None:
    program = start("plain", preexec_fn=call_prctl(PR_SET_THP_DISABLE, 1))
    done = apply("--pid", program.pid)
    assert done.status == 125
    assert b"has switched huge pages off for itself" in done.stderr
    program.end(0)


def test_no_such_process() -> None:
    done = apply("--pid", 2**22)
    assert (done.status, done.stderr) == (125, b"octavo: there is no process 4194304.\n")


# --- a program to start --------------------------------------------------------------------------

PRELOAD = (OCTAVO, "apply", "-q", "--by", "preload")


def write_result(directory: Path, **sizes: int) -> Path:
    """Writes a result that advises page sizes, given by the kind of region."""
    regions = [
        {
            "scope": "region",
            "stream": "data",
            "region_kind": kind,
            "bytes": REGION_MIB * MIB,
            "page_size": size,
            "usable_page_size": size,
        }
        for kind, size in sizes.items()
    ]
    file = directory / "result.json"
    file.write_text(json.dumps({"schema": "octavo/run/1", "advice": regions}))
    return file


@inside
@pytest.mark.parametrize("mode", ["plain", "late", "heap", "thread", "fork", "exec"])
def test_a_preloaded_program_gets_huge_pages(mode: str, start: Start) -> None:
    program = start(mode, [*PRELOAD, "--"], line="\n" if mode == "late" else "")
    if mode != "fork":
        assert program.pid == program.process.pid
    program.wait_until_huge()
    program.end(7)


@inside
def test_a_growing_heap_gets_huge_pages_across_its_old_end(start: Start) -> None:
    def wait_for_half(process: subprocess.Popen[str]) -> None:
        end = time.monotonic() + TIMEOUT_SECONDS
        huge = 0
        while huge < REGION_MIB // 2 - 4:
            assert time.monotonic() < end
            time.sleep(0.05)
            if Path(f"/proc/{process.pid}/comm").read_text() == "resident\n":
                heap = [one for one in read_mappings(process.pid) if one.kind == "heap"]
                huge = sum(one.huge for one in heap) // MIB

    program = start("grow", [*PRELOAD, "--"], line="\n", first=wait_for_half)
    program.wait_until_huge()
    program.end(0)


def huge_text(command: Sequence[str | Path]) -> tuple[int, bytes]:
    """Bytes of files that a program has mapped in huge pages once it prints `ready`, and its text
    on standard error.
    """
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        smaps = Path(f"/proc/{process.pid}/smaps").read_text()
    finally:
        process.kill()
        _, errors = process.communicate()
    return sum(
        int(size) for size in re.findall(r"FilePmdMapped: +([0-9]+) kB", smaps)
    ) << 10, errors


@pytest.mark.parametrize("aligned", [True, False])
def test_text_is_read_in_huge_pages_as_a_result_advises(tmp_path: Path, aligned: bool) -> None:
    source, binary, file = tmp_path / "text.c", tmp_path / "text", tmp_path / "done.json"
    source.write_text(
        "#include <stdio.h>\n#include <unistd.h>\n"
        '__asm__(".text\\n.globl body\\nbody: .fill 8388608, 1, 0x90\\nret\\n");\n'
        "void body(void);\n"
        'int main(void) { body(); puts("ready"); fflush(stdout); pause(); return 0; }\n'
    )
    options = ["-Wl,-z,max-page-size=0x200000"] if aligned else []
    subprocess.run(["gcc", "-o", binary, source, *options], check=True)
    os.sync()  # dirty pages cannot be changed
    item = {"page_size": 2 * MIB, "usable_page_size": 2 * MIB, "stream": "fetch"}
    text = {**item, "scope": "region", "region_kind": "text", "path": str(binary)}
    data = {"page_size": 4096, "usable_page_size": 4096, "stream": "data", "scope": "program"}
    result = tmp_path / "result.json"
    result.write_text(json.dumps({"schema": "octavo/run/1", "advice": [data, text]}))
    huge, errors = huge_text([OCTAVO, "apply", "--from", result, "--json", file, "--", binary])
    command = [OCTAVO, "apply", "--unit", "some", "--from", result, "--", binary]
    unit = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    document = json.loads(file.read_text())
    assert first_error(validator_of("apply"), document) is None
    (found,) = document["texts"]
    if not aligned:
        assert huge == found["huge_bytes"] == 0
        assert b"text of text stays in 4 KiB pages" in errors
        assert "# The text of text stays in 4 KiB pages" in unit
        return
    if "has no large folios" in found["reason"] or "since Linux" in found["reason"]:
        pytest.skip(found["reason"])
    assert huge >= 6 * MIB
    assert found["huge_bytes"] >= 6 * MIB
    assert b"of text are in the page cache in 2 MiB pages" in errors
    # The line that a service runs before its program has the same effect.
    shutil.copy(binary, tmp_path / "other")
    os.sync()
    before = unit.partition("ExecStartPre=")[2].partition("\n")[0].replace("%%", "%")
    words = [word.replace(str(binary), str(tmp_path / "other")) for word in shlex.split(before)]
    subprocess.run(words, check=True)
    assert huge_text([tmp_path / "other"])[0] >= 6 * MIB


@inside
def test_the_library_changes_only_advised_regions(start: Start, tmp_path: Path) -> None:
    result = write_result(tmp_path, heap=2 * MIB, anonymous=4096)
    log = tmp_path / "log"
    program = start("both", [*PRELOAD, "--log", log, "--from", result, "--"])
    program.wait_until_huge()
    end = time.monotonic() + TIMEOUT_SECONDS
    while not log.exists() or not log.read_text():
        assert time.monotonic() < end
        time.sleep(0.05)
    anonymous = [one for one in read_mappings(program.pid) if one.kind == "anonymous"]
    assert max(one.bytes for one in anonymous) >= REGION_MIB * MIB
    assert not any(one.huge for one in anonymous)
    assert log.read_text().startswith(f"pid {program.pid}: ")
    program.end(0)


def without_free_memory() -> None:
    """Makes the kernel answer ENOMEM to each MADV_COLLAPSE of this process."""
    # seccomp(2): the call's number is at 0, its third argument at 32.
    steps = (
        (0x20, 0, 0, 0),
        (0x15, 0, 3, 28),  # madvise
        (0x20, 0, 0, 32),
        (0x15, 0, 1, 25),  # MADV_COLLAPSE
        (0x06, 0, 0, 0x50000 | errno.ENOMEM),
        (0x06, 0, 0, 0x7FFF0000),
    )
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
    program = struct.pack("HxxxxxxP", len(steps), ctypes.addressof(code))
    prctl = ctypes.CDLL(None).prctl
    assert prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
    assert prctl(PR_SET_SECCOMP, 2, program, 0, 0) == 0


def test_the_log_says_why_the_kernel_refused(start: Start, tmp_path: Path) -> None:
    log = tmp_path / "log"
    program = start("plain", [*PRELOAD, "--log", log, "--"], preexec_fn=without_free_memory)
    end = time.monotonic() + TIMEOUT_SECONDS
    while not log.exists() or not log.read_text():
        assert time.monotonic() < end
        time.sleep(0.05)
    assert log.read_text().splitlines()[0] == (
        f"pid {program.pid}: 0 pages of 2 MiB made, 1 refused (no free 2 MiB of memory in one "
        "piece: `echo 1 > /proc/sys/vm/compact_memory` as root may make some)"
    )
    program.end(0)


@inside
def test_the_thread_has_no_descriptor_or_signal_of_the_program(start: Start) -> None:
    program = start("plain", [*PRELOAD, "--"])
    program.wait_until_huge()
    tasks = {int(task.name): task for task in Path(f"/proc/{program.pid}/task").iterdir()}
    assert len(tasks) == 2
    del tasks[program.pid]
    (thread,) = tasks.values()
    assert (thread / "comm").read_text() == "octavo-apply\n"
    names = {entry.readlink().name for entry in (thread / "fd").iterdir()}
    assert names == {"maps", "pagemap"}
    fields = dict(line.split(":\t", 1) for line in (thread / "status").read_text().splitlines())
    unblockable = 1 << (signal.SIGKILL - 1) | 1 << (signal.SIGSTOP - 1)
    assert int(fields["SigBlk"], 16) == (1 << 64) - 1 - unblockable
    if os.geteuid() == 0:
        assert int(fields["CapPrm"], 16) == 0
        assert fields["Seccomp"].strip() == "2"
    program.end(0)


def test_signals_and_environment_are_the_programs_own(start: Start) -> None:
    program = start("plain", [*PRELOAD, "--"])
    program.process.send_signal(signal.SIGTERM)
    assert program.process.wait(TIMEOUT_SECONDS) == -signal.SIGTERM
    shown = natively([*PRELOAD, "--", "env"], env={"LC_ALL": "C", "LD_PRELOAD": ""})
    plain = natively(["env"], env={"LC_ALL": "C"})
    ours = ("LD_PRELOAD=", "OCTAVO_APPLY_", "_=")
    kept = [line for line in shown.stdout.decode().splitlines() if not line.startswith(ours)]
    assert sorted(kept) == sorted(
        line for line in plain.stdout.decode().splitlines() if not line.startswith(ours)
    )
    ignored = 'trap \'\' INT; exec "$0" "$@"'
    shown_ignored = [
        natively(["sh", "-c", ignored, *words, "grep", "SigIgn", "/proc/self/status"]).stdout
        for words in ([], [*PRELOAD, "--"])
    ]
    assert shown_ignored[0] == shown_ignored[1]
    assert int(shown_ignored[0].split()[1], 16) & 1 << (signal.SIGINT - 1)


def test_a_program_may_have_its_streams_closed(tmp_path: Path) -> None:
    words = " ".join(map(str, PRELOAD))
    script = f"{words} -- sh -c 'ls -l /proc/self/fd > {tmp_path}/open 2>&1; exit 9' <&- >&-"
    assert natively(["sh", "-c", script]).status == 9
    assert str(OCTAVO.parent) not in (tmp_path / "open").read_text()


def test_children_can_be_left_out() -> None:
    script = "import os; print(os.environ.get('LD_PRELOAD'), flush=True); os.system('env')"
    done = natively([*PRELOAD, "--no-children", "--", "python3", "-c", script])
    assert done.stdout.startswith(b"None\n")
    assert b"LD_PRELOAD" not in done.stdout


def test_a_static_program_is_refused_before_it_starts() -> None:
    done = apply("--", *workload("static_count"))
    assert (done.status, done.stdout) == (125, b"")
    assert b"is statically linked" in done.stderr
    assert b"octavo apply --pid PID --watch" in done.stderr


def test_no_such_program() -> None:
    assert apply("--", "no-such-program").status == 127
    assert apply("--", "/etc/passwd").status == 126


# --- programs that fork, execute or lose privileges -----------------------------------------------

FORKS = """\
import os, sys, threading
stop = threading.Event()
def churn():
    while not stop.is_set():
        [bytes(number * 100) for number in range(300)]
threads = [threading.Thread(target=churn) for _ in range(2)]
for thread in threads: thread.start()
data = [str(number) * 20 for number in range(200_000)]
wrong = 0
for number in range(300):
    child = os.fork()
    if not child:
        data[number] = "changed"
        if number % 2: os.execv("/bin/true", ["true"])
        os._exit(number % 100)
    _, status = os.waitpid(child, 0)
    wrong += os.waitstatus_to_exitcode(status) != (0 if number % 2 else number % 100)
stop.set()
for thread in threads: thread.join()
sys.exit(wrong)
"""

UNPRIVILEGED = """\
import os, time
os.setgid(65534)
os.setuid(65534)
data = [str(number) * 20 for number in range(400_000)]
end = time.monotonic() + 300
while time.monotonic() < end:
    lines = open("/proc/self/smaps").read().splitlines()
    if sum(int(line.split()[1]) for line in lines if line.startswith("AnonHugePages")) > 8192:
        os._exit(9)
    time.sleep(0.05)
"""


@pytest.mark.long
def test_a_program_of_threads_forks_and_executes() -> None:
    done = natively([*PRELOAD, "--", "python3", "-c", FORKS])
    assert done.status == 0, done.stderr


@inside
def test_a_program_may_give_up_its_privileges() -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    done = natively([*PRELOAD, "--", "python3", "-c", UNPRIVILEGED])
    assert done.status == 9, done.stderr
