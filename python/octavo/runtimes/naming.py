"""Gives the regions of a run the names that users of a runtime know: `Java heap`, `Go heap`.

The tracer names anonymous memory by its size (`anon 64.0MiB #3`). The runtime, the kind and the
address of a region determine its purpose; where they do not, the name stays. Sizes and numbers are
kept, so that names stay unique within a process.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from octavo.base.units import GIB, MIB
from octavo.runtimes.detect import Runtime, detect

if TYPE_CHECKING:
    from octavo._core import Process, Region

_ANONYMOUS = re.compile(r"anon (?P<size>[\d.]+MiB #\d+|\(small\))$")

GLIBC_ARENA_BYTES = 64 * MIB
"""HEAP_MAX_SIZE of glibc's malloc: an arena of a thread starts at a multiple of it."""
_KERNEL_CHOICE_STARTS = 0x7E << 40
"""Lowest address that Linux chooses for mappings. Go asks for lower addresses for the arenas of its
heap: from 0xc000000000 on, at random addresses since 1.26 (arenaHint, runtime/malloc.go)."""
_COMPRESSED_OOPS_END = 32 * GIB
"""The JVM places a heap of up to 32 GiB below this address, so that pointers fit into 32 bits."""
PYTHON_ARENA = "Python arena"
"""The name for memory that Python's own allocator maps for objects."""
_ZEND_CHUNK_BYTES = 2 * MIB
"""ZEND_MM_CHUNK_SIZE of PHP's allocator: its chunks and huge blocks start at multiples of it."""


def runtimes_of(processes: Sequence[Process]) -> dict[int, Runtime]:
    """The runtime of each process of a result, by its stream number."""
    return {
        process["stream"]: detect(
            process["program"],
            [region["path"] for region in process["regions"] if region["path"] is not None],
        )
        for process in processes
    }


def name_regions(processes: Sequence[Process], runtimes: dict[int, Runtime]) -> None:
    """Renames regions in place, where the runtime determines their purpose."""
    # A forked child has the arenas of its parent's threads.
    has_threads = any(process["threads"] > 1 for process in processes)
    for process in processes:
        name = _Namer(runtimes[process["stream"]], process["regions"], has_threads).name
        taken = {region["name"] for region in process["regions"]}
        for region in process["regions"]:
            new = name(region)
            if new is not None and new not in taken:
                taken.add(new)
                region["name"] = new


@dataclass
class _Namer:
    runtime: Runtime
    regions: Sequence[Region]
    has_threads: bool

    def name(self, region: Region) -> str | None:
        """The name that users of the runtime know; None to keep the present name."""
        if region["kind"] == "shared" and self.runtime.kind == "postgres":
            return "shared buffers"
        if _is_zgc_heap(region) and self.runtime.kind == "jvm":
            return "Java heap"
        anonymous = _ANONYMOUS.match(region["name"])
        if anonymous is None:
            return self._heap(region)
        name = self._anonymous(region)
        return f"{name} {anonymous['size']}" if name is not None else None

    def _heap(self, region: Region) -> str | None:
        """The name of the brk heap, where another allocator than the C library's uses it."""
        if region["kind"] == "heap" and self.runtime.allocator == "tcmalloc":
            return "tcmalloc heap"
        return None

    def _anonymous(self, region: Region) -> str | None:
        by_kind: dict[str, Callable[[Region], str | None]] = {
            "jvm": self._java,
            "go": lambda region: (
                "Go heap" if region["start"] < _KERNEL_CHOICE_STARTS else "Go runtime"
            ),
            "node": lambda region: "V8 code" if region["fetch_references"] else "V8 heap",
            "cpython": self._python,
            "php": self._php,
            "erlang": self._erlang,
            "luajit": lambda region: "LuaJIT heap",
        }
        if self.runtime.kind in by_kind:
            own = by_kind[self.runtime.kind](region)
            if own is not None:
                return own
        return self._malloc(region)

    def _java(self, region: Region) -> str | None:
        if region["fetch_references"]:
            return "Java code cache"
        if any(map(_is_zgc_heap, self.regions)):
            return None
        # Class space and metaspace are above the heap or elsewhere.
        heaps = [
            other
            for other in self.regions
            if other["kind"] == "anonymous" and other["start"] < _COMPRESSED_OOPS_END
        ]
        if heaps:
            return "Java heap" if region["start"] < _COMPRESSED_OOPS_END else None
        largest = max(
            (other for other in self.regions if other["kind"] == "anonymous"),
            key=lambda other: other["bytes"],
        )
        return "Java heap" if region is largest and region["bytes"] >= 8 * MIB else None

    def _python(self, region: Region) -> str | None:
        # ARENA_SIZE is 256 KiB before 3.10, and such mappings are in the tracer's `anon (small)`.
        if self.runtime.version < (3, 10):
            return PYTHON_ARENA if region["name"] == "anon (small)" else None
        return PYTHON_ARENA if region["bytes"] == MIB * region["mappings"] else None

    def _php(self, region: Region) -> str | None:
        is_aligned = region["start"] % _ZEND_CHUNK_BYTES == 0
        return "PHP heap" if is_aligned and region["bytes"] >= _ZEND_CHUNK_BYTES else None

    def _erlang(self, region: Region) -> str:
        # Drivers and libraries allocate with malloc.
        return "malloc arena of a thread" if self._is_arena(region) else "Erlang carrier"

    def _malloc(self, region: Region) -> str | None:
        allocator = self.runtime.allocator
        if allocator in ("jemalloc", "mimalloc", "tcmalloc"):
            return f"{allocator} arena"
        if allocator == "glibc" and self._is_arena(region):
            return "malloc arena of a thread"
        return None

    def _is_arena(self, region: Region) -> bool:
        return self.has_threads and is_glibc_arena(region["start"], region["bytes"])


def _is_zgc_heap(region: Region) -> bool:
    return (region["path"] or "").startswith("/memfd:java_heap")


def is_glibc_arena(start: int, size: int) -> bool:
    """Whether a mapping looks like an arena that glibc's malloc made for a thread.

    glibc maps twice the size of an arena to find an aligned part, and unmaps the rest.
    """
    aligned = start % GLIBC_ARENA_BYTES == 0 and size <= GLIBC_ARENA_BYTES
    return aligned or size == 2 * GLIBC_ARENA_BYTES
