"""Compares Octavo's core model with ChampSim's on the same traces and the same geometry.

    .venv/bin/python benches/champsim.py --champsim BINARY [--instructions N] [--warm-up N]
                                         [--keep DIRECTORY] TRACE …

BINARY is ChampSim with its `champsim_config.json`, except for the branch predictor, which is
`hashed_perceptron`, the default without an entry in that file; traces are ChampSim's, uncompressed.
Each trace is run by ChampSim and by Octavo in turn, with the same warm-up and length (shorter if
the trace ends). With --keep the output of ChampSim is kept in DIRECTORY and read from there the
next time, with the lengths of that run; speeds are n/a if ChampSim was run by other means. Prints
tables in Markdown.

Speeds are by processor time, including start-up, so that other programs matter little. ChampSim
counts an access that is merged with a miss under way as a miss: these misses are subtracted. Misses
of the second and last level are misses of reads: write-backs that miss are left out, as in Octavo.
"""

import argparse
import json
import math
import re
import resource
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from curves import geometric_mean, table
from run import OCTAVO, ROOT

MACHINE = ROOT / "benches/champsim/machine.toml"
DESIGN = "champsim"
RECORD_BYTES = 64
# ChampSim reads a little ahead of execution, and stops at the end of its trace.
READ_AHEAD = 10_000

# By the name in the table: the component of Octavo's rows, and of ChampSim's statistics.
MISSES = {
    "L1D": ("cache.l1d", "L1D"),
    "L2": ("cache.l2", "L2C"),
    "LLC": ("cache.llc", "LLC"),
    "DTLB": ("tlb.l1d", "DTLB"),
    "STLB": ("tlb.l2", "STLB"),
}
# The beginning of the line that this script adds to ChampSim's output.
TOOK = "Seconds of processor time"
# Levels whose misses of write-backs do not count.
BEHIND_L1 = ("L2", "LLC")


class Failure(Exception):
    """The reason why a comparison is impossible, as a sentence."""


@dataclass(frozen=True)
class Outcome:
    """The figures of one simulator for one trace."""

    instructions: int
    cycles: int
    # By the names of MISSES.
    misses: dict[str, int]
    mispredicted: float
    # Of the whole run, warm-up included; None where the time was not measured.
    instructions_per_second: float | None

    @property
    def ipc(self) -> float:
        """Instructions per cycle."""
        return self.instructions / self.cycles

    def per_thousand(self, count: float) -> float:
        """A count per thousand instructions."""
        return 1000 * count / self.instructions


def of_champsim(text: str) -> Outcome:
    """Reads ChampSim's statistics of the region of interest, for one core.

    Raises Failure if they are incomplete.
    """
    _, found, statistics = text.partition("Region of Interest Statistics")
    if not found:
        last = text.strip().splitlines()[-1:] or ["nothing"]
        raise Failure(f"ChampSim's output has no statistics; its last line is: {last[0]}")
    if re.search(r"^CPU 1 ", statistics, re.MULTILINE):
        raise Failure("ChampSim's output is of several cores; only one core can be compared")

    def number(pattern: str, where: str, what: str) -> float:
        match = re.search(pattern, where, re.MULTILINE)
        if match is None:
            raise Failure(f"ChampSim's statistics have no {what}")
        return float(match[1])

    instructions = number(r"^CPU 0 cumulative IPC:.* instructions: (\d+)", statistics, "IPC")
    cycles = number(r"^CPU 0 cumulative IPC:.* cycles: (\d+)", statistics, "cycles")
    mispredicted = number(r"Branch Prediction Accuracy:.* MPKI: ([0-9.]+)", statistics, "branches")

    def misses(component: str, kind: str) -> int:
        line = rf"^cpu0->(?:cpu0_)?{component} {kind} +ACCESS:.*MISS: +"
        missed = number(line + r"(\d+)", statistics, f"{kind} of {component}")
        merged = number(line + r"\d+ +MSHR_MERGE: +(\d+)", statistics, f"merges of {component}")
        return int(missed - merged)

    counts = {
        name: misses(theirs, "TOTAL") - (misses(theirs, "WRITE") if name in BEHIND_L1 else 0)
        for name, (_, theirs) in MISSES.items()
    }
    warm_up, _ = lengths_of(text)
    took = re.search(rf"^{TOOK}: ([0-9.]+)", text, re.MULTILINE)
    return Outcome(
        instructions=int(instructions),
        cycles=int(cycles),
        misses=counts,
        mispredicted=mispredicted * instructions / 1000,
        instructions_per_second=(warm_up + instructions) / float(took[1]) if took else None,
    )


def lengths_of(text: str) -> tuple[int, int]:
    """ChampSim's numbers of instructions in the warm-up and after it, from its output."""
    found = [
        re.search(rf"^{phase} Instructions: (\d+)", text, re.MULTILINE)
        for phase in ("Warmup", "Simulation")
    ]
    warm_up, count = (int(match[1]) if match else None for match in found)
    if warm_up is None or count is None:
        raise Failure("ChampSim's output does not begin with the numbers of its instructions")
    return warm_up, count


def of_octavo(
    document: dict[str, list[dict[str, str | int]]], warm_up: int, took: float
) -> Outcome:
    """Reads the document that `octavo sim --json` writes; `took` is in seconds.

    Raises Failure if the document has no cycles of the core.
    """
    counters = {
        (row["component"], row["counter"]): int(row["value"])
        for row in document["rows"]
        if row.get("design") in (None, DESIGN)
    }
    if ("core", "cycles") not in counters:
        raise Failure("Octavo's rows have no cycles of a core: does it know --timing out-of-order?")
    instructions = counters["core", "instructions"]
    return Outcome(
        instructions=instructions,
        cycles=counters["core", "cycles"],
        misses={name: counters[ours, "misses"] for name, (ours, _) in MISSES.items()},
        mispredicted=counters["core", "branches_mispredicted"],
        instructions_per_second=(warm_up + instructions) / took,
    )


def run(command: Sequence[str | Path], who: str) -> tuple[str, float]:
    """The output of a command and its seconds of processor time; raises Failure if it fails."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace")
    except OSError as error:
        raise Failure(f"{who} does not run: {error}") from error
    if done.returncode != 0:
        last = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:] or ["nothing"]
        raise Failure(f"{who} failed with status {done.returncode}; its last line is: {last[0]}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    took = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return done.stdout, took


def length(trace: Path, warm_up: int, instructions: int) -> int:
    """The number of instructions after the warm-up that both simulators can run."""
    with trace.open("rb") as file:
        magic = file.read(6)
    if magic.startswith((b"\x1f\x8b", b"BZh", b"\x28\xb5\x2f\xfd")) or magic == b"\xfd7zXZ\0":
        raise Failure(f"{trace} is compressed: unpack it first")
    available = trace.stat().st_size // RECORD_BYTES - READ_AHEAD - warm_up
    if available <= 0:
        raise Failure(f"{trace} ends within the warm-up of {warm_up} instructions")
    return min(available, instructions)


def compare(arguments: argparse.Namespace, trace: Path) -> tuple[Outcome, Outcome]:
    """ChampSim's outcome of one trace, and Octavo's."""
    kept = arguments.keep / f"{trace.stem}.txt" if arguments.keep else None
    if kept and kept.exists():
        output = kept.read_text(errors="replace")
        warm_up, count = lengths_of(output)
    else:
        warm_up = arguments.warm_up
        count = length(trace, warm_up, arguments.instructions)
        lengths = ["-w", str(warm_up), "-i", str(count)]
        output, took = run([arguments.champsim, *lengths, trace], "ChampSim")
        output += f"{TOOK}: {took:.2f}\n"
    theirs = of_champsim(output)
    if kept and not kept.exists():
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text(output)
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "sim.json"
        command: list[str | Path] = [arguments.octavo, "sim", "--quiet", "--timing", "out-of-order"]
        command += ["--machine", arguments.machine, "--design", DESIGN, "--json", out]
        command += ["--warm-up", str(warm_up), "--max-instructions", str(warm_up + count), trace]
        _, took = run(command, "Octavo")
        ours = of_octavo(json.loads(out.read_text()), warm_up, took)
    return theirs, ours


def lines_of(
    outcomes: dict[str, tuple[Outcome, Outcome]],
) -> tuple[list[list[str]], list[list[str]]]:
    """The tables: time, and counts per thousand instructions, ChampSim's before Octavo's."""
    head = ["trace", "IPC, ChampSim", "Octavo", "ratio", "M instructions/s, ChampSim", "Octavo"]
    times = [[*head, "times as fast"]]
    counts = [["trace", *MISSES, "branches"]]
    for name, (theirs, ours) in outcomes.items():
        speeds = [(one.instructions_per_second or math.nan) / 1e6 for one in (theirs, ours)]
        times.append(
            [
                f"`{name}`",
                f"{theirs.ipc:.3f}",
                f"{ours.ipc:.3f}",
                f"{ours.ipc / theirs.ipc:.2f}",
                *(
                    "n/a" if math.isnan(number) else format(number, digits)
                    for number, digits in zip(
                        (*speeds, speeds[1] / speeds[0]), (".3f", ".1f", ".0f"), strict=True
                    )
                ),
            ]
        )
        pairs = [(theirs.misses[miss], ours.misses[miss]) for miss in MISSES]
        pairs_of_all = [*pairs, (theirs.mispredicted, ours.mispredicted)]
        cells = [
            f"{theirs.per_thousand(left):.2f} : {ours.per_thousand(right):.2f}"
            for left, right in pairs_of_all
        ]
        counts.append([f"`{name}`", *cells])
    return times, counts


def summary(outcomes: Sequence[tuple[Outcome, Outcome]]) -> str:
    """How many traces agree, and how much faster Octavo is, as a sentence."""
    differences = [abs(ours.ipc / theirs.ipc - 1) for theirs, ours in outcomes]
    near = [sum(difference <= bound for difference in differences) for bound in (0.15, 0.25)]
    faster = [
        ours.instructions_per_second / theirs.instructions_per_second
        for theirs, ours in outcomes
        if ours.instructions_per_second and theirs.instructions_per_second
    ]
    speed = f"; Octavo is {geometric_mean(faster):.0f} times as fast" if faster else ""
    where = f" (geometric mean of {len(faster)})" if faster else ""
    return (
        f"Of {len(differences)} traces {near[0]} agree within 15% and {near[1]} within 25%{speed}"
        f"{where}."
    )


def main() -> None:
    """Compares, and prints the tables."""
    parser = argparse.ArgumentParser(description="Compare Octavo's core model with ChampSim's")
    parser.add_argument("--champsim", required=True, help="the binary")
    parser.add_argument("--octavo", type=Path, default=OCTAVO)
    parser.add_argument("--machine", type=Path, default=MACHINE)
    parser.add_argument("--warm-up", type=int, default=2_000_000)
    parser.add_argument("--instructions", type=int, default=10_000_000, help="after the warm-up")
    parser.add_argument("--keep", type=Path, help="a directory to keep ChampSim's output in")
    parser.add_argument("traces", nargs="+", type=Path, metavar="TRACE")
    arguments = parser.parse_args()
    outcomes = {}
    try:
        for trace in arguments.traces:
            outcomes[trace.stem] = compare(arguments, trace)
            print(f"compared: {trace.stem}", file=sys.stderr, flush=True)
    except (Failure, OSError) as failure:
        sys.exit(f"champsim.py: {failure}")
    times, counts = lines_of(outcomes)
    print(table(times))
    print()
    print("Per thousand instructions, ChampSim : Octavo")
    print()
    print(table(counts))
    print()
    print(summary(list(outcomes.values())))


if __name__ == "__main__":
    main()
