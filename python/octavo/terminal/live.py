"""The line that shows work in progress: references and rate, elapsed time, remaining time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any

from octavo.analysis.programs import short_names
from octavo.base.progress import Kind, NotebookLine, OnProgress, is_notebook
from octavo.base.text import printable
from octavo.base.units import counted, format_bytes, format_count, format_duration
from octavo.terminal.console import make_console, say
from octavo.tracing.manifest import signal_name

if TYPE_CHECKING:
    from rich.console import Console
    from rich.live import Live

    from octavo._core import JobProgress, Progress, RecordProgress, TraceProgress

_SHOWN_AFTER_SECONDS = 0.5
"""Shorter runs show no line, so that nothing flickers."""
_LEFT_AFTER_SHARE = 0.005
"""The share of the work from which on the remaining time is estimated."""

_NAMED = 3
"""Limit of programs that the line names."""

LineText = Callable[[Any, float], str]
"""A function that makes the line from some kind of progress and the references per second."""


def progress_text(progress: Progress, references_per_second: float) -> str:
    """`redis-server: counting, 1.23 G references (240 M/s), 812 M instructions, 5.1 s, 45 MiB
    resident, 2 of 3 processes live`.
    """
    text = f"{_phase(progress)}, {_spent(progress, references_per_second)}"
    # Some engines do not count resident memory.
    if progress["resident_bytes"]:
        text += f", {resident_text(progress)}"
    return text + _processes(progress)


def resident_text(progress: Mapping[str, Any]) -> str:
    """`45 MiB resident`; of several processes it is their sum."""
    text = f"{format_bytes(progress['resident_bytes'])} resident"
    if progress["streams_live"] < 2:
        return text
    return f"{text} (memory that processes share counts for each)"


def recording_text(progress: RecordProgress, references_per_second: float) -> str:
    """`redis-server: recording, 1.23 G references (240 M/s), 812 M instructions, 5.1 s, 45 MiB
    written, 2 of 3 processes live`.
    """
    text = f"{_phase(progress, 'recording')}, {_spent(progress, references_per_second)}"
    return f"{text}, {format_bytes(progress['bytes'])} written{_processes(progress)}"


def trace_text(progress: TraceProgress | JobProgress, references_per_second: float) -> str:
    """`42%, 1.23 G references (240 M/s), 812 M instructions, 5.1 s, about 7 s left`."""
    text = _spent(progress, references_per_second)
    if not progress["total"]:
        return text
    share = min(progress["done"] / progress["total"], 1.0)
    text = f"{share:.0%}, {text}"
    if share < _LEFT_AFTER_SHARE:
        return text
    seconds_left = progress["elapsed_seconds"] * (1 - share) / share
    return f"{text}, about {format_duration(seconds_left)} left"


_TEXTS: dict[Kind, LineText] = {
    "program": progress_text,
    "recording": recording_text,
    "trace": trace_text,
}


def _phase(progress: Progress, active: str = "counting") -> str:
    """The programs of the live processes, and whether they are being counted."""
    if progress["over"]:
        phase = "region of interest over"
    elif progress["counting"]:
        phase = active
    elif progress["references"]:
        phase = f"not {active}"
    else:
        phase = "waiting for the region of interest"
    names = program_names(progress["programs"])
    return f"{names}: {phase}" if names else phase


def program_names(paths: Sequence[str]) -> str:
    """`postgres (12 processes), sh`: a few of the programs, most processes first."""
    counts, short = Counter(paths).most_common(), short_names(paths)
    names = [
        short[path] if number == 1 else f"{short[path]} ({number} processes)"
        for path, number in counts[:_NAMED]
    ]
    if len(counts) > _NAMED:
        names.append("…")
    return printable(", ".join(names))


def _spent(progress: Progress | JobProgress, references_per_second: float) -> str:
    """The counts so far, if there are any, and the elapsed time."""
    elapsed = f"{progress['elapsed_seconds']:.1f} s"
    if not progress["references"]:
        return elapsed
    return (
        f"{counted(progress['references'], 'reference')} "
        f"({format_count(references_per_second)}/s), "
        f"{counted(progress['instructions'], 'instruction')}, {elapsed}"
    )


def _processes(progress: Progress) -> str:
    if progress["processes_total"] < 2:
        return ""
    return f", {progress['streams_live']} of {progress['processes_total']} processes live"


@contextmanager
def live_line(kind: Kind) -> Iterator[OnProgress]:
    """The line of a call from Python, on standard error or in a notebook."""
    text = _TEXTS[kind]
    if not is_notebook():
        with LiveLine(text=text) as terminal:
            yield terminal.show
        return
    line = NotebookLine()

    def show(progress: Progress | JobProgress) -> None:
        seconds = progress["elapsed_seconds"]
        rate = progress["references"] / seconds if seconds else 0.0
        line.show(lambda: text(progress, rate))

    try:
        yield show
    finally:
        line.close()


class LiveLine:
    """Shows progress while it is entered; does nothing where there is no terminal.

    The console, if none is given, is made when there is something to show.
    """

    def __init__(
        self,
        console: Console | None = None,
        *,
        quiet: bool = False,
        text: LineText = progress_text,
    ) -> None:
        self._given = console
        self._live: Live | None = None
        self._is_quiet = quiet
        self._last: tuple[float, int] = (0.0, 0)
        self._text = text

    def __enter__(self) -> LiveLine:
        return self

    def __exit__(self, *ended: object) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, progress: Progress | JobProgress) -> None:
        """Redraws the line; prints a sentence once where the work was interrupted."""
        if self._is_quiet:
            return
        number = progress.get("interrupted_by")
        if number is not None:
            # Without counted references there is no result.
            if progress["references"]:
                self._say_interrupted(number)
        elif progress["elapsed_seconds"] >= _SHOWN_AFTER_SECONDS:
            self._draw(progress)

    @cached_property
    def _console(self) -> Console:
        return make_console() if self._given is None else self._given

    def _say_interrupted(self, number: int) -> None:
        if self._live is not None:
            self._live.stop()
        name = signal_name(number)
        say(self._console, f"Interrupted by {name}: finishing with what ran until now.", "dim")
        self._is_quiet = True

    def _draw(self, progress: Progress | JobProgress) -> None:
        if not self._console.is_terminal or self._console.is_dumb_terminal:
            return
        from rich.live import Live
        from rich.text import Text

        if self._live is None:
            self._live = Live(console=self._console, auto_refresh=False, transient=True)
            self._live.start()
        text = self._text(progress, self._rate(progress))
        line = Text(text, no_wrap=True, overflow="ellipsis", style="dim")
        self._live.update(line, refresh=True)

    def _rate(self, progress: Progress | JobProgress) -> float:
        """References per second since the line was last drawn."""
        seconds, references = progress["elapsed_seconds"], progress["references"]
        last_seconds, last_references = self._last
        self._last = (seconds, references)
        passed = seconds - last_seconds
        return (references - last_references) / passed if passed > 0 else 0.0
