"""Ctrl-Z and the other signals that stop a process stop a traced program as well."""

import fcntl
import os
import pty
import shlex
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from .conftest import OCTAVO, TIMEOUT_SECONDS, Octavo, read_document

STOPPED_BY_PARENT = """
import os, signal, sys
number, way = getattr(signal, sys.argv[1]), sys.argv[2]
ours, theirs = os.pipe()
commands, command = os.pipe()
child = os.fork()
if child == 0:
    signal.alarm(20)
    # A group whose members' parents are all of another session is not stopped by the kernel.
    os.setpgid(0, 0)
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
                pass
    else:
        os.kill(os.getpid(), number)
    os._exit(7)
os.read(ours, 5)
if way != "stops itself":
    os.kill(child, number)
_, status = os.waitpid(child, os.WUNTRACED)
print(os.WIFSTOPPED(status) and signal.Signals(os.WSTOPSIG(status)).name)
os.kill(child, signal.SIGCONT)
os.write(command, b"x")
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.parametrize("way", ["reads", "computes", "stops itself"])
@pytest.mark.parametrize("name", ["SIGTSTP", "SIGTTIN", "SIGTTOU"])
def test_signals_that_stop_by_default_stop_a_traced_process(octavo: Octavo, name: str, way: str):
    traced = octavo([sys.executable, "-I", "-c", STOPPED_BY_PARENT, name, way])
    assert (traced.stdout.decode(), traced.status) == (f"{name}\n7\n", 0)


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
