"""Threads by name: the instructions of each, and the gain of its own time."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from .conftest import OCTAVO, Octavo, Traced, natively

THREADS = """
#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>
#include <sys/wait.h>
enum { TURNS = 1000000, BYTES = 64 << 20 };
static pthread_barrier_t named;
static char* memory;
/* Two instructions a turn. */
static void turn(long turns)
{
    __asm__ volatile("1: dec %0\\n jnz 1b" : "+r"(turns));
}
static void* spin(void* turns)
{
    pthread_setname_np(pthread_self(), "clock");
    turn((long)turns);
    return 0;
}
static void* serve(void* unused)
{
    pthread_barrier_wait(&named);
    unsigned long at = 1;
    for (int i = 0; i < 500000; i++) {
        at = at * 6364136223846793005 + 1;
        memory[(at >> 33) % BYTES]++;
    }
    return 0;
}
static void run(void* (*function)(void*), const char* name, long turns)
{
    pthread_t thread;
    pthread_create(&thread, 0, function, (void*)turns);
    if (name) {
        pthread_setname_np(thread, name);
        pthread_barrier_wait(&named);
    }
    pthread_join(thread, 0);
}
int main(int count, char** arguments)
{
    pthread_barrier_init(&named, 0, 2);
    memory = aligned_alloc(2 << 20, BYTES);
    run(spin, 0, 2 * TURNS);
    /* Valgrind gives it the number of the thread that has ended. */
    run(serve, "worker-7", 0);
    run(spin, 0, 5 * TURNS);
    turn(3 * TURNS);
    if (fork() == 0) {
        run(spin, 0, 4 * TURNS);
        _exit(0);
    }
    wait(0);
}
"""


MANY = """
#define _GNU_SOURCE
#include <pthread.h>
#include <unistd.h>
#include <sys/wait.h>
static void* name(void* name)
{
    pthread_setname_np(pthread_self(), name);
    return 0;
}
static void run(int threads, void* its_name)
{
    for (int i = 0; i < threads; i++) {
        pthread_t thread;
        pthread_create(&thread, 0, name, its_name);
        pthread_join(thread, 0);
    }
}
int main(void)
{
    run(100, "early");
    if (fork() == 0) {
        run(98, "late");
        _exit(0);
    }
    wait(0);
}
"""


@pytest.fixture(scope="module")
def threads(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program whose threads have known numbers of instructions."""
    place = tmp_path_factory.mktemp("threads")
    (place / "threads.c").write_text(THREADS)
    command = ["gcc", "-O1", "-pthread", "-o", place / "server", place / "threads.c"]
    subprocess.run(command, check=True)
    return place / "server"


def by_name(traced: Traced) -> dict[str, dict[str, Any]]:
    assert traced.document is not None, traced.stderr
    return {one["name"]: one for one in traced.document["advice"][0]["threads"]}


def test_each_thread_has_its_instructions_walks_and_gain(octavo: Octavo, threads: Path):
    traced = octavo([threads])
    found = by_name(traced)
    assert found.keys() == {"clock", "worker", "server"}
    # The thread itself takes a few thousand instructions to begin and to end.
    assert found["clock"]["threads"] == 3
    assert 0 <= found["clock"]["instructions"] - 2 * 11 * 10**6 < 30_000
    assert 0 <= found["server"]["instructions"] - 2 * 3 * 10**6 < 300_000
    assert found["worker"]["threads"] == 1
    total = sum(one["instructions"] for one in found.values())
    assert total == traced.count("instructions")
    walks = {
        name: sum(one["walks"] for one in thread["walks"] if one["page_size"] == 4096)
        for name, thread in found.items()
    }
    assert walks["worker"] > 300_000
    assert walks["clock"] + walks["server"] < 3000
    assert found["worker"]["gain"]["expected"] > 0.1
    assert found["clock"]["gain"]["expected"] < 0.001
    assert traced.document is not None
    text = traced.document["advice"][0]["text"]
    assert "clock (3 threads)" in text
    assert "Threads run side by side natively" in text


def test_a_trace_has_the_names(octavo: Octavo, threads: Path, tmp_path: Path):
    trace = tmp_path / "a.oct"
    ended = natively([OCTAVO, "record", "--quiet", "-o", trace, "--", threads])
    assert ended.status == 0, ended.stderr
    found = by_name(octavo([trace]))
    assert found.keys() == {"clock", "worker", "server"}
    assert all(one["kernel_seconds"] > 0 for one in found.values())


def test_one_thread_is_not_reported(octavo: Octavo):
    traced = octavo(["true"])
    assert traced.document is not None
    assert "threads" not in traced.document["advice"][0]


def test_threads_after_the_first_96_of_a_process_are_together(octavo: Octavo, tmp_path: Path):
    (tmp_path / "many.c").write_text(MANY)
    command = ["gcc", "-O1", "-pthread", "-o", tmp_path / "many", tmp_path / "many.c"]
    subprocess.run(command, check=True)
    found = by_name(octavo([tmp_path / "many"]))
    # The first thread of each process has the name of the program.
    assert {name: one["threads"] for name, one in found.items()} == {
        "many": 2,
        "early": 95,
        "late": 95,
        "further threads": 101 + 99 - 2 * 96,
    }
