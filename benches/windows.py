"""Cost and accuracy of windows: the slowdown of programs and of a server, and the estimates.

    .venv/bin/python benches/windows.py [--rounds N] [--only cost|server|estimate] [PROGRAM …]

- cost: each program between windows, compared with `valgrind --tool=none`; runs take turns in each
  round. Between windows by instructions, `octavo run` counts instructions: it runs with one short
  window at the start and none after it. Between windows by time it counts nothing: it runs without
  any window. The time of an empty program is subtracted. `octavo run` turns Valgrind's debugging
  server off, so `--tool=none --vgdb=no` is timed as well.
- server: redis-server with the same load under `valgrind --tool=none` and with windows of 1%.
- estimate: each program as a whole and in windows of several lengths: the misses per 1000
  instructions of both, and the interval that the windows give.

Prints medians and their ratios and writes build/bench/windows.json.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
OCTAVO = [str(ROOT / ".venv/bin/octavo"), "run", "--quiet", "--no-advice"]
NONE = ["valgrind", "-q", "--tool=none"]
OUT = ROOT / "build/bench"

# Goals of the project, times `valgrind --tool=none`.
MOST_BETWEEN_WINDOWS = 1.15
MOST_SERVER = 1.5

NOTHING_COUNTED = 125
BETWEEN = {
    "none without vgdb": [*NONE, "--vgdb=no"],
    "instructions": [*OCTAVO, "--window", "10k/1000T", "--"],
    "time": [*OCTAVO, "--start-after", "1000h", "--"],
}
SERVED = {
    "none": NONE,
    "20M/1980M": [*OCTAVO, "--window", "20M/1980M", "--"],
    "0.1s/9.9s": [*OCTAVO, "--window", "0.1s/9.9s", "--"],
}
ESTIMATED = ("100k/900k", "1M/9M", "10M/90M", "20M/180M")

SCRIPT = """
import hashlib
words = {}
for i in range(400_000):
    key = hashlib.md5(str(i % 50_000).encode()).hexdigest()
    words[key] = words.get(key, 0) + 1
print(len(words), sorted(words)[0])
"""
PERL = (
    "my %h; for my $i (1..1500000) { $h{($i * 7919) % 100003} .= chr(65 + $i % 26); } "
    "print scalar(keys %h), qq(\\n);"
)


def programs() -> dict[str, list[str]]:
    """The programs, with inputs that take some seconds under Valgrind."""
    OUT.mkdir(parents=True, exist_ok=True)
    numbers = OUT / "windows-numbers.txt"
    if not numbers.exists():
        draw = random.Random(1)
        numbers.write_text("".join(f"{draw.random()}\n" for _ in range(700_000)))
    return {
        "sort": ["sort", "--parallel=1", str(numbers)],
        "python": [sys.executable, "-c", SCRIPT],
        "perl": ["perl", "-e", PERL],
        "bzip2": ["bzip2", "--keep", "--stdout", str(numbers)],
        "gzip": ["gzip", "-9", "--keep", "--stdout", str(numbers)],
    }


def timed(command: Sequence[str]) -> tuple[float, float]:
    """Seconds of wall-clock time and of user time of a command with its children."""
    began = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    took = time.monotonic() - began
    if os.waitstatus_to_exitcode(status) not in (0, NOTHING_COUNTED):
        raise SystemExit(f"{' '.join(command)}: status {status}")
    return took, usage.ru_utime


def medians(runs: dict[str, Callable[[], tuple[float, float]]], rounds: int) -> dict[str, Any]:
    """The medians of runs that take turns: seconds, and user seconds."""
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            found[name].append(run())
    return {
        name: {
            "seconds": statistics.median(took for took, _ in times),
            "user_seconds": statistics.median(user for _, user in times),
        }
        for name, times in found.items()
    }


def cost(chosen: dict[str, list[str]], rounds: int) -> dict[str, Any]:
    """Time between windows over time under `--tool=none`."""
    tools = {"none": NONE, **BETWEEN}
    nothing = medians({t: lambda c=c: timed([*c, "true"]) for t, c in tools.items()}, rounds)
    found: dict[str, Any] = {}
    for program, argv in chosen.items():
        runs = {t: lambda c=c, a=argv: timed([*c, *a]) for t, c in tools.items()}
        times = medians(runs, rounds)
        found[program] = times
        for tool in BETWEEN:
            for kind in ("seconds", "user_seconds"):
                net = [times[name][kind] - nothing[name][kind] for name in (tool, "none")]
                times[tool][f"{kind}_ratio"] = net[0] / net[1]
        shown = ", ".join(
            f"{tool} {ratios['seconds_ratio']:.3f} (user {ratios['user_seconds_ratio']:.3f})"
            for tool, ratios in times.items()
            if tool in BETWEEN
        )
        print(f"{program}: none {times['none']['seconds']:.2f} s; between windows by {shown}")
    return {"nothing": nothing, "programs": found, "goal": MOST_BETWEEN_WINDOWS}


def wait_for_port(port: int) -> None:
    """Waits until the server answers."""
    for _ in range(600):
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise SystemExit("the server does not answer")


def serve(tool: list[str], requests: int) -> tuple[float, float]:
    """Seconds of a load, and user seconds of the server with its tool."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = subprocess.Popen(
        [*tool, "redis-server", "--port", str(port), "--save", "", "--bind", "127.0.0.1"],
        stdout=subprocess.DEVNULL,
    )
    wait_for_port(port)
    load = ["redis-benchmark", "-p", str(port), "-q", "-r", "200000", "-d", "64", "-c", "10"]
    fill = [*load, "-n", str(requests // 4), "-t", "set"]
    subprocess.run(fill, stdout=subprocess.DEVNULL, check=True)
    began = time.monotonic()
    subprocess.run([*load, "-n", str(requests), "-t", "get"], stdout=subprocess.DEVNULL, check=True)
    took = time.monotonic() - began
    subprocess.run(["redis-cli", "-p", str(port), "shutdown", "nosave"], check=False)
    _, _, usage = os.wait4(server.pid, 0)
    return took, usage.ru_utime


def server(rounds: int, requests: int) -> dict[str, Any]:
    """Time of a load on redis-server, relative to the time under `--tool=none`."""
    if shutil.which("redis-server") is None:
        raise SystemExit("there is no redis-server")
    times = medians({t: lambda c=c: serve(c, requests) for t, c in SERVED.items()}, rounds)
    for tool in list(SERVED)[1:]:
        for kind in ("seconds", "user_seconds"):
            times[tool][f"{kind}_ratio"] = times[tool][kind] / times["none"][kind]
        print(
            f"redis-server, windows {tool}: {times[tool]['seconds_ratio']:.3f} "
            f"(user {times[tool]['user_seconds_ratio']:.3f})"
        )
    return {"times": times, "goal": MOST_SERVER}


def document(argv: Sequence[str], *options: str) -> dict[str, Any]:
    """The document of a run."""
    place = OUT / "windows-result.json"
    command = [*OCTAVO, "--force", "--json", str(place), *options, "--", *argv]
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    found: dict[str, Any] = json.loads(place.read_text())
    return found


def estimate(chosen: dict[str, list[str]], warms: Sequence[str]) -> list[dict[str, Any]]:
    """Compares estimates of windows with the whole run: data misses at 4 KiB."""
    found = []
    for program, argv in chosen.items():
        # Windows without gaps do not change counts, and give the same list of intervals.
        whole = document(argv, "--window", "1G/0")
        truth = {
            (one["modelled"], one["level"]): one["misses_per_kilo_instruction"]
            for one in whole["run"]["windows"]["intervals"]
            if one["stream"] == "data" and one["page_size"] == 4096
        }
        for window in ESTIMATED:
            for warm in warms:
                options = () if warm == "0" else ("--window-warm", warm)
                part = document(argv, "--window", window, *options)["run"]["windows"]
                for one in part["intervals"]:
                    if one["stream"] != "data" or one["page_size"] != 4096:
                        continue
                    tlb = (one["modelled"], one["level"])
                    name = f"machine level {tlb[1]}" if tlb[0] else "64 entries"
                    record = {
                        "program": program,
                        "window": window,
                        "warm": warm,
                        "tlb": name,
                        "whole": truth[tlb],
                        "windows": one["misses_per_kilo_instruction"],
                        "low": one["low"],
                        "high": one["high"],
                        "number": part["windows"],
                    }
                    found.append(record)
                    print(
                        f"{program} {window} warm {warm} {name}: whole {truth[tlb]:.4f}, windows "
                        f"{record['windows']:.4f} ({one['low'] or 0:.4f} to {one['high'] or 0:.4f})"
                    )
    return found


def main() -> None:
    """Measures, and writes the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--requests", type=int, default=400_000)
    parser.add_argument("--only", choices=("cost", "server", "estimate"))
    parser.add_argument("--warm", default="0", help="--window-warm of the estimates, by commas")
    parser.add_argument("programs", nargs="*")
    arguments = parser.parse_args()
    chosen = {
        name: argv
        for name, argv in programs().items()
        if not arguments.programs or name in arguments.programs
    }
    result: dict[str, Any] = {}
    if arguments.only in (None, "cost"):
        result["cost"] = cost(chosen, arguments.rounds)
    if arguments.only in (None, "server"):
        result["server"] = server(arguments.rounds, arguments.requests)
    if arguments.only in (None, "estimate"):
        result["estimate"] = estimate(chosen, arguments.warm.split(","))
    (OUT / "windows.json").write_text(f"{json.dumps(result, indent=2)}\n")


if __name__ == "__main__":
    main()
