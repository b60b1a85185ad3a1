"""Samples of a trace, windows of its instructions: parsing of the option, and the error."""

import re
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from octavo.base import units
from octavo.base.errors import UsageError, choose
from octavo.base.text import plural, quoted
from octavo.base.units import counted, format_bytes, format_count, format_mpki

DEFAULT_WINDOW_INSTRUCTIONS = 1_000_000

_SHOWN_PAGE_SIZES = (4096, 16384, 65536, 2 << 20)


@dataclass(frozen=True)
class Sample:
    """The part of a trace to keep."""

    fraction: float
    """The share of instructions, above 0 and below 1."""
    window_instructions: int = DEFAULT_WINDOW_INSTRUCTIONS
    seed: int = 1

    def for_core(self) -> tuple[float, int, int]:
        """Fraction, window and seed, for the extension."""
        return self.fraction, self.window_instructions, self.seed


def parse_sample(text: str) -> Sample:
    """Parses `10%`, `0.1` or `1/10`, with optional `,window=1M,seed=7`. Raises UsageError."""
    share, *settings = (part.strip() for part in text.split(","))
    window, seed = DEFAULT_WINDOW_INSTRUCTIONS, 1
    for setting in settings:
        name, _, value = setting.partition("=")
        name = choose(name, ["window", "seed"], "part of --sample")
        if name == "window":
            window = units.count(value, "--sample")
            if window == 0:
                raise UsageError("--sample: a window has at least one instruction.")
        else:
            seed = units.count(value, "--sample")
    fraction = read_share(share)
    if fraction is None or not 0 < fraction < 1:
        raise UsageError(
            f"--sample `{quoted(share)}`: give the share to keep, above 0 and below 1: 10%, 0.1 or "
            "1/10; ,window=1M and ,seed=7 may follow."
        )
    return Sample(float(fraction), window, seed)


def read_share(text: str) -> Fraction | None:
    """`10%`, `0.1` or `1/10`; None for other texts."""
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*(?:(%)|/\s*([1-9][0-9]*))?", text)
    if match is None:
        return None
    divisor = 100 if match[2] else int(match[3] or 1)
    return Fraction(match[1]) / divisor


def sentences_on(statement: dict[str, Any]) -> list[str]:
    """Sentences about the sample that a trace is, and about its error.

    `statement` is the extension's `Facts.sample`.
    """
    shrunk = [stream for stream in statement.get("streams", []) if stream["instructions"]]
    if not shrunk:
        return []
    stream = max(shrunk, key=lambda stream: stream["instructions"])
    windows = stream["windows"]
    of_windows = f"{windows} {plural(windows, 'window')}"
    lines = [
        f"Kept {100 * stream['kept_instructions'] / stream['instructions']:.3g}% of "
        f"{counted(stream['instructions'], 'instruction')}"
        + (f" of process {stream['stream']}" if len(shrunk) > 1 else "")
        + f", {of_windows} of {format_count(statement['window_instructions'])}."
    ]
    for error in stream["errors"]:
        if error["stream"] == "data" and error["page_size"] in _SHOWN_PAGE_SIZES:
            lines.append(_on_error(error, statement["tlb_entries"], of_windows))
    return lines


def kept_share(statement: dict[str, Any] | None) -> float:
    """The share of a trace's instructions that its sample has; 1 for a trace that is no sample."""
    streams = [] if statement is None else statement.get("streams", [])
    whole = sum(stream["instructions"] for stream in streams)
    return sum(stream["kept_instructions"] for stream in streams) / whole if whole else 1.0


def _on_error(error: dict[str, Any], entries: int, of_windows: str) -> str:
    size = format_bytes(error["page_size"])
    shown = format_mpki(error["sample_mpki"])
    if error["low_mpki"] is None:
        spread = f"there is no interval from {of_windows}"
    else:
        low, high = format_mpki(error["low_mpki"]), format_mpki(error["high_mpki"])
        spread = f"95% of resamplings of its windows lie between {low} and {high}"
    return (
        f"{size} pages, {entries} entries: a study of the sample shows {shown} data misses per "
        f"1000 instructions, of the whole trace {format_mpki(error['whole_mpki'])}; {spread}."
    )
