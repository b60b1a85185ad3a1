"""The measurement: runs every setting in every round, in random order.

Each setting is run once before, untimed: that run fills caches and samples memory often.
"""

from __future__ import annotations

import random
import re
import socket
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from octavo.actions.file_text import file_read_ahead, read_in_small_pages
from octavo.applying.launch import inherited_environment
from octavo.base.errors import CannotRun, UsageError
from octavo.base.processes import cpu_seconds, listens
from octavo.base.signals import DeferredStops, Interrupts
from octavo.base.text import quoted
from octavo.verification.commands import (
    CommandResult,
    how_it_ended,
    last_line,
    read_output,
    run_command,
)
from octavo.verification.metric import Metric, Reading, read_metric
from octavo.verification.settings import AS_NOW, THP_DISABLE, Setting
from octavo.verification.statistics import level_of_each, values_needed
from octavo.verification.supervisor import Ended, Launch, Supervised
from octavo.verification.system_settings import SystemSettings

DEFAULT_REPETITIONS = 10
MOST_REPETITIONS = 10_000
_READY_POLL_SECONDS = 0.05
_TERMINATED = (0, 143, -15)
"""Exit statuses of a server after SIGTERM: its own, that of the JVM, and that of the kernel."""
_SEED = 1
_PORT = "port:"
_NO_COMMAND = 127
"""The status of a shell that does not find a command."""


@dataclass(frozen=True)
class Plan:
    """The program to run, its metric, and the limits of the measurement."""

    command: Sequence[str]
    metric: Metric
    repetitions: int = DEFAULT_REPETITIONS
    """Rounds, unless time runs out."""
    seconds: float | None = None
    """No round begins that would probably end after this time."""
    ready: str | None = None
    """A command that succeeds when a server is ready, or a `port:N` that is then open; None: the
    server is ready when it listens."""
    ready_seconds: float = 60.0
    """Time limit for a server to be ready."""
    stop_seconds: float = 30.0
    """Time limit for a server to end after SIGTERM."""
    prepare: str | None = None
    """A command to run once a server is ready, before it is measured."""
    environment: Mapping[str, str] = field(default_factory=inherited_environment)
    root: Path = Path("/")
    """The directory in which sysfs is."""


@dataclass(frozen=True)
class Run:
    """One run of the program under one setting."""

    value: float | None
    """The metric; None where the run does not count."""
    failure: str | None
    """The reason why the run does not count."""
    seconds: float
    """The duration of the whole run."""
    ended: Ended | None = None
    name: str | None = None
    """The name of the metric, where the format of the output is known."""
    others: int = 0
    """Other numbers in the output that match the metric."""


@dataclass
class Measured:
    """All runs of one setting."""

    setting: Setting
    look: Run | None = None
    """The untimed run."""
    runs: list[Run] = field(default_factory=list)
    """One run of each round."""
    dropped: str | None = None
    """The reason why the setting is not measured."""

    @property
    def values(self) -> list[float | None]:
        """The metric of each round, None where the run failed."""
        return [run.value for run in self.runs]

    def failures(self) -> dict[str, int]:
        """The reasons why runs did not count, each with the number of runs."""
        found: dict[str, int] = {}
        for run in ([self.look] if self.look else []) + self.runs:
            if run.failure is not None:
                found[run.failure] = found.get(run.failure, 0) + 1
        return found


@dataclass
class Experiment:
    """Everything that was measured."""

    measured: list[Measured]
    """The settings; `as now` is first."""
    rounds: int = 0
    """Finished rounds."""
    seconds: float = 0.0
    interrupted_by: int | None = None


@dataclass(frozen=True)
class Progress:
    """The progress of a measurement."""

    setting: str
    round: int
    """The round; 0 for the runs before the first round."""
    rounds: int | None
    """The number of rounds; None where only time limits it."""
    rounds_needed: int
    """The fewest rounds that can separate a difference between this many settings from noise."""
    elapsed_seconds: float
    left_seconds: float | None
    """The estimated remaining time; None before the first run has ended."""


class _Stop(Exception):
    """An interrupt: finished rounds are kept."""


class _Failed(Exception):
    """A run that does not count."""


class Experimenter:
    """Runs the program under each setting."""

    def __init__(
        self,
        plan: Plan,
        settings: Sequence[Setting],
        system: SystemSettings,
        on_progress: Callable[[Progress], None],
        interrupts: Interrupts,
    ) -> None:
        self._plan = plan
        self._system = system
        self._show = on_progress
        self._interrupts = interrupts
        self._stops = DeferredStops()
        self._found = Experiment([Measured(setting) for setting in settings])
        self._began = time.monotonic()
        self._now: tuple[str, int] = (AS_NOW, 0)
        self._done = 0
        self._round_began = 0.0

    def run(self) -> Experiment:
        """Does all runs, or the runs until an interrupt. Raises CannotRun where the program does
        not run as it is.
        """
        found = self._found
        try:
            # A program that is measured is in another session, so it would not be stopped.
            with self._stops:
                self._look()
                self._rounds()
        except _Stop:
            found.interrupted_by = self._interrupts.first
        found.seconds = time.monotonic() - self._began
        return found

    # --- the order of runs -----------------------------------------------------------------------

    def _look(self) -> None:
        for measured in self._found.measured:
            if measured.setting.name == THP_DISABLE and len(self._found.measured) > 2:
                look = self._found.measured[0].look
                if look and look.ended and not look.ended.huge_bytes["anonymous"]:
                    measured.dropped = "anonymous memory of the program has no huge pages as it is"
                    continue
            measured.look = self._one(measured.setting, is_timed=False)
            failure = measured.look.failure
            if failure is None:
                continue
            if measured.setting.name == AS_NOW:
                raise CannotRun(f"the program cannot be measured as it is: {failure}.")
            measured.dropped = failure

    def _rounds(self) -> None:
        shuffle = random.Random(_SEED).shuffle
        found, plan = self._found, self._plan
        self._round_began = time.monotonic()
        while found.rounds < plan.repetitions:
            if found.rounds and self._is_late():
                return
            order = [measured for measured in found.measured if measured.dropped is None]
            shuffle(order)
            done: list[tuple[Measured, Run]] = []
            for measured in order:
                done.append((measured, self._one(measured.setting, is_timed=True)))
            # Only finished rounds are kept, as values are compared within a round.
            found.rounds += 1
            for measured, run in done:
                measured.runs.append(run)

    def _is_late(self) -> bool:
        """Whether the next round would probably end after the time limit."""
        if self._plan.seconds is None:
            return False
        now = time.monotonic()
        each = (now - self._round_began) / self._found.rounds
        return now + each - self._began > self._plan.seconds

    def _tick(self) -> None:
        if self._interrupts.first is not None:
            raise _Stop
        name, number = self._now
        elapsed = time.monotonic() - self._began
        plan = self._plan
        self._show(
            Progress(
                name,
                number,
                plan.repetitions if plan.repetitions < MOST_REPETITIONS else None,
                values_needed(level_of_each(self._settings() - 1)),
                elapsed,
                self._left(elapsed),
            )
        )

    def _settings(self) -> int:
        """The number of settings that are measured."""
        return sum(measured.dropped is None for measured in self._found.measured)

    def _left(self, elapsed: float) -> float | None:
        """An estimate of the remaining seconds, from the runs so far."""
        plan = self._plan
        left: float | None = None
        if self._done:
            runs = self._settings() * (plan.repetitions + 1)
            left = max(runs - self._done, 0) * elapsed / self._done
        if plan.seconds is not None:
            rest = max(plan.seconds - elapsed, 0.0)
            left = rest if left is None else min(left, rest)
        return left

    # --- one run ---------------------------------------------------------------------------------

    def _one(self, setting: Setting, *, is_timed: bool) -> Run:
        self._now = (setting.name, self._found.rounds + 1 if is_timed else 0)
        self._stops.stop_if_asked()
        self._tick()
        began = time.monotonic()
        ended = None
        try:
            with self._system.changed(setting.system):
                ended, reading = self._measured(setting, is_timed=is_timed)
        except (_Failed, CannotRun) as error:
            run = Run(None, str(error).rstrip("."), time.monotonic() - began)
        else:
            seconds = time.monotonic() - began
            run = Run(reading.value, None, seconds, ended, reading.name, reading.others)
        finally:
            # Also after an interrupt.
            self._restore_text(setting, ended)
        self._done += 1
        return run

    def _restore_text(self, setting: Setting, ended: Ended | None) -> None:
        """Reads the text that a setting put into huge pages back into small pages for the next run,
        unless the program as it is has as much text in huge pages. The amount of a run that did not
        end, or whose memory was not sampled, counts as larger.
        """
        file = file_read_ahead(setting.prefix)
        if file is None:
            return
        now = self._found.measured[0].look
        before = now.ended.huge_bytes["file"] if now and now.ended else 0
        after = ended.huge_bytes["file"] if ended and ended.samples else None
        if not before or after is None or before < after:
            read_in_small_pages(file)

    def _measured(self, setting: Setting, *, is_timed: bool) -> tuple[Ended, Reading]:
        plan = self._plan
        with tempfile.TemporaryFile() as output:
            launch = Launch(
                setting.argv(plan.command),
                setting.environment_over(plan.environment),
                setting.thp_disable,
                output.fileno() if plan.metric.captures else None,
                is_timed,
                plan.root,
            )
            program = Supervised(launch)
            try:
                if plan.metric.is_of_server:
                    return self._serve(program, output.fileno())
                return self._batch(program, output.fileno())
            finally:
                program.abort()

    def _batch(self, program: Supervised, output: int) -> tuple[Ended, Reading]:
        """Runs a program that ends by itself."""
        metric = self._plan.metric
        seconds = program.wait(self._tick)
        ended = program.finish(self._tick)
        text = read_output(output)
        if ended.status:
            raise _Failed(_with_output(f"it ended with {how_it_ended(ended.status)}", text))
        if metric.source == "time":
            return ended, Reading(seconds)
        if metric.source == "cpu":
            return ended, Reading(ended.cpu_seconds)
        return ended, _number(metric, text)

    def _serve(self, program: Supervised, output: int) -> tuple[Ended, Reading]:
        """Runs a server: waits until it is ready, measures it, and ends it."""
        plan = self._plan
        assert plan.metric.command is not None
        self._await_ready(program, output)
        if plan.prepare is not None:
            self._command(plan.prepare, "the command of --prepare", program, output)
        program.look()
        used = _cpu_seconds(program)
        result = self._command(plan.metric.command, "the command of --metric", program, output)
        used = _cpu_seconds(program) - used
        program.look()
        self._check_running(program, output)
        if plan.metric.source == "command-time":
            reading = Reading(result.seconds)
        elif plan.metric.source == "command-cpu":
            reading = Reading(used)
        else:
            reading = _number(plan.metric, result.output)
        ended = program.finish(self._tick, terminate=plan.stop_seconds)
        if ended.status not in _TERMINATED:
            how = how_it_ended(ended.status)
            text = read_output(output)
            raise _Failed(_with_output(f"the server ended with {how} after SIGTERM", text))
        return ended, reading

    def _command(self, command: str, what: str, program: Supervised, output: int) -> CommandResult:
        def tick() -> None:
            """Raises where the server has ended, for which a command might wait for ever."""
            self._tick()
            self._check_running(program, output)

        result = run_command(command, tick)
        if result.status:
            self._check_running(program, output)
            how = f"{what} ended with {how_it_ended(result.status)}"
            raise _Failed(_with_output(how, result.output))
        return result

    def _await_ready(self, program: Supervised, output: int) -> None:
        ready = self._plan.ready
        deadline = time.monotonic() + self._plan.ready_seconds
        while True:
            self._tick()
            self._check_running(program, output)
            if self._is_ready(program, ready):
                return
            if time.monotonic() > deadline:
                seconds = f"within {self._plan.ready_seconds:g} s"
                if ready is None:
                    raise _Failed(f"the server did not listen {seconds}")
                raise _Failed(f"the server was not ready by `{quoted(ready)}` {seconds}")
            time.sleep(_READY_POLL_SECONDS)

    def _is_ready(self, program: Supervised, ready: str | None) -> bool:
        if ready is None:
            return listens(program.processes())
        if ready.startswith(_PORT):
            return _is_open(int(ready.removeprefix(_PORT)))
        status = run_command(ready, self._tick).status
        if status == _NO_COMMAND:
            raise _Failed(f"the shell finds no command `{quoted(ready)}` (--ready)")
        return status == 0

    def _check_running(self, program: Supervised, output: int) -> None:
        """Raises _Failed where the server has ended."""
        if not program.is_running():
            status = program.finish(self._tick).status
            how = f"the server ended by itself with {how_it_ended(status)}"
            raise _Failed(_with_output(how, read_output(output)))


def check_ready(ready: str) -> None:
    """Checks the value of `--ready`. Raises UsageError."""
    if not ready.strip():
        raise UsageError("--ready is empty; give a command, or port:N.")
    if ready.startswith(_PORT):
        port = ready.removeprefix(_PORT)
        if not re.fullmatch("[0-9]{1,5}", port) or not 1 <= int(port) <= 65535:
            raise UsageError(f"--ready `{quoted(ready)}`: ports are from 1 to 65535.")


def _cpu_seconds(program: Supervised) -> float:
    """The processor time of all processes of a program so far."""
    return sum(map(cpu_seconds, program.processes()))


def _number(metric: Metric, text: str) -> Reading:
    reading = read_metric(metric, text)
    if isinstance(reading, str):
        raise _Failed(_with_output(reading, text))
    return reading


def _with_output(sentence: str, output: str) -> str:
    """The sentence with the last line of the output, if there is one."""
    last = last_line(output)
    return f"{sentence} (its last line: {last})" if last else sentence


def _is_open(port: int) -> bool:
    try:
        with socket.create_connection(("localhost", port), timeout=1):
            return True
    except OSError:
        return False
