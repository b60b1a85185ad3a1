"""`octavo.verify`: measures a program under several settings, and returns the comparison."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from octavo._core import OctavoError
from octavo.analysis.stored_result import other_program, programs_of_run, read_run
from octavo.base.arguments import with_checked_names
from octavo.base.errors import CannotRun, Interrupted, UsageError, check_range
from octavo.base.huge_pages import PMD_PAGE, read_huge_pages
from octavo.base.signals import Interrupts, raise_again
from octavo.calibration.file import load_calibration
from octavo.runtimes.launchers import program_at
from octavo.tracing.program import locate_program
from octavo.verification.experiment import (
    DEFAULT_REPETITIONS,
    MOST_REPETITIONS,
    Experimenter,
    Plan,
    Progress,
    check_ready,
)
from octavo.verification.metric import parse_metric
from octavo.verification.outcome import Outcome, conclude, predicted_gain
from octavo.verification.settings import (
    Setting,
    candidates,
    check_applicable,
    names_meant,
    select,
    setting_of_words,
)
from octavo.verification.system_settings import (
    SystemSettings,
    check_nothing_left,
    is_being_changed,
)

_BUSY = 0.25
"""Load per processor above which a machine counts as busy."""


@with_checked_names()
def verify(
    command: Sequence[str],
    *,
    metric: Sequence[str] = (),
    better: str | None = None,
    repetitions: int | None = None,
    seconds: float | None = None,
    ready: str | None = None,
    ready_seconds: float = 60.0,
    prepare: str | None = None,
    settings: Sequence[str] | None = None,
    tries: Sequence[str] = (),
    min_fill_percent: int = 50,
    allow_system: bool = False,
    predicted_by: str | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    root: Path = Path("/"),
) -> Outcome:
    """Runs a program under the huge-page settings worth trying and compares them.

    >>> octavo.verify(["sort", "file"], repetitions=8).decision.best.name  # doctest: +SKIP

    Arguments are those of the command line: `metric` are the values of `--metric`, `tries` those of
    `--try`, `settings` names of settings, `min_fill_percent` the value of `--min-fill`,
    `predicted_by` that of `--from`; `seconds` is the time after which no round begins. `root` is
    where sysfs is found. Ctrl-C ends the measurement and keeps finished rounds; SIGTERM and SIGHUP
    are raised again for the handlers of the caller. Raises OctavoError with one clear sentence.
    """
    if not command:
        raise UsageError("no program given: name it, and its arguments after it.")
    check_range("repetitions", repetitions, 1, MOST_REPETITIONS)
    check_range("min_fill_percent", min_fill_percent, 1, 100)
    for name, value in (("seconds", seconds), ("ready_seconds", ready_seconds)):
        if value is not None and not 0 < value < math.inf:
            raise UsageError(f"{name} {value:g}: give a time above 0.")
    measured = parse_metric(metric, better)
    if not measured.is_of_server and (ready is not None or prepare is not None):
        option = "--ready" if ready is not None else "--prepare"
        raise UsageError(
            f"{option} goes with a server: --metric command:COMMAND, time:COMMAND or cpu:COMMAND."
        )
    if ready is not None:
        check_ready(ready)
    program = locate_program(command[0])
    plan = Plan(
        command,
        measured,
        repetitions or (DEFAULT_REPETITIONS if seconds is None else MOST_REPETITIONS),
        seconds,
        ready,
        ready_seconds,
        prepare=prepare,
        root=root,
    )
    document = None if predicted_by is None else read_run(predicted_by, needs=["advice"])
    host = read_huge_pages(root)
    found, notes = candidates(plan.command, host, predicted_by, settings, min_fill_percent)
    tried = [setting_of_words(text) for text in tries]
    found += tried
    if settings is not None:
        settings = list(dict.fromkeys([*settings, *(setting.name for setting in tried)]))
    check_applicable(settings, found, notes, plan.command, host)
    chosen = _chosen(found, settings, notes, allow_system=allow_system)
    _check_undisturbed(root)
    if document is not None:
        _check_predictions(document, chosen, predicted_by)
    started = locate_program(command[program_at(command)])
    other = other_program(programs_of_run(document or {}), program, started)
    notes += [f"{other}."] if other else []
    notes += [*_load_notes(), *_returned_memory_notes()]
    started_at = datetime.now(timezone.utc).isoformat(timespec="seconds")
    files = [file for setting in chosen for file in setting.system]
    show = on_progress or (lambda progress: None)
    with Interrupts() as interrupts, SystemSettings(files, root) as system:
        experiment = Experimenter(plan, chosen, system, show, interrupts).run()
    raise_again(experiment.interrupted_by)
    if experiment.interrupted_by is not None and not experiment.rounds:
        raise Interrupted(experiment.interrupted_by, "before a round was finished")
    return conclude(plan, experiment, started_at=started_at, document=document, notes=notes)


def _chosen(
    found: list[Setting], names: Sequence[str] | None, notes: list[str], *, allow_system: bool
) -> list[Setting]:
    """The settings to compare; adds a note on settings that are left out."""
    if allow_system:
        return select(found, names)
    left = [setting for setting in found if setting.system]
    usable = [setting for setting in found if not setting.system]
    for name in names or ():
        if names_meant(name, left) and not names_meant(name, usable):
            raise UsageError(f"`{name}` is a system-wide setting: add --allow-system.")
    if left and names is None:
        notes.append(
            f"Not tried without --allow-system: {', '.join(setting.name for setting in left)}."
        )
    return select(usable, names)


def _check_predictions(
    document: dict[str, Any], settings: Sequence[Setting], name: str | None
) -> None:
    """Checks before the runs that the advice can be read. Raises CannotRun."""
    try:
        for setting in settings:
            predicted_gain(document, setting)
    except (AttributeError, KeyError, TypeError, ValueError):
        raise CannotRun(f"`{name}`: its advice is damaged, or of another version.") from None


def _check_undisturbed(root: Path) -> None:
    """Raises CannotRun where another run of octavo has changed settings of the system."""
    if is_being_changed(root):
        raise CannotRun(
            "another `octavo verify --allow-system` is changing system-wide settings; wait until "
            "it has ended."
        )
    check_nothing_left(root)


def _load_notes() -> list[str]:
    """A note where the machine is busy already."""
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    if load <= _BUSY * cores:
        return []
    return [
        f"The machine was busy at the start: load {load:.1f} on {cores} processors. Intervals are "
        "wider then."
    ]


def _returned_memory_notes() -> list[str]:
    """A note on programs that start later, where the host reclaims free memory."""
    try:
        found = load_calibration()
    except OctavoError:  # `octavo run` reports such a calibration.
        return []
    if found is None:
        return []
    usual, returned = found.fault_cycles.get(PMD_PAGE), found.returned_fault_cycles.get(PMD_PAGE)
    if usual is None or returned is None:
        return []
    milliseconds = 1e3 * (returned.median - usual.median) / found.cycles_per_second
    return [
        "The host of this virtual machine takes free memory back (octavo calibrate). Runs that "
        "follow each other at once find it in place; a program that starts after a rest takes "
        f"{milliseconds:.1f} ms longer for each 2 MiB page that it touches."
    ]
