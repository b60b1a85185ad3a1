"""`octavo run`: trace a program live, or read a trace, and answer "which page size?"."""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from octavo.base import units
from octavo.cli import options
from octavo.cli.command_line import TraceCommand
from octavo.cli.groups import command, flag, option, optional
from octavo.cli.guard import guarded
from octavo.cli.output_files import Files, end
from octavo.runs.api import execute
from octavo.runs.configuration import Configuration, configure
from octavo.terminal.console import make_console
from octavo.terminal.live import LiveLine, progress_text, trace_text
from octavo.tracing.run import means_a_trace

_EPILOG = """\b
Examples:
  octavo run -- gzip -9 --keep --stdout big.log > /dev/null
  octavo run --page-sizes 4KiB,16KiB,64KiB,2MiB -- python3 script.py
  octavo run --tlb zen4 --out result -- sqlite3 test.db < queries.sql
  octavo run --json - --quiet -- ./server --once | jq .advice
  octavo run --start-after 30s --duration 60s --out result -- redis-server --port 7777
  octavo run --allocations --out result -- ./server --once
  octavo run gzip.oct
  octavo run - < trace.lackey.gz

\b
Exit status: the program's own, 0 for a trace; 128 + N when signal N ended it or interrupted octavo
(130 after Ctrl-C, 143 after SIGTERM).
  2    wrong options
  125  octavo could not do its part (no Valgrind, output not writable, nothing counted,
       a trace that cannot be read to its end)
  126  the program is there but cannot be traced
  127  there is no such program
"""


@dataclass(frozen=True)
class RunOptions:
    """The TLBs, the page sizes to choose among, and the limits of the advice."""

    page_sizes: str = option(
        units.DEFAULT_PAGE_SIZES,
        "SIZES",
        "Page sizes, powers of two from 4KiB to 1GiB: a list (4KiB,64KiB), a range "
        "(4KiB..2MiB) or both. 4 KiB is always measured.",
    )
    entries: str | None = option(
        None,
        "N|F,D",
        "TLB entries: one number for both TLBs (default 64), or two for instructions and data.",
    )
    tlb: str | None = option(
        None,
        "MACHINE",
        "The machine whose TLBs are modelled: a name of octavo list machines, a file "
        "that ends with .toml, or lru64 or itanium2 alone (default: this processor, by CPUID).",
    )
    max_growth: str = option(
        "25%",
        "PERCENT",
        "Limit of the growth of memory for larger pages to be advised; growth below 8 MiB, or "
        "1% of this machine's memory, is always accepted.",
    )

    native_time: str | None = option(
        None,
        "USER[,SYSTEM]",
        "Native processor time of the counted part, in user mode and in the kernel, such as "
        "2.2s,0.9s: gains are shares of it (default: estimated from the instructions).",
    )

    def configuration(self, scope: dict[str, Any]) -> Configuration:
        """The settings of a run with this scope. Raises UsageError."""
        return configure(
            sizes=units.page_sizes(self.page_sizes),
            entries=optional(units.entries, self.entries),
            tlb=self.tlb,
            max_growth=units.percentage(self.max_growth, "--max-growth"),
            native_seconds=optional(_native_times, self.native_time),
            **scope,
        )


def _native_times(text: str) -> list[float]:
    user, *system = text.split(",")
    in_kernel = [units.duration(one, "--native-time", or_zero=True) for one in system]
    return [units.duration(user, "--native-time"), *in_kernel]


@command("run", cls=TraceCommand, epilog=_EPILOG)
def run(
    command: options.ProgramOrTrace,
    *,
    asked: RunOptions,
    tracing: options.WarmedTracing,
    allocating: options.Allocations,
    per_process: bool = flag("Judge and show each process alone, not those of a program together."),
    advice: bool = flag("Advise a page size.", default=True),
    output: options.Output,
) -> None:
    """Run PROGRAM under the tracer and count, for every page size, TLB misses and memory.

    The program keeps its standard input, output and error; messages of Octavo go to standard error.
    With --json -, the program's output goes there, too. A trace may be given instead of a program:
    a file, - for standard input, or a synthetic trace (synth:…).
    """
    with guarded(), ExitStack() as stack:
        is_trace = means_a_trace(command, **tracing.of_traces())
        configuration = asked.configuration(
            {**tracing.scope(), **allocating.of_run(is_trace=is_trace)}
        )
        files = Files(stack, output, command if is_trace else ())
        text = trace_text if is_trace else progress_text
        with output.program_output(), LiveLine(quiet=output.quiet, text=text) as line:

            def show(progress: Any) -> None:
                if not output.quiet:
                    _show_result()
                line.show(progress)

            result = execute(
                command, configuration, show, is_trace, tracing.format, per_process=per_process
            )
        console = make_console()
        if not output.quiet:
            _show_result()(console, result, advice=advice)
        files.write(console, result)
        end(result)


def _show_result() -> Callable[..., None]:
    """The function that prints results. Its slow import happens while the program runs."""
    from octavo.terminal.run import show_result

    return show_result
