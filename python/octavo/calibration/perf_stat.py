"""Reads files of `perf stat`: events by name, and the cost of page walks from these.

Both formats are read: that of `perf stat -x,`, and the table for people.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from octavo.base.errors import UsageError
from octavo.base.host import open_regular
from octavo.base.text import quoted

CYCLES = ("cycles", "cpu-cycles", "cpu_clk_unhalted.thread", "ls_not_halted_cyc")
INSTRUCTIONS = ("instructions", "inst_retired.any", "ex_ret_instr")
INTEL_WALKERS = ("dtlb_load_misses", "dtlb_store_misses", "itlb_misses")
_AMD_WALKS = (
    ("ls_l1_d_tlb_miss.all_l2_miss", "ls_tablewalker.dside"),
    (
        "bp_l1_tlb_miss_l2_tlb_miss.all",
        "bp_l1_tlb_miss_l2_tlb_miss",
        "bp_l1_tlb_miss_l2_miss",
        "ls_tablewalker.iside",
    ),
)
"""Walks for data and for code, by AMD's names, the newest first."""
_INTEL_CYCLES = ("walk_pending", "walk_active", "walk_duration")
"""`walk_pending` adds up the cycles of all walks; the others count a cycle once."""
_MOST_BYTES = 1 << 20
"""Limit of the file; `perf stat` writes some lines."""
_LINE = re.compile(
    r"(?P<value>[^,;\t]*)(?P<separator>[,;\t])[^,;\t]*(?P=separator)"
    # A raw event has commas inside its slashes.
    r"(?P<event>[^/,;\t]+(?:/[^/]*/\w*)?)(?:[,;\t]|$)"
)
_TABLE = "Performance counter stats for"
"""The beginning of the table for people."""
_TABLE_LINE = re.compile(
    r"\s*(?P<value>\d{1,3}(?:[,.'\u2019\u00a0\u202f]\d{3})+|\d+|<not \w+>)\s+"
    r"(?P<event>[^\s/]+(?:/[^/]*/\w*)?)\s*(?:[#(].*)?"
)
_EVENT = re.compile(r"(?:\w+/)?(?P<name>[^/:]+)(?:[/:].*)?")


@dataclass(frozen=True)
class WalkCounts:
    """Page walks of one run, from the processor's counters."""

    file: str
    walks_per_1000_instructions: float
    instructions_per_cycle: float
    cycles_per_walk: float | None
    """None where the processor has no such event, or there was no walk."""
    is_least: bool
    """Whether the cycles are a lower bound: cycles with several active walks counted once."""

    def sentence(self) -> str:
        """The counts as one sentence."""
        if self.cycles_per_walk is None:
            cost = "cycles of walks were not counted"
        else:
            least = "at least " if self.is_least else ""
            cost = f"{least}{self.cycles_per_walk:.1f} cycles a walk"
        return (
            f"Counters of {quoted(self.file)}: {cost}, {self.walks_per_1000_instructions:.3f} "
            f"walks per 1000 instructions, {self.instructions_per_cycle:.3f} instructions per "
            "cycle."
        )


def read_walk_counts(option: str, name: str, vendor: str) -> WalkCounts:
    """Reads a file of `perf stat` of this machine. `vendor` is the vendor of its processor, as
    CPUID gives it. Raises UsageError.
    """
    counts = read_counts(option, name)
    if not counts:
        raise UsageError(
            f"{option}: `{name}` has no event that was counted: run `perf stat` where the "
            "processor's counters are available."
        )
    intel = _sum(counts, ((f"{walker}.walk_completed",) for walker in INTEL_WALKERS))
    amd = _sum(counts, _AMD_WALKS)
    for walks, owner, identity in ((intel, "Intel", "GenuineIntel"), (amd, "AMD", "AuthenticAMD")):
        if walks is not None and vendor != identity:
            raise UsageError(
                f"{option}: `{name}` has events of {owner}, but this processor is {vendor}: "
                "give a file that was measured on this machine."
            )
    walks = amd if intel is None else intel
    if walks is None:
        wanted = {
            "GenuineIntel": f"{INTEL_WALKERS[0]}.walk_completed,{INTEL_WALKERS[0]}.walk_pending",
            "AuthenticAMD": _AMD_WALKS[0][0],
        }.get(vendor)
        if wanted is None:
            raise UsageError(f"{option}: no events of page walks are known for {vendor}.")
        raise UsageError(f"{option}: `{name}` has no page walks: measure {wanted} too.")
    cycles, instructions = first_of(counts, CYCLES), first_of(counts, INSTRUCTIONS)
    for found, event in ((cycles, CYCLES[0]), (instructions, INSTRUCTIONS[0])):
        if not found:
            raise UsageError(f"{option}: `{name}` has no {event}: measure `{event}` too.")
    assert cycles
    assert instructions
    # The mean is over all counted walks, so each walker that has a count needs its cycles.
    walkers = [walker for walker in INTEL_WALKERS if f"{walker}.walk_completed" in counts]
    kind = next(
        (
            kind
            for kind in _INTEL_CYCLES
            if walkers and all(f"{walker}.{kind}" in counts for walker in walkers)
        ),
        None,
    )
    walk_cycles = None if kind is None else sum(counts[f"{walker}.{kind}"] for walker in walkers)
    return WalkCounts(
        file=name,
        walks_per_1000_instructions=1000 * walks / instructions,
        instructions_per_cycle=instructions / cycles,
        cycles_per_walk=walk_cycles / walks if walk_cycles is not None and walks else None,
        is_least=kind in _INTEL_CYCLES[1:],
    )


def first_of(counts: dict[str, float], events: Iterable[str]) -> float | None:
    """The count of the first of these events that was counted."""
    return next((counts[event] for event in events if event in counts), None)


def _sum(counts: dict[str, float], parts: Iterable[Iterable[str]]) -> float | None:
    """The sum over the parts that were counted; None where none was."""
    found = [count for part in parts if (count := first_of(counts, part)) is not None]
    return sum(found) if found else None


def read_counts(option: str, name: str) -> dict[str, float]:
    """Values by event name; events that differ only in modifiers or PMU are summed.

    Raises UsageError for a file that `perf stat` did not write.
    """
    counts: dict[str, float] = {}
    for number, value, event in _events(option, name, _text(option, name)):
        if value.startswith("<"):
            # `<not counted>`, `<not supported>`.
            continue
        try:
            counted = float(value)
        except ValueError:
            counted = -1.0
        if not 0 <= counted < float("inf"):
            raise UsageError(
                f"{option}: `{name}`, line {number}: `{quoted(value)}` is not a count."
            )
        counts[event] = counts.get(event, 0.0) + counted
    return counts


def _text(option: str, name: str) -> str:
    try:
        with open_regular(Path(name)) as file:
            text = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise UsageError(f"{option}: cannot read `{name}`: {error.strerror}.") from None
    except ValueError:
        raise UsageError(f"{option}: `{name}` is not UTF-8 text.") from None
    if len(text) > _MOST_BYTES:
        raise UsageError(f"{option}: `{name}` is too long for a file of `perf stat -x,`.")
    return text


def _events(option: str, name: str, text: str) -> Iterator[tuple[int, str, str]]:
    """Line numbers, values and events."""
    is_table = _TABLE in text
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        match = (_TABLE_LINE.fullmatch if is_table else _LINE.match)(line)
        event = None if match is None else _EVENT.fullmatch(match["event"].strip())
        if match is not None and event is not None:
            value = match["value"].strip()
            # A table's counts are integers, in groups of three by the locale.
            yield (
                number,
                re.sub(r"(?<=\d)\D", "", value) if is_table else value,
                event["name"].lower(),
            )
        elif not is_table:
            raise UsageError(
                f"{option}: `{name}`, line {number}, is none of `perf stat -x,`: give a file with "
                "lines such as `1234,,cycles:u,5678,100.00,,`."
            )
