"""The line that shows a run under way: references and rate, instructions, time, memory."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING

from rich.console import Console
from rich.live import Live
from rich.text import Text

from octavo.units import format_bytes, format_count

if TYPE_CHECKING:
    from octavo._core import Progress

_SHOWN_AFTER_SECONDS = 0.5
"""Short runs show nothing, so that nothing flickers."""


def progress_text(progress: Progress, references_per_second: float) -> str:
    """`1.23 G references (240 M/s), 812 M instructions, 5.1 s, 45 MiB resident`."""
    if not progress["counting"]:
        return f"waiting for the region of interest, {progress['elapsed_seconds']:.1f} s"
    text = (
        f"{format_count(progress['references'])} references "
        f"({format_count(references_per_second)}/s), "
        f"{format_count(progress['instructions'])} instructions, "
        f"{progress['elapsed_seconds']:.1f} s, "
        f"{format_bytes(progress['resident_bytes'])} resident"
    )
    if progress["streams_total"] > 1:
        text += f", {progress['streams_live']} of {progress['streams_total']} processes live"
    return text


class LiveLine:
    """Shows progress while it is entered; does nothing where there is no terminal."""

    def __init__(self, console: Console, *, quiet: bool) -> None:
        self._live: Live | None = None
        if console.is_terminal and not console.is_dumb_terminal and not quiet:
            self._live = Live(console=console, auto_refresh=False, transient=True)
        self._last: tuple[float, int] = (0.0, 0)

    def __enter__(self) -> LiveLine:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, progress: Progress) -> None:
        """Redraws the line."""
        if self._live is None or progress["elapsed_seconds"] < _SHOWN_AFTER_SECONDS:
            return
        if not self._live.is_started:
            self._live.start()
        text = progress_text(progress, self._rate(progress))
        line = Text(text, no_wrap=True, overflow="ellipsis", style="dim")
        self._live.update(line, refresh=True)

    def _rate(self, progress: Progress) -> float:
        """References per second since the line was last drawn."""
        seconds, references = progress["elapsed_seconds"], progress["references"]
        last_seconds, last_references = self._last
        self._last = (seconds, references)
        passed = seconds - last_seconds
        return (references - last_references) / passed if passed > 0 else 0.0
