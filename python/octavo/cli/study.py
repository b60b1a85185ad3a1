"""`octavo study`: sweeps described by TOML files."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from octavo.base.errors import CannotRun, UsageError, choose
from octavo.base.table import Grid, cell_text
from octavo.base.text import plural
from octavo.cli import options
from octavo.cli.groups import argument, command, flag, option
from octavo.cli.guard import guarded
from octavo.terminal.console import make_console, make_output_console, say, show_grid

if TYPE_CHECKING:
    from octavo.sweeps.data_set import DataSet
    from octavo.sweeps.queries import Difference
    from octavo.sweeps.results import SweepResult
    from octavo.sweeps.study_file import Study

SCHEMA = "octavo/study/1"
ACTIONS = ("run", "resume", "status", "query", "diff")
_DIFFERENT = 1
_SHOWN_ROWS = 1000
"""Limit of rows in a table of an answer; the JSON has all."""
_EPILOG = """\b
Examples:
  octavo study run study.toml
  octavo study run study.toml --estimate
  octavo study status study.toml --json -
  octavo study resume study.toml --on ray://head:10001
  octavo study query study.toml "select design, avg(translation_share) from simulations group by 1"
  octavo study diff before.toml after.toml

\b
Exit status: 0, or
  1    `diff` found a difference
  2    wrong options, or a study file that is wrong
  125  a simulation failed
"""


@command("study", epilog=_EPILOG)
def study(
    action: str = argument(
        "|".join(ACTIONS),
        "Run missing simulations (resume: only in a data set that exists); show the status; query "
        "the tables `simulations` and `rows` in SQL; compare two studies.",
    ),
    file: str = argument("FILE", "A study file."),
    more: str | None = argument("[SQL|FILE]", "The query, or the study to compare with.", None),
    on: str = option(
        "local", "local|ray|ray://HOST:PORT", "Run on this machine, or on a Ray cluster."
    ),
    workers: int | None = option(
        None,
        "N",
        "Processes on this machine (default: as many as it has processors).",
        parser=options.whole_number(1),
    ),
    estimate: bool = flag(
        "For run and resume: only show the time that it would take. Programs are recorded for it."
    ),
    *,
    output: options.DocumentOutput,
) -> None:
    """Run a study of many simulations, and ask questions of its results."""
    with guarded():
        choose(action, ACTIONS, "action")
        if (more is not None) != (action in ("query", "diff")):
            wanted = {"query": "a query in SQL", "diff": "a second study file"}.get(action)
            raise UsageError(
                f"octavo study {action} FILE takes no more words."
                if wanted is None
                else f"octavo study {action} FILE wants {wanted} after the file."
            )
        simulates = action in ("run", "resume")
        if not simulates and (on != "local" or workers is not None or estimate):
            raise UsageError(
                f"octavo study {action} simulates nothing: leave --on, --workers, --estimate out."
            )
        write_document = output.document_file(beside=None, inputs=[file, more or ""])
        if action == "query":
            _query(file, str(more), write_document, output)
        elif action == "diff":
            _diff(file, str(more), write_document, output)
        elif action == "status":
            _status(file, write_document, output)
        else:
            _run(file, action, on, workers, estimate, write_document, output)


def _run(
    file: str, action: str, on: str, workers: int | None, only: bool, write: Any, output: Any
) -> None:
    from octavo.sweeps.api import shown_progress, workers_of
    from octavo.sweeps.data_set import DataSet
    from octavo.sweeps.running import prepare, run_prepared
    from octavo.sweeps.study_file import read_study

    given = read_study(file)
    given.check()
    where = workers_of(on, workers)
    data_set = DataSet(given.out, create=action == "run")
    console = make_console()
    failures = _record(given, data_set, console, output)
    prepared = prepare(given.plan(), data_set, where)
    if not output.quiet:
        say(console, prepared.estimate.sentence(where.describe()))
    if only:
        write(lambda: {"schema": SCHEMA, "estimate": asdict(prepared.estimate)})
        return
    with shown_progress(False if output.quiet else None) as show:
        result = run_prepared(prepared, show or (lambda progress: None))
    write(lambda: _document(result, dict(result.failed), failures))
    if not output.quiet:
        say(console, f"{given.out}: {result.headline()}.", "bold")
        for why in dict.fromkeys(result.failed.values()):
            say(console, why, "bold yellow")
        if result.ended:
            ended = plural(result.ended, "simulation")
            say(console, f"{result.ended} {ended} under way ended without a result.", "bold yellow")
    if result.is_partial:
        raise KeyboardInterrupt
    if result.failed:
        failed = len(result.failed)
        raise CannotRun(f"{failed} {plural(failed, 'simulation')} failed.")


def _record(given: Study, data_set: DataSet, console: Any, output: Any) -> dict[str, str]:
    """Records the programs that have no trace yet; returns and shows failures by program."""
    from octavo.sweeps.recordings import failures, record_program

    for name in given.unrecorded:
        if not output.quiet:
            say(console, f"recording {name}: {' '.join(given.programs[name])}")
        with output.program_output():
            record_program(given, name, data_set)
    found = failures(given)
    if not output.quiet:
        _say_failures(console, found)
    return found


def _say_failures(console: Any, failures: dict[str, str]) -> None:
    for name, why in failures.items():
        say(console, f"`{name}`: {why}; its recording is used as it is.", "bold yellow")


def _status(file: str, write: Any, output: Any) -> None:
    from octavo.sweeps.recordings import failures
    from octavo.sweeps.study_file import read_study

    result = _stored(file)
    failed = result.data_set.failures(result.plan.simulations)
    of_programs = failures(read_study(file))
    write(lambda: _document(result, failed, of_programs))
    if not output.quiet:
        console = make_console()
        _say_failures(console, of_programs)
        say(console, f"{result.data_set.directory}: {result.headline()}.", "bold")
        for why in dict.fromkeys(failed.values()):
            say(console, why, "bold yellow")


def _query(file: str, sql: str, write: Any, output: Any) -> None:
    from octavo.sweeps.queries import plain_rows, query, rows_of

    stored = _stored(file)
    answer = query(stored, sql)
    write(lambda: {"schema": SCHEMA, "rows": plain_rows(answer)})
    if output.json is None:
        console = make_output_console()
        rows = rows_of(answer.slice(0, _SHOWN_ROWS))
        _show(console, answer.column_names, [row.values() for row in rows])
        if not len(answer) and not output.quiet:
            say(
                make_console(), f"No rows; {stored.data_set.directory}: {stored.headline()}.", "dim"
            )
        if len(answer) > _SHOWN_ROWS and not output.quiet:
            more = len(answer) - _SHOWN_ROWS
            say(make_console(), f"and {more:,} more {plural(more, 'row')}; --json has all.", "dim")


def _diff(file: str, other: str, write: Any, output: Any) -> None:
    from octavo.sweeps.queries import differences, lack_of_common

    before, after = _stored(file), _stored(other)
    found = list(differences(before, after))
    lack = lack_of_common(before, after)
    write(lambda: {"schema": SCHEMA, "differences": [vars(one) for one in found]})
    if output.json is None and not output.quiet:
        console = make_output_console()
        if lack is not None:
            say(console, f"`{file}` and `{other}` have no simulation in common: {lack}")
        elif found:
            head = ["simulation", "metric", Path(file).stem, Path(other).stem]
            _show(console, head, map(_difference, found))
        else:
            console.print("No difference.")
    if found:
        raise typer.Exit(_DIFFERENT)


def _difference(one: Difference) -> tuple[Any, ...]:
    """The cells of a difference's row."""
    labels = ", ".join(f"{value}" for value in one.labels.values() if value is not None)
    if one.metric == "key":
        there = ("no" if key is None else "yes" for key in (one.before, one.after))
        return labels, "result", *there
    return labels, one.metric, one.before, one.after


def _stored(file: str) -> SweepResult:
    """The results of a study that exist so far."""
    from octavo.sweeps.data_set import DataSet
    from octavo.sweeps.results import SweepResult
    from octavo.sweeps.study_file import read_study

    given = read_study(file)
    data_set = DataSet(given.out, create=False)
    if given.unrecorded:
        raise CannotRun(f"{given.unrecorded[0]} is not recorded yet: octavo study run {file}.")
    return SweepResult(given.plan(), data_set)


def _document(
    result: SweepResult, failed: dict[str, str], failed_programs: dict[str, str]
) -> dict[str, Any]:
    planned = len(result.plan.planned)
    return {
        "schema": SCHEMA,
        "planned": planned,
        "done": result.table().num_rows,
        "partial": result.is_partial,
        "failed": failed,
        "failed_programs": failed_programs,
        "simulations": result.table().to_pylist(),
    }


def _show(console: Any, head: Any, rows: Any) -> None:
    cells = tuple(tuple(map(cell_text, row)) for row in rows)
    show_grid(console, Grid("", tuple(head), cells, left_columns=len(head)), is_first=True)
