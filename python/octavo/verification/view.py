"""The measurement in words and tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from octavo.base.table import Grid
from octavo.base.text import capitalised, plural, quoted
from octavo.base.units import (
    NOT_AVAILABLE,
    format_bytes,
    format_count,
    format_duration,
    format_share,
)
from octavo.runtimes.launchers import program_at
from octavo.verification.experiment import Progress
from octavo.verification.outcome import Outcome, Summary
from octavo.verification.statistics import Interval

_REGIONS_SHOWN = 4


def headline(outcome: Outcome) -> str:
    """The program, the metric, the rounds and settings, and the time of the measurement."""
    experiment = outcome.experiment
    settings = sum(summary.measured.dropped is None for summary in outcome.summaries)
    rounds = plural(experiment.rounds, "round")
    time = format_duration(experiment.seconds)
    command = outcome.plan.command
    return (
        f"{command[program_at(command)]}: {outcome.metric_name}, {outcome.better} is better; "
        f"{experiment.rounds} {rounds} of {settings} settings, {time}"
    )


def settings_grid(outcome: Outcome) -> Grid:
    """A line for each setting that was measured."""
    summaries = [summary for summary in outcome.summaries if summary.measured.dropped is None]
    show = _plain if outcome.plan.metric.is_time else _significant
    head = ["setting", "median", "interval", "ratio\nto now", "interval", "peak\nmemory"]
    head += ["in huge\npages"]
    has_smaller = any(summary.smaller_bytes for summary in summaries)
    if has_smaller:
        head.append("in smaller\nones")
    head.append("page\nfaults")
    predicts = any(summary.prediction is not None for summary in summaries)
    if predicts:
        head += ["time\nsaved", "predicted"]
    rows = []
    for summary in summaries:
        cells = [summary.name, *_cells(summary.metric, show), *_cells(summary.ratio, _ratio)]
        peak = summary.peak_resident_bytes
        cells += [
            NOT_AVAILABLE if peak is None else format_bytes(peak),
            NOT_AVAILABLE if peak is None else format_bytes(summary.all_huge_bytes),
        ]
        if has_smaller:
            cells.append(format_bytes(sum(summary.smaller_bytes.values())))
        faults = (summary.minor_faults or 0) + (summary.major_faults or 0)
        cells.append(NOT_AVAILABLE if summary.minor_faults is None else format_count(faults))
        if predicts:
            cells += _predicted(summary)
        rows.append(tuple(cells))
    name = outcome.decision.best.name
    best = tuple((row, 0) for row, summary in enumerate(summaries) if summary.name == name)
    return Grid(_title(outcome), tuple(head), tuple(rows), best=best)


def _title(outcome: Outcome) -> str:
    unit = " in seconds" if outcome.plan.metric.is_time else ""
    name = quoted(outcome.metric_name)
    return f"{capitalised(name)}{unit}, by setting"


def _predicted(summary: Summary) -> list[str]:
    predicted, gain = summary.prediction, summary.gain
    return [
        "" if gain is None else format_share(gain.median),
        ""
        if predicted is None
        else f"{format_share(predicted.expected)} "
        f"({format_share(predicted.low)} to {format_share(predicted.high)})",
    ]


def _cells(interval: Interval | None, show: Callable[[float], str]) -> tuple[str, str]:
    if interval is None:
        return "", ""
    if interval.values == 1:
        return show(interval.median), ""
    return show(interval.median), f"{show(interval.low)} to {show(interval.high)}"


def _ratio(value: float) -> str:
    return f"{value:.3f}"


def _plain(value: float) -> str:
    return f"{value:.4g}"


def _significant(value: float) -> str:
    """Four significant digits."""
    for unit, name in ((1e12, " T"), (1e9, " G"), (1e6, " M"), (1e4, " k")):
        if abs(value) >= unit:
            scale = 1e3 if name == " k" else unit
            return f"{value / scale:.4g}{name}"
    return f"{value:.4g}"


def regions_grid(outcome: Outcome) -> Grid | None:
    """The largest regions under the best setting; if that has no huge pages, under the setting with
    most.
    """
    summaries = outcome.summaries
    chosen = outcome.decision.best
    if not chosen.all_huge_bytes:
        chosen = max(summaries, key=lambda summary: summary.all_huge_bytes)
    look = chosen.measured.look
    if not chosen.all_huge_bytes or look is None or look.ended is None:
        return None
    rows = tuple(
        (region.name, format_bytes(region.resident_bytes), format_bytes(region.huge_bytes))
        for region in look.ended.regions[:_REGIONS_SHOWN]
    )
    head = ("region", "memory", "in huge\npages")
    return Grid(f"Largest regions under {chosen.name}", head, rows)


def remarks(outcome: Outcome) -> list[str]:
    """The limits of the figures, a sentence each."""
    found = list(_coverage(outcome))
    for summary in outcome.summaries:
        measured = summary.measured
        if measured.dropped is not None:
            found.append(f"Not measured: {summary.name}: {measured.dropped}.")
            continue
        for reason, runs in measured.failures().items():
            noun = "run does" if runs == 1 else "runs do"
            found.append(f"{summary.name}: {runs} {noun} not count: {reason}.")
        if summary.lacks_huge_pages:
            found.append(
                f"{summary.name}: no run was seen with a huge page; what differs has another cause."
            )
    predicted = [(one.name, one.prediction) for one in outcome.summaries if one.prediction]
    of_data = {name: one.page_size for name, one in predicted if one.of == "data"}
    if of_data:
        size = format_bytes(next(iter(of_data.values())))
        found.append(
            f"Predicted for {', '.join(of_data)}: the time that {size} pages for all data save; "
            "the result of --from does not say how much of it such a setting reaches."
        )
    if any(one.smaller_of_system and one.smaller_bytes for one in outcome.summaries):
        found.append(
            "In smaller ones: what the whole system had more than before the run in pages between "
            "4 KiB and 2 MiB; only root may read it of the program alone."
        )
    if all(summary.peak_resident_bytes is None for summary in outcome.summaries):
        found.append("Memory: the runs were too short to be looked at.")
    return [*found, *outcome.notes]


def _coverage(outcome: Outcome) -> Iterator[str]:
    """A sentence with the coverage of the intervals."""
    metric = outcome.summaries[0].metric
    others = [summary.ratio.coverage for summary in outcome.summaries if summary.ratio is not None]
    if metric is not None and metric.values > 1:
        text = f"Intervals: medians lie inside with probability {format_share(metric.coverage)}"
        if others:
            text += f", ratios with {format_share(min(others))} each"
        yield f"{text} (order statistics; ratios within each round)."


def progress_text(progress: Progress) -> str:
    """`round 3 of 10, THP always, 45 s, about 2 min left`."""
    where = "beforehand" if progress.round == 0 else f"round {progress.round}"
    if progress.round and progress.rounds is not None:
        where += f" of {progress.rounds}"
        if progress.rounds < progress.rounds_needed:
            where += f" (too few: {progress.rounds_needed} is the least)"
    text = f"{where}, {progress.setting}, {format_duration(progress.elapsed_seconds)}"
    if progress.left_seconds is not None:
        text += f", about {format_duration(progress.left_seconds)} left"
    return text
