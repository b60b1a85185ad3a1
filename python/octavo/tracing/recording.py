"""`octavo.record`: runs a program and writes a trace of it; `octavo record` uses it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import octavo._core as _core
from octavo._core import OctavoError
from octavo.base.arguments import with_checked_names
from octavo.base.background import from_python
from octavo.base.errors import CannotRun, Interrupted, UsageError
from octavo.base.files import check_new_file
from octavo.base.host import describe_host, versions
from octavo.base.progress import watched
from octavo.base.table import Shown
from octavo.base.text import unicode_document
from octavo.base.units import counted, format_bytes
from octavo.traces.by_name import check_name_to_record
from octavo.traces.survey import process_count
from octavo.tracing.manifest import exit_status, partial_reason
from octavo.tracing.phase import Timer
from octavo.tracing.program import P, find_program, with_started_name, words_to_start
from octavo.tracing.scope import Scope, resolve_scope
from octavo.tracing.session import drive, ended_while_closed
from octavo.tracing.valgrind import find_valgrind, first_line

if TYPE_CHECKING:
    from octavo._core import RecordEnd, RecordProgress

SCHEMA = "octavo/record/1"


@dataclass(frozen=True, repr=False)
class RecordedTrace(Shown):
    """A recorded trace in its file, as plain data."""

    path: str
    about: dict[str, Any]
    """The trace's manifest: the command, the host, how the program ended."""
    bytes: int
    references: int
    instructions: int
    processes: int
    """Process images, as `octavo info` lists them: an exec begins another one."""
    elapsed_seconds: float
    interrupted_by: int | None = None
    """The signal that ended the recording before the program's own end, if one did."""
    processes_started: int = 1
    """Processes, of which an exec begins none."""

    @property
    def status(self) -> int:
        """The exit status that stands for how the program ended."""
        return int(self.about["exit"]["status"])

    @property
    def bytes_per_reference(self) -> float:
        """File bytes per reference; there is at least one reference."""
        return self.bytes / self.references

    def headline(self) -> str:
        """The file, and the amount of references and instructions."""
        return (
            f"{self.path}: {counted(self.references, 'reference')}, "
            f"{counted(self.instructions, 'instruction')}, {format_bytes(self.bytes)}"
        )

    def document(self) -> dict[str, Any]:
        """The document of `--json`."""
        return {
            "schema": SCHEMA,
            "trace": self.path,
            "bytes": self.bytes,
            "references": self.references,
            "instructions": self.instructions,
            "processes": self.processes,
            "bytes_per_reference": self.bytes_per_reference,
            "elapsed_seconds": self.elapsed_seconds,
            "about": self.about,
        }


@with_checked_names()
def record(
    command: Sequence[str],
    path: str | Path,
    *,
    tracer: str = "octavo",
    follow_children: bool = True,
    skip_instructions: int = 0,
    max_instructions: int | None = None,
    between_marks: bool = False,
    start_after: str | None = None,
    duration: str | None = None,
    window: str | None = None,
    allocations: bool = False,
    force: bool = False,
    on_progress: Callable[[RecordProgress], None] | None = None,
) -> RecordedTrace:
    """Runs a program under the tracer and keeps all its references in the file `path`.

    >>> octavo.record(["gzip", "-k", "file"], "gzip.oct")  # doctest: +SKIP

    An existing file is overwritten with `force` only. The program's standard streams are ours.
    Signals are as of `octavo.run`; the trace up to there is whole. Raises OctavoError with one
    clear sentence.
    """
    scope = resolve_scope(
        tracer=tracer,
        follow_children=follow_children,
        skip_instructions=skip_instructions,
        max_instructions=max_instructions,
        between_marks=between_marks,
        start_after=start_after,
        duration=duration,
        window=window,
        allocations=allocations,
    )

    def work() -> RecordedTrace:
        with watched(on_progress, "recording") as show:
            return execute_recording(command, str(path), Scope(**scope), show, force=force)

    return from_python(work)


def execute_recording(
    command: Sequence[str],
    path: str,
    scope: Scope,
    on_progress: Callable[[RecordProgress], None],
    *,
    force: bool = False,
) -> RecordedTrace:
    """Records with a resolved scope."""
    if not command:
        raise UsageError(
            "no program given; write it after the options: octavo record -o FILE -- PROGRAM."
        )
    program = find_program(command[0])
    check_name_to_record(path)
    check_new_file(path, force=force, option="--out")
    valgrind = find_valgrind(scope.tracer)
    options = scope.recorded()
    about = {
        "command": list(command),
        "program": str(program),
        "image": str(program.resolve()),
        "directory": str(Path.cwd()),
        "started_at": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "options": {**options, **scope.phased()},
        "versions": versions(valgrind.version),
        "host": describe_host(),
    }
    try:
        traced = _core.TracedProgram(
            words_to_start(command, program),
            valgrind=str(valgrind.launcher),
            tool_dir=str(valgrind.tool_dir),
            **options,
        )
        said = json.dumps(unicode_document(about))
        recording = _core.Recording(traced, path=path, overwrite=force, about=said)
        return _recorded(recording, path, scope, about, on_progress)
    except ValueError as error:
        raise UsageError(f"{error}.") from None


def _recorded(
    recording: _core.Recording,
    path: str,
    scope: Scope,
    about: dict[str, Any],
    on_progress: Callable[[RecordProgress], None],
) -> RecordedTrace:
    failed: list[str] = []

    def named(progress: P) -> P:
        return with_started_name(progress, Path(about["program"]))

    def watch(progress: RecordProgress) -> None:
        """Stops the program once its references cannot be written."""
        if progress["failed"] is not None and not failed:
            failed.append(progress["failed"])
            recording.stop()
        on_progress(named(progress))

    def snapshot() -> dict[str, Any]:
        raise CannotRun(
            "octavo record has no snapshots: its trace holds what was written until now, and every "
            f"command reads that as a trace that is cut off: octavo run {path}."
        )

    is_ours = False

    def control(pid: int) -> AbstractContextManager[None]:
        from octavo.control.server import Control, serving

        nonlocal is_ours
        is_ours = True
        return serving(Control(recording, about["command"], pid, snapshot, named), pid)

    whole_about: dict[str, Any] = {}

    def finish(end: RecordEnd) -> str:
        whole_about.update(about, **_end_facts(end, scope, interrupted_by, was_closed=was_closed))
        return json.dumps(unicode_document(whole_about))

    interrupted_by: int | None = None
    was_closed = False
    timer = None if scope.phase is None else Timer(scope.phase, recording)
    try:
        interrupted_by = drive(recording, watch, timer=timer, control=control)
        was_closed = ended_while_closed(recording)
        recorded = recording.result(finish)
        if not recorded["references"]:
            said = first_line(recorded["exit"]["diagnostics"]) or "the tracer saw nothing"
            why = scope.why_nothing(said)
            raise CannotRun(f"the program ran, but no reference was recorded: {why}.")
    except OctavoError as error:
        said = failed[0] if failed else str(error)
        if not is_ours or not _holds_anything(path):
            # Only a file of this recording is removed, never a device or a pipe.
            if is_ours and Path(path).is_file():
                Path(path).unlink(missing_ok=True)
            if interrupted_by is not None and not failed:
                raise Interrupted(interrupted_by, "before anything was recorded") from None
            raise CannotRun(f"{said.rstrip('.')}.") from None
        raise CannotRun(
            f"{said.rstrip('.')}; the trace up to there is kept, and cut off."
        ) from None
    return RecordedTrace(
        path=path,
        about=whole_about,
        bytes=recorded["bytes"],
        references=recorded["references"],
        instructions=recorded["instructions"],
        processes=len(recorded["streams"]),
        processes_started=process_count(recorded["streams"]),
        elapsed_seconds=recorded["elapsed_seconds"],
        interrupted_by=interrupted_by,
    )


def _end_facts(
    end: RecordEnd, scope: Scope, interrupted_by: int | None, *, was_closed: bool
) -> dict[str, Any]:
    """The manifest's fields that are known once the program has ended."""
    ended, untraced = end["exit"], end["untraced_processes"]
    reason = partial_reason(
        ended,
        end["streams"],
        untraced,
        interrupted_by,
        by_request=scope.ends_by_phase,
        was_closed=was_closed,
    )
    return {
        "exit": {**ended, "status": exit_status(ended, interrupted_by)},
        "partial_reason": reason,
        "elapsed_seconds": end["elapsed_seconds"],
        "untraced_processes": untraced,
    }


def _holds_anything(path: str) -> bool:
    """Whether the written part of the trace has references."""
    if not Path(path).is_file():
        return False
    with suppress(OctavoError):
        overview = _core.trace_overview(path)
        return overview is not None and any(s["references"] for s in overview["streams"])
    return False
