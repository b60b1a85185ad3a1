"""Mappings of traced programs lie where the kernel puts them in a native run.

The same program runs natively with address randomisation off; the addresses that it prints are
compared with the regions of a traced run.
"""

import re
import subprocess
from pathlib import Path

import pytest

from .conftest import Octavo, Row, natively, tracing_in, workload

KIB, MIB = 1 << 10, 1 << 20
HUGE_PAGE = 2 * MIB


@pytest.fixture(scope="module")
def native() -> dict[str, int]:
    """Addresses by name, from the program and its maps."""
    ended = natively(["setarch", "-R", *workload("layout")])
    if ended.status:
        pytest.skip(f"setarch -R does not work here: {ended.stderr.decode().strip()}")
    places, _, maps = ended.stdout.decode().partition("maps:\n")
    found = {name: int(at, 16) for name, at in re.findall(r"^(\w+)=(0x\w+)$", places, re.M)}
    # The program does not know where the mapping of its heap begins; the kernel's list has it.
    heap = re.search(r"^([0-9a-f]+)-([0-9a-f]+) .*\[heap\]$", maps, re.M)
    assert heap is not None
    found["heap"], found["heap_end"] = (int(bound, 16) for bound in heap.groups())
    text = re.search(r"^([0-9a-f]+)-[0-9a-f]+ r-xp .*/layout$", maps, re.M)
    assert text is not None
    found["text"] = int(text[1], 16)
    return found


@pytest.fixture(scope="module")
def regions(tmp_path_factory: pytest.TempPathFactory) -> list[Row]:
    """The regions of a traced run."""
    octavo = tracing_in(tmp_path_factory.mktemp("layout"))
    return octavo(workload("layout"), "--layout", "native").regions()


def one(regions: list[Row], **wanted: object) -> Row:
    """The only region with these values."""
    found = [row for row in regions if wanted.items() <= row.items()]
    assert len(found) == 1, (wanted, [(r["region"], hex(r["start"]), r["bytes"]) for r in regions])
    return found[0]


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("anon_64m", 64 * MIB),
        ("anon_3m4k", 3 * MIB + 4 * KIB),
        ("remapped_6m", 6 * MIB),
        ("holed_16m", 16 * MIB),
    ],
)
def test_large_mappings_are_placed_as_natively(
    name: str, size: int, native: dict[str, int], regions: list[Row]
):
    """Addresses must be equal, as otherwise pages would be other than the kernel's."""
    region = one(regions, region_kind="anonymous", bytes=size)
    assert hex(region["start"]) == hex(native[name])


def test_aligned_exactly_where_the_kernel_aligns(native: dict[str, int], regions: list[Row]):
    for name, size in (("anon_64m", 64 * MIB), ("anon_3m4k", 3 * MIB + 4 * KIB)):
        region = one(regions, region_kind="anonymous", bytes=size)
        assert region["start"] % HUGE_PAGE == native[name] % HUGE_PAGE


def test_the_heap_begins_and_ends_as_natively(native: dict[str, int], regions: list[Row]):
    heap = one(regions, region_kind="heap")
    assert hex(heap["start"]) == hex(native["heap"])
    assert heap["bytes"] == native["heap_end"] - native["heap"]


def test_the_program_lies_as_natively(native: dict[str, int], regions: list[Row]):
    text = one(regions, region="layout text")
    assert hex(text["start"]) == hex(native["text"])


def test_the_stack_lies_on_top(native: dict[str, int], regions: list[Row]):
    stack = one(regions, region_kind="stack")
    assert stack["start"] <= native["stack"] < stack["start"] + stack["bytes"]


def test_traced_layout_equals_the_programs_own(octavo: Octavo):
    traced = octavo(workload("layout"), "--layout", "as-traced")
    printed = dict(re.findall(r"^(\w+)=(0x\w+)$", traced.stdout.decode(), re.M))
    region = one(traced.regions(), region_kind="anonymous", bytes=64 * MIB)
    assert hex(region["start"]) == printed["anon_64m"]


LARGE_IMAGE = """
#include <stdio.h>
#include <unistd.h>
static char array[80 << 20];
int main(void) {
    char *heap = sbrk(1 << 20);
    for (unsigned at = 0; at < sizeof array; at += 4096) array[at] = 1;
    for (unsigned at = 0; at < 1 << 20; at += 4096) heap[at] = 1;
    printf("array=%p\\nheap=%p\\n", (void *)array, (void *)heap);
}
"""


@pytest.mark.parametrize("linked", ["-pie", "-no-pie"])
def test_a_heap_lies_behind_an_image_that_ends_above_64_mib(
    linked: str, octavo: Octavo, tmp_path: Path
):
    """Here Valgrind itself would have room for the heap, unlike with smaller images."""
    source, binary = tmp_path / "large.c", tmp_path / "large"
    source.write_text(LARGE_IMAGE)
    subprocess.run(["gcc", "-O1", linked, "-o", binary, source], check=True)
    ended = natively(["setarch", "-R", str(binary)])
    if ended.status:
        pytest.skip(f"setarch -R does not work here: {ended.stderr.decode().strip()}")
    found = re.findall(r"^(\w+)=(0x\w+)$", ended.stdout.decode(), re.M)
    native = {name: int(at, 16) for name, at in found}
    regions = octavo([str(binary)], "--layout", "native").regions()
    text = one(regions, region="large text")
    assert text["start"] <= native["array"]
    data = one(regions, region="large data")
    assert data["start"] <= native["array"] < data["start"] + data["bytes"]
    assert data["bytes"] > 80 * MIB
    heap = one(regions, region_kind="heap")
    assert heap["start"] <= native["heap"] < heap["start"] + heap["bytes"]
    assert heap["bytes"] < 2 * MIB


HUGE_SEGMENT = """
#include <stdio.h>
#include <sys/shm.h>
#include <sys/wait.h>
#include <unistd.h>
static volatile char sink;
int main(void) {
    size_t bytes = 64 << 20;
    int id = shmget(IPC_PRIVATE, bytes, IPC_CREAT | SHM_HUGETLB | 0600);
    if (id < 0) { perror("shmget"); return 77; }
    char *at = shmat(id, NULL, 0);
    shmctl(id, IPC_RMID, NULL);
    if (at == (void *)-1) { perror("shmat"); return 1; }
    printf("%p\\n", (void *)at);
    fflush(stdout);
    pid_t child = fork();
    for (unsigned long i = 0, x = 1; i < 300000; i++) {
        x = x * 6364136223846793005UL + 1442695040888963407UL;
        sink = at[(x >> 33) % bytes]++;
    }
    if (child) wait(NULL);
}
"""


@pytest.fixture(scope="module")
def huge_segment(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A program that with its child accesses huge pages of System V shared memory at random."""
    directory = tmp_path_factory.mktemp("segment")
    source, binary = directory / "segment.c", directory / "segment"
    source.write_text(HUGE_SEGMENT)
    subprocess.run(["gcc", "-O1", "-o", binary, source], check=True)
    return str(binary)


def test_shared_memory_of_huge_pages_has_them(octavo: Octavo, huge_segment: str):
    """Shared memory of huge pages gets no advice, although Valgrind gives it ordinary pages."""
    traced = octavo([huge_segment])
    assert traced.status == 0, traced.stderr.decode()
    for process in (0, 1):
        rows = traced.rows(counter="hugetlb_bytes", region="shared", process=process)
        assert [row["value"] for row in rows] == [64 * MIB]
    assert traced.document is not None
    advice = [item for item in traced.document["advice"] if item.get("region") == "shared"]
    assert {item["reason"] for item in advice} == {"already"}, advice


def test_shared_memory_of_huge_pages_is_placed_as_natively(octavo: Octavo, huge_segment: str):
    native = natively(["setarch", "-R", huge_segment])
    if native.status:
        pytest.skip(f"no huge pages are set aside: {native.stderr.decode().strip()}")
    traced = octavo([huge_segment], "--layout", "native")
    starts = {row["start"] for row in traced.regions() if row["region_kind"] == "shared"}
    assert starts == {int(native.stdout, 16)}


HUGE_MAPPINGS = """
#define _GNU_SOURCE
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
int main(void) {
    size_t bytes = 4 << 20;
    char *at[2];
    for (int i = 0; i < 2; i++) {
        int flags = (i ? MAP_SHARED : MAP_PRIVATE) | MAP_ANONYMOUS | MAP_HUGETLB;
        at[i] = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
        if (at[i] == MAP_FAILED) { perror("mmap"); return 77; }
    }
    pid_t child = fork();
    for (int i = 0; i < 2; i++) at[i][0] = at[i][bytes - 1] = 1;
    if (child) wait(NULL);
}
"""


def hugetlb_rows(octavo: Octavo, tmp_path: Path, text: str) -> list[Row]:
    """The rows of regions with pages of hugetlbfs of a program, given as its source in C. Skips the
    test where it gets none.
    """
    source, binary = tmp_path / "program.c", tmp_path / "program"
    source.write_text(text)
    subprocess.run(["gcc", "-O1", "-o", binary, source], check=True)
    traced = octavo([binary])
    if traced.status == 77:
        pytest.skip(f"no huge pages are set aside: {traced.stderr.decode().strip()}")
    assert traced.document is not None
    rows = traced.document["rows"]
    return [row for row in rows if row.get("counter") == "hugetlb_bytes" and row["value"]]


def test_a_forked_child_has_the_huge_pages_of_its_parent(octavo: Octavo, tmp_path: Path):
    rows = hugetlb_rows(octavo, tmp_path, HUGE_MAPPINGS)
    found = {(row["process"], row["region_kind"], row["value"]) for row in rows}
    kinds = ("anonymous", "shared")
    assert found == {(process, kind, 4 * MIB) for process in (0, 1) for kind in kinds}


HUGE_FILE = """
#define _GNU_SOURCE
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>
int main(void) {
    size_t bytes = 4 << 20;
    int file = memfd_create("pool", MFD_HUGETLB);
    if (file < 0 || ftruncate(file, bytes)) { perror("memfd_create"); return 77; }
    char *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (at == MAP_FAILED) { perror("mmap"); return 77; }
    at[0] = at[bytes - 1] = 1;
}
"""


def test_a_file_of_hugetlbfs_has_huge_pages(octavo: Octavo, tmp_path: Path):
    """It is mapped without MAP_HUGETLB."""
    rows = hugetlb_rows(octavo, tmp_path, HUGE_FILE)
    assert [(row["region"], row["value"]) for row in rows] == [("memfd:pool data", 4 * MIB)]


ADVISED = """
#define _GNU_SOURCE
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
int main(int count, char **words) {
    size_t bytes = 12 << 20;
    char *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (madvise(at, 6 << 20, MADV_HUGEPAGE)) return 77;
    if (madvise(at + (6 << 20), 4 << 20, MADV_NOHUGEPAGE)) return 77;
    if (count > 1 && prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0)) return 77;
    pid_t child = fork();
    at[0] = at[bytes - 1] = 1;
    if (child) wait(NULL);
}
"""


@pytest.mark.parametrize(
    ("words", "huge", "small"), [([], [6 * MIB], [4 * MIB]), (["forbid"], [], [12 * MIB])]
)
def test_a_forked_child_has_the_advice_of_its_parent(
    octavo: Octavo, tmp_path: Path, words: list[str], huge: list[int], small: list[int]
):
    source, binary = tmp_path / "advised.c", tmp_path / "advised"
    source.write_text(ADVISED)
    subprocess.run(["gcc", "-O1", "-o", binary, source], check=True)
    traced = octavo([binary, *words])
    if traced.status == 77:
        pytest.skip("this kernel has no transparent huge pages")
    for process in (0, 1):
        for counter, most in (("asked_huge_bytes", huge), ("asked_small_bytes", small)):
            wanted = {"counter": counter, "region": "anon 12.0MiB #1", "process": process}
            assert [row["value"] for row in traced.rows(**wanted)] == most, wanted


ZEROED_LIBRARY = """
char zeroed[4 << 20];
"""

BEHIND_A_LIBRARY = """
#include <dlfcn.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
int main(int count, char** words)
{
    const size_t bytes = 1 << 20;
    void* library = dlopen(words[1], RTLD_NOW);
    char* zeroed = library ? dlsym(library, "zeroed") : NULL;
    if (!zeroed)
        return 1;
    char* behind = (char*)(((uintptr_t)zeroed + (4 << 20) + 4095) & ~(uintptr_t)4095);
    char* own = mmap(behind, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (own != behind)
        return 2;
    memset(own, 1, bytes);
    pid_t child = fork();
    memset(zeroed, 1, 4 << 20);
    memset(own, 2, bytes);
    if (child)
        wait(NULL);
}
"""


def test_a_mapping_behind_a_library_is_a_region_of_its_own_after_a_fork(
    octavo: Octavo, tmp_path: Path
):
    """The kernel and Valgrind's core merge the mapping with the library's zeroed memory."""
    library, program = tmp_path / "libzeroed.so", tmp_path / "behind"
    for binary, text, options in (
        (library, ZEROED_LIBRARY, ["-shared", "-fPIC"]),
        (program, BEHIND_A_LIBRARY, []),
    ):
        source = binary.with_suffix(".c")
        source.write_text(text)
        subprocess.run(["gcc", "-O1", *options, "-o", binary, source], check=True)
    traced = octavo([program, library])
    assert traced.status == 0, traced.stderr.decode()
    found = traced.regions()
    data = [row for row in found if row["region"] == "libzeroed.so data"]
    assert [row["process"] for row in data] == [0, 1]
    assert all(row["bytes"] < 5 * MIB for row in data)
    own = [row for row in found if row["region_kind"] == "anonymous" and row["bytes"] == MIB]
    assert [row["process"] for row in own] == [0, 1]
    assert own[0]["start"] == own[1]["start"]


MALLOC = """
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
int main(void)
{
    char* own = mmap(NULL, 6 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(own, 1, 6 << 20);
    char* block = malloc(4 << 20);
    memset(block, 1, 4 << 20);
    block = realloc(block, 40 << 20);
    memset(block, 1, 40 << 20);
    char* cleared = calloc(20 << 20, 1);
    memset(cleared, 1, 20 << 20);
    return own[1] + block[1] + cleared[1] != 3;
}
"""


def test_mappings_of_malloc_are_known_as_such(octavo: Octavo, tmp_path: Path):
    source, binary = tmp_path / "blocks.c", tmp_path / "blocks"
    source.write_text(MALLOC)
    subprocess.run(["gcc", "-O1", "-fno-builtin", "-o", binary, source], check=True)
    traced = octavo([binary])
    assert traced.status == 0
    assert traced.document is not None
    rows = [row for row in traced.document["rows"] if row.get("counter") == "malloc_bytes"]
    # The mapping of each block has one page more for a header.
    blocks = sorted(row["value"] for row in rows)
    assert blocks == [20 * MIB + 4 * KIB, 40 * MIB + 4 * KIB]
    assert all(row["value"] == row["bytes"] for row in rows)
    assert one(traced.regions(), region_kind="anonymous", bytes=6 * MIB)


def test_stacks_of_threads_are_no_memory_of_malloc(octavo: Octavo):
    traced = octavo(workload("threads", 3, 2, 1))
    assert one(traced.regions(), region_kind="thread-stack")
    assert traced.document is not None
    rows = [row for row in traced.document["rows"] if row.get("counter") == "malloc_bytes"]
    assert "thread-stack" not in [row.get("region_kind") for row in rows]


def test_a_program_that_switches_huge_pages_off_asks_for_none_in_all_its_memory(octavo: Octavo):
    traced = octavo(workload("no_huge_pages", 4))
    assert traced.document is not None
    rows = [row for row in traced.document["rows"] if row.get("counter") == "asked_small_bytes"]
    found = {row["bytes"]: row["value"] for row in rows if row.get("region_kind") == "anonymous"}
    # The sizes of mappings made before the call and after it.
    for mib in (4, 8):
        assert found[mib * MIB] == mib * MIB
