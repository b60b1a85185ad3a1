"""`octavo check`: contradictions in a trace."""

from typing import TYPE_CHECKING

import typer
from rich.console import Console

from octavo._core import start_check
from octavo.base.background import outcome_of
from octavo.base.errors import CannotRun
from octavo.base.text import plural
from octavo.base.units import counted, format_count
from octavo.cli import options
from octavo.cli.groups import command
from octavo.cli.guard import guarded
from octavo.terminal.console import say
from octavo.terminal.live import LiveLine, trace_text
from octavo.traces.by_name import open_trace
from octavo.traces.survey import own_notes_on

if TYPE_CHECKING:
    from octavo._core import Checked

SCHEMA = "octavo/check/1"
_FINDINGS = 1

_EPILOG = """\b
Exit status:
  0    nothing is wrong
  1    something is: a finding names the process, the instruction and the place in the trace
  125  the trace could not be read to its end
"""


@command("check", epilog=_EPILOG)
def check(
    trace: options.TraceName,
    format: options.ReadFormat = None,
    *,
    output: options.TextOutput,
) -> None:
    """Check whether TRACE can be what a program did: every reference against what was mapped.

    It reads the whole trace with its checksums, and compares references with mappings and threads.
    """
    with guarded():
        shown = output.shown(trace)
        opened = open_trace(trace, format=format)
        with LiveLine(quiet=output.quiet, text=trace_text) as line:
            job = start_check(opened)
            found = outcome_of(job, line.show)
        shown.write_console(lambda console: _show(console, trace, found))
        shown.write_json(lambda: {"schema": SCHEMA, "trace": trace, **found})
        if found["fault"] is not None:
            raise CannotRun(f"{found['fault'].rstrip('.')}.")
        if found["counts"]:
            raise typer.Exit(_FINDINGS)


def _show(console: Console, trace: str, found: "Checked") -> None:
    for finding in found["findings"]:
        say(console, f"{finding['text']}.")
    left = sum(found["counts"].values()) - len(found["findings"])
    if left > 0:
        kinds = ", ".join(f"{format_count(n)} {kind}" for kind, n in found["counts"].items())
        say(console, f"and {left} more; in all {kinds}.")
    for note in own_notes_on(found["facts"]):
        say(console, note)
    if found["references"] and not found["streams_mapped"]:
        say(console, "The trace records no mappings, so references were not checked against any.")
    if found["fault"] is None:
        number = sum(found["counts"].values())
        verdict = f"{number} {plural(number, 'finding')}" if number else "nothing is wrong"
        say(
            console,
            f"{trace}: {verdict}; {counted(found['references'], 'reference')}, "
            f"{counted(found['instructions'], 'instruction')}, "
            f"{counted(found['streams'], 'process image')}.",
            "bold",
        )
