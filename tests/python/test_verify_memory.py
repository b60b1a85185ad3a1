"""Memory as `octavo verify` reads it, compared with mappings and with sums of the kernel."""

from __future__ import annotations

import mmap
import os
import re
import signal
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from octavo.base import processes
from octavo.base.huge_pages import PMD_PAGE, read_huge_pages
from octavo.base.processes import cpu_seconds, descendants, listens, peak_resident
from octavo.base.smaps import Mapping, mappings_of, parse_smaps
from octavo.base.units import KIB, MIB
from octavo.verification.memory import memory_of

SIZE = 32 * MIB


@contextmanager
def child(work: Callable[[], object]) -> Iterator[int]:
    """A process that has done some work and waits; the result of the work stays alive."""
    ours, theirs = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            kept = work()
            os.write(theirs, b"." if kept is not None else b"!")
            signal.pause()
        finally:
            os._exit(1)
    try:
        assert os.read(ours, 1) == b"."
        yield pid
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(ours)
        os.close(theirs)


def touched(kind: int, advice: int | None = None, size: int = SIZE) -> mmap.mmap:
    """Anonymous memory with all pages written."""
    area = mmap.mmap(-1, size, flags=kind | mmap.MAP_ANONYMOUS)
    if advice is not None:
        area.madvise(advice)
    for place in range(0, size, 4 * KIB):
        area[place] = 1
    return area


def rollup(pid: int, *names: str) -> list[int]:
    """The kernel's own sums over the mappings of a process."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return [int(re.findall(rf"^{name}: +(\d+) kB$", text, re.MULTILINE)[0]) * KIB for name in names]


def test_sums_are_those_of_the_kernel() -> None:
    with child(lambda: touched(mmap.MAP_PRIVATE, mmap.MADV_HUGEPAGE)) as pid:
        mappings = mappings_of(pid)
        assert mappings is not None
        resident, huge = rollup(pid, "Rss", "AnonHugePages")
        assert sum(mapping.resident_bytes for mapping in mappings) == resident
        memory = memory_of([mappings])
        assert memory.huge_bytes["anonymous"] == memory.all_huge_bytes == huge
        assert SIZE <= memory.resident_bytes <= resident
        assert peak_resident(pid) >= SIZE


@pytest.mark.skipif(
    read_huge_pages().thp_sizes.get(PMD_PAGE) not in ("madvise", "always"),
    reason="this kernel gives no 2 MiB pages where they are asked for",
)
def test_huge_pages_are_those_that_were_asked_for() -> None:
    def work() -> tuple[mmap.mmap, mmap.mmap]:
        small = touched(mmap.MAP_PRIVATE, mmap.MADV_NOHUGEPAGE)
        return small, touched(mmap.MAP_PRIVATE, mmap.MADV_HUGEPAGE)

    def huge_bytes(pid: int) -> int:
        mappings = mappings_of(pid)
        assert mappings is not None
        return memory_of([mappings]).all_huge_bytes

    # The child starts with the memory of this process.
    inherited = huge_bytes(os.getpid())
    with child(work) as pid:
        mappings = mappings_of(pid)
        assert mappings is not None
        largest = [region for region in memory_of([mappings]).regions if region.huge_bytes]
        # At most the memory that was advised. The kernel may have too few free huge pages.
        assert inherited < huge_bytes(pid) <= inherited + SIZE
        assert sum(region.huge_bytes for region in largest) % PMD_PAGE == 0


def test_shared_memory_counts_once() -> None:
    shared = touched(mmap.MAP_SHARED)
    with child(lambda: shared[0]) as first, child(lambda: bytes(shared)) as second:
        both = [mappings_of(first), mappings_of(second), mappings_of(os.getpid())]
        known = [mappings for mappings in both if mappings is not None]
        assert len(known) == 3
        regions = memory_of(known).regions
        ours = next(region for region in regions if region.name.startswith("/dev/zero"))
        # The second child and this process share the memory, and each has half of it. The first
        # child has read one byte.
        assert 0.99 * SIZE <= ours.resident_bytes <= 1.01 * SIZE
    shared.close()


HEAD = "7f0000000000-7f0000400000 {} 00000000 {} {}\n"


def fields(**sizes: int) -> str:
    return "".join(f"{name}: {size:>8} kB\n" for name, size in sizes.items())


def test_huge_pages_are_counted_by_kind() -> None:
    text = (
        HEAD.format("rw-p", "00:00 0", "")
        + fields(Rss=4096, Pss=4096, AnonHugePages=2048, ShmemPmdMapped=0)
        + "VmFlags: rd wr hg\n"
        + HEAD.format("rw-s", "00:01 77", "     /dev/shm/a file (deleted)")
        + fields(Rss=4096, Pss=2048, ShmemPmdMapped=4096)
        + HEAD.format("r-xp", "fe:00 9", "                  /usr/bin/prog")
        + fields(Rss=2048, Pss=1024, FilePmdMapped=2048)
        + HEAD.format("rw-s", "00:0f 5", "/dev/hugepages/pool")
        + fields(Rss=0, Pss=0, Shared_Hugetlb=4096, Private_Hugetlb=2048)
    ).encode()
    mappings = parse_smaps(text)
    assert [one.name for one in mappings][1:] == [
        "/dev/shm/a file (deleted)",
        "/usr/bin/prog",
        "/dev/hugepages/pool",
    ]
    once = memory_of([mappings])
    expected = {"anonymous": 2, "shared": 4, "file": 2, "hugetlb": 6}
    assert once.huge_bytes == {kind: size * MIB for kind, size in expected.items()}
    assert once.resident_bytes == (4 + 2 + 1 + 6) * MIB
    twice = memory_of([mappings, parse_smaps(text)])
    # Private memory is each process's own; the rest is shared.
    assert twice.huge_bytes == {**once.huge_bytes, "anonymous": 4 * MIB}
    assert sum(region.huge_bytes for region in twice.regions) == twice.all_huge_bytes


def test_anonymous_regions_are_named_anonymous() -> None:
    text = (
        HEAD.format("rw-p", "00:00 0", "")
        + fields(Rss=4096, Pss=4096)
        + HEAD.format("rw-p", "00:0f 1337", "     /anon_hugepage (deleted)")
        + fields(Rss=0, Pss=0, Private_Hugetlb=2048)
        + HEAD.format("rw-s", "00:0f 5", "       /dev/hugepages/pool")
    ).encode()
    regions = memory_of([parse_smaps(text)]).regions
    names = ["anonymous", "anonymous, pages of hugetlbfs", "/dev/hugepages/pool"]
    assert [region.name for region in regions] == names


def test_neighbours_without_a_name_are_one_region() -> None:
    parts = [
        Mapping("", 0, 8192, None, 4096, 4096, {"anonymous": 2}),
        Mapping("", 8192, 12288, None, 4096, 4096, {"anonymous": 1}),
        Mapping("", 16384, 20480, None, 4096, 4096),
    ]
    regions = memory_of([parts]).regions
    assert [(one.start, one.resident_bytes, one.huge_bytes) for one in regions] == [
        (0, 8192, 3),
        (16384, 4096, 0),
    ]


def test_a_process_that_has_ended_has_no_memory() -> None:
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert mappings_of(pid) is None
    assert pid in descendants(os.getpid())
    os.waitpid(pid, 0)
    assert mappings_of(pid) is None
    assert parse_smaps(b"") == []


def test_descendants_are_found_either_way(monkeypatch: pytest.MonkeyPatch) -> None:
    def work() -> int:
        ours, theirs = os.pipe()
        grandchild = os.fork()
        if grandchild == 0:
            os.close(theirs)
            os.read(ours, 1)
            os._exit(0)
        return grandchild

    with child(work) as pid:
        by_children = descendants(pid)
        assert len(by_children) == 1
        assert by_children[0] in descendants(os.getpid())

        exists = Path.exists
        monkeypatch.setattr(Path, "exists", lambda path: path.name != "children" and exists(path))
        assert descendants(pid) == by_children


def test_descendants_are_found_while_threads_end(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Thread 12 ends after the list of threads was read, and leaves its child to thread 11."""
    for thread, children in {"10/task/10": "11", "11/task/11": "", "11/task/12": "20"}.items():
        (tmp_path / thread).mkdir(parents=True)
        (tmp_path / thread / "children").write_text(children)
    (tmp_path / "20/task/20").mkdir(parents=True)
    (tmp_path / "20/task/20/children").touch()
    (tmp_path / "thread-self").symlink_to("10/task/10")
    read = Path.read_bytes

    def reading(path: Path) -> bytes:
        found = read(path)
        ending = tmp_path / "11/task/12"
        if path == tmp_path / "11/task/11/children" and ending.exists():
            (ending / "children").unlink()
            ending.rmdir()
            path.write_text("20")
        return found

    iterdir = Path.iterdir
    monkeypatch.setattr(Path, "iterdir", lambda path: sorted(iterdir(path)))
    monkeypatch.setattr(Path, "read_bytes", reading)
    monkeypatch.setattr(processes, "_PROC", tmp_path)
    assert descendants(10) == [11, 20]
    assert descendants(99) == []


@pytest.mark.parametrize("family", ["AF_INET", "AF_UNIX"])
def test_a_server_is_known_by_its_socket(family: str, tmp_path: Path) -> None:
    import socket

    def work(is_listening: bool) -> socket.socket:
        made = socket.socket(getattr(socket, family))
        made.bind(("127.0.0.1", 0) if family == "AF_INET" else str(tmp_path / "socket"))
        if is_listening:
            made.listen()
        return made

    with child(lambda: work(True)) as pid:
        assert listens([pid])
    (tmp_path / "socket").unlink(missing_ok=True)
    with child(lambda: work(False)) as pid:
        assert not listens([pid])


def test_processor_time_of_another_process_is_finer_than_clock_ticks():
    spent = mmap.mmap(-1, 8)

    def work() -> bool:
        spent[:] = struct.pack("d", time.process_time())
        return True

    with child(work) as pid:
        (least,) = struct.unpack("d", spent[:])
        assert 0 < least <= cpu_seconds(pid) < least + 1
    assert cpu_seconds(pid) == 0
