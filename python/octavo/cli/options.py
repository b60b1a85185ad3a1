"""Options that several commands share: the program or trace, the counted part, the output."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from math import isnan
from typing import TYPE_CHECKING, Annotated, Any

import typer

from octavo.base.errors import UsageError
from octavo.base.files import STANDARD_OUTPUT, JsonFile, output_to_error
from octavo.base.text import quoted
from octavo.base.units import count, decimal
from octavo.cli.groups import flag, option, optional

if TYPE_CHECKING:
    from octavo.cli.shown import Shown

_MOST_DIGITS = 18
"""Limit of digits; longer numbers are beyond every range."""


def whole_number(
    least: int, most: int | None = None, what: str = "give a whole number"
) -> Callable[[Any], int]:
    """A parser of whole numbers in a range, which raises BadParameter."""
    bounds = f"from {least} on" if most is None else f"from {least} to {most}"
    digits = f", of at most {_MOST_DIGITS} digits" if most is None else ""

    def read(given: Any) -> int:
        text = str(given)
        is_number = text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS
        if is_number and least <= int(text) and (most is None or int(text) <= most):
            return int(text)
        is_long = len(text) > _MOST_DIGITS
        raise typer.BadParameter(f"`{quoted(text)}`: {what} {bounds}{digits if is_long else ''}.")

    return read


def number(given: Any) -> float:
    """A parser of numbers, which raises BadParameter."""
    value = decimal(str(given))
    if isnan(value):
        raise typer.BadParameter(f"`{quoted(str(given))}`: give a number such as 20 or 2.5.")
    return value


def percent(text: str, option: str) -> int:
    """The value of an option that is a share, such as `50%`. Raises UsageError."""
    match = re.fullmatch(r"([0-9]{1,3})\s*%?", text.strip())
    if match is None or not 1 <= int(match[1]) <= 100:
        raise UsageError(f"{option} `{quoted(text)}`: give a percentage from 1% to 100%.")
    return int(match[1])


process_id = whole_number(1, 2**22, "give the number of a process,")
process_of_trace = whole_number(0, 2**32 - 1)


_PROGRAM = typer.Argument(
    metavar="PROGRAM",
    help="The program, and its arguments after it: options of octavo go before it, and `--` ends "
    "them.",
)
Program = Annotated[list[str], _PROGRAM]
OptionalProgram = Annotated[list[str] | None, _PROGRAM]
ProgramOrTrace = Annotated[
    list[str],
    typer.Argument(
        metavar="PROGRAM",
        help="The program, and its arguments after it: options of octavo go before it, and `--` "
        "ends them. Or a trace, which options may follow.",
    ),
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
        "--set",
        metavar="KEY=VALUE",
        help="Change a number of the machine (tlb.l2.main.entries=2048).",
    ),
]


@dataclass(frozen=True)
class Following:
    """How a program is traced, and which part of it is counted."""

    tracer: str | None = option(
        None,
        "octavo|lackey",
        "Octavo's own Valgrind tool (the default), or Lackey's text through a pipe (very slow).",
    )
    follow: bool | None = flag(
        "Trace child processes too, or do not.", "--follow/--no-follow", default=None
    )
    skip_instructions: str = option("0", "N", "Begin to count after N instructions (10M, 2G).")
    max_instructions: str | None = option(None, "N", "End the run after counting N instructions.")
    marks: bool = flag("Count only between the begin and end marks of octavo.h.")
    start_after: str | None = option(
        None,
        "TIME|N|ctl",
        "Begin to count after this time (30s, 5min) or number of instructions (200M), or at "
        "`octavo ctl PID start`.",
    )
    duration: str | None = option(
        None,
        "TIME|N",
        "After counting for this time (30s) or number of instructions (2G), end the program as "
        "Ctrl-C does; the result is complete.",
    )
    window: str | None = option(
        None,
        "ON/OFF",
        "Trace only windows: instructions (20M/1980M) or time (0.1s/10s) of the first length, "
        "then none for the second length, and so on. Between windows the program runs without "
        "instrumentation.",
    )

    def scope(self) -> dict[str, Any]:
        """The arguments of `octavo.tracing.scope.resolve_scope`. Raises UsageError."""
        return {
            "tracer": self.tracer or "octavo",
            "follow_children": self.follow is not False,
            "skip_instructions": count(self.skip_instructions, "--skip-instructions"),
            "max_instructions": optional(count, self.max_instructions, "--max-instructions"),
            "between_marks": self.marks,
            "start_after": self.start_after,
            "duration": self.duration,
            "window": self.window,
        }


@dataclass(frozen=True)
class Tracing(Following):
    """How a program is traced or a trace is read, and which part of it is counted."""

    layout: str = option(
        "native",
        "native|as-traced",
        "Place mappings where Linux would have put them, or where Valgrind did.",
    )
    format: ReadFormat = None

    def scope(self) -> dict[str, Any]:
        """The arguments of `octavo.tracing.scope.resolve_scope`. Raises UsageError."""
        return {"layout": self.layout, **super().scope()}

    def of_traces(self) -> dict[str, Any]:
        """The options that distinguish a program from a trace."""
        return {"format": self.format, "tracer": self.tracer, "follow_children": self.follow}


@dataclass(frozen=True)
class WarmedTracing(Tracing):
    """Tracing options with windows that may begin with a warm-up."""

    window_warm: str = option(
        "0",
        "N",
        "Use the first N instructions of each window but the first to warm TLBs; they are not "
        "counted.",
    )

    def scope(self) -> dict[str, Any]:
        """The arguments of `octavo.tracing.scope.resolve_scope`. Raises UsageError."""
        return {**super().scope(), "window_warm": count(self.window_warm, "--window-warm")}


@dataclass(frozen=True)
class SharedTracing(Tracing):
    """Tracing options for processes, also of several traces, that share a core."""

    processes: str = option(
        "apart",
        "apart|asid|flush",
        "Whether each process has TLBs of its own (the default), or all processes of the "
        "traces share TLBs: with entries tagged by process, or flushed at each context switch.",
    )
    quantum: str | None = option(
        None, "N", "Instructions that a process runs before the next one (default 1M)."
    )
    first_quantum: str | None = option(
        None,
        "N",
        "Instructions of the first turn of each process, so that one has started up before the "
        "next begins (default: --quantum).",
    )

    def scope(self) -> dict[str, Any]:
        """The arguments of `resolve_scope` and of `choose_processes`. Raises UsageError."""
        quantum = optional(count, self.quantum, "--quantum")
        first = optional(count, self.first_quantum, "--first-quantum")
        quanta = {"quantum": quantum, "first_quantum": first}
        return {**super().scope(), "processes": self.processes, **quanta}


@dataclass(frozen=True)
class RecordedAllocations:
    """Whether the blocks that a program allocates are recorded."""

    allocations: bool = flag(
        "Record each block that the program allocates and the stack of the call, so that data "
        "misses are shown by allocation site and source line. Slows the run: see docs/run.md."
    )


@dataclass(frozen=True)
class Allocations(RecordedAllocations):
    """How misses are attributed to allocation sites."""

    allocation_wrappers: str | None = option(
        None,
        "NAMES",
        "More functions that allocate for their callers: a block is attributed to the first caller "
        "that is no such function. A list; * stands for any text (pool_get,arena_*).",
    )

    def of_run(self, *, is_trace: bool) -> dict[str, Any]:
        """The arguments of `octavo.runs.configuration.configure`. Raises UsageError."""
        if self.allocations and is_trace:
            raise UsageError(
                "--allocations is for a program; to have allocations in a trace, record it by "
                "octavo record --allocations."
            )
        names = (self.allocation_wrappers or "").split(",")
        wrappers = [name.strip() for name in names if name.strip()]
        if self.allocation_wrappers is not None and not wrappers:
            raise UsageError("--allocation-wrappers needs names, such as pool_get,arena_*.")
        if wrappers and not self.allocations and not is_trace:
            raise UsageError("--allocation-wrappers needs --allocations.")
        return {"allocations": self.allocations, "allocation_wrappers": wrappers}


@dataclass(frozen=True)
class DocumentOutput:
    """The document of a command; its other output, if any, is its own."""

    json: str | None = option(
        None,
        "FILE",
        "Write everything as JSON; - is standard output, and the output of a program that is run "
        "then goes to standard error.",
    )
    quiet: bool = flag("Print only errors on standard error.", "--quiet", "-q")
    force: bool = flag("Overwrite files and results that exist.")

    def document_file(
        self, *, beside: str | None, inputs: Sequence[str] = ()
    ) -> Callable[[Callable[[], Any]], None]:
        """A function that writes the document to `--json`; it takes a function that makes the
        document, which is called only with that option. `beside` is the command's other output;
        `inputs` are files that it reads. Raises UsageError or CannotRun for a place that cannot be
        written.
        """
        from octavo.cli.shown import check_distinct, check_not_read

        check_not_read("--json", self.json, inputs)
        check_distinct(out=beside, json=self.json)
        file = None if self.json is None else JsonFile(self.json, force=self.force)
        return lambda document: None if file is None else file.write(document())

    def program_output(self, *, beside: str | None = None) -> AbstractContextManager[None]:
        """Redirects the standard output of programs to standard error, if a result goes to standard
        output. `beside` is the command's other output.
        """
        return output_to_error(STANDARD_OUTPUT in (self.json, beside))


@dataclass(frozen=True)
class Output(DocumentOutput):
    """The outputs of a command that counts: a directory or a table, and a document."""

    out: str | None = option(
        None,
        "DIR|FILE.parquet",
        "Write every number and a report (rows.parquet, report.html, …) to DIR, or the rows "
        "alone to FILE.parquet.",
        "--out",
        "-o",
    )


@dataclass(frozen=True)
class TextOutput(DocumentOutput):
    """The outputs of a command that shows a text."""

    out: str | None = option(
        None, "FILE", "Write the output to FILE; - is standard output.", "--out", "-o"
    )

    def shown(self, *inputs: str) -> Shown:
        """The checked places of the output; `inputs` are files that are read. Raises UsageError or
        CannotRun.
        """
        from octavo.cli.shown import Shown

        return Shown(self, inputs)


def names_in(*texts: str) -> list[str]:
    """The names in the values of an option, each a list with commas."""
    return [name.strip() for text in texts for name in text.split(",")]
