"""The counted part of a live run: its beginning and its length."""

from __future__ import annotations

import math
import re
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from octavo.base.errors import UsageError
from octavo.base.text import plural, quoted
from octavo.base.units import count, duration, format_duration

if TYPE_CHECKING:
    from octavo._core import Progress

BY_HAND = "ctl"
"""The value of `--start-after` that waits for `octavo ctl PID start`."""
_POLL_SECONDS = 0.02


@dataclass(frozen=True)
class Phase:
    """The part of `--start-after` and `--duration` that is not a number of instructions."""

    start_after_seconds: float = 0.0
    """Time from the program's start; infinite where only `octavo ctl PID start` begins to count."""
    duration_seconds: float | None = None
    """Time from the first counted instruction."""
    ends_by_instructions: bool = False
    """Whether `max_instructions` ends the counted part, and the program as Ctrl-C would."""

    @property
    def has_end(self) -> bool:
        """Whether the run ends with the counted part."""
        return self.ends_by_instructions or self.duration_seconds is not None

    def resolved(self) -> dict[str, Any]:
        """Plain data, for the manifest."""
        by_hand = math.isinf(self.start_after_seconds)
        return {
            "start_after_seconds": None if by_hand else self.start_after_seconds,
            "duration_seconds": self.duration_seconds,
            "ends_by_instructions": self.ends_by_instructions,
        }

    @property
    def uncounted(self) -> str | None:
        """The wait before counting begins, in words; empty without one."""
        if math.isinf(self.start_after_seconds):
            return "time before `octavo ctl PID start`"
        if self.start_after_seconds:
            return f"{format_duration(self.start_after_seconds)} of --start-after"
        return None


def part_text(options: Mapping[str, Any], end: str) -> str | None:
    """The part of a run that `--start-after` and `--duration` chose, in a sentence; None where it
    is all of it. `options` are those of the manifest, and `end` is the reason of the run's end.
    """
    phase = options.get("phase")
    if phase is None:
        return None
    start, length, skipped = "", "", options["skip_instructions"]
    if phase["start_after_seconds"] is None:
        start = "`octavo ctl PID start`"
    elif phase["start_after_seconds"]:
        start = f"{format_duration(phase['start_after_seconds'])} after its start (--start-after)"
    elif skipped:
        start = f"instruction {skipped:,}"
    if end == "limit" and phase["ends_by_instructions"]:
        most = options["max_instructions"]
        length = f"for {most:,} {plural(most, 'instruction')} (--duration)"
    elif end == "limit" and phase["duration_seconds"] is not None:
        length = f"for {format_duration(phase['duration_seconds'])} (--duration)"
    if not start and not length:
        return None
    part = ", ".join(filter(None, (length, f"from {start}" if start else "")))
    return f"PART: the program was counted {part}; counts and advice are about that part."


def read_span(text: str, option: str) -> tuple[float | None, int | None]:
    """`30s` → (30.0, None); `200M` → (None, 200 000 000). Raises UsageError."""
    word = text.strip()
    if re.fullmatch(r"[0-9.]+\s*(?:ms|s|sec|min|h)", word.lower()):
        return duration(word, option), None
    if re.fullmatch(r"[0-9.]+[kKMGT]", word):
        number = count(word)
        if number:
            return None, number
    raise UsageError(
        f"{option} `{quoted(text)}`: give a time with its unit (ms, s, min or h) such as 30s, or a "
        "number of instructions with k, M, G or T such as 200M."
    )


def region_of_interest(
    start_after: str | None, duration_text: str | None, *, skip: int, most: int | None
) -> tuple[int, int | None, Phase | None]:
    """The instructions to skip, the most instructions to count, and the phase, from the options.

    `skip` and `most` are the values of `--skip-instructions` and `--max-instructions`. Raises
    UsageError.
    """
    skipped, counted = skip, most
    if start_after is None and duration_text is None:
        return skipped, counted, None
    start_seconds, seconds, softly = 0.0, None, False
    if start_after == BY_HAND:
        start_seconds = math.inf
    elif start_after is not None:
        after, instructions = read_span(start_after, "--start-after")
        if instructions is not None and skipped:
            raise UsageError(
                "--start-after with instructions and --skip-instructions mean the same: give one."
            )
        start_seconds, skipped = after or 0.0, instructions or skipped
    if duration_text is not None:
        if counted is not None:
            raise UsageError(
                "--duration and --max-instructions exclude each other: the one ends the program "
                "as Ctrl-C does, the other at once."
            )
        seconds, counted = read_span(duration_text, "--duration")
        softly = counted is not None
    return skipped, counted, Phase(start_seconds, seconds, softly)


class Phased(Protocol):
    """The part of a `LiveRun` that has phases."""

    def set_counting(self, counting: bool) -> None:
        """Opens or closes the region of interest, also before the start."""

    def end_softly(self) -> None:
        """Lets the last counted instruction end the region, but not the program."""

    def end_region(self, number: int) -> None:
        """Ends the region for good and sends the program a signal."""


class Timer:
    """Begins and ends the counted part of a run."""

    def __init__(self, phase: Phase, run: Phased) -> None:
        """Prepares a run that has not started yet."""
        self._phase, self._run = phase, run
        self._began: float | None = None
        self._waits = phase.start_after_seconds > 0
        self._ended = False
        if self._waits:
            run.set_counting(False)
        if phase.ends_by_instructions:
            run.end_softly()

    def patience(self, longest: float) -> float:
        """Seconds to wait before the next call of `look`, at most `longest`."""
        return longest if self._ended else min(longest, _POLL_SECONDS)

    def look(self, progress: Progress) -> bool:
        """Begins or ends the counted part if it is time; returns whether it has just ended."""
        now, length = progress["elapsed_seconds"], self._phase.duration_seconds
        if progress["counting"] and self._began is None:
            self._began, self._waits = now, False
        elif self._waits and now >= self._phase.start_after_seconds:
            self._waits = False
            self._run.set_counting(True)
        late = length is not None and self._began is not None and now >= self._began + length
        if self._ended or not (late or progress["over"]):
            return False
        self._ended = True
        self._run.end_region(signal.SIGINT)
        return True
