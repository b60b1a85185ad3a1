"""Options that several commands share: the program or trace, the part that counts, the output."""

import sys
from contextlib import suppress
from typing import Annotated, Any

import typer

from octavo.base.errors import UsageError
from octavo.tracing.phase import read_phase

Program = Annotated[
    list[str],
    typer.Argument(
        metavar="PROGRAM",
        help="The program, and its arguments after it: options of octavo go before it, and `--` "
        "ends them.",
    ),
]
ProgramOrTrace = Annotated[
    list[str],
    typer.Argument(
        metavar="PROGRAM",
        help="The program, and its arguments after it: options of octavo go before it, and `--` "
        "ends them. Or a trace, which options may follow.",
    ),
]
Layout = Annotated[
    str,
    typer.Option(
        metavar="native|as-traced",
        help="Place mappings where Linux would have put them, or where Valgrind did.",
    ),
]
Tracer = Annotated[
    str | None,
    typer.Option(
        metavar="octavo|lackey",
        help="Octavo's own Valgrind tool (the default), or Lackey's text through a pipe (very "
        "slow).",
    ),
]
Follow = Annotated[
    bool | None,
    typer.Option("--follow/--no-follow", help="Trace child processes too, or do not."),
]
SkipInstructions = Annotated[
    str,
    typer.Option(metavar="N", help="Begin to count after so many instructions (10M, 2G)."),
]
MaxInstructions = Annotated[
    str | None,
    typer.Option(metavar="N", help="End the run after counting so many instructions."),
]
StartAfter = Annotated[
    str | None,
    typer.Option(
        "--start-after",
        metavar="TIME|N|ctl",
        help="Begin to count after so much time (30s, 5min) or so many instructions (200M), or at "
        "`octavo ctl PID start`.",
    ),
]
Duration = Annotated[
    str | None,
    typer.Option(
        "--duration",
        metavar="TIME|N",
        help="After counting for so long (30s), or so many instructions (2G), end the program as "
        "Ctrl-C does; the result is whole.",
    ),
]
Marks = Annotated[
    bool,
    typer.Option("--marks", help="Count only between the begin and end marks of octavo.h."),
]
ReadFormat = Annotated[
    str | None,
    typer.Option(
        "--format",
        metavar="FORMAT",
        help="The trace's format, if its first bytes do not identify it.",
    ),
]
TraceName = Annotated[
    str,
    typer.Argument(metavar="TRACE", help="A trace: a file, - for standard input, or synth:…."),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="Change a number of the machine (tlb.l2.entries=2048)."
    ),
]


def scope(
    layout: str,
    tracer: str | None,
    follow: bool | None,
    skip_instructions: str,
    max_instructions: str | None,
    marks: bool,
    start_after: str | None = None,
    duration: str | None = None,
) -> dict[str, Any]:
    """The arguments of `octavo.tracing.scope.resolve_scope` from the options above."""
    return {
        "layout": layout,
        "tracer": tracer or "octavo",
        "follow_children": follow is not False,
        **read_phase(start_after, duration, skip=skip_instructions, most=max_instructions),
        "between_marks": marks,
    }


ProcessesTogether = Annotated[
    str,
    typer.Option(
        metavar="apart|asid|flush",
        help="Whether each process has TLBs of its own (the default), or all processes of the "
        "traces share TLBs: with entries tagged by process, or flushed at each context switch.",
    ),
]
Quantum = Annotated[
    str | None,
    typer.Option(
        metavar="N", help="Instructions that a process runs before the next one (default 1M)."
    ),
]


JsonName = Annotated[
    str | None,
    typer.Option("--json", metavar="FILE", help="Write everything as JSON; - is standard output."),
]
Quiet = Annotated[
    bool, typer.Option("--quiet", "-q", help="Print nothing but errors on standard error.")
]
Force = Annotated[
    bool, typer.Option("--force", help="Overwrite files that exist, and results in a DIR.")
]
OutputTarget = Annotated[
    str | None,
    typer.Option(
        "--out",
        "-o",
        metavar="DIR|FILE.parquet",
        help="Write every number and a report (rows.parquet, report.html, …) to DIR, or the rows "
        "alone to FILE.parquet.",
    ),
]
TextFile = Annotated[
    str | None,
    typer.Option(
        "--out", "-o", metavar="FILE", help="Write the output to FILE; - is standard output."
    ),
]
OldOutput = Annotated[str | None, typer.Option("--output", hidden=True)]
"""The name that `--out` had in `record` and `snapshot`; accepted for one more release."""


def current_name(out: str | None, old: str | None, *, quiet: bool) -> str | None:
    """The value of `--out`, which may be given by its old name. Raises UsageError."""
    if old is None:
        return out
    if out is not None:
        raise UsageError("--output is the old name of --out: give one of them.")
    if not quiet:
        with suppress(OSError, AttributeError):
            print(
                "octavo: note: --output is now --out, or -o; the next release drops the old name.",
                file=sys.stderr,
                flush=True,
            )
    return old
