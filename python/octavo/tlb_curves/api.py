"""`octavo.curves`: one call from a command line, or a trace, to the misses of every TLB."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from octavo._core import LiveRun
from octavo.tlb_curves.configuration import CurvesConfiguration, configure_curves
from octavo.tlb_curves.result import CurvesResult
from octavo.tracing.manifest import Circumstances, build_manifest
from octavo.tracing.replay import replay_trace
from octavo.tracing.run import means_traces, trace_program

if TYPE_CHECKING:
    from octavo._core import CurvesResult as CoreResult
    from octavo._core import Progress, TraceProgress
    from octavo.tracing.session import Run

VERB = "curves"


def curves(
    command: Sequence[str] | str,
    *,
    format: str | None = None,
    page_sizes: Sequence[int] | None = None,
    tracer: str | None = None,
    follow_children: bool | None = None,
    on_progress: Callable[[Any], None] | None = None,
    **choices: Any,
) -> CurvesResult:
    """Runs a program, or reads a trace, through every TLB at once.

    >>> result = octavo.curves(["gzip", "-k", "file"], entries=512)  # doctest: +SKIP
    >>> result.total["data"].full_misses(page_size=4096, entries=64)  # doctest: +SKIP

    `choices` are `streams`, `entries`, `sets`, `indexes`, `windows`, `two_sizes` (pairs of bytes),
    `threshold`, `policy_window`, `miss_penalty`, `two_sizes_penalty`, `presets`,
    `cache_lines` (bytes), `without`,
    `classify`, `classify_sizes`, `sample_pages` (a text such as `1/64`), `threads`, `processes`,
    `quantum` and `flush_every`, as of `octavo.tlb_curves.configuration.configure_curves`, and
    `layout`, `skip_instructions`, `max_instructions` and `between_marks`, as of `octavo.run`. With
    `processes` "asid" or "flush", `command` may be several traces.
    Raises OctavoError with one clear sentence.
    """
    words = [command] if isinstance(command, str) else command
    is_trace = means_traces(
        words,
        processes=choices.get("processes", "apart"),
        format=format,
        tracer=tracer,
        follow_children=follow_children,
        verb=VERB,
    )
    configuration = configure_curves(
        sizes=page_sizes,
        tracer=tracer or "octavo",
        follow_children=follow_children is not False,
        **choices,
    )
    show = on_progress or (lambda progress: None)
    if is_trace:
        return execute_curves_of_trace(words, configuration, show, format)
    return execute_curves(words, configuration, show)


def execute_curves(
    command: Sequence[str],
    configuration: CurvesConfiguration,
    on_progress: Callable[[Progress], None],
    make_run: Callable[..., Run[CoreResult]] = LiveRun,
) -> CurvesResult:
    """Runs a resolved configuration; `make_run` lets tests put their own tracer in place."""
    result, circumstances = trace_program(
        command, configuration, configuration.analysis, on_progress, make_run=make_run, verb=VERB
    )
    return _finished(result, configuration, circumstances)


def execute_curves_of_trace(
    names: Sequence[str],
    configuration: CurvesConfiguration,
    on_progress: Callable[[TraceProgress], None],
    format: str | None = None,
) -> CurvesResult:
    """Reads a trace, or several, to the end, or as far as it can be read. Raises OctavoError."""
    result, circumstances = replay_trace(
        names, configuration, configuration.analysis, on_progress, format
    )
    return _finished(result, configuration, circumstances)


def _finished(
    result: CoreResult, configuration: CurvesConfiguration, circumstances: Circumstances
) -> CurvesResult:
    return CurvesResult(build_manifest(result, circumstances), configuration, result)
