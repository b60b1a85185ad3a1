"""The curves of a stream from the extension's counts: sums, and look-ups of single TLBs or of the
TLBs of a machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

from octavo.base.metrics import rated_instructions
from octavo.base.text import plural
from octavo.hardware.tlb_presets import Tlb, TlbMachine
from octavo.tlb_curves.caches import Caches, read_caches, sum_caches
from octavo.tlb_curves.classes import MissClasses, read_classes, sum_classes
from octavo.tlb_curves.counts import Counts, added, geometry, words
from octavo.tlb_curves.page_sampling import Estimate, SampledSize, read_sampled, sum_sampled

if TYPE_CHECKING:
    from octavo._core import CoreCurves, CurvesProcess, TwoSizesTlbs
    from octavo._core import StreamCurves as CountedStream
    from octavo._core import TwoSizesCurves as CorePair


@dataclass(frozen=True)
class Stack:
    """Fully associative TLBs at one page size."""

    pages: int
    misses: Counts
    """Misses with n entries, at index n - 1."""


@dataclass(frozen=True)
class PairCounts:
    """Misses of TLBs of one kind with two page sizes; the three sequences have equal indices."""

    small_misses: Counts
    large_misses: Counts
    invalidated: Counts

    def misses(self, at: int) -> int:
        """Misses on small and large pages."""
        return self.small_misses[at] + self.large_misses[at]


@dataclass(frozen=True)
class Pair:
    """Two page sizes under the dynamic policy."""

    small: int
    large: int
    window_refs: int
    threshold_blocks: int
    counters: dict[str, int]
    """Look-ups, promotions and demotions, blocks copied and zeroed, by name."""
    full: PairCounts
    sets: dict[str, PairCounts]
    """Misses by index: small, large, exact, split-small, split-large."""
    byte_refs: dict[int, int]
    """Bytes in the working set, summed over all references of the program, by window."""

    def full_misses(self, entries: int) -> int | None:
        """Misses of a fully associative TLB; None if it was not requested."""
        return self.full.misses(entries - 1) if entries <= len(self.full.small_misses) else None

    def set_misses(self, index: str, sets: int, ways: int) -> int | None:
        """Misses of a set-associative TLB; None if it was not requested."""
        counts = self.sets.get(index)
        if counts is None:
            return None
        small = geometry(counts.small_misses, sets, ways)
        large = geometry(counts.large_misses, sets, ways)
        return None if small is None or large is None else small + large


@dataclass(frozen=True, repr=False)
class StreamCurves:
    """One stream of a process image, of one of its threads, or of several process images.

    Working sets belong to one process. An average over references of several processes has no
    meaning, so a whole program of several processes has none.
    """

    stream: str
    references: int
    instructions: int
    stack: dict[int, Stack] = field(default_factory=dict)
    """Fully associative TLBs by page size."""
    sets: dict[tuple[str, int], Counts] = field(default_factory=dict)
    """Misses of set-associative TLBs by index and page size, in the order of `counts.at`."""
    caches: dict[int, Caches] = field(default_factory=dict)
    """Caches by the size of their lines."""
    byte_refs: dict[tuple[int, int], int] = field(default_factory=dict)
    """Bytes in the window, summed over the program's references, by page size and window."""
    program_references: int = 0
    """References of the whole program, the unit of time of windows."""
    pairs: tuple[Pair, ...] = ()
    classes: MissClasses | None = None
    sampled: dict[int, SampledSize] | None = None
    """Estimates from a sample of pages by page size, in place of `stack` and `byte_refs`."""

    def __repr__(self) -> str:
        sizes = len(self.stack or self.sampled or ())
        references = f"{self.references:,} {plural(self.references, 'reference')}"
        page_sizes = f"{sizes} {plural(sizes, 'page size')}"
        return f"<StreamCurves {self.stream}: {references}, {page_sizes}>"

    @property
    def rated_instructions(self) -> int:
        """The divisor of rates per instruction; 0 where there are too few instructions."""
        return rated_instructions(self.instructions, self.program_references)

    def full_misses(self, page_size: int, entries: int) -> int | None:
        """Misses of a fully associative TLB; None if it was not requested, or if the sample is too
        small.
        """
        if self.sampled is not None:
            estimate = self.full_estimate(page_size, entries)
            return None if estimate is None else round(estimate.value)
        stack = self.stack.get(page_size)
        if stack is None or entries > len(stack.misses):
            return None
        return stack.misses[entries - 1]

    def full_estimate(self, page_size: int, entries: int) -> Estimate | None:
        """Misses of a fully associative TLB, estimated from a sample of pages, with an interval."""
        size = (self.sampled or {}).get(page_size)
        return None if size is None or entries > len(size.misses) else size.misses[entries - 1]

    def working_set_estimate(self, page_size: int, window_refs: int) -> Estimate | None:
        """Bytes in the window, summed over the program's references, from a sample of pages."""
        size = (self.sampled or {}).get(page_size)
        return None if size is None else size.byte_refs.get(window_refs)

    def set_misses(self, index: str, page_size: int, sets: int, ways: int) -> int | None:
        """Misses of a set-associative TLB; None if it was not requested."""
        counts = self.sets.get((index, page_size))
        return None if counts is None else geometry(counts, sets, ways)


def streams_of(process: CurvesProcess) -> dict[str, StreamCurves]:
    """Each stream of a process image, by name."""
    return {
        curves["stream"]: _stream(curves, process["instructions"], process["references"])
        for curves in process["streams"]
    }


def threads_of(process: CurvesProcess) -> dict[int, dict[str, StreamCurves]]:
    """Each stream of each thread of a process image, where threads have TLBs of their own."""
    threads: dict[int, dict[str, StreamCurves]] = {}
    for curves in process["streams"]:
        for core in curves["cores"]:
            threads.setdefault(core["thread"], {})[curves["stream"]] = _core(curves, core)
    return threads


def shared_streams(
    shared: Sequence[CountedStream], processes: Sequence[CurvesProcess]
) -> dict[str, StreamCurves]:
    """Each stream of all processes that shared a core, by name."""
    instructions = sum(process["instructions"] for process in processes)
    references = sum(process["references"] for process in processes)
    return {curves["stream"]: _stream(curves, instructions, references) for curves in shared}


def totals(processes: Sequence[dict[str, StreamCurves]]) -> dict[str, StreamCurves]:
    """Each stream of all process images together, without working sets."""
    if len(processes) == 1:
        return processes[0]
    return {
        name: _sum([streams[name] for streams in processes]) for name in dict.fromkeys(processes[0])
    }


def _stream(counted: CountedStream, instructions: int, program_references: int) -> StreamCurves:
    return StreamCurves(
        stream=counted["stream"],
        references=counted["references"],
        instructions=instructions,
        stack=_stack(counted),
        sets=_sets(counted),
        caches=read_caches(counted["caches"]),
        byte_refs={
            (ws["page_size"], ws["window_refs"]): ws["page_refs"] * ws["page_size"]
            for ws in counted["working_sets"]
        },
        # The engine counts them only where there is a window.
        program_references=counted["program_references"] or program_references,
        pairs=tuple(_pair(pair) for pair in counted["two_sizes"]),
        classes=sum_classes([read_classes(classes) for classes in counted["classes"]]),
        sampled=read_sampled(counted["sampled"]),
    )


def _core(counted: CountedStream, core: CoreCurves) -> StreamCurves:
    pairs = zip(counted["two_sizes"], core["two_sizes"], strict=True)
    return StreamCurves(
        stream=counted["stream"],
        references=core["references"],
        instructions=core["instructions"],
        program_references=core["references"],
        stack=_stack(core),
        sets=_sets(core),
        caches=read_caches(core["caches"]),
        pairs=tuple(_pair(pair, tlbs) for pair, tlbs in pairs),
        classes=read_classes(core["classes"]),
    )


def _stack(counted: CountedStream | CoreCurves) -> dict[int, Stack]:
    return {
        stack["page_size"]: Stack(stack["pages"], words(stack["misses"]))
        for stack in counted["stack"]
    }


def _sets(counted: CountedStream | CoreCurves) -> dict[tuple[str, int], Counts]:
    return {(sets["index"], sets["page_size"]): words(sets["misses"]) for sets in counted["sets"]}


def _pair(counted: CorePair, core: TwoSizesTlbs | None = None) -> Pair:
    """A pair, or a core's share of it: its look-ups, without the policy's counters."""
    tlbs = counted if core is None else core
    windows = zip(counted["windows_refs"], counted["working_set_byte_refs"], strict=True)
    return Pair(
        small=counted["small"],
        large=counted["large"],
        window_refs=counted["window_refs"],
        threshold_blocks=counted["threshold_blocks"],
        counters=tlbs["counters"],
        full=_counts(tlbs),
        sets={sets["index"]: _counts(sets) for sets in tlbs["sets"]},
        byte_refs=dict(windows) if core is None else {},
    )


def _counts(counted: Any) -> PairCounts:
    return PairCounts(*(words(counted[field.name]) for field in fields(PairCounts)))


def _sum(streams: Sequence[StreamCurves]) -> StreamCurves:
    first = streams[0]
    return StreamCurves(
        stream=first.stream,
        references=sum(curves.references for curves in streams),
        instructions=sum(curves.instructions for curves in streams),
        program_references=sum(curves.program_references for curves in streams),
        stack={
            size: Stack(
                sum(curves.stack[size].pages for curves in streams),
                added(curves.stack[size].misses for curves in streams),
            )
            for size in first.stack
        },
        sets={key: added(curves.sets[key] for curves in streams) for key in first.sets},
        caches=sum_caches([curves.caches for curves in streams]),
        pairs=tuple(
            _sum_pairs(pairs) for pairs in zip(*(curves.pairs for curves in streams), strict=True)
        ),
        classes=sum_classes([curves.classes for curves in streams]),
        sampled=sum_sampled([curves.sampled for curves in streams]),
    )


def _sum_pairs(pairs: Sequence[Pair]) -> Pair:
    first = pairs[0]
    return replace(
        first,
        counters={name: sum(pair.counters[name] for pair in pairs) for name in first.counters},
        full=_sum_counts([pair.full for pair in pairs]),
        sets={index: _sum_counts([pair.sets[index] for pair in pairs]) for index in first.sets},
        byte_refs={},
    )


def _sum_counts(counts: Sequence[PairCounts]) -> PairCounts:
    names = (field.name for field in fields(PairCounts))
    return PairCounts(*(added(getattr(one, name) for one in counts) for name in names))


def tlb_misses(curves: StreamCurves, tlb: Tlb, page_size: int) -> int | None:
    """Misses of a machine's TLB with pages of one size; None if unknown."""
    if tlb.sets == 1:
        return curves.full_misses(page_size, tlb.entries)
    return curves.set_misses("low", page_size, tlb.sets, tlb.ways)


def machine_pair_misses(machine: TlbMachine, pair: Pair) -> tuple[Tlb | None, int] | None:
    """Misses of a machine with two page sizes, and the TLB that holds both sizes if there is one;
    None if unknown.
    """
    small, large = machine.tlb_of(pair.small), machine.tlb_of(pair.large)
    if small is None or large is None:
        return None
    if small is large:
        full = pair.full.small_misses
        if small.sets != 1 or small.entries > len(full):
            return None
        return small, pair.full.misses(small.entries - 1)
    halves = (("split-small", small), ("split-large", large))
    if any(index not in pair.sets for index, _ in halves):
        return None
    found = [
        geometry(counts, tlb.sets, tlb.ways)
        for index, tlb in halves
        for counts in (pair.sets[index].small_misses, pair.sets[index].large_misses)
    ]
    return None if None in found else (None, sum(number or 0 for number in found))
