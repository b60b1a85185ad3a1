"""Rows of curves, in blocks whose rows share most columns.

There are some hundred thousand rows, so they are made only for a file or a table. The columns are
listed in docs/rows.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, TypedDict, cast

from octavo.analysis.rows import event_counts, summed_counters
from octavo.base import metrics
from octavo.base.table import arrow_schema, columns_of
from octavo.base.units import BASE_PAGE
from octavo.hardware.tlb_presets import Tlb, TlbMachine
from octavo.tlb_curves.configuration import CurvesConfiguration
from octavo.tlb_curves.counts import Counts, picked, places_of, shapes_of
from octavo.tlb_curves.model import Pair, PairCounts, StreamCurves, machine_pair_misses, tlb_misses
from octavo.tlb_curves.page_sampling import full_columns, miss_ends, working_set_columns

if TYPE_CHECKING:
    import pyarrow as pa

    from octavo._core import CurvesProcess


class CurveRow(TypedDict, total=False):
    """One row; a column that does not apply is absent. Sizes are bytes."""

    process: Annotated[int, "int32"]
    thread: Annotated[int, "int32"]
    component: str
    counter: str
    value: int
    stream: str
    machine: str
    page_size: int
    small: int
    large: int
    threshold_blocks: int
    policy_window_refs: int
    index: str
    entries: int
    ways: int
    sets: int
    line_bytes: int
    cache_bytes: int
    misses: int | None
    misses_low: int | None
    misses_high: int | None
    small_misses: int
    large_misses: int
    invalidated: int
    second_probes: int
    mpki: float | None
    miss_ratio: float | None
    cpi_tlb: float | None
    critical_penalty_increase: float | None
    larger: int
    compulsory: int
    capacity: int
    conflict: int
    page_size_misses: int
    name: str | None
    kind: str | None
    path: str | None
    source: str | None
    line: int | None
    window_refs: int
    average_bytes: float | None
    average_bytes_low: float | None
    average_bytes_high: float | None
    normalised: float | None
    normalised_low: float | None
    normalised_high: float | None


COLUMNS = columns_of(CurveRow)
"""The columns of rows.parquet and their Arrow types, the same for every run."""


@dataclass(frozen=True)
class Block:
    """Rows that differ only in some columns."""

    same: CurveRow
    columns: dict[str, Sequence[Any]]
    """The columns that differ, all of equal length; empty for a single row."""

    def rows(self) -> Iterator[CurveRow]:
        """The rows of the block."""
        if not self.columns:
            yield self.same
        for values in zip(*self.columns.values(), strict=True):
            yield cast("CurveRow", {**self.same, **dict(zip(self.columns, values, strict=True))})


def blocks_of(
    processes: Sequence[CurvesProcess],
    streams: Sequence[dict[str, StreamCurves]],
    threads: Sequence[dict[int, dict[str, StreamCurves]]],
    total: dict[str, StreamCurves],
    configuration: CurvesConfiguration,
    untraced: int,
) -> Iterator[Block]:
    """The rows of the whole program, then of each process where there are several, then of each
    thread where threads have their own TLBs.

    Curves of a process or a thread have only powers of two of entries and ways, since a shell
    script has hundreds of processes. Processes that share a core have only counters.
    """
    yield from _counter_blocks(processes)
    yield _counter("stream", "processes", len(processes))
    yield _counter("stream", "untraced_processes", untraced)
    yield from _blocks(total, configuration, sparse=False)
    several = len(processes) > 1
    for process, own in zip(processes, streams, strict=True):
        if several:
            for block in (*_counter_blocks([process]), *_blocks(own, configuration, sparse=True)):
                yield Block({"process": process["stream"], **block.same}, block.columns)
    for process, of_threads in zip(processes, threads, strict=True):
        for thread, own in of_threads.items():
            key = CurveRow(thread=thread)
            if several:
                key = CurveRow(process=process["stream"], thread=thread)
            for block in _thread_blocks(own, configuration):
                yield Block({**key, **block.same}, block.columns)


def _thread_blocks(
    own: dict[str, StreamCurves], configuration: CurvesConfiguration
) -> Iterator[Block]:
    for curves in list(own.values())[:1]:
        yield _counter("stream", "instructions", curves.instructions)
    yield from _blocks(own, configuration, sparse=True)


def _counter_blocks(processes: Sequence[CurvesProcess]) -> Iterator[Block]:
    for counter, value in summed_counters(processes).items():
        yield _counter("stream", counter, value)
    for name, number in event_counts(processes):
        yield _counter("stream.events", name, number)


def _counter(component: str, counter: str, value: int) -> Block:
    return Block(CurveRow(component=component, counter=counter, value=value), {})


def _blocks(
    streams: dict[str, StreamCurves], configuration: CurvesConfiguration, *, sparse: bool
) -> Iterator[Block]:
    for curves in streams.values():
        maker = _Maker(curves, configuration, sparse=sparse)
        yield maker.references()
        yield from maker.full()
        yield from maker.sets()
        yield from maker.caches()
        yield from maker.working_sets()
        yield from maker.sampled()
        for pair in curves.pairs:
            yield from maker.pair(pair)
        for machine in configuration.machines:
            yield from maker.machine(machine)
        yield from maker.classes()


class _Maker:
    """The blocks of one stream."""

    def __init__(
        self, curves: StreamCurves, configuration: CurvesConfiguration, *, sparse: bool
    ) -> None:
        self._curves = curves
        self._configuration = configuration
        self._sparse = sparse

    def references(self) -> Block:
        """The number of references."""
        row = CurveRow(
            component="stream",
            counter="references",
            stream=self._curves.stream,
            value=self._curves.references,
        )
        return Block(row, {})

    def full(self) -> Iterator[Block]:
        """Fully associative TLBs, by page size."""
        for size, stack in self._curves.stack.items():
            same = self._same("tlb.full", page_size=size, sets=1)
            places = self._places(len(stack.misses))
            yield self._curve(same, _full_shapes(places), picked(stack.misses, places))

    def sets(self) -> Iterator[Block]:
        """Set-associative TLBs, by index and page size."""
        for (index, size), counts in self._curves.sets.items():
            same = self._same("tlb.sets", page_size=size, index=index)
            shapes = shapes_of(counts, sparse=self._sparse)
            yield self._curve(same, shapes, picked(counts, places_of(shapes)))

    def caches(self) -> Iterator[Block]:
        """Caches, by the size of their lines."""
        for size, caches in self._curves.caches.items():
            same = self._same("cache", counter="lookups", line_bytes=size, value=caches.lookups)
            yield Block(same, {})
            if caches.misses:
                columns = caches.columns(self._curves.rated_instructions, sparse=self._sparse)
                yield Block(self._same("cache.sets", line_bytes=size), columns)

    def working_sets(self) -> Iterator[Block]:
        """Working sets, by page size."""
        sizes = dict.fromkeys(size for size, _ in self._curves.byte_refs)
        for size in sizes:
            byte_refs = {
                window: value
                for (owner, window), value in self._curves.byte_refs.items()
                if owner == size
            }
            yield self._working_set(self._same("working_set", page_size=size), byte_refs)

    def sampled(self) -> Iterator[Block]:
        """Estimates from a sample of pages, and the numbers of its pages."""
        sampled = self._curves.sampled or {}
        for size, estimated in sampled.items():
            for counter, value in (
                ("pages", estimated.pages),
                ("kept_pages", estimated.kept_pages),
            ):
                same = self._same("sample", counter=counter, page_size=size, value=value)
                yield Block(same, {})
            places = self._places(len(estimated.misses))
            if places:
                columns = full_columns(estimated, places)
                same = self._same("tlb.full", page_size=size, sets=1)
                block = self._curve(same, _full_shapes(places), columns["misses"])
                yield Block(same, {**block.columns, **columns})
        for size, estimated in sampled.items():
            if estimated.byte_refs:
                base = sampled[BASE_PAGE].byte_refs
                references = self._curves.program_references
                columns = working_set_columns(estimated.byte_refs, base, references)
                yield Block(self._same("working_set", page_size=size), columns)

    def pair(self, pair: Pair) -> Iterator[Block]:
        """Two page sizes: counters of the policy, TLBs, working sets."""
        names = list(pair.counters)
        yield Block(
            self._pair_same("two_sizes", pair),
            {"counter": names, "value": [pair.counters[name] for name in names]},
        )
        places = self._places(len(pair.full.small_misses))
        if places:
            base = self._curves.stack.get(pair.small)
            yield self._pair_curve(
                self._pair_same("two_sizes.full", pair, sets=1),
                _full_shapes(places),
                pair.full,
                places,
                None if base is None else base.misses,
            )
        if self._configuration.indexes:
            for index, counts in pair.sets.items():
                yield self._pair_sets(pair, index, counts)
        if pair.byte_refs:
            same = self._pair_same("two_sizes.working_set", pair)
            yield self._working_set(same, pair.byte_refs)

    def machine(self, machine: TlbMachine) -> Iterator[Block]:
        """A machine's TLBs, with each of their page sizes alone and with two page sizes."""
        for tlb in machine.tlbs:
            for size in tlb.page_sizes:
                misses = tlb_misses(self._curves, tlb, size)
                if misses is not None:
                    same = self._same("machine", machine=machine.name, page_size=size)
                    block = self._curve(same, _shape(tlb), [misses])
                    estimate = self._curves.full_estimate(size, tlb.entries)
                    ends = {} if estimate is None else miss_ends([estimate])
                    yield Block(same, {**block.columns, **ends})
        for pair in self._curves.pairs:
            found = machine_pair_misses(machine, pair)
            if found is not None:
                both, misses = found
                same = self._pair_same("machine.two_sizes", pair, machine=machine.name)
                columns = _shape(both) if both is not None else {}
                yield self._curve(same, columns, [misses], two_sizes=True)

    def classes(self) -> Iterator[Block]:
        """The misses of one TLB by class, region and function."""
        if self._curves.classes is not None:
            for row in self._curves.classes.rows():
                yield Block(cast("CurveRow", {"stream": self._curves.stream, **row}), {})

    def _same(self, component: str, **more: Any) -> CurveRow:
        row: CurveRow = {"component": component, "stream": self._curves.stream}
        return cast("CurveRow", {**row, **more})

    def _pair_same(self, component: str, pair: Pair, **more: Any) -> CurveRow:
        return self._same(
            component,
            small=pair.small,
            large=pair.large,
            threshold_blocks=pair.threshold_blocks,
            policy_window_refs=pair.window_refs,
            **more,
        )

    def _places(self, length: int) -> Sequence[int]:
        """The indices of the numbers of entries to report."""
        if not self._sparse:
            return range(length)
        return [(1 << power) - 1 for power in range(length.bit_length())]

    def _curve(
        self,
        same: CurveRow,
        shapes: dict[str, Sequence[int]] | dict[str, list[int]],
        misses: Sequence[int | None],
        *,
        two_sizes: bool = False,
    ) -> Block:
        curves = self._curves
        configuration = self._configuration
        penalty = configuration.miss_penalty_cycles
        if two_sizes:
            penalty = configuration.two_sizes_penalty_cycles

        def each(metric: Callable[[int], float | None]) -> list[float | None]:
            return [None if number is None else metric(number) for number in misses]

        return Block(
            same,
            {
                **shapes,
                "misses": misses,
                "mpki": each(lambda number: metrics.mpki(number, curves.rated_instructions)),
                "miss_ratio": each(lambda number: metrics.miss_ratio(number, curves.references)),
                "cpi_tlb": each(
                    lambda number: metrics.cpi_tlb(number, curves.rated_instructions, penalty)
                ),
            },
        )

    def _pair_curve(
        self,
        same: CurveRow,
        shapes: dict[str, Sequence[int]] | dict[str, list[int]],
        counts: PairCounts,
        places: Sequence[int],
        base: Counts | None,
    ) -> Block:
        misses = [counts.misses(place) for place in places]
        block = self._curve(same, shapes, misses, two_sizes=True)
        columns = {
            **block.columns,
            "small_misses": picked(counts.small_misses, places),
            "large_misses": picked(counts.large_misses, places),
            "invalidated": picked(counts.invalidated, places),
        }
        if base:
            columns["critical_penalty_increase"] = [
                metrics.critical_penalty_increase(base[place], number)
                for place, number in zip(places, misses, strict=True)
            ]
        return Block(same, columns)

    def _pair_sets(self, pair: Pair, index: str, counts: PairCounts) -> Block:
        shapes = shapes_of(counts.small_misses, sparse=self._sparse)
        places = places_of(shapes)
        # Half of a split TLB alone cannot be compared with a whole TLB.
        alone = not index.startswith("split")
        base = self._curves.sets.get(("low", pair.small)) if alone else None
        same = self._pair_same("two_sizes.sets", pair, index=index)
        block = self._pair_curve(same, shapes, counts, places, base)
        if index != "exact":
            return block
        # With sequential access (section 2.2 (b)) the large page is probed after the small one.
        probes = [pair.counters["large_lookups"] + counts.small_misses[place] for place in places]
        return Block(block.same, {**block.columns, "second_probes": probes})

    def _working_set(self, same: CurveRow, byte_refs: dict[int, int]) -> Block:
        curves = self._curves
        bases = [curves.byte_refs.get((BASE_PAGE, window), 0) for window in byte_refs]
        return Block(
            same,
            {
                "window_refs": list(byte_refs),
                "average_bytes": [
                    metrics.average_working_set(value, curves.program_references)
                    for value in byte_refs.values()
                ],
                "normalised": [
                    metrics.normalised_working_set(value, base)
                    for value, base in zip(byte_refs.values(), bases, strict=True)
                ],
            },
        )


def _shape(tlb: Tlb) -> dict[str, list[int]]:
    return {"entries": [tlb.entries], "ways": [tlb.ways], "sets": [tlb.sets]}


def _full_shapes(places: Iterable[int]) -> dict[str, list[int]]:
    entries = [place + 1 for place in places]
    return {"entries": entries, "ways": entries}


def to_table(blocks: Iterable[Block]) -> pa.Table:
    """The rows in order; a column that does not apply to a row is null."""
    import pyarrow as pa

    schema = arrow_schema(COLUMNS)
    return pa.concat_tables([_table(block, schema) for block in blocks] or [schema.empty_table()])


def _table(block: Block, schema: pa.Schema) -> pa.Table:
    import pyarrow as pa

    same: dict[str, Any] = dict(block.same)
    length = len(next(iter(block.columns.values()))) if block.columns else 1
    columns = [
        pa.array(block.columns[field.name], type=field.type)
        if field.name in block.columns
        else pa.repeat(pa.scalar(same.get(field.name), type=field.type), length)
        for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)
