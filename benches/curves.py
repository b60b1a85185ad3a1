"""Curves: what all TLBs at once cost, beside one of them and beside libCacheSim, in one sitting.

    .venv/bin/python benches/curves.py [--rounds N] [--peer PYTHON] [--traces DIRECTORY] [PROGRAM …]

For each of seven programs it takes a trace of the first 32 million references after the start-up
(recorded where DIRECTORY does not have it yet) and times, by turns, round after round:

- whole passes of `Curves` over the decoded references in memory, for each kernel and each set of
  instructions, and single TLBs (the example curves_speed);
- libCacheSim's LRU cache of one size, fed the page of every reference, and fed again without
  consecutive repeats (benches/peer.py, run by PYTHON: any interpreter that has the package
  `libcachesim`; skipped without --peer). Its miss counts must equal those of `Curves`.

All times are processor time of one thread. Prints the ratios and writes build/bench/curves.json
and, of all programs, docs/results/curves.md.
"""

import argparse
import json
import math
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any

from run import OCTAVO, OUT, ROOT, Program, example
from traces import all_programs

REFERENCES = 32_000_000
# Instructions of start-up that are left out; GUPS has none, the graph is made before the search.
SKIPPED = {"gups": "20M", "matmul": "40M", "bfs": "40M"}
SKIPPED_OF_OTHERS = "100M"
RECORDED_INSTRUCTIONS = "40M"

# Net times below this are noise, and taken to be this.
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
# Not a goal, but what a careful user of libCacheSim would do.
REMARKS: list[tuple[str, Key, Key]] = [
    ("the same without repeated requests", PEER_STRIPPED, ("stack 1", BEST)),
]


def record(program: Program, trace: Path) -> None:
    """A trace of the program's references after its start-up."""
    skipped = SKIPPED.get(program.name, SKIPPED_OF_OTHERS)
    window = ["--skip-instructions", skipped, "--max-instructions", RECORDED_INSTRUCTIONS]
    subprocess.run(
        [str(OCTAVO), "record", "-q", "-o", str(trace), *window, "--", *program.argv],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        env={**os.environ, "PYTHONHASHSEED": "0", "NO_COLOR": "1"},
        check=False,  # it is ended in the middle
    )
    if not trace.exists():
        sys.exit(f"no trace of {program.name}")


def recorded(directory: Path, chosen: Sequence[str]) -> Iterator[tuple[str, Path]]:
    """Each program, or only the chosen ones, with its trace, recorded if it is not there yet.

    Says when the caller is done with one.
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
    """libCacheSim on the requests of one trace, which lie in files as long as this does."""

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
        """Its misses and times."""
        peer = [self.python, str(ROOT / "benches/peer.py"), str(self.files[key])]
        done = subprocess.run(
            [*peer, *map(str, entries)], stdout=subprocess.PIPE, text=True, check=True
        )
        result: list[dict[str, Any]] = json.loads(done.stdout)
        return result

    def ns_per_reference(self, key: Key) -> float:
        """Of one cache."""
        (of,) = self.simulate(key, [PEER_ENTRIES])
        return float(of["ns_per_request"] * of["requests"] / self.references)

    def check(self, trace: Path) -> None:
        """Its misses are ours."""
        options = ["--references", str(REFERENCES), "--stream", "all", "--no-sets"]
        dump = example("octavo-curves", "curves_dump", *options, str(trace))
        ours = dump["all"]["sizes"]["4096"]["stack"]
        for key in self.files:
            for of in self.simulate(key, CHECKED_ENTRIES):
                if of["misses"] != ours[of["entries"] - 1]:
                    sys.exit(f"{trace}: libCacheSim has {of}, we {ours[of['entries'] - 1]}")

    def close(self) -> None:
        """Removes the files."""
        for file in self.files.values():
            file.unlink()


def measure(trace: Path, rounds: int, peer_python: str | None) -> tuple[Times, Times]:
    """Medians in nanoseconds per reference, of whole passes and net of splitting."""
    peer = Peer(peer_python, trace) if peer_python else None
    total: dict[Key, list[float]] = {}
    net: dict[Key, list[float]] = {}
    if peer:
        peer.check(trace)
    for _ in range(rounds):
        once = ["--rounds", "1", "--references", str(REFERENCES), str(trace)]
        kernels = example("octavo-curves", "curves_speed", *once)["programs"][0]["kernels"]
        best = kernels[-1]["instructions"]
        for of in kernels:
            for name in {of["instructions"], BEST if of["instructions"] == best else ""} - {""}:
                key = of["kernel"], name
                total.setdefault(key, []).append(of["ns_per_reference"])
                net.setdefault(key, []).append(of["net_ns_per_reference"])
        if peer:
            for key in peer.files:
                total.setdefault(key, []).append(peer.ns_per_reference(key))
                net.setdefault(key, []).append(total[key][-1])
    if peer:
        peer.close()
    return {k: median(v) for k, v in total.items()}, {k: median(v) for k, v in net.items()}


def mean_ratio(times: Sequence[Times], over: Key, under: Key) -> float:
    """The geometric mean of a ratio; not a number where something was not measured."""
    if not all(over in of and under in of for of in times):
        return math.nan
    return geometric_mean(max(of[over], LEAST_NS) / max(of[under], LEAST_NS) for of in times)


def table(lines: Iterable[Sequence[str]]) -> str:
    """Lines of cells, the first the head; numbers after the first column."""
    head, *rest = lines
    rule = ["---", *["---:"] * (len(head) - 1)]
    return "\n".join("| " + " | ".join(line) + " |" for line in (head, rule, *rest))


def ratios(totals: Sequence[Times], nets: Sequence[Times]) -> list[list[str]]:
    """The table of what was to be shown."""
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
        if key[1] != BEST and all(key in of for of in times):
            cells = [f"{of[key]:.2f}" for of in times]
            lines.append([*key, *cells, f"{geometric_mean(of[key] for of in times):.2f}"])
    return lines


def page(names: Sequence[str], totals: Sequence[Times], nets: Sequence[Times], rounds: int) -> str:
    """The results as they are kept."""
    of_rounds = "one round" if rounds == 1 else f"medians of {rounds} interleaved rounds"
    return f"""# Curves: speed

Made by `benches/curves.py`: {of_rounds} on {os.cpu_count()} shared cores, processor time of one \
thread. Seven programs, {REFERENCES // 1_000_000} million references of each after its start-up, \
instructions and data as they come, decoded in memory; a whole pass splits them into touches of \
pages, which every kernel needs, and runs one kernel.

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
    """Measures, and says what is met."""
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
        name: {" ".join(key).strip(): value for key, value in of.items()}
        for name, of in zip(names, totals, strict=True)
    }
    (OUT / "curves.json").write_text(json.dumps(measured, indent=2) + "\n")
    if not arguments.program:
        RESULTS.write_text(page(names, totals, nets, arguments.rounds))


if __name__ == "__main__":
    main()
