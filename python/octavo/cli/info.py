"""`octavo info`: the format, origin and contents of a trace."""

import shlex
from typing import Any

from rich.console import Console

from octavo.base.table import Grid
from octavo.base.text import short_path
from octavo.base.units import format_bytes, format_count
from octavo.cli import options
from octavo.cli.groups import command, flag
from octavo.cli.guard import guarded
from octavo.terminal.console import say, show_grid
from octavo.terminal.live import LiveLine, trace_text
from octavo.traces.survey import TraceInfo, survey_trace


@command("info")
def info(
    trace: options.TraceName,
    format: options.ReadFormat = None,
    maps: bool = flag("List the mappings of each process, too."),
    *,
    output: options.TextOutput,
) -> None:
    """Describe TRACE: its format, its origin, and each process in it.

    For a trace that is cut off, this describes the part before the cut.
    """
    with guarded():
        shown = output.shown(trace)
        with LiveLine(quiet=output.quiet, text=trace_text) as line:
            found = survey_trace(trace, line.show, format=format)
        shown.write_console(lambda console: _show(console, found, maps=maps))
        shown.write_json(lambda: _document(found, maps=maps))


def _document(found: TraceInfo, *, maps: bool) -> dict[str, Any]:
    document = found.document()
    if not maps:
        for process in document["processes"]:
            del process["mappings"]
    return document


def _show(console: Console, found: TraceInfo, *, maps: bool) -> None:
    record = found.record
    say(console, _headline(record), "bold")
    if record["state"] != "whole":
        say(console, _warning(record), "bold yellow")
    for name, value in _facts(record):
        say(console, f"{name + ':':<14}{value}")
    for note in record["notes"]:
        say(console, f"- {note}")
    show_grid(console, _process_grid(found.processes))
    if maps:
        for process in found.processes:
            show_grid(console, _mapping_grid(process))


def _headline(record: dict[str, Any]) -> str:
    exact = "every reference" if record["exact"] else "not every reference"
    made = "" if record["source_format"] == record["format"] else f" from {record['source_format']}"
    return f"{record['trace']}: {record['format']} trace{made}, {record['state']}, {exact}"


def _warning(record: dict[str, Any]) -> str:
    if record["state"] == "cut":
        return (
            f"CUT: its writer did not finish it; the first {record['whole_bytes']} bytes are "
            "whole, and this description covers only these."
        )
    return f"BROKEN: {record['fault']}; this description covers only the part before."


def _facts(record: dict[str, Any]) -> list[tuple[str, str]]:
    about = record["about"] or {}
    facts = []
    if about.get("command"):
        facts.append(("command", shlex.join(map(str, about["command"]))))
    if about.get("started_at"):
        where = f" in {about['directory']}" if about.get("directory") else ""
        when = str(about["started_at"]).replace("T", " ").replace("+00:00", " UTC")
        facts.append(("recorded", f"{when}{where}"))
    host = about.get("host") or {}
    if host:
        processor = host.get("cpu_model") or "unknown processor"
        facts.append(("host", f"{processor}, {host.get('cores')} cores"))
    if about.get("versions"):
        facts.append(("with", ", ".join(f"{k} {v}" for k, v in about["versions"].items())))
    if about.get("partial_reason"):
        facts.append(("partial", f"{about['partial_reason']}; the trace ends there"))
    if record["bytes"] is not None:
        each = record["bytes_per_reference"]
        of_each = "" if each is None else f", {each:.3f} bytes per reference"
        facts.append(("size", format_bytes(record["bytes"]) + of_each))
    facts.append(("references", format_count(record["references"])))
    if record["has_instructions"]:
        facts.append(("instructions", format_count(record["instructions"])))
    return facts


def _process_grid(processes: list[dict[str, Any]]) -> Grid:
    head = (
        "process",
        "program",
        "life",
        "pid",
        "references",
        "instructions",
        "threads",
        "events",
    )
    body = tuple(
        (
            str(process["stream"]),
            short_path(process["program"] or "unknown"),
            _life(process),
            str(process["pid"]) if process["pid"] else "",
            format_count(process["references"]),
            format_count(process["instructions"]),
            str(process["threads"]) if process["threads"] else "",
            format_count(sum(process["events"].values())),
        )
        for process in processes
    )
    return Grid("Processes", head, body, left_columns=3, spare=(2,))


def _life(process: dict[str, Any]) -> str:
    code = process["exit_code"]
    status = f" {code}" if process["ended_by"] == "exit" and code is not None else ""
    return f"{process['began_by']} to {process['ended_by'] or 'the cut'}{status}"


def _mapping_grid(process: dict[str, Any]) -> Grid:
    """The mappings of a process in the order in which they were made."""
    rows = (mapping.removeprefix("map ").split(" ", 2) for mapping in process["mappings"])
    body = tuple((where, access, " ".join(what)) for where, access, *what in rows)
    title = f"Mappings of process {process['stream']}, as they were made"
    return Grid(title, ("addresses", "access", "what"), body, left_columns=3)
