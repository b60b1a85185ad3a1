"""Programs that change their user, limits or allowed system calls, before or after they execute
another program: they run as they do natively, and untraced processes are reported.
"""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from .conftest import OCTAVO, ROOT, Octavo, Traced, natively, workload

UNPRIVILEGED_ID = 65534
DROP = ["setpriv", f"--reuid={UNPRIVILEGED_ID}", f"--regid={UNPRIVILEGED_ID}", "--clear-groups"]

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can change its user")


def programs(traced: Traced) -> list[str]:
    """The names of the traced programs, in the order in which they began."""
    return [Path(process["program"]).name for process in traced.run["processes"]]


@needs_root
def test_a_program_executed_after_privileges_are_dropped_is_traced(octavo: Octavo):
    """As servers do that root has started."""
    traced = octavo([*DROP, "sh", "-c", "id -u; echo traced"])
    assert (traced.status, traced.stdout) == (0, b"65534\ntraced\n"), traced.stderr.decode()
    assert not traced.run["partial"]
    # dash is `sh` in Debian; `id` is a child of it.
    assert len(programs(traced)) == 4
    assert programs(traced)[0] == "setpriv"
    assert "id" in programs(traced)
    traced.check()


@pytest.fixture
def hidden(tmp_path: Path) -> Path:
    """A directory with the tracer that only its owner can enter."""
    directory = tmp_path / "home" / "tracer"
    shutil.copytree(ROOT / "build/tracer", directory, symlinks=True)
    directory.parent.chmod(0o700)
    return directory


@needs_root
def test_the_tracer_is_reached_in_a_directory_that_only_root_can_enter(
    hidden: Path, octavo: Octavo
):
    traced = octavo([*DROP, "sh", "-c", "id -u; true"], env={"OCTAVO_TOOL_DIR": str(hidden)})
    assert (traced.status, traced.stdout, traced.stderr) == (0, b"65534\n", b"")
    assert not traced.run["partial"]
    assert "id" in programs(traced)


@needs_root
def test_untraceable_programs_run_untraced(hidden: Path, octavo: Octavo):
    (hidden / "octavo-amd64-linux").chmod(0o700)
    traced = octavo([*DROP, "echo", "ran"], env={"OCTAVO_TOOL_DIR": str(hidden)})
    assert (traced.status, traced.stdout) == (0, b"ran\n")
    assert programs(traced) == ["setpriv"]
    assert traced.count("untraced_processes") == 1
    assert traced.run["partial"]
    reason = traced.run["partial_reason"]
    assert "echo: the tracer's file is out of reach" in reason


@needs_root
def test_a_set_user_id_program_keeps_its_privileges_and_runs_untraced(
    tmp_path: Path, octavo: Octavo
):
    tmp_path.chmod(0o755)
    for parent in tmp_path.parents[:3]:
        parent.chmod(parent.stat().st_mode | 0o111)
    program = shutil.copy("/usr/bin/id", tmp_path / "id")
    program.chmod(0o4755)
    traced = octavo([*DROP, "sh", "-c", f"{program} -u; true"])
    assert (traced.status, traced.stdout) == (0, b"0\n"), traced.stderr.decode()
    assert "gains privileges" in traced.run["partial_reason"]
    # Root gains no privileges by the program, which is therefore traced.
    traced = octavo([program, "-u"])
    assert (traced.status, traced.stdout) == (0, b"0\n"), traced.stderr.decode()
    assert not traced.run["partial"]
    assert programs(traced) == ["id"]


@pytest.mark.parametrize("follow", ["--follow", "--no-follow"])
def test_the_limit_of_open_files_is_the_programs_own(follow: str, octavo: Octavo):
    """memcached lowers its hard limit as it starts; an executed program inherits the limits."""
    traced = octavo(workload("open_files"), follow)
    alone = natively(workload("open_files"))
    assert traced.stdout == alone.stdout
    assert traced.stdout.endswith(b"50\n60\n")
    assert (traced.status, traced.stderr) == (0, b"")


def test_a_temporary_directory_is_not_needed(octavo: Octavo):
    traced = octavo(["sh", "-c", "TMPDIR=/nowhere cat /proc/self/cmdline"])
    assert traced.stdout.endswith(b"cat\0/proc/self/cmdline\0")
    assert traced.status == 0


@pytest.mark.parametrize("mode", ["strict", "filter"])
def test_a_death_by_seccomp_is_not_blamed_on_the_program(mode: str, octavo: Octavo):
    traced = octavo(workload("seccomp", mode))
    assert traced.status == 125
    assert traced.stdout.startswith(b"before\n")
    errors = traced.stderr.decode()
    assert f"confined its system calls (seccomp {mode}" in errors
    assert "alone the program may run on" in errors
    assert errors.count("\n") == 1
    assert traced.run["partial"]


NO_CLOCK = """
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>
int main(void)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_clock_gettime, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof code / sizeof *code, code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) return 2;
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) return 2;
    return write(1, "after", 5) != 5;
}
"""


def test_system_calls_are_not_measured_once_they_are_confined(octavo: Octavo, tmp_path: Path):
    (tmp_path / "no_clock.c").write_text(NO_CLOCK)
    binary = tmp_path / "no_clock"
    subprocess.run(["gcc", "-O1", "-o", binary, tmp_path / "no_clock.c"], check=True)
    traced = octavo([binary])
    assert (traced.status, traced.stdout) == (0, b"after")


def test_a_child_that_dies_by_seccomp_is_named(octavo: Octavo):
    (program, mode) = workload("seccomp", "filter")
    traced = octavo(["sh", "-c", f"{program} {mode}; exit 0"])
    assert traced.status == 0
    assert "confined its system calls (seccomp filter)" in traced.run["partial_reason"]


def test_the_ring_cannot_be_truncated(octavo: Octavo):
    """A truncation would kill Octavo by SIGBUS, as Octavo has the ring mapped."""
    traced = octavo(workload("truncate_ring"))
    assert traced.stdout == b"2 found, 0 changed\n"
    assert (traced.status, traced.stderr) == (0, b"")
    assert not traced.run["partial"]
    traced.check()


@pytest.mark.parametrize("command", [["run"], ["curves"], ["record", "-o", "trace.oct"]], ids=str)
@pytest.mark.parametrize(
    ("limit", "name"),
    [("-n 12", "open files"), ("-v 4000000", "address space"), ("-f 1000", "file size")],
)
def test_a_limit_that_leaves_too_little_is_named(
    command: list[str], limit: str, name: str, tmp_path: Path
):
    octavo = " ".join([f"'{OCTAVO}'", *command, "--quiet", "--", "/bin/echo ran"])
    drop = (
        "setpriv --inh-caps=-sys_resource --bounding-set=-sys_resource" if os.geteuid() == 0 else ""
    )
    ended = natively(["sh", "-c", f"ulimit {limit}; exec {drop} {octavo}"], cwd=tmp_path)
    errors = ended.stderr.decode()
    assert (ended.status, ended.stdout) == (125, b"")
    assert errors.startswith("octavo: ")
    assert errors.count("\n") == 1
    assert f"the limit of {name} (`ulimit {limit.split()[0]}`) is" in errors


def test_too_few_threads_are_explained_and_nothing_waits_for_ever(tmp_path: Path):
    """Each number of threads that is too small fails at a different thread. The test runs as root,
    which sets the limit for another user.
    """
    if os.geteuid() != 0:
        pytest.skip("running processes of this user count against the limit, too")
    drop = ["setpriv", "--reuid=65533", "--clear-groups", "--inh-caps=-all", "--bounding-set=-all"]
    tmp_path.chmod(0o777)
    endings = []
    for threads in range(1, 12):
        octavo = [OCTAVO, "sim", "--quiet", "--", "/bin/echo", "ran"]
        ended = natively(["prlimit", f"--nproc={threads}", *drop, *octavo], cwd=tmp_path)
        endings.append(ended.status)
        if ended.status == 0:
            break
        errors = ended.stderr.decode()
        assert ended.status == 125
        assert errors.startswith("octavo: ")
        assert errors.count("\n") == 1
        assert f"the limit of processes (`ulimit -u`) is {threads}" in errors
    assert len(endings) > 3
    assert endings[-1] == 0
