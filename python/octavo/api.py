"""`octavo.run`: one call from a command line, or a trace, to a result. `octavo run` uses it too."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from octavo._core import LiveRun, OctavoError
from octavo.configuration import Configuration, configure
from octavo.diagnosis import first_line
from octavo.errors import CannotRun, Interrupted, UsageError
from octavo.huge_pages import read_huge_pages
from octavo.manifest import Circumstances, build_manifest
from octavo.program import find_program
from octavo.replay import execute_trace
from octavo.result import RunResult, advice_records
from octavo.rows import rows_of
from octavo.session import Run, drive
from octavo.traces import check_format, names_a_trace
from octavo.valgrind import check_temporary_directory, find_tool_dir, find_valgrind

if TYPE_CHECKING:
    from octavo._core import Progress, Result

MakeRun = Callable[..., Run]


def run(
    command: Sequence[str] | str,
    *,
    format: str | None = None,
    page_sizes: Sequence[int] | None = None,
    entries: tuple[int, int] | None = None,
    tlb: str | None = None,
    layout: str = "native",
    tracer: str | None = None,
    follow_children: bool | None = None,
    skip_instructions: int = 0,
    max_instructions: int | None = None,
    between_marks: bool = False,
    on_progress: Callable[[Progress], None] | None = None,
) -> RunResult:
    """Traces a program, or reads a trace, and counts TLB misses and memory at every page size.

    >>> result = octavo.run(["gzip", "-k", "file"], page_sizes=[4096, 65536])  # doctest: +SKIP
    >>> result = octavo.run("gzip.oct")  # doctest: +SKIP

    What is a trace and what a program is told as on the command line; `format` names the format
    of a trace that does not tell it by itself.
    `page_sizes` are bytes (default: every power of two from 4 KiB to 2 MiB; 4 KiB is always
    added). `entries` are those of the instruction and of the data TLB; `tlb` names a preset
    instead. The program's standard streams are ours. Raises OctavoError with one clear sentence.
    """
    words = [command] if isinstance(command, str) else command
    is_trace = means_a_trace(words, format=format, tracer=tracer, follow_children=follow_children)
    configuration = configure(
        sizes=page_sizes,
        entries=entries,
        tlb=tlb,
        layout=layout,
        tracer=tracer or "octavo",
        follow_children=follow_children is not False,
        skip_instructions=skip_instructions,
        max_instructions=max_instructions,
        between_marks=between_marks,
    )
    show = on_progress or (lambda progress: None)
    if is_trace:
        return execute_trace(words[0], configuration, show, format)
    return execute(words, configuration, show)


def means_a_trace(
    command: Sequence[str],
    *,
    format: str | None,
    tracer: str | None,
    follow_children: bool | None,
) -> bool:
    """Whether `command` is a trace; refuses options that are not for what it is."""
    if not names_a_trace(command, format):
        if format is not None:
            raise UsageError("--format is for a trace; give that alone: octavo run TRACE.")
        if names_a_trace(command[:1]):
            raise UsageError(f"`{command[0]}` is a trace; give it alone, and options before it.")
        return False
    if format is not None:
        check_format(format)
    for option, given in (("--tracer", tracer), ("--follow or --no-follow", follow_children)):
        if given is not None:
            raise UsageError(
                f"{option} is for a program, and `{command[0]}` is a trace: what it holds was "
                "decided when it was made."
            )
    return True


def execute(
    command: Sequence[str],
    configuration: Configuration,
    on_progress: Callable[[Progress], None],
    make_run: MakeRun = LiveRun,
) -> RunResult:
    """Runs a resolved configuration; `make_run` lets tests put their own tracer in place."""
    if not command:
        raise UsageError("no program given; write it after the options: octavo run -- PROGRAM.")
    program = find_program(command[0])
    valgrind = find_valgrind()
    check_temporary_directory()
    tool_dir = find_tool_dir() if configuration.tracer == "octavo" else Path()
    started_at = datetime.now(timezone.utc)
    session_dir = tempfile.mkdtemp(prefix="octavo-")
    try:
        live = make_run(
            [*command],
            valgrind=str(valgrind.launcher),
            tool_dir=str(tool_dir),
            session_dir=session_dir,
            scratch_dir=tempfile.gettempdir(),
            **_core_options(configuration),
        )
        interrupted_by = drive(live, on_progress)
        result = _counted_result(live, configuration, interrupted_by)
    except ValueError as error:
        raise UsageError(f"{error}.") from None
    finally:
        shutil.rmtree(session_dir, ignore_errors=True)
    circumstances = Circumstances(
        command=command,
        program=program,
        directory=str(Path.cwd()),
        started_at=started_at,
        valgrind_version=valgrind.version,
        configuration=configuration,
        interrupted_by=interrupted_by,
    )
    rows = rows_of(result, configuration.machine)
    return RunResult(
        manifest=build_manifest(result, circumstances),
        rows=rows,
        advice=advice_records(rows, configuration.machine, read_huge_pages(), command),
    )


def _core_options(configuration: Configuration) -> dict[str, Any]:
    return {
        "tracer": configuration.tracer,
        "page_sizes": list(configuration.page_sizes),
        "levels": configuration.machine.core_levels(),
        "layout": configuration.layout,
        "follow_children": configuration.follow_children,
        "skip_instructions": configuration.skip_instructions,
        "max_instructions": configuration.max_instructions,
        "between_marks": configuration.between_marks,
    }


def _counted_result(live: Run, configuration: Configuration, interrupted_by: int | None) -> Result:
    try:
        result = live.result()
        _check_counted(result, configuration)
    except OctavoError:
        if interrupted_by is not None:
            raise Interrupted(interrupted_by) from None
        raise
    return result


def _check_counted(result: Result, configuration: Configuration) -> None:
    """Zero references are no result."""
    if any(process["references"] for process in result["processes"]):
        return
    if configuration.between_marks:
        why = "it met no begin mark (--marks wants the marks of octavo.h)"
    elif configuration.skip_instructions:
        why = f"it ended within the {configuration.skip_instructions} instructions to skip"
    else:
        why = first_line(result["exit"]["diagnostics"]) or "the tracer saw nothing"
    raise CannotRun(f"the program ran, but no reference was counted: {why}.")
