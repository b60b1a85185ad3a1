"""The output of a command that shows a text: standard output or the file of `--out`, and JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING

from octavo.base.errors import UsageError
from octavo.base.files import STANDARD_OUTPUT, NewFile, failing_with, write_standard_output
from octavo.terminal.console import make_output_console, plain_console

if TYPE_CHECKING:
    from rich.console import Console

    from octavo.cli.options import TextOutput


class Shown:
    """The places that `--out` and `--json` name, checked before any work is done.

    The text goes to standard output unless `--out` names a file or the JSON goes there.
    """

    def __init__(self, asked: TextOutput, inputs: Sequence[str] = ()) -> None:
        """`inputs` are files that are read. Raises UsageError or CannotRun for a place that cannot
        be written.
        """
        check_not_read("--out", asked.out, inputs)
        self._file = None
        if asked.out not in (None, STANDARD_OUTPUT):
            self._file = NewFile(asked.out, force=asked.force, option="--out")
        self.write_json = asked.document_file(beside=asked.out, inputs=inputs)
        """Writes the document, which is made only with `--json`."""
        self._is_silent = asked.json == STANDARD_OUTPUT and self._file is None

    def write_console(self, show: Callable[[Console], None]) -> None:
        """Writes what `show` prints."""
        if self._file is not None:
            text = StringIO()
            show(plain_console(text))
            self._file.write(text.getvalue())
        elif not self._is_silent:
            with failing_with("to standard output"):
                show(make_output_console())

    def write_text(self, pieces: Iterable[str]) -> None:
        """Writes text, piece by piece."""
        if self._file is not None:
            self._file.write("".join(pieces))
        elif not self._is_silent:
            for piece in pieces:
                write_standard_output(piece)


def check_not_read(option: str, name: str | None, inputs: Iterable[str]) -> None:
    """Raises UsageError for an output file that is also an input, even with `--force`."""
    for read in inputs:
        if name and STANDARD_OUTPUT not in (name, read) and _is_one_file(name, read):
            raise UsageError(f"{option}: `{name}` is read; give another file.")


def check_distinct(*, out: str | None, json: str | None) -> None:
    """Raises UsageError where two outputs have one place."""
    if not out or not json:
        return
    if out == json == STANDARD_OUTPUT:
        raise UsageError("--out - and --json - both go to standard output; name a file for one.")
    if STANDARD_OUTPUT not in (out, json) and Path(out).resolve() == Path(json).resolve():
        raise UsageError(f"--out and --json both name `{json}`; give each a file of its own.")


def _is_one_file(name: str, other: str) -> bool:
    try:
        return Path(name).samefile(other)
    except (OSError, ValueError):
        return False
