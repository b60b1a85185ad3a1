"""Speed: `octavo run` compared with Cachegrind and Lackey on the same programs.

    make bench        or        .venv/bin/python benches/run.py [--rounds N] [PROGRAM …]

Times each program in the following ways, which take turns in each round so that a slow minute of
the machine affects all alike:

- native: the program alone;
- octavo: ten page sizes from 4 KiB to 2 MiB, live, as `octavo run` does by default;
- cachegrind: one configuration of one page size, caches of 64 lines of 4 KiB that stand for TLBs;
  once all in one set, and once in sets of 4 ways, which it simulates faster;
- lackey: the study of octavo fed by Lackey's text, compared by references per second; on a smaller
  input, as Lackey is slow.

Prints the medians and their ratios and writes build/bench/speed.json.
"""

import argparse
import json
import os
import platform
import random
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
OCTAVO = ROOT / ".venv/bin/octavo"
WORKLOADS = ROOT / "build/workloads"
OUT = ROOT / "build/bench"


def example(crate: str, name: str, *arguments: str) -> Any:
    """Runs an example of a crate and returns its JSON output."""
    command = ["cargo", "run", "-q", "--release", "-p", crate, "--example", name, "--"]
    done = subprocess.run(
        [*command, *arguments], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True
    )
    return json.loads(done.stdout)


def cachegrind_with(first_ways: int, last: str) -> list[str]:
    """The command of Cachegrind with first-level caches of 64 lines of 4 KiB, and a last level."""
    first = f"262144,{first_ways},4096"
    output = "--cachegrind-out-file=/dev/null"
    caches = [f"--I1={first}", f"--D1={first}", f"--LL={last}"]
    return ["valgrind", "--tool=cachegrind", "--cache-sim=yes", *caches, output]


# All lines are in one set; the last level is as small as cachegrind allows.
CACHEGRIND = cachegrind_with(64, "1048576,256,4096")
CACHEGRIND_OF_SETS = cachegrind_with(4, "4194304,8,4096")

# Goals of the project: faster than cachegrind with 4 ways, at least 50 times as fast as by Lackey.
MOST_OF_CACHEGRIND = 1.0
MEAN_OF_CACHEGRIND = 0.8
LEAST_OVER_LACKEY = 50.0


@dataclass(frozen=True)
class Program:
    """A program with an input for the comparison, and a small one for Lackey where there is one."""

    name: str
    argv: Sequence[str]
    small: Sequence[str] | None


def programs() -> list[Program]:
    """The six programs of all comparisons; their inputs are generated, always the same."""
    OUT.mkdir(parents=True, exist_ok=True)
    cc1 = _output_of("gcc", "-print-prog-name=cc1")
    python = str(Path(sys.executable).resolve())

    def gups(updates: int) -> list[str]:
        return [str(WORKLOADS / "gups"), "64", str(updates)]

    def matmul(rows: int) -> list[str]:
        return [str(WORKLOADS / "matmul"), str(rows)]

    def sqlite(rows: int) -> list[str]:
        return ["sqlite3", ":memory:", _query(rows)]

    def gzip(size: int) -> list[str]:
        return ["gzip", "-c", _text(size)]

    def compiler(functions: int, level: str) -> list[str]:
        return [cc1, "-quiet", level, _source(functions), "-o", os.devnull]

    def interpreter(turns: int) -> list[str]:
        return [python, "-I", "-S", "-c", _script(turns)]

    return [
        Program("gups", gups(20_000_000), gups(500_000)),
        Program("matmul", matmul(300), matmul(80)),
        Program("sqlite", sqlite(80_000), sqlite(500)),
        Program("gzip", gzip(8_000_000), gzip(30_000)),
        Program("cc1", compiler(25, "-O2"), compiler(0, "-O0")),
        Program("python", interpreter(120_000), interpreter(10)),
    ]


def more_programs() -> list[Program]:
    """Further programs for this comparison; node only if it is installed."""
    perl = (
        "my %h; for my $i (1..TURNS) { push @{$h{'w' . ($i * 7919 % 10007)}}, $i; } my $s = 0; "
        "$s += @{$h{$_}} * length($_) for sort keys %h; print $s;"
    )

    def script(turns: int) -> list[str]:
        return ["perl", "-e", perl.replace("TURNS", str(turns))]

    def packed(size: int) -> list[str]:
        return ["bzip2", "-c", _text(size)]

    def ordered(size: int) -> list[str]:
        return ["sort", _text(size)]

    # No small input: the start of node alone takes minutes under Lackey.
    javascript = (
        "const sums = new Map(); "
        "for (let i = 0; i < 300000; i++) { const word = 'w' + (i * 7919 % 10007); "
        "sums.set(word, (sums.get(word) || 0) + i); } let sum = 0; "
        "for (const word of [...sums.keys()].sort()) sum += sums.get(word) % 97; console.log(sum);"
    )
    node = [Program("node", ["node", "-e", javascript], None)] if shutil.which("node") else []

    return [
        Program("perl", script(400_000), script(100)),
        Program("bzip2", packed(3_000_000), packed(3_000)),
        Program("sort", ordered(60_000_000), ordered(30_000)),
        *node,
    ]


def _query(rows: int) -> str:
    return (
        f"WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {rows}) "
        "SELECT count(*), sum(length(word)) FROM "
        "(SELECT i * 7919 % 10007 AS k, 'word ' || i AS word FROM n ORDER BY k, word);"
    )


def _text(size: int) -> str:
    """A file of words with very unequal frequencies, as in text."""
    path = OUT / f"text-{size}"
    if not path.exists():
        dice = random.Random(1)
        words = ["".join(dice.choices("etaoinshrdlu", k=dice.randint(2, 9))) for _ in range(5000)]
        weights = [1 / (rank + 1) for rank in range(len(words))]
        lines = []
        length = 0
        while length < size:
            line = " ".join(dice.choices(words, weights, k=12)) + "\n"
            lines.append(line)
            length += len(line)
        path.write_text("".join(lines)[:size])
    return str(path)


def _source(functions: int) -> str:
    """A preprocessed C file without headers, so that it is the same on every machine."""
    path = OUT / f"source-{functions}.i"
    body = """
static unsigned table{n}[64];
unsigned work{n}(unsigned x, unsigned *out) {{
    unsigned sum = x;
    for (unsigned i = 0; i < 64; i++) {{
        table{n}[i] += sum * {n}u + i;
        switch ((sum ^ i) % 5) {{
        case 0: sum += table{n}[i % 7]; break;
        case 1: sum ^= table{n}[(i * 3) % 64] << 3; break;
        case 2: sum = sum / (i + 1) + x; break;
        case 3: out[i % 16] = sum; break;
        default: sum -= i * x;
        }}
    }}
    return sum;
}}
"""
    path.write_text("".join(body.format(n=n) for n in range(1, functions + 1)))
    return str(path)


def _script(turns: int) -> str:
    return (
        "words = {}\n"
        f"for i in range({turns}):\n"
        "    key = 'word' + str(i * 7919 % 10007)\n"
        "    words.setdefault(key, []).append(i)\n"
        "print(sum(len(v) * len(k) for k, v in sorted(words.items())))"
    )


def _output_of(*argv: str) -> str:
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip()


def seconds(argv: Sequence[str]) -> float:
    """Wall-clock time of a command that must succeed."""
    # Fixed hash seeds make dictionaries of Python and Perl, and so their references, the same every
    # time. LC_ALL=C makes sort compare bytes.
    fixed = {"PYTHONHASHSEED": "0", "PERL_HASH_SEED": "0", "LC_ALL": "C", "NO_COLOR": "1"}
    environment = {**os.environ, **fixed}
    # Modules are compiled once, not in every run, as for users.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    began = time.perf_counter()
    done = subprocess.run(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=environment,
    )
    took = time.perf_counter() - began
    if done.returncode:
        sys.exit(f"{' '.join(argv)}\n{done.stderr.decode()}exit status {done.returncode}")
    return took


def traced(argv: Sequence[str], *options: str) -> tuple[float, int]:
    """Wall-clock time of `octavo run` with its start-up, and the references that it counted."""
    result = OUT / "result.json"
    took = seconds([str(OCTAVO), "run", *options, "--force", "--json", str(result), "--", *argv])
    rows = json.loads(result.read_text())["rows"]
    return took, next(
        row["value"]
        for row in rows
        if row["component"] == "stream"
        and row.get("counter") == "references"
        and not row.keys() & {"process", "region"}
    )


def measure(program: Program, rounds: int) -> dict[str, float | int | str]:
    """Medians and ratios of all times for one program."""
    native, live, cachegrind, sets, lackey_rate = [], [], [], [], []
    references = small_references = 0
    for _ in range(rounds):
        native.append(seconds(program.argv))
        took, references = traced(program.argv)
        live.append(took)
        cachegrind.append(seconds([*CACHEGRIND, *program.argv]))
        sets.append(seconds([*CACHEGRIND_OF_SETS, *program.argv]))
        if program.small is not None:
            took, small_references = traced(program.small, "--tracer", "lackey")
            lackey_rate.append(small_references / took)
    live_seconds = statistics.median(live)
    rate = references / live_seconds
    by_lackey: dict[str, float | int | str] = {}
    if lackey_rate:
        by_lackey = {
            "lackey_references": small_references,
            "lackey_references_per_second": statistics.median(lackey_rate),
            "octavo_over_lackey": rate / statistics.median(lackey_rate),
        }
    return {
        "program": program.name,
        "references": references,
        "native_seconds": statistics.median(native),
        "octavo_seconds": live_seconds,
        "cachegrind_seconds": statistics.median(cachegrind),
        "cachegrind_of_sets_seconds": statistics.median(sets),
        "octavo_references_per_second": rate,
        "slowdown": live_seconds / statistics.median(native),
        "octavo_to_cachegrind": live_seconds / statistics.median(cachegrind),
        "octavo_to_cachegrind_of_sets": live_seconds / statistics.median(sets),
        **by_lackey,
    }


COLUMNS = (
    ("program", "program", "{}"),
    ("Mref", "references", "{:.0f}"),
    ("native s", "native_seconds", "{:.2f}"),
    ("octavo s", "octavo_seconds", "{:.1f}"),
    ("cachegrind s", "cachegrind_seconds", "{:.1f}"),
    ("4-way s", "cachegrind_of_sets_seconds", "{:.1f}"),
    ("slowdown", "slowdown", "{:.0f}×"),
    ("Mref/s", "octavo_references_per_second", "{:.0f}"),
    ("Lackey Mref/s", "lackey_references_per_second", "{:.2f}"),
    ("octavo:cachegrind", "octavo_to_cachegrind", "{:.2f}"),
    ("octavo:4-way", "octavo_to_cachegrind_of_sets", "{:.2f}"),
    ("octavo:Lackey", "octavo_over_lackey", "{:.0f}"),
)


def show(measured: dict[str, float | int | str] | None) -> None:
    """Prints one line of the table; None: its head."""
    cells = []
    for title, key, form in COLUMNS:
        text = title
        if measured is not None:
            value = measured.get(key)
            if "Mref" in title and isinstance(value, int | float):
                value /= 1e6
            text = "-" if value is None else form.format(value)
        cells.append(text.ljust(8) if title == "program" else text.rjust(max(len(title), 8)))
    print("  ".join(cells), flush=True)


def of_sets(measured: dict[str, float | int | str]) -> float:
    """Octavo's time over that of cachegrind with 4 ways."""
    return float(measured["octavo_to_cachegrind_of_sets"])


def main() -> None:
    """Runs the comparison and prints whether the goals are met."""
    parser = argparse.ArgumentParser(description="Compare Octavo's speed with its peers'")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("program", nargs="*", help="only these")
    arguments = parser.parse_args()

    everything = []
    show(None)
    for program in [*programs(), *more_programs()]:
        if not arguments.program or program.name in arguments.program:
            everything.append(measure(program, arguments.rounds))
            show(everything[-1])
    host = {
        "machine": platform.machine(),
        "system": platform.platform(),
        "cores": os.cpu_count(),
        "valgrind": _output_of("valgrind", "--version"),
    }
    document = {"rounds": arguments.rounds, "host": host, "programs": everything}
    path = OUT / "speed.json"
    path.write_text(json.dumps(document, indent=2) + "\n")
    mean = statistics.geometric_mean(map(of_sets, everything))
    print(f"of the time of cachegrind with 4 ways: {mean:.2f}, goal {MEAN_OF_CACHEGRIND}")
    for goal, met in (
        (
            "no slower than cachegrind with 4 ways",
            [m["program"] for m in everything if of_sets(m) > MOST_OF_CACHEGRIND],
        ),
        (
            "50 times as fast as by Lackey",
            [
                m["program"]
                for m in everything
                if m.get("octavo_over_lackey", LEAST_OVER_LACKEY) < LEAST_OVER_LACKEY
            ],
        ),
    ):
        print(f"{goal}: {'yes' if not met else 'not on ' + ', '.join(map(str, met))}")
    print(f"written: {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
