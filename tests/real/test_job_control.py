"""Ctrl-Z and the other signals that stop a process stop a traced program as well."""

import fcntl
import os
import pty
import shlex
import signal
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from .conftest import OCTAVO, TIMEOUT_SECONDS, Octavo, read_document

STOPPED_BY_PARENT = """
import os, signal, sys
number, way, preparation = getattr(signal, sys.argv[1]), sys.argv[2], sys.argv[3]
ours, theirs = os.pipe()
commands, command = os.pipe()
child = os.fork()
if child == 0:
    signal.alarm(20)
    # A group whose members' parents are all of another session is not stopped by the kernel.
    os.setpgid(0, 0)
    exec(preparation)
    os.write(theirs, b"ready")
    if way == "reads":
        os.read(commands, 1)
    elif way == "computes":
        os.set_blocking(commands, False)
        while True:
            try:
                os.read(commands, 1)
                break
            except BlockingIOError:
                sum(range(20_000))
    else:
        os.kill(os.getpid(), number)
    os._exit(7)
os.read(ours, 5)
if way != "stops itself":
    os.kill(child, number)
_, status = os.waitpid(child, os.WUNTRACED)
if not os.WIFSTOPPED(status):
    print("ended with", os.waitstatus_to_exitcode(status))
    sys.exit()
print(signal.Signals(os.WSTOPSIG(status)).name, flush=True)
os.kill(child, signal.SIGCONT)
os.write(command, b"x")
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.parametrize("way", ["reads", "computes", "stops itself"])
@pytest.mark.parametrize("name", ["SIGTSTP", "SIGTTIN", "SIGTTOU"])
def test_signals_that_stop_by_default_stop_a_traced_process(octavo: Octavo, name: str, way: str):
    traced = octavo([sys.executable, "-I", "-c", STOPPED_BY_PARENT, name, way, ""])
    assert (traced.stdout.decode(), traced.status) == (f"{name}\n7\n", 0)


# The handler of C runs at once, and exits with the number. Python's runs when the read has ended.
EXITS_WHEN_HANDLED = """
import ctypes
libc = ctypes.CDLL(None)
libc.signal(number, libc._exit)
"""


@pytest.mark.parametrize("way", ["reads", "computes"])
@pytest.mark.parametrize("name", ["SIGTSTP", "SIGTTIN", "SIGTTOU"])
def test_a_handler_that_follows_the_default_action_runs(octavo: Octavo, name: str, way: str):
    words = [STOPPED_BY_PARENT, name, way, EXITS_WHEN_HANDLED]
    traced = octavo([sys.executable, "-I", "-c", *words])
    exit_code = signal.Signals[name].value
    assert (traced.stdout.decode(), traced.status) == (f"ended with {exit_code}\n", 0)


DEFAULT_AFTER_HANDLER = """
signal.signal(number, signal.SIG_IGN)
signal.signal(number, lambda *_: None)
signal.signal(number, signal.SIG_DFL)
"""

# sysv_signal() sets SA_RESETHAND, and the handler does nothing.
DEFAULT_AFTER_HANDLER_HAS_RUN = """
import ctypes
signal.signal(number, signal.SIG_IGN)
libc = ctypes.CDLL(None)
libc.sysv_signal(number, libc.abs)
os.kill(os.getpid(), number)
"""


@pytest.mark.parametrize("way", ["reads", "computes"])
@pytest.mark.parametrize("preparation", [DEFAULT_AFTER_HANDLER, DEFAULT_AFTER_HANDLER_HAS_RUN])
def test_the_default_action_that_follows_a_handler_stops(
    octavo: Octavo, preparation: str, way: str
):
    traced = octavo([sys.executable, "-I", "-c", STOPPED_BY_PARENT, "SIGTSTP", way, preparation])
    assert (traced.stdout, traced.status) == (b"SIGTSTP\n7\n", 0)


FORBIDS_TGKILL = """
import ctypes, struct
load_number, if_equal, end = 0x20, 0x15, 0x06
tgkill, kill_process, allow = 234, 0x80000000, 0x7FFF0000
code = [(load_number, 0, 0, 0), (if_equal, 0, 1, tgkill), (end, 0, 0, kill_process),
        (end, 0, 0, allow)]
code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *one) for one in code))
filter = struct.pack("HxxxxxxQ", 4, ctypes.addressof(code))
libc = ctypes.CDLL(None)
set_no_new_privileges, set_seccomp, by_filter = 38, 22, 2
assert libc.prctl(set_no_new_privileges, 1, 0, 0, 0) == 0
assert libc.prctl(set_seccomp, by_filter, filter, 0, 0) == 0
"""


def test_a_program_that_confines_its_system_calls_is_stopped(octavo: Octavo):
    words = [STOPPED_BY_PARENT, "SIGTSTP", "computes", FORBIDS_TGKILL]
    traced = octavo([sys.executable, "-I", "-c", *words])
    assert (traced.stdout, traced.status) == (b"SIGTSTP\n7\n", 0)


UNBLOCKS = """
import os, signal
print("executed", flush=True)
signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTSTP])
os._exit(7)
"""
EXECUTES = """
signal.pthread_sigmask(signal.SIG_BLOCK, [number])
os.kill(os.getpid(), number)
os.write(theirs, b"ready")
os.execv(sys.executable, [sys.executable, "-I", "-c", sys.argv[4]])
"""


def test_a_blocked_signal_stays_pending_over_an_exec(octavo: Octavo):
    words = [STOPPED_BY_PARENT, "SIGTSTP", "stops itself", EXECUTES, UNBLOCKS]
    traced = octavo([sys.executable, "-I", "-c", *words])
    assert (traced.stdout, traced.status) == (b"executed\nSIGTSTP\n7\n", 0)


HANDLES = """
import os, signal
signal.signal(signal.SIGTSTP, lambda *_: print("handled"))
os.kill(os.getpid(), signal.SIGTSTP)
signal.signal(signal.SIGTSTP, signal.SIG_IGN)
os.kill(os.getpid(), signal.SIGTSTP)
print("ignored")
"""


def test_a_program_that_handles_or_ignores_the_signal_is_not_stopped(octavo: Octavo):
    traced = octavo([sys.executable, "-I", "-c", HANDLES])
    assert (traced.stdout, traced.status) == (b"handled\nignored\n", 0)


ECHOES = "print('ready', flush=True); print('got', input(), flush=True)"


def test_a_run_goes_on_after_ctrl_z_and_fg(tmp_path: Path):
    result = tmp_path / "result.json"
    words = [OCTAVO, "run", "--quiet", "--json", result, "--", sys.executable, "-I", "-c", ECHOES]
    run = shlex.join(map(str, words))
    ours, theirs = pty.openpty()

    def take_terminal() -> None:
        os.setsid()
        fcntl.ioctl(theirs, termios.TIOCSCTTY, 0)

    shell = subprocess.Popen(
        ["bash", "-c", f"set -m; {run}; echo is stopped; fg; echo status $?"],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        preexec_fn=take_terminal,
    )
    os.close(theirs)
    shown = b""

    def wait_for(text: bytes) -> None:
        nonlocal shown
        while text not in shown:
            shown += os.read(ours, 4096)

    wait_for(b"ready")
    os.write(ours, b"\x1a")
    wait_for(b"is stopped")
    os.write(ours, b"word\n")
    wait_for(b"got word")
    wait_for(b"status 0")
    assert shell.wait(TIMEOUT_SECONDS) == 0
    os.close(ours)
    document = read_document(result)
    assert document is not None
    assert not document["run"]["partial"]
