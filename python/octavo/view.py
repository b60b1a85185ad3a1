"""Tables that people read, as plain cells: one view of the rows for the terminal and the report.

Nothing is computed here that is not in the rows or the advice already.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from octavo.rows import Row, component_of
from octavo.text import printable
from octavo.units import (
    BASE_PAGE,
    format_bytes,
    format_count,
    format_growth,
    format_mpki,
)


@dataclass(frozen=True)
class Grid:
    """A table of text; every column but the first `left_columns` is right-aligned."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    left_columns: int = 1
    spare_column: int | None = None
    """The left column that a narrow screen may go without."""
    best: tuple[tuple[int, int], ...] = ()
    """Cells that are better than the others of their row, by row and column."""

    def __post_init__(self) -> None:
        """Names, which anybody may have chosen, stand in the left columns and in the title."""
        names = self.left_columns
        rows = tuple((*map(printable, row[:names]), *row[names:]) for row in self.rows)
        object.__setattr__(self, "rows", rows)
        object.__setattr__(self, "title", printable(self.title))


def counters(rows: Sequence[Row]) -> dict[str, int]:
    """The whole program's `stream` counters by name."""
    return {
        row["counter"]: row["value"]
        for row in rows
        if row["component"] == "stream" and "process" not in row and "region" not in row
    }


def whole_program(rows: Sequence[Row]) -> list[Row]:
    """The rows that are about no single process or region."""
    return [row for row in rows if "process" not in row and "region" not in row]


def main_process(rows: Sequence[Row]) -> list[Row]:
    """The rows of the process that executed most instructions, as if it had run alone.

    A command is often a wrapper script whose many small processes are not the program meant.
    """
    instructions = {
        row["process"]: row["value"]
        for row in rows
        if row.get("counter") == "instructions" and "process" in row and "region" not in row
    }
    if not instructions:
        return list(rows)
    main = max(instructions, key=lambda process: instructions[process])
    own = [row.copy() for row in rows if row.get("process") == main]
    for row in own:
        del row["process"]
    return own


def regions_of(rows: Sequence[Row]) -> Iterator[tuple[tuple[int | None, str, int], list[Row]]]:
    """The rows of each region, by process, name and lowest address."""
    groups: dict[tuple[int | None, str, int], list[Row]] = {}
    for row in rows:
        if "region" in row:
            key = (row.get("process"), row["region"], row["start"])
            groups.setdefault(key, []).append(row)
    yield from groups.items()


def page_size_grid(rows: Sequence[Row], level: int) -> Grid:
    """Misses of one TLB level, and memory, by page size."""
    whole = whole_program(rows)
    curves = {
        (row["stream"], row["page_size"]): row
        for row in whole
        if row["component"] in (component_of(level, "fetch"), component_of(level, "data"))
    }
    memory = {
        row["page_size"]: row
        for row in whole
        if row["component"] == "memory" and row["stream"] == "all"
    }
    costs = any(row["added_cycles"] is not None for row in curves.values())
    body = []
    for size in sorted(memory):
        cells = [format_bytes(size)]
        for stream in ("fetch", "data"):
            curve = curves[stream, size]
            cells += [format_count(curve["misses"]), format_mpki(curve["mpki"])]
            if costs:
                cells.append(format_count(curve["added_cycles"] or 0))
        cells += [
            format_bytes(memory[size]["touched_bytes"]),
            format_growth(memory[size]["growth"]),
        ]
        body.append(tuple(cells))
    head = ["page size"]
    for name in ("code", "data"):
        head += [f"{name}\nmisses", "per 1000\ninstr."]
        if costs:
            head.append("added\ncycles")
    head += ["memory", "growth"]
    title = _level_title(curves[("data", BASE_PAGE)], curves[("fetch", BASE_PAGE)], level)
    return Grid(title, tuple(head), tuple(body))


def _level_title(data: Row, fetch: Row, level: int) -> str:
    name = "TLB" if level == 1 else f"Level-{level} TLB"
    return f"{name} with {fetch['entries']} entries for code and {data['entries']} for data"


def region_grid(rows: Sequence[Row], advice: Sequence[dict[str, Any]], level: int) -> Grid:
    """Each region's references, memory and last-level misses at 4 KiB; most misses first."""
    advised = {
        (item.get("process"), item["region"], item["start"], item["stream"]): item["page_size"]
        for item in advice
        if item["scope"] == "region"
    }
    body = []
    for key, members in regions_of(rows):
        process, name, _ = key
        base = {
            row["component"]: row
            for row in members
            if row.get("page_size") == BASE_PAGE
            and row.get("stream") in ("fetch", "data", "all")
            and (row["component"] != "memory" or row["stream"] == "all")
        }
        references = next(row["value"] for row in members if row.get("counter") == "references")
        fetch, data = (base.get(component_of(level, stream)) for stream in ("fetch", "data"))
        sizes = [advised.get((*key, stream)) for stream in ("fetch", "data")]
        label = name if process is None else f"{process}: {name}"
        misses = sum(row["misses"] for row in (fetch, data) if row is not None)
        body.append(
            (
                misses,
                (
                    label,
                    members[0]["region_kind"],
                    format_count(references),
                    format_bytes(base["memory"]["touched_bytes"]) if "memory" in base else "",
                    _mpki(fetch),
                    _mpki(data),
                    *(format_bytes(size) if size else "" for size in sizes),
                ),
            )
        )
    body.sort(key=lambda entry: -entry[0])
    head = (
        "region",
        "kind",
        "references",
        "memory",
        "code\nper 1000",
        "data\nper 1000",
        "code\npage",
        "data\npage",
    )
    title = "Regions, at 4 KiB pages, with the page size advised for large ones"
    rows_by_misses = tuple(cells for _, cells in body)
    return Grid(title, head, rows_by_misses, left_columns=2, spare_column=1)


def process_grid(rows: Sequence[Row], manifest: dict[str, Any], level: int) -> Grid | None:
    """Each process image; None when there is only one."""
    processes = manifest["processes"]
    if len(processes) < 2:
        return None
    own = [row for row in rows if "process" in row and "region" not in row]
    body = []
    for process in processes:
        mine = [row for row in own if row["process"] == process["stream"]]
        values = {row["counter"]: row["value"] for row in mine if "counter" in row}
        base = {row["component"]: row for row in mine if row.get("page_size") == BASE_PAGE}
        body.append(
            (
                str(process["stream"]),
                process["program"],
                f"{process['began_by']} to {process['ended_by']}",
                format_count(values["references"]),
                format_count(values["instructions"]),
                _mpki(base.get(component_of(level, "fetch"))),
                _mpki(base.get(component_of(level, "data"))),
            )
        )
    head = (
        "process",
        "program",
        "life",
        "references",
        "instructions",
        "code\nper 1000",
        "data\nper 1000",
    )
    title = "Processes, at 4 KiB pages; the totals above are sums, each image with a TLB of its own"
    return Grid(title, head, tuple(body), left_columns=3, spare_column=2)


def notable_regions(advice: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Advice on the regions where there is something to say; the JSON has the others too."""
    return [
        item
        for item in advice
        if item["scope"] == "region" and item["reason"] not in ("negligible", "no-references")
    ]


def headline(manifest: dict[str, Any], rows: Sequence[Row]) -> str:
    """What was run, how much of it was counted and how long it took."""
    totals = counters(rows)
    several = totals["processes"] > 1
    peak = next(
        (
            row["peak_resident_bytes"]
            for row in whole_program(rows)
            if row["component"] == "memory"
            and row["stream"] == "all"
            and row["page_size"] == BASE_PAGE
        ),
        None,
    )
    parts = [
        f"{format_count(totals['references'])} references",
        f"{format_count(totals['instructions']) if totals['instructions'] else 'no'} instructions",
        *([f"{totals['processes']} processes"] if several else []),
        *([f"{format_bytes(peak)} resident at most"] if peak is not None else []),
        f"{manifest['elapsed_seconds']:.1f} s",
    ]
    return ", ".join(parts)


def _mpki(row: Row | None) -> str:
    return "" if row is None else format_mpki(row["mpki"])
