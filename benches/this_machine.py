r"""Compares predicted with measured times on the machine that this script runs on.

    .venv/bin/python benches/this_machine.py measure|predict [--only NAMES] [--results DIR]
    .venv/bin/python benches/this_machine.py page [--results DIR] \
        > docs/results/this-machine.md

`measure` runs each program natively with 4 KiB pages and with huge pages in turn, for several
rounds, and for more rounds if the ratio of both scatters; the machine must be quiet. `predict`
simulates the same programs once, with the out-of-order core of the machine that DIR/machine.toml
describes (`octavo calibrate --machine-out DIR/machine.toml`). Both keep their results in DIR, and
skip results that exist. `page` prints tables in Markdown, and writes the figure to docs/results.

GUPS and a pointer chase over 1 MiB to 4 GiB show absolute times; eight programs show the speed-up
of huge pages. Programs and sizes were chosen before any prediction was seen.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from curves import geometric_mean, table
from run import OCTAVO, ROOT, WORKLOADS

RESULTS = ROOT / "docs/results"
SIZES = [f"{1 << octave}MiB" for octave in range(0, 12, 1)] + ["4GiB"]
CURVE_ROUNDS, SPEEDUP_ROUNDS = 5, 15
NANOSECONDS = re.compile(r"([0-9.]+) ns per operation")
NATIVE_TIMES = 4
BOOTSTRAPS = 2000
SMALL, HUGE = "4 KiB", "2 MiB"
DESIGNS = {SMALL: "base4k", HUGE: "thp"}
TEXT = ROOT / "benches/this_machine/page.md"


@dataclass(frozen=True)
class Program:
    """A program whose time is predicted and measured."""

    name: str
    command: Sequence[str]
    """The command of a workload; `--huge never` or `always` is added."""
    operations: int
    warm_up_instructions: int = 0
    """Instructions after the begin mark that are simulated without counting."""
    counted_operations: int | None = None
    """Operations after the warm-up, if there is one."""
    rounds: int = SPEEDUP_ROUNDS
    native_command: Sequence[str] = ()
    """The command with more operations for native runs; empty: `command`."""


def curve(name: str, option: str, count: str, instructions: int) -> Iterator[Program]:
    """A workload over growing memory. The first two thirds of the simulated operations, of
    `instructions` instructions each, warm caches and TLBs; native runs have `NATIVE_TIMES` as many
    operations, so that the beginning does not matter.
    """
    warm, counted = 2_000_000, 1_000_000
    for size in SIZES:
        operations = warm + counted
        command = [name, option, size, count]
        yield Program(
            f"{name}-{size}",
            [*command, str(operations)],
            operations,
            warm * instructions,
            counted,
            CURVE_ROUNDS,
            [*command, str(NATIVE_TIMES * operations)],
        )


def programs() -> list[Program]:
    """All programs: the two curves, then those whose speed-up is compared."""
    fixed = [
        Program("gups", ["gups", "--table", "512MiB", "--updates", "4M"], 4_000_000),
        Program("random_reads", ["random_reads", "--block", "512MiB", "--reads", "2M"], 2_000_000),
        Program("graph500", ["graph500", "--scale", "18", "--roots", "2"], 0),
        Program("xsbench", ["xsbench", "--points", "4000", "--lookups", "30k"], 30_000),
        Program("ycsb", ["ycsb", "--records", "500k", "--operations", "400k"], 400_000),
        Program("hashjoin", ["hashjoin", "--build", "2M", "--probe", "4M"], 6_000_000),
        Program("btree", ["btree", "--keys", "2M", "--lookups", "300k"], 300_000),
        Program(
            "hashjoin-parts",
            ["hashjoin", "--build", "2M", "--probe", "4M", "--partition-bits", "10"],
            6_000_000,
        ),
    ]
    return [
        *curve("gups", "--table", "--updates", 13),
        *curve("random_reads", "--block", "--reads", 20),
        *fixed,
    ]


def native(program: Program, pages: str) -> float:
    """Nanoseconds per operation of one native run."""
    huge = "never" if pages == SMALL else "always"
    name, *arguments = program.native_command or program.command
    command = [str(WORKLOADS / name), *arguments, "--check", "no"]
    ran = subprocess.run(
        [*command, "--huge", huge], check=True, capture_output=True, text=True, timeout=600
    )
    found = NANOSECONDS.search(ran.stdout + ran.stderr)
    if found is None:
        raise SystemExit(f"{program.name} printed no time")
    return float(found[1])


def measure(program: Program, known: dict[str, list[float]]) -> dict[str, list[float]]:
    """Known and new times of both page sizes, which take turns in random order. A program with
    scattered ratios is measured in more rounds.
    """
    times = {pages: list(known.get(pages, [])) for pages in (SMALL, HUGE)}
    while len(times[SMALL]) < (SPEEDUP_ROUNDS if scatters(times) else program.rounds):
        order = [SMALL, HUGE]
        random.shuffle(order)
        for pages in order:
            times[pages].append(native(program, pages))
    return times


def scatters(times: dict[str, list[float]]) -> bool:
    """Whether the quartiles of the ratio of both page sizes in the first rounds differ by more than
    a tenth.
    """
    ratios = [small / huge for small, huge in zip(times[SMALL], times[HUGE], strict=True)]
    if len(ratios) < CURVE_ROUNDS:
        return False
    low, _, high = quantiles(ratios[:CURVE_ROUNDS], n=4, method="inclusive")
    return high > 1.1 * low


def predict(program: Program, machine: Path) -> dict[str, Any]:
    """Nanoseconds per operation of both page sizes, by the core model of a machine."""
    with tempfile.TemporaryDirectory() as place:
        result = Path(place) / "result.json"
        command = [OCTAVO, "sim", "--quiet", "--marks", "--machine", machine]
        command += ["--timing", "out-of-order", "--design", ",".join(DESIGNS.values())]
        command += ["--warm-up", str(program.warm_up_instructions), "--json", result, "--"]
        command += [str(WORKLOADS / program.command[0]), *program.command[1:], "--check", "no"]
        started = time.monotonic()
        ran = subprocess.run(
            command, check=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        seconds = time.monotonic() - started
        found = json.loads(result.read_text())
    printed = re.search(r"checked: [a-z]+, ([0-9]+) ", ran.stdout)
    operations = program.counted_operations or (int(printed[1]) if printed else 0)
    gigahertz = found["run"]["configuration"]["machine"]["core"]["pipeline"]["frequency_ghz"]
    cycles = {
        row["design"]: row["value"]
        for row in found["rows"]
        if (row["component"], row["counter"]) == ("core", "cycles") and "process" not in row
    }
    return {
        "seconds": seconds,
        **{pages: cycles[design] / operations / gigahertz for pages, design in DESIGNS.items()},
    }


def interval(times: dict[str, list[float]]) -> tuple[float, float, float]:
    """The median ratio of rounds, with the 95% interval of the bootstrap."""
    ratios = [small / huge for small, huge in zip(times[SMALL], times[HUGE], strict=True)]
    draw = random.Random(1)
    medians = sorted(median(draw.choices(ratios, k=len(ratios))) for _ in range(BOOTSTRAPS))
    return median(ratios), medians[BOOTSTRAPS // 40], medians[-BOOTSTRAPS // 40]


def page(results: Path) -> str:
    """The page with tables of the programs that were both measured and predicted."""
    measured, predicted = read(results, "measured"), read(results, "predicted")
    both = [one for one in programs() if one.name in measured and one.name in predicted]
    curves, fixed, errors, points = [], [], [], []
    for program in both:
        times, guess = measured[program.name], predicted[program.name]
        ratio, low, high = interval(times)
        expected = guess[SMALL] / guess[HUGE]
        if program.counted_operations is not None:
            workload, size = program.name.rsplit("-", 1)
            cells = [f"`{workload}`", size]
            for pages in DESIGNS:
                found = median(times[pages])
                cells += [f"{found:.2f}", f"{guess[pages]:.2f}", f"{guess[pages] / found:.2f}"]
                for kind, value in (("measured", found), ("predicted", guess[pages])):
                    points.append(
                        {
                            "workload": workload,
                            "size": size,
                            "pages": pages,
                            "kind": kind,
                            "bytes": bytes_of(size),
                            "ns": value,
                        }
                    )
            curves.append([*cells, f"{ratio:.2f}", f"{expected:.2f}"])
            continue
        errors.append(expected / ratio)
        cells = [f"`{' '.join(program.command)}`"]
        for pages in DESIGNS:
            found = median(times[pages])
            ratio_of_times = f"{guess[pages] / found:.2f}"
            cells += [three_digits(found), three_digits(guess[pages]), ratio_of_times]
        speedup = f"{ratio:.2f} ({low:.2f} to {high:.2f})"
        fixed.append([*cells, speedup, f"{expected:.2f}", f"{expected / ratio:.2f}"])
    draw(points)
    head = ["workload", "memory"]
    for pages in DESIGNS:
        head += [f"{pages}: measured, ns", "predicted", "ratio"]
    curve_table = [[*head, "speed-up measured", "predicted"], *curves]
    fixed_head = ["program", *head[2:], "speed-up measured (95%)", "predicted", "ratio"]
    fixed_table = [fixed_head, *fixed]
    mean = geometric_mean(errors) if errors else math.nan
    machine = (results / "machine.toml").read_text()
    return TEXT.read_text().format(
        curves=table(curve_table), fixed=table(fixed_table), mean=mean, machine=machine.strip()
    )


def three_digits(value: float) -> str:
    """`1195`, `54.8` or `6.36`."""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def bytes_of(size: str) -> int:
    """`4GiB` in bytes."""
    return int(size[:-3]) << (30 if size.endswith("GiB") else 20)


def draw(points: list[dict[str, Any]]) -> None:
    """Draws predicted and measured time over memory, a panel for each workload."""
    import altair as alt

    base = alt.Chart(alt.Data(values=points)).encode(
        x=alt.X(
            "bytes:Q",
            scale=alt.Scale(type="log", base=2),
            title="memory",
            axis=alt.Axis(
                labelExpr="datum.value >= 1073741824 ? datum.value / 1073741824 + "
                "' GiB' : datum.value / 1048576 + ' MiB'"
            ),
        ),
        y=alt.Y("ns:Q", scale=alt.Scale(type="log"), title="ns per operation"),
        color=alt.Color("pages:N", title="pages"),
    )
    lines = base.transform_filter("datum.kind == 'predicted'").mark_line()
    dots = base.transform_filter("datum.kind == 'measured'").mark_point(filled=True, size=40)
    figure = (
        (lines + dots)
        .properties(width=320, height=260)
        .facet(column=alt.Column("workload:N", title="lines: predicted; points: measured"))
        .resolve_scale(y="independent")
    )
    figure.save(RESULTS / "this-machine.svg")


def read(results: Path, kind: str) -> dict[str, Any]:
    """The known times, by program."""
    place = results / f"{kind}.json"
    return json.loads(place.read_text()) if place.exists() else {}


def main() -> None:
    """Measures, predicts or prints the page."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("what", choices=["measure", "predict", "page"])
    parser.add_argument("--results", type=Path, default=ROOT / "build/bench/this-machine")
    parser.add_argument("--only", help="a regular expression of names")
    arguments = parser.parse_args()
    arguments.results.mkdir(parents=True, exist_ok=True)
    if arguments.what == "page":
        sys.stdout.write(page(arguments.results))
        return
    kind = "measured" if arguments.what == "measure" else "predicted"
    known = read(arguments.results, kind)
    for program in programs():
        if not re.search(arguments.only or "", program.name):
            continue
        found = known.get(program.name)
        if arguments.what == "measure":
            known[program.name] = measure(program, found or {})
        elif found is None:
            known[program.name] = predict(program, arguments.results / "machine.toml")
        if known[program.name] == found:
            continue
        whole = arguments.results / f"{kind}.json.part"
        whole.write_text(json.dumps(known, indent=1))
        whole.replace(arguments.results / f"{kind}.json")
        sys.stderr.write(f"{program.name}: {known[program.name]}\n")


if __name__ == "__main__":
    main()
