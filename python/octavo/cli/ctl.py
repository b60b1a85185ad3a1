"""`octavo ctl`: wait for a run under way, its status, start, stop and snapshot."""

from __future__ import annotations

import shlex
from contextlib import ExitStack
from typing import Any

import typer

from octavo.base.errors import UsageError, choose
from octavo.base.files import STANDARD_OUTPUT, JsonFile
from octavo.base.units import counted, format_bytes
from octavo.cli import options
from octavo.cli.groups import argument, command
from octavo.cli.guard import guarded
from octavo.control.server import ACTIONS, WAIT

_EPILOG = """\b
Examples:
  octavo run --start-after ctl --out whole -- redis-server --port 7777 --save ''
  octavo ctl $! wait
  octavo ctl $(pgrep -f 'octavo run') status
  octavo ctl 4711 start
  octavo ctl 4711 snapshot --out first
  octavo ctl 4711 snapshot --json - | jq .advice[0].text
  octavo ctl 4711 stop

\b
PID is the process of octavo, of the program that it runs, or of a child of that; or one that
started octavo, such as sudo, where it started no other run. Only the same user and root are
answered.

\b
Exit status: 0, or
  2    wrong options
  125  no such run, or the run has nothing to give yet; with wait: PID has ended
"""


@command("ctl", epilog=_EPILOG)
def ctl(
    pid: int = argument("PID", "A process of the run.", parser=options.process_id),
    action: str = argument(
        "wait|status|start|stop|snapshot",
        "Wait until the run of a process that has just started answers; say how far it is; begin "
        "to count; count no more for now; write a whole result of what was counted so far.",
    ),
    *,
    output: options.Output,
) -> None:
    """Control a live `octavo run`, `curves`, `sim` or `record` from another terminal.

    The program goes on all the while. A snapshot is of `octavo run`: rows, advice and report as at
    the end of a run.
    """
    with guarded(), ExitStack() as stack:
        choose(action, (WAIT, *ACTIONS), "action")
        if action == "snapshot":
            _snapshot(stack, pid, output)
            return
        if output.out is not None:
            raise UsageError(f"--out is for a snapshot; `{action}` has nothing to write there.")
        from octavo.control import client

        def say_wait(sentence: str) -> None:
            if not output.quiet:
                from octavo.terminal.console import make_console, say

                say(make_console(), f"octavo: {sentence}")

        place = None if output.json is None else JsonFile(output.json, force=output.force)
        status = client.ctl(pid, action, on_wait=say_wait)
        if place is not None:
            place.write(status)
        if not output.quiet and output.json != STANDARD_OUTPUT:
            typer.echo(_status_text(status))


def _snapshot(stack: ExitStack, pid: int, output: options.Output) -> None:
    from octavo.cli.output_files import Files
    from octavo.control import client
    from octavo.runs.result import RunResult
    from octavo.terminal.console import make_console, make_output_console
    from octavo.terminal.run import show_result

    files = Files(stack, output)
    document = client.ctl(pid, "snapshot")
    result = RunResult(
        manifest=document["run"],
        rows=document["rows"],
        programs=document["programs"],
        advice=document["advice"],
    )
    if not output.quiet and output.json != STANDARD_OUTPUT:
        show_result(make_output_console(), result, advice=True)
    files.write(make_console(), result)


def _status_text(status: dict[str, Any]) -> str:
    from octavo.terminal.live import program_names, resident_text

    state = "counting"
    if status["over"]:
        state = "the counted part is over, the program is ending"
    elif not status["counting"]:
        state = "not counting"
    parts = [
        counted(status["references"], "reference"),
        counted(status["instructions"], "instruction"),
        f"{status['elapsed_seconds']:.1f} s",
    ]
    if status["resident_bytes"]:
        parts.append(resident_text(status))
    if "bytes" in status:
        parts.append(f"{format_bytes(status['bytes'])} written")
    parts.append(
        f"{status['streams_live']} of {counted(status['processes_total'], 'process')} live"
    )
    who = f"process {status['pid']}, octavo {status['octavo_pid']}"
    names = program_names(status["programs"])
    if names:
        parts[-1] += f": {names}"
    return f"{shlex.join(status['command'])} ({who}): {state}\n{', '.join(parts)}"
