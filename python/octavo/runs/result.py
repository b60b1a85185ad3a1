"""The result of `octavo run`: its manifest, rows and advice, and the document that holds them.

Its imports are slow, so `api` imports this file while the program runs.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from octavo.actions.candidates import candidate_actions
from octavo.actions.for_advice import TryPages, actions_for, usable_size
from octavo.actions.model import UNKNOWN_PROGRAM, write_setting
from octavo.actions.one_heap import in_one_heap, moved_by, pieces_in
from octavo.actions.settings import needed_pool
from octavo.actions.subjects import Subjects
from octavo.actions.table import Subject
from octavo.actions.trial import try_pages
from octavo.analysis.advice import Advice, Thresholds, advise_all, overall_text
from octavo.analysis.allocations import allocation_rows, allocations_record, sentence
from octavo.analysis.gain import ASSUMPTIONS, seconds_of
from octavo.analysis.gain import Program as WholeProgram
from octavo.analysis.huge_growth import huge_growth
from octavo.analysis.native_time import NativeTime
from octavo.analysis.present_pages import leave_as_is
from octavo.analysis.programs import Program, programs_of, rows_by_program, short_names
from octavo.analysis.rows import (
    COLUMNS,
    FAULTS,
    HUGE_PAGE_FAULTS,
    HUGE_PAGE_FAULTS_AGAIN,
    Row,
    exec_chains,
    machine_sizes,
    memory_by_size,
    rated_of,
    rows_of,
    stream_counters,
)
from octavo.analysis.threads import (
    LargerPages,
    ThreadGroup,
    larger_pages,
    thread_groups,
    thread_records,
)
from octavo.analysis.threads import sentence as sentence_of_threads
from octavo.analysis.view import headline
from octavo.analysis.walk_advice import advise_by_walks, program_of
from octavo.analysis.walk_costs import WalkCosts, walk_costs
from octavo.base.errors import CannotRun
from octavo.base.host import reports_free_memory
from octavo.base.huge_pages import HugePages, read_huge_pages
from octavo.base.table import arrow_table
from octavo.base.units import format_bytes, format_count
from octavo.hardware.tlb_levels import Machine
from octavo.runs.answer import action_to_paste, answer_of
from octavo.runs.configuration import MEMORY_WARNING
from octavo.runs.simulation_line import simulation_line
from octavo.runtimes.detect import Runtime
from octavo.runtimes.launchers import program_at
from octavo.runtimes.naming import name_regions, runtimes_of
from octavo.traces.by_name import SYNTHETIC_FORMAT
from octavo.traces.sampling import kept_share
from octavo.tracing.manifest import (
    Circumstances,
    Finished,
    build_manifest,
    end_of_program,
    of_what_ran,
)
from octavo.tracing.valgrind import RefusedPages, refused_pages
from octavo.tracing.windows import traced_share

if TYPE_CHECKING:
    import pyarrow as pa

    from octavo._core import Result
    from octavo.runs.configuration import Configuration

SCHEMA = "octavo/run/1"
_FREE_MEMORY_CAUTION = (
    " This virtual machine reports free memory to its host, which may take it back: a "
    "first touch of a 2 MiB page can then take milliseconds, which a short run does not make up "
    "for. octavo calibrate measures it."
)
_CALIBRATION_HELPS = (
    " octavo calibrate measures these costs on this machine in two minutes, which narrows the "
    "estimate of later runs."
)
_MOST_PER_CYCLE = 16
"""Upper bound of instructions per cycle."""


@dataclass(frozen=True, repr=False)
class RunResult(Finished):
    """A finished run, as plain data."""

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
        """The answer to "which page size?"."""
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
    limits: Thresholds = Thresholds(),
    costs: WalkCosts | None = None,
    runtimes: Mapping[int, Runtime] | None = None,
    programs: Sequence[Program] = (),
    chains: Mapping[int, int] | None = None,
    native: NativeTime | None = None,
    kernel_seconds: float | None = None,
    threads: Sequence[ThreadGroup] = (),
    is_part: bool = False,
    try_pages: TryPages = lambda: None,
) -> list[dict[str, Any]]:
    """Advice with its actions as plain data, the overall answer first.

    With `costs`, those of the modelled machine's walks, the advice rests on walks. `command` is the
    program with its arguments; None where it is not known, and empty where there is no program and
    so no actions. `runtimes` are those of the processes, by stream number. Regions of `programs`
    are judged together, not in each of their processes. `chains` comes from `exec_chains`. `native`
    is the native time of the counted part, and `kernel_seconds` the time of its system calls; both
    None where unknown. `threads` are the threads of all processes by name. `is_part` says that only
    a part of the run was counted. `try_pages` tries page sizes on this kernel.
    """
    merged = rows_by_program(rows, programs)
    if native is not None and costs is not None:
        instructions = stream_counters(merged).get("instructions", 0)
        if native.total * costs.clock.high < instructions / _MOST_PER_CYCLE:
            manifest["warnings"].append(
                f"NATIVE TIME: no processor takes only {native.total:g} s for the "
                f"{format_count(instructions)} instructions that were counted; it was not used."
            )
            native = None
    with_faults = False
    if costs is not None:
        # Page faults at first touches do not count for a server and for a program that was stopped:
        # they are few over its whole life. For a part of a run they count where at least
        # half of them get memory that the program had given back, as such faults go on.
        any_server = any(one.is_server for one in (runtimes or {}).values())
        has_ended = manifest["exit"]["reason"] == "exited" and not manifest["partial"]
        lasts = _faults_recur(merged) if is_part else has_ended
        with_faults = lasts and not any_server
        has_faults = any(row["component"] == FAULTS and row["value"] for row in merged)
        costs = replace(costs, counts_faults=with_faults and has_faults)
    program = UNKNOWN_PROGRAM if command is None else shlex.join(command)
    subjects = Subjects(rows, runtimes or {}, command or ())
    names = short_names(process["program"] for process in manifest["processes"])

    def advise(merged: Sequence[Row]) -> list[Advice]:
        if costs is None:
            return advise_all(merged, machine, limits, names=names)
        found = advise_by_walks(
            merged,
            machine,
            costs,
            limits,
            with_faults=with_faults,
            native=native,
            kernel_seconds=kernel_seconds or 0.0,
            names=names,
        )
        return leave_as_is(found, merged, host, limits)

    def subject_of(item: Advice) -> Subject | None:
        return subjects.of(item.case) if program and item.reason != "already" else None

    def with_actions(item: Advice) -> dict[str, Any]:
        actions = []
        if (subject := subject_of(item)) is not None:
            actions = actions_for(item, host, program, limits, subject=subject, try_pages=try_pages)
        return {
            **item.record(),
            "usable_page_size": usable_size(item, host, limits),
            "actions": [action.record() for action in actions],
        }

    moved = pieces_in(merged) if with_faults else frozenset()
    while True:
        advice = advise(in_one_heap(merged, moved))
        records = [with_actions(item) for item in advice]
        kept = moved & moved_by(action_to_paste(records, limits))
        if kept == moved:
            break
        # The lines to paste do not move the other pieces.
        moved = kept
    if moved:
        _mention_one_heap(records)
    usable = [record["usable_page_size"] for record in records]
    of_cases = [one for one in map(subject_of, advice) if one is not None]
    is_server = any(one.is_started_directly and one.runtime.is_server for one in of_cases)
    text, more = overall_text(advice, usable), {}
    run: WholeProgram | None = None
    larger: dict[str, LargerPages] = {}
    if costs is not None:
        whole = [item.case for item in advice if item.case.region is None]
        run = program_of(merged, whole, native, kernel_seconds or 0.0)
        options, simulation = manifest["configuration"], ""
        if command and "trace" not in manifest and costs.source == "calibration":
            simulation = simulation_line(options, command, run.instructions)
        answered = answer_of(
            records,
            options["modelled"]["name"],
            costs.label(),
            command,
            limits,
            walks=run.walks,
            memory=memory_by_size(merged),
            machine_sizes=machine_sizes(merged),
            chains=chains or {},
            counts_fitting=huge_growth(merged) is not None,
            is_server=is_server,
            was_stopped=manifest["exit"]["reason"] in ("interrupted", "limit", "running"),
            is_tried=lambda action: is_tried(action, command or (), host),
            seconds_of_pages=costs.seconds_of_huge_pages,
            run_seconds=seconds_of(run, costs) if with_faults and not is_part else None,
            simulation=simulation,
        )
        text = answered.text
        # The native time of each thread is not known, and page faults can outweigh walks.
        if native is None and answered.gain.is_expected:
            larger = larger_pages(advice, usable, run)
        _label_once(costs.label(), text, records)
        is_assumed = costs.source == "preset" and costs.is_of_host
        if is_assumed and answered.is_uncertain:
            text += _CALIBRATION_HELPS
        is_synthetic = manifest.get("trace", {}).get("format") == SYNTHETIC_FORMAT
        faults_here = costs.counts_faults and not is_synthetic
        if answered.changes and is_assumed and faults_here and reports_free_memory():
            text += _FREE_MEMORY_CAUTION
        more = {
            **answered.record(),
            "native_seconds": None if native is None else asdict(native),
            "kernel_seconds": kernel_seconds,
            "walk_costs": costs.record(),
            "assumptions": ASSUMPTIONS,
        }
    if threads:
        more["threads"] = thread_records(threads, run, costs, larger)
        has_faults = run is not None and run.page_faults > 0
        text += sentence_of_threads(more["threads"], has_faults=has_faults)
    answer = {
        "scope": "answer",
        "text": of_what_ran(text, manifest),
        "max_growth": limits.max_growth,
        **more,
    }
    return [answer, *records]


def refusal_warning(refused: RefusedPages, host: HugePages) -> str:
    """A program gets no pages of hugetlbfs for some mappings; the line reserves them for one."""
    size = refused.page_size
    pages = -(-refused.largest_bytes // size)
    needed = needed_pool(host, pages, size) or {}
    lines = "".join(
        f" `{write_setting(file, value)}` reserves them."
        if value != host.settings[file]
        else " Now they are free."
        for file, value in needed.items()
    )
    largest = format_bytes(refused.largest_bytes)
    several = refused.mappings > 1
    asked = (
        f"{refused.mappings:,} mappings ({format_bytes(refused.bytes)} in all, at most {largest})"
        if several
        else largest
    )
    return (
        f"HUGETLB: {refused.program} asked for {asked} in {format_bytes(size)} pages of hugetlbfs "
        f"and got none: {'the largest' if several else 'it'} needs {pages:,} of them "
        f"free.{lines}"
    )


def _mention_one_heap(records: Sequence[dict[str, Any]]) -> None:
    """Adds to the advice for all data that its page faults are those of one heap."""
    for record in records:
        if record["scope"] == "program" and record["stream"] == "data":
            record["text"] += (
                " Its page faults are those of one heap, into which the lines to paste put memory "
                "that the program maps in pieces too small for such pages."
            )


def _label_once(label: str, answer: str, records: Sequence[dict[str, Any]]) -> None:
    """Removes repetitions of a label: it stays in the answer, or in the first advice with it."""
    label = f" ({label})"
    is_said = label in answer
    for record in records:
        before = record["text"]
        if is_said:
            record["text"] = before.replace(label, "")
        is_said |= label in before


def _faults_recur(rows: Sequence[Row]) -> bool:
    """Whether at least half of the huge page faults get memory that the program had given back."""
    huge, again = (
        sum(
            row["value"]
            for row in rows
            if row["component"] == FAULTS and row["counter"] == counter and "region" not in row
        )
        for counter in (HUGE_PAGE_FAULTS, HUGE_PAGE_FAULTS_AGAIN)
    )
    return 2 * again >= huge


def _drop_page_faults(result: Result) -> None:
    """Sets page faults to 0: a sample does not show which pages were touched between its parts."""
    for process in result["processes"]:
        for region in process["regions"]:
            region["page_faults"] = {"base": 0, "huge": 0, "huge_again": 0, "left": 0}


def is_tried(action: Mapping[str, Any], command: Sequence[str], host: HugePages) -> bool:
    """Whether `octavo verify` tries the variables and options of an action by default. True also
    where the action has none, or where the program is not found.
    """
    wanted = (action.get("environment", {}), action.get("arguments", []))
    if not any(wanted) or not command:
        return True
    program, *arguments = command[program_at(command) :]
    try:
        found = candidate_actions(program, host, arguments)
    except CannotRun:
        return True
    return wanted in [(dict(one.environment), list(one.arguments)) for one in found]


def finished(
    result: Result,
    configuration: Configuration,
    circumstances: Circumstances,
    command: Sequence[str] | None,
    *,
    per_process: bool,
) -> RunResult:
    """The result of a run, from the counts of the engine."""
    manifest = build_manifest(result, circumstances)
    is_sampled = manifest.get("trace", {}).get("sample") is not None
    windows = manifest.get("windows")
    has_gaps = windows is not None and windows["instructions"] != windows["executed_instructions"]
    is_part = bool(
        configuration.uncounted
        or configuration.between_marks
        or has_gaps
        or is_sampled
        or circumstances.was_closed
    )
    if is_sampled:
        _drop_page_faults(result)
    runtimes = runtimes_of(result["processes"])
    name_regions(result["processes"], runtimes)
    rows = rows_of(result, configuration.machine)
    allocations = allocations_record(result["processes"])
    if allocations is not None:
        rows += allocation_rows(allocations, rated_of(result["processes"]))
    programs = [] if per_process else programs_of(result["processes"], configuration.machine)
    knows_memory = all(process["knows_memory"] for process in result["processes"])
    if is_sampled or not knows_memory or _lacks_memory(manifest.get("trace")):
        manifest["warnings"].append(MEMORY_WARNING)
    modelled = configuration.modelled
    limits = Thresholds(
        max_growth=configuration.max_growth, memory_bytes=manifest["host"]["memory_bytes"]
    )
    native = configuration.native
    share = kept_share(manifest.get("trace", {}).get("sample"))
    if "windows" in manifest:
        share = traced_share(manifest["windows"], share)
    if share < 1:
        limits = replace(limits, negligible_misses=round(limits.negligible_misses * share))
        native = None if native is None else native.part(share)
    host = read_huge_pages()
    diagnostics = end_of_program(manifest)["diagnostics"]
    for refused in refused_pages(diagnostics, host.default_pool_size):
        manifest["warnings"].append(refusal_warning(refused, host))
    kernel_seconds = None if is_sampled else configuration.kernel_seconds(result["processes"])
    advice = advice_records(
        rows,
        configuration.machine,
        host,
        command,
        manifest,
        limits=limits,
        costs=None if modelled is None else walk_costs(modelled, note=manifest["notes"].append),
        runtimes=runtimes,
        programs=programs,
        chains=exec_chains(result["processes"]),
        native=native,
        kernel_seconds=kernel_seconds,
        threads=thread_groups(result["processes"], kernel_time_counts=kernel_seconds is not None),
        is_part=is_part,
        try_pages=try_pages,
    )
    if allocations is not None:
        advice[0]["text"] = f"{advice[0]['text']} {sentence(allocations)}".rstrip()
    return RunResult(
        manifest=manifest,
        rows=rows,
        advice=advice,
        programs=programs,
        allocations=allocations,
        interrupted_by=circumstances.interrupted_by,
    )


def _lacks_memory(trace: Mapping[str, Any] | None) -> bool:
    """Whether a trace is of a part of a run and lacks memory that was touched before that part."""
    options = ((trace or {}).get("about") or {}).get("options") or {}
    phase = options.get("phase") or {}
    is_late = options.get("tracer") == "lackey" and phase.get("start_after_seconds", 0) != 0
    return bool(options.get("skip_instructions") or options.get("between_marks") or is_late)
