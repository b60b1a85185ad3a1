"""Data misses by allocation site and source line: as record for the JSON, rows, tables, a sentence
of the answer, and stacks for flame graphs.

A site is the call in which a function has allocated blocks: the first caller of the allocator that
is not a wrapper. Blocks of one site in all processes are one entry. Its most bytes live are the
largest of one process.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from octavo.analysis.rows import Row
from octavo.base.table import Grid
from octavo.base.units import BASE_PAGE, format_bytes, format_count, format_share

if TYPE_CHECKING:
    from octavo._core import CodePlace, Process

Record = dict[str, Any]

WRAPPERS = (
    "*alloc", "*alloc_*", "*Alloc", "*Malloc*", "*Calloc*", "*Realloc*", "*malloc*",
    "*calloc*", "*realloc*", "*strdup*", "*strndup*", "xstrdup", "operator new*", "mmap*",
    "std::*", "* std::*", "__gnu_cxx::*", "* __gnu_cxx::*", "PyMem_*", "_PyMem_*", "PyObject_New*",
    "_PyObject_New*", "_PyObject_GC_*", "PyType_GenericAlloc", "_PyObject_Arena*", "new_arena",
    "sqlite3Db*Alloc*", "sqlite3Mem*", "alloc::*", "* alloc::*", "__rust_*", "__rdl_*",
)  # fmt: skip
"""Patterns of functions that allocate for their caller; `--allocation-wrappers` adds patterns."""

SHOWN = 10
"""Sites and lines in tables."""
_LEAST_NAMED = 0.1
"""Share of the misses that a site must have to be named in the answer."""
_STACK_SHOWN = 4


def allocations_record(processes: Iterable[Process]) -> Record | None:
    """All sites, places outside blocks, and lines, in descending order of misses at 4 KiB; None
    where no process reports its blocks.
    """
    reporting = [process for process in processes if "allocations" in process]
    if not reporting:
        return None
    columns = reporting[0]["allocations"]["columns"]
    sites: dict[tuple[object, ...], Record] = {}
    outside: defaultdict[str, list[int]] = defaultdict(lambda: [0] * len(columns))
    lines: dict[tuple[object, ...], Record] = {}
    folded: defaultdict[str, list[int]] = defaultdict(lambda: [0] * len(columns))
    stacks: dict[tuple[object, ...], defaultdict[tuple[str, ...], int]] = {}
    first = _first_column(columns)
    for process in reporting:
        allocations = process["allocations"]
        keys = []
        for site in allocations["sites"]:
            key = _key(site["place"], site["address"])
            keys.append(key)
            known = sites.setdefault(
                key,
                {
                    "name": _name(site["place"], site["address"]),
                    **site["place"],
                    "blocks": 0,
                    "most_bytes": 0,
                    "stack": [],
                    "misses": [0] * len(columns),
                },
            )
            known["blocks"] += site["blocks"]
            known["most_bytes"] = max(known["most_bytes"], site["most_bytes"])
        for miss in allocations["misses"]:
            place, counts = miss["place"], miss["counts"]
            line = lines.setdefault(_key(place), {**place, "misses": [0] * len(columns)})
            _add(line["misses"], counts)
            by = f"by {_function(place)}"
            if miss["stack"] is None:
                region = miss["region"]
                name = "unmapped" if region is None else process["regions"][region]["name"]
                _add(outside[name], counts)
                _add(folded[_folded_stack([f"[{name}]", by])], counts)
            else:
                stack = allocations["stacks"][miss["stack"]]
                key = keys[stack["site"]]
                _add(sites[key]["misses"], counts)
                names: tuple[str, ...] = tuple(_function(frame) for frame in stack["frames"])
                by_stack = stacks.setdefault(key, defaultdict(int))
                by_stack[names] += counts[first]
                _add(folded[_folded_stack([*reversed(names), by])], counts)
    for key, by_stack in stacks.items():
        # The stack with most misses; the last by name where several have as many.
        _, costliest = max((misses, stack) for stack, misses in by_stack.items())
        sites[key]["stack"] = list(costliest)
    return {
        "columns": [{"page_size": size, "modelled": modelled} for size, modelled in columns],
        "sites": _ordered(sites.values(), first),
        "outside": _ordered(
            ({"region": name, "misses": misses} for name, misses in outside.items()), first
        ),
        "lines": _ordered(lines.values(), first),
        "stacks": _ordered(
            ({"frames": frames, "misses": misses} for frames, misses in folded.items()), first
        ),
        "dropped_blocks": sum(process["allocations"]["dropped_blocks"] for process in reporting),
    }


def allocation_rows(record: Record, instructions: int) -> Iterator[Row]:
    """The rows of each site that misses."""
    for site in record["sites"]:
        if not any(site["misses"]):
            continue
        name = site["name"]
        yield Row(component="allocations.blocks", counter=name, value=site["blocks"])
        yield Row(component="allocations.bytes", counter=name, value=site["most_bytes"])
        for column, misses in zip(record["columns"], site["misses"], strict=True):
            yield Row(
                component="allocations.machine" if column["modelled"] else "allocations.tlb",
                counter=name,
                stream="data",
                page_size=column["page_size"],
                misses=misses,
                mpki=1000 * misses / instructions if instructions else None,
            )


def folded(record: Record) -> str:
    """The stacks in the format of flame-graph viewers: for each a line with its frames, the
    outermost first, and its misses at 4 KiB.
    """
    first = first_column(record)
    counted = ((stack["frames"], stack["misses"][first]) for stack in record["stacks"])
    return "".join(f"{frames} {count}\n" for frames, count in counted if count)


def first_column(record: Record) -> int:
    """The column of 4 KiB pages, with the modelled machine's walks if there is a machine."""
    return _first_column([(one["page_size"], one["modelled"]) for one in record["columns"]])


def site_grid(record: Record, page_size: int) -> Grid:
    """The sites with most misses at 4 KiB, and their misses at another page size."""
    first, total, what = first_column(record), _total(record), _what(record)
    other = _column(record, page_size)
    sites, outside = (
        [entry for entry in record[name] if entry["misses"][first]] for name in ("sites", "outside")
    )

    def counts(misses: Sequence[int]) -> tuple[str, ...]:
        return _counts(misses, first, other, total)

    body = [
        (
            site["name"],
            _callers(site),
            *counts(site["misses"]),
            format_bytes(site["most_bytes"]),
            format_count(site["blocks"]),
        )
        for site in sites[:SHOWN]
    ]
    elsewhere = [(f"no block: {entry['region']}", [entry]) for entry in outside[:3]]
    others = [("other sites", sites[SHOWN:]), *elsewhere, ("no block: elsewhere", outside[3:])]
    for label, entries in others:
        misses = [sum(column) for column in zip(*(one["misses"] for one in entries), strict=True)]
        if any(misses):
            body.append((label, "", *counts(misses), "", ""))
    more = ("bytes live\nat most", "blocks")
    head = ("site", "called from", *_counts_head(what, other, page_size), *more)
    return Grid("Allocation sites", head, tuple(body), left_columns=2, spare=(1,))


def line_grid(record: Record, page_size: int) -> Grid:
    """The source lines with most misses of data at 4 KiB."""
    first, total, what = first_column(record), _total(record), _what(record)
    other = _column(record, page_size)
    body = []
    for line in [line for line in record["lines"] if line["misses"][first]][:SHOWN]:
        source = _source(line) or _file(line["path"]) or ""
        counts = _counts(line["misses"], first, other, total)
        body.append((_function(line), source, *counts))
    head = ("function", "line", *_counts_head(what, other, page_size))
    return Grid("Source lines that miss", head, tuple(body), left_columns=2)


def sentence(record: Record) -> str:
    """The sentence of the answer about the site with most misses; empty if its share is small."""
    first, total = first_column(record), _total(record)
    if not record["sites"] or not total:
        return ""
    site = record["sites"][0]
    share = site["misses"][first] / total
    if share < _LEAST_NAMED:
        return ""
    blocks = "block" if site["blocks"] == 1 else f"{format_count(site['blocks'])} blocks"
    verb = "causes" if site["blocks"] == 1 else "cause"
    name = site["function"] or site["name"]
    where = f" ({_source(site)})" if _source(site) else ""
    return (
        f"The {blocks} allocated in `{name}`{where} {verb} {format_share(share)} of the "
        f"{_what(record)} at 4 KiB."
    )


def page_size_shown(advice: Sequence[Record]) -> int:
    """The size advised for data, or 2 MiB."""
    sizes = [
        item["page_size"]
        for item in advice
        if item["scope"] == "program" and item["stream"] == "data"
    ]
    return next((size for size in sizes if size > BASE_PAGE), 2 << 20)


def _first_column(columns: Sequence[tuple[int, bool]]) -> int:
    bases = [index for index, (size, _) in enumerate(columns) if size == BASE_PAGE]
    return max(bases, key=lambda index: columns[index][1])


def _column(record: Record, page_size: int) -> int | None:
    """The column of a page size, of the same kind as the first column; None where there is none."""
    columns = record["columns"]
    wanted = {**columns[first_column(record)], "page_size": page_size}
    return columns.index(wanted) if wanted in columns else None


def _what(record: Record) -> str:
    modelled = record["columns"][first_column(record)]["modelled"]
    return "data walks" if modelled else "data misses"


def _total(record: Record) -> int:
    first = first_column(record)
    return sum(entry["misses"][first] for entry in (*record["sites"], *record["outside"]))


def _counts_head(what: str, other: int | None, page_size: int) -> tuple[str, ...]:
    counted = (f"{what}\nat 4 KiB", "share")
    return counted if other is None else (*counted, f"at\n{format_bytes(page_size)}")


def _counts(misses: Sequence[int], first: int, other: int | None, total: int) -> tuple[str, ...]:
    share = format_share(misses[first] / total if total else 0)
    counted = (format_count(misses[first]), share)
    return counted if other is None else (*counted, format_count(misses[other]))


def _add(sums: list[int], counts: Sequence[int]) -> None:
    for index, count in enumerate(counts):
        sums[index] += count


def _ordered(records: Iterable[Record], first: int) -> list[Record]:
    return sorted(records, key=lambda record: -record["misses"][first])


def _key(place: CodePlace, address: int = 0) -> tuple[object, ...]:
    """A key that is equal for one place in several processes. Of places without a line number it
    has the address.
    """
    unknown = address if place["line"] is None else 0
    return (place["function"], place["path"], place["source"], place["line"], unknown)


def _function(place: CodePlace | Record) -> str:
    return place["function"] or f"[{_file(place['path']) or 'code without a file'}]"


def _name(place: CodePlace, address: int) -> str:
    where = _source(place) or (None if place["function"] else f"{address:#x}")
    where = where or _file(place["path"])
    return _function(place) if where is None else f"{_function(place)} ({where})"


def _source(place: CodePlace | Record) -> str | None:
    if place["source"] is None or place["line"] is None:
        return None
    return f"{PurePosixPath(place['source']).name}:{place['line']}"


def _file(path: str | None) -> str | None:
    return None if path is None else PurePosixPath(path).name


def _folded_stack(frames: Sequence[str]) -> str:
    """The frames, separated by semicolons."""
    return ";".join(frame.replace(";", ":").replace("\n", " ") for frame in frames)


def _callers(site: Record) -> str:
    """The callers of a site in the stack that has most of its misses."""
    stack = site["stack"]
    at = stack.index(site["function"]) if site["function"] in stack else 0
    shown = " < ".join(stack[at + 1 : at + 1 + _STACK_SHOWN])
    return f"{shown} < …" if len(stack) > at + 1 + _STACK_SHOWN else shown
