"""`octavo.sweep`: runs many simulations, and returns their results as one table."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from octavo.base.arguments import with_checked_names
from octavo.base.errors import CannotRun, Interrupted, UsageError
from octavo.base.progress import NotebookLine, is_notebook, is_watched
from octavo.base.temporary import TemporaryDirectory
from octavo.base.text import plural
from octavo.base.units import format_duration
from octavo.simulation.configuration import DEFAULT_DESIGNS, DEFAULT_MACHINE, configure_sim
from octavo.simulation.python_design import Design, name_of
from octavo.sweeps.data_set import DataSet
from octavo.sweeps.local import LocalWorkers
from octavo.sweeps.plan import Names, Variants, crossed, named, named_traces, resolve
from octavo.sweeps.results import SweepResult
from octavo.sweeps.running import SweepProgress, Workers, prepare, run_prepared
from octavo.sweeps.simulation import COUNTING, MACHINE_CHOICES
from octavo.tracing.scope import resolve_scope

if TYPE_CHECKING:
    from rich.progress import Progress

LOCAL, RAY = "local", "ray"
_RAY_ADDRESS = f"{RAY}://"


@with_checked_names((*COUNTING, *MACHINE_CHOICES), (configure_sim, resolve_scope))
def sweep(
    traces: Names,
    machines: Names = DEFAULT_MACHINE,
    designs: str | type[Design] | Sequence[str | type[Design]] = DEFAULT_DESIGNS,
    settings: Variants | None = None,
    seeds: int | Sequence[int] = (),
    *,
    out: str | os.PathLike[str] | None = None,
    on: str = LOCAL,
    workers: int | None = None,
    format: str | None = None,
    progress: bool | None = None,
    on_progress: Callable[[SweepProgress], None] | None = None,
    **choices: Any,
) -> SweepResult:
    """Simulates every combination of traces, machines, designs and settings.

    >>> result = octavo.sweep("gzip.oct", ["skylake", "zen4"], ["base4k", "thp"],
    ...     {"tlb.l2.main.entries": [1024, 2048]}, out="results")  # doctest: +SKIP
    >>> result.to_pandas().pivot_table(
    ...     "translation_share", "tlb.l2.main.entries", ["machine", "design"])  # doctest: +SKIP

    `traces` and `machines` are names or lists of names, or mappings that give each the name that
    the tables have. A trace is a file, `synth:…`, or the URI of a file in any file system that
    Arrow or fsspec knows; a machine is a preset or a TOML file. `settings` change machines: the
    lists of a mapping are crossed, and a list of mappings is taken as it is. `seeds` set
    `memory.fragmentation.seed`. Designs are names, and subclasses of `octavo.Design`, which go to
    the workers with their code: a result is kept under a hash of it.

    With `processes` "asid" or "flush", the processes of a trace share machines, and a mapping may
    give a name several traces, whose processes do: `{"pair": ["gzip.oct", "sort.oct"]}`.

    Each trace is decoded once for up to 32 simulations. They run in `workers` processes of this
    machine (as many as it has processors), or, with `on="ray"` or `on="ray://HOST:PORT"`, on a Ray
    cluster. Results are kept in the directory `out`, under a key of all that decides them, and what
    is there is not simulated again; without `out` they go with the result. Ctrl-C ends tasks in
    hand that take more than three seconds yet, and keeps what is done: the result is partial then.

    `progress` shows a bar (by default on terminals and in notebooks). Of the other arguments,
    `layout`, `skip_instructions`, `max_instructions`, `between_marks`, `warm_up`, `fast_forward`,
    `interval`, `timing`, `processes`, `quantum`, `first_quantum`, `cores`, `virtualised` and
    `host_policy` are as of `octavo.sim`, and the same for all simulations.
    Raises OctavoError with one clear sentence; where some simulations fail, `failed` says why, and
    only if all do is that an error.
    """
    designs = [designs] if isinstance(designs, str | type) else list(dict.fromkeys(designs))
    if len({name_of(design) for design in designs}) < len(designs):
        raise UsageError("two designs in Python have the same name: give them different ones.")
    if not designs:
        raise UsageError("a sweep needs designs.")
    seeds = [seeds] if isinstance(seeds, int) else list(seeds)
    of_traces, of_machines = named_traces(traces), named(machines, "machines")
    combinations = crossed(of_traces, of_machines, designs, settings, seeds or [None])
    where = workers_of(on, workers)
    plan = resolve(combinations, of_traces, of_machines, format=format, **choices)
    kept = None
    if out is None:
        kept = TemporaryDirectory("octavo-sweep-")
        out = Path(kept.name, "results")
    prepared = prepare(plan, DataSet(out), where)
    with shown_progress(progress) as show:
        if show is not None:
            print(prepared.estimate.sentence(where.describe()), file=sys.stderr)
        result = run_prepared(prepared, _both(show, on_progress))
    # A reference that keeps the temporary directory as long as its data set.
    result.data_set.kept = kept
    if result.is_partial and not any(one in result.data_set for one in plan.simulations):
        raise Interrupted(2, "before any simulation was done")
    if result.failed and len(result.failed) == len(plan.simulations):
        raise CannotRun(next(iter(result.failed.values())))
    return result


def workers_of(on: str, workers: int | None) -> Workers:
    """The workers that `on` names. Raises UsageError."""
    if workers is not None and workers < 1:
        raise UsageError(f"workers {workers}: give a number from 1.")
    if on == LOCAL:
        return LocalWorkers(workers)
    if on != RAY and not on.startswith(_RAY_ADDRESS):
        raise UsageError(f"unknown place `{on}` to run on: give local, ray or ray://HOST:PORT.")
    if workers is not None:
        raise UsageError(f"workers {workers}: they are of this machine; leave them out with {on}.")
    from octavo.sweeps.cluster import RayWorkers

    return RayWorkers(None if on == RAY else on)


def _both(
    *listeners: Callable[[SweepProgress], None] | None,
) -> Callable[[SweepProgress], None]:
    def show(progress: SweepProgress) -> None:
        for listener in listeners:
            if listener is not None:
                listener(progress)

    return show


@contextmanager
def shown_progress(wanted: bool | None) -> Iterator[Callable[[SweepProgress], None] | None]:
    """A function that draws a bar on standard error, or a line in a notebook, by default only where
    a person sees it; None without one.
    """
    if not (is_watched() if wanted is None else wanted):
        yield None
        return
    if is_notebook():
        line = NotebookLine()
        try:
            yield lambda progress: line.show(lambda: _notebook_text(progress))
        finally:
            line.close()
        return
    with progress_bar() as bar:
        number = bar.add_task("simulations", total=None, text="")

        def show(progress: SweepProgress) -> None:
            text = f"{progress.done}/{progress.total}{_left(progress)}"
            bar.update(number, completed=progress.portion, total=1.0, text=text)

        yield show


def _notebook_text(progress: SweepProgress) -> str:
    simulations = plural(progress.total, "simulation")
    return f"{progress.done} of {progress.total} {simulations}{_left(progress)}"


def _left(progress: SweepProgress) -> str:
    seconds = progress.left_seconds
    if seconds is None:
        return ""
    # Below a second, the estimate is not worth a number.
    return ", nearly done" if seconds < 1 else f", about {format_duration(seconds)} left"


def progress_bar() -> Progress:
    """A progress bar of rich on standard error."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[text]}"),
        console=Console(stderr=True),
        transient=True,
    )
