"""Processor time of system calls in the kernel, which is a part of the time that gains refer to."""

import subprocess
from pathlib import Path

import pytest

from .conftest import Octavo

READS = """
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>
static double system_seconds(void)
{
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return used.ru_stime.tv_sec + used.ru_stime.tv_usec / 1e6;
}
int main(int count, char** arguments)
{
    enum { BYTES = 4 << 20 };
    int zero = open("/dev/zero", O_RDONLY);
    char* block = malloc(BYTES);
    if (read(zero, block, BYTES) < 0) return 1;
    double before = system_seconds();
    for (int i = 0; i < atoi(arguments[1]); i++)
        if (read(zero, block, BYTES) < 0) return 1;
    printf("%f\\n", system_seconds() - before);
}
"""


@pytest.fixture(scope="module")
def reads(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program that reads the given number of blocks and prints the seconds in the kernel."""
    place = tmp_path_factory.mktemp("reads")
    (place / "reads.c").write_text(READS)
    subprocess.run(["gcc", "-O1", "-o", place / "reads", place / "reads.c"], check=True)
    return place / "reads"


def test_system_calls_take_what_the_kernel_says(octavo: Octavo, reads: Path):
    start, whole = octavo([reads, 0]), octavo([reads, 20_000])
    assert start.document is not None
    assert whole.document is not None
    before, after = (run.document["advice"][0]["kernel_seconds"] for run in (start, whole))
    took = float(whole.stdout)
    assert 0.7 * took < after - before < 1.4 * took


def test_kernel_time_of_a_part_by_instructions_is_unknown(octavo: Octavo, reads: Path):
    traced = octavo([reads, 1], "--skip-instructions", "1000")
    assert traced.document is not None
    assert traced.document["advice"][0]["kernel_seconds"] is None
