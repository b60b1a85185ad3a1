"""The Rust extension: live runs, recordings and traces, their progress and their results.

Everything here is plain data or a handle on a run; the rest of the package has command lines,
tables, files and advice. The TypedDicts describe dictionaries and do not exist at run time: import
them under TYPE_CHECKING.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Generic, Literal, TypedDict, TypeVar

from typing_extensions import NotRequired

VERSION: str
"""Octavo's version, e.g. "1.0.0"."""

MODEL: str
"""The version of the simulator: Octavo's version, and a hash of the sources that affect counts."""

ENGINES: str
"""The same for all engines, including `octavo run` and `octavo curves`."""

MAX_ENTRIES: int
"""The most entries that curves distinguish."""
MAX_SETS: int
"""The most sets, a power of two."""
MAX_CACHE_SETS: int
"""The most sets of a cache, a power of two."""
MIN_LINE_BYTES: int
MAX_LINE_BYTES: int
"""Lines of caches have a power of two of bytes from MIN_LINE_BYTES to MAX_LINE_BYTES."""
MAX_CORES: int
"""The most cores that a machine may have."""
MAX_WAYS: int
"""The most ways; curves always have every number up to it."""
MAX_INDEX_BIT: int
"""The highest bit of a page number that an index of sets may begin at."""
MAX_WINDOW_REFS: int
"""The longest window of a working set."""

class OctavoError(Exception):
    """A failure that a user can act on; its text is one clear sentence."""

def interval_of_rate(windows: list[tuple[int, int]]) -> tuple[float, float] | None:
    """The 95% interval of events per thousand instructions, from the (events, instructions) of
    windows, by resampling the windows; None for fewer than two windows."""

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
    """Misses of the last level are page walks."""
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
    """Page faults at first touches of memory of the process's own, without shared memory and files."""

    base: int
    """Faults where all pages have 4 KiB."""
    huge: int
    """With 2 MiB pages wherever they fit: faults that map a 2 MiB page."""
    huge_again: int
    """The part of `huge` before which the process had given a 2 MiB page back."""
    left: int
    """With 2 MiB pages wherever they fit: faults that map a 4 KiB page."""

class Region(TypedDict):
    """One part of a process's address space, with its references, misses and memory."""

    name: str
    """"heap", "stack", "libc.so.6 text", "libc.so.6 data", "anon 64.0MiB #1", "anon (small)" …"""
    kind: Literal["heap", "stack", "thread-stack", "text", "data", "anonymous", "shared", "other"]
    path: str | None
    start: int
    """The lowest address that the region ever had, in the requested layout."""
    bytes: int
    """Size of the largest extent that the region ever had."""
    mappings: int
    """How many mappings were counted under this name."""
    asked_huge_bytes: int
    """Peak bytes for which the program requested 2 MiB pages by madvise (MADV_HUGEPAGE or
    MADV_COLLAPSE) and had not withdrawn the request."""
    asked_small_bytes: int
    """Peak bytes for which the program forbade huge pages (MADV_NOHUGEPAGE)."""
    hugetlb_bytes: int
    """Peak bytes in pages of hugetlbfs, of 2 MiB or more (MAP_HUGETLB)."""
    malloc_bytes: int
    """Peak bytes of mappings that the C library made for its malloc; mappings that a process has
    inherited from its parent are not counted."""
    fetch_references: int
    data_references: int
    curves: list[Curve]
    """Streams without references to the region are left out; `accesses` counts the region's own."""
    machine_curves: list[MachineCurve]
    """Curves of the machine's TLBs; empty without a machine."""
    footprints: list[Footprint]
    """One for each of the streams "fetch", "data" and "all"."""
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
        """Page numbers; `own` are pages that never share a frame with another process."""

def memory_counted_again(
    images: Sequence[tuple[int, Sequence[tuple[str | None, int, Touched]]]],
    page_sizes: Sequence[int],
) -> list[Footprint]:
    """Memory that a sum of the footprints of processes counts more than once.

    For each process, `images` has the number of its ancestor by forks without an exec, and its
    regions: a text that identifies the region in other processes (a file's kind and path; None if
    only the address does), start and pages.
    """

class TracedWindow(TypedDict):
    """A part of an execution that was traced. Places are None where they are not known."""

    begin_instructions: int | None
    begin_milliseconds: int | None
    end_instructions: int | None
    end_milliseconds: int | None
    instructions: int
    """Counted instructions of the window."""
    references: int
    counts: list[int]
    """The numbers that `window_counts` of the process describes, in the same order."""

class WindowCount(TypedDict):
    """A number that is counted in each window: misses of a level of TLBs."""

    stream: Literal["fetch", "data"]
    page_size: int
    level: int
    modelled: bool
    """Whether the level is the machine's, not the fully associative TLB's."""

class CodePlace(TypedDict):
    """A place in the code; unknown parts are None."""

    function: str | None
    path: str | None
    """The file that the code was mapped from."""
    source: str | None
    line: int | None

class AllocationSite(TypedDict):
    """The blocks that one caller has allocated."""

    place: CodePlace
    address: int
    blocks: int
    most_bytes: int
    """Peak bytes of live blocks."""

class AllocationStack(TypedDict):
    """A call stack that allocated blocks with misses."""

    site: int
    frames: list[CodePlace]
    """The allocation function first, then its callers."""

class AttributedMisses(TypedDict):
    """The misses of a source line in the blocks of one stack, or in a region outside blocks."""

    stack: int | None
    region: int | None
    place: CodePlace
    counts: list[int]
    """Misses for each of the `columns` of Allocations."""

class Allocations(TypedDict):
    """Misses of data by allocation site and line."""

    columns: list[tuple[int, bool]]
    """Page sizes, and whether page walks of the machine are counted there."""
    sites: list[AllocationSite]
    stacks: list[AllocationStack]
    misses: list[AttributedMisses]
    dropped_blocks: int
    """Blocks that were not tracked, as there were too many."""

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
    """Pairs of a load and a store that are one read-modify-write reference."""
    references: int
    """fetches + loads + stores."""
    segments: int
    folded_references: int
    """References whose addresses are not canonical: see docs/traces.md."""
    first_folded_address: int | None
    """The first address that is not canonical, before folding."""
    address_bits: int
    """The bits of a canonical address, where any address was folded."""
    windows: NotRequired[list[TracedWindow]]
    """The traced windows, unless everything was traced; if there are too many, a part of them."""
    windows_total: NotRequired[int]
    """The number of all traced windows."""
    executed_instructions: NotRequired[int | None]
    """Instructions inside and outside windows; None if they were not counted."""
    kernel_seconds: float | None
    """An estimate of the processor time of system calls in the kernel while traced; only Octavo's
    tracer has it."""
    window_counts: NotRequired[list[WindowCount]]
    threads: int
    thread_switches: int
    events: dict[str, int]
    """Counts by name: map, unmap, remap, protect, advise, fork, exec (attempts), exec-failed, signal,
    mark."""
    stream_hash: str
    """xxh3-128 of the stream's words, 32 hex digits."""

class ThreadWalks(TypedDict):
    """Page walks of a thread to pages of one size."""

    stream: Literal["fetch", "data"]
    page_size: int
    walks: int

class ThreadCounts(TypedDict):
    """The counts of a thread, or of all threads of a process after the first 96."""

    number: int | None
    """From 1, in the order in which threads began; None for all threads after the first 96."""
    threads: int
    """How many: 1 where there is a `number`."""
    name: str | None
    """Empty where it is the name of the program; None where it is not known."""
    kernel_seconds: float | None
    """As of a process; None where it is not known."""
    instructions: int
    missed_lines: int | None
    """As of a process."""
    walks: list[ThreadWalks]
    """Empty without a machine."""

class Process(ProcessCounts):
    """A process image with its misses and its memory."""

    curves: list[Curve]
    machine_curves: list[MachineCurve]
    footprints: list[Footprint]
    regions: list[Region]
    knows_memory: bool
    """Whether memory that was touched outside the counted region is known, too."""
    missed_lines: int | None
    """Roughly, data lines that miss the caches of a core of its own; None without a machine."""
    by_thread: list[ThreadCounts]
    """The threads that executed instructions, in the order in which they began."""
    allocations: NotRequired[Allocations]

class Interruptible(TypedDict, total=False):
    """An entry that the Python package adds to the progress of work that a signal interrupted."""

    interrupted_by: int
    """The number of the signal."""

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
    """All processes that ever began; an exec begins a stream, not a process."""
    programs: list[str]
    """Paths of the programs of live processes; empty for a trace."""
    counting: bool
    """False while the region of interest has not begun, is closed or is over."""
    over: bool
    """True once the region of interest is over and the program is to be ended."""

class Exit(TypedDict):
    """How the program itself ended."""

    code: int | None
    signal: int | None
    reason: Literal[
        "exited", "signalled", "interrupted", "limit", "tracer-failed", "trace-broken", "running"
    ]
    diagnostics: str
    """Messages of Valgrind (unsupported instruction, …), or the fault of the trace; empty if there
    was none."""

class RunEnd(TypedDict):
    """How a run ended."""

    exit: Exit
    elapsed_seconds: float
    untraced_processes: int
    """Child processes that ran untraced, as no stream was free."""

class Result(RunEnd):
    """The result of a study of misses and memory."""

    processes: list[Process]

# --- curves ------------------------------------------------------------------------------------
# Curves of many numbers are bytes: 64-bit little-endian.

class StackCurve(TypedDict):
    """Fully associative LRU TLBs of every number of entries at one page size."""

    page_size: int
    pages: int
    """Distinct pages: the misses of a TLB without limit of size."""
    misses: bytes
    """Misses with n entries are at index n - 1."""

class SetCurves(TypedDict):
    """Set-associative LRU TLBs of every number of sets and ways at one page size."""

    page_size: int
    index: str
    """low, bits:N or xor."""
    misses: bytes
    """Misses with 2^s sets of w ways are at index MAX_WAYS * s + w - 1."""

class CacheCurves(TypedDict):
    """LRU caches of every number of sets and ways, with lines of one size."""

    line_bytes: int
    lookups: int
    """Look-ups: one for each line that a reference touches."""
    misses: bytes
    """Misses with 2^s sets of w ways are at index MAX_WAYS * s + w - 1, up to MAX_CACHE_SETS sets;
    empty if there were more lines than can be distinguished."""

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
    """Misses, here and in the next two, are of fully associative TLBs, as in StackCurve."""
    large_misses: bytes
    invalidated: bytes
    sets: list[TwoSizesSets]
    windows_refs: list[int]
    working_set_byte_refs: list[int]
    """For each of `windows_refs`, the bytes in the working set summed over all references."""

class TwoSizesTlbs(TypedDict):
    """The misses of one core's TLBs with two page sizes; the policy is the process's."""

    counters: dict[str, int]
    """Look-ups."""
    small_misses: bytes
    large_misses: bytes
    invalidated: bytes
    sets: list[TwoSizesSets]

class CoreCurves(TypedDict):
    """The curves of one stream of one thread, in TLBs of its own."""

    thread: int
    instructions: int
    references: int
    stack: list[StackCurve]
    sets: list[SetCurves]
    caches: list[CacheCurves]
    two_sizes: list[TwoSizesTlbs]
    classes: MissClasses | None

class StreamCurves(TypedDict):
    """The curves of one stream of a process image, or of all processes that took turns."""

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
    """Parts that are to be added up; empty if no TLB's misses are classified."""
    cores: list[CoreCurves]
    """The curves of each thread, if threads have TLBs of their own."""
    sampled: list[SampledSize] | None
    """From a sample of the pages, in place of `stack` and `working_sets`."""

class Estimates(TypedDict):
    """Estimates from a sample and their 95% intervals: 64-bit floats, NaN where unknown."""

    values: bytes
    low: bytes
    high: bytes

class SampledSize(TypedDict):
    """Estimates for one page size from a sample of the pages."""

    page_size: int
    pages: int
    """Distinct pages, an exact count."""
    kept_pages: int
    """Pages of the sample."""
    misses: Estimates
    """Misses of fully associative TLBs; with n entries, at index n - 1."""
    windows_refs: list[int]
    page_refs: Estimates
    """For each window, as in WorkingSet."""

class ClassCounts(TypedDict):
    """Misses by class: each miss is compulsory, capacity or conflict."""

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
    """The file that the function was mapped from."""
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
    """The misses of one TLB by class, region and function; most misses first."""

    regions: list[RegionMisses]
    functions: list[FunctionMisses]

class CurvesProcess(ProcessCounts):
    """A process image with its curves."""

    streams: list[StreamCurves]
    """The curves of each stream; empty if processes shared a core."""

class CurvesResult(RunEnd):
    """The result of curves."""

    processes: list[CurvesProcess]
    shared: NotRequired[list[StreamCurves]]
    """The curves of all processes together, if they took turns."""

class TwoSizes(TypedDict):
    """Two page sizes, and when the large one is used."""

    small: int
    large: int
    threshold_blocks: int
    window_refs: int

# --- simulations -------------------------------------------------------------------------------

class MachineCounts(TypedDict):
    """The counts of a machine of one design."""

    design: str
    counters: list[tuple[str, str, int]]
    """Component, counter and value, in order; the warm-up left out."""
    intervals: list[list[tuple[str, str, int]]]
    """The counts of each complete interval, in the same form."""
    stopped: str | None
    """The reason why counting stopped: memory ran out; None if it did not."""
    bound: bool
    """Whether the design is a bound for comparison, which cannot be built."""
    own_caches: bool
    """Whether the design has caches of its own, before a memory with its own latencies."""

class SimProcess(ProcessCounts):
    """A process image with the counts of each design. Counts leave out the warm-up, except where
    processes took turns: the warm-up then belongs to no single process.
    """

    machines: list[MachineCounts]
    dependences: bool
    """Whether instructions had register dependences."""
    mapped: bool
    """Whether the trace has mappings; if not, all addresses are taken to be one mapping."""

class SharedMachines(TypedDict):
    """The counts of each design for processes that took turns on it, without the warm-up."""

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
    """The machines of processes that took turns; `processes` then have no machines."""

def policies() -> list[tuple[str, str, list[tuple[str, str]]]]:
    """Every policy of page sizes: its name, its description, its settings with their defaults."""

def designs() -> list[tuple[str, str]]:
    """The name and the description of every translation design."""

def explain_design(
    name: str,
) -> tuple[str, str, str, str, list[tuple[str, str]], str] | None:
    """A named design's hardware, policy, description, figure (of octavo.report.mechanisms), the keys
    of a machine that only its hardware uses, with their defaults, and the documentation of its
    hardware (Markdown); None for an unknown name."""

def sim_pages() -> str:
    """docs/sim.md, core.md and softvm.md, whose tables give the meaning of each counter (Markdown)."""

# --- runs --------------------------------------------------------------------------------------

_Found = TypeVar("_Found", covariant=True)

class Analysis(Generic[_Found]):
    """The results that are wanted of a run or a trace, with their settings."""

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
        """The misses of every TLB: 0 entries and empty lists leave a part out. The working sets of
        two page sizes are counted for `windows_refs`, too. `processes` other than `apart` are for
        a trace of `Trace.take_turns`. `sample` is a probability and a seed: fully associative TLBs
        and working sets are estimated from pages drawn so. Raises ValueError."""

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
        .toml, changed by settings `KEY=VALUE`. A design is a name, or a name, a policy and a class
        of second-level TLBs in Python. With `fast_forward` cores do not execute the warm-up.
        `checked` compares each translation with the page table's. Raises OctavoError, or
        ValueError."""

    @staticmethod
    def together(analyses: list[Analysis[SimResult]]) -> Analysis[SimResult]:
        """Simulations with the same `stream`, fed by one run. The result has the machines of the
        first, then of the second, and so on. Raises OctavoError."""

    @property
    def machine(self) -> tuple[str, str] | None:
        """The machine of a simulation, as canonical JSON with every key, and its hash."""

    @property
    def stream(self) -> str | None:
        """A text of the requirements of a simulation on a run; simulations with the same text can
        be fed by one run."""

    def raise_failure(self) -> None:
        """Raises the exception that a design in Python has raised, if there is one."""

    @property
    def footprint_bytes(self) -> int | None:
        """Bytes of memory that the machines of a simulation take at the start, at most."""

class TracedProgram:
    """A program and the options of one run under the tracer."""

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

        argv[0] is the resolved path of the program. `valgrind` is the path of Octavo's tool, or of
        Valgrind's launcher for Lackey; `tool_dir` is the private VALGRIND_LIB directory of Octavo's
        tool (ignored with Lackey).
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
        """Notes that the user interrupted the run, where the terminal has signalled the program."""

    def set_counting(self, counting: bool) -> None:
        """Opens or closes the region of interest, also before the start."""

    def end_softly(self) -> None:
        """Makes `max_instructions` end the region of interest in place of the run."""

    def end_region(self, number: int) -> None:
        """Ends the region of interest for good, and sends a signal to the program."""

    def snapshot(self) -> _Found | None:
        """The counts so far, while the program goes on; None for an engine without snapshots, and
        once the run is over."""

    def stop(self) -> None:
        """Ends the traced program and its traced children at once (SIGKILL); everything traced so
        far counts."""

    def result(self) -> _Found:
        """The result, once `wait` has reported that nothing runs. Raises OctavoError if nothing
        was traced; its text has the reason."""

# --- traces ------------------------------------------------------------------------------------

class TraceFormat(TypedDict):
    """A format of traces."""

    name: str
    """The argument of --format."""
    about: str
    """The description."""
    writes: bool
    """Whether Octavo can also write the format."""
    suffixes: list[str]
    """Suffixes of file names, without the dot and before any suffix of compression."""

def trace_formats() -> list[TraceFormat]:
    """Every format that the extension knows, the native one first."""

def synthetic_kinds() -> list[tuple[str, str]]:
    """Every kind of synthetic trace: its name after `synth:`, and its description."""

def looks_like_a_trace(path: str) -> bool:
    """Whether the beginning of a file fits exactly one format of traces."""

class Facts(TypedDict):
    """Properties of a trace, as far as its format gives them; complete once the trace is read to
    its end."""

    format: str
    exact: bool
    """Whether the trace has every reference of the program."""
    samples: bool
    """Whether the references are samples far apart, which do not give exact counts."""
    has_instructions: bool
    has_sizes: bool
    """Whether data references have sizes; if not, each is taken to be one byte long."""
    physical: bool
    """Whether addresses are physical."""
    notes: list[str]
    sample: str | None
    """JSON: how the trace was sampled, and the error of the sample."""

class ChunkTotals(TypedDict):
    """The contents of a stream's chunks, from their headers."""

    stream: int
    chunks: int
    instructions: int
    references: int

class TraceOverview(TypedDict):
    """Properties of a native trace that are known without decoding it."""

    bytes: int
    whole_bytes: int
    """Bytes in complete frames."""
    is_whole: bool
    """Whether its writer finished the trace."""
    streams: list[ChunkTotals]
    manifest: str | None
    """The last manifest in the trace, as JSON."""

def trace_overview(path: str) -> TraceOverview | None:
    """The overview of a native trace in a plain file; None for other files. Raises OctavoError."""

class Entry(TypedDict, total=False):
    """One line of a listing."""

    stream: int
    instruction: int
    """The number of instructions of the stream before this entry; for a data reference, the number
    of its instruction."""
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
        """Opens a file, or standard input for "-". Raises OctavoError if it is not a trace."""

    @staticmethod
    def take_turns(
        traces: list[Trace], quantum_instructions: int, first_quantum_instructions: int
    ) -> Trace:
        """A trace in which all processes of `traces`, which are used up, take turns on one core.
        The first turn of each process has `first_quantum_instructions`. Raises OctavoError."""

    def facts(self) -> Facts:
        """Properties that are known before the trace is read."""

    def manifest(self) -> str | None:
        """The manifest read so far, as JSON; None for a format without one."""

    def list(
        self,
        *,
        entries: int,
        from_instruction: int = 0,
        stream: int | None = None,
        events_only: bool = False,
    ) -> tuple[Sequence[Entry], str | None]:
        """The first references and events, at most `entries`, and the fault of the trace if it
        cannot be read further. Blocks, without the GIL."""

class TraceProgress(Progress):
    """Progress of reading a trace."""

    done: int
    """Bytes read of the stored trace, or references of a synthetic one."""
    total: int | None
    """All bytes or references; None if unknown."""

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
        """Begins to read; returns 0, as there is no process."""

    def wait(self, timeout_seconds: float) -> TraceProgress:
        """Waits until the trace is read or the time is up, without the GIL."""

    def signal(self, number: int) -> None:
        """Does the same as `stop`."""

    def note_interrupted(self) -> None:
        """Does the same as `stop`."""

    def stop(self) -> None:
        """Ends reading soon; everything read so far counts."""

    def result(self) -> tuple[_Found, Facts]:
        """The result, once `wait` has reported that nothing runs, and the facts of the trace by
        then. A trace that cannot be read to its end gives the result of the part before, with
        exit.reason "trace-broken"."""

class JobProgress(Interruptible):
    """Progress of a job."""

    running: bool
    elapsed_seconds: float
    done: int
    total: int | None
    """As in TraceProgress."""
    instructions: int
    references: int

class Converted(TypedDict):
    """The result of a conversion."""

    facts: Facts
    """Facts of the trace that was read."""
    bytes: int
    """Bytes written; 0 if they were not counted."""
    references: int
    instructions: int
    losses: list[str]
    """Contents that the format cannot hold, each a sentence without full stop."""
    fault: str | None
    """The fault that ended the trace, if the part before it was kept."""

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
    """The contents of a trace."""

    facts: Facts
    manifest: str | None
    """The manifest, as JSON."""
    streams: list[SurveyedStream]
    fault: str | None
    """The reason why the trace could not be read to its end; None if it could."""
    stopped: bool
    """Whether the job was stopped before the end."""

_Outcome = TypeVar("_Outcome", covariant=True)

class TraceJob(Generic[_Outcome]):
    """A long computation on background threads."""

    def wait(self, timeout_seconds: float) -> JobProgress:
        """Waits until the work is done or the time is up, without the GIL."""

    def stop(self) -> None:
        """Ends the job soon."""

    def result(self) -> _Outcome:
        """The result, once `wait` has reported that nothing runs. Raises OctavoError."""

class SizeCoverage(TypedDict):
    """The part of a snapshot's memory that pages of one size could use."""

    page_size_bytes: int
    free_blocks: int | None
    """Free blocks of exactly this size, as the kernel counts them; None above its largest."""
    usable_bytes: int | None
    """Free memory in blocks of at least this size; None if unknown."""
    share: float | None
    """`usable_bytes` as a share of all free memory."""
    process_bytes: int | None
    """Memory of the process that pages of this size could map in place; None without a process."""

class SnapshotProcess(TypedDict):
    """The contiguity of a process's memory."""

    pid: int
    name: str
    resident_frames: int
    """Base pages in memory."""
    mappable_frames: list[int]
    """By order: the number of frames that pages of this size could map in place."""

class SnapshotSummary(TypedDict):
    """A snapshot of a machine's memory in numbers."""

    taken_at_seconds: int
    """Seconds since 1970."""
    kernel: str
    exact: bool
    """Whether the state of every frame is known, or only the numbers of free blocks."""
    memory_bytes: int
    """Memory of the kernel."""
    simulated_bytes: int
    """Memory of a simulated machine with this snapshot; if exact, with holes of the address space."""
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
    """Data that could not be read and the data in their place, each a sentence."""

def take_snapshot(*, pid: int | None = None) -> tuple[bytes, str]:
    """The memory of this machine as the bytes of a file, and a `SnapshotSummary` as JSON. Raises
    OctavoError."""

def read_snapshot(path: str) -> str:
    """The `SnapshotSummary` of a file as JSON. Raises OctavoError."""

class ObtainedMemory(TypedDict):
    """Memory that the kernel gave in pages of one size."""

    page_bytes: int
    wanted_bytes: int
    obtained_bytes: int
    means: str | None
    """The means by which memory was obtained; None if none was."""
    refusal: str | None
    """The reason why less was obtained than wanted, as a part of a sentence."""

class LatencySamples(TypedDict):
    """Dependent loads over all lines of a working set."""

    bytes: int
    ticks: list[float]
    """Ticks of the time-stamp counter per load."""

class SpreadSamples(TypedDict):
    """Loads of one line in each page or piece of a page, and as a control loads of as many lines
    close together in 2 MiB pages; ticks of the time-stamp counter per load. Samples at one index
    were taken one after the other."""

    page_bytes: int
    stride_bytes: int
    """Bytes of a piece that has one line: a page or a part of one."""
    pages: int
    """The number of pieces, which is the number of lines."""
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
    """Times of loads over all lines of a working set in pages of one size."""

    dependent: list[float]
    """Each load waits for the one before."""
    overlapped: list[float]
    """Eight loads run at once."""
    paced: list[float]
    """Each load waits for the one before and a pause; empty for small working sets."""
    displaced: list[float]
    """Each load waits for the one before, and other memory is read after it; empty for small
    working sets."""

class DenseSamples(TypedDict):
    """Loads over all lines of a working set, in 4 KiB and in 2 MiB pages."""

    bytes: int
    small: WorkingSetSamples
    huge: WorkingSetSamples

class CalibrationSamples(TypedDict):
    """The samples of a calibration."""

    rounds: int
    """Complete rounds."""
    ticks_per_second: float
    core_cycles_per_tick: list[float]
    memory: list[ObtainedMemory]
    """4 KiB, 2 MiB and 1 GiB pages."""
    huge_bytes_lost: int
    """Bytes that were in 2 MiB pages at the beginning and no longer at the end."""
    latency_page_bytes: int
    latency: list[LatencySamples]
    spread: list[SpreadSamples]
    strides: list[StrideSamples]
    pause_ticks: int
    """The pause of paced loads."""
    dense: list[DenseSamples]
    parallel: list[ParallelSamples]
    random: list[LatencySamples]
    """Random reads that each wait for the one before, after faster reads have filled the caches."""
    lone: list[LatencySamples]
    """Random reads of working sets that fit the caches, without faster reads before."""
    walkers: list[WalkerSamples]
    windows: list[WindowSamples]
    streams: list[StreamSamples]
    faults: list[FaultSamples]
    later_faults: list[FaultSamples]
    """Samples taken in turn after memory was free for some seconds; empty if not measured."""

class ChaseSamples(TypedDict):
    """Times of loads where `chases` pointer chases run at once."""

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
    """Ticks per line of 64 bytes."""

class FaultSamples(TypedDict):
    """Times of first touches of fresh memory and of giving it back."""

    page_bytes: int
    pages: int
    """Pages touched for a sample."""
    ticks: list[float]
    """Ticks per page."""

def start_calibration(*, quick: bool, memory_bytes: int) -> TraceJob[str]:
    """Measures this processor with at most `memory_bytes` of memory: `CalibrationSamples` as JSON. A
    stopped job gives its samples so far. Its result raises OctavoError."""

def machine_presets() -> list[str]:
    """The names of the machines that ship with Octavo."""

def check_machine_tlbs(machine: str) -> None:
    """Raises OctavoError where a machine's TLBs cannot be modelled by Analysis.study."""

def available_memory(root: Path) -> int | None:
    """Bytes of memory that this process may still take, limited by the machine under `root`, by its
    control groups and by its own address space; None if the kernel does not report them."""

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
    name that exists at the end is kept, and the trace gets another name beside it. `about` is JSON
    for the native format's manifest; `sample` is a fraction, the instructions of a window and a
    seed. Raises OctavoError or ValueError."""

class ColumnDrain:
    """The reading end of a conversion to columns."""

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
    """Gives `trace` as rows, which are read while the job runs; `name` is for its errors."""

class ColumnFeed:
    """The writing end of a trace of columns."""

    def push(
        self, kinds: bytes, addresses: bytes, sizes: bytes | None, threads: bytes | None
    ) -> bool:
        """Adds rows in the form of ColumnDrain; waits without the GIL until the reader has room.
        False once the reader has stopped. Raises ValueError."""

    def close(self) -> None:
        """Ends the columns: all rows were pushed."""

    def fail(self, what: str) -> None:
        """Ends the columns with this error (without a full stop)."""

def open_columns(name: str) -> tuple[Trace, ColumnFeed]:
    """A trace of rows, and the feed that takes them."""

class Finding(TypedDict):
    """An impossible entry of a trace."""

    kind: str
    stream: int
    instruction: int
    address: int | None
    place: str | None
    """Chunk, line or byte."""
    text: str
    """A sentence without full stop that has all of these values."""

class Checked(TypedDict):
    """The result of a check."""

    facts: Facts
    findings: list[Finding]
    """The first 20 of each kind, in the order of the trace."""
    counts: dict[str, int]
    """The number of findings of each kind."""
    streams: int
    streams_mapped: int
    """Streams with mappings; references of other streams are not compared with mappings."""
    instructions: int
    references: int
    fault: str | None
    """The reason why the trace could not be read to its end; None if it could."""

def start_check(trace: Trace) -> TraceJob[Checked]:
    """Checks the entries of `trace` for contradictions."""

def start_survey(trace: Trace, *, records_only: bool = False) -> TraceJob[Survey]:
    """Reads `trace` through. With `records_only` a native trace's executions are left out:
    quick, but without instructions, references and hashes."""

class RecordProgress(Progress):
    """A snapshot of a recording."""

    bytes: int
    """Bytes written so far."""
    failed: str | None
    """The reason why nothing more can be written; None while writing works."""

class RecordedStream(TypedDict):
    """One process image that was recorded."""

    stream: int
    program: str
    pid: int
    began_by: Literal["start", "fork", "exec"]
    ended_by: Literal["exit", "exec", "signal", "lost", "limit", "corrupt"]
    exit_code: int | None
    instructions: int
    references: int

class RecordEnd(RunEnd):
    """The end of a recording."""

    streams: list[RecordedStream]

class Recorded(RecordEnd):
    """A finished recording."""

    bytes: int
    references: int
    instructions: int

class Recording:
    """A program under the tracer, written to a native trace by background threads as it runs."""

    def __init__(self, program: TracedProgram, *, path: str, overwrite: bool, about: str) -> None:
        """Starts nothing. `about` is JSON, for the trace's manifest. Unless `overwrite`, the file
        must not hold anything. Raises ValueError."""

    def start(self) -> int:
        """Creates or replaces the file, and starts the program. Raises OctavoError."""

    def wait(self, timeout_seconds: float) -> RecordProgress:
        """See LiveRun."""

    def signal(self, number: int) -> None:
        """See LiveRun."""

    def note_interrupted(self) -> None:
        """See LiveRun."""

    def set_counting(self, counting: bool) -> None:
        """See LiveRun."""

    def end_softly(self) -> None:
        """See LiveRun."""

    def end_region(self, number: int) -> None:
        """See LiveRun."""

    def stop(self) -> None:
        """See LiveRun."""

    def result(self, about: Callable[[RecordEnd], str]) -> Recorded:
        """Finishes the trace; `about` gives the final manifest as JSON. Raises OctavoError if
        nothing was traced or not everything could be written."""
