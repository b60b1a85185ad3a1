"""Progress of calls from Python: a line on a terminal or in a notebook, where the caller passes no
`on_progress`.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any, Literal

OnProgress = Callable[[Any], None]
Kind = Literal["program", "recording", "trace"]

_REDRAWN_AFTER_SECONDS = 0.5
"""Short work shows nothing, and a notebook keeps every line that it is sent."""


def is_notebook() -> bool:
    """Whether a Jupyter kernel runs this process."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    return hasattr(shell, "kernel")


def is_watched() -> bool:
    """Whether a person sees standard error, or the cell of a notebook."""
    return is_notebook() or (sys.stderr is not None and sys.stderr.isatty())


@contextmanager
def watched(on_progress: OnProgress | None, kind: Kind) -> Iterator[OnProgress]:
    """The listener of a call: the caller's, else a live line where a person sees it."""
    if on_progress is not None:
        yield on_progress
    elif is_watched():
        # Imported by name, as that package is above this one.
        with import_module("octavo.terminal.live").live_line(kind) as show:
            yield show
    else:
        yield lambda progress: None


class NotebookLine:
    """A line of text below a cell of a notebook, redrawn in place and cleared at the end."""

    def __init__(self) -> None:
        self._handle: Any = None
        self._drawn = time.monotonic()

    def show(self, text: Callable[[], str]) -> None:
        """Shows the text, unless the last one was shown less than half a second ago."""
        if time.monotonic() < self._drawn + _REDRAWN_AFTER_SECONDS:
            return
        self._drawn = time.monotonic()
        self._draw(text())

    def close(self) -> None:
        """Clears the line."""
        if self._handle is not None:
            self._draw("")

    def _draw(self, text: str) -> None:
        from IPython.display import display

        data = {"text/plain": text}
        if self._handle is None:
            self._handle = display(data, raw=True, display_id=True)  # type: ignore[no-untyped-call]
        else:
            self._handle.update(data, raw=True)
