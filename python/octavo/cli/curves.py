"""`octavo curves`: the misses of every TLB for a program or a trace, in one pass."""

from contextlib import ExitStack
from typing import Annotated

import typer

from octavo._core import MAX_CACHE_SETS, MAX_LINE_BYTES, MAX_WAYS, MIN_LINE_BYTES
from octavo.base import units
from octavo.base.metrics import MISS_PENALTY_CYCLES, TWO_SIZES_PENALTY_CYCLES
from octavo.cli import options
from octavo.cli.command_line import TraceCommand
from octavo.cli.guard import guarded
from octavo.cli.options import Force, JsonName, OutputTarget, Quiet
from octavo.cli.output_files import Files, end
from octavo.hardware.tlb_presets import tlb_preset_names
from octavo.terminal.console import make_console
from octavo.terminal.curves import show_curves
from octavo.terminal.live import LiveLine, progress_text, trace_text
from octavo.tlb_curves.api import VERB, execute_curves, execute_curves_of_trace
from octavo.tlb_curves.configuration import (
    DEFAULT_PAGE_SIZES,
    DEFAULT_THRESHOLD,
    DEFAULT_WINDOWS,
    PARTS,
    STREAMS,
    configure_curves,
    read_pairs,
)
from octavo.tracing.run import means_traces

_EPILOG = """\b
Examples:
  octavo curves gzip.oct
  octavo curves --streams data --without two-sizes -o gzip.parquet gzip.oct
  octavo curves --two-sizes 4KiB+32KiB,4KiB+2MiB --policy-window 1M -- ./server --once
  octavo curves --classify 64x4 --classify-sizes 4KiB+2MiB -- ./server --once
  octavo curves --processes asid --quantum 100k shell.oct gzip.oct
  octavo curves --sample-pages 1/16 long.oct
  octavo curves --cache-lines 16..128 --without full,sets,working-sets,two-sizes gzip.oct
  octavo curves --sets 128 --index low --index xor --presets all -- python3 script.py

\b
Exit status: as of `octavo run`.
"""


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command(VERB, cls=TraceCommand, epilog=_EPILOG, no_args_is_help=True)(curves)


def curves(
    command: options.ProgramOrTrace,
    streams: Annotated[
        str,
        typer.Option(
            metavar="LIST",
            help="Streams, each with TLBs of its own: fetch (instructions), data, all (both in "
            "one TLB).",
        ),
    ] = ",".join(STREAMS),
    page_sizes: Annotated[
        str,
        typer.Option(
            metavar="SIZES",
            help="Page sizes, powers of two from 4KiB to 1GiB: a list, a range or both. 4 KiB, "
            "and those of two sizes and of presets, are added.",
        ),
    ] = DEFAULT_PAGE_SIZES,
    entries: Annotated[
        str,
        typer.Option(
            metavar="N", help="Fully associative TLBs of every number of entries up to N."
        ),
    ] = "4096",
    sets: Annotated[
        str,
        typer.Option(
            metavar="N",
            help="Set-associative TLBs of every power of two of sets up to N, 1 to 16 ways each.",
        ),
    ] = "1024",
    index: Annotated[
        list[str] | None,
        typer.Option(
            metavar="low|bits:N|xor",
            help="How a set is found: by the low bits of the page number (the default), by those "
            "from bit N on, or by all of them exclusive-ored. May be given several times.",
        ),
    ] = None,
    windows: Annotated[
        str,
        typer.Option(
            metavar="T,T,…", help="Windows of the working sets, in references of the program."
        ),
    ] = DEFAULT_WINDOWS,
    two_sizes: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SMALL+LARGE",
            help="Two page sizes at once; may be given several times (default 4KiB+16KiB, "
            "4KiB+32KiB, 4KiB+64KiB).",
        ),
    ] = None,
    threshold: Annotated[
        str,
        typer.Option(
            metavar="N|P%",
            help="How many of a large page's blocks, or what share of them, must have been "
            "referenced in the policy's window for it to be large.",
        ),
    ] = DEFAULT_THRESHOLD,
    policy_window: Annotated[
        str,
        typer.Option(metavar="T", help="Window of the policy, in references of the program."),
    ] = "10M",
    miss_penalty: Annotated[
        float, typer.Option(metavar="CYCLES", help="Cost of a TLB miss.")
    ] = MISS_PENALTY_CYCLES,
    two_sizes_penalty: Annotated[
        float, typer.Option(metavar="CYCLES", help="Cost of a TLB miss with two page sizes.")
    ] = TWO_SIZES_PENALTY_CYCLES,
    presets: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES",
            help=f"Machines to look up: {', '.join(tlb_preset_names())}, or all of them.",
        ),
    ] = None,
    cache_lines: Annotated[
        str | None,
        typer.Option(
            metavar="SIZES",
            help=f"Caches, too: all of 1 to {MAX_CACHE_SETS} sets and 1 to {MAX_WAYS} ways, with "
            f"lines of these sizes, {MIN_LINE_BYTES} to {MAX_LINE_BYTES} bytes: a list or a range, "
            "such as 16..128.",
        ),
    ] = None,
    classify: Annotated[
        str | None,
        typer.Option(
            metavar="ENTRIES[xWAYS]",
            help="Classify the misses of one TLB, such as 64x4, by cause, region and function.",
        ),
    ] = None,
    classify_sizes: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE+LARGER",
            help="Its page size, and the one to compare with (default 4KiB+2MiB).",
        ),
    ] = None,
    threads: Annotated[
        str,
        typer.Option(
            metavar="shared|private",
            help="Whether the threads of a process share its TLBs (the default), or each has a "
            "core, and TLBs, of its own.",
        ),
    ] = "shared",
    processes: options.ProcessesTogether = "apart",
    quantum: options.Quantum = None,
    flush_every: Annotated[
        str | None,
        typer.Option(
            metavar="N",
            help="Flush the TLBs every N instructions, as context switches to other programs do.",
        ),
    ] = None,
    without: Annotated[
        str | None,
        typer.Option(metavar="PARTS", help=f"Leave out, to save time: {', '.join(PARTS)}."),
    ] = None,
    sample_pages: Annotated[
        str | None,
        typer.Option(
            metavar="SHARE[,seed=N]",
            help="For very long traces: estimate fully associative TLBs and working sets "
            "from this share of the pages, such as 1/64, each number with a 95% interval.",
        ),
    ] = None,
    layout: options.Layout = "native",
    tracer: options.Tracer = None,
    follow: options.Follow = None,
    format: options.ReadFormat = None,
    skip_instructions: options.SkipInstructions = "0",
    max_instructions: options.MaxInstructions = None,
    marks: options.Marks = False,
    out: OutputTarget = None,
    json: JsonName = None,
    quiet: Quiet = False,
    force: Force = False,
) -> None:
    """Compute the misses of every TLB for PROGRAM, or for a trace, in one pass.

    Fully associative TLBs of all sizes, set-associative ones of all sets and ways, at every page
    size and with two page sizes at once, and average working sets. The program keeps its standard
    streams; all that Octavo says goes to standard error.
    """
    with guarded(), ExitStack() as stack:
        is_trace = means_traces(
            command,
            processes=processes,
            format=format,
            tracer=tracer,
            follow_children=follow,
            verb=VERB,
        )
        configuration = configure_curves(
            sizes=units.page_sizes(page_sizes),
            streams=streams.split(","),
            entries=units.count(entries),
            sets=units.count(sets),
            indexes=index or ["low"],
            windows=units.counts(windows),
            **({} if two_sizes is None else {"two_sizes": read_pairs(two_sizes)}),
            threshold=threshold,
            policy_window=units.count(policy_window),
            miss_penalty=miss_penalty,
            two_sizes_penalty=two_sizes_penalty,
            presets=_names(presets),
            cache_lines=[] if cache_lines is None else units.line_sizes(cache_lines),
            without=_names(without),
            classify=classify,
            classify_sizes=classify_sizes,
            threads=threads,
            processes=processes,
            quantum=None if quantum is None else units.count(quantum),
            flush_every=None if flush_every is None else units.count(flush_every),
            sample_pages=sample_pages,
            **options.scope(layout, tracer, follow, skip_instructions, max_instructions, marks),
        )
        files = Files(stack, json=json, out=out, force=force)
        console = make_console()
        with LiveLine(console, quiet=quiet, text=trace_text if is_trace else progress_text) as line:
            if is_trace:
                result = execute_curves_of_trace(command, configuration, line.show, format)
            else:
                result = execute_curves(command, configuration, line.show)
        if not quiet:
            show_curves(console, result)
        otherwise = "These are a few TLBs; --out and --json have all."
        files.write(console, result, quiet=quiet, otherwise=otherwise)
        end(result)


def _names(text: str | None) -> list[str]:
    return [] if text is None else [name.strip() for name in text.split(",")]
