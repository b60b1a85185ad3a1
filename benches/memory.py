"""Memory: checks that Octavo's own memory does not grow with the length of a run.

    make bench        or        .venv/bin/python benches/memory.py [--references N]

Runs workloads/longrun, which has constant memory, for 10^10 references, and samples the resident
memory of the octavo process. Prints the range after the first tenth of the run, when all memory has
been touched, and writes build/bench/memory.json.
"""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "build/bench"

# A leak of one byte in a thousand references would make 10 MB.
FLAT_BYTES = 8 << 20


def resident_bytes(pid: int) -> int:
    """VmRSS of a process; 0 once the process has ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    for line in status.splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    return 0


def main() -> None:
    """Runs the program, samples memory and reports its range."""
    parser = argparse.ArgumentParser(description="Octavo's resident memory over a long run")
    parser.add_argument("--references", type=int, default=10**10)
    references = parser.parse_args().references

    OUT.mkdir(parents=True, exist_ok=True)
    program = [str(ROOT / "build/workloads/longrun"), str(references)]
    result = OUT / "longrun.json"
    octavo = [
        str(ROOT / ".venv/bin/octavo"),
        "run",
        "--force",
        "--json",
        str(result),
        "--",
        *program,
    ]
    began = time.monotonic()
    process = subprocess.Popen(
        octavo, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    samples = []
    while process.poll() is None:
        if resident := resident_bytes(process.pid):
            samples.append((time.monotonic() - began, resident))
        time.sleep(0.2)
    if process.returncode:
        sys.exit(f"octavo run ended with {process.returncode}")

    elapsed = time.monotonic() - began
    counted = next(
        row["value"]
        for row in json.loads(result.read_text())["rows"]
        if row["component"] == "stream"
        and row.get("counter") == "references"
        and not row.keys() & {"process", "region"}
    )
    # The last samples are left out, as memory then grows for tables and files.
    steady = [resident for at, resident in samples if 0.1 * elapsed < at < 0.95 * elapsed]
    spread = max(steady) - min(steady)
    document = {
        "references": counted,
        "elapsed_seconds": elapsed,
        "steady_least_bytes": min(steady),
        "steady_most_bytes": max(steady),
        "samples": samples,
    }
    (OUT / "memory.json").write_text(json.dumps(document) + "\n")
    print(
        f"{counted:.3g} references in {elapsed:.0f} s; octavo's resident memory "
        f"{min(steady) / 2**20:.1f} to {max(steady) / 2**20:.1f} MiB, "
        f"a range of {spread / 2**20:.1f} MiB"
    )
    if spread > FLAT_BYTES:
        sys.exit("not flat")


if __name__ == "__main__":
    main()
