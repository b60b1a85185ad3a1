"""Processor time of system calls in the kernel, which is a part of the time that gains refer to."""

import subprocess
from pathlib import Path

import pytest

from .conftest import Octavo

CALLS = """
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>
enum { BYTES = 4 << 20, PARTS = 500 };
static char* block;
static int zero, ends[2];
static struct iovec parts[PARTS];
static double system_seconds(void)
{
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return used.ru_stime.tv_sec + used.ru_stime.tv_usec / 1e6;
}
static int call(const char* name, int i)
{
    if (!strcmp(name, "read")) return read(zero, block, BYTES) < 0;
    if (!strcmp(name, "sleep")) return usleep(100);
    int protection = i % 2 ? PROT_READ : PROT_READ | PROT_WRITE;
    if (!strcmp(name, "protect")) return mprotect(block, BYTES, protection);
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = PARTS};
    return sendmsg(ends[0], &message, 0) < 0 || recv(ends[1], block, PARTS, 0) != PARTS;
}
int main(int count, char** arguments)
{
    zero = open("/dev/zero", O_RDONLY);
    block = mmap(0, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    madvise(block, BYTES, MADV_NOHUGEPAGE);
    memset(block, 1, BYTES);
    for (int i = 0; i < PARTS; i++) parts[i] = (struct iovec){block + i, 1};
    if (socketpair(AF_UNIX, SOCK_DGRAM, 0, ends)) return 1;
    double before = system_seconds();
    for (int i = 0; i < atoi(arguments[2]); i++)
        if (call(arguments[1], i)) return 1;
    printf("%f\\n", system_seconds() - before);
}
"""


@pytest.fixture(scope="module")
def calls(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program that makes a system call as often as it is asked to, and prints the seconds that
    the calls took in the kernel.
    """
    place = tmp_path_factory.mktemp("calls")
    (place / "calls.c").write_text(CALLS)
    subprocess.run(["gcc", "-O1", "-o", place / "calls", place / "calls.c"], check=True)
    return place / "calls"


def kernel_seconds(octavo: Octavo, calls: Path, name: str, count: int) -> tuple[float, float]:
    """The time that the result has for this many calls, and the time that the kernel says they
    took in the same run.
    """
    start, whole = (octavo([calls, name, str(times)]) for times in (0, count))
    assert start.document is not None
    assert whole.document is not None
    before, after = (run.document["advice"][0]["kernel_seconds"] for run in (start, whole))
    return after - before, float(whole.stdout)


@pytest.mark.parametrize(
    ("name", "count", "least"), [("read", 5000, 0.7), ("send", 20_000, 0.4), ("protect", 5000, 0.7)]
)
def test_system_calls_take_what_the_kernel_says(
    octavo: Octavo, calls: Path, name: str, count: int, least: float
):
    """The work of Valgrind's core does not count: of each of the 500 parts of a message it writes
    a description, and after mprotect it may read symbols. The kernel's figure has the system calls
    that lock the core, two for each that may wait.
    """
    found, took = kernel_seconds(octavo, calls, name, count)
    assert least * took < found < 1.4 * took


def test_sleeps_take_no_time(octavo: Octavo, calls: Path):
    """A thread that sleeps between pieces of work sleeps more often in a slower program."""
    found, took = kernel_seconds(octavo, calls, "sleep", 2000)
    assert found < took / 4


def test_kernel_time_of_a_part_by_instructions_is_unknown(octavo: Octavo, calls: Path):
    traced = octavo([calls, "read", "1"], "--skip-instructions", "1000")
    assert traced.document is not None
    assert traced.document["advice"][0]["kernel_seconds"] is None
