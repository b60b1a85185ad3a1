"""`octavo sim`: translation designs side by side on one machine, with a program or a trace."""

from dataclasses import dataclass
from typing import Any

from octavo._core import designs as known_designs
from octavo._core import policies as known_policies
from octavo.base import units
from octavo.cli import options
from octavo.cli.command_line import TraceCommand
from octavo.cli.engine import run_engine
from octavo.cli.groups import command, flag, option, optional
from octavo.simulation.api import ENGINE
from octavo.simulation.configuration import BY_STREAM, DEFAULT_DESIGNS, DEFAULT_MACHINE
from octavo.terminal.sim import show_sim

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


@dataclass(frozen=True)
class SimOptions:
    """The machine, the designs, and how they are simulated."""

    machine: str = option(
        DEFAULT_MACHINE, "NAME|FILE.toml", "A machine of octavo list machines, or a file of yours."
    )
    designs: list[str] | None = option(
        None,
        "NAMES",
        "Designs, each on a machine of its own: those below, or hardware under a policy "
        "of the operating system, such as conventional+mthp; may be given several times "
        f"(default {','.join(DEFAULT_DESIGNS)}).",
        "--design",
    )
    settings: options.Settings = None
    cores: str | None = option(
        None,
        "N",
        "Give the machine N cores, on which threads are placed in turn: short for --set "
        "core.count=N (default: that of the machine).",
    )
    warm_up: str = option("0", "N", "Simulate N instructions of each process without counting.")
    fast_forward: bool = flag(
        "Skip the core model in --warm-up, so that no time passes: TLBs, caches, page tables and "
        "memory change as usual. Several times faster with --timing out-of-order."
    )
    interval: str | None = option(None, "N", "Also report all counters every N instructions.")
    check: bool = flag("Compare each translation with the page table's; slower.")
    timing: str = option(
        BY_STREAM,
        "NAME",
        "How cycles are computed: `additive` adds up all latencies; `overlapped` also does, but "
        "overlaps walks as far as the walkers allow; `out-of-order` executes the instructions on "
        "the machine's core; `auto` is `out-of-order` where the machine describes its core and the "
        "program or trace has register dependences, else `additive`.",
    )
    virtualised: bool = flag(
        "Run programs in the guest of a virtual machine: walks read its page tables and the "
        "host's, and the machine's memory is the guest's. Settings host.… describe the host."
    )
    host_policy: str | None = option(
        None,
        "POLICY",
        "The page-size policy of the host, such as thp; implies --virtualised (default: that of "
        "each design).",
    )
    perf_4k: str | None = option(
        None,
        "FILE",
        "A file of `perf stat -x, -o FILE` for the program on a real machine without transparent "
        "huge pages; with --perf-thp, execution times are also computed from the measurement.",
    )
    perf_thp: str | None = option(None, "FILE", "Like --perf-4k, with transparent huge pages.")

    def choices(self) -> dict[str, Any]:
        """The arguments of `configure_sim`. Raises UsageError."""
        return {
            **vars(self),
            "designs": DEFAULT_DESIGNS if self.designs is None else options.names_in(*self.designs),
            "settings": self.settings or [],
            "warm_up": units.count(self.warm_up, "--warm-up"),
            "interval": optional(units.count, self.interval, "--interval"),
            "cores": optional(units.count, self.cores, "--cores"),
        }


@command("sim", cls=TraceCommand, epilog=_EPILOG)
def sim(
    command: options.ProgramOrTrace,
    chosen: SimOptions,
    tracing: options.SharedTracing,
    output: options.Output,
) -> None:
    """Simulate PROGRAM, or a trace, on a machine with each of several translation designs.

    Each design has an operating system, memory, TLBs, page walks and caches of its own; one run
    feeds all designs. The program keeps its standard streams; messages of Octavo go to standard
    error. With --json -, the program's output goes there, too.
    """
    otherwise = "These are a few counters; --out and --json have all."
    run_engine(ENGINE, command, chosen.choices, tracing, output, show_sim, otherwise)
