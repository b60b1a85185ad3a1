"""Machines: the cost of simulating one design and several at once, compared with a textbook's.

    .venv/bin/python benches/machine.py [--rounds N] [--references N] [--designs A,B,…]
                                        [--more A,B,…] [--traces DIRECTORY] [PROGRAM …]

The input is, for each of seven programs, the trace of benches/curves.py of the first 32 million
references after the start-up (recorded if DIRECTORY does not have it yet). Each round feeds it in
turn to a textbook implementation, to each design of --designs and --more alone, and to all of
--designs at once (the example machine_speed, which also checks that the textbook has the same
misses as the engine). Prints the ratios and writes build/bench/machine.json and, if all programs
were run, docs/results/machine.md.
"""

import argparse
import json
import os
from collections.abc import Sequence
from pathlib import Path
from statistics import geometric_mean
from typing import Any

from curves import REFERENCES, recorded, table
from run import OUT, ROOT, example

MACHINE = "skylake"
# The first design is the one that others are compared with.
DESIGNS = ("base4k", "thp", "tps", "colt", "rmm")
# Designs that run only alone.
MORE = ("direct_segment", "perforated", "softvm")
LEAST_SPEED = 10
MOST_OF_OTHERS = 1.5
# softvm simulates each access by itself, as its caches are virtual and managed by software.
MOST_OF = {"softvm": 2}
MOST_TOGETHER = 2
RESULTS = ROOT / "docs/results/machine.md"

Times = dict[str, float]


def measure(
    trace: Path, designs: Sequence[str], more: Sequence[str], rounds: int, references: int
) -> Times:
    """Nanoseconds per reference of one program, by part and design."""
    options = ["--rounds", str(rounds), "--references", str(references), "--machine", MACHINE]
    designs_of = ["--designs", ",".join(designs), "--more", ",".join(more)]
    (result,) = example("octavo-machine", "machine_speed", *options, *designs_of, str(trace))
    parts = {name: result[name] for name in ("decoding", "front", "textbook", "together")}
    return {**parts, **result["designs"]}


def ratios(
    names: Sequence[str], times: Sequence[Times], designs: Sequence[str], more: Sequence[str]
) -> list[list[str]]:
    """The table of ratios and goals."""
    base, *others = designs
    wanted = [
        (f"textbook : {base}", "textbook", base, "≥", LEAST_SPEED),
        *(
            (f"{name} : {base}", name, base, "≤", MOST_OF.get(name, MOST_OF_OTHERS))
            for name in (*others, *more)
        ),
        (f"{len(designs)} designs at once : {base}", "together", base, "<", MOST_TOGETHER),
    ]
    lines = [["ratio", *names, "geometric mean", "goal", "met"]]
    for name, over, under, sign, bound in wanted:
        each = [program[over] / program[under] for program in times]
        mean = geometric_mean(each)
        is_met = mean >= bound if sign == "≥" else mean <= bound if sign == "≤" else mean < bound
        cells = [f"{ratio:.2f}" for ratio in (*each, mean)]
        lines.append([name, *cells, f"{sign} {bound:g}", "yes" if is_met else "no"])
    return lines


def times_table(names: Sequence[str], times: Sequence[Times]) -> list[list[str]]:
    """Nanoseconds per reference, by program."""
    lines = [["ns per reference", *names, "geometric mean"]]
    for key in times[0]:
        each = [program[key] for program in times]
        lines.append([key, *(f"{ns:.2f}" for ns in (*each, geometric_mean(each)))])
    return lines


def page(
    lines: list[list[str]],
    times: list[list[str]],
    together: Sequence[str],
    rounds: int,
    references: int,
    load: float,
) -> str:
    """The results as they are kept."""
    of_rounds = "one round" if rounds == 1 else f"{rounds} interleaved rounds"
    return f"""# Machines: speed

Made by `benches/machine.py`: {of_rounds} on {os.cpu_count()} shared cores. Seven programs, \
{references / 1e6:g} million references of each after its start-up, decoded in memory, on the \
machine `{MACHINE}`. Times are of one thread's processor time, the sum over all batches of a trace \
of the least time that each took in any round, so that load from other programs matters \
little; but "together" is the least wall-clock time of a whole pass on all cores, which is \
meaningful only on an otherwise idle machine: the load average was {load:.1f} at the end.

{table(lines)}

Ratios are of whole passes, decoding included. The textbook looks every reference up in the \
first-level TLB and the first-level cache, the second levels and the walk caches behind them, in \
sets whose entries know when they were used last; its misses are those of `base4k`, at every level.

- `decoding`: words become executions of segments, which are counted and hashed.
- `front`: the same, and what all designs share: accesses to lines, without repeats.
- `together`: {", ".join(f"`{name}`" for name in together)} at once, on all cores.

{table(times)}
"""


def main() -> None:
    """Measures, prints tables and writes results."""
    parser = argparse.ArgumentParser(description="Speed of machines")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--references", type=int, default=REFERENCES)
    parser.add_argument("--designs", default=",".join(DESIGNS))
    parser.add_argument("--more", default=",".join(MORE), help="designs that run alone only")
    parser.add_argument("--traces", type=Path, default=OUT / "curves")
    parser.add_argument("program", nargs="*", help="only these")
    arguments = parser.parse_args()
    designs = arguments.designs.split(",")
    more = [name for name in arguments.more.split(",") if name]
    names, times = [], []
    for name, trace in recorded(arguments.traces, arguments.program):
        times.append(measure(trace, designs, more, arguments.rounds, arguments.references))
        names.append(name)
    goals, all_times = ratios(names, times, designs, more), times_table(names, times)
    print(table(goals))
    print()
    print(table(all_times))
    measured: dict[str, Any] = dict(zip(names, times, strict=True))
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / "machine.json").write_text(json.dumps(measured, indent=2) + "\n")
    if not arguments.program:
        load = os.getloadavg()[0]
        results = page(goals, all_times, designs, arguments.rounds, arguments.references, load)
        RESULTS.write_text(results)


if __name__ == "__main__":
    main()
