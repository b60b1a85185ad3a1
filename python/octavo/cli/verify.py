"""`octavo verify`: run a program natively under several huge-page settings and compare them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from octavo.base.errors import UsageError
from octavo.base.files import in_turn
from octavo.base.units import duration
from octavo.cli import options
from octavo.cli.command_line import ProgramCommand
from octavo.cli.groups import command, flag, option, optional
from octavo.cli.guard import guarded
from octavo.terminal.console import make_console, say, show_grid
from octavo.terminal.live import LiveLine

if TYPE_CHECKING:
    from rich.console import Console

    from octavo.verification.experiment import Progress
    from octavo.verification.outcome import Outcome

_EPILOG = """\b
Examples:
  octavo verify -- ./simulate --steps 1000
  octavo verify --time 10min --metric 'regex:([0-9.]+) MFLOPS' --better higher -- ./solver
  octavo verify --try 'MALLOC_CONF=thp:always' -- ./server --selftest
  octavo verify --prepare 'redis-benchmark -q -t set -n 1000000 -r 1000000 -P 16' \\
      --metric 'command:redis-benchmark -q -t get -n 1000000 -r 1000000 -P 16' \\
      -- redis-server --save ''
  sudo octavo verify --allow-system --json result.json -- java -jar app.jar
  sudo octavo verify --restore

\b
--metric names what is compared:
  time             wall time of the program (the default)
  cpu              its processor time, with that of its processes
  regex:EXPR       a number in its output, in parentheses where EXPR holds more
  command:COMMAND  a number that COMMAND prints; PROGRAM is a server, which is started, awaited,
                   measured and ended by SIGTERM. Formats of redis-benchmark, pgbench, wrk, ab,
                   hey, h2load, memtier_benchmark, sysbench and YCSB are known; a regex: beside it
                   finds the number elsewhere
  time:COMMAND     how long COMMAND takes, against such a server
  cpu:COMMAND      processor time that such a server takes for COMMAND

\b
Exit status: 0 when the program was measured; 128 + N after signal N (130 after Ctrl-C), with what
was measured until then.
  2    wrong options
  125  it could not be measured as it is, or a setting could not be changed or restored
  126  the program cannot be executed
  127  there is no such program
"""


class _VerifyCommand(ProgramCommand):
    def needs_program(self, values: dict[str, Any]) -> bool:
        """Not to restore settings."""
        return not values.get("restore")


@dataclass(frozen=True)
class VerifyOptions:
    """The comparison that is asked for, and how it is measured."""

    metric: list[str] | None = option(None, "METRIC", "What is compared; see below.")
    better: str | None = option(
        None, "higher|lower", "Which values are better, where METRIC does not say."
    )
    repetitions: int | None = option(
        None,
        "N",
        "Rounds, in each of which every setting is run.",
        parser=options.whole_number(1, 10_000),
    )
    time: str | None = option(
        None, "TIME", "Begin no round that would probably end later (90s, 10min, 2h)."
    )
    ready: str | None = option(
        None,
        "COMMAND|port:N",
        "When a server is ready: COMMAND succeeds, or N can be connected to (default: it listens).",
    )
    ready_timeout: str = option("60s", "TIME", "How long a server may take to be ready.")
    prepare: str | None = option(
        None, "COMMAND", "Run against a server that is ready, before it is measured."
    )
    settings: str | None = option(
        None, "NAMES", "Only these settings and those of --try (glibc-thp,preload)."
    )
    tries: list[str] | None = option(
        None,
        "WORDS",
        "One more setting: variables (NAME=VALUE), then options that go behind PROGRAM.",
        "--try",
    )
    min_fill: str = option(
        "50%",
        "PERCENT",
        "Of the preloaded library, as of octavo apply: leave a 2 MiB range as it is while less of "
        "it is in use.",
    )
    allow_system: bool = flag(
        "Try system-wide settings, too, for the time of each run. They are restored, "
        "even when octavo is killed."
    )
    restore: bool = flag("Restore what a run left changed that was killed with its watchdog.")
    source: str | None = option(
        None, "DIR|FILE", "Show what this result of `octavo run` predicted.", "--from"
    )

    def choices(self) -> dict[str, Any]:
        """The arguments of `octavo.verify`. Raises UsageError."""
        return {
            "metric": self.metric or [],
            "better": self.better,
            "repetitions": self.repetitions,
            "seconds": optional(duration, self.time, "--time"),
            "ready": self.ready,
            "ready_seconds": duration(self.ready_timeout, "--ready-timeout"),
            "prepare": self.prepare,
            "settings": optional(options.names_in, self.settings),
            "tries": self.tries or [],
            "min_fill_percent": options.percent(self.min_fill, "--min-fill"),
            "allow_system": self.allow_system,
            "predicted_by": self.source,
        }


@command("verify", cls=_VerifyCommand, epilog=_EPILOG)
def verify(
    command: options.OptionalProgram = None,
    *,
    asked: VerifyOptions,
    output: options.TextOutput,
    sysfs_root: Annotated[str, typer.Option(hidden=True)] = "/",
) -> None:
    """Run PROGRAM natively under the huge-page settings worth trying, and say which is best.

    Every setting is run in every round, in random order. By default settings of the program alone
    are tried (environment, options, prctl). All that Octavo says goes to standard error, and with
    --json - or --out - so does the program's output.
    """
    with guarded():
        root = Path(sysfs_root)
        if asked.restore:
            if command:
                raise UsageError("--restore takes no PROGRAM.")
            _restore(root, quiet=output.quiet)
            return
        from octavo.verification.api import verify as measure

        shown = output.shown()
        console = make_console()
        live = LiveLine(console, quiet=output.quiet, text=lambda progress, _: str(progress["text"]))
        with output.program_output(beside=output.out), live as line:
            outcome = measure(
                command or [],
                **asked.choices(),
                on_progress=lambda progress: _show_progress(line, progress),
                root=root,
            )

        def write_text() -> None:
            if output.out is not None:
                shown.write_console(lambda target: _show(target, outcome))

        if output.out is None and not output.quiet:
            _show(console, outcome)
        in_turn(write_text, lambda: shown.write_json(outcome.document))
        if outcome.experiment.interrupted_by is not None:
            raise typer.Exit(128 + outcome.experiment.interrupted_by)


def _restore(root: Path, *, quiet: bool) -> None:
    from octavo.verification.system_settings import restore_left_over

    restored = restore_left_over(root)
    if quiet:
        return
    console = make_console()
    if restored is None:
        say(console, "Nothing to restore: no earlier run left system-wide settings changed.")
        return
    for name, value in restored.items():
        say(console, f"Restored: {name} is {value}.")


def _show_progress(line: LiveLine, progress: Progress) -> None:
    """Says which run is under way."""
    from octavo.verification.view import progress_text

    shown: Any = {"elapsed_seconds": progress.elapsed_seconds, "references": 0}
    shown["text"] = progress_text(progress)
    line.show(shown)


def _show(console: Console, outcome: Outcome) -> None:
    from octavo.verification.outcome import decision_text
    from octavo.verification.view import headline, regions_grid, remarks, settings_grid

    if outcome.experiment.interrupted_by is not None:
        say(console, "INTERRUPTED: these are the rounds that were finished.", "bold yellow")
    say(console, decision_text(outcome), "bold green")
    say(console, headline(outcome))
    show_grid(console, settings_grid(outcome))
    show_grid(console, regions_grid(outcome))
    for text in remarks(outcome):
        say(console, text, "dim")
