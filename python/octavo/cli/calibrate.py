"""`octavo calibrate`: measure the TLBs, page walks and memory latencies of this processor."""

from dataclasses import replace

import typer

from octavo.base.files import in_turn
from octavo.base.units import byte_size
from octavo.calibration.file import CalibrationFile
from octavo.calibration.measurement import Measurement, describe, measure
from octavo.calibration.perf_stat import read_walk_counts
from octavo.calibration.view import (
    core_grid,
    fault_grid,
    headline,
    latency_grid,
    parallel_grid,
    stream_grid,
    tlb_grid,
)
from octavo.cli import options
from octavo.cli.groups import command, flag, option, optional
from octavo.cli.guard import guarded
from octavo.simulation.host_machine import MachineFile
from octavo.snapshot import headline as snapshot_headline
from octavo.terminal.console import make_console, say, show_grid
from octavo.terminal.live import LiveLine, trace_text

_EPILOG = """\b
Examples:
  octavo calibrate
  octavo calibrate --memory 2GiB
  octavo calibrate --quick -o quick.toml --json -
  octavo calibrate --perf counters.csv
  octavo calibrate && octavo sim --machine host gzip.oct

\b
It takes about two minutes, --quick a few seconds. Other work on the machine disturbs it: the
spread shows how much. `octavo run` reads the default file, and `--machine host` names the machine
that is written beside it.
"""


@command("calibrate", epilog=_EPILOG, no_args_is_help=False)
def calibrate(
    out: str | None = option(
        None,
        "FILE",
        "The file to write, instead of octavo/calibration.toml in $XDG_CONFIG_HOME or ~/.config.",
        "--out",
        "-o",
    ),
    memory: str | None = option(
        None,
        "SIZE",
        "Use at most this much memory (default: a third of what is available, at most "
        "8GiB). TLBs with a larger reach are not found.",
    ),
    quick: bool = flag("Measure only for seconds and with little memory."),
    machine_out: str | None = option(
        None,
        "FILE.toml",
        "Write the measured machine, for `octavo sim --machine`, to this file (default: "
        "octavo/machine.toml, which `--machine host` names; none with --out).",
        "--machine-out",
    ),
    perf: str | None = option(
        None,
        "FILE",
        "A file of `perf stat -o FILE` (also with `-x,`) on this machine: its walks per 1000 "
        "instructions, cycles a walk and instructions per cycle are added as a note.",
    ),
    busy: bool = flag("Measure although other programs keep processors busy."),
    *,
    output: options.DocumentOutput,
) -> None:
    """Measure this processor: TLB reach and page-walk cost by page size, latency of caches and
    memory, sizes of the structures of its core, its clock. No hardware counters are needed.
    """
    with guarded():
        memory_bytes = optional(byte_size, memory, "--memory")
        file = CalibrationFile(out, force=output.force)
        machine = None
        if out is None or machine_out is not None:
            machine = MachineFile(machine_out, force=output.force)
        counted = None
        if perf is not None:
            counted = read_walk_counts("--perf", perf, describe().cpu_id.split()[0])
        write_document = output.document_file(beside=str(file.path))
        if machine is not None:
            machine.take_snapshot()
        with LiveLine(quiet=output.quiet, text=trace_text) as line:
            found = measure(
                quick=quick, memory_bytes=memory_bytes, busy=busy, on_progress=line.show
            )
        if counted is not None:
            notes = (*found.calibration.notes, counted.sentence())
            found = replace(
                found, calibration=replace(found.calibration, notes=notes), counted=counted
            )
        in_turn(
            lambda: file.write(found.calibration),
            lambda: None if machine is None else machine.write(found.calibration),
            lambda: write_document(found.document),
        )
        if not output.quiet:
            _show(found, file, machine)
        if found.interrupted_by is not None:
            raise typer.Exit(128 + found.interrupted_by)


def _show(found: Measurement, file: CalibrationFile, machine: MachineFile | None) -> None:
    console = make_console()
    calibration = found.calibration
    say(console, headline(calibration), "bold")
    show_grid(console, tlb_grid(calibration))
    say(
        console,
        "Entries: the pages, used in turn, at which half of the loads miss (the first do–all do).",
    )
    say(
        console,
        "Page walk, added to a load: median and upper bound where each load waits for the one "
        "before, lower bound where 24 chains of loads overlap.",
    )
    for grid in (latency_grid, parallel_grid, core_grid, stream_grid, fault_grid):
        show_grid(console, grid(calibration))
    say(console, f"Median (10%–90%) of {found.samples['rounds']} interleaved rounds.")
    for note in calibration.notes:
        say(console, note)
    replaced = f", in place of that of {file.replaced_date}" if file.replaced_date else ""
    say(console, f"Written to {file.path}{replaced}.", "bold")
    if machine is not None:
        say(console, f"The machine for `octavo sim --machine`: {machine.path}.", "bold")
        if machine.memory is not None:
            say(console, f"Its memory, as it was before: {snapshot_headline(machine.memory)}.")
