"""`octavo curves`: the misses of every TLB for a program or a trace, in one pass."""

from dataclasses import dataclass
from typing import Any

from octavo._core import MAX_CACHE_SETS, MAX_LINE_BYTES, MAX_WAYS, MIN_LINE_BYTES
from octavo.base import units
from octavo.base.metrics import MISS_PENALTY_CYCLES, TWO_SIZES_PENALTY_CYCLES
from octavo.cli import options
from octavo.cli.command_line import TraceCommand
from octavo.cli.engine import run_engine
from octavo.cli.groups import command, option, optional
from octavo.hardware.preset_files import preset_names
from octavo.terminal.curves import show_curves
from octavo.tlb_curves.api import ENGINE
from octavo.tlb_curves.configuration import (
    DEFAULT_PAGE_SIZES,
    DEFAULT_THRESHOLD,
    DEFAULT_WINDOWS,
    PARTS,
    STREAMS,
    read_pairs,
)

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


@dataclass(frozen=True)
class CurvesOptions:
    """The TLBs and caches, and the parts of the result."""

    streams: str = option(
        ",".join(STREAMS),
        "LIST",
        "Streams, each with TLBs of its own: fetch (instructions), data, all (both in one TLB).",
    )
    sizes: str = option(
        DEFAULT_PAGE_SIZES,
        "SIZES",
        "Page sizes, powers of two from 4KiB to 1GiB: a list, a range or both. 4 KiB, "
        "and those of two sizes and of presets, are added.",
        "--page-sizes",
    )
    entries: str = option("4096", "N", "Fully associative TLBs of every number of entries up to N.")
    sets: str = option(
        "1024",
        "N",
        "Set-associative TLBs of every power of two of sets up to N, 1 to 16 ways each.",
    )
    indexes: list[str] | None = option(
        None,
        "low|bits:N|xor",
        "The index of a set: the low bits of the page number (the default), the bits from bit N "
        "on, or the exclusive or of all bits. May be given several times.",
        "--index",
    )
    windows: str = option(
        DEFAULT_WINDOWS, "T,T,…", "Windows of the working sets, in references of the program."
    )
    two_sizes: list[str] | None = option(
        None,
        "SMALL+LARGE",
        "Two page sizes at once; may be given several times (default 4KiB+16KiB, "
        "4KiB+32KiB, 4KiB+64KiB).",
    )
    threshold: str = option(
        DEFAULT_THRESHOLD,
        "N|P%",
        "The number or share of a large page's blocks that must have been referenced in the "
        "policy's window for it to be large.",
    )
    policy_window: str = option("10M", "T", "Window of the policy, in references of the program.")
    miss_penalty: float = option(
        MISS_PENALTY_CYCLES, "CYCLES", "Cost of a TLB miss.", parser=options.number
    )
    two_sizes_penalty: float = option(
        TWO_SIZES_PENALTY_CYCLES,
        "CYCLES",
        "Cost of a TLB miss with two page sizes.",
        parser=options.number,
    )
    presets: str | None = option(
        None, "NAMES", f"Machines to look up: {', '.join(preset_names('tlbs'))}, or all of them."
    )
    cache_lines: str | None = option(
        None,
        "SIZES",
        f"Caches, too: all of 1 to {MAX_CACHE_SETS} sets and 1 to {MAX_WAYS} ways, with "
        f"lines of these sizes, {MIN_LINE_BYTES} to {MAX_LINE_BYTES} bytes: a list or a range, "
        "such as 16..128.",
    )
    classify: str | None = option(
        None,
        "ENTRIES[xWAYS]",
        "Classify the misses of one TLB, such as 64x4, by cause, region and function.",
    )
    classify_sizes: str | None = option(
        None, "SIZE+LARGER", "Its page size, and the one to compare with (default 4KiB+2MiB)."
    )
    threads: str = option(
        "shared",
        "shared|private",
        "Whether the threads of a process share its TLBs (the default), or each has a "
        "core, and TLBs, of its own.",
    )
    flush_every: str | None = option(
        None, "N", "Flush the TLBs every N instructions, as context switches to other programs do."
    )
    without: str | None = option(None, "PARTS", f"Leave out, to save time: {', '.join(PARTS)}.")
    sample_pages: str | None = option(
        None,
        "SHARE[,seed=N]",
        "For very long traces: estimate fully associative TLBs and working sets "
        "from this share of the pages, such as 1/64, each number with a 95% interval.",
    )

    def choices(self) -> dict[str, Any]:
        """The arguments of `configure_curves`. Raises UsageError."""
        return {
            **vars(self),
            "sizes": units.page_sizes(self.sizes),
            "streams": self.streams.split(","),
            "entries": units.count(self.entries, "--entries"),
            "sets": units.count(self.sets, "--sets"),
            "indexes": self.indexes or ["low"],
            "windows": units.counts(self.windows, "--windows"),
            "two_sizes": None if self.two_sizes is None else read_pairs(self.two_sizes),
            "policy_window": units.count(self.policy_window, "--policy-window"),
            "presets": optional(options.names_in, self.presets) or [],
            "cache_lines": optional(units.line_sizes, self.cache_lines) or [],
            "without": optional(options.names_in, self.without) or [],
            "flush_every": optional(units.count, self.flush_every, "--flush-every"),
        }


@command("curves", cls=TraceCommand, epilog=_EPILOG)
def curves(
    command: options.ProgramOrTrace,
    chosen: CurvesOptions,
    tracing: options.SharedTracing,
    output: options.Output,
) -> None:
    """Compute the misses of every TLB for PROGRAM, or for a trace, in one pass.

    Fully associative TLBs of all sizes, set-associative ones of all sets and ways, at every page
    size and with two page sizes at once, and average working sets. The program keeps its standard
    streams; messages of Octavo go to standard error. With --json -, the program's output goes
    there, too.
    """
    otherwise = "These are a few TLBs; --out and --json have all."
    run_engine(ENGINE, command, chosen.choices, tracing, output, show_curves, otherwise)
