"""Traces: their size and the speed of reading and writing, compared with zstd and a plain parser.

    .venv/bin/python benches/traces.py [--rounds N] [PROGRAM …]

Records a native trace of each program and times in turn:

- live: `octavo run`, which keeps no trace; recording: `octavo record`;
- decoding the trace to batches, and `zstd -d` of the same references as raw 8-byte addresses
  (examples/trace_speed.rs, one thread each, warm files);
- parsing Lackey's text to batches, with one thread that reads and one that parses, and with a plain
  line-splitting parser (examples/lackey_speed.rs, warm files).

Prints the medians and their ratios and writes docs/results/traces.md and build/bench/traces.json.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from statistics import median
from typing import Any

from run import OCTAVO, OUT, ROOT, WORKLOADS, Program, example, programs, seconds

BYTES_PER_REFERENCE = 0.5
REFERENCES_PER_SECOND = 250e6
TEXT_BYTES = 150_000_000

# An update of GUPS touches one of 2^23 words at random, 23 bits, in 18 references.
GUPS_BOUND = 23 / 8 / 18

RESULTS = ROOT / "docs/results/traces.md"


def all_programs() -> list[Program]:
    """The programs of the comparison with the peers, and a breadth-first search."""
    search = [str(WORKLOADS / "bfs"), "400000", "8"]
    return [*programs(), Program("bfs", search, [*search[:1], "20000", "8"])]


def measure(program: Program, rounds: int) -> dict[str, Any]:
    """Sizes and times for one program."""
    trace = OUT / f"{program.name}.oct"
    live, recording = [], []
    for _ in range(rounds):
        live.append(seconds([str(OCTAVO), "run", "-q", "--", *program.argv]))
        record = [str(OCTAVO), "record", "-q", "--force", "-o", str(trace)]
        recording.append(seconds([*record, "--", *program.argv]))
    read: dict[str, Any] = example(
        "octavo-trace", "trace_speed", "--rounds", str(rounds), str(trace)
    )
    trace.unlink()
    return {
        **read,
        "program": program.name,
        "trace": trace.name,
        "live_seconds": median(live),
        "record_seconds": median(recording),
        "lackey": lackey(program, rounds),
    }


def lackey(program: Program, rounds: int) -> dict[str, Any]:
    """The speed of parsing Lackey's text of a program, the first TEXT_BYTES of it."""
    text = OUT / f"{program.name}.lackey"
    read, write = os.pipe()
    tool = ["valgrind", "--tool=lackey", "--trace-mem=yes", f"--log-fd={write}"]
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    traced = subprocess.Popen(
        [*tool, *program.argv],
        pass_fds=[write],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        env=environment,
    )
    os.close(write)
    with os.fdopen(read, "rb") as source, text.open("wb") as target:
        left = TEXT_BYTES
        while left > 0 and (piece := source.read(min(left, 1 << 20))):
            target.write(piece)
            left -= len(piece)
    traced.kill()
    traced.wait()
    # Drops the incomplete line at the end of a text that was cut off.
    with text.open("r+b") as target:
        last_lines_at = target.seek(-200, os.SEEK_END)
        target.truncate(last_lines_at + target.read().rindex(b"\n") + 1)
    result: dict[str, Any] = example(
        "octavo-trace", "lackey_speed", "--rounds", str(rounds), str(text)
    )
    text.unlink()
    return result


def row(measured: dict[str, Any]) -> str:
    """One line of the table."""
    reads, zstd = measured["references_per_second"], measured["zstd_references_per_second"]
    lackey_times = measured["lackey"]
    cells = [
        measured["program"],
        f"{measured['references'] / 1e6:,.0f}",
        f"{measured['bytes_per_reference']:.4f}",
        f"{measured['zstd_bytes_per_reference']:.3f}",
        f"{reads / 1e6:,.0f}",
        f"{zstd / 1e6:,.0f}",
        f"{reads / zstd:.2f}",
        f"{measured['live_seconds']:.1f}",
        f"{measured['record_seconds']:.1f}",
        f"{lackey_times['plain_cpu_nanoseconds']:.1f}",
        f"{lackey_times['cpu_nanoseconds']:.1f}",
        f"{lackey_times['cpu_ratio']:.1f}",
    ]
    return "| " + " | ".join(cells) + " |"


HEAD = """\
| program | M refs | bytes/ref | zstd of addresses, bytes/ref | read, M refs/s | zstd -d, M refs/s \
| read : zstd -d | live s | record s | plain parser, ns/line | Lackey's text, ns/line | ratio |
| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"""


def page(measured: Sequence[dict[str, Any]], rounds: int) -> str:
    """The results as they are kept."""
    return f"""# Traces: size and speed

Made by `benches/traces.py`: medians of {rounds} interleaved rounds on {os.cpu_count()} shared \
cores. Whole runs are recorded. "zstd" is what zstd (level 3) makes of the same references as raw \
8-byte addresses, and how fast it gives them back; both it and the native trace are read from warm \
files on one thread. The plain parser splits Lackey's text into lines and fields, \
on one thread; Octavo reads the text on one thread and parses it on another: times are processor \
time of all threads.

{HEAD}
{chr(10).join(map(row, measured))}

GUPS touches random words of a table of 64 MiB: 23 bits an update, {GUPS_BOUND:.4f} bytes a \
reference, is the least that any format can do there.
"""


def main() -> None:
    """Measures, and prints whether the goals are met."""
    parser = argparse.ArgumentParser(description="Size and speed of traces")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("program", nargs="*", help="only these")
    arguments = parser.parse_args()
    measured = []
    print(HEAD)
    for program in all_programs():
        if not arguments.program or program.name in arguments.program:
            measured.append(measure(program, arguments.rounds))
            print(row(measured[-1]), flush=True)
    (OUT / "traces.json").write_text(json.dumps(measured, indent=2) + "\n")
    if not arguments.program:
        RESULTS.write_text(page(measured, arguments.rounds))
    goals = (
        ("at most 0.5 bytes a reference", "bytes_per_reference", BYTES_PER_REFERENCE, -1),
        ("250 M references/s", "references_per_second", REFERENCES_PER_SECOND, 1),
    )
    for goal, key, bound, sign in goals:
        missed = [m["program"] for m in measured if sign * m[key] < sign * bound]
        print(f"{goal}: {'yes' if not missed else 'not on ' + ', '.join(missed)}")


if __name__ == "__main__":
    sys.exit(main())
