"""Tables that people read, as plain cells: one view of the rows for the terminal and the report.

Nothing is computed here that is not in the rows or the advice already.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from octavo.analysis.gain import Gain
from octavo.analysis.programs import (
    Owner,
    Program,
    owner_of,
    process_names,
    rows_by_program,
    work_in_words,
)
from octavo.analysis.rows import (
    Row,
    all_memory,
    component_of,
    family_of,
    instructions_by_process,
    machine_component,
    machine_depth,
    peak_memory_by_size,
    stream_counters,
)
from octavo.base.metrics import mpki
from octavo.base.table import Grid
from octavo.base.text import capitalised, short_path
from octavo.base.units import (
    BASE_PAGE,
    format_bytes,
    format_count,
    format_growth,
    format_mpki,
    format_share,
)

ANSWER_LINES = (
    ("To do it:", "settings"),
    ("To undo it:", "undo"),
    ("To measure what it gains:", "verify"),
    ("To simulate what it gains on this machine's core, as it was calibrated:", "simulate"),
)
"""The titles of the lines of an answer, and their keys in its record."""


def whole_program(rows: Sequence[Row]) -> list[Row]:
    """The rows about the whole program, without rows of single processes and regions."""
    return [row for row in rows if "process" not in row and "region" not in row]


def main_process(rows: Sequence[Row]) -> list[Row]:
    """The rows of the process that executed most instructions, as if it had run alone.

    A command is often a wrapper script that starts many small processes beside the program.
    """
    instructions = instructions_by_process(rows)
    if not instructions:
        return list(rows)
    main = max(instructions, key=lambda process: instructions[process])
    own = [row.copy() for row in rows if row.get("process") == main]
    for row in own:
        del row["process"]
    return own


def regions_of(rows: Sequence[Row]) -> Iterator[tuple[tuple[Owner, str, int], list[Row]]]:
    """The rows of each region, by owner, name and lowest address."""
    groups: dict[tuple[Owner, str, int], list[Row]] = {}
    for row in rows:
        if "region" in row:
            groups.setdefault((owner_of(row), row["region"], row["start"]), []).append(row)
    yield from groups.items()


def page_size_grid(rows: Sequence[Row], level: int) -> Grid:
    """Misses of one TLB level, and memory, by page size."""
    whole = whole_program(rows)
    curves = {
        (row["stream"], row["page_size"]): row
        for row in whole
        if row["component"] in (component_of(level, "fetch"), component_of(level, "data"))
    }
    memory = {row["page_size"]: row for row in all_memory(rows)}
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
        head += [f"{name}\nmisses", f"{name} per\n1000 instr."]
        if costs:
            head.append("added\ncycles")
    head += ["memory\ntouched", "growth"]
    title = f"{capitalised(tlb_name(rows, level))}: misses, all memory in one size"
    spare = tuple(at for at, name in enumerate(head) if name.endswith("misses"))
    return Grid(title, tuple(head), tuple(body), spare=spare)


def machine_grid(rows: Sequence[Row], manifest: dict[str, Any]) -> Grid | None:
    """Misses of the modelled machine's TLBs by page size; None without a machine."""
    whole = whole_program(rows)
    depth = machine_depth(whole)
    if depth == 0:
        return None
    curves = {
        (row["component"], row["page_size"]): row
        for row in whole
        if row["component"].startswith("machine.")
    }
    memory = {row["page_size"]: row for row in all_memory(rows)}
    body = []
    for size in sorted({size for _, size in curves}):
        cells = [format_bytes(size)]
        for stream in ("fetch", "data"):
            for level in range(1, depth + 1):
                row = curves.get((machine_component(level, stream), size))
                cells.append("" if row is None else format_mpki(row["mpki"]))
                if level == depth:
                    cells.append("" if row is None else format_count(row["misses"]))
        in_pages = memory.get(size)
        cells += [
            "" if in_pages is None else format_bytes(in_pages["touched_bytes"]),
            "" if in_pages is None else format_growth(in_pages["growth"]),
        ]
        body.append(tuple(cells))
    head = ["page size"]
    for name in ("code", "data"):
        head += [f"{name} L{level}\nper 1000" for level in range(1, depth)]
        head += [f"{name} walks\nper 1000", f"{name}\nwalks"]
    head += ["memory\ntouched", "growth"]
    modelled = manifest["configuration"].get("modelled") or {}
    title = f"{modelled.get('name', 'Machine')}: TLB misses and page walks, all memory in one size"
    # Rates of walks are left out last: the advice rests on them.
    spare = [at for at, name in enumerate(head) if name.endswith("\nwalks")]
    spare += [at for at, name in enumerate(head) if " L" in name]
    return Grid(title, tuple(head), tuple(body), spare=tuple(spare))


def tlb_name(rows: Sequence[Row], level: int) -> str:
    """The TLB of a level in words: `TLB with 64 entries for code and 64 for data`."""
    entries = {
        stream: row["entries"]
        for row in whole_program(rows)
        for stream in ("fetch", "data")
        if row["component"] == component_of(level, stream)
    }
    name = "TLB" if level == 1 else f"level-{level} TLB"
    return f"{name} with {entries['fetch']} entries for code and {entries['data']} for data"


_NOTHING_TO_SAY = ("negligible", "no-references", "no-gain")
"""Reasons of advice that changes nothing for a region."""
_FOLLOWING = ("heap", "anonymous", "shared")
"""Kinds of data that settings of a whole program give larger pages: Linux gives stacks none, and
data of files need settings of their own.
"""


@dataclass
class _RegionLine:
    """A region, or several of one family, at 4 KiB pages."""

    kind: str
    names: dict[str, None] = field(default_factory=dict)
    references: int = 0
    touched_bytes: int | None = None
    misses: int = 0
    mpki: tuple[list[float | None], list[float | None]] = field(default_factory=lambda: ([], []))
    """Rates of code and data; all are per instructions of the owner, so they can be added."""
    sizes: tuple[set[int], set[int]] = field(default_factory=lambda: (set(), set()))
    """Page sizes advised for code and data."""

    def cells(self, owner: str | None, family: str) -> tuple[str, ...]:
        name = next(iter(self.names)) if len(self.names) == 1 else f"{family} ({len(self.names)})"
        return (
            short_path(name) if owner is None else f"{owner}: {short_path(name)}",
            self.kind,
            format_count(self.references),
            "" if self.touched_bytes is None else format_bytes(self.touched_bytes),
            *map(_rate, self.mpki),
            *(", ".join(map(format_bytes, sorted(sizes))) for sizes in self.sizes),
        )


def region_grid(
    rows: Sequence[Row],
    advice: Sequence[dict[str, Any]],
    level: int,
    processes: Sequence[dict[str, Any]],
    programs: Sequence[Program] = (),
) -> Grid:
    """References, memory and last-level misses at 4 KiB of each region, in descending order of
    misses. Regions of one family and one owner are one line. `processes` are those of the manifest.
    """
    advised = {
        (owner_of(item), item["region"], item["start"], item["stream"]): size
        for item, size in _sizes_of_regions(advice)
    }
    lines: dict[tuple[Owner, str, str], _RegionLine] = {}
    for key, members in regions_of(rows_by_program(rows, programs)):
        owner, name, _ = key
        kind = members[0]["region_kind"]
        line = lines.setdefault((owner, family_of(name), kind), _RegionLine(kind))
        line.names[name] = None
        line.references += next(
            row["value"] for row in members if row.get("counter") == "references"
        )
        for row in members:
            is_memory = row["component"] == "memory" and row["stream"] == "all"
            if is_memory and row["page_size"] == BASE_PAGE:
                line.touched_bytes = (line.touched_bytes or 0) + row["touched_bytes"]
        for at, stream in enumerate(("fetch", "data")):
            for row in members:
                missed = row["component"] == component_of(level, stream)
                if missed and row.get("page_size") == BASE_PAGE:
                    line.misses += row["misses"]
                    line.mpki[at].append(row["mpki"])
            line.sizes[at].update(filter(None, [advised.get((*key, stream))]))
    head = (
        "region",
        "kind",
        "references",
        "memory\ntouched",
        "code\nper 1000",
        "data\nper 1000",
        "code\npage",
        "data\npage",
    )
    title = (
        f"Regions, at 4 KiB pages in a {tlb_name(rows, level)}, and the page size advised for "
        "large ones"
    )
    if programs:
        title += "; processes of a program together, the pages that they share counted once"
    by_misses = sorted(lines.items(), key=lambda entry: -entry[1].misses)
    is_one = len({owner for owner, *_ in lines}) == 1
    names = process_names(processes, programs)
    body = tuple(
        line.cells(None if is_one else names[owner], family)
        for (owner, family, _), line in by_misses
    )
    return Grid(title, head, body, left_columns=2, spare=(1, 2))


def _sizes_of_regions(advice: Sequence[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], int]]:
    """The advice on each region, with the size advised for it. That is the program's where the
    region alone gains too little to be advised a size of its own, and where settings that give the
    program larger pages may reach it.
    """
    whole = {item["stream"]: item["page_size"] for item in advice if item["scope"] == "program"}
    for item in advice:
        if item["scope"] == "region" and not _is_unjudged(item):
            may_follow = item["stream"] == "fetch" or item["region_kind"] in _FOLLOWING
            follows = may_follow and item["reason"] in _NOTHING_TO_SAY
            yield item, whole[item["stream"]] if follows else item["page_size"]


def _is_unjudged(item: dict[str, Any]) -> bool:
    """Whether no larger page size was measured."""
    return bool(item["reason"] == "largest-size" and item["page_size"] == BASE_PAGE)


def process_grid(
    rows: Sequence[Row], manifest: dict[str, Any], level: int, programs: Sequence[Program] = ()
) -> Grid | None:
    """Each process image, images of one program as one line; None when there is only one image."""
    processes = manifest["processes"]
    if len(processes) < 2:
        return None
    own: dict[int, list[Row]] = {}
    for row in rows:
        if "process" in row and "region" not in row:
            own.setdefault(row["process"], []).append(row)
    together = {stream: program for program in programs for stream in program["processes"]}
    names = process_names(processes, programs)
    lives: dict[tuple[str, str], dict[str, None]] = {}
    members: dict[tuple[str, str], list[Row]] = {}
    for process in processes:
        stream, path = process["stream"], process["program"]
        program = together.get(stream)
        if program is None:
            key = (str(stream), path)
            members[key] = own.get(stream, [])
        else:
            key = (names[path], path)
            members[key] = [row for row in program["rows"] if "region" not in row]
        life = f"{process['began_by']} to {process['ended_by']}"
        lives.setdefault(key, {})[life] = None
    body = []
    for key, about in members.items():
        values = {row["counter"]: row["value"] for row in about if "counter" in row}
        rates = {
            row["component"]: format_mpki(row["mpki"])
            for row in about
            if row.get("page_size") == BASE_PAGE and "mpki" in row
        }
        first, *others = lives[key]
        body.append(
            (
                key[0],
                short_path(key[1]),
                f"{first}, …" if others else first,
                format_count(values.get("references", 0)),
                format_count(values.get("instructions", 0)),
                *(rates.get(component_of(level, stream), "") for stream in ("fetch", "data")),
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
    title = (
        f"Processes, at 4 KiB pages in a {tlb_name(rows, level)}; misses above are sums, each "
        "image with a TLB of its own, and memory that they share counts once"
    )
    return Grid(title, head, tuple(body), left_columns=3, spare=(2, 3))


def thread_grid(answer: dict[str, Any]) -> Grid | None:
    """The threads of all processes by name; None when there are not several."""
    threads = answer.get("threads", [])
    if not threads:
        return None
    body = []
    for one in threads:
        walks = {(row["stream"], row["page_size"]): row["walks"] for row in one["walks"]}
        rates = (
            format_mpki(mpki(walks[stream, BASE_PAGE], one["instructions"]))
            if (stream, BASE_PAGE) in walks
            else ""
            for stream in ("fetch", "data")
        )
        kernel = one["kernel_seconds"]
        gain = Gain(**one["gain"]) if one["gain"] else None
        body.append(
            (
                one["name"],
                str(one["threads"]),
                format_count(one["instructions"]),
                format_share(one["share"]),
                *rates,
                "" if kernel is None else f"{kernel:.3f} s",
                "" if gain is None else str(gain),
            )
        )
    head = (
        "threads",
        "number",
        "instructions",
        "share",
        "code walks\nper 1000",
        "data walks\nper 1000",
        "system calls",
        "saved of own time",
    )
    title = (
        "Threads of all processes by name: page walks with 4 KiB pages, time in the kernel, and "
        "the share of their own time that fewer page walks would save"
    )
    return Grid(title, head, tuple(body))


def _rate(rates: Sequence[float | None] | None) -> str:
    """The sum of rates with one denominator; n/a where one of them is unknown."""
    if not rates:
        return ""
    known = [rate for rate in rates if rate is not None]
    return format_mpki(sum(known) if len(known) == len(rates) else None)


def notable_regions(advice: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Advice on the regions that are worth a line in the answer; the JSON has all."""
    return [
        item
        for item in advice
        if item["scope"] == "region"
        and item["reason"] not in _NOTHING_TO_SAY
        and not _is_unjudged(item)
    ]


def one_of_each_family(items: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The advice on the first of an owner's regions of one family with the same page size; its text
    gives the number of the others.
    """
    families: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for item in items:
        key = (owner_of(item), family_of(item["region"]), item["stream"], item["page_size"])
        families.setdefault(key, []).append(item)
    found = []
    for (_, family, *_), members in families.items():
        first, others = members[0], len(members) - 1
        if others:
            text = f"{first['text']} The same for {others} more of {family}."
            first = {**first, "text": text}
        found.append(first)
    return found


def headline(manifest: dict[str, Any], rows: Sequence[Row]) -> str:
    """The program, the amount of work counted and the time taken."""
    totals = stream_counters(rows)
    peak = peak_memory_by_size(rows).get(BASE_PAGE)
    resident = [] if peak is None else [f"{format_bytes(peak)} resident at most"]
    return work_in_words(manifest, totals["references"], totals["instructions"], more=resident)
