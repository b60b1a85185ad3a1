"""The subject of each piece of advice: the program that manages the memory, and facts about it."""

from __future__ import annotations

import shutil
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from octavo.actions.table import Share, Subject, is_shared_memory
from octavo.analysis.advice import Case
from octavo.analysis.present_pages import ASKED_SMALL, is_nearly_all
from octavo.analysis.rows import Row, component_of, instructions_by_process
from octavo.base.elf import is_elf_file
from octavo.base.huge_pages import PMD_PAGE
from octavo.base.units import BASE_PAGE, MIB
from octavo.runtimes.detect import Runtime, with_arguments
from octavo.runtimes.launchers import program_at
from octavo.runtimes.naming import PYTHON_ARENA, is_glibc_arena

_Key = tuple[int | None, str]
"""A process, or None for all, and a region."""
_NOTABLE_SHARE = 0.1
"""Share of a process's own memory above which a kind of allocation counts as notable."""
_LARGE_BLOCK_BYTES = 4 * MIB
"""Blocks of this size or more hold a whole huge page wherever they start; malloc asks for huge
pages in them."""
_OF_MALLOC = "malloc_bytes"
"""The counter of bytes of a region that glibc's malloc has mapped."""


@dataclass
class _Memory:
    """Bytes of 4 KiB pages that a process touched in anonymous memory and the brk heap."""

    total: int = 0
    arenas: int = 0
    blocks: int = 0
    shared: int = 0
    """Not in the total."""
    files: dict[str, int] = field(default_factory=dict)
    """Not in the total: data of files by path, without programs and libraries."""
    file_misses: int = 0
    all_misses: int = 0
    """TLB misses of all data in 4 KiB pages."""
    misses: int = 0
    """Misses in anonymous memory, the brk heap and static variables."""
    static_misses: int = 0
    stack_misses: int = 0
    thread_stack_misses: int = 0
    mapped_misses: int = 0
    """Misses in anonymous mappings not known to be made by glibc's malloc or Python's allocator."""
    refused_misses: int = 0
    """Misses in regions for which the program refuses huge pages (MADV_NOHUGEPAGE)."""


class Subjects:
    """The subjects of a run's advice."""

    def __init__(
        self, rows: Sequence[Row], runtimes: Mapping[int, Runtime], words: Sequence[str]
    ) -> None:
        self._runtimes = runtimes
        self._words = tuple(words)
        self._instructions = instructions_by_process(rows)
        self._refusing = _nearly_all_of(rows, ASKED_SMALL)
        self._of_malloc = regions_of_malloc(rows)
        self._untouched_pages = untouched_pages(rows)
        self._malloc_pages = malloc_pages(rows)
        self._memory = _memory_of(rows)
        self._has_threads = _have_threads(rows)

    def of(self, case: Case) -> Subject:
        """The subject of one case; for a case of several processes, their main process."""
        stream = self._main(case) if case.process is None else case.process
        runtime = self._runtimes.get(stream, Runtime(program=""))
        memory = self._memory[stream if stream in self._memory else None]
        is_glibc = runtime.allocator == "glibc"
        blocks = is_glibc and memory.blocks > _NOTABLE_SHARE * memory.total
        # Blocks that are no longer mapped one by one go to the arena of their thread.
        share = 0 if blocks else _NOTABLE_SHARE
        return Subject(
            with_arguments(runtime, self._words),
            words=self._words,
            is_started_directly=_starts(self._words, runtime.program),
            arenas=is_glibc and memory.arenas > share * memory.total,
            blocks=blocks,
            static=_share(memory.static_misses, memory.misses),
            mapped=self._mapped(case, stream, memory) if is_glibc else "little",
            refuses=self._refuses(case, stream, memory),
            shared=memory.shared > memory.total,
            stack=2 * memory.stack_misses > memory.all_misses,
            all_stacks=2 * (memory.stack_misses + memory.thread_stack_misses) > memory.all_misses,
            file=_main_file(memory),
            untouched_pages=self._untouched(case, stream) if is_glibc else 0,
        )

    def _untouched(self, case: Case, stream: int) -> int:
        """Pages that a pool needs beside the touched memory of a case: untouched ones, one for the
        heap, and for a region all other memory of malloc, which takes from the pool, too.
        """
        process = stream if stream in self._memory else None
        processes = (process,) if case.region is None else case.processes or (process,)
        counted = self._untouched_pages.items()
        pages = len(processes) + sum(number for key, number in counted if key[0] in processes)
        if case.region is None:
            return pages
        whole = sum(self._malloc_pages[one] for one in processes)
        own = sum(one.touched_bytes for one in case.points if one.page_size == PMD_PAGE)
        return pages + max(0, whole - own // PMD_PAGE)

    def _mapped(self, case: Case, stream: int, memory: _Memory) -> Share:
        """How much of a case may be mappings that the program made itself."""
        if case.region is None:
            return _share(memory.mapped_misses, memory.misses)
        is_arena = self._has_threads and is_glibc_arena(case.start or 0, case.bytes or 0)
        is_of_malloc = is_arena or bool(_keys(case, stream) & self._of_malloc)
        is_known = is_of_malloc or is_of_python(case.region)
        return "most" if case.region_kind == "anonymous" and not is_known else "little"

    def _refuses(self, case: Case, stream: int, memory: _Memory) -> bool:
        if case.region is None:
            return 2 * memory.refused_misses > memory.misses
        return bool(_keys(case, stream) & self._refusing)

    def _main(self, case: Case) -> int:
        """The process of the case with most instructions, or for a case of data with most TLB
        misses; one of all processes if the case names none. Another process may be a script that
        starts it, or a client of a server.
        """
        counts = self._instructions
        if case.stream == "data":
            misses = {
                stream: memory.all_misses
                for stream, memory in self._memory.items()
                if stream is not None
            }
            counts = misses if any(misses.values()) else counts
        counts = {stream: counts.get(stream, 0) for stream in case.processes} or counts
        if not counts:
            return min(self._runtimes, default=0)
        return max(counts, key=lambda stream: counts[stream])


def is_mostly_shared(rows: Sequence[Row]) -> bool:
    """Whether shared memory holds most of the data that the processes use."""
    found = _memory_of(rows).values()
    return sum(memory.shared for memory in found) > sum(memory.total for memory in found)


def _memory_of(rows: Sequence[Row]) -> defaultdict[int | None, _Memory]:
    found: defaultdict[int | None, _Memory] = defaultdict(_Memory)
    refusing, of_malloc = _nearly_all_of(rows, ASKED_SMALL), regions_of_malloc(rows)
    has_threads = _have_threads(rows)
    for row in rows:
        if "region" not in row or row.get("page_size") != BASE_PAGE:
            continue
        memory, kind = found[row.get("process")], row["region_kind"]
        if row["component"] == component_of(1, "data"):
            is_static = kind == "data" and is_elf_file(row["path"])
            is_arena = has_threads and is_glibc_arena(row["start"], row["bytes"])
            key = (row.get("process"), row["region"])
            is_known = is_arena or key in of_malloc or is_of_python(row["region"])
            is_mapped = kind == "anonymous" and not is_known
            is_refused = key in refusing
            misses = row["misses"]
            memory.all_misses += misses
            memory.static_misses += misses if is_static else 0
            memory.stack_misses += misses if kind == "stack" else 0
            memory.thread_stack_misses += misses if kind == "thread-stack" else 0
            memory.mapped_misses += misses if is_mapped else 0
            memory.refused_misses += misses if is_refused else 0
            path = row.get("path")
            is_file = kind == "data" and bool(path) and not is_elf_file(path)
            memory.file_misses += misses if is_file else 0
            memory.misses += misses if is_static or kind in ("heap", "anonymous") else 0
        if row["component"] != "memory" or row["stream"] != "all":
            continue
        touched, path = row["touched_bytes"], row.get("path")
        if is_shared_memory(kind, path):
            memory.shared += touched
            continue
        if path and kind == "data" and not is_elf_file(path):
            memory.files[path] = memory.files.get(path, 0) + touched
        if kind not in ("heap", "anonymous"):
            continue
        memory.total += touched
        if kind == "heap":
            continue
        if has_threads and is_glibc_arena(row["start"], row["bytes"]):
            memory.arenas += touched
        elif row["bytes"] // max(row["mappings"], 1) < _LARGE_BLOCK_BYTES:
            memory.blocks += touched
    return found


def regions_of_malloc(rows: Sequence[Row]) -> set[_Key]:
    """The regions that glibc's malloc has mapped."""
    return _nearly_all_of(rows, _OF_MALLOC)


def untouched_pages(rows: Sequence[Row]) -> dict[_Key, int]:
    """Huge pages in blocks of glibc's malloc that were not touched, by region. hugetlbfs reserves a
    mapping as a whole, or not at all.
    """
    of_malloc = regions_of_malloc(rows)
    found = {}
    for row in rows:
        key = (row.get("process"), row.get("region", ""))
        kind = (row["component"], row.get("stream"), row.get("page_size"))
        if key in of_malloc and kind == ("memory", "all", PMD_PAGE):
            found[key] = max(0, -(-row["bytes"] // PMD_PAGE) - row["touched_bytes"] // PMD_PAGE)
    return found


def malloc_pages(rows: Sequence[Row]) -> defaultdict[int | None, int]:
    """Huge pages that hold what each process touched of its heap and anonymous memory."""
    found: defaultdict[int | None, int] = defaultdict(int)
    for row in rows:
        kind = (row["component"], row.get("stream"), row.get("page_size"))
        if kind == ("memory", "all", PMD_PAGE) and row.get("region_kind") in ("heap", "anonymous"):
            found[row.get("process")] += row["touched_bytes"] // PMD_PAGE
    return found


def is_of_python(region: str) -> bool:
    """Whether Python's own allocator has mapped a region, memory that malloc could give instead."""
    return region.startswith(PYTHON_ARENA)


def _keys(case: Case, stream: int) -> set[_Key]:
    """The keys that rows of a case's region may have."""
    region = case.region or ""
    return {(stream, region), (None, region)}


def _nearly_all_of(rows: Sequence[Row], counter: str) -> set[_Key]:
    """The regions of whose touched memory a counter of bytes has nearly all."""
    counted = {
        (row.get("process"), row["region"]): row["value"]
        for row in rows
        if row.get("counter") == counter and "region" in row
    }
    return {
        key
        for row in rows
        if "region" in row
        and (row["component"], row.get("stream"), row.get("page_size"))
        == ("memory", "all", BASE_PAGE)
        and (key := (row.get("process"), row["region"])) in counted
        and is_nearly_all(counted[key], row["touched_bytes"], row["bytes"])
    }


def _have_threads(rows: Sequence[Row]) -> bool:
    """Whether a process had several threads, whose arenas glibc's malloc maps; True if unknown."""
    counted = {row.get("process"): row["value"] for row in rows if row.get("counter") == "threads"}
    if len(counted) > 1:
        # Without the row of all processes, which holds the sum.
        counted.pop(None, None)
    return not counted or max(counted.values()) > 1


def _share(part: int, whole: int) -> Share:
    if 2 * part > whole:
        return "most"
    return "much" if part > _NOTABLE_SHARE * whole else "little"


def _main_file(memory: _Memory) -> str:
    is_main = sum(memory.files.values()) > max(memory.total, memory.shared)
    if not is_main or 2 * memory.file_misses < memory.all_misses:
        return ""
    return max(memory.files, key=lambda path: memory.files[path])


def _starts(words: Sequence[str], program: str) -> bool:
    """Whether a command line starts this program, also by a link or a name on PATH."""
    if not words or not program:
        return True
    started = words[program_at(words)]
    return Path(shutil.which(started) or started).resolve() == Path(program).resolve()
