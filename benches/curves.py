"""Curves: the cost of simulating all TLBs at once, compared with one TLB and with libCacheSim.

    .venv/bin/python benches/curves.py [--rounds N] [--peer PYTHON] [--traces DIRECTORY] [PROGRAM …]

The input is, for each of seven programs, a trace of the first 32 million references after the
start-up (recorded if DIRECTORY does not have it yet). Each round times in turn:

- whole passes of `Curves` over the words of the references in memory, for each kernel and each set
  of instructions, and single TLBs (the example curves_speed);
- libCacheSim's LRU cache of one size, fed the page of every reference, and fed again without
  consecutive repeats (benches/peer.py, run by PYTHON, an interpreter that has the package
  `libcachesim`; skipped without --peer). Its miss counts must equal those of `Curves`.

All times are processor time of one thread. Prints the ratios and writes build/bench/curves.json
and, if all programs were run, docs/results/curves.md.
"""

import argparse
import json
import math
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any

from run import OCTAVO, OUT, ROOT, Program, example
from traces import all_programs

REFERENCES = 32_000_000
# Instructions of start-up that are left out, by program; other programs skip SKIPPED_OF_OTHERS.
SKIPPED = {"gups": "20M", "matmul": "40M", "bfs": "40M"}
SKIPPED_OF_OTHERS = "100M"
RECORDED_INSTRUCTIONS = "40M"

# Net times below this are noise, and are replaced by it.
LEAST_NS = 0.05
PEER_ENTRIES = 1024
CHECKED_ENTRIES = (16, 64, 1024, 4096)
RESULTS = ROOT / "docs/results/curves.md"

BEST, PORTABLE = "best", "portable"
Key = tuple[str, str]
Times = dict[Key, float]

# Ratios to report: label, numerator and denominator as (kernel, instructions), and the bound that
# the ratio must keep.
PEER = ("libCacheSim, one size", "")
PEER_STRIPPED = ("libCacheSim, one size, no repeats", "")
RATIOS: list[tuple[str, Key, Key, str, float]] = [
    ("libCacheSim at one size : all 4,096 sizes", PEER, ("stack 1", BEST), "≥", 6),
    ("seven page sizes : one", ("stack 7", BEST), ("stack 1", BEST), "≤", 2),
    ("176 set-associative : one, SIMD", ("sets", BEST), ("one TLB", BEST), "≤", 2),
    ("176 set-associative : one, plain", ("sets", BEST), ("one TLB plain", BEST), "≤", 1),
    ("63 working sets : one", ("working sets 63", BEST), ("working sets 1", BEST), "≤", 1.5),
    ("two page sizes : one", ("two sizes", BEST), ("stack 1", BEST), "≤", 4),
    *(
        (f"portable : best, {kernel}", (kernel, PORTABLE), (kernel, BEST), "≤", 3)
        for kernel in ("stack 1", "stack 7", "stack 11", "sets", "working sets 63", "two sizes")
    ),
]
# Ratios without a goal: a careful user of libCacheSim would leave repeats out.
REMARKS: list[tuple[str, Key, Key]] = [
    ("the same without repeated requests", PEER_STRIPPED, ("stack 1", BEST)),
]


def record(program: Program, trace: Path) -> None:
    """Records a trace of the program's references after its start-up."""
    skipped = SKIPPED.get(program.name, SKIPPED_OF_OTHERS)
    window = ["--skip-instructions", skipped, "--max-instructions", RECORDED_INSTRUCTIONS]
    subprocess.run(
        [str(OCTAVO), "record", "-q", "-o", str(trace), *window, "--", *program.argv],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        env={**os.environ, "PYTHONHASHSEED": "0", "NO_COLOR": "1"},
        check=False,  # the program is ended before its end
    )
    if not trace.exists():
        sys.exit(f"no trace of {program.name}")


def recorded(directory: Path, chosen: Sequence[str]) -> Iterator[tuple[str, Path]]:
    """Each program, or each chosen one, with its trace, which is recorded if it does not exist.

    Prints a line when the caller is done with a program.
    """
    directory.mkdir(parents=True, exist_ok=True)
    for program in all_programs():
        if chosen and program.name not in chosen:
            continue
        trace = directory / f"{program.name}.oct"
        if not trace.exists():
            record(program, trace)
        yield program.name, trace
        print(f"measured: {program.name}", file=sys.stderr, flush=True)


class Peer:
    """libCacheSim on the requests of one trace, which are in files until `close` is called."""

    def __init__(self, python: str, trace: Path) -> None:
        self.python = python
        self.files = {PEER: OUT / "requests", PEER_STRIPPED: OUT / "requests-no-repeats"}
        self.references = 0
        for key, file in self.files.items():
            options = ["--drop-repeats"] if key == PEER_STRIPPED else []
            size = ["--references", str(REFERENCES)]
            wrote = example(
                "octavo-curves", "curves_requests", *options, *size, str(trace), str(file)
            )
            self.references = wrote["references"]

    def simulate(self, key: Key, entries: Iterable[int]) -> list[dict[str, Any]]:
        """Misses and times of caches with these numbers of entries."""
        peer = [self.python, str(ROOT / "benches/peer.py"), str(self.files[key])]
        done = subprocess.run(
            [*peer, *map(str, entries)], stdout=subprocess.PIPE, text=True, check=True
        )
        result: list[dict[str, Any]] = json.loads(done.stdout)
        return result

    def ns_per_reference(self, key: Key) -> float:
        """Nanoseconds per reference of one cache."""
        (cache,) = self.simulate(key, [PEER_ENTRIES])
        return float(cache["ns_per_request"] * cache["requests"] / self.references)

    def check(self, trace: Path) -> None:
        """Exits with an error unless libCacheSim has the same misses as Octavo."""
        options = ["--references", str(REFERENCES), "--stream", "all", "--no-sets"]
        dump = example("octavo-curves", "curves_dump", *options, str(trace))
        ours = dump["all"]["sizes"]["4096"]["stack"]
        for key in self.files:
            for cache in self.simulate(key, CHECKED_ENTRIES):
                misses = ours[cache["entries"] - 1]
                if cache["misses"] != misses:
                    sys.exit(f"{trace}: libCacheSim has {cache}, Octavo {misses} misses")

    def close(self) -> None:
        """Removes the files."""
        for file in self.files.values():
            file.unlink()


def measure(trace: Path, rounds: int, peer_python: str | None) -> tuple[Times, Times]:
    """Medians in nanoseconds per reference, of whole passes and without splitting."""
    peer = Peer(peer_python, trace) if peer_python else None
    total: dict[Key, list[float]] = {}
    net: dict[Key, list[float]] = {}
    if peer:
        peer.check(trace)
    for _ in range(rounds):
        once = ["--rounds", "1", "--references", str(REFERENCES), str(trace)]
        kernels = example("octavo-curves", "curves_speed", *once)["programs"][0]["kernels"]
        best = kernels[-1]["instructions"]
        for kernel in kernels:
            used = kernel["instructions"]
            for name in {used, BEST if used == best else ""} - {""}:
                key = kernel["kernel"], name
                total.setdefault(key, []).append(kernel["ns_per_reference"])
                net.setdefault(key, []).append(kernel["net_ns_per_reference"])
        if peer:
            for key in peer.files:
                total.setdefault(key, []).append(peer.ns_per_reference(key))
                net.setdefault(key, []).append(total[key][-1])
    if peer:
        peer.close()
    return {k: median(v) for k, v in total.items()}, {k: median(v) for k, v in net.items()}


def mean_ratio(times: Sequence[Times], over: Key, under: Key) -> float:
    """The geometric mean of a ratio; NaN if one of its times was not measured."""
    if not all(over in each and under in each for each in times):
        return math.nan
    return geometric_mean(max(each[over], LEAST_NS) / max(each[under], LEAST_NS) for each in times)


def table(lines: Iterable[Sequence[str]]) -> str:
    """A table in Markdown of lines of cells; the first is the head, columns after the first are
    right-aligned.
    """
    head, *rest = lines
    rule = ["---", *["---:"] * (len(head) - 1)]
    return "\n".join("| " + " | ".join(line) + " |" for line in (head, rule, *rest))


def ratios(totals: Sequence[Times], nets: Sequence[Times]) -> list[list[str]]:
    """The table of ratios and goals."""
    lines = [["ratio", "whole passes", "goal", "met", "net of splitting"]]
    for name, over, under, sign, bound in RATIOS:
        of_totals, of_nets = (mean_ratio(times, over, under) for times in (totals, nets))
        is_met = of_totals >= bound if sign == "≥" else of_totals <= bound
        met = "not measured" if math.isnan(of_totals) else "yes" if is_met else "no"
        lines.append([name, f"{of_totals:.2f}", f"{sign} {bound:g}", met, f"{of_nets:.2f}"])
    for name, over, under in REMARKS:
        of_totals, of_nets = (mean_ratio(times, over, under) for times in (totals, nets))
        lines.append([name, f"{of_totals:.2f}", "", "", f"{of_nets:.2f}"])
    return lines


def times_table(names: Sequence[str], times: Sequence[Times]) -> list[list[str]]:
    """Nanoseconds per reference, by program."""
    lines = [["ns per reference", "instructions", *names, "geometric mean"]]
    for key in times[0]:
        if key[1] != BEST and all(key in each for each in times):
            cells = [f"{each[key]:.2f}" for each in times]
            lines.append([*key, *cells, f"{geometric_mean(each[key] for each in times):.2f}"])
    return lines


def processor() -> str:
    """The name of this machine's processor."""
    found = re.search(r"^model name\s*: (.+)$", Path("/proc/cpuinfo").read_text(), re.M)
    return found[1] if found else "unknown"


def page(names: Sequence[str], totals: Sequence[Times], nets: Sequence[Times], rounds: int) -> str:
    """The results as they are kept."""
    of_rounds = "one round" if rounds == 1 else f"medians of {rounds} interleaved rounds"
    return f"""# Curves: speed

Made by `benches/curves.py`: {of_rounds} on {os.cpu_count()} shared cores ({processor()}), \
processor time of one thread. Seven programs, {REFERENCES // 1_000_000} million references of each \
after its start-up, instructions and data as they come, held in memory as a trace's words; a whole \
pass decodes and hashes these words, splits the references into touches of pages, which every \
kernel needs, and runs one kernel.

{table(ratios(totals, nets))}

Ratios are geometric means over the programs. "Best" are the last instructions of the table below. \
libCacheSim is its LRU cache of {PEER_ENTRIES:,} entries, asked for the page of every reference, \
and its misses are ours at {", ".join(f"{entries:,}" for entries in CHECKED_ENTRIES)} entries; \
"without repeated requests" leaves out those for the page of the request before, which anybody \
may. "One TLB" has 64 sets of 4 ways; "plain" looks up every reference, as anybody would write it.

- `splitting`: touches are made, and no kernel runs.
- `stack n`: fully associative TLBs of 1 to 4,096 entries at n page sizes from 4 KiB.
- `sets`: 1 to 1,024 sets of 1 to 16 ways at 4 KiB.
- `working sets n`: 4 KiB and a window of 10^6 references, or nine page sizes from 4 KiB by seven \
windows of 10^5 to 10^8; `short`: of 10^2 to 10^8.
- `two sizes`: 4 KiB with 32 KiB, a window of 10^7, all TLBs of both kinds, all ways of indexing.

{table(times_table(names, totals))}
"""


def main() -> None:
    """Measures, prints tables and writes results."""
    parser = argparse.ArgumentParser(description="Speed of curves")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peer", help="a Python that has libcachesim")
    parser.add_argument("--traces", type=Path, default=OUT / "curves")
    parser.add_argument("program", nargs="*", help="only these")
    arguments = parser.parse_args()
    names, totals, nets = [], [], []
    for name, trace in recorded(arguments.traces, arguments.program):
        total, net = measure(trace, arguments.rounds, arguments.peer)
        names.append(name)
        totals.append(total)
        nets.append(net)
    print(table(ratios(totals, nets)))
    print()
    print(table(times_table(names, totals)))
    measured = {
        name: {" ".join(key).strip(): value for key, value in times.items()}
        for name, times in zip(names, totals, strict=True)
    }
    (OUT / "curves.json").write_text(json.dumps(measured, indent=2) + "\n")
    if not arguments.program:
        RESULTS.write_text(page(names, totals, nets, arguments.rounds))


if __name__ == "__main__":
    main()
