"""`octavo.run`: runs a program, or reads a trace, and returns the result. `octavo run` uses it."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from octavo._core import LiveRun
from octavo.base.arguments import with_checked_names
from octavo.base.background import from_python
from octavo.base.progress import OnProgress, watched
from octavo.runs.configuration import MAX_GROWTH, Configuration, configure
from octavo.traces.by_name import SYNTHETIC_FORMAT
from octavo.tracing.replay import replay_trace
from octavo.tracing.run import means_a_trace, trace_program

if TYPE_CHECKING:
    from octavo._core import Progress, Result
    from octavo.runs.result import RunResult
    from octavo.tracing.manifest import Circumstances
    from octavo.tracing.run import MakeRun


@with_checked_names()
def run(
    command: Sequence[str] | str | os.PathLike[str],
    *,
    format: str | None = None,
    page_sizes: Sequence[int | str] | None = None,
    entries: tuple[int, int] | None = None,
    tlb: str | None = None,
    layout: str = "native",
    tracer: str | None = None,
    follow_children: bool | None = None,
    skip_instructions: int = 0,
    max_instructions: int | None = None,
    between_marks: bool = False,
    start_after: str | None = None,
    duration: str | None = None,
    window: str | None = None,
    window_warm: int = 0,
    allocations: bool = False,
    allocation_wrappers: Sequence[str] = (),
    max_growth: float = MAX_GROWTH,
    native_seconds: float | Sequence[float] | None = None,
    per_process: bool = False,
    on_progress: Callable[[Progress], None] | None = None,
) -> RunResult:
    """Traces a program, or reads a trace, and counts TLB misses and memory at every page size.

    >>> result = octavo.run(["gzip", "-k", "file"], page_sizes=[4096, 65536])  # doctest: +SKIP
    >>> result = octavo.run("gzip.oct")  # doctest: +SKIP

    Traces and programs are distinguished as on the command line; `format` names the format of
    a trace whose content does not show it. `page_sizes` are bytes (default: every power of two
    from 4 KiB to 2 MiB; 4 KiB is always added). `tlb` names the machine whose TLBs are modelled
    (default: this processor), or a preset of entries alone; `entries` are the entries of the
    instruction and of the data TLB instead. `max_growth` is the share by which memory may grow for
    larger pages to be advised. `native_seconds` is the native processor time of the counted part
    with 4 KiB pages, or two times: in user mode and in the kernel. Gains are then shares of it.
    `start_after` and `duration` choose the counted part, in the notation of the command line:
    "30s", "200M" (instructions), or "ctl", which waits for `octavo.ctl(pid, "start")`. `window`
    traces only windows of it, as "20M/1980M" or "0.1s/10s"; the first `window_warm` instructions of
    each window but the first are not counted. `allocations` records the blocks that a program
    allocates, and attributes misses to the first caller that is neither a usual wrapper of an
    allocator nor one of `allocation_wrappers`. With `per_process`, processes of one program are
    judged apart. The program's standard streams are those of the caller.

    Ctrl-C (SIGINT) ends the program, and the result is that of the part that ran: it is `partial`.
    SIGTERM and SIGHUP end it, too, and are then raised again for the handlers of the caller: where
    there are none, they end the process. Raises OctavoError with one clear sentence.
    """
    words = [os.fspath(command)] if isinstance(command, str | os.PathLike) else command
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
        start_after=start_after,
        duration=duration,
        window=window,
        window_warm=window_warm,
        allocations=allocations,
        allocation_wrappers=allocation_wrappers,
        max_growth=max_growth,
        native_seconds=native_seconds,
    )

    def work() -> RunResult:
        with watched(on_progress, "trace" if is_trace else "program") as show:
            return execute(words, configuration, show, is_trace, format, per_process=per_process)

    return from_python(work)


def execute(
    command: Sequence[str],
    configuration: Configuration,
    on_progress: OnProgress,
    is_trace: bool = False,
    format: str | None = None,
    *,
    per_process: bool = False,
    make_run: MakeRun = LiveRun,
) -> RunResult:
    """Runs a resolved configuration: a program, or a trace to its end or as far as it can be read.

    With `per_process`, processes of one program are judged and shown apart; `make_run` lets tests
    replace the tracer. Raises OctavoError.
    """

    def run_result(result: Result, circumstances: Circumstances) -> RunResult:
        words = _command_of(circumstances) if is_trace else command
        return _finished()(result, configuration, circumstances, words, per_process=per_process)

    def document(result: Result, circumstances: Circumstances) -> dict[str, Any]:
        return run_result(result, circumstances).document()

    def show(progress: Progress) -> None:
        _finished()
        on_progress(progress)

    analysis = configuration.analysis
    if is_trace:
        return run_result(*replay_trace(command, configuration, analysis, on_progress, format))
    found = trace_program(
        command, configuration, analysis, show, make_run=make_run, document=document
    )
    return run_result(*found)


def _command_of(circumstances: Circumstances) -> list[str] | None:
    """The command line of a trace: empty for a synthetic trace, None where it is not known."""
    trace, command = circumstances.trace, circumstances.recorded_command
    if trace is not None and trace.record["source_format"] == SYNTHETIC_FORMAT:
        return []
    return [str(word) for word in command] if command else None


def _finished() -> Callable[..., RunResult]:
    """The function that makes results. Its slow import happens while the program runs."""
    from octavo.runs.result import finished

    return finished
