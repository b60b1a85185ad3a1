"""Conversion of traces between formats."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from octavo._core import VERSION, start_convert
from octavo.base.background import outcome_of
from octavo.base.errors import Interrupted, UsageError, choose
from octavo.base.files import check_new_file, check_standard_output
from octavo.base.text import unicode_document
from octavo.traces.by_name import PARQUET, STANDARD_STREAM, format_to_write, manifest_of, open_trace
from octavo.traces.sampling import Sample

if TYPE_CHECKING:
    from octavo._core import Converted, JobProgress

SCHEMA = "octavo/convert/1"
_UNFINISHED = ".partial"
"""The suffix of the extension's unfinished files."""


LAYOUTS = ("as-traced", "native")


@dataclass(frozen=True)
class Selection:
    """The part of a trace to convert, and the layout of its addresses."""

    process: int | None = None
    """The only process to convert."""
    layout: str = LAYOUTS[0]
    """One of LAYOUTS; `native` moves mappings to where Linux would have placed them."""
    keep_partial: bool = False
    """Whether the part before a fault is kept."""
    sample: Sample | None = None

    def for_core(self) -> dict[str, Any]:
        """The arguments of the extension. Raises UsageError."""
        return {
            "process": self.process,
            "native_layout": choose(self.layout, LAYOUTS, "layout") == "native",
            "keep_partial": self.keep_partial,
            "sample": None if self.sample is None else self.sample.for_core(),
        }


@dataclass(frozen=True)
class Conversion:
    """The result of a conversion."""

    format: str
    converted: Converted
    elapsed_seconds: float

    def document(self, source: str, target: str) -> dict[str, Any]:
        """The document of `octavo convert --json`."""
        return {
            "schema": SCHEMA,
            "from": source,
            "to": target,
            "format": self.format,
            "elapsed_seconds": self.elapsed_seconds,
            **self.converted,
        }


def convert_trace(
    source: str,
    target: str,
    on_progress: Callable[[JobProgress], None],
    selection: Selection = Selection(),
    *,
    read_format: str | None = None,
    write_format: str | None = None,
    force: bool = False,
    max_expanded_bytes: int | None = None,
) -> Conversion:
    """Writes the trace `source` as `target`, whole or not at all. Raises OctavoError."""
    selected = selection.for_core()
    if target != STANDARD_STREAM:
        _check_is_file(target)
    written_as = format_to_write(target, write_format)
    if target != STANDARD_STREAM:
        _check_target(source, target, force=force)
    elif written_as == PARQUET:
        raise UsageError("Parquet is written to a file, not to a pipe.")
    else:
        check_standard_output()
    trace = open_trace(source, format=read_format, max_expanded_bytes=max_expanded_bytes)
    steps = _about(source, selection.layout, manifest_of(source, trace))
    about = json.dumps(unicode_document(steps))
    began = time.monotonic()
    try:
        if written_as == PARQUET:
            from octavo.traces.parquet import write_parquet

            converted = write_parquet(trace, target, on_progress, about, selected, force=force)
        else:
            job = start_convert(
                trace, target, format=written_as, about=about, overwrite=force, **selected
            )
            converted = outcome_of(job, on_progress)
    except ValueError as error:
        raise UsageError(f"{error}.") from None
    except Interrupted as interrupted:
        # Work that was abandoned, such as a wait for a pipe, does not remove its file.
        with suppress(OSError):
            Path(target + _UNFINISHED).unlink(missing_ok=True)
        raise Interrupted(
            interrupted.number, "before the conversion was over; nothing is kept"
        ) from None
    return Conversion(written_as, converted, time.monotonic() - began)


def _check_is_file(target: str) -> None:
    place = Path(target)
    if place.exists() and not place.is_file() and not place.is_dir():
        raise UsageError(
            f"`{target}` is a device or a pipe, which a file cannot replace; - writes to standard "
            "output."
        )


def _check_target(source: str, target: str, *, force: bool) -> None:
    place = Path(target)
    with suppress(OSError):
        if source != STANDARD_STREAM and place.samefile(source):
            raise UsageError(f"`{source}` cannot be converted into itself.")
    check_new_file(target, force=force, option="OUT")


def _about(source: str, layout: str, manifest: dict[str, Any] | None) -> dict[str, Any]:
    """The description in the source's manifest, with an entry for this conversion."""
    about = {} if manifest is None else manifest["about"]
    step = {
        "from": source,
        "at": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "octavo": VERSION,
        "layout": layout,
    }
    return {**about, "converted": [*about.get("converted", []), step]}
