"""Counters that a user measured: the output of `perf stat -x,`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from octavo.base.errors import UsageError
from octavo.base.host import open_regular
from octavo.base.text import quoted

_MOST_BYTES = 1 << 20
"""A file has some lines; what is larger is something else."""
_CYCLES = ("cycles", "cpu-cycles", "cpu_clk_unhalted.thread")
_INSTRUCTIONS = ("instructions", "inst_retired.any")
_WALKERS = ("dtlb_load_misses", "dtlb_store_misses", "itlb_misses")
_WALK_CYCLES = ("walk_active", "walk_pending", "walk_duration")
"""Intel's names, the newest first; what is there of loads is taken of the others, too."""
_LINE = re.compile(
    r"(?P<value>[^,;\t]*)(?P<separator>[,;\t])[^,;\t]*(?P=separator)"
    # A raw event has commas inside its slashes.
    r"(?P<event>[^/,;\t]+(?:/[^/]*/\w*)?)(?:[,;\t]|$)"
)
_EVENT = re.compile(r"(?:\w+/)?(?P<name>[^/:]+)(?:[/:].*)?")


@dataclass(frozen=True)
class PerfStat:
    """Counters and time of one run."""

    file: str
    cycles: float
    walk_cycles: float
    """Cycles in which a page walker was active."""
    instructions: float | None

    def resolved(self) -> dict[str, Any]:
        """Plain data, for the manifest."""
        return {
            "file": self.file,
            "cycles": self.cycles,
            "walk_cycles": self.walk_cycles,
            "instructions": self.instructions,
        }


def read_perf_stat(option: str, name: str) -> PerfStat:
    """Reads what `perf stat -x, -o FILE` wrote. Raises UsageError."""
    counts = _counts(option, name, _text(option, name))

    def first(events: Iterable[str]) -> float | None:
        return next((counts[event] for event in events if event in counts), None)

    cycles = first(_CYCLES)
    if cycles is None:
        raise UsageError(f"{option} `{name}` has no cycles: measure `{_CYCLES[0]}` too.")
    kind = next((kind for kind in _WALK_CYCLES if f"{_WALKERS[0]}.{kind}" in counts), None)
    if kind is None:
        events = ",".join(f"{walker}.{_WALK_CYCLES[0]}" for walker in _WALKERS)
        raise UsageError(
            f"{option} `{name}` has no cycles of page walks: measure {events} too "
            f"(or .{', .'.join(_WALK_CYCLES[1:])})."
        )
    walk_cycles = sum(counts.get(f"{walker}.{kind}", 0.0) for walker in _WALKERS)
    return PerfStat(name, cycles, walk_cycles, first(_INSTRUCTIONS))


def _text(option: str, name: str) -> str:
    try:
        with open_regular(Path(name)) as file:
            text = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise UsageError(f"{option}: cannot read `{name}`: {error.strerror}.") from None
    except ValueError:
        raise UsageError(f"{option}: `{name}` is not UTF-8 text.") from None
    if len(text) > _MOST_BYTES:
        raise UsageError(f"{option}: `{name}` is too long for what `perf stat -x,` writes.")
    return text


def _counts(option: str, name: str, text: str) -> dict[str, float]:
    """Values by event, without modifiers and units of the processor, which are added up."""
    counts: dict[str, float] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        match = _LINE.match(line)
        event = None if match is None else _EVENT.fullmatch(match["event"].strip())
        if match is None or event is None:
            raise UsageError(
                f"{option}: `{name}`, line {number}, is none of `perf stat -x,`: give a file with "
                "lines such as `1234,,cycles:u,5678,100.00,,`."
            )
        value = match["value"].strip()
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
        key = event["name"].lower()
        counts[key] = counts.get(key, 0.0) + counted
    return counts
