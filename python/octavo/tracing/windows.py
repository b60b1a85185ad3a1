"""Windows of a live run: the parts of an execution that are traced, one after another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from octavo._core import interval_of_rate
from octavo.base.errors import UsageError
from octavo.base.text import plural, quoted
from octavo.base.units import format_bytes, format_count, format_mpki
from octavo.tracing.phase import read_span

if TYPE_CHECKING:
    from octavo._core import ProcessCounts
    from octavo.tracing.manifest import Counted

_FEW_INSTRUCTIONS = 1_000_000
"""In shorter windows, most misses of a second level are those of refilling it."""

Unit = Literal["instructions", "seconds"]
_LIMITS: dict[Unit, tuple[str, str]] = {
    "instructions": ("10k", "9000T"),
    "seconds": ("10ms", "250000h"),
}
"""The least length of a window, and the greatest of a window and of a gap. The tracer checks
windows by time once per time slice of some milliseconds.
"""


@dataclass(frozen=True)
class Windows:
    """Windows of length `traced`, with a `gap` after each."""

    unit: Unit
    traced: float
    gap: float
    warm: int = 0
    """Instructions at the beginning of each window but the first that are not counted."""

    def resolved(self) -> dict[str, Any]:
        """Plain data, for the manifest and the extension."""
        return {"unit": self.unit, "traced": self.traced, "gap": self.gap, "warm": self.warm}


def resolve_windows(window: str | None, warm: int) -> Windows | None:
    """The windows of `--window` and `--window-warm`, if any. Raises UsageError."""
    if window is None:
        if warm:
            raise UsageError("--window-warm needs --window.")
        return None
    windows = _read(window)
    if windows.unit == "instructions" and not 0 <= warm < windows.traced:
        raise UsageError(
            f"--window-warm must be less than the {windows.traced:,.0f} instructions of a window."
        )
    return replace(windows, warm=warm)


def _read(text: str) -> Windows:
    """Parses `20M/1980M` or `0.1s/10s`: the length of a window, and of the gap after it."""
    parts = text.split("/")
    if len(parts) != 2:
        raise UsageError(
            f"--window `{quoted(text)}`: give the length of a window and of the gap after it, such "
            "as 20M/1980M (instructions) or 0.1s/10s."
        )
    traced_seconds, traced = read_span(parts[0], "--window")
    if parts[1].strip() == "0":
        gap_seconds, gap = (0.0, None) if traced is None else (None, 0)
    else:
        gap_seconds, gap = read_span(parts[1], "--window")
    if traced is not None and gap is not None:
        found = Windows("instructions", traced, gap)
    elif traced_seconds is not None and gap_seconds is not None:
        found = Windows("seconds", traced_seconds, gap_seconds)
    else:
        raise UsageError(
            f"--window `{quoted(text)}`: give both lengths in instructions, or both as times."
        )
    shown = _LIMITS[found.unit]
    least, most = (sum(part or 0 for part in read_span(limit, "--window")) for limit in shown)
    if not least <= found.traced <= most or found.gap > most:
        unit = " instructions" if found.unit == "instructions" else ""
        raise UsageError(
            f"--window `{quoted(text)}`: a window must have from {shown[0]} to {shown[1]}{unit}, "
            f"and the gap at most {shown[1]}."
        )
    return found


def windows_of(result: Counted, windows: Windows | None) -> dict[str, Any] | None:
    """The windows of a result, for the manifest; None without windows.

    `windows` are periodic ones, with which each count has an interval; None for windows that
    `octavo ctl` began and ended.
    """
    processes = [process for process in result["processes"] if process.get("windows_total")]
    if not processes:
        return None
    executed = [process["executed_instructions"] for process in processes]
    return {
        "periodic": None if windows is None else windows.resolved(),
        "windows": sum(process["windows_total"] for process in processes),
        "instructions": sum(process["instructions"] for process in processes),
        "references": sum(process["references"] for process in processes),
        "executed_instructions": _sum_of_known(executed),
        "processes": [
            {
                "stream": process["stream"],
                "windows": process["windows_total"],
                "executed_instructions": process["executed_instructions"],
                "kept": [
                    {key: value for key, value in window.items() if key != "counts"}
                    for window in process["windows"]
                ],
            }
            for process in processes
        ],
        "intervals": [] if windows is None else _intervals(processes),
    }


def _sum_of_known(numbers: Sequence[int | None]) -> int | None:
    known = [number for number in numbers if number is not None]
    return sum(known) if len(known) == len(numbers) else None


def _intervals(processes: Sequence[ProcessCounts]) -> list[dict[str, Any]]:
    """For each count of windows, its rate per 1000 instructions with an interval."""
    labels = next((process.get("window_counts") for process in processes), None) or []
    windows = [window for process in processes for window in process["windows"]]
    found = []
    for at, label in enumerate(labels):
        counts = [(window["counts"][at], window["instructions"]) for window in windows]
        instructions = sum(instructions for _, instructions in counts)
        if not instructions:
            continue
        interval = interval_of_rate(counts)
        found.append(
            {
                **label,
                "misses_per_kilo_instruction": 1000 * sum(n for n, _ in counts) / instructions,
                "low": None if interval is None else interval[0],
                "high": None if interval is None else interval[1],
            }
        )
    return found


def windows_warning(found: dict[str, Any]) -> str:
    """The share that was traced and an interval, in a sentence."""
    number, executed = found["windows"], found["executed_instructions"]
    whole = "" if executed is None else f" of {format_count(executed)}"
    text = (
        f"WINDOWS: {number} {plural(number, 'window')} of the execution "
        f"{'were' if number != 1 else 'was'} traced, "
    )
    counted = f"{format_count(found['instructions'])}{whole} instructions"
    warm = found["periodic"]["warm"] if found["periodic"] else 0
    if warm:
        text += (
            f"and {counted} count: the first {format_count(warm)} of each window but the first one "
            "warm the TLBs"
        )
    else:
        text += (
            f"{counted}; counts are those of windows, at whose beginning TLBs are as the window "
            "before left them"
        )
    data = [one for one in found["intervals"] if one["stream"] == "data" and one["low"] is not None]
    if data:
        # The last level of the machine, or of the plain TLB where none is modelled.
        smallest = min(one["page_size"] for one in data)
        shown = max(
            (one for one in data if one["page_size"] == smallest),
            key=lambda one: (one["modelled"], one["level"]),
        )
        text += (
            f"; {_name_of(shown)} per 1000 instructions at {format_bytes(smallest)}: "
            f"{format_mpki(shown['misses_per_kilo_instruction'])}, 95% interval "
            f"{format_mpki(shown['low'])} to {format_mpki(shown['high'])}"
        )
    mean = _instructions_each(found)
    if found["periodic"] and found["periodic"]["unit"] == "seconds" and mean < _FEW_INSTRUCTIONS:
        text += (
            f". A window has {format_count(round(mean))} instructions on average, too few for "
            "these misses: translating the program's code again may take most of its time, so that "
            "longer windows (--window) have many more"
        )
    return f"{text}."


def _instructions_each(found: dict[str, Any]) -> float:
    """The mean instructions of a window, of the process with most instructions in windows."""
    counts = [[one["instructions"] for one in process["kept"]] for process in found["processes"]]
    most: list[int] = max(counts, key=sum)
    return sum(most) / max(len(most), 1)


def traced_share(found: dict[str, Any], kept: float = 1.0) -> float:
    """The share of the execution in windows: an upper bound for windows by time, in which the
    program runs more slowly than in gaps. It is all of the execution for windows that `octavo ctl`
    began and ended. `kept` is the share of the trace in a sample.
    """
    periodic, executed = found["periodic"], found["executed_instructions"]
    if periodic is None:
        return kept
    if executed:
        # These instructions are already those of the sample.
        return float(found["instructions"] / executed)
    return float(kept * periodic["traced"] / (periodic["traced"] + periodic["gap"]))


def _name_of(shown: dict[str, Any]) -> str:
    modelled = f"level {shown['level']}" if shown["modelled"] else "the data TLB"
    return f"data misses of {modelled}"
