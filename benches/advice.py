"""Checks advice on twelve real programs: gains that `octavo run` expects and `octavo verify` finds.

    .venv/bin/python benches/advice.py predict|simulate|measure [--only NAMES] [--results DIR]
    .venv/bin/python benches/advice.py page [--results DIR] > docs/results/advice.md

`predict` runs the working phase of each program under `octavo run`, and then the program natively
with the printed lines pasted into a shell, to count the pages that they give. `simulate` records
the beginning of the phase and simulates it on the machine that DIR/machine.toml describes (`octavo
calibrate --machine-out DIR/machine.toml`). `measure` runs `octavo verify` on each program; the
machine must be quiet. All actions keep their results in DIR, one file for each program, and skip
results that exist. Run them as root: `verify` then also tries settings of the system, and restores
them.

Requirements are redis-server, redis-tools, memcached, nginx, apache2-utils, PostgreSQL 15, node, a
JDK, Go, Rust, g++ and python3-numpy, and a Redis built with MALLOC=libc as DIR/redis-server-libc;
missing programs are left out. PostgreSQL's user must be able to enter DIR.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "benches/advice"
OCTAVO = str(ROOT / ".venv/bin/octavo")
PORT = 7420
OPERATION = ["--metric", "regex:([0-9.]+) ns per operation", "--better", "lower"]
DESIGNS = ("base4k", "thp")
"""The simulated designs: 4 KiB pages, and transparent huge pages."""
DEADLINE_SECONDS = 900
SETTLING_SECONDS = 5
"""The wait before a program's pages are counted, as the preloaded library gives them gradually."""


@dataclass(frozen=True)
class Program:
    """A program and its measured phase."""

    name: str
    what: str
    """The description in the table."""
    command: str
    """The command; `{dir}` is the results' directory, `{sources}` that of the programs, `{port}` a
    port."""
    metric: tuple[str, ...]
    """Options of `octavo verify`."""
    settings: tuple[str, ...] = ()
    """The settings that are compared with none, the likely advice first; three, so that eight
    rounds are enough."""
    load: str = ""
    """The load of a server under the tracer. Programs without one print `ready`, and begin their
    phase after a line of input."""
    prepare: str = ""
    """A command that fills a server before its phase."""
    build: str = ""
    """A command that builds the program or its data."""
    ready: str = ""
    """A command that succeeds once the server is ready; by default its port is tried."""
    has_phase: bool = True
    """Whether only a part of the run is measured."""
    recorded: tuple[str, str] | None = None
    """The command to record, and the instructions of the phase to skip, for a program that its
    runtime still compiles when the phase begins."""

    @property
    def says_ready(self) -> bool:
        """Whether the program prints `ready` and waits for a line before the phase."""
        return self.has_phase and not self.load


def server(
    name: str,
    what: str,
    command: str,
    settings: tuple[str, ...],
    prepare: str,
    load: str,
    metric: str,
    build: str = "",
) -> Program:
    """A server whose processor time for a fixed load is measured."""
    return Program(name, what, command, ("--metric", metric), settings, load, prepare, build)


REDIS = (
    "redis-benchmark -q -p {port} -t set -n 1000000 -r 1000000 -d 64 -P 16",
    "redis-benchmark -q -p {port} -t get -n 200000 -r 1000000 -P 16",
    "cpu:redis-benchmark -q -p {port} -t get -n 2000000 -r 1000000 -P 16",
)
CACHE = "python3 {sources}/cache_load.py {port}"
NUMPY_LINE = "GLIBC_TUNABLES=glibc.malloc.hugetlb=1:glibc.malloc.mmap_threshold=33554432"
"""The advice for numpy; `octavo verify` tries it only with `--try`."""
POSTGRES = "/usr/lib/postgresql/15/bin"
PROGRAMS = [
    server(
        "redis",
        "Redis 7.0, jemalloc: GET of a million keys",
        "redis-server --port {port} --save ''",
        ("jemalloc-thp 2MiB", "thp-for-all 2MiB", "jemalloc-thp 64KiB"),
        *REDIS,
    ),
    server(
        "redis-libc",
        "Redis 7.0, built with glibc's malloc: the same",
        "{dir}/redis-server-libc --port {port} --save ''",
        ("glibc-thp 2MiB", "preload 2MiB", "glibc-thp 64KiB"),
        *REDIS,
    ),
    Program(
        "postgres",
        "PostgreSQL 15, 512 MB of shared buffers: `pgbench -S`, scale 20",
        "setpriv --reuid=postgres --regid=postgres --clear-groups "
        f"{POSTGRES}/postgres -D {{dir}}/pg -p {{port}} -k /tmp -c shared_buffers=512MB",
        ("--metric", "command:pgbench -h /tmp -p {port} -U postgres -n -S -T 4 -c 2 postgres"),
        ("postgres-huge-pages 2MiB", "shared-for-all 2MiB", "glibc-thp 2MiB"),
        load="pgbench -h /tmp -p {port} -U postgres -n -S -t 4000 -c 2 postgres",
        prepare="psql -q -h /tmp -p {port} -U postgres -o /dev/null -c "
        "\"select pg_prewarm('pgbench_accounts'), pg_prewarm('pgbench_accounts_pkey')\" postgres",
        build="rm -rf {dir}/pg; install -d -o postgres -m 700 {dir}/pg; chmod a+x {dir}; "
        f"su postgres -c '{POSTGRES}/initdb -A trust -D {{dir}}/pg' && "
        f"su postgres -c '{POSTGRES}/pg_ctl -w -D {{dir}}/pg -o \"-p {{port}} -k /tmp\" start' && "
        "pgbench -q -h /tmp -p {port} -U postgres -i -s 20 postgres && "
        "psql -h /tmp -p {port} -U postgres -c 'create extension pg_prewarm' postgres && "
        f"su postgres -c '{POSTGRES}/pg_ctl -w -D {{dir}}/pg stop'",
        ready="pg_isready -q -h /tmp -p {port}",
    ),
    server(
        "memcached",
        "memcached 1.6, two million values: `get` of fifty keys at a time",
        "memcached -u daemon -m 1024 -t 2 -p {port}",
        ("memcached-large-pages 2MiB", "preload 2MiB", "thp-for-all 2MiB"),
        CACHE + " set 2000000",
        CACHE + " get 2000000 100000",
        "cpu:" + CACHE + " get 2000000 1000000",
    ),
    server(
        "nginx",
        "nginx 1.22, one process: a page of 4 KiB",
        "nginx -c {dir}/nginx.conf",
        ("glibc-thp 2MiB", "glibc-thp-one-arena 2MiB", "thp-for-all 2MiB"),
        "true",
        "ab -q -k -n 20000 -c 4 http://127.0.0.1:{port}/page",
        "cpu:ab -q -k -n 100000 -c 4 http://127.0.0.1:{port}/page",
        build="mkdir -p {dir}/www && chmod a+x {dir} && "
        "head -c 4096 /usr/bin/python3.11 > {dir}/www/page && "
        "sed -e s,@PORT,{port}, -e s,@DIR,{dir}, {sources}/nginx.conf > {dir}/nginx.conf",
    ),
    Program(
        "node",
        "Node.js 20: look-ups in a Map of two million objects",
        "node --max-old-space-size=4096 {sources}/lookups.js 2000000 5000000",
        tuple(OPERATION),
        ("preload 2MiB", "node-text 2MiB", "node-64k 64KiB"),
    ),
    Program(
        "java",
        "Java 17, G1, `-Xms2g`: look-ups in a HashMap of two million strings",
        "java -Xms2g -Xmx2g -cp {dir} Lookups 2000000 10000000",
        tuple(OPERATION),
        ("jvm-thp 2MiB", "preload 2MiB", "jvm-thp 64KiB"),
        build="javac -d {dir} {sources}/Lookups.java",
        recorded=("java -Xms2g -Xmx2g -cp {dir} Lookups 2000000 400000000", "25G"),
    ),
    server(
        "go",
        "a Go server, map of three million strings: a thousand look-ups a request",
        "{dir}/server-go {port} 3000000",
        ("preload 2MiB", "go-thp-all 2MiB", "go-thp-all 64KiB"),
        "true",
        "ab -q -n 500 -c 2 'http://127.0.0.1:{port}/get?n=1000'",
        "cpu:ab -q -n 4000 -c 2 'http://127.0.0.1:{port}/get?n=1000'",
        build="go build -o {dir}/server-go {sources}/server.go",
    ),
    Program(
        "rust",
        "Rust: look-ups in a HashMap of three million strings",
        "{dir}/lookups-rust 3000000 10000000",
        tuple(OPERATION),
        ("glibc-thp 2MiB", "preload 2MiB", "glibc-thp 64KiB"),
        build="rustc -O -o {dir}/lookups-rust {sources}/lookups.rs",
    ),
    Program(
        "numpy",
        "Python 3.11 with numpy: sums of random elements of 240 MB",
        "/usr/bin/python3 {sources}/gather.py 30000000 30000000",
        (*OPERATION, "--try", NUMPY_LINE),
        (NUMPY_LINE, "thp-disable", "preload 2MiB"),
    ),
    Program(
        "openmp",
        "C++ with OpenMP, two threads: counts in a table of 240 MB",
        "{dir}/histogram 60000000 40000000",
        tuple(OPERATION),
        ("glibc-thp 2MiB", "preload 2MiB", "glibc-thp 64KiB"),
        build="g++ -O2 -fopenmp -o {dir}/histogram {sources}/histogram.cpp",
    ),
    Program(
        "gzip",
        "gzip -9 of 6 MB",
        "gzip -9 --stdout /usr/bin/python3.11",
        ("--metric", "cpu"),
        ("glibc-thp 2MiB", "glibc-thp-one-arena 2MiB", "thp-for-all 2MiB"),
        has_phase=False,
    ),
]


class Failed(Exception):
    """A program could not be measured."""


def filled_in(program: Program, text: str, results: Path) -> str:
    """`text` with directories and the port filled in."""
    return text.format(dir=results, sources=SOURCES, port=PORT)


def shell(command: str) -> bool:
    """Runs `command`; returns whether it succeeded."""
    done = subprocess.run(
        command, shell=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=False
    )
    return done.returncode == 0


def await_true(condition: Callable[[], bool], process: subprocess.Popen[bytes], what: str) -> None:
    """Waits until `condition` holds; raises Failed if the process ends first or takes too long."""
    end = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        if process.poll() is not None or time.monotonic() > end:
            raise Failed(f"it ended before it was {what}")
        time.sleep(0.1)


def accepts() -> bool:
    """Whether a server listens at the port."""
    with socket.socket() as attempt:
        return attempt.connect_ex(("127.0.0.1", PORT)) == 0


@contextmanager
def started(
    argv: list[str], program: Program, results: Path, errors: Path
) -> Iterator[subprocess.Popen[bytes]]:
    """The program, ready and filled, started by `argv` in a session of its own."""
    with errors.open("wb") as output:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE
            if program.has_phase and not program.load
            else subprocess.DEVNULL,
            stderr=output,
            start_new_session=True,
            cwd=results,
        )
        try:
            if program.load:
                ready = filled_in(program, program.ready, results)
                await_true(lambda: shell(ready) if ready else accepts(), process, "ready")
                if not shell(filled_in(program, program.prepare, results)):
                    raise Failed("it could not be filled")
            elif program.says_ready:
                assert process.stdout is not None
                if process.stdout.readline() != b"ready\n":
                    raise Failed("it ended before it was ready")
            yield process
        finally:
            # Octavo ends the program that it runs; a shell does not.
            ended = [process.pid] if argv[0] == OCTAVO else session(process.pid)
            for one in ended if process.poll() is None else []:
                with suppress(ProcessLookupError):
                    os.kill(one, signal.SIGTERM)
            process.communicate(timeout=DEADLINE_SECONDS)
            if program.load:
                end = time.monotonic() + 60
                while accepts() and time.monotonic() < end:
                    time.sleep(0.1)


def traced(program: Program, results: Path, what: str, *options: str) -> None:
    """Runs `octavo run` or `record` on the phase."""
    command = shlex.split(filled_in(program, program.command, results))
    after = ["--start-after", "ctl"] if program.has_phase else []
    argv = [OCTAVO, what, *after, "--force", *options, "--", *command]
    with started(argv, program, results, results / f"{program.name}.{what}.txt") as run:
        if program.has_phase:
            subprocess.run([OCTAVO, "ctl", str(run.pid), "start", "-q"], check=True)
        if program.load:
            shell(filled_in(program, program.load, results))
            # A recording may have ended before the load.
            subprocess.run([OCTAVO, "ctl", str(run.pid), "stop", "-q"], check=what == "run")
        else:
            run.communicate(b"\n", timeout=DEADLINE_SECONDS)


def predict(program: Program, results: Path) -> None:
    """Runs `octavo run` on the phase and keeps its document."""
    traced(program, results, "run", "--json", str(results / f"{program.name}.run.json"))


def simulate(program: Program, results: Path) -> None:
    """Simulates the beginning of the phase with 4 KiB pages and with transparent huge pages on the
    machine DIR/machine.toml.
    """
    trace = results / f"{program.name}.oct"
    if not trace.exists():
        command, skipped = program.recorded or (program.command, "0")
        program = replace(program, command=command)
        options = ["--skip-instructions", skipped, "--max-instructions", "600M", "-o", str(trace)]
        traced(program, results, "record", *options)
    machine, out = results / "machine.toml", results / f"{program.name}.sim.json"
    argv = [OCTAVO, "sim", "-q", "--machine", str(machine), "--design", ",".join(DESIGNS)]
    info = subprocess.run(
        [OCTAVO, "info", "--json", "-", str(trace)], check=True, capture_output=True
    )
    warm_up = json.loads(info.stdout)["instructions"] // 4
    argv += ["--warm-up", str(warm_up), "--force", "--json", str(out), str(trace)]
    if subprocess.run(argv, check=False).returncode:
        raise Failed("it could not be simulated")


def follow(program: Program, results: Path) -> None:
    """Pastes the block of the answer into a shell, and counts the pages that it gives."""
    answer = json.loads((results / f"{program.name}.run.json").read_text())["advice"][0]
    found: dict[str, Any] = {"settings": answer.get("settings")}
    errors = results / f"{program.name}.follow.txt"
    if answer["changes"] and answer.get("settings") and program.has_phase:
        block = ["bash", "-c", "set -e\n" + answer["settings"]]
        try:
            with started(block, program, results, errors) as process:
                time.sleep(SETTLING_SECONDS)
                found |= census(process.pid)
                if program.says_ready:
                    process.communicate(b"\n", timeout=DEADLINE_SECONDS)
        finally:
            if answer.get("undo"):
                subprocess.run(["bash", "-c", answer["undo"]], check=True)
    (results / f"{program.name}.follow.json").write_text(json.dumps(found, indent=1))


def session(leader: int) -> list[int]:
    """The processes of a session, the leader's own first."""
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdecimal():
            try:
                fields = (process / "stat").read_text().rpartition(")")[2].split()
            except OSError:  # it has just ended
                continue
            if int(fields[3]) == leader or int(process.name) == leader:
                found.append(int(process.name))
    return sorted(found, key=lambda process: process != leader)


def census(leader: int) -> dict[str, int]:
    """Bytes of a session's processes: in huge pages, in pages of a pool, and resident."""
    huge, pool, resident = 0, 0, 0
    for process in session(leader):
        text = Path(f"/proc/{process}/smaps_rollup").read_text()
        kib = {name: int(value) for name, value in re.findall(r"^(\w+): +(\d+) kB", text, re.M)}
        huge += kib["AnonHugePages"]
        huge += kib["ShmemPmdMapped"] + kib["FilePmdMapped"] if process == leader else 0
        pool = max(pool, kib["Private_Hugetlb"] + kib["Shared_Hugetlb"])
        resident += kib["Pss"]
    return {"huge_bytes": huge << 10, "pool_bytes": pool << 10, "resident_bytes": resident << 10}


def measure(program: Program, results: Path) -> None:
    """Runs `octavo verify` on the program with all settings."""
    out = results / f"{program.name}.verify.json"
    options = [filled_in(program, word, results) for word in program.metric]
    if program.load:
        options += ["--prepare", filled_in(program, program.prepare, results)]
        options += ["--ready", filled_in(program, program.ready, results) or f"port:{PORT}"]
    command = shlex.split(filled_in(program, program.command, results))
    begin = results / "begin"
    begin.write_text("\n")
    prediction = results / f"{program.name}.run.json"
    with begin.open() as given, (results / f"{program.name}.verify.txt").open("w") as output:
        options += ["--from", str(prediction), "--allow-system", "--repetitions", "8"]
        options += ["--settings", ",".join(program.settings)]
        done = subprocess.run(
            [OCTAVO, "verify", *options, "--force", "--json", str(out), "--", *command],
            stdin=given,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=results,
            check=False,
        )
    if done.returncode:
        raise Failed(f"octavo verify ended with status {done.returncode}")


STEPS = {"predict": (predict, follow), "simulate": (simulate,), "measure": (measure,)}
KEPT = {
    predict: "run.json",
    follow: "follow.json",
    simulate: "sim.json",
    measure: "verify.json",
}


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("action", choices=[*STEPS, "page"])
    parser.add_argument("--only", metavar="NAMES", help="programs, with commas between")
    parser.add_argument("--results", metavar="DIR", type=Path, default=ROOT / "build/advice")
    options = parser.parse_args()
    results: Path = options.results.resolve()
    if options.action == "page":
        print(page(results), end="")
        return
    results.mkdir(parents=True, exist_ok=True)
    wanted = options.only.split(",") if options.only else [program.name for program in PROGRAMS]
    for program in PROGRAMS:
        if program.name not in wanted:
            continue
        try:
            for step in STEPS[options.action]:
                if (results / f"{program.name}.{KEPT[step]}").exists():
                    continue
                began = time.monotonic()
                if step is predict and not shell(
                    filled_in(program, program.build, results) or "true"
                ):
                    raise Failed("it could not be built")
                step(program, results)
                taken = time.monotonic() - began
                print(f"{program.name}: {step.__name__} in {taken:.0f} s", file=sys.stderr)
        except Failed as why:
            print(f"{program.name}: {why}", file=sys.stderr)


@dataclass(frozen=True)
class Judged:
    """A program with its expected and measured gains."""

    program: Program
    answer: dict[str, Any]
    pages: dict[str, int]
    """Bytes by kind of page with the pasted lines."""
    settings: dict[str, dict[str, Any]]
    """The measured settings of `octavo verify`, by name."""

    named: str
    """The setting of the printed lines; empty where there are none."""

    simulated: float | None
    """The share of the time that transparent huge pages save in a simulation."""

    @property
    def shown(self) -> str:
        """The setting in the table: the advised one if it was measured, else the first compared."""
        return self.named if self.named in self.settings else self.program.settings[0]

    @property
    def advised(self) -> str:
        """The setting that was advised, or `as now`."""
        return self.shown if self.answer["changes"] else "as now"

    @property
    def best(self) -> str:
        """The setting with the largest gain beyond noise; `as now` if there is none."""
        better = [name for name in self.settings if self.gain(name)[1] > 0]
        return max(better, key=lambda name: self.gain(name)[0], default="as now")

    def gain(self, setting: str) -> tuple[float, float, float]:
        """Median, low and high share of the time that a setting saves over as now."""
        found = self.settings[setting]["gain"]
        return (found["median"], found["low"], found["high"]) if found else (0.0, 0.0, 0.0)

    @property
    def agrees(self) -> bool:
        """Whether no measured setting is better beyond noise than the advised one."""
        return self.gain(self.advised)[2] >= self.gain(self.best)[1]

    @property
    def error(self) -> float:
        """Expected minus measured gain of the setting `shown`, as a share of the time."""
        expected = self.answer["gain"]["expected"]
        return float(expected) - self.gain(self.shown)[0]


def judged(results: Path) -> list[Judged]:
    """The programs that were predicted and measured."""
    found = []
    for program in PROGRAMS:
        kept = {step: results / f"{program.name}.{name}" for step, name in KEPT.items()}
        sim = kept.pop(simulate)
        if not all(file.exists() for file in kept.values()):
            continue
        run, pages, verify = (json.loads(file.read_text()) for file in kept.values())
        settings = {one["name"]: one for one in verify["settings"] if one["metric"]}
        if program.settings[0] in settings:
            answer, *items = run["advice"]
            names = (
                action.get("name", "")
                for item in items
                for action in item["actions"]
                if answer["settings"] and action.get("command") == answer["settings"]
            )
            simulated = simulated_gain(json.loads(sim.read_text()), run) if sim.exists() else None
            found.append(Judged(program, answer, pages, settings, next(names, ""), simulated))
    return found


def simulated_gain(sim: dict[str, Any], run: dict[str, Any]) -> float:
    """The share of the time that huge pages save: the saved cycles of the core over all cycles,
    which include the run's time in system calls in proportion to instructions.
    """
    counted = {
        (row["design"], row["counter"]): row["value"]
        for row in sim["rows"]
        if row["component"] == "core" and "process" not in row
    }
    base, huge = (counted[design, "cycles"] for design in DESIGNS)
    clock = sim["run"]["configuration"]["machine"]["core"]["pipeline"]["frequency_ghz"] * 1e9
    kernel = (run["advice"][0]["kernel_seconds"] or 0.0) * clock
    part = counted[DESIGNS[0], "instructions"] / run["run"]["windows"]["instructions"]
    return float((base - huge) / (base + kernel * part))


def share(value: float) -> str:
    """A share as text: `+8.1%`; a small decrease is `+0.0%`, too."""
    return f"{round(100 * value, 1) + 0.0:+.1f}%"


def interval(gain: tuple[float, float, float]) -> str:
    """A gain as text: `+8.1% (+7.0% to +9.3%)`."""
    median, low, high = gain
    return f"{share(median)} ({share(low)} to {share(high)})"


def expected_growth(one: Judged) -> str:
    """The growth of memory that the answer expects, as text: `+8.4%`."""
    found = re.search(r"for (?:little|[0-9.]+ \w+ \(([0-9.]+)%\)) more memory", one.answer["text"])
    return share(float(found[1] or 0) / 100) if found else "n/a"


def row(one: Judged) -> str:
    """A line of the table."""
    gain = one.answer["gain"]
    expected = interval((gain["expected"], gain["low"], gain["high"]))
    memory, had = (one.settings[name]["peak_resident_bytes"] for name in (one.shown, "as now"))
    pages = "nothing to paste"
    if one.pages.get("resident_bytes"):
        huge = (one.pages["huge_bytes"] + one.pages["pool_bytes"]) >> 20
        pages = f"{huge} of {(one.pages['resident_bytes'] + one.pages['pool_bytes']) >> 20} MiB"
    best = "none beyond noise"
    if one.best != "as now":
        best = f"`{one.best}`: {interval(one.gain(one.best))}"
    cells = (
        one.program.what,
        f"`{one.advised}`",
        expected,
        "n/a" if one.simulated is None else share(one.simulated),
        expected_growth(one),
        pages,
        f"`{one.shown}`: {interval(one.gain(one.shown))}",
        share(memory / had - 1) if memory and had else "n/a",
        best,
        "yes" if one.agrees else "**no**",
        f"{100 * one.error:+.1f}",
    )
    return f"| {' | '.join(cells)} |"


def page(results: Path) -> str:
    """The page of results."""
    found = judged(results)
    errors = sorted(abs(one.error) for one in found)
    verify = json.loads((results / f"{found[0].program.name}.verify.json").read_text())
    host = verify["host"]
    middle = 100 * median(errors)
    head = (
        "program",
        "advice",
        "expected gain",
        "simulated gain",
        "expected memory",
        "pages that the printed lines gave",
        "measured gain",
        "memory",
        "best measured",
        "agrees",
        "error, points",
    )
    return f"""{(SOURCES / "page.md").read_text().rstrip()}

{host["cpu_model"]}, {host["cores"]} processors, Linux {verify["versions"]["kernel"]}, a virtual \
machine; transparent huge pages `{host["thp_enabled"]}`; {verify["started_at"][:10]}.

| {" | ".join(head)} |
|{" --- |" * len(head)}
{chr(10).join(map(row, found))}

{sum(one.agrees for one in found)} of {len(found)} decisions agree. The expected gain is off by \
{middle:.1f} points in the median, by {100 * errors[-1]:.1f} at most.
""".replace("\\\n", "")


if __name__ == "__main__":
    main()
