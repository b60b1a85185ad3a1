"""The Rust extension: live runs, their progress and their results.

Everything here is plain data or a handle on a run; command lines, tables, files and advice are
the business of the rest of the package. The TypedDicts describe dictionaries and do not exist at
run time: import them under TYPE_CHECKING.
"""

from typing import Literal, TypedDict

VERSION: str
"""Octavo's version, e.g. "0.1.0"."""

class OctavoError(Exception):
    """A failure that a user can act on; its text is one clear sentence."""

def parse_page_size(text: str) -> int:
    """`64KiB` → 65536. Raises ValueError (with the sentence to show) for anything that is not a
    power of two from 4 KiB to 1 GiB."""

class Level(TypedDict):
    """One TLB level, fully associative, LRU; separate for instructions and data."""

    fetch_entries: int
    data_entries: int

class Curve(TypedDict):
    """What one stream does to one TLB level at one page size."""

    stream: Literal["fetch", "data"]
    page_size: int
    level: int
    """1 is looked up by every reference; level n + 1 by the misses of level n."""
    entries: int
    accesses: int
    misses: int

class Footprint(TypedDict):
    """Memory touched, counted in whole pages of a size."""

    stream: Literal["fetch", "data", "all"]
    page_size: int
    touched_bytes: int
    """Distinct pages touched over the whole run × page size."""
    peak_resident_bytes: int | None
    """The most that was touched and still mapped at one time (for stream "all" of a process
    only, None elsewhere)."""

class Region(TypedDict):
    """One part of a process's address space and what the streams did to it."""

    name: str
    """"heap", "stack", "libc.so.6 text", "libc.so.6 data", "anon 64.0MiB #1", "anon (small)" …"""
    kind: Literal["heap", "stack", "thread-stack", "text", "data", "anonymous", "shared", "other"]
    path: str | None
    start: int
    """Lowest address it ever had, in the layout that was asked for."""
    bytes: int
    """Size of the largest extent it ever had."""
    mappings: int
    """How many mappings were counted under this name."""
    fetch_references: int
    data_references: int
    curves: list[Curve]
    """accesses is the region's own; streams without references to the region are left out."""
    footprints: list[Footprint]
    """stream "fetch", "data" and "all"."""

class Process(TypedDict):
    """One traced process image: a fork or an exec begins another."""

    stream: int
    """0 is the program itself; numbered in the order in which streams began."""
    parent_stream: int | None
    pid: int
    program: str
    """Path of the executable."""
    began_by: Literal["start", "fork", "exec"]
    ended_by: Literal["exit", "exec", "signal", "lost", "limit", "corrupt"]
    """"lost": the process went without a word (killed); "limit": the region of interest ended;
    "corrupt": the stream could not be read on, and exit.diagnostics says why."""
    exit_code: int | None
    instructions: int
    fetches: int
    loads: int
    stores: int
    modifies: int
    """Of loads and stores, how many pairs were one read-modify-write item."""
    references: int
    """fetches + loads + stores."""
    segments: int
    threads: int
    thread_switches: int
    events: dict[str, int]
    """Counts by name: map, unmap, remap, protect, advise, fork, exec (attempts), exec-failed, signal,
    mark."""
    curves: list[Curve]
    footprints: list[Footprint]
    regions: list[Region]
    stream_hash: str
    """xxh3-128 of the stream's words, 32 hex digits."""

class Progress(TypedDict):
    """A snapshot of a run under way."""

    running: bool
    elapsed_seconds: float
    references: int
    instructions: int
    resident_bytes: int
    """Base pages touched and still mapped, all traced processes together."""
    streams_live: int
    streams_total: int
    counting: bool
    """False while the region of interest has not begun."""

class Exit(TypedDict):
    """How the program itself ended."""

    code: int | None
    signal: int | None
    reason: Literal["exited", "signalled", "interrupted", "limit", "tracer-failed"]
    diagnostics: str
    """What Valgrind had to say (unsupported instruction, …); empty when all was well."""

class Result(TypedDict):
    exit: Exit
    elapsed_seconds: float
    processes: list[Process]
    untraced_processes: int
    """Children that found no free stream and ran on untraced."""

class LiveRun:
    """A program under the tracer, consumed by background threads as it runs."""

    def __init__(
        self,
        argv: list[str],
        *,
        valgrind: str,
        tool_dir: str,
        tracer: Literal["octavo", "lackey"],
        page_sizes: list[int],
        levels: list[Level],
        layout: Literal["native", "as-traced"],
        follow_children: bool,
        skip_instructions: int,
        max_instructions: int | None,
        between_marks: bool,
        session_dir: str,
        scratch_dir: str,
    ) -> None:
        """Checks its arguments; starts nothing.

        argv[0] is the resolved path of the program. `valgrind` is the path of the valgrind
        launcher, `tool_dir` the private VALGRIND_LIB directory that holds our tool (ignored with
        the Lackey tracer).
        `session_dir` is an existing empty directory for Valgrind's log; `scratch_dir` is where
        the ring file goes when the kernel gives no memfd. Raises ValueError.
        """

    def start(self) -> int:
        """Starts the program; returns its process identifier. Raises OctavoError."""

    def wait(self, timeout_seconds: float) -> Progress:
        """Waits until the run has ended or the time is up, without the GIL."""

    def signal(self, number: int) -> None:
        """Sends a signal to the traced program and notes that the run was interrupted."""

    def note_interrupted(self) -> None:
        """Notes that the user interrupted the run, where the terminal has told the program."""

    def stop(self) -> None:
        """Ends the traced program and its traced children at once (SIGKILL); what they did up
        to here still counts."""

    def result(self) -> Result:
        """The result, once `wait` has said that nothing runs. Raises OctavoError when nothing
        was traced at all (its text says why)."""
