"""Measures how much time huge pages save each workload natively on this machine.

    .venv/bin/python benches/workloads.py [--rounds N]

Runs each workload with `--huge never` and `--huge always` in turn for several rounds, so that a
slow minute of the machine affects both alike, and prints the table of docs/workloads.md: medians of
nanoseconds per operation, the median of the rounds' ratios, and the share of memory in huge pages.
"""

import argparse
import re
import subprocess
import time
from pathlib import Path
from statistics import median

WORKLOADS = Path(__file__).resolve().parent.parent / "build/workloads"

COMMANDS = [
    "gups",
    "gups --table 1GiB --updates 20M",
    "graph500",
    "graph500 --scale 20 --roots 4",
    "xsbench",
    "xsbench --points 11303 --lookups 1M",
    "ycsb",
    "ycsb --workload C --records 1M --operations 2M",
    "hashjoin",
    "hashjoin --build 8M --probe 32M",
    "hashjoin --build 8M --probe 32M --partition-bits 12",
    "btree",
    "btree --keys 10M --lookups 2M",
]


def run(command: str, huge: str) -> tuple[float, float]:
    """Nanoseconds per operation, and the largest sampled share of huge pages."""
    name, *options = command.split()
    argv = [WORKLOADS / name, *options, "--huge", huge, "--check", "no"]
    child = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
    share = 0.0
    while child.poll() is None:
        share = max(share, huge_share(child.pid))
        time.sleep(0.05)
    assert child.returncode == 0
    assert child.stdout is not None
    (ns,) = re.findall(r"([0-9.]+) ns per operation", child.stdout.read())
    return float(ns), share


def huge_share(process: int) -> float:
    """The share of a process's memory that is in huge pages now."""
    try:
        text = Path(f"/proc/{process}/smaps_rollup").read_text()
    except OSError:  # it has just ended
        return 0.0
    kib = dict(re.findall(r"^(\w+): +(\d+) kB", text, flags=re.MULTILINE))
    return int(kib["AnonHugePages"]) / int(kib["Rss"]) if int(kib.get("Rss", 0)) else 0.0


def main() -> None:
    """Measures, and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    print("| command | 4 KiB pages, ns | huge pages, ns | times as fast | in huge pages |")
    print("| --- | ---: | ---: | ---: | ---: |")
    for command in COMMANDS:
        pairs = [(run(command, "never"), run(command, "always")) for _ in range(rounds)]
        small = median(never[0] for never, _ in pairs)
        large = median(always[0] for _, always in pairs)
        ratio = median(never[0] / always[0] for never, always in pairs)
        share = median(always[1] for _, always in pairs)
        numbers = f"{small:,.1f} | {large:,.1f} | {ratio:.2f} | {share:.0%}"
        print(f"| `{command}` | {numbers} |", flush=True)


if __name__ == "__main__":
    main()
