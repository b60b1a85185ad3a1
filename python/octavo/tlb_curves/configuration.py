"""The configuration of curves, resolved to plain values and checked before anything starts."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal, cast, get_args

from octavo._core import MAX_ENTRIES, MAX_INDEX_BIT, MAX_SETS, MAX_WINDOW_REFS, Analysis
from octavo.base.errors import UsageError, check_range, choose
from octavo.base.metrics import MISS_PENALTY_CYCLES, TWO_SIZES_PENALTY_CYCLES
from octavo.base.text import plural, quoted
from octavo.base.units import KIB, count, format_bytes, line_size, page_size, page_sizes, with_base
from octavo.hardware.preset_files import preset_names
from octavo.hardware.tlb_presets import TlbMachine, load_tlb_presets
from octavo.tlb_curves.caches import NOTE as CACHE_NOTE
from octavo.tlb_curves.classes import Classified, read_classified
from octavo.tlb_curves.page_sampling import NOTE as SAMPLE_NOTE
from octavo.tlb_curves.page_sampling import PageSample, parse_page_sample
from octavo.tracing.scope import (
    KERNEL_NOTE,
    MOST_INSTRUCTIONS,
    SHARED_THREADS_NOTE,
    SharedScope,
    choose_processes,
    resolve_scope,
    time_slicing_note,
)

if TYPE_CHECKING:
    from octavo._core import CurvesResult
    from octavo._core import TwoSizes as CoreTwoSizes

STREAMS = ("fetch", "data", "all")
PARTS = ("full", "sets", "working-sets", "two-sizes")
"""The parts that can be left out."""
DEFAULT_PAGE_SIZES = "4KiB..4MiB"
DEFAULT_WINDOWS = "100k,300k,1M,3M,10M,30M,100M"
DEFAULT_WINDOWS_REFS = tuple(count(text) for text in DEFAULT_WINDOWS.split(","))
DEFAULT_TWO_SIZES = tuple((4 * KIB, large * KIB) for large in (16, 32, 64))
DEFAULT_THRESHOLD = "50%"
DEFAULT_POLICY_WINDOW_REFS = 10**7
MOST_PENALTY_CYCLES = 10**6

Threads = Literal["shared", "private"]

NOTES = (
    "TLBs have true LRU replacement, and are empty at the start; each stream has its own.",
    "CPI_TLB is misses per instruction times one miss penalty: an additive estimate.",
    "Two page sizes: a chunk is one large page while enough of its blocks were referenced in the "
    "last T references. The cost of a change (copying, zeroing) is counted and not in CPI_TLB.",
)


@dataclass(frozen=True)
class TwoSizes:
    """Two page sizes under the dynamic policy (section 3.4)."""

    small: int
    large: int
    threshold_blocks: int
    """Blocks of a chunk that must be referenced in the window for it to be one large page."""
    window_refs: int

    @property
    def blocks(self) -> int:
        """The number of small pages in a large one."""
        return self.large // self.small

    def core(self) -> CoreTwoSizes:
        """Plain data for the extension and the manifest."""
        return cast("CoreTwoSizes", asdict(self))


@dataclass(frozen=True)
class CurvesConfiguration(SharedScope):
    """A resolved configuration: equal configurations on the same stream give the same rows."""

    page_sizes: tuple[int, ...]
    """Bytes, ascending; always with 4 KiB and the sizes of all pairs."""
    streams: tuple[str, ...]
    max_entries: int
    """Most entries of fully associative TLBs; 0 if these are left out."""
    indexes: tuple[str, ...]
    """Index functions of set-associative TLBs; empty if these are left out."""
    max_sets: int
    windows_refs: tuple[int, ...]
    """Windows of working sets, with that of the policy; empty if working sets are left out."""
    two_sizes: tuple[TwoSizes, ...]
    miss_penalty_cycles: float
    two_sizes_penalty_cycles: float
    machines: tuple[TlbMachine, ...]
    classified: Classified | None
    """The TLB whose misses are reported by class, region and function."""
    threads: Threads
    """Whether the threads of a process share its TLBs, or each has its own."""
    flush_every_instructions: int | None
    """Instructions of a core between two flushes of its TLBs."""
    line_sizes: tuple[int, ...] = ()
    """Line sizes of the reported caches, in bytes, ascending."""
    sample: PageSample | None = None
    """The sample of pages from which fully associative TLBs and working sets are estimated."""

    def __post_init__(self) -> None:
        """Raises UsageError for numbers out of range, and for options of sharing and flushing TLBs
        that exclude each other.
        """
        if not 1 <= self.max_sets <= MAX_SETS or self.max_sets & (self.max_sets - 1):
            raise UsageError(f"--sets {self.max_sets}: give a power of two from 1 to {MAX_SETS}.")
        for option, cycles in (
            ("--miss-penalty", self.miss_penalty_cycles),
            ("--two-sizes-penalty", self.two_sizes_penalty_cycles),
        ):
            check_range(option, cycles, 0, MOST_PENALTY_CYCLES, "cycles")
        flush_every = self.flush_every_instructions
        check_range("--flush-every", flush_every, 1, MOST_INSTRUCTIONS, "instructions")
        if self.threads == "private" and self.processes != "apart":
            raise UsageError(
                f"--threads private gives each thread a core, and --processes {self.processes} one "
                "to all processes: give one of them."
            )
        not_sampled = {
            "--threads private": self.threads == "private",
            "--flush-every": flush_every is not None,
            "--processes flush": self.processes == "flush",
        }
        if self.sample is not None and any(not_sampled.values()):
            option = next(option for option, is_given in not_sampled.items() if is_given)
            raise UsageError(
                "--sample-pages needs TLBs that all threads of a process share and that are never "
                f"flushed: leave it out, or {option}."
            )

    @property
    def counts_instructions(self) -> str | None:
        """The option that needs a trace with instructions, if there is one."""
        flushes = None if self.flush_every_instructions is None else "--flush-every"
        return super().counts_instructions or flushes

    def resolved(self) -> dict[str, Any]:
        """Plain data, for the manifest."""
        return {
            "page_sizes": list(self.page_sizes),
            "streams": list(self.streams),
            "max_entries": self.max_entries,
            "indexes": list(self.indexes),
            "max_sets": self.max_sets,
            "windows_refs": list(self.windows_refs),
            "two_sizes": [pair.core() for pair in self.two_sizes],
            "miss_penalty_cycles": self.miss_penalty_cycles,
            "two_sizes_penalty_cycles": self.two_sizes_penalty_cycles,
            "machines": [machine.resolved() for machine in self.machines],
            "classified": None if self.classified is None else self.classified.core(),
            "threads": self.threads,
            "processes": self.processes,
            "quantum_instructions": self.quantum_instructions,
            "first_quantum_instructions": self.first_quantum_instructions,
            "flush_every_instructions": self.flush_every_instructions,
            **({"line_sizes": list(self.line_sizes)} if self.line_sizes else {}),
            # Exact results have no such key.
            **({} if self.sample is None else {"sample_pages": self.sample.resolved()}),
            **super().resolved(),
        }

    def notes(self) -> list[str]:
        """The assumptions and limits of the model, a sentence each."""
        sampled = [] if self.sample is None else [SAMPLE_NOTE]
        caches = [CACHE_NOTE] if self.line_sizes else []
        return [*NOTES, *caches, *sampled, *self._notes_on_sharing()]

    def _notes_on_sharing(self) -> Iterator[str]:
        sharing = time_slicing_note(self)
        if self.processes == "apart":
            yield "Each process image has TLBs of its own."
        elif self.processes == "asid":
            yield f"{sharing} They share the TLBs, whose entries are tagged with the process image."
        else:
            yield f"{sharing} They share the TLBs, which are emptied at every context switch."
        if self.threads == "private":
            yield (
                "Each thread of a process has TLBs of its own; the working sets and the policy of "
                "two page sizes are the process's."
            )
        else:
            yield SHARED_THREADS_NOTE
        if self.processes != "apart":
            yield "The kernel's own references are not seen."
        else:
            yield KERNEL_NOTE
        every = self.flush_every_instructions
        if every is not None:
            yield (
                f"TLBs are emptied every {every} {plural(every, 'instruction')}; misses "
                "that follow from it are capacity misses where they are classified."
            )

    def analysis(self) -> Analysis[CurvesResult]:
        """The analysis for the extension to run. Raises ValueError."""
        return Analysis.curves(
            page_sizes=list(self.page_sizes),
            streams=list(self.streams),
            layout=self.layout,
            max_entries=self.max_entries,
            set_indexes=list(self.indexes),
            max_sets=self.max_sets,
            line_sizes=list(self.line_sizes),
            windows_refs=list(self.windows_refs),
            two_sizes=[pair.core() for pair in self.two_sizes],
            classified=None if self.classified is None else self.classified.core(),
            threads=self.threads,
            processes=self.processes,
            flush_every_instructions=self.flush_every_instructions,
            sample=None if self.sample is None else self.sample.for_core(),
        )


def configure_curves(
    *,
    sizes: Sequence[int | str] | None = None,
    streams: Sequence[str] = STREAMS,
    entries: int = MAX_ENTRIES,
    sets: int = MAX_SETS,
    indexes: Sequence[str] = ("low",),
    windows: Sequence[int] = DEFAULT_WINDOWS_REFS,
    two_sizes: Sequence[tuple[int, int]] | None = None,
    threshold: int | str = DEFAULT_THRESHOLD,
    policy_window: int = DEFAULT_POLICY_WINDOW_REFS,
    miss_penalty: float = MISS_PENALTY_CYCLES,
    two_sizes_penalty: float = TWO_SIZES_PENALTY_CYCLES,
    presets: Sequence[str] = (),
    cache_lines: Sequence[int | str] = (),
    without: Sequence[str] = (),
    classify: str | None = None,
    classify_sizes: str | None = None,
    threads: str = "shared",
    processes: str = "apart",
    quantum: int | None = None,
    first_quantum: int | None = None,
    flush_every: int | None = None,
    sample_pages: str | None = None,
    **scope: Any,
) -> CurvesConfiguration:
    """Checks the choices against each other and fills in the defaults. Raises UsageError.

    `two_sizes` has default pairs. With a sample of pages, pairs and set-associative TLBs are left
    out. `scope` are the arguments of `octavo.tracing.scope.resolve_scope`.
    """
    sample = None if sample_pages is None else parse_page_sample(sample_pages)
    left_out = _left_out(without, sample, two_sizes)
    if left_out.issuperset(PARTS) and classify is None and not cache_lines:
        raise UsageError("--without leaves out all parts: keep one of them.")
    check_range("--entries", entries, 1, MAX_ENTRIES)
    choose(threads, get_args(Threads), "--threads")
    shared = choose_processes(processes, quantum, first_quantum)
    chosen_streams = {choose(stream, STREAMS, "stream") for stream in streams}
    if not streams:
        raise UsageError(f"--streams is empty; give some of {', '.join(STREAMS)}.")
    machines = load_tlb_presets(preset_names("tlbs") if "all" in presets else presets)
    checked_window("--policy-window", policy_window)
    given = DEFAULT_TWO_SIZES if two_sizes is None else two_sizes
    given = () if "two-sizes" in left_out else given
    pairs = tuple(_pair(*pair, threshold, policy_window) for pair in dict.fromkeys(given))
    classified = read_classified(classify, classify_sizes)
    all_windows = {checked_window("--windows", window) for window in windows}
    all_windows |= {policy_window} if pairs else set()
    all_sizes = [
        *(page_sizes(DEFAULT_PAGE_SIZES) if sizes is None else sizes),
        *(size for pair in pairs for size in (pair.small, pair.large)),
        *(size for machine in machines for tlb in machine.tlbs for size in tlb.page_sizes),
        *([] if classified is None else [classified.page_size, classified.larger]),
    ]
    return CurvesConfiguration(
        page_sizes=with_base(all_sizes),
        streams=tuple(stream for stream in STREAMS if stream in chosen_streams),
        max_entries=0 if "full" in left_out else entries,
        indexes=() if "sets" in left_out else tuple(dict.fromkeys(map(checked_index, indexes))),
        max_sets=sets,
        windows_refs=() if "working-sets" in left_out else tuple(sorted(all_windows)),
        two_sizes=pairs,
        miss_penalty_cycles=float(miss_penalty),
        two_sizes_penalty_cycles=float(two_sizes_penalty),
        machines=machines,
        classified=classified,
        threads=cast("Threads", threads),
        flush_every_instructions=flush_every,
        line_sizes=tuple(sorted({line_size(str(size)) for size in cache_lines})),
        sample=sample,
        **shared,
        **resolve_scope(**scope),
    )


def _left_out(
    without: Sequence[str], sample: PageSample | None, two_sizes: Sequence[tuple[int, int]] | None
) -> set[str]:
    """The parts that are left out: the named ones, and parts that a sample of pages cannot give."""
    left_out = {choose(part, PARTS, "part") for part in without}
    if sample is None:
        return left_out
    if two_sizes and "two-sizes" not in left_out:
        raise UsageError(
            "--two-sizes cannot be estimated from a sample of the pages: leave it out, or "
            "--sample-pages."
        )
    return left_out | {"sets", "two-sizes"}


def checked_window(option: str, refs: int) -> int:
    """A window T in references. Raises UsageError."""
    check_range(option, refs, 1, MAX_WINDOW_REFS, "a window in references")
    return refs


def checked_index(index: str) -> str:
    """`low`, `xor` or `bits:N`; `bits:0` is `low`. Raises UsageError."""
    if index in ("low", "xor"):
        return index
    match = re.fullmatch(r"bits:([0-9]{1,3})", index)
    if match is None or int(match[1]) > MAX_INDEX_BIT:
        raise UsageError(
            f"--index `{quoted(index)}`: give low, xor, or bits:N, where N is the lowest bit of "
            f"the page number that is used, 0 to {MAX_INDEX_BIT}."
        )
    return f"bits:{int(match[1])}" if int(match[1]) else "low"


def read_pairs(texts: Iterable[str]) -> list[tuple[int, int]]:
    """`4KiB+32KiB` → (4096, 32768); a text may have several pairs, separated by commas."""
    pairs = []
    for text in (part for given in texts for part in given.split(",")):
        sizes = text.split("+")
        if len(sizes) != 2:
            raise UsageError(
                f"--two-sizes `{quoted(text)}`: give two page sizes, such as 4KiB+32KiB."
            )
        pairs.append((page_size(sizes[0]), page_size(sizes[1])))
    return pairs


def _pair(small: int, large: int, threshold: int | str, window_refs: int) -> TwoSizes:
    small, large = page_size(str(small)), page_size(str(large))
    if large <= small:
        raise UsageError(
            f"--two-sizes {format_bytes(small)} + {format_bytes(large)}: the second must be the "
            "larger one."
        )
    blocks = large // small
    return TwoSizes(small, large, _threshold_blocks(threshold, blocks), window_refs)


def _threshold_blocks(threshold: int | str, blocks: int) -> int:
    """The threshold in blocks, from a number or a share of blocks; a share is rounded up."""
    text = str(threshold).strip()
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)(%?)", text)
    number = Fraction(match[1]) if match else Fraction(0)
    if match and match[2]:
        number = Fraction(math.ceil(number * blocks / 100))
    if not 1 <= number <= blocks or number.denominator != 1:
        raise UsageError(
            f"--threshold {quoted(text)}: with {blocks} blocks to a chunk, give 1 to {blocks} "
            "blocks, or a share of them above 0% and up to 100%."
        )
    return int(number)
