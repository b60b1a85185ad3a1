"""The manifest of a result: the command, its configuration, the machine, and how the run ended."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from octavo.base.errors import FAILED
from octavo.base.host import describe_host, versions
from octavo.base.metrics import rated_instructions
from octavo.base.table import Tabular
from octavo.base.text import plural, short_path
from octavo.tracing.phase import part_text
from octavo.tracing.scope import Scope
from octavo.tracing.valgrind import (
    diagnose,
    first_line,
    lack_of_room,
    seccomp_death,
    untraced_program,
)
from octavo.tracing.windows import Windows, windows_of, windows_warning

_MOST_ADDRESS_BITS = 57
_IDENTITY = (
    *("stream", "parent_stream", "pid", "program"),
    *("began_by", "ended_by", "exit_code", "stream_hash"),
)
"""The fields of a process in the manifest; its counts are in the rows."""

if TYPE_CHECKING:
    from octavo._core import CurvesResult, Exit, ProcessCounts, RecordedStream, Result, SimResult

    Counted = Result | CurvesResult | SimResult
    """The counts of an engine."""


Found = TypeVar("Found", "Result", "CurvesResult", "SimResult")
"""The counts of one engine."""


@dataclass(frozen=True)
class Circumstances:
    """Facts about a run that its counts do not contain."""

    command: Sequence[str]
    program: Path
    directory: str
    started_at: datetime
    valgrind_version: str | None
    """None where no Valgrind took part."""
    configuration: Scope
    interrupted_by: int | None = None
    was_closed: bool = False
    """Whether `octavo ctl stop` had ended the counted part when the run ended."""
    trace: TraceFacts | None = None
    """The trace that was read, if any."""
    recorded_command: Sequence[str] | None = None
    """The command that made the trace, if it is recorded."""


@dataclass(frozen=True)
class TraceFacts:
    """The trace from which a result was made."""

    record: dict[str, Any]
    """Its description for the manifest: the format, whether it is exact, its origin."""
    notes: Sequence[str]
    """Notes for readers of the numbers."""
    partial_reason: str | None
    """The reason why the recording itself is partial, if it is."""


def signal_name(number: int) -> str:
    """`SIGSEGV`, or `signal 64` where it has no name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def exit_status(ended: Exit, interrupted_by: int | None) -> int:
    """The exit status for a traced program: its own, in the shell's encoding."""
    if interrupted_by is not None:
        return 128 + interrupted_by
    if ended["reason"] == "tracer-failed":
        return FAILED
    if ended["signal"] is not None:
        return 128 + ended["signal"] if ended["reason"] != "limit" else 0
    return ended["code"] or 0


def partial_reason(
    ended: Exit,
    processes: Sequence[ProcessCounts] | Sequence[RecordedStream],
    untraced: int,
    interrupted_by: int | None,
    recorded_reason: str | None = None,
    *,
    by_request: bool = False,
    was_closed: bool = False,
) -> str | None:
    """The reason why the counts end before the program's own end or, `by_request`, before the end
    of the requested part; None where they do not. If the counted part `was_closed` before, the end
    of the program is no such reason.
    """
    was_ended = ended["reason"] in ("interrupted", "signalled") or interrupted_by is not None
    if was_closed and was_ended:
        return _untraced_reason(untraced, ended["diagnostics"]) if untraced else None
    if interrupted_by is not None:
        then = f", then ended with status {ended['code']}" if ended["code"] is not None else ""
        return f"interrupted by {signal_name(interrupted_by)}{then}"
    if ended["reason"] == "limit" and by_request:
        return _untraced_reason(untraced, ended["diagnostics"]) if untraced else None
    if ended["reason"] == "limit":
        number = sum(process["instructions"] for process in processes)
        counted = f"{number:,} counted {plural(number, 'instruction')}"
        return f"stopped by --max-instructions after {counted}"
    if ended["reason"] == "interrupted":
        return "interrupted"
    if ended["reason"] == "tracer-failed":
        said = ended["diagnostics"]
        return diagnose(said) or f"the tracer failed: {first_line(said) or 'without a message'}"
    if ended["reason"] == "trace-broken":
        return ended["diagnostics"].rstrip(".")
    if ended["reason"] == "signalled" and ended["signal"] is not None:
        return f"the program was killed by {signal_name(ended['signal'])}"
    if recorded_reason is not None:
        return recorded_reason
    lost = [process["program"] for process in processes if process["ended_by"] == "lost"]
    if lost:
        death = seccomp_death(ended["diagnostics"])
        why = f": {death}" if death else ""
        return (
            f"{len(lost)} {plural(len(lost), 'process')} ended without the tracer's last record, "
            f"the first was {lost[0]}{why}"
        )
    if untraced:
        return _untraced_reason(untraced, ended["diagnostics"])
    return None


def cautions(manifest: dict[str, Any]) -> list[str]:
    """Warnings that belong before any number: how the program failed, where counts end."""
    failure = failure_of(end_of_program(manifest))
    sentences = []
    if failure is not None:
        when = " when it was recorded" if _recorded_end(manifest) else ""
        sentences.append(f"{failure}{when}; counts and advice are about the part that ran.")
    if manifest["exit"]["reason"] == "running":
        sentences.append("SNAPSHOT: the program goes on; counts are those until then.")
    if manifest["partial"]:
        sentences.append(f"PARTIAL: {manifest['partial_reason']}; counts end there.")
    return sentences


def _recorded_end(manifest: dict[str, Any]) -> Exit | None:
    return ((manifest.get("trace") or {}).get("about") or {}).get("exit")


def end_of_program(manifest: dict[str, Any]) -> Exit:
    """How the program ended, now or when the trace was recorded."""
    return _recorded_end(manifest) or manifest["exit"]


def failure_of(ended: Exit) -> str | None:
    """The failure of a program that ended by itself, without full stop; None without a failure."""
    if ended["reason"] != "exited" or not ended["code"]:
        return None
    lack = lack_of_room(ended["diagnostics"])
    why = f" ({lack})" if lack else ""
    return f"STATUS {ended['code']}: the program ended with this error status{why}"


def warnings(manifest: dict[str, Any]) -> list[str]:
    """Warnings about the counts of a result; results of earlier versions have none."""
    return [str(text) for text in manifest.get("warnings", [])]


def of_what_ran(answer: str, manifest: dict[str, Any]) -> str:
    """The answer, limited to the part that ran, or was counted, where that need not be the whole
    program.
    """
    if cautions(manifest):
        return f"For the part that ran: {answer}"
    return f"For the part that was counted: {answer}" if _part(manifest) else answer


def _part(manifest: dict[str, Any]) -> str | None:
    """The part of the program that was chosen to count, now or when the trace was recorded."""
    options = manifest["configuration"]
    if "trace" in manifest:
        options = (manifest["trace"]["about"] or {}).get("options") or {}
    return part_text(options, end_of_program(manifest)["reason"])


def _untraced_reason(untraced: int, diagnostics: str) -> str:
    first = untraced_program(diagnostics)
    ran = f"{untraced} {plural(untraced, 'process')} ran untraced"
    if first is None:
        return f"{ran}, for lack of a free ring"
    program, why = first
    return f"{ran}, the first was {program}: {why}"


def _warnings(processes: Sequence[ProcessCounts]) -> list[str]:
    """Warnings about the references of a run, a sentence each."""
    found = []
    instructions = sum(process["instructions"] for process in processes)
    references = sum(process["references"] for process in processes)
    if instructions and not rated_instructions(instructions, references):
        found.append(
            f"{references} references were counted and only {instructions} "
            f"{plural(instructions, 'instruction')}: too few to be those that made them, so "
            "numbers per instruction are n/a."
        )
    folded = [process for process in processes if process["folded_references"]]
    if folded:
        count = sum(process["folded_references"] for process in folded)
        verb = "was" if count == 1 else "were"
        first, bits = folded[0]["first_folded_address"], folded[0]["address_bits"]
        wider = (
            " (page_table.levels=5 makes them 57)"
            if bits < _MOST_ADDRESS_BITS and first is not None and _fits(first)
            else ""
        )
        found.append(
            f"{count} {plural(count, 'reference')}, the first at {first:#x}, {verb} not at "
            f"canonical addresses of {bits} bits{wider}: the bits above were replaced by copies of "
            f"bit {bits - 1}, and those past the end of the address space moved to end there."
        )
    return found


def _fits(addr: int) -> bool:
    """Whether an address is canonical in 57 bits."""
    return addr >> (_MOST_ADDRESS_BITS - 1) in (0, (1 << (65 - _MOST_ADDRESS_BITS)) - 1)


def _replay_status(ended: Exit, interrupted_by: int | None) -> int:
    """The status of a run on a trace, which is not the program's: nothing ran."""
    if interrupted_by is not None:
        return 128 + interrupted_by
    return FAILED if ended["reason"] == "trace-broken" else 0


def trace_hash(processes: Sequence[ProcessCounts]) -> str:
    """A hash of all streams of a run: SHA-256 of their hashes, in stream order."""
    import hashlib

    joined = "\n".join(process["stream_hash"] for process in processes)
    return hashlib.sha256(joined.encode()).hexdigest()


def build_manifest(result: Counted, facts: Circumstances) -> dict[str, Any]:
    """The manifest as plain data for JSON."""
    configuration = facts.configuration
    ended, untraced = result["exit"], result["untraced_processes"]
    recorded_reason = None if facts.trace is None else facts.trace.partial_reason
    reason = partial_reason(
        ended,
        result["processes"],
        untraced,
        facts.interrupted_by,
        recorded_reason,
        by_request=configuration.ends_by_phase,
        was_closed=facts.was_closed,
    )
    status = exit_status(ended, facts.interrupted_by)
    notes = configuration.notes()
    trace: dict[str, Any] = {}
    windows = windows_of(result, _periodic_windows(facts))
    if facts.trace is not None:
        status = _replay_status(ended, facts.interrupted_by)
        notes += facts.trace.notes
        trace = {"trace": facts.trace.record}
    main_program = _main_program(result["processes"])
    manifest: dict[str, Any] = {
        "command": list(facts.command),
        "program": str(facts.program),
        "directory": facts.directory,
        "started_at": facts.started_at.isoformat(timespec="seconds"),
        "elapsed_seconds": result["elapsed_seconds"],
        "partial": reason is not None,
        "partial_reason": reason,
        "exit": {**ended, "status": status},
        **trace,
        "trace_hash": trace_hash(result["processes"]),
        "configuration": configuration.resolved(),
        "configuration_sha256": configuration.sha256(),
        "seed": None,
        "versions": versions(facts.valgrind_version),
        "host": describe_host(),
        "processes": [
            {key: process[key] for key in _IDENTITY}  # type: ignore[literal-required]
            for process in result["processes"]
        ],
        **({} if main_program is None else {"main_program": main_program}),
        "notes": notes,
        "warnings": [
            *([windows_warning(windows)] if windows and windows["periodic"] else []),
            *_warnings(result["processes"]),
        ],
        **({} if windows is None else {"windows": windows}),
    }
    part = _part(manifest)
    if part is not None:
        manifest["warnings"].insert(0, part)
    program_end = end_of_program(manifest)
    lack = lack_of_room(program_end["diagnostics"])
    if lack is not None and failure_of(program_end) is None:
        manifest["warnings"].append(f"ADDRESS SPACE: {lack}. Natively the program may get it.")
    return manifest


def _periodic_windows(facts: Circumstances) -> Windows | None:
    """The periodic windows of this run, or of the recording of its trace."""
    if facts.trace is None:
        return facts.configuration.windows
    options = (facts.trace.record["about"] or {}).get("options") or {}
    recorded = options.get("windows")
    return None if recorded is None else Windows(**recorded)


def _last_image(processes: Sequence[Any]) -> str | None:
    """The program that the first process executed last, in place of others before; None without
    processes.
    """
    stream: int = 0
    program: str | None = None
    for process in processes:
        is_next = process["began_by"] == "exec" and process["parent_stream"] == stream
        if process["stream"] == 0 or is_next:
            stream, program = process["stream"], process["program"]
    return program


def _main_program(processes: Sequence[ProcessCounts]) -> str | None:
    """The program of other processes that executed more than half of all instructions; None without
    one. Programs that were replaced by exec do not count.
    """
    replaced = {one["parent_stream"] for one in processes if one["began_by"] == "exec"}
    instructions: Counter[str] = Counter()
    for process in processes:
        if process["stream"] not in replaced:
            instructions[process["program"]] += process["instructions"]
    for program, most in instructions.most_common(1):
        if program and program != _last_image(processes) and 2 * most > instructions.total():
            return program
    return None


def subject_of(manifest: dict[str, Any]) -> str:
    """The program or trace of a run as it was given, or the program's path if it was found on PATH;
    `/usr/bin/postgres (started by setpriv)` where the first program has executed another one in its
    place, or where another one executed more than half of all instructions.
    """
    first = str(manifest["program"])
    processes = manifest["processes"]
    has_executed = any(one["began_by"] == "exec" and one["parent_stream"] == 0 for one in processes)
    # The first image of a script is its interpreter.
    replacement = _last_image(processes) if has_executed else None
    program = str(manifest.get("main_program") or replacement or first)
    if program != first:
        return f"{short_path(program)} (started by {short_path(Path(first).name)})"
    # A path lacks the `./` with which it was given.
    given = str(next(iter(manifest["command"]), first))
    return short_path(given if Path(given) == Path(first) else first)


@dataclass(frozen=True, repr=False)
class Finished(Tabular):
    """The result of a finished run, of any engine."""

    manifest: dict[str, Any]
    interrupted_by: int | None = field(default=None, kw_only=True)
    """The signal that ended it before the program's own end, if one did."""

    @property
    def subject(self) -> str:
        """The program or trace of the run: see `subject_of`."""
        return subject_of(self.manifest)

    @property
    def status(self) -> int:
        """The exit status that stands for how the program ended."""
        status = self.manifest["exit"]["status"]
        return int(status)

    @property
    def failure(self) -> str | None:
        """A sentence where Octavo could not do its part; None where it could."""
        if self.manifest["exit"]["reason"] in ("tracer-failed", "trace-broken"):
            return f"{self.manifest['partial_reason']}; the result is partial."
        return None

    @property
    def partial(self) -> bool:
        """Whether the counts end before the program's own end."""
        return bool(self.manifest["partial"])
