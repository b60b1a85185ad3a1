"""Curves: time and memory as a trace grows, and as the touched memory grows.

    .venv/bin/python benches/curves_scaling.py [--most-references N] [--most-pages N]

Runs `octavo curves` with its defaults for one stream on synthetic traces: of 10^7 to 10^10 data
references to the same 10^4 pages, and of 3·10^7 references to 10^3 to 10^7 pages. Time is the
processor time of all threads, memory the peak resident memory. `octavo run` on the same trace is
shown beside them, since the times include generating the trace. Prints the results, and writes
build/bench/curves_scaling.json, docs/results/curves-scaling.md and its figure.
"""

import argparse
import json
import math
import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import altair as alt
from run import OCTAVO, OUT, ROOT

RESULTS = ROOT / "docs/results"
PAGES = 10**4
# References to each page in the long traces; the wide traces have one, to touch all pages.
ON_EACH_PAGE = 16
REFERENCES = 3 * 10**7
PAGE_BYTES = 4096


def synthetic(references: int, pages: int, on_each: int) -> str:
    """A trace that makes `on_each` references to page after page, and begins again at the end."""
    size = f"bytes={pages * PAGE_BYTES}&references={references}"
    return f"synth:strided?stride={PAGE_BYTES // on_each}&instructions=1&{size}"


def resources(*argv: str) -> tuple[float, int]:
    """Processor seconds and peak resident bytes of a command that must succeed."""
    process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"{' '.join(argv)}: exit status {process.returncode}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024


def measure(references: int, pages: int, on_each: int) -> dict[str, Any]:
    """Time and memory of `octavo curves` and `octavo run` on one trace."""
    trace = synthetic(references, pages, on_each)
    seconds, peak_bytes = resources(str(OCTAVO), "curves", "-q", "--streams", "data", trace)
    run_seconds, run_bytes = resources(str(OCTAVO), "run", "-q", trace)
    measured = {
        "references": references,
        "pages": pages,
        "seconds": seconds,
        "peak_bytes": peak_bytes,
        "run_seconds": run_seconds,
        "run_peak_bytes": run_bytes,
    }
    print(json.dumps(measured), flush=True)
    return measured


def slope(points: Sequence[dict[str, Any]], x: str, y: str) -> float:
    """The power of x by which y grows from the last point but one to the last."""
    first, last = points[-2:]
    return math.log(last[y] / first[y]) / math.log(last[x] / first[x])


def panel(points: Sequence[dict[str, Any]], x: str, y: str, titles: tuple[str, str]) -> alt.Chart:
    """A panel with one line, both scales logarithmic; bytes are shown in MiB."""
    values = [{x: point[x], y: point[y] / (1 << 20 if "bytes" in y else 1)} for point in points]
    axes = [
        axis(name, type="quantitative", scale=alt.Scale(type="log"), title=title)
        for axis, name, title in zip((alt.X, alt.Y), (x, y), titles, strict=True)
    ]
    line = alt.Chart(alt.Data(values=values)).mark_line(point=True)
    return line.encode(*axes).properties(width=260, height=200)


def lines(points: Sequence[dict[str, Any]]) -> str:
    """The rows of the table."""
    return "\n".join(
        f"| {point['references']:,} | {point['pages']:,} | {point['seconds']:.1f} | "
        f"{point['peak_bytes'] / (1 << 20):,.0f} | {point['run_seconds']:.1f} | "
        f"{point['run_peak_bytes'] / (1 << 20):,.0f} |"
        for point in points
    )


def main() -> None:
    """Measures, and writes the page and its figure."""
    parser = argparse.ArgumentParser(description="How curves scale")
    parser.add_argument("--most-references", type=int, default=10**10)
    parser.add_argument("--most-pages", type=int, default=10**7)
    arguments = parser.parse_args()
    counts = [10**power for power in range(7, 11) if 10**power <= arguments.most_references]
    footprints = [10**power for power in range(3, 8) if 10**power <= arguments.most_pages]
    longer = [measure(references, PAGES, ON_EACH_PAGE) for references in counts]
    wider = [measure(REFERENCES, pages, 1) for pages in footprints]
    OUT.mkdir(parents=True, exist_ok=True)
    document = {"longer": longer, "wider": wider}
    (OUT / "curves_scaling.json").write_text(json.dumps(document, indent=2) + "\n")

    time, memory = "processor seconds", "most resident, MiB"
    figure = alt.hconcat(
        panel(longer, "references", "seconds", ("references", time)),
        panel(longer, "references", "peak_bytes", ("references", memory)),
    ) & alt.hconcat(
        panel(wider, "pages", "seconds", ("pages touched", time)),
        panel(wider, "pages", "peak_bytes", ("pages touched", memory)),
    )
    figure.save(RESULTS / "curves-scaling.svg")
    of_time, of_memory = (slope(longer, "references", y) for y in ("seconds", "peak_bytes"))
    of_pages = slope(wider, "pages", "peak_bytes")
    text = f"""# Curves: time and memory as traces grow

Made by `benches/curves_scaling.py` on {os.cpu_count()} shared cores: `octavo curves` of one \
stream, with everything that it does by default, on synthetic traces that touch page after page. \
The long ones make {ON_EACH_PAGE} references to each page, the wide ones one. With the last step, \
time grows by the power {of_time:.2f} of the references and memory by the power {of_memory:.2f} \
of them; memory grows by the power {of_pages:.2f} of the pages touched.

![Time and memory over references and pages](curves-scaling.svg)

| data references | pages | processor s | most resident, MiB | `octavo run`: s | MiB |
| ---: | ---: | ---: | ---: | ---: | ---: |
{lines([*longer, *wider])}
"""
    (RESULTS / "curves-scaling.md").write_text(text)


if __name__ == "__main__":
    main()
