"""`octavo snapshot`: the memory of this machine, for a simulation to start from."""

from octavo.base.errors import UsageError
from octavo.base.files import STANDARD_OUTPUT
from octavo.cli import options
from octavo.cli.groups import command, option
from octavo.cli.guard import guarded
from octavo.snapshot import (
    MemorySnapshot,
    coverage_grid,
    facts,
    headline,
    read_snapshot,
    take_snapshot,
)
from octavo.terminal.console import make_console, make_output_console, say, show_grid

_EPILOG = """\b
Examples:
  octavo snapshot -o now.octmem
  octavo snapshot --show now.octmem
  sudo octavo snapshot -o server.octmem --pid 1234
  octavo snapshot --show server.octmem --json -

\b
The state of every frame (/proc/kpageflags) and the frames of a process (/proc/PID/pagemap) are
readable by root only; otherwise only free blocks by order are recorded (/proc/buddyinfo).
"""


@command("snapshot", epilog=_EPILOG)
def snapshot(
    out: str | None = option(None, "FILE", "The snapshot to write.", "--out", "-o"),
    show: str | None = option(None, "FILE", "Describe this file instead."),
    pid: int | None = option(
        None, "PID", "Also record the physical layout of this process.", parser=options.process_id
    ),
    *,
    document: options.DocumentOutput,
) -> None:
    """Record the fragmentation of this machine's memory, and the free memory that pages of each
    size could use.
    """
    with guarded():
        write_document = document.document_file(beside=out)
        if (out is None) == (show is None):
            raise UsageError("give either -o FILE, to take a snapshot, or --show FILE.")
        if out is not None:
            found = take_snapshot(out, pid=pid, force=document.force)
            _show_taken(found, quiet=document.quiet)
        else:
            assert show is not None
            if pid is not None:
                raise UsageError("--pid goes with -o, not with --show.")
            found = read_snapshot(show)
            if document.json != STANDARD_OUTPUT:
                _show(found)
        write_document(found.document)


def _show_taken(found: MemorySnapshot, *, quiet: bool) -> None:
    """Summarises a new snapshot on standard error."""
    if quiet:
        return
    console = make_console()
    say(console, headline(found), "bold")
    for sentence in found.summary["missing"]:
        say(console, f"Missing: {sentence}.")


def _show(found: MemorySnapshot) -> None:
    console = make_output_console()
    say(console, headline(found), "bold")
    for sentence in facts(found.summary):
        say(console, sentence)
    show_grid(console, coverage_grid(found.summary))
