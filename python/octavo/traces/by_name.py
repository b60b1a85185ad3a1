"""Traces by name: recognising an argument as a trace, opening it, and choosing formats."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from octavo._core import OctavoError, Trace, looks_like_a_trace, trace_formats, trace_overview
from octavo.base.background import interruptible
from octavo.base.elf import ELF_MAGIC
from octavo.base.errors import CannotRun, UsageError, choose
from octavo.base.own_files import TRACE_MAGIC, begins_with, description
from octavo.base.text import quoted

if TYPE_CHECKING:
    from octavo._core import TraceFormat, TraceOverview

STANDARD_STREAM = "-"
SYNTHETIC = "synth:"
SYNTHETIC_FORMAT = "synthetic"
NATIVE = "native"
PARQUET = "parquet"
PARQUET_FORMAT: TraceFormat = {
    "name": PARQUET,
    "about": "columns kind, address, and if known size and thread",
    "writes": True,
    "suffixes": [PARQUET],
}
_PARQUET_MAGIC = b"PAR1"
COMPRESSIONS = (".gz", ".xz", ".bz2", ".zst")


def names_a_trace(command: Sequence[str], format: str | None = None) -> bool:
    """Whether a command line means a trace in place of a program.

    A trace is one word: `-`, a synthetic trace, any word with `--format`, or a file that is no
    program and has the content or the suffix of a trace.
    """
    if len(command) != 1:
        return False
    (word,) = command
    if format is not None or word == STANDARD_STREAM or word.startswith(SYNTHETIC):
        return True
    if "/" not in word and shutil.which(word) is not None:
        return False
    path = Path(word)
    if path.is_fifo():
        # It is no program; bytes that were read here would be lost for its reader.
        return True
    if path.is_file() and _is_program(path):
        return False
    if _formats_of(word):
        return True
    return path.exists() and (begins_with(path, _PARQUET_MAGIC) or looks_like_a_trace(word))


def is_no_program(word: str) -> bool:
    """Whether a word names a file that is not executable."""
    path = Path(word)
    return path.is_file() and not os.access(path, os.X_OK)


def _is_program(path: Path) -> bool:
    """Whether a file begins as an executable does; no trace begins so."""
    return begins_with(path, ELF_MAGIC, b"#!")


def formats() -> list[TraceFormat]:
    """Every format that Octavo reads."""
    return [*trace_formats(), PARQUET_FORMAT]


def _formats_of(name: str) -> list[TraceFormat]:
    bare = _uncompressed(name)
    return [
        known
        for known in formats()
        if any(bare.endswith(f".{suffix}") for suffix in known["suffixes"])
    ]


def _uncompressed(name: str) -> str:
    for suffix in COMPRESSIONS:
        if name.endswith(suffix):
            return name[: -len(suffix)]
    return name


def check_format(name: str) -> str:
    """The name of a format that Octavo reads. Raises UsageError for another."""
    return choose(name, [known["name"] for known in formats()], "format")


def format_to_write(name: str, wanted: str | None) -> str:
    """The format in which to write `name`: `wanted`, or that of the suffix. Raises UsageError."""
    writable = [known["name"] for known in formats() if known["writes"]]
    if wanted is not None:
        if wanted not in writable and any(known["name"] == wanted for known in formats()):
            raise UsageError(f"format `{quoted(wanted)}` is only read, not written.")
        return choose(wanted, writable, "format")
    if name == STANDARD_STREAM:
        streamed = [format for format in writable if format != PARQUET]
        raise UsageError(f"standard output has no suffix: give --to with {_or(streamed)}.")
    named = _formats_of(name)
    fitting = [known["name"] for known in named if known["writes"]]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        raise UsageError(
            f"several formats have the suffix of `{name}`: give --to with {_or(fitting)}."
        )
    if named:
        raise UsageError(f"format `{named[0]['name']}` is only read, not written.")
    raise UsageError(
        f"the suffix of `{name}` is not that of a format: give --to with {_or(writable)}."
    )


def check_name_to_record(name: str) -> None:
    """Refuses a name with the suffix of a format or compression that a recording does not have."""
    named = [known["name"] for known in _formats_of(name) if known["writes"]]
    if name.endswith(COMPRESSIONS) or (named and NATIVE not in named):
        raise UsageError(
            f"a recording is an uncompressed native trace, and `{name}` has the suffix of another "
            "format: name it .oct, and convert it with `octavo convert`."
        )


def _or(names: Sequence[str]) -> str:
    return " or ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else names[0]


def format_among(name: str, format: str | None) -> str | None:
    """The `format` for one of several traces; None for a synthetic trace, which has its own."""
    return None if name.startswith(SYNTHETIC) else format


def check_applies(format: str | None, names: Sequence[str]) -> None:
    """Raises UsageError for a format where all traces are synthetic."""
    if format in (None, SYNTHETIC_FORMAT) or not all(name.startswith(SYNTHETIC) for name in names):
        return
    are = f"`{quoted(names[0])}` is a synthetic trace and has"
    if len(names) > 1:
        are = "the traces are synthetic and have"
    raise UsageError(f"{are} no format to choose: leave out `{format}`.")


def open_trace(
    name: str,
    *,
    format: str | None = None,
    max_expanded_bytes: int | None = None,
) -> Trace:
    """Opens a file, standard input or a synthetic trace. Raises OctavoError."""
    if format is not None:
        check_format(format)
        check_applies(format, [name])
    if name == STANDARD_STREAM and sys.stdin is not None and sys.stdin.isatty():
        raise UsageError("standard input is a terminal; give it a trace: octavo … - < TRACE.")
    if name != STANDARD_STREAM and not name.startswith(SYNTHETIC):
        _check_readable(name)
        if format == PARQUET or (format is None and begins_with(Path(name), _PARQUET_MAGIC)):
            from octavo.traces.parquet import open_parquet

            return open_parquet(name)
    elif format == PARQUET:
        raise UsageError("Parquet is read from a file, not from a pipe.")
    try:
        return interruptible(
            lambda: Trace.open(name, format=format, max_expanded_bytes=max_expanded_bytes)
        )
    except OctavoError as error:
        if name.startswith(SYNTHETIC):
            raise UsageError(str(error)) from None
        is_of_another_kind = format is None and not begins_with(Path(name), TRACE_MAGIC)
        if is_of_another_kind and (kind := description(name)) is not None:
            raise CannotRun(f"`{name}` {kind}.") from None
        raise


def _check_readable(name: str) -> None:
    if not name:
        raise UsageError("the trace's name is empty; name a file, - or synth:….")
    path = Path(name)
    try:
        path.stat()
    except OSError as error:
        raise CannotRun(f"cannot read `{name}`: {error.strerror}.") from None
    if not os.access(path, os.R_OK):
        raise CannotRun(f"cannot read `{name}`: Permission denied.")


def overview_of(name: str) -> TraceOverview | None:
    """A summary of the chunk headers of a native trace; None for any other file."""
    if name == STANDARD_STREAM or not Path(name).is_file():
        return None
    return trace_overview(name)


def manifest_of(name: str, trace: Trace) -> dict[str, Any] | None:
    """The manifest of a trace before its references are read; the last one if it has several."""
    overview = overview_of(name)
    text = overview["manifest"] if overview is not None else None
    return parse_manifest(text or trace.manifest())


def parse_manifest(text: str | None) -> dict[str, Any] | None:
    """A trace's manifest; None where there is none, or where the text is no manifest."""
    if text is None:
        return None
    manifest = json.loads(text)
    if not isinstance(manifest, dict):
        return None
    if not isinstance(manifest.get("about"), dict):
        manifest["about"] = {}
    return manifest
