"""The command that simulates the gain of 2 MiB pages on this machine's core, as `octavo calibrate`
measured it.

A simulation knows how far walks overlap with other work in this program, which an expected gain has
to assume.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from octavo.actions.model import own_command
from octavo.base.text import shell_line
from octavo.hardware.machines import HOST, default_host_machine

_WINDOW, _WINDOWS = 1_000_000, 40
"""Instructions of a simulated window, and the number of windows: some ten seconds, and long enough
for the second-level TLB to be refilled in a small part of each."""
_WHOLE = 60_000_000
"""The most instructions that are simulated without windows."""


def simulation_line(options: Mapping[str, Any], program: Sequence[str], instructions: int) -> str:
    """A line of shell; empty where `octavo calibrate` wrote no machine, and where the run had
    windows or another tracer.

    `options` are the configuration in the manifest of a live run of `program`, `instructions` those
    that were counted.
    """
    if "windows" in options or options["tracer"] != "octavo" or not default_host_machine().exists():
        return ""
    words = ["sim", "--machine", HOST, "--timing", "out-of-order", "--design", "base4k,thp"]
    part = _part(options, instructions)
    return shell_line([*own_command(), *words, *part, "--", *program])


def _part(options: Mapping[str, Any], instructions: int) -> list[str]:
    """The options for the same part of the program, in windows where it is long."""
    words = [] if options["follow_children"] else ["--no-follow"]
    if options["layout"] != "native":
        words += ["--layout", options["layout"]]
    if options["between_marks"]:
        words.append("--marks")
    phase, skipped = options.get("phase") or {}, options["skip_instructions"]
    start, duration = phase.get("start_after_seconds", 0.0), phase.get("duration_seconds")
    if start is None:
        words += ["--start-after", "ctl"]
    elif start:
        words += ["--start-after", f"{start:g}s"]
    if duration is not None:
        words += ["--duration", f"{duration:g}s"]
    most = options["max_instructions"]
    if instructions > _WHOLE:
        # Windows and instructions to skip exclude each other.
        if not skipped:
            gap = _two_digits(instructions // _WINDOWS - _WINDOW)
            words += ["--window", f"{_millions(_WINDOW)}/{_millions(gap)}"]
        if skipped or most is not None:
            most = _WINDOWS * _WINDOW
    if skipped:
        words += ["--skip-instructions", str(skipped)]
    if most is not None:
        by_duration = phase.get("ends_by_instructions") and duration is None
        words += ["--duration" if by_duration else "--max-instructions", _millions(most)]
    return words


def _two_digits(number: int) -> int:
    """The number rounded down to two significant digits."""
    unit = int(10 ** max(0, len(str(number)) - 2))
    return number // unit * unit


def _millions(number: int) -> str:
    """`2.9M`"""
    return f"{number / 1e6:.15g}M"
