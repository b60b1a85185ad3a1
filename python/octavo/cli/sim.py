"""`octavo sim`: translation designs side by side on one machine, with a program or a trace."""

from contextlib import ExitStack
from typing import Annotated

import typer

from octavo._core import designs as known_designs
from octavo._core import policies as known_policies
from octavo.base import units
from octavo.cli import options
from octavo.cli.command_line import TraceCommand
from octavo.cli.guard import guarded
from octavo.cli.options import Force, JsonName, OutputTarget, Quiet
from octavo.cli.output_files import Files, end
from octavo.simulation.api import VERB, execute_sim, execute_sim_of_trace
from octavo.simulation.configuration import (
    DEFAULT_DESIGNS,
    DEFAULT_MACHINE,
    configure_sim,
    names_in,
)
from octavo.terminal.console import make_console
from octavo.terminal.live import LiveLine, progress_text, trace_text
from octavo.terminal.sim import show_sim
from octavo.tracing.run import means_traces

_WIDTH = max(len(name) for name, _ in known_designs())
_NAMES = "\n".join(f"  {name:<{_WIDTH}} {about}" for name, about in known_designs())
_POLICIES = "\n".join(
    f"  {name:<{_WIDTH}} {about}"
    + "".join(f"\n  {'':<{_WIDTH}}   {key}={value}" for key, value in settings)
    for name, about, settings in known_policies()
)
_EPILOG = f"""\b
Designs:
{_NAMES}

\b
Policies, with their settings (as in tps:span=round-up):
{_POLICIES}

\b
Examples:
  octavo sim gzip.oct
  octavo sim --machine zen4 --design base4k --design thp -- ./server --once
  octavo sim --design tps,tps:promotion_threshold_percent=50,conventional+mthp gzip.oct
  octavo sim --set tlb.l2.main.entries=2048 --set tlb.l2.main.ways=16 gzip.oct
  octavo sim --cores 4 -- ./server --threads 4
  octavo sim --virtualised --host-policy base --design base4k,thp gzip.oct
  octavo sim --processes asid --quantum 100k shell.oct gzip.oct
  octavo sim --warm-up 10M --interval 1M --out result gzip.oct

\b
Exit status: as of `octavo run`.
"""


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command(VERB, cls=TraceCommand, epilog=_EPILOG, no_args_is_help=True)(sim)


def sim(
    command: options.ProgramOrTrace,
    machine: Annotated[
        str,
        typer.Option(metavar="NAME|FILE.toml", help="A machine that ships with Octavo, or yours."),
    ] = DEFAULT_MACHINE,
    design: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAMES",
            help="Designs, each on a machine of its own: those below, or hardware under a policy "
            "of the operating system, such as conventional+mthp; may be given several times "
            f"(default {','.join(DEFAULT_DESIGNS)}).",
        ),
    ] = None,
    settings: options.Settings = None,
    cores: Annotated[
        str | None,
        typer.Option(
            metavar="N",
            help="Give the machine so many cores, on which threads are placed one after another: "
            "short for --set core.count=N (default: as the machine has).",
        ),
    ] = None,
    warm_up: Annotated[
        str,
        typer.Option(
            metavar="N", help="Simulate so many instructions of each process without counting."
        ),
    ] = "0",
    interval: Annotated[
        str | None,
        typer.Option(metavar="N", help="Also report all counters every N instructions."),
    ] = None,
    check: Annotated[
        bool,
        typer.Option("--check", help="Compare each translation with the page table's; slower."),
    ] = False,
    virtualised: Annotated[
        bool,
        typer.Option(
            "--virtualised",
            help="Run programs in the guest of a virtual machine: its page tables and the host's "
            "are walked, and the machine's memory is the guest's. host.… settings say the rest.",
        ),
    ] = False,
    host_policy: Annotated[
        str | None,
        typer.Option(
            metavar="POLICY",
            help="The policy of page sizes of the host, such as thp; makes the machine "
            "--virtualised (default: each design's own).",
        ),
    ] = None,
    perf_4k: Annotated[
        str | None,
        typer.Option(
            "--perf-4k",
            metavar="FILE",
            help="`perf stat -x, -o FILE` of the program on a real machine without transparent "
            "huge pages; with --perf-thp, execution times come from what was measured, too.",
        ),
    ] = None,
    perf_thp: Annotated[
        str | None,
        typer.Option(
            "--perf-thp", metavar="FILE", help="As --perf-4k, with transparent huge pages."
        ),
    ] = None,
    processes: options.ProcessesTogether = "apart",
    quantum: options.Quantum = None,
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
    """Simulate PROGRAM, or a trace, on a machine with each of several translation designs.

    Each design has an operating system, memory, TLBs, page walks and caches of its own; all are
    fed by one run. The program keeps its standard streams; all that Octavo says goes to standard
    error.
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
        configuration = configure_sim(
            machine=machine,
            designs=DEFAULT_DESIGNS if design is None else names_in(design),
            settings=settings or [],
            warm_up=units.count(warm_up),
            interval=None if interval is None else units.count(interval),
            check=check,
            cores=None if cores is None else units.count(cores),
            virtualised=virtualised,
            host_policy=host_policy,
            perf_4k=perf_4k,
            perf_thp=perf_thp,
            processes=processes,
            quantum=None if quantum is None else units.count(quantum),
            **options.scope(layout, tracer, follow, skip_instructions, max_instructions, marks),
        )
        files = Files(stack, json=json, out=out, force=force)
        console = make_console()
        with LiveLine(console, quiet=quiet, text=trace_text if is_trace else progress_text) as line:
            if is_trace:
                result = execute_sim_of_trace(command, configuration, line.show, format)
            else:
                result = execute_sim(command, configuration, line.show)
        if not quiet:
            show_sim(console, result)
        otherwise = "These are a few counters; --out and --json have all."
        files.write(console, result, quiet=quiet, otherwise=otherwise)
        end(result)
