"""Usual programs, which behave under Octavo as they do natively."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from .conftest import OCTAVO, Octavo, Traced, natively, workload

# The interpreter itself, as the command on PATH may be a script that starts one.
PYTHON = str(Path(sys.executable).resolve())

PYTHON_SCRIPT = """
import json, sys
words = {}
for i in range(3000):
    words.setdefault(i * 7919 % 101, []).append(str(i))
print(json.dumps({k: len("".join(v)) for k, v in sorted(words.items())}))
print("to standard error", file=sys.stderr)
sys.exit(5)
"""

SHELL_SCRIPT = """
echo begin
(echo in a subshell; exit 3)
echo "status $?"
words=$(printf 'c\\nb\\na\\n' | sort | tr a-c A-C)
echo $words
echo to standard error >&2
sleep 0.01 &
wait
exit 9
"""

QUERIES = b"""
CREATE TABLE t (a INTEGER PRIMARY KEY, b TEXT);
WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 5000)
INSERT INTO t SELECT i, 'row ' || i FROM n;
SELECT count(*), sum(length(b)) FROM t WHERE a % 7 = 3;
SELECT nothing FROM nowhere;
"""

TEXT = b"".join(b"line %d of a text that gzip can do something with\n" % i for i in range(20_000))


@dataclass(frozen=True)
class Case:
    """A command, its standard input, and the least number of its processes."""

    argv: list[str]
    stdin: bytes = b""
    processes: int = 1


CASES = {
    "gzip": Case(["gzip", "-c"], TEXT),
    "python": Case([PYTHON, "-I", "-c", PYTHON_SCRIPT]),
    "sqlite": Case(["sqlite3", ":memory:"], QUERIES),
    "shell": Case(["sh", "-c", SHELL_SCRIPT], processes=7),
    "threads": Case(workload("threads", 4, 1, 3)),
    "forks": Case(workload("forks", 5), processes=8),
    "ring": Case(workload("ring_wait")),
    "selfmod": Case(workload("selfmod", 300)),
    "selfmod-late": Case(workload("selfmod", 301)),
    "bfs": Case(workload("bfs", 5000, 8)),
    "matmul": Case(workload("matmul", 40)),
    "gups": Case(workload("gups", 8, 100_000)),
    "maps": Case(workload("many_maps", 3000)),
    "handled-signals": Case(workload("signals", "usr1")),
    "handled-faults": Case(workload("signals", "segv")),
    "exit-3": Case(workload("signals", "exit-3")),
    "static": Case(workload("static_count")),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_a_traced_program_reads_writes_and_ends_as_it_does_alone(case: Case, octavo: Octavo):
    # A fixed hash seed makes the output of Python the same in both runs. Valgrind checks each
    # superblock.
    env = {"PYTHONHASHSEED": "0", "OCTAVO_CHECK_TRANSLATIONS": "1"}
    alone = natively(case.argv, stdin=case.stdin, env=env)
    traced = octavo(case.argv, stdin=case.stdin, env=env)
    assert traced.stderr.decode() == alone.stderr.decode()
    assert traced.stdout == alone.stdout
    assert traced.status == alone.status
    traced.check()
    assert not traced.run["partial"]
    assert traced.count("processes") >= case.processes
    assert traced.count("untraced_processes") == 0


def test_gcc_compiles_to_the_same_object(tmp_path: Path, octavo: Octavo):
    source = tmp_path / "source.c"
    source.write_text("int square(int x) { return x * x; }\n")
    command = ["gcc", "-O1", "-c", "source.c", "-o", "object.o"]
    assert natively(command, cwd=tmp_path).status == 0
    alone = (tmp_path / "object.o").read_bytes()
    (tmp_path / "object.o").unlink()
    traced = octavo(command, cwd=tmp_path)
    assert traced.status == 0, traced.stderr.decode()
    assert (tmp_path / "object.o").read_bytes() == alone
    traced.check()
    programs = {Path(process["program"]).name for process in traced.run["processes"]}
    assert "cc1" in programs


def test_children_are_not_traced_with_no_follow(octavo: Octavo):
    traced = octavo(workload("forks", 5), "--no-follow")
    assert traced.status == 0
    assert traced.stdout == b"500\nchild\n"
    assert traced.count("processes") == 1


def test_a_missing_compiler_input_keeps_gccs_words_and_status(tmp_path: Path, octavo: Octavo):
    command = ["gcc", "-c", "no-such-file.c"]
    alone = natively(command, cwd=tmp_path)
    traced = octavo(command, cwd=tmp_path)
    assert (traced.status, traced.stderr) == (alone.status, alone.stderr)


@pytest.mark.parametrize("argv", [["ls", "/no/such"], ["sh", "-c", "ls /no/such"]], ids=" ".join)
def test_a_program_keeps_the_name_it_was_called_by(argv: list[str], octavo: Octavo):
    assert octavo(argv).stderr == natively(argv).stderr


def test_a_program_that_executes_itself_by_proc_self_exe(octavo: Octavo):
    traced = octavo(["sh", "-c", "exec /proc/self/exe -c 'echo again'"])
    assert (traced.status, traced.stdout) == (0, b"again\n")


@pytest.mark.skipif(
    natively(["unshare", "-pf", "true"]).status != 0, reason="no PID namespaces here"
)
def test_a_pid_namespace(octavo: Octavo):
    """Processes of a PID namespace, whose own identifiers differ, end and are distinguished."""
    traced = octavo(["unshare", "-pf", "sh", "-c", "ls /no/such; echo $$; exit 3"])
    assert (traced.status, traced.stdout) == (3, b"1\n")
    assert traced.stderr.startswith(b"ls: ")
    ends = {process["ended_by"] for process in traced.run["processes"]}
    assert ends == {"exit", "exec"}


def test_valgrinds_own_settings_are_for_other_tools(tmp_path: Path, octavo: Octavo):
    (tmp_path / ".valgrindrc").write_text("--leak-check=full\n")
    env = {"VALGRIND_OPTS": "--leak-check=full", "HOME": str(tmp_path)}
    assert octavo(["true"], env=env, cwd=tmp_path).status == 0


def test_a_temporary_directory_of_any_name(tmp_path: Path, octavo: Octavo):
    directory = tmp_path / "100%done"
    directory.mkdir()
    assert octavo(["true"], env={"TMPDIR": str(directory)}).status == 0


@pytest.mark.parametrize("limit", ["65536", "unlimited"])
def test_a_stack_as_large_as_the_limit_allows(limit: str, tmp_path: Path):
    """The program uses 32 MiB of stack; Valgrind's default is 16 MiB."""
    (deep,) = workload("deep_stack")
    command = f"ulimit -s {limit} && exec '{OCTAVO}' run -q --json r.json -- '{deep}'"
    ended = natively(["sh", "-c", command], cwd=tmp_path)
    alone = natively(["sh", "-c", f"ulimit -s {limit} && exec '{deep}'"], cwd=tmp_path)
    assert (ended.status, ended.stdout) == (0, alone.stdout), ended.stderr.decode()


def test_each_process_is_reported(octavo: Octavo):
    traced = octavo(workload("forks", 5))
    processes = traced.run["processes"]
    began = [process["began_by"] for process in processes]
    assert began.count("start") == 1
    assert began.count("fork") == 6
    assert began.count("exec") == 1
    (by_exec,) = (process for process in processes if process["began_by"] == "exec")
    assert by_exec["exit_code"] == 7
    forked = [
        p["exit_code"] for p in processes if p["began_by"] == "fork" and p["ended_by"] == "exit"
    ]
    assert sorted(forked) == [40, 41, 42, 43, 44]
    for counter in ("instructions", "loads", "stores", "references"):
        parts = [traced.count(counter, process=process["stream"]) for process in processes]
        assert sum(parts) == traced.count(counter)
        assert all(parts)


def test_threads_are_seen(octavo: Octavo):
    traced = octavo(workload("threads", 4, 1, 3))
    assert traced.count("threads") == 5
    assert traced.count("thread_switches") >= 4


@pytest.fixture
def events(octavo: Octavo) -> Callable[[list[str]], Callable[[str], int]]:
    """Event counts of a command by name."""

    def run(argv: list[str]) -> Callable[[str], int]:
        traced: Traced = octavo(argv)
        return lambda name: traced.count(name, "stream.events")

    return run


def test_memory_events_are_seen(events):
    seen = events(workload("layout"))
    assert seen("map") >= 10
    assert seen("remap") == 1
    assert seen("unmap") >= 1


def test_signals_are_seen(events):
    assert events(workload("signals", "usr1"))("signal") == 1000


def test_gups_footprint_is_its_table(octavo: Octavo):
    traced = octavo(workload("gups", 8, 100_000))
    (table,) = (row["region"] for row in traced.regions() if row["bytes"] == 8 << 20)
    memory = traced.row(component="memory", stream="data", page_size=4096, region=table)
    assert memory["touched_bytes"] == 8 << 20
    misses = {
        row["page_size"]: row["misses"] for row in traced.rows(component="tlb.data", region=table)
    }
    # 64 entries of 2 MiB map the whole table; 64 entries of 4 KiB map 1/32 of it.
    assert misses[2 << 20] <= 5
    assert 90_000 <= misses[4096] <= 110_000


def test_a_hundred_thousand_mappings(octavo: Octavo):
    traced = octavo(workload("many_maps", 100_000))
    assert traced.stdout == b"100000\n"
    assert traced.count("map", "stream.events") >= 100_000


def test_many_threads(octavo: Octavo):
    traced = octavo(workload("threads", 100, 1, 2))
    assert traced.stdout == b"%d\n" % (100 * 2 * 256)
    assert traced.count("threads") == 101


def test_the_same_program_has_the_same_counts_twice(octavo: Octavo):
    argv = workload("matmul", 100)
    first, second = octavo(argv), octavo(argv)
    assert first.document is not None
    assert second.document is not None
    assert first.document["rows"] == second.document["rows"]
    assert first.run["trace_hash"] == second.run["trace_hash"]


def test_a_failed_exec_is_reported(octavo: Octavo):
    script = "import os, contextlib\nwith contextlib.suppress(OSError): os.execv('/no/such', ['x'])"
    traced = octavo([sys.executable, "-c", script])
    events = {
        row["counter"]: row["value"]
        for row in traced.document["rows"]
        if row["component"] == "stream.events" and "process" not in row
    }
    assert (events["exec"], events["exec-failed"]) == (1, 1)
    assert traced.run["processes"][-1]["ended_by"] == "exit"
