"""`octavo record`: trace a program and keep its references in a file."""

import typer

from octavo.base.errors import CannotRun, UsageError
from octavo.base.units import counted, format_bytes
from octavo.cli import options
from octavo.cli.command_line import ProgramCommand
from octavo.cli.groups import command, option
from octavo.cli.guard import guarded
from octavo.terminal.console import make_console, say
from octavo.terminal.live import LiveLine, recording_text
from octavo.tracing.manifest import failure_of
from octavo.tracing.recording import RecordedTrace, execute_recording
from octavo.tracing.scope import Scope, resolve_scope

_EPILOG = """\b
Examples:
  octavo record -o gzip.oct -- gzip -9 --keep --stdout big.log > /dev/null
  octavo record --start-after 30s --duration 10s -o redis.oct -- redis-server --save ''
  octavo run gzip.oct
  octavo run --tlb itanium2 gzip.oct

\b
Exit status: the program's own, as of `octavo run`; 125 when the trace could not be written.
A trace whose recorder was killed is cut off, and what came before can be read.
"""


@command("record", cls=ProgramCommand, epilog=_EPILOG)
def record(
    command: options.Program,
    out: str | None = option(None, "FILE", "The trace to write (.oct); required.", "--out", "-o"),
    *,
    following: options.Following,
    allocating: options.RecordedAllocations,
    document: options.DocumentOutput,
) -> None:
    """Run PROGRAM under the tracer and keep all its references in a trace.

    The program keeps its standard input, output and error; messages of Octavo go to standard error.
    With --json -, the program's output goes there, too. `octavo run FILE` gives the result that
    `octavo run -- PROGRAM` would have given.
    """
    with guarded():
        if out is None:
            raise UsageError("no FILE given for the trace: octavo record -o FILE -- PROGRAM.")
        write_document = document.document_file(beside=out)
        scope = resolve_scope(**following.scope(), allocations=allocating.allocations)
        live = LiveLine(quiet=document.quiet, text=recording_text)
        with document.program_output(), live as line:
            done = execute_recording(command, out, Scope(**scope), line.show, force=document.force)
        console = make_console()
        reason = done.about["partial_reason"]
        if not document.quiet:
            say(console, _headline(done), "bold")
            failure = failure_of(done.about["exit"])
            if failure is not None:
                say(console, f"{failure}; the trace holds the part that ran.", "bold yellow")
            if reason is not None:
                say(console, f"PARTIAL: {reason}; the trace ends there.", "bold yellow")
        write_document(done.document)
        if done.about["exit"]["reason"] == "tracer-failed":
            raise CannotRun(f"{reason}; the trace is partial.")
        if done.status:
            raise typer.Exit(done.status)


def _headline(done: RecordedTrace) -> str:
    processes = counted(done.processes_started, "process")
    return (
        f"{done.path}: {counted(done.references, 'reference')}, "
        f"{counted(done.instructions, 'instruction')}, {processes}, "
        f"{format_bytes(done.bytes)}, {done.bytes_per_reference:.3f} bytes per reference, "
        f"{done.elapsed_seconds:.1f} s"
    )
