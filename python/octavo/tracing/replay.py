"""Replay of traces through an engine, with the result that the program itself would give."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from octavo._core import Trace, TraceRun
from octavo.base.background import interruptible, see_through
from octavo.base.errors import CannotRun, Interrupted, UsageError
from octavo.traces.by_name import check_applies, format_among, manifest_of, open_trace
from octavo.traces.survey import notes_on, sample_of
from octavo.tracing.manifest import Circumstances, Found, TraceFacts
from octavo.tracing.program import use_started_name
from octavo.tracing.scope import Scope

if TYPE_CHECKING:
    from octavo._core import Analysis, Exit, Facts, TraceProgress
    from octavo.tracing.manifest import Counted


def replay_trace(
    names: Sequence[str],
    scope: Scope,
    make_analysis: Callable[[], Analysis[Found]],
    on_progress: Callable[[TraceProgress], None],
    format: str | None = None,
) -> tuple[Found, Circumstances]:
    """Reads a trace, or several whose processes share a core, to the end or to the first fault.
    Raises OctavoError.
    """
    if scope.phase is not None:
        raise UsageError(
            "--start-after and --duration are for a program that runs; of a trace, "
            "--skip-instructions and --max-instructions choose a part."
        )
    if scope.windows is not None:
        raise UsageError(
            "--window is for a program that runs; octavo convert --sample keeps windows of a trace."
        )
    started_at = datetime.now(timezone.utc)
    check_applies(format, names)
    formats = [format_among(name, format) for name in names] if len(names) > 1 else [format]
    traces = [open_trace(name, format=own) for name, own in zip(names, formats, strict=True)]
    manifests = [manifest_of(name, trace) for name, trace in zip(names, traces, strict=True)]
    for name, trace, manifest in zip(names, traces, manifests, strict=True):
        _refuse_samples(name, trace.facts(), manifest)
    name, manifest = ", ".join(names), manifests[0]
    if (quanta := scope.shared_quanta) is None:
        (trace,) = traces
    else:
        trace = interruptible(lambda: Trace.take_turns(traces, *quanta))
    try:
        run = TraceRun(
            trace,
            analysis=make_analysis(),
            skip_instructions=scope.skip_instructions,
            max_instructions=scope.max_instructions,
            between_marks=scope.between_marks,
        )
    except ValueError as error:
        raise UsageError(f"{error}.") from None
    began = time.monotonic()
    run.start()
    interrupted_by = see_through(run, on_progress, keeps_result=True)
    result, facts = run.result()
    result["elapsed_seconds"] = time.monotonic() - began
    _refuse_samples(name, facts, manifest)
    _refuse_without_instructions(names, facts, result, scope.counts_instructions)
    references = sum(process["references"] for process in result["processes"])
    check_counted(name, references, result["exit"], scope, interrupted_by)
    about: dict[str, Any] = {} if manifest is None else manifest["about"]
    program, image = about.get("program"), about.get("image")
    if isinstance(program, str) and isinstance(image, str):
        use_started_name(result["processes"], program, image)
    return result, Circumstances(
        command=[*names],
        program=Path(result["processes"][0]["program"] or name),
        directory=str(Path.cwd()),
        started_at=started_at,
        valgrind_version=None,
        configuration=scope,
        interrupted_by=interrupted_by,
        trace=_facts(facts, manifest, about),
        recorded_command=about.get("command"),
    )


def _refuse_without_instructions(
    names: Sequence[str], facts: Facts, result: Counted, option: str | None
) -> None:
    """Raises CannotRun for an `option` that needs instructions, where a trace has none. Called
    after reading, as most formats do not show it before.
    """
    if option is None or facts["has_instructions"]:
        return
    if len(names) == 1 and any(process["instructions"] for process in result["processes"]):
        return
    listed = ", ".join(f"`{name}`" for name in names)
    lack = f"{listed} has none" if len(names) == 1 else f"at least one of {listed} has none"
    raise CannotRun(f"{option} goes by instructions, and {lack}.")


def _refuse_samples(name: str, facts: Facts, manifest: dict[str, Any] | None) -> None:
    if not facts["samples"]:
        return
    source = (manifest or {}).get("source_format", facts["format"])
    raise CannotRun(
        f"`{name}` holds samples of the references ({source}), a few out of many; how often a TLB "
        "misses cannot be computed from it."
    )


def check_counted(
    name: str, references: int, ended: Exit, scope: Scope, interrupted_by: int | None
) -> None:
    """Raises CannotRun, or Interrupted, where no reference was counted."""
    if references:
        return
    if interrupted_by is not None:
        raise Interrupted(interrupted_by)
    if ended["reason"] == "trace-broken":
        raise CannotRun(f"{ended['diagnostics'].rstrip('.')}.")
    if scope.between_marks:
        why = "it holds no begin mark (--marks wants the marks of octavo.h)"
    elif scope.uncounted is not None:
        why = f"it ends within the {scope.uncounted}"
    else:
        why = "it holds none"
    raise CannotRun(f"no reference of `{name}` was counted: {why}.")


def _facts(facts: Facts, manifest: dict[str, Any] | None, about: dict[str, Any]) -> TraceFacts:
    record: dict[str, Any] = {
        **facts,
        "source_format": facts["format"] if manifest is None else manifest["source_format"],
        "sample": sample_of(facts),
        "about": about or None,
    }
    reason = about.get("partial_reason")
    return TraceFacts(
        record=record,
        notes=notes_on(facts),
        partial_reason=None if reason is None else f"the trace ends early: {reason}",
    )
