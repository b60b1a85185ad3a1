"""Runs a program under the tracer through an engine of the extension."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from octavo._core import LiveRun, OctavoError, TracedProgram
from octavo.base.errors import CannotRun, Interrupted, UsageError, choose
from octavo.traces.by_name import check_format, names_a_trace
from octavo.tracing.manifest import Circumstances, Found
from octavo.tracing.phase import Timer
from octavo.tracing.program import find_program, use_started_name, with_started_name, words_to_start
from octavo.tracing.scope import Processes, Scope
from octavo.tracing.session import Run, drive, ended_while_closed
from octavo.tracing.valgrind import find_valgrind, first_line, lack_of_room

if TYPE_CHECKING:
    from octavo._core import Analysis, Progress, Result
    from octavo.tracing.manifest import Counted

    MakeRun = Callable[..., Run[Result]]


_NO_SNAPSHOTS = (
    "octavo {verb} has a result at its end only, since what it counts goes with the state of all "
    "that it simulates; octavo run gives snapshots. For a part of the run: octavo ctl stop and "
    "start, or --skip-instructions and --max-instructions."
)


def means_a_trace(
    command: Sequence[str],
    *,
    format: str | None,
    tracer: str | None,
    follow_children: bool | None,
    verb: str = "run",
    several: bool = False,
) -> bool:
    """Whether `command` is a trace, or `several` traces. Raises UsageError for options that do not
    apply to a trace, or to a program.
    """
    if not several and not names_a_trace(command, format):
        if format is not None:
            raise UsageError(f"--format is for a trace; give that alone: octavo {verb} TRACE.")
        if names_a_trace(command[:1]):
            raise UsageError(
                f"`{command[0]}` is a trace and takes no arguments, so `{command[1]}` cannot "
                f"follow it; options of octavo {verb} go before `--`."
            )
        return False
    if format is not None:
        check_format(format)
    for option, given in (("--tracer", tracer), ("--follow or --no-follow", follow_children)):
        if given is not None:
            raise UsageError(
                f"{option} is for a program, and `{command[0]}` is a trace, whose contents are "
                "fixed: leave it out."
            )
    return True


def traces_in_turn(command: Sequence[str], *, processes: str, format: str | None) -> bool:
    """Whether `command` is several traces. Raises UsageError where `processes` and the command do
    not fit together.
    """
    several = len(command) > 1 and all(names_a_trace([word], format) for word in command)
    if several and processes == "apart":
        raise UsageError(
            f"`{command[0]}` and `{command[1]}` are traces: with --processes asid or flush they "
            "share a core; else give one at a time."
        )
    if several or processes == "apart" or names_a_trace(command, format):
        return several
    if command and names_a_trace(command[:1]):
        other = next(word for word in command if not names_a_trace([word], format))
        raise UsageError(f"`{command[0]}` is a trace and `{other}` is none; give traces alone.")
    raise UsageError(
        f"--processes {processes} is for traces, since the schedule of a live run varies; record "
        "the program first: octavo record -o FILE -- PROGRAM."
    )


def means_traces(
    command: Sequence[str],
    *,
    processes: str,
    format: str | None,
    **asked: Any,
) -> bool:
    """Whether `command` is a trace, or several traces. Raises UsageError for options that do not
    apply to it.
    """
    choose(processes, get_args(Processes), "--processes")
    several = traces_in_turn(command, processes=processes, format=format)
    return means_a_trace(command, format=format, several=several, **asked)


def trace_program(
    command: Sequence[str],
    scope: Scope,
    make_analysis: Callable[[], Analysis[Found]],
    on_progress: Callable[[Progress], None],
    *,
    make_run: Callable[..., Run[Found]] = LiveRun,
    verb: str = "run",
    document: Callable[[Found, Circumstances], dict[str, Any]] | None = None,
) -> tuple[Found, Circumstances]:
    """Runs a program through an engine; `make_run` lets tests replace the tracer.

    `document` makes the document of a snapshot; None for an engine without snapshots.
    """
    if not command:
        raise UsageError(f"no program given; write it after the options: octavo {verb} -- PROGRAM.")
    program = find_program(command[0])
    valgrind = find_valgrind(scope.tracer)
    circumstances = Circumstances(
        command=command,
        program=program,
        directory=str(Path.cwd()),
        started_at=datetime.now(timezone.utc),
        valgrind_version=valgrind.version,
        configuration=scope,
    )
    try:
        traced = TracedProgram(
            words_to_start(command, program),
            valgrind=str(valgrind.launcher),
            tool_dir=str(valgrind.tool_dir),
            **scope.recorded(),
        )
        live = make_run(traced, analysis=make_analysis())

        def named(progress: Progress) -> Progress:
            return with_started_name(progress, program)

        def show(progress: Progress) -> None:
            on_progress(named(progress))

        def control(pid: int) -> AbstractContextManager[None]:
            from octavo.control.server import Control, serving

            def snapshot() -> dict[str, Any]:
                if document is None:
                    raise CannotRun(_NO_SNAPSHOTS.format(verb=verb))
                return document(_snapshot(live, circumstances), circumstances)

            return serving(Control(live, command, pid, snapshot, named), pid)

        timer = None if scope.phase is None else Timer(scope.phase, live)
        interrupted_by = drive(live, show, timer=timer, control=control)
        was_closed = ended_while_closed(live)
        result = _counted_result(live, scope, interrupted_by)
    except ValueError as error:
        raise UsageError(f"{error}.") from None
    use_started_name(result["processes"], str(program), str(program.resolve()))
    return result, replace(circumstances, interrupted_by=interrupted_by, was_closed=was_closed)


def _snapshot(live: Run[Found], circumstances: Circumstances) -> Found:
    """The counts so far, for a snapshot. Raises CannotRun."""
    tracer, program = circumstances.configuration.tracer, circumstances.program
    if tracer != "octavo":
        raise CannotRun(
            f"a snapshot needs octavo's own tracer; this run reads the text of {tracer}, and has "
            "a result at its end."
        )
    found = live.snapshot()
    if found is None:
        raise CannotRun("the run has ended, and its result is being computed.")
    if not any(process["references"] for process in found["processes"]):
        raise CannotRun("nothing has been counted yet.")
    use_started_name(found["processes"], str(program), str(program.resolve()))
    return found


def _counted_result(live: Run[Found], scope: Scope, interrupted_by: int | None) -> Found:
    try:
        result = live.result()
        _check_counted(result, scope)
    except OctavoError:
        if interrupted_by is not None:
            raise Interrupted(interrupted_by) from None
        raise
    return result


def _check_counted(result: Counted, scope: Scope) -> None:
    """Raises CannotRun where no reference was counted."""
    if any(process["references"] for process in result["processes"]):
        return
    diagnostics = result["exit"]["diagnostics"]
    lack = lack_of_room(diagnostics)
    why = scope.why_nothing(lack or first_line(diagnostics) or "the tracer saw nothing")
    if lack not in (None, why):
        why += f"; {lack}"
    raise CannotRun(f"the program ran, but no reference was counted: {why}.")
