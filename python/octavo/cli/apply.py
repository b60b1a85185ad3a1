"""`octavo apply`: huge pages for a program to start, for a running process, or for a service."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from octavo.analysis.stored_result import other_program
from octavo.base.errors import CannotRun, UsageError
from octavo.base.files import failing_with
from octavo.base.signals import Interruption, Interrupts
from octavo.base.text import plural, printable, quoted
from octavo.cli import options
from octavo.cli.command_line import ProgramCommand
from octavo.cli.groups import command, flag, option
from octavo.cli.guard import guarded
from octavo.cli.shown import Shown
from octavo.terminal.console import make_console, say, show_grid

if TYPE_CHECKING:
    from rich.console import Console

    from octavo.applying.launch import Launch
    from octavo.applying.preload import PreloadSettings
    from octavo.applying.running import Order, ProcessReport, Watch

_WATCH_BUDGET = "1%"
_PRELOAD_BUDGET = "10%"
_DETAILED_PROCESSES = 3
"""Most processes whose regions are shown; with more, regions are in the JSON only."""
_SHOWN_PROCESSES = 12

_EPILOG = """\b
Examples:
  octavo apply -- python3 script.py
  octavo apply --from result -- ./server --port 8080
  sudo octavo apply --pid 1234 --dry-run
  sudo octavo apply --pid 1234 --children --watch --budget 1%
  octavo apply --unit redis-server.service -o octavo.conf

\b
Exit status: the program's own. With --pid: 0 when pages were made or none was needed, 130 after
Ctrl-C.
  2    wrong options
  125  octavo could not do its part (no privilege, no such process, nothing obtained, a program that
       no library can be preloaded into)
  126  the program is there but cannot be executed
  127  there is no such program
"""


class _ApplyCommand(ProgramCommand):
    def needs_program(self, values: dict[str, Any]) -> bool:
        """True unless --pid or --unit names a process or a service."""
        return not values.get("pid") and not values.get("unit")


@dataclass(frozen=True)
class ApplyOptions:
    """The program and the memory that get huge pages, and the way to make them."""

    pid: int | None = option(
        None, "PID", "A running process, instead of PROGRAM.", parser=options.process_id
    )
    unit: str | None = option(
        None,
        "NAME.service",
        "Write a systemd drop-in that does it for a service; give PROGRAM only where no unit "
        "file names the program.",
    )
    result: str | None = option(
        None,
        "DIR|FILE",
        "A result of `octavo run --out` or `--json`: only regions for which it advises 2 MiB "
        "pages (default: all large anonymous memory).",
        "--from",
    )
    by: str = option(
        "auto",
        "auto|runtime|preload",
        "Start the program with its allocator's or runtime's own switch, or with a preloaded "
        "library; auto takes the one that reaches more of the memory.",
    )
    children: bool | None = flag(
        "Child processes too (the default for a program to start), or not.",
        "--children/--no-children",
        default=None,
    )
    watch: bool = flag("With --pid: go on with new memory until the process ends.")
    budget: str | None = option(
        None,
        "PERCENT",
        f"Share of a processor that the work may take, after a first second: default "
        f"{_WATCH_BUDGET} for --watch, {_PRELOAD_BUDGET} inside a program.",
    )
    min_fill: str = option(
        "50%", "PERCENT", "Leave a 2 MiB range as it is while less of it is in use."
    )
    dry_run: bool = flag("Only show the plan.")
    log: str | None = option(
        None, "FILE", "Inside a program: add a line for every pass that made pages."
    )

    def check(self, command: list[str] | None) -> None:
        """Refuses options that exclude each other. Raises UsageError."""
        if self.watch and self.pid is None:
            raise UsageError(
                "--watch goes with --pid: in a program that octavo starts, new memory gets huge "
                "pages without it."
            )
        if self.pid is None:
            return
        if self.unit is not None:
            raise UsageError("give --pid or --unit, not both.")
        if command:
            raise UsageError(
                f"--pid is about a process that runs: leave out the program `{quoted(command[0])}`."
            )
        if self.log is not None:
            raise UsageError(
                "--log goes with a program to start; with --pid, --json says what was done."
            )
        if self.by != "auto":
            raise UsageError(
                "--by goes with a program to start; with --pid, pages are made from outside."
            )

    def settings(self) -> PreloadSettings:
        """The settings of the work inside a program. Raises UsageError or CannotRun."""
        from octavo.applying.preload import PreloadSettings
        from octavo.applying.selection import read_selection

        if self.log is not None and not self.dry_run:
            with failing_with(f"to `{printable(self.log)}`"), Path(self.log).open("ab"):
                pass
        selection = read_selection(self.result)
        fill = options.percent(self.min_fill, "--min-fill")
        usual = _WATCH_BUDGET if self.pid else _PRELOAD_BUDGET
        share = options.percent(self.budget or usual, "--budget")
        return PreloadSettings(
            selection, fill, share, children=self.children is not False, log=self.log
        )


@command("apply", cls=_ApplyCommand, epilog=_EPILOG)
def apply(
    command: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[PROGRAM]",
            help="The program to start, and its arguments after it: options of octavo go before "
            "it, and `--` ends them.",
        ),
    ] = None,
    *,
    asked: ApplyOptions,
    output: options.TextOutput,
) -> None:
    """Give a program 2 MiB pages: start PROGRAM so that its memory gets them, or make them in a
    process that runs (as root).

    PROGRAM takes the place of octavo: it keeps its process number, standard streams, signals and
    exit status. With --json -, its output goes to standard error.
    """
    launch: Launch | None = None
    with guarded():
        asked.check(command)
        settings, shown = asked.settings(), output.shown()
        if asked.pid is not None:
            _apply_to_process(asked.pid, asked, settings, shown, quiet=output.quiet)
        elif asked.unit is not None:
            _write_drop_in(asked.unit, command or [], asked, settings, shown)
        else:
            launch = _prepare(command or [], asked, settings, shown, quiet=output.quiet)
    if launch is not None:
        # Outside `guarded`, so that the program inherits octavo's own signal handlers.
        with output.program_output():
            _execute(launch)


# --- a program to start --------------------------------------------------------------------------


def _prepare(
    command: list[str],
    asked: ApplyOptions,
    settings: PreloadSettings,
    shown: Shown,
    *,
    quiet: bool,
) -> Launch | None:
    from octavo.applying.launch import prepare

    launch = prepare(command, settings, asked.by)
    texts = [] if asked.dry_run else launch.read_texts()
    shown.write_json(lambda: launch.document(texts))
    if not quiet:
        for text in (launch.text, *(text.text() for text in texts)):
            say(make_console(), f"octavo: {launch.name}: {text}.")
    if asked.dry_run:
        shown.write_text([f"{launch.shell()}\n"])
        return None
    return launch


def _write_drop_in(
    unit: str,
    command: list[str],
    asked: ApplyOptions,
    settings: PreloadSettings,
    shown: Shown,
) -> None:
    from octavo.applying import SCHEMA
    from octavo.applying.drop_in import drop_in

    text = drop_in(unit, command, settings, by=asked.by, result=asked.result)
    shown.write_text([text])
    shown.write_json(lambda: {"schema": SCHEMA, "unit": unit, "drop_in": text})


def _execute(launch: Launch) -> None:
    from octavo._core import OctavoError
    from octavo.base.errors import status_of

    try:
        launch.execute()
    except OctavoError as error:
        say(make_console(), f"octavo: {error}")
        raise typer.Exit(status_of(error)) from None


# --- a process that runs -------------------------------------------------------------------------


def _apply_to_process(
    pid: int, asked: ApplyOptions, settings: PreloadSettings, shown: Shown, *, quiet: bool
) -> None:
    from octavo.applying.remote import looking_at
    from octavo.applying.running import (
        Order,
        Watch,
        apply_to_all,
        check_can_have_huge_pages,
        family,
        obstacle,
    )

    order = Order(settings.selection, settings.fill_percent / 100, asked.dry_run)
    check_can_have_huge_pages(pid)
    watcher, children = None, bool(asked.children)
    if asked.watch and not order.dry_run:
        watcher = Watch(pid, order, children=children, budget=settings.budget_percent / 100)
    with Interrupts() as interrupts:
        pids = family(pid, children=children)
        running = [Path(f"/proc/{one}/exe") for one in pids]
        with looking_at(pid):
            other = other_program(order.selection.programs, *running)
        if other and not quiet:
            say(make_console(), f"{other}.")
        reports = apply_to_all(pids, order, lambda made: interrupts.first is None)
    number = interrupts.first
    try:
        if not quiet:
            shown.write_console(lambda console: _show(console, reports, order))
        if watcher is not None and number is None:
            _watch(watcher, quiet=quiet)
    except Interruption as interruption:
        number = interruption.number
    if watcher is not None and not quiet:
        how = "the process has ended" if number is None else "interrupted"
        say(
            make_console(),
            f"The watch made {watcher.made} {plural(watcher.made, 'page')} of 2 MiB; {how}.",
        )
    shown.write_json(lambda: _document(pid, order, reports, watcher))
    if number is not None:
        raise typer.Exit(128 + number)
    reason = obstacle(reports)
    if reason is not None and not order.dry_run and not (watcher and watcher.made):
        raise CannotRun(f"no page of 2 MiB was made: {reason}.")


def _show(console: Console, reports: list[ProcessReport], order: Order) -> None:
    from octavo.applying.view import (
        UNDO,
        family_headline,
        headline,
        ranges_left_alone,
        regions_grid,
        remarks,
    )

    say(console, f"Chosen: {order.selection.choice}.")
    is_detailed = len(reports) <= _DETAILED_PROCESSES
    for report in reports[:_SHOWN_PROCESSES]:
        say(console, headline(report, dry_run=order.dry_run), "bold")
        if not is_detailed:
            continue
        for sentence in remarks(report, dry_run=order.dry_run):
            say(console, sentence, indent=2)
        show_grid(console, regions_grid(report, dry_run=order.dry_run))
    hidden = len(reports) - _SHOWN_PROCESSES
    if hidden > 0:
        say(console, f"and {hidden} more {plural(hidden, 'process')}; --json has all.", "dim")
    if not is_detailed:
        say(console, family_headline(reports, dry_run=order.dry_run), "bold")
        for sentence in ranges_left_alone(reports):
            say(console, sentence, indent=2)
    if any(report.made for report in reports):
        say(console, UNDO)


def _watch(watcher: Watch, *, quiet: bool) -> None:
    """Watches until the process ends."""
    if not quiet:
        text = "Watching for new memory until the process ends; Ctrl-C ends the watch."
        say(make_console(), text, "dim")
    watcher.run()


def _document(pid: int, order: Order, reports: list[ProcessReport], watcher: Any) -> dict[str, Any]:
    from octavo.applying import SCHEMA
    from octavo.applying.running import bytes_made
    from octavo.applying.view import UNDO, headline, remarks

    def record(report: ProcessReport) -> dict[str, Any]:
        dry_run = order.dry_run
        sentences = [headline(report, dry_run=dry_run), *remarks(report, dry_run=dry_run)]
        return {**report.record(), "text": " ".join(sentences)}

    return {
        "schema": SCHEMA,
        "pid": pid,
        "dry_run": order.dry_run,
        "chosen": order.selection.choice,
        "rules": order.selection.text(),
        "made_bytes": bytes_made(reports),
        "processes": [record(report) for report in reports],
        "undo": UNDO if any(report.made for report in reports) else None,
        "watch_made_pages": None if watcher is None else watcher.made,
    }
