"""`octavo.run`: one call from a command line, or a trace, to the result: its manifest, rows and
advice, and the document that holds them. `octavo run` uses it.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from octavo._core import LiveRun
from octavo.actions.for_advice import TryPages, actions_for, usable_size
from octavo.actions.model import UNKNOWN_PROGRAM
from octavo.actions.subjects import Subjects
from octavo.actions.trial import try_pages
from octavo.analysis.advice import Thresholds, advise_all, overall_text
from octavo.analysis.allocations import allocation_rows, allocations_record, sentence
from octavo.analysis.gain import ASSUMPTIONS
from octavo.analysis.present_pages import leave_as_is
from octavo.analysis.programs import Program, programs_of, rows_by_program
from octavo.analysis.rows import COLUMNS, Row, rated_of, rows_of
from octavo.analysis.view import headline
from octavo.analysis.walk_advice import advise_by_walks
from octavo.analysis.walk_costs import WalkCosts, walk_costs
from octavo.base.arguments import with_checked_names
from octavo.base.huge_pages import HugePages, read_huge_pages
from octavo.base.progress import watched
from octavo.base.table import arrow_table
from octavo.hardware.tlb_levels import Machine
from octavo.runs.answer import answer_of
from octavo.runs.configuration import MAX_GROWTH, Configuration, configure
from octavo.runtimes.detect import Runtime
from octavo.runtimes.naming import name_regions, runtimes_of
from octavo.traces.by_name import SYNTHETIC_FORMAT
from octavo.tracing.manifest import Circumstances, Finished, build_manifest, of_what_ran
from octavo.tracing.phase import check_no_phase, region_of_interest
from octavo.tracing.replay import replay_trace
from octavo.tracing.run import means_a_trace, trace_program

if TYPE_CHECKING:
    import pyarrow as pa

    from octavo._core import Progress, Result, TraceProgress
    from octavo.tracing.run import MakeRun

SCHEMA = "octavo/run/1"


@dataclass(frozen=True, repr=False)
class RunResult(Finished):
    """A finished run; plain data throughout."""

    rows: list[Row]
    advice: list[dict[str, Any]]
    """The overall answer first, then code, data and each large region, each with its actions."""
    programs: list[Program] = field(default_factory=list)
    """The programs of several processes, which tables show together."""
    allocations: dict[str, Any] | None = None
    """Misses of data by allocation site and source line, where blocks were recorded."""

    def table(self) -> pa.Table:
        """The rows as an Arrow table (what rows.parquet holds)."""
        return arrow_table(self.rows, COLUMNS)

    def headline(self) -> str:
        """The program or trace, and how much of it was counted."""
        return f"{self.subject}: {headline(self.manifest, self.rows)}"

    def conclusion(self) -> str:
        """Which page size."""
        return str(self.advice[0]["text"]) if self.advice else ""

    def document(self) -> dict[str, Any]:
        """The JSON document; docs/run.schema.json describes it."""
        return {
            "schema": SCHEMA,
            "run": self.manifest,
            "rows": self.rows,
            "programs": self.programs,
            "advice": self.advice,
            **({} if self.allocations is None else {"allocations": self.allocations}),
        }


def advice_records(
    rows: Sequence[Row],
    machine: Machine,
    host: HugePages,
    command: Sequence[str] | None,
    manifest: dict[str, Any],
    *,
    limits: Thresholds | None = None,
    costs: WalkCosts | None = None,
    runtimes: Mapping[int, Runtime] | None = None,
    programs: Sequence[Program] = (),
    try_pages: TryPages = lambda: None,
) -> list[dict[str, Any]]:
    """Advice with its actions as plain data, the overall answer first.

    With `costs`, those of the modelled machine's walks, it rests on walks. `command` is the program
    with its arguments; None where it is not known, and empty where there is no program, so that
    nothing can be done about it. `runtimes` are those of the processes, by stream number; regions
    of `programs` are judged together, not in each of their processes. `try_pages` asks this kernel
    for pages of a size.
    """
    limits = limits or Thresholds()
    merged = rows_by_program(rows, programs)
    if costs is None:
        advice = advise_all(merged, machine, limits)
    else:
        found = advise_by_walks(merged, machine, costs, limits)
        advice = leave_as_is(found, merged, host, limits)
    usable = [usable_size(item, host, limits) for item in advice]
    program = UNKNOWN_PROGRAM if command is None else shlex.join(command)
    subjects = Subjects(rows, runtimes or {}, command or ())
    records = []
    for item, size in zip(advice, usable, strict=True):
        actions = []
        if program and item.reason != "already":
            subject = subjects.of(item.case)
            actions = actions_for(item, host, program, limits, subject=subject, try_pages=try_pages)
        records.append(
            {
                **item.record(),
                "usable_page_size": size,
                "actions": [action.record() for action in actions],
            }
        )
    text, more = overall_text(advice, usable), {}
    if costs is not None:
        modelled = manifest["configuration"]["modelled"]["name"]
        answered = answer_of(records, modelled, costs.label(), command, limits)
        text = answered.text
        more = {**answered.record(), "walk_costs": costs.record(), "assumptions": ASSUMPTIONS}
    answer = {
        "scope": "answer",
        "text": of_what_ran(text, manifest),
        "max_growth": limits.max_growth,
        **more,
    }
    return [answer, *records]


@with_checked_names()
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
    start_after: str | None = None,
    duration: str | None = None,
    window: str | None = None,
    window_warm: int = 0,
    allocations: bool = False,
    allocation_wrappers: Sequence[str] = (),
    max_growth: float = MAX_GROWTH,
    per_process: bool = False,
    on_progress: Callable[[Progress], None] | None = None,
) -> RunResult:
    """Traces a program, or reads a trace, and counts TLB misses and memory at every page size.

    >>> result = octavo.run(["gzip", "-k", "file"], page_sizes=[4096, 65536])  # doctest: +SKIP
    >>> result = octavo.run("gzip.oct")  # doctest: +SKIP

    Traces and programs are distinguished as on the command line; `format` names the format of
    a trace that does not show it by itself. `page_sizes` are bytes (default: every power of two
    from 4 KiB to 2 MiB; 4 KiB is always added). `tlb` names the machine whose TLBs are modelled
    (default: this processor), or a preset of entries alone; `entries` are those of the instruction
    and of the data TLB instead. `max_growth` is the share by which memory may grow for larger pages
    to be advised. `start_after` and `duration` choose the part that counts, in the words of the
    command line: "30s", "200M" (instructions), or "ctl", which waits for `octavo.ctl(pid,
    "start")`; `window` traces windows of it only, as "20M/1980M" or "0.1s/10s", of each of which
    `window_warm` instructions do not count. `allocations` records the blocks that a program
    allocates, and attributes misses to the first caller that is none of the usual wrappers of
    allocators, nor one of `allocation_wrappers`. With `per_process`, processes of one program are
    judged apart. The program's standard streams are ours. Raises OctavoError with one clear
    sentence.
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
        **region_of_interest(start_after, duration, skip=skip_instructions, most=max_instructions),
        between_marks=between_marks,
        window=window,
        window_warm=window_warm,
        allocations=allocations,
        allocation_wrappers=allocation_wrappers,
        max_growth=max_growth,
    )
    if is_trace:
        check_no_phase(configuration.phase)
    with watched(on_progress, "trace" if is_trace else "program") as show:
        if is_trace:
            return execute_trace(words[0], configuration, show, format, per_process=per_process)
        return execute(words, configuration, show, per_process=per_process)


def execute(
    command: Sequence[str],
    configuration: Configuration,
    on_progress: Callable[[Progress], None],
    make_run: MakeRun = LiveRun,
    *,
    per_process: bool = False,
) -> RunResult:
    """Runs a resolved configuration; `make_run` lets tests put their own tracer in place.

    With `per_process`, processes of one program are judged and shown apart.
    """

    def document(result: Result, circumstances: Circumstances) -> dict[str, Any]:
        return finished(result, circumstances).document()

    def finished(result: Result, circumstances: Circumstances) -> RunResult:
        return _finished(result, configuration, circumstances, command, per_process=per_process)

    result, circumstances = trace_program(
        command,
        configuration,
        configuration.analysis,
        on_progress,
        make_run=make_run,
        document=document,
    )
    return finished(result, circumstances)


def execute_trace(
    name: str,
    configuration: Configuration,
    on_progress: Callable[[TraceProgress], None],
    format: str | None = None,
    *,
    per_process: bool = False,
) -> RunResult:
    """Reads a trace to its end, or as far as it can be read. Raises OctavoError."""
    result, circumstances = replay_trace(
        [name], configuration, configuration.analysis, on_progress, format
    )
    command = _command_of(circumstances)
    return _finished(result, configuration, circumstances, command, per_process=per_process)


def _command_of(circumstances: Circumstances) -> list[str] | None:
    """The program of a trace: none of a synthetic one, None where the trace does not name it."""
    trace, command = circumstances.trace, circumstances.recorded_command
    if trace is not None and trace.record["source_format"] == SYNTHETIC_FORMAT:
        return []
    return [str(word) for word in command] if command else None


def _finished(
    result: Result,
    configuration: Configuration,
    circumstances: Circumstances,
    command: Sequence[str] | None,
    *,
    per_process: bool,
) -> RunResult:
    runtimes = runtimes_of(result["processes"])
    name_regions(result["processes"], runtimes)
    rows = rows_of(result, configuration.machine)
    allocations = allocations_record(result["processes"])
    if allocations is not None:
        rows += allocation_rows(allocations, rated_of(result["processes"]))
    programs = [] if per_process else programs_of(result["processes"], configuration.machine)
    manifest = build_manifest(result, circumstances)
    modelled = configuration.modelled
    limits = Thresholds(
        max_growth=configuration.max_growth, memory_bytes=manifest["host"]["memory_bytes"]
    )
    advice = advice_records(
        rows,
        configuration.machine,
        read_huge_pages(),
        command,
        manifest,
        limits=limits,
        costs=None if modelled is None else walk_costs(modelled, note=manifest["notes"].append),
        runtimes=runtimes,
        programs=programs,
        try_pages=try_pages,
    )
    if allocations is not None:
        advice[0]["text"] = f"{advice[0]['text']} {sentence(allocations)}".rstrip()
    return RunResult(
        manifest=manifest, rows=rows, advice=advice, programs=programs, allocations=allocations
    )
