"""The Rust extension: live runs, recordings and traces, their progress and their results.

Everything here is plain data or a handle on a run; command lines, tables, files and advice are
the business of the rest of the package. The TypedDicts describe dictionaries and do not exist at
run time: import them under TYPE_CHECKING.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Generic, Literal, TypedDict, TypeVar

from typing_extensions import NotRequired

VERSION: str
"""Octavo's version, e.g. "1.0.0"."""

MODEL: str
"""The version of what simulations count: Octavo's, and a hash of the sources that decide it."""

ENGINES: str
"""The same of all engines, those of `octavo run` and `octavo curves` among them."""

MAX_ENTRIES: int
"""The most entries that curves tell apart."""
MAX_SETS: int
"""The most sets, a power of two."""
MAX_CACHE_SETS: int
"""The most sets of a cache, a power of two."""
MIN_LINE_BYTES: int
MAX_LINE_BYTES: int
"""The sizes that lines of caches may have: powers of two from the one to the other."""
MAX_CORES: int
"""The most cores that a machine may have."""
MAX_WAYS: int
"""The most ways; curves always tell all of them."""
MAX_INDEX_BIT: int
"""The highest bit of a page number that an index of sets may begin at."""
MAX_WINDOW_REFS: int
"""The longest window of a working set."""

class OctavoError(Exception):
    """A failure that a user can act on; its text is one clear sentence."""

def interval_of_rate(windows: list[tuple[int, int]]) -> tuple[float, float] | None:
    """The 95% interval of events per thousand instructions, from the (events, instructions) of
    windows, by resampling these; None of fewer than two."""

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

class MachineCurve(TypedDict):
    """What one stream does to one level of a machine's TLBs, as if all pages had one size."""

    stream: Literal["fetch", "data"]
    page_size: int
    level: int
    """Misses of the last one are page walks."""
    entries: int
    ways: int
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

class PageFaults(TypedDict):
    """Page faults at first touches of memory of the process's own, none of shared memory and files."""

    base: int
    """Where all pages have 4 KiB."""
    huge: int
    """With 2 MiB pages wherever they fit: those that give one."""
    huge_again: int
    """Of these, those for which the process had given a 2 MiB page back before."""
    left: int
    """The same: those that give a 4 KiB page."""

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
    asked_huge_bytes: int
    """The most bytes that the program had asked 2 MiB pages for, by madvise (MADV_HUGEPAGE or
    MADV_COLLAPSE), without those that it took this back for."""
    asked_small_bytes: int
    """The same of MADV_NOHUGEPAGE: bytes that are to have no huge pages."""
    hugetlb_bytes: int
    """The most bytes that were pages of hugetlbfs, of 2 MiB or more (MAP_HUGETLB)."""
    malloc_bytes: int
    """The most bytes of mappings that the C library made for its malloc. Those that a process has of
    its parent are not known as such."""
    fetch_references: int
    data_references: int
    curves: list[Curve]
    """accesses is the region's own; streams without references to the region are left out."""
    machine_curves: list[MachineCurve]
    """Those of the machine, if there is one."""
    footprints: list[Footprint]
    """stream "fetch", "data" and "all"."""
    page_faults: PageFaults
    huge_growth_bytes: int
    """The growth of the process's own memory in 2 MiB pages wherever they fit, at the time when most
    of it was touched."""
    touched: Touched

class Touched:
    """The base pages that a region has touched."""

    def __init__(
        self,
        *,
        fetch: Sequence[int] = ...,
        data: Sequence[int] = ...,
        own: Sequence[int] = ...,
    ) -> None:
        """Page numbers; of `own`, those that no other process can have in the same frame."""

def memory_counted_again(
    images: Sequence[tuple[int, Sequence[tuple[str | None, int, Touched]]]],
    page_sizes: Sequence[int],
) -> list[Footprint]:
    """What a sum of the footprints of processes counts more than once.

    A process is the one that it descends from by fork alone, and its regions: what identifies it in
    other processes (a file's kind and path; None: the address alone), start and pages.
    """

class TracedWindow(TypedDict):
    """A part of an execution that was traced. Places are None where they are not known."""

    begin_instructions: int | None
    begin_milliseconds: int | None
    end_instructions: int | None
    end_milliseconds: int | None
    instructions: int
    """Those of it that counted."""
    references: int
    counts: list[int]
    """What `window_counts` of the process describes."""

class WindowCount(TypedDict):
    """A number that is counted in each window: misses of a level of TLBs."""

    stream: Literal["fetch", "data"]
    page_size: int
    level: int
    modelled: bool
    """Of the machine, not of the fully associative TLB."""

class CodePlace(TypedDict):
    """A place in the code, as far as it is known."""

    function: str | None
    path: str | None
    """The file that it was mapped from."""
    source: str | None
    line: int | None

class AllocationSite(TypedDict):
    """The blocks that one caller has allocated."""

    place: CodePlace
    address: int
    blocks: int
    most_bytes: int
    """The most that was live at one time."""

class AllocationStack(TypedDict):
    """A stack whose blocks were missed."""

    site: int
    frames: list[CodePlace]
    """The allocation function first, then its callers."""

class AttributedMisses(TypedDict):
    """The misses of a source line in the blocks of one stack, or in a region outside blocks."""

    stack: int | None
    region: int | None
    place: CodePlace
    counts: list[int]
    """By column."""

class Allocations(TypedDict):
    """Misses of data by allocation site and line."""

    columns: list[tuple[int, bool]]
    """Page sizes, and whether page walks of the machine are counted there."""
    sites: list[AllocationSite]
    stacks: list[AllocationStack]
    misses: list[AttributedMisses]
    dropped_blocks: int
    """Blocks that were not followed, as there were too many."""

class ProcessCounts(TypedDict):
    """One traced process image: a fork or an exec begins another."""

    stream: int
    """0 is the program itself; numbered in the order in which streams began."""
    parent_stream: int | None
    pid: int
    program: str
    """Path of the executable."""
    began_by: Literal["start", "fork", "exec"]
    ended_by: Literal["exit", "exec", "signal", "lost", "limit", "corrupt", "running"]
    """"lost": the process ended without its last record (killed); "limit": the region of interest ended;
    "corrupt": the stream could not be read on, and exit.diagnostics says why."""
    exit_code: int | None
    instructions: int
    fetches: int
    loads: int
    stores: int
    modifies: int
    """Pairs of a load and a store that were one read-modify-write item."""
    references: int
    """fetches + loads + stores."""
    segments: int
    folded_references: int
    """References whose addresses are not canonical: see docs/traces.md."""
    first_folded_address: int | None
    """The first of those addresses, as it was."""
    address_bits: int
    """The bits of a canonical address, where any was folded."""
    windows: NotRequired[list[TracedWindow]]
    """The windows that were traced, if not all was; some of them where there were too many."""
    windows_total: NotRequired[int]
    """How many there were."""
    executed_instructions: NotRequired[int | None]
    """Those outside windows too, if they were counted."""
    kernel_seconds: float | None
    """Processor time that its system calls took in the kernel while they were traced, estimated; of
    our tracer only."""
    window_counts: NotRequired[list[WindowCount]]
    threads: int
    thread_switches: int
    events: dict[str, int]
    """Counts by name: map, unmap, remap, protect, advise, fork, exec (attempts), exec-failed, signal,
    mark."""
    stream_hash: str
    """xxh3-128 of the stream's words, 32 hex digits."""

class Process(ProcessCounts):
    """A process image with its misses and its memory."""

    curves: list[Curve]
    machine_curves: list[MachineCurve]
    footprints: list[Footprint]
    regions: list[Region]
    knows_memory: bool
    """Whether it also has the memory that was touched while nothing counted."""
    missed_lines: int | None
    """Lines of data that the caches of a core alone have missed, about; None without a machine."""
    allocations: NotRequired[Allocations]

class Interruptible(TypedDict, total=False):
    """What Octavo itself adds to the progress of work that a signal has interrupted."""

    interrupted_by: int

class Progress(Interruptible):
    """A snapshot of a run under way."""

    running: bool
    elapsed_seconds: float
    references: int
    instructions: int
    resident_bytes: int
    """Base pages touched and still mapped, all traced processes together."""
    streams_live: int
    streams_total: int
    processes_total: int
    """All that ever began; a program that a process executes is a stream alone."""
    programs: list[str]
    """Paths of the programs of live processes; none of a trace."""
    counting: bool
    """False while the region of interest has not begun, is closed or is over."""
    over: bool
    """The region of interest is over, and the program is to end."""

class Exit(TypedDict):
    """How the program itself ended."""

    code: int | None
    signal: int | None
    reason: Literal[
        "exited", "signalled", "interrupted", "limit", "tracer-failed", "trace-broken", "running"
    ]
    diagnostics: str
    """What Valgrind had to say (unsupported instruction, …), or what is wrong with the trace;
    empty when all was well."""

class RunEnd(TypedDict):
    """How a run ended."""

    exit: Exit
    elapsed_seconds: float
    untraced_processes: int
    """Children that found no free stream and ran on untraced."""

class Result(RunEnd):
    """The result of a study of misses and memory."""

    processes: list[Process]

# --- curves ------------------------------------------------------------------------------------
# Curves of many numbers are bytes: 64-bit little-endian.

class StackCurve(TypedDict):
    """Fully associative LRU TLBs of every number of entries at one page size."""

    page_size: int
    pages: int
    """Distinct pages: what a TLB of any size misses."""
    misses: bytes
    """With n entries, at index n - 1."""

class SetCurves(TypedDict):
    """Set-associative LRU TLBs of every number of sets and ways at one page size."""

    page_size: int
    index: str
    """low, bits:N or xor."""
    misses: bytes
    """With 2^s sets of w ways, at index MAX_WAYS * s + w - 1."""

class CacheCurves(TypedDict):
    """LRU caches of every number of sets and ways, with lines of one size."""

    line_bytes: int
    lookups: int
    """A reference looks up each line that it touches."""
    misses: bytes
    """With 2^s sets of w ways, at index MAX_WAYS * s + w - 1, up to MAX_CACHE_SETS sets; empty
    where there were more lines than can be told apart."""

class WorkingSet(TypedDict):
    """A working set over all references of a stream."""

    page_size: int
    window_refs: int
    page_refs: int
    """Pages in the window, summed over all references."""

class TwoSizesSets(TypedDict):
    """Set-associative TLBs for two page sizes; each curve as in SetCurves."""

    index: Literal["small", "large", "exact", "split-small", "split-large"]
    small_misses: bytes
    large_misses: bytes
    invalidated: bytes
    """Entries that changes of page size invalidated."""

class TwoSizesCurves(TypedDict):
    """Two page sizes under the dynamic policy."""

    small: int
    large: int
    window_refs: int
    threshold_blocks: int
    counters: dict[str, int]
    """Look-ups, promotions and demotions, blocks copied and zeroed."""
    small_misses: bytes
    """This and the next two: misses of fully associative TLBs, as in StackCurve."""
    large_misses: bytes
    invalidated: bytes
    sets: list[TwoSizesSets]
    windows_refs: list[int]
    working_set_byte_refs: list[int]
    """For each of these windows, the bytes in the working set summed over all references."""

class TwoSizesTlbs(TypedDict):
    """What the TLBs of one core do with two page sizes; the policy is the process's."""

    counters: dict[str, int]
    """Look-ups."""
    small_misses: bytes
    large_misses: bytes
    invalidated: bytes
    sets: list[TwoSizesSets]

class CoreCurves(TypedDict):
    """What one stream of one thread has had, in TLBs of its own."""

    thread: int
    instructions: int
    references: int
    stack: list[StackCurve]
    sets: list[SetCurves]
    caches: list[CacheCurves]
    two_sizes: list[TwoSizesTlbs]
    classes: MissClasses | None

class StreamCurves(TypedDict):
    """What one stream of a process image has had, or of all that took turns."""

    stream: Literal["fetch", "data", "all"]
    references: int
    program_references: int
    """Fetches and data of the whole program: the unit of time of windows."""
    stack: list[StackCurve]
    sets: list[SetCurves]
    caches: list[CacheCurves]
    working_sets: list[WorkingSet]
    two_sizes: list[TwoSizesCurves]
    classes: list[MissClasses]
    """To be added up; empty where no TLB's misses are classified."""
    cores: list[CoreCurves]
    """Each thread on its own, where they have TLBs of their own."""
    sampled: list[SampledSize] | None
    """From a sample of the pages, in place of `stack` and `working_sets`."""

class Estimates(TypedDict):
    """Numbers that a sample tells, and their 95% intervals: 64-bit floats, NaN where it cannot."""

    values: bytes
    low: bytes
    high: bytes

class SampledSize(TypedDict):
    """What a sample of the pages tells of one page size."""

    page_size: int
    pages: int
    """Distinct pages, an exact count."""
    kept_pages: int
    misses: Estimates
    """Misses of fully associative TLBs; with n entries, at index n - 1."""
    windows_refs: list[int]
    page_refs: Estimates
    """For each window, as in WorkingSet."""

class ClassCounts(TypedDict):
    """Misses by class: compulsory, capacity and conflict are all of them."""

    compulsory: int
    capacity: int
    conflict: int
    page_size: int
    """The part of these misses at which the TLB with the larger page size hits."""

class RegionMisses(TypedDict):
    """Misses on the pages of a region."""

    name: str
    kind: str
    path: str | None
    counts: ClassCounts

class FunctionMisses(TypedDict):
    """Misses of the instructions of a function."""

    name: str | None
    path: str | None
    """The file that it was mapped from."""
    source: str | None
    line: int | None
    """The line of the instruction that misses most."""
    counts: ClassCounts

class Classified(TypedDict):
    """The TLB whose misses are classified."""

    page_size: int
    larger: int
    """The page size to compare with."""
    sets: int
    ways: int

class MissClasses(Classified):
    """Why one TLB misses, and where; most misses first."""

    regions: list[RegionMisses]
    functions: list[FunctionMisses]

class CurvesProcess(ProcessCounts):
    """A process image with what every TLB does with it."""

    streams: list[StreamCurves]
    """Empty if processes shared a core."""

class CurvesResult(RunEnd):
    """The result of curves."""

    processes: list[CurvesProcess]
    shared: NotRequired[list[StreamCurves]]
    """What all processes together had, where they took turns."""

class TwoSizes(TypedDict):
    """Two page sizes, and when the large one is used."""

    small: int
    large: int
    threshold_blocks: int
    window_refs: int

# --- simulations -------------------------------------------------------------------------------

class MachineCounts(TypedDict):
    """What a machine of one design counted."""

    design: str
    counters: list[tuple[str, str, int]]
    """Component, counter and value, in order; the warm-up left out."""
    intervals: list[list[tuple[str, str, int]]]
    """The same of each interval that is over."""
    stopped: str | None
    """Why it could not go on, where memory ran out: it counted nothing more."""
    bound: bool
    """Whether it is a bound that nobody can build, to compare others with."""
    own_caches: bool
    """Whether it has caches of its own, before a memory with latencies of its own."""

class SimProcess(ProcessCounts):
    """A process image with what each design did; the warm-up is in no count, but where processes
    took turns: nobody's own it is.
    """

    machines: list[MachineCounts]
    dependences: bool
    """Whether instructions had register dependences."""
    mapped: bool
    """Whether anything was told of mappings; else all addresses were taken to be one."""

class SharedMachines(TypedDict):
    """What each design did with processes that took turns on it; the warm-up is in no count."""

    instructions: int
    fetches: int
    loads: int
    stores: int
    modifies: int
    references: int
    machines: list[MachineCounts]

class SimResult(RunEnd):
    """The result of a simulation."""

    processes: list[SimProcess]
    shared: NotRequired[SharedMachines]
    """Where processes took turns; they have no machines of their own then."""

def policies() -> list[tuple[str, str, list[tuple[str, str]]]]:
    """Every policy of page sizes: its name, what it is, its settings with their usual values."""

def designs() -> list[tuple[str, str]]:
    """Every translation design's name and what it is."""

def explain_design(
    name: str,
) -> tuple[str, str, str, str, list[tuple[str, str]], str] | None:
    """A named design's hardware, policy, description, figure (of octavo.report.mechanisms), the keys
    of a machine that only its hardware uses, with their defaults, and the documentation of its
    hardware (Markdown); None if there is none of this name."""

def sim_pages() -> str:
    """docs/sim.md, core.md and softvm.md, whose tables give the meaning of each counter (Markdown)."""

# --- runs --------------------------------------------------------------------------------------

_Found = TypeVar("_Found", covariant=True)

class Analysis(Generic[_Found]):
    """What is to be found out about a run or a trace."""

    @staticmethod
    def study(
        *,
        page_sizes: list[int],
        levels: list[Level],
        layout: Literal["native", "as-traced"],
        machine: str | None = None,
        allocation_wrappers: list[str] = ...,
    ) -> Analysis[Result]:
        """Misses of given TLBs and memory, by region; of the TLBs of a machine (a preset or a file
        that ends with .toml) too. Raises ValueError, or OctavoError for a machine that cannot be
        modelled."""

    @staticmethod
    def curves(
        *,
        page_sizes: list[int],
        streams: list[str],
        layout: Literal["native", "as-traced"],
        max_entries: int,
        set_indexes: list[str],
        max_sets: int,
        line_sizes: list[int],
        windows_refs: list[int],
        two_sizes: list[TwoSizes],
        classified: Classified | None,
        threads: Literal["shared", "private"],
        processes: Literal["apart", "asid", "flush"],
        flush_every_instructions: int | None,
        sample: tuple[float, int] | None,
    ) -> Analysis[CurvesResult]:
        """What every TLB does: 0 entries and empty lists leave a part out. The working sets of
        two page sizes are told for `windows_refs` too. Other processes than `apart` are for a
        trace of `Trace.take_turns`. Of fully associative TLBs and working sets, `sample` keeps
        pages with this probability, drawn from this seed. Raises ValueError."""

    @staticmethod
    def sim(
        *,
        machine: str,
        settings: list[str],
        designs: list[str | tuple[str, str, type]],
        layout: Literal["native", "as-traced"],
        warm_up_instructions: int,
        fast_forward: bool,
        interval_instructions: int | None,
        checked: bool,
        timing: str,
        processes: str,
    ) -> Analysis[SimResult]:
        """Designs on machines of their own: `machine` is a preset or a file that ends with
        .toml, which settings `KEY=VALUE` change. A design is a name, or a name, a policy and a
        class of second-level TLBs in Python. With `fast_forward` cores do not execute the
        warm-up. `checked` compares each translation with the page table's. Raises OctavoError, or
        ValueError."""

    @staticmethod
    def together(analyses: list[Analysis[SimResult]]) -> Analysis[SimResult]:
        """Simulations whose `stream` is the same, fed by one run: the machines of the first, then
        those of the second, and so on. Raises OctavoError."""

    @property
    def machine(self) -> tuple[str, str] | None:
        """The machine of a simulation, as canonical JSON with every key, and its hash."""

    @property
    def stream(self) -> str | None:
        """What the machines of a simulation want of a run; the same text for those that one run
        can feed."""

    def raise_failure(self) -> None:
        """Raises what a design in Python has raised, if any has."""

    @property
    def footprint_bytes(self) -> int | None:
        """What the machines of a simulation take at the start, at most."""

class TracedProgram:
    """A program, and how it runs under the tracer, once."""

    def __init__(
        self,
        argv: list[str],
        *,
        valgrind: str,
        tool_dir: str,
        tracer: Literal["octavo", "lackey"],
        follow_children: bool,
        skip_instructions: int,
        max_instructions: int | None,
        between_marks: bool,
        windows: dict[str, Any] | None = None,
        allocations: int = 0,
    ) -> None:
        """Checks its arguments; starts nothing.

        argv[0] is the resolved path of the program. `valgrind` is the path of our tool, or of
        Valgrind's launcher for Lackey; `tool_dir` the private VALGRIND_LIB directory that holds our
        tool (ignored with the Lackey tracer).
        Raises ValueError.
        """

class LiveRun(Generic[_Found]):
    """A program under the tracer, consumed by background threads as it runs."""

    def __init__(self, program: TracedProgram, *, analysis: Analysis[_Found]) -> None:
        """Starts nothing."""

    def start(self) -> int:
        """Starts the program; returns its process identifier. Raises OctavoError."""

    def wait(self, timeout_seconds: float) -> Progress:
        """Waits until the run has ended or the time is up, without the GIL."""

    def signal(self, number: int) -> None:
        """Sends a signal to the traced program and notes that the run was interrupted."""

    def note_interrupted(self) -> None:
        """Notes that the user interrupted the run, where the terminal has told the program."""

    def set_counting(self, counting: bool) -> None:
        """Opens or closes the region of interest, also before the start."""

    def end_softly(self) -> None:
        """Lets the last of `max_instructions` end the region of interest, not the run."""

    def end_region(self, number: int) -> None:
        """Ends the region of interest for good, and sends a signal to the program."""

    def snapshot(self) -> _Found | None:
        """What has been counted until now, while the program goes on; None of an engine without
        snapshots, and once the run is over."""

    def stop(self) -> None:
        """Ends the traced program and its traced children at once (SIGKILL); what they did up
        to here still counts."""

    def result(self) -> _Found:
        """The result, once `wait` has said that nothing runs. Raises OctavoError when nothing
        was traced at all (its text says why)."""

# --- traces ------------------------------------------------------------------------------------

class TraceFormat(TypedDict):
    """A format of traces."""

    name: str
    """What --format takes."""
    about: str
    writes: bool
    """Whether it can be written, too."""
    suffixes: list[str]
    """How its files' names end, without the dot and before any suffix of compression."""

def trace_formats() -> list[TraceFormat]:
    """Every format that the extension knows, the native one first."""

def synthetic_kinds() -> list[tuple[str, str]]:
    """Every kind of synthetic trace: what stands behind `synth:`, and what it is."""

def looks_like_a_trace(path: str) -> bool:
    """Whether a file begins as a trace of exactly one format does."""

class Facts(TypedDict):
    """What a trace is, so far as its format tells; complete once the trace is read to its end."""

    format: str
    exact: bool
    """Every reference of the program is there."""
    samples: bool
    """The references are samples far apart: exact counts cannot be told from them."""
    has_instructions: bool
    has_sizes: bool
    """Else each data reference is taken to be one byte long."""
    physical: bool
    """Addresses are physical."""
    notes: list[str]
    sample: str | None
    """JSON: how the trace was shrunk, and what error that brings."""

class ChunkTotals(TypedDict):
    """What the chunks of a stream hold, as their headers say."""

    stream: int
    chunks: int
    instructions: int
    references: int

class TraceOverview(TypedDict):
    """What can be told of a native trace without decoding it."""

    bytes: int
    whole_bytes: int
    """How much of it is whole frames."""
    is_whole: bool
    """Its writer finished it."""
    streams: list[ChunkTotals]
    manifest: str | None
    """JSON: what it says of itself, as last said."""

def trace_overview(path: str) -> TraceOverview | None:
    """The overview of a native trace in a plain file; None for other files. Raises OctavoError."""

class Entry(TypedDict, total=False):
    """One line of a listing."""

    stream: int
    instruction: int
    """How many instructions of the stream came before; of a data reference, the number of the
    instruction that makes it."""
    kind: Literal["fetch", "load", "store", "modify", "event"]
    address: int
    size: int
    atomic: bool
    event: str
    """An event's text, where kind is "event"."""

class Trace:
    """A trace that was opened, to be read once."""

    @staticmethod
    def open(
        name: str, *, format: str | None = None, max_expanded_bytes: int | None = None
    ) -> Trace:
        """Opens a file, or standard input for "-". Raises OctavoError when it is not a trace."""

    @staticmethod
    def take_turns(
        traces: list[Trace], quantum_instructions: int, first_quantum_instructions: int
    ) -> Trace:
        """All processes of some traces, which are used up, taking turns on one core, the first of
        each process being so long. Raises OctavoError."""

    def facts(self) -> Facts:
        """What is known of it before it is read."""

    def manifest(self) -> str | None:
        """JSON: what it says of itself so far, where its format has a place for that."""

    def list(
        self,
        *,
        entries: int,
        from_instruction: int = 0,
        stream: int | None = None,
        events_only: bool = False,
    ) -> tuple[Sequence[Entry], str | None]:
        """The first references and events, and what ended them if not their number or the end
        of the trace. Blocks, without the GIL."""

class TraceProgress(Progress):
    """How far a trace is read."""

    done: int
    """Bytes of the stored trace, or references of a synthetic one."""
    total: int | None
    """Out of how many; None where nobody knows."""

class TraceRun(Generic[_Found]):
    """An analysis of a trace, done by background threads."""

    def __init__(
        self,
        trace: Trace,
        *,
        analysis: Analysis[_Found],
        skip_instructions: int,
        max_instructions: int | None,
        between_marks: bool,
    ) -> None:
        """Starts nothing."""

    def start(self) -> int:
        """Begins to read; returns 0, for there is no process."""

    def wait(self, timeout_seconds: float) -> TraceProgress:
        """Waits until the trace is read or the time is up, without the GIL."""

    def signal(self, number: int) -> None:
        """As `stop`."""

    def note_interrupted(self) -> None:
        """As `stop`."""

    def stop(self) -> None:
        """Ends it soon; what was read up to there still counts."""

    def result(self) -> tuple[_Found, Facts]:
        """The result, once `wait` has said that nothing runs, and what is known of the trace by
        then. A trace that could not be read to
        its end gives what came before, with exit.reason "trace-broken"."""

class JobProgress(Interruptible):
    """How far a job is."""

    running: bool
    elapsed_seconds: float
    done: int
    total: int | None
    """As in TraceProgress."""
    instructions: int
    references: int

class Converted(TypedDict):
    """What a conversion did."""

    facts: Facts
    """Facts on the trace that was read."""
    bytes: int
    """0 where nobody counted them."""
    references: int
    instructions: int
    losses: list[str]
    """What the format cannot hold, a sentence without full stop each."""
    fault: str | None
    """What is wrong with the trace, where what came before was kept."""

class SurveyedStream(TypedDict):
    """One process image in a trace."""

    stream: int
    parent_stream: int | None
    pid: int
    program: str
    began_by: Literal["start", "fork", "exec"]
    ended_by: Literal["exit", "exec", "signal", "lost", "limit", "corrupt"] | None
    """None if the trace ends before the process."""
    exit_code: int | None
    instructions: int
    references: int
    threads: int
    segments: int
    events: dict[str, int]
    mappings: list[str]
    """The first 65536 mappings, a line each."""
    stream_hash: str

class Survey(TypedDict):
    """What a trace holds."""

    facts: Facts
    manifest: str | None
    """JSON: what it says of itself."""
    streams: list[SurveyedStream]
    fault: str | None
    """Why it could not be read to its end."""
    stopped: bool

_Outcome = TypeVar("_Outcome", covariant=True)

class TraceJob(Generic[_Outcome]):
    """Long work, done by background threads."""

    def wait(self, timeout_seconds: float) -> JobProgress:
        """Waits until the work is done or the time is up, without the GIL."""

    def stop(self) -> None:
        """Ends it soon."""

    def result(self) -> _Outcome:
        """What it came to, once `wait` has said that nothing runs. Raises OctavoError."""

class SizeCoverage(TypedDict):
    """What pages of one size could use of a snapshot's free memory."""

    page_size_bytes: int
    free_blocks: int | None
    """Free blocks of exactly this size, as the kernel counts them; None above its largest."""
    usable_bytes: int | None
    """Free memory in blocks of at least this size; None where not known."""
    share: float | None
    """The same as a share of all free memory."""
    process_bytes: int | None
    """Memory of the process that pages of this size could map as it lies; None without one."""

class SnapshotProcess(TypedDict):
    """How a process's memory lies."""

    pid: int
    name: str
    resident_frames: int
    """Base pages in memory."""
    mappable_frames: list[int]
    """By order: how many of them pages of that size could map as they lie."""

class SnapshotSummary(TypedDict):
    """A snapshot of a machine's memory in numbers."""

    taken_at_seconds: int
    """Since 1970."""
    kernel: str
    exact: bool
    """Whether the state of every frame is known, or only the numbers of free blocks."""
    memory_bytes: int
    """Memory that the kernel has."""
    simulated_bytes: int
    """Memory that a simulation of it has: with the holes of the address space where exact."""
    free_bytes: int
    largest_block_bytes: int
    movable_share: float | None
    """The share of 2 MiB regions that Linux keeps for movable pages."""
    states: dict[str, int] | None
    """Bytes that are absent, fixed, free, movable, of the process; None unless exact."""
    coverage: list[SizeCoverage]
    """By page size, from 4 KiB to 1 GiB."""
    process: SnapshotProcess | None
    missing: list[str]
    """What could not be read and what is kept instead, a sentence each."""

def take_snapshot(*, pid: int | None = None) -> tuple[bytes, str]:
    """The memory of this machine as the bytes of a file, and a `SnapshotSummary` as JSON. Raises
    OctavoError."""

def read_snapshot(path: str) -> str:
    """The `SnapshotSummary` of a file as JSON. Raises OctavoError."""

class ObtainedMemory(TypedDict):
    """What the kernel gave of one page size."""

    page_bytes: int
    wanted_bytes: int
    obtained_bytes: int
    means: str | None
    """By which means; None where nothing was given."""
    refusal: str | None
    """Why less was given than asked for, as a part of a sentence."""

class LatencySamples(TypedDict):
    """Dependent loads over all lines of a working set."""

    bytes: int
    ticks: list[float]
    """Ticks of the time-stamp counter per load."""

class SpreadSamples(TypedDict):
    """Loads of one line in each page or piece of a page, and of as many lines close together in 2
    MiB pages, the control; ticks of the time-stamp counter per load. Samples at one index were taken one after
    the other."""

    page_bytes: int
    stride_bytes: int
    """Bytes of a piece that has one line: those of a page, or less."""
    pages: int
    """Pieces, and lines."""
    control_bytes: int
    """Bytes within which the lines of the control lie."""
    dependent: list[float]
    overlapped: list[float]
    control_dependent: list[float]
    control_overlapped: list[float]

class StrideSamples(TypedDict):
    """Dependent loads of one line in each of some equal pieces of 2 MiB pages."""

    stride_bytes: int
    lines: int
    ticks: list[float]

class WorkingSetSamples(TypedDict):
    """Loads over all lines of a working set in pages of one size: each waits, or eight at once."""

    dependent: list[float]
    overlapped: list[float]
    paced: list[float]
    """Each waits, and a pause behind it; empty of small working sets."""
    displaced: list[float]
    """Each waits, and other memory is read behind it; empty of small working sets."""

class DenseSamples(TypedDict):
    """Loads over all lines of a working set, in 4 KiB and in 2 MiB pages."""

    bytes: int
    small: WorkingSetSamples
    huge: WorkingSetSamples

class CalibrationSamples(TypedDict):
    """What a calibration has measured."""

    rounds: int
    """Complete ones."""
    ticks_per_second: float
    core_cycles_per_tick: list[float]
    memory: list[ObtainedMemory]
    """4 KiB, 2 MiB and 1 GiB pages."""
    huge_bytes_lost: int
    """Bytes that were in 2 MiB pages at the beginning and not at the end."""
    latency_page_bytes: int
    latency: list[LatencySamples]
    spread: list[SpreadSamples]
    strides: list[StrideSamples]
    pause_ticks: int
    """Of paced loads."""
    dense: list[DenseSamples]
    parallel: list[ParallelSamples]
    random: list[LatencySamples]
    """Random reads, each of which waits for the one before; faster reads have filled the caches."""
    lone: list[LatencySamples]
    """The same of what the caches hold where no faster reads came before."""
    walkers: list[WalkerSamples]
    windows: list[WindowSamples]
    streams: list[StreamSamples]
    faults: list[FaultSamples]
    later_faults: list[FaultSamples]
    """Samples in turn, once memory has been free for some seconds; empty where not measured."""

class ChaseSamples(TypedDict):
    """Times of loads where so many chases run at once."""

    chases: int
    ticks: list[float]

class WalkerSamples(TypedDict):
    """Times of loads of one line in each of some 4 KiB pages where several chases run at once."""

    pages: int
    by_chases: list[ChaseSamples]

class WindowSamples(TypedDict):
    """Times of two loads that miss, with some instructions between them."""

    filler: Literal["additions", "loads", "stores", "mixed"]
    instructions: int
    ticks: list[float]

class ParallelSamples(TypedDict):
    """Times of loads where several chases run at once over a working set."""

    bytes: int
    by_chases: list[ChaseSamples]

class StreamSamples(TypedDict):
    """Times of reading or writing memory from its beginning to its end."""

    direction: str
    """`read` or `write`."""
    bytes: int
    ticks: list[float]
    """For a line of 64 bytes."""

class FaultSamples(TypedDict):
    """Times of first touches of fresh memory and of giving it back."""

    page_bytes: int
    pages: int
    """Touched for a sample."""
    ticks: list[float]
    """Of a page."""

def start_calibration(*, quick: bool, memory_bytes: int) -> TraceJob[str]:
    """Measures this processor with at most so much memory: `CalibrationSamples` as JSON. A job that
    is stopped gives what it has measured. Raises OctavoError (from its result)."""

def machine_presets() -> list[str]:
    """The names of the machines that ship with Octavo."""

def check_machine_tlbs(machine: str) -> None:
    """Raises OctavoError where a machine's TLBs cannot be modelled by Analysis.study."""

def available_memory(root: Path) -> int | None:
    """Bytes of memory that this process may still take: of the machine under `root`, of its control
    groups and of its own address space; None where the kernel does not say."""

def resolve_machine(machine: str, settings: list[str]) -> tuple[str, str, str]:
    """A machine (a preset, or a file that ends with .toml) changed by settings `KEY=VALUE`: as
    canonical JSON, its hash, and as TOML with comments. Raises OctavoError."""

def start_convert(
    trace: Trace,
    path: str,
    *,
    format: str,
    about: str,
    overwrite: bool = True,
    process: int | None = None,
    native_layout: bool = False,
    keep_partial: bool = False,
    sample: tuple[float, int, int] | None = None,
) -> TraceJob[Converted]:
    """Writes `trace` as the file `path`; "-" is standard output. Unless `overwrite`, a file of that
    name that is there at the end stays, and this one gets a name beside it. `about` is JSON for the native
    format's manifest; `sample` is a fraction, the instructions of a window and a seed. Raises
    OctavoError or ValueError."""

class ColumnDrain:
    """Where rows come out."""

    def next(self) -> tuple[bytes, bytes, bytes, bytes] | None:
        """The next rows: kinds (uint8: 0 fetch, 1 load, 2 store, 3 modify), addresses (uint64),
        sizes (uint16) and threads (uint32), little-endian; None at the end. Waits, without the
        GIL. Raises OctavoError when the other side stopped early."""

    def close(self) -> None:
        """Stops reading; the job fails if it is not done."""

def start_convert_to_columns(
    trace: Trace,
    name: str,
    *,
    process: int | None = None,
    native_layout: bool = False,
    keep_partial: bool = False,
    sample: tuple[float, int, int] | None = None,
) -> tuple[TraceJob[Converted], ColumnDrain]:
    """Gives `trace` as rows, to be taken while the job runs; `name` is for its errors."""

class ColumnFeed:
    """Where rows go in."""

    def push(
        self, kinds: bytes, addresses: bytes, sizes: bytes | None, threads: bytes | None
    ) -> bool:
        """Gives rows on, as ColumnDrain has them; waits while the reader is behind, without the
        GIL. False when nobody reads any more. Raises ValueError."""

    def close(self) -> None:
        """Ends the columns: all rows were pushed."""

    def fail(self, what: str) -> None:
        """Ends the columns with this error (without a full stop)."""

def open_columns(name: str) -> tuple[Trace, ColumnFeed]:
    """A trace of rows, and where they are to be put."""

class Finding(TypedDict):
    """Something in a trace that cannot be."""

    kind: str
    stream: int
    instruction: int
    address: int | None
    place: str | None
    """Chunk, line or byte."""
    text: str
    """A sentence without full stop that names all of these."""

class Checked(TypedDict):
    """What a check found."""

    facts: Facts
    findings: list[Finding]
    """The first 20 of each kind, in the order of the trace."""
    counts: dict[str, int]
    """How many there are of each kind."""
    streams: int
    streams_mapped: int
    """How many of them tell mappings; the references of others are held against none."""
    instructions: int
    references: int
    fault: str | None
    """Why the trace could not be read to its end."""

def start_check(trace: Trace) -> TraceJob[Checked]:
    """Checks whether `trace` can be what it says it is."""

def start_survey(trace: Trace, *, records_only: bool = False) -> TraceJob[Survey]:
    """Reads `trace` through. With `records_only` a native trace's executions are left out:
    quick, but without instructions, references and hashes."""

class RecordProgress(Progress):
    """A snapshot of a recording."""

    bytes: int
    """Written so far."""
    failed: str | None
    """Why nothing more can be written."""

class RecordedStream(TypedDict):
    """One process image that was recorded."""

    stream: int
    program: str
    pid: int
    ended_by: Literal["exit", "exec", "signal", "lost", "limit", "corrupt"]
    exit_code: int | None
    instructions: int
    references: int

class RecordEnd(RunEnd):
    """How a recording ended."""

    streams: list[RecordedStream]

class Recorded(RecordEnd):
    """A recording that is written."""

    bytes: int
    references: int
    instructions: int

class Recording:
    """A program under the tracer, written to a native trace by background threads as it runs."""

    def __init__(self, program: TracedProgram, *, path: str, overwrite: bool, about: str) -> None:
        """Starts nothing. `about` is JSON, for the trace's manifest. Unless `overwrite`, the file
        must not hold anything. Raises ValueError."""

    def start(self) -> int:
        """Creates the file, whatever stood there, and starts the program. Raises OctavoError."""

    def wait(self, timeout_seconds: float) -> RecordProgress:
        """As of LiveRun."""

    def signal(self, number: int) -> None:
        """As of LiveRun."""

    def note_interrupted(self) -> None:
        """As of LiveRun."""

    def set_counting(self, counting: bool) -> None:
        """As of LiveRun."""

    def end_softly(self) -> None:
        """As of LiveRun."""

    def end_region(self, number: int) -> None:
        """As of LiveRun."""

    def stop(self) -> None:
        """As of LiveRun."""

    def result(self, about: Callable[[RecordEnd], str]) -> Recorded:
        """Finishes the trace; `about` says, as JSON, what its manifest is to say in the end.
        Raises OctavoError when nothing was traced or not all could be written."""
