"""Page faults at first touches equal the kernel's count, with 4 KiB and with 2 MiB pages.

A program maps memory, requests or forbids huge pages, and touches the memory in several ways; the
kernel's count of faults in a native run is compared with the faults of a traced run.
"""

import json
import sys

import pytest

from .conftest import Octavo, natively

HUGE = 2 << 20
BYTES = 16 * HUGE

PROGRAM = f"""
import ctypes, json, mmap, resource, sys
HUGE = {HUGE}
memory = mmap.mmap(-1, {BYTES}, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
first = -ctypes.addressof(ctypes.c_char.from_buffer(memory)) % HUGE
memory.madvise(mmap.MADV_HUGEPAGE if sys.argv[1] == "huge" else mmap.MADV_NOHUGEPAGE)
def touch(start, length, step=4096):
    for place in range(first + start, first + start + length, step):
        memory[place] = 1
touch(0, 4096)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
touch(HUGE, 2 * HUGE)
memory.madvise(mmap.MADV_DONTNEED, first + HUGE, HUGE // 2)
touch(HUGE, HUGE)
touch(4 * HUGE, HUGE, 3 * 4096)
memory.madvise(mmap.MADV_NOHUGEPAGE, first + 6 * HUGE, HUGE)
touch(6 * HUGE, 40960)
faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
with open("/proc/self/smaps") as file:
    given = sum(int(line.split()[1]) for line in file if line.startswith("AnonHugePages"))
print(json.dumps([faults, given]))
"""
OTHER_FAULTS = 8
"""The most faults of the interpreter itself while it runs the program."""


@pytest.mark.parametrize(
    ("pages", "options"), [("small", []), ("huge", []), ("huge", ["--skip-instructions", "1M"])]
)
def test_page_faults_are_those_that_the_kernel_counts(
    pages: str, options: list[str], octavo: Octavo
) -> None:
    """Also for a part of a run in which the memory is mapped."""
    argv = [sys.executable, "-I", "-S", "-c", PROGRAM, pages]
    ended = natively(argv)
    assert ended.status == 0, ended.stderr.decode()
    faults, given_kib = json.loads(ended.stdout)
    if pages == "huge" and given_kib * 1024 < 3 * HUGE:
        pytest.skip("the kernel gives no huge pages")
    # The program aligns by the addresses that it sees, so these are used.
    traced = octavo([*argv[:-1], "huge"], "--layout", "as-traced", *options)
    counted = [
        row
        for row in traced.document["rows"]
        if row["component"] == "memory.faults"
        and row["counter"] == "page_faults"
        and row.get("bytes") == BYTES
    ]
    by_size = {row["page_size"]: row["value"] for row in counted}
    # The first page was touched before.
    expected = by_size[4096 if pages == "small" else HUGE] - 1
    assert expected <= faults <= expected + OTHER_FAULTS
