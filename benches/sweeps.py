"""Sweeps on this machine: 20 simulations in one sweep compared with 20 separate runs, and the load
of the processors during a study of 1,000 simulations.

Run it on an otherwise idle machine: `.venv/bin/python benches/sweeps.py`. Its tables are in
docs/results/sweeps.md.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import octavo
from octavo.sweeps.local import processors


def seconds_of_children() -> float:
    """Processor time of all processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def twenty() -> list[dict[str, float]]:
    """Settings for ten second-level TLBs: with two designs, twenty simulations."""
    return [{"tlb.l2.main.entries": 12 << n, "tlb.l2.main.ways": 12} for n in range(10)]


def one_trace(name: str, trace: str, timing: str = "auto") -> str:
    """A row of the table: times of the 20 simulations in one sweep and one after another."""
    settings = twenty()
    began = time.monotonic()
    octavo.sweep(trace, "skylake", ["base4k", "thp"], settings, timing=timing, progress=False)
    together = time.monotonic() - began
    began = time.monotonic()
    for one in settings:
        for design in ("base4k", "thp"):
            changes = [f"--set={key}={value}" for key, value in one.items()]
            command = [sys.executable, "-m", "octavo", "sim", trace, "--design", design, *changes]
            command += ["--timing", timing]
            subprocess.run([*command, "-q"], check=True)
    apart = time.monotonic() - began
    return f"| {name} | {together:.2f} | {apart:.2f} | {apart / together:.2f} |"


def study(directory: Path) -> str:
    """The row of the table of a study with 1,000 simulations over 10 traces."""
    traces = {f"t{n}": f"synth:zipf?bytes=64MiB&references=200k&seed={n}" for n in range(10)}
    settings = {"core.base_cpi": [0.5 + n / 100 for n in range(50)]}
    used, began = seconds_of_children(), time.monotonic()
    octavo.sweep(traces, "skylake", ["base4k", "thp"], settings, out=directory, progress=False)
    seconds = time.monotonic() - began
    busy = (seconds_of_children() - used) / seconds / processors()
    return f"| {seconds:.1f} | {1000 / seconds:.1f} | {busy:.0%} |"


def main() -> None:
    """Prints the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--record", nargs="+", default=["sqlite3", ":memory:", "select 1 limit 0"])
    parser.add_argument("--traces", nargs="*", default=[], help="longer traces, as name=file")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="octavo-bench-") as name:
        native = Path(name) / "program.oct"
        octavo.record(chosen.record, str(native))
        text = Path(name) / "program.csv.xz"
        subprocess.run(
            [sys.executable, "-m", "octavo", "convert", str(native), str(text), "-q"], check=True
        )
        synthetic = "synth:zipf?bytes=64MiB&references=1M"
        rows = [
            one_trace("native trace of a program", str(native)),
            one_trace("the same as CSV, xz", str(text)),
            one_trace("synthetic", synthetic),
        ]
        for program, trace in (named.split("=", 1) for named in chosen.traces):
            for timing in ("out-of-order", "additive"):
                rows.append(one_trace(f"{program}, {timing}", trace, timing))
        busy = study(Path(name) / "study")
    print("# Sweeps: speed\n")
    load = os.getloadavg()[0]
    print(
        f"Made by `benches/sweeps.py` on {processors()} processors; load average {load:.1f} at the "
        "end.\n\n20 simulations (10 sizes of the second-level TLB, `base4k` and `thp`) in one "
        "sweep, and one after another by `octavo sim`:\n"
    )
    print("| trace | one sweep, s | 20 runs, s | ratio |\n| --- | ---: | ---: | ---: |")
    print("\n".join(rows))
    print("\nA study of 1,000 simulations over 10 traces:\n")
    print("| s | simulations a second | processors busy |\n| ---: | ---: | ---: |")
    print(busy)


if __name__ == "__main__":
    main()
