"""The outcome of a measurement: a median and an interval for each setting, the gain predicted by an
earlier run, and the decision.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

from octavo.base.host import describe_host, versions
from octavo.base.huge_pages import PMD_PAGE
from octavo.base.table import Tabular, arrow_table
from octavo.base.units import format_bytes, format_duration, format_share
from octavo.runs.answer import gain_of_action
from octavo.verification.experiment import Experiment, Measured, Plan
from octavo.verification.memory import KINDS
from octavo.verification.metric import Better
from octavo.verification.statistics import (
    LEVEL,
    METHOD,
    Interval,
    level_of_each,
    median_interval,
    ratios,
    values_needed,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from octavo.verification.settings import Setting

SCHEMA = "octavo/verify/1"

_SMALLEST_SHARE = 0.0005
"""Least change of memory that is mentioned."""


@dataclass(frozen=True)
class Summary:
    """The figures of one setting."""

    measured: Measured
    metric: Interval | None
    """The metric; None where no run counts."""
    ratio: Interval | None
    """The metric over that of `as now` in the same round; None for `as now` itself."""
    gain: Interval | None
    """The share of time saved: 1 - ratio for times, 1 - 1/ratio for rates; negative for a loss."""
    peak_resident_bytes: int | None
    """The most of all runs; None where no run's memory was sampled."""
    huge_bytes: dict[str, int]
    """The most of all runs, by kind."""
    smaller_bytes: dict[int, int]
    """The most of all runs in pages larger than 4 KiB and smaller than 2 MiB, by page size."""
    smaller_of_system: bool
    """Whether `smaller_bytes` is of the whole system, and not of the program's processes."""
    minor_faults: float | None
    """The median over runs."""
    major_faults: float | None
    prediction: Prediction | None

    @property
    def name(self) -> str:
        """The name of its setting."""
        return self.measured.setting.name

    @property
    def all_huge_bytes(self) -> int:
        """Bytes in huge pages of 2 MiB and more."""
        return sum(self.huge_bytes.values())

    @property
    def lacks_huge_pages(self) -> bool:
        """Whether the setting should give 2 MiB pages, but no run was seen with any."""
        gives = self.measured.setting.page_size == PMD_PAGE
        return gives and self.peak_resident_bytes is not None and not self.all_huge_bytes

    def is_better(self, level: float) -> bool:
        """Whether its gain is beyond noise."""
        return self.gain is not None and self.gain.low > 0 and self.gain.coverage >= level

    def is_worse(self, level: float) -> bool:
        """Whether its loss is beyond noise."""
        return self.gain is not None and self.gain.high < 0 and self.gain.coverage >= level


@dataclass(frozen=True)
class Decision:
    """The best setting, and the comparison of the others with it."""

    best: Summary
    """The setting with the largest gain beyond noise; `as now` where no setting has one."""
    beyond_noise: bool
    """Whether the interval of its gain excludes 0."""
    as_good: tuple[str, ...]
    """Settings that gain beyond noise and do not differ from the best one beyond noise."""
    closest: Summary | None
    """The setting with the largest median gain, where none gains beyond noise."""
    worse: tuple[str, ...]
    """Settings that lose beyond noise."""
    level: float
    """Coverage that each interval needs for all intervals to hold at once."""
    rounds_needed: int
    """The fewest rounds with which a difference can be significant at that level."""


@dataclass(frozen=True, repr=False)
class Outcome(Tabular):
    """A finished measurement."""

    plan: Plan
    experiment: Experiment
    better: Better
    metric_name: str
    """`wall time`, `requests per second`, or the metric in the user's words."""
    summaries: tuple[Summary, ...]
    """The settings; `as now` is first."""
    decision: Decision
    notes: tuple[str, ...]
    about: dict[str, Any]
    """The date, the machine, and versions of software."""

    @property
    def level(self) -> float:
        """The coverage that each interval needs."""
        return self.decision.level

    def table(self) -> pa.Table:
        """A row for each setting: the metric and the gain, with intervals."""
        return arrow_table([_row(summary) for summary in self.summaries], _COLUMNS)

    def headline(self) -> str:
        """The program, the metric, and the number of rounds."""
        from octavo.verification.view import headline

        return headline(self)

    def conclusion(self) -> str:
        """The decision, in a sentence or two."""
        return decision_text(self)

    def document(self) -> dict[str, Any]:
        """The document of `octavo verify --json`; docs/verify.schema.json describes it."""
        plan, experiment, decision = self.plan, self.experiment, self.decision
        return {
            "schema": SCHEMA,
            "command": list(plan.command),
            **self.about,
            "elapsed_seconds": experiment.seconds,
            "interrupted_by": experiment.interrupted_by,
            "rounds": experiment.rounds,
            "metric": {
                "source": plan.metric.source,
                "command": plan.metric.command,
                "pattern": plan.metric.pattern.pattern if plan.metric.pattern else None,
                "name": self.metric_name,
                "better": self.better,
            },
            "server": {"ready": plan.ready, "prepare": plan.prepare}
            if plan.metric.is_of_server
            else None,
            "method": {
                "intervals": METHOD,
                "level": LEVEL,
                "level_of_each": decision.level,
                "rounds_needed": decision.rounds_needed,
            },
            "settings": [_record(summary) for summary in self.summaries],
            "decision": {
                "text": decision_text(self),
                "best": decision.best.name,
                "beyond_noise": decision.beyond_noise,
                "gain": _interval(decision.best.gain),
                "as_good": list(decision.as_good),
                "worse": list(decision.worse),
            },
            "notes": list(self.notes),
        }


_ENDS = ("low", "median", "high")
_COLUMNS = {
    "setting": "string",
    **{f"{name}_{end}": "float64" for name in ("metric", "gain") for end in _ENDS},
    "peak_resident_bytes": "int64",
    "huge_bytes": "int64",
    "minor_faults": "float64",
    "major_faults": "float64",
}


def _row(summary: Summary) -> dict[str, Any]:
    intervals = {"metric": summary.metric, "gain": summary.gain}
    return {
        "setting": summary.name,
        **{
            f"{name}_{end}": None if interval is None else getattr(interval, end)
            for name, interval in intervals.items()
            for end in _ENDS
        },
        "peak_resident_bytes": summary.peak_resident_bytes,
        "huge_bytes": summary.all_huge_bytes,
        "minor_faults": summary.minor_faults,
        "major_faults": summary.major_faults,
    }


def _record(summary: Summary) -> dict[str, Any]:
    measured = summary.measured
    look = measured.look
    regions = look.ended.regions if look is not None and look.ended is not None else ()
    return {
        **measured.setting.record(),
        "dropped": measured.dropped,
        "failures": [
            {"reason": reason, "runs": runs} for reason, runs in measured.failures().items()
        ],
        "values": measured.values,
        "metric": _interval(summary.metric),
        "ratio": _interval(summary.ratio),
        "gain": _interval(summary.gain),
        "predicted": None if summary.prediction is None else asdict(summary.prediction),
        "peak_resident_bytes": summary.peak_resident_bytes,
        "huge_bytes": summary.huge_bytes,
        "smaller_pages": [
            {"page_size": size, "bytes": size_bytes}
            for size, size_bytes in sorted(summary.smaller_bytes.items())
        ],
        "smaller_pages_of": "system" if summary.smaller_of_system else "program",
        "regions": [region.record() for region in regions],
        "minor_faults": summary.minor_faults,
        "major_faults": summary.major_faults,
    }


def _interval(interval: Interval | None) -> dict[str, float] | None:
    return None if interval is None else asdict(interval)


def conclude(
    plan: Plan,
    experiment: Experiment,
    *,
    started_at: str,
    document: dict[str, Any] | None = None,
    notes: Sequence[str] = (),
) -> Outcome:
    """Computes every figure. `experiment` has at least one run of `as now` that counts."""
    measured = experiment.measured
    compared = sum(one.dropped is None for one in measured) - 1
    level = level_of_each(compared)
    better = plan.metric.better or "higher"
    name = next(
        (run.name for one in measured for run in _counted(one) if run.name), plan.metric.text
    )
    if document is not None and predicted_gain(document) is None:
        notes = [*notes, "The result of --from states no expected gain of its data."]
    summaries = tuple(
        _summary(one, measured[0], better, level, predicted_gain(document or {}, one.setting))
        for one in measured
    )
    return Outcome(
        plan,
        experiment,
        better,
        name,
        summaries,
        _decide(summaries, better, level),
        (*notes, *_notes(experiment)),
        {"started_at": started_at, "host": describe_host(), "versions": versions(None)},
    )


def _counted(measured: Measured) -> list[Any]:
    runs = [measured.look] if measured.look is not None else []
    return [run for run in (*runs, *measured.runs) if run.failure is None]


def _summary(
    measured: Measured,
    baseline: Measured,
    better: Better,
    level: float,
    prediction: Prediction | None,
) -> Summary:
    values = [value for value in measured.values if value is not None]
    ratio = gain = None
    if measured is not baseline and measured.dropped is None:
        of_rounds = ratios(measured.values, baseline.values)
        ratio = median_interval(of_rounds, level)
        gain = median_interval([_gain(value, better) for value in of_rounds], level)
    ended = [run.ended for run in _counted(measured) if run.ended is not None]
    timed = [run.ended for run in measured.runs if run.ended is not None]
    peaks = [one.peak_resident_bytes for one in ended if one.peak_resident_bytes is not None]
    sizes = {size for one in ended for size in one.smaller_bytes}
    return Summary(
        measured,
        median_interval(values),
        ratio,
        gain,
        max(peaks, default=None),
        {kind: max((one.huge_bytes[kind] for one in ended), default=0) for kind in KINDS},
        {size: max(one.smaller_bytes.get(size, 0) for one in ended) for size in sizes},
        any(one.smaller_of_system for one in ended),
        _median([one.minor_faults for one in timed or ended]),
        _median([one.major_faults for one in timed or ended]),
        prediction,
    )


def _gain(ratio: float, better: Better) -> float:
    """The share of time saved, from a ratio of times or of rates."""
    return 1 - ratio if better == "lower" else 1 - 1 / ratio


def _median(values: Sequence[int]) -> float | None:
    return statistics.median(values) if values else None


def _decide(summaries: Sequence[Summary], better: Better, level: float) -> Decision:
    as_now, *others = summaries
    gains = [(one.gain.median, one) for one in others if one.gain is not None]
    compared = [one for _, one in sorted(gains, key=lambda pair: -pair[0])]
    winners = [one for one in compared if one.is_better(level)]
    best = winners[0] if winners else as_now
    as_good = tuple(
        one.name for one in winners[1:] if not _differ(best.measured, one.measured, better, level)
    )
    return Decision(
        best,
        bool(winners),
        as_good,
        compared[0] if compared and not winners else None,
        tuple(one.name for one in compared if one.is_worse(level)),
        level,
        values_needed(level),
    )


def _differ(one: Measured, other: Measured, better: Better, level: float) -> bool:
    """Whether one is better than the other beyond noise."""
    of_rounds = [_gain(ratio, better) for ratio in ratios(one.values, other.values)]
    found = median_interval(of_rounds, level)
    return found is not None and found.low > 0 and found.coverage >= level


def _notes(experiment: Experiment) -> list[str]:
    notes = []
    look = experiment.measured[0].look
    if look is not None and look.ended is not None and look.ended.refuses_huge_pages:
        notes.append(
            "The program switches transparent huge pages off for itself (PR_SET_THP_DISABLE): from "
            "then on no setting gives it any but those of hugetlbfs."
        )
    if any(one.look and one.look.ended and one.look.ended.left_over for one in experiment.measured):
        notes.append("The program left processes behind; they were ended after each run.")
    if any(run.others for one in experiment.measured for run in _counted(one)):
        notes.append(
            "The metric's expression found several numbers in an output; the last one counts. "
            "A longer expression, as in `--metric 'regex:GET: ([0-9.]+)'`, chooses another."
        )
    return notes


def decision_text(outcome: Outcome) -> str:
    """The answer, in a sentence or two."""
    decision = outcome.decision
    if len(outcome.summaries) == 1:
        return "Nothing was compared: no other setting is worth trying here."
    if not outcome.experiment.rounds:
        return "Nothing can be said: no round was finished."
    counted = outcome.summaries[0].metric
    rounds = counted.values if counted else 0
    if rounds < decision.rounds_needed:
        return (
            f"Too few rounds to separate a difference from noise: {rounds} counted, and "
            f"{decision.rounds_needed} is the least for {_settings_compared(outcome)}, which takes "
            f"about {_time_needed(outcome)}."
        )
    text = _best_text(outcome) if decision.beyond_noise else _none_text(outcome)
    if decision.worse:
        text += f" Worse than now beyond noise: {', '.join(decision.worse)}."
    return text


def _time_needed(outcome: Outcome) -> str:
    """An estimate of the time for enough rounds; the untimed runs count as a round."""
    experiment = outcome.experiment
    each = experiment.seconds / (experiment.rounds + 1)
    return format_duration(each * (outcome.decision.rounds_needed + 1))


def _settings_compared(outcome: Outcome) -> str:
    compared = sum(summary.measured.dropped is None for summary in outcome.summaries) - 1
    return "one comparison" if compared == 1 else f"{compared} comparisons"


def _best_text(outcome: Outcome) -> str:
    decision = outcome.decision
    best = decision.best
    text = f"Best: {best.name}, {_change(outcome, best)}{_memory_cost(outcome, best)}."
    if decision.as_good:
        text += f" Not distinguishable from it: {', '.join(decision.as_good)}."
    return text


def _none_text(outcome: Outcome) -> str:
    closest = outcome.decision.closest
    if closest is None:
        return "Nothing was compared: no run under another setting counts."
    text = "No gain beyond noise: stay with the settings as they are."
    if closest.gain is None or closest.gain.median <= 0:
        return f"{text} The median of none is better."
    return (
        f"{text} The largest change for the better is that of {closest.name}: "
        f"{_change(outcome, closest)}. More rounds (--repetitions) narrow the interval."
    )


def _change(outcome: Outcome, summary: Summary) -> str:
    """`23.1% less wall time than now (20.9% to 25.0%, 95% for all settings together)`."""
    ratio = summary.ratio
    assert ratio is not None
    if outcome.better == "lower":
        change = (1 - ratio.median, 1 - ratio.high, 1 - ratio.low)
        words = ("less", "more")
    else:
        change = (ratio.median - 1, ratio.low - 1, ratio.high - 1)
        words = ("more", "less")
    median, low, high = change
    word = words[0] if median >= 0 else words[1]
    if median < 0:
        median, low, high = -median, -high, -low
    return (
        f"{format_share(median)} {word} {outcome.metric_name} than now "
        f"({format_share(low)} to {format_share(high)}; {LEVEL:.0%} for all settings together)"
    )


def _memory_cost(outcome: Outcome, summary: Summary) -> str:
    now, then = outcome.summaries[0].peak_resident_bytes, summary.peak_resident_bytes
    if not now or then is None:
        return ""
    grown = then - now
    if abs(grown) < _SMALLEST_SHARE * now:
        return ", for the same peak memory"
    word = "more" if grown > 0 else "less"
    return f", for {format_bytes(abs(grown))} ({format_share(abs(grown) / now)}) {word} peak memory"


@dataclass(frozen=True)
class Prediction:
    """The share of time that larger pages are expected to save."""

    page_size: int
    """Size in bytes of the larger pages."""
    low: float
    expected: float
    high: float
    of: Literal["setting", "data"]
    """Whether the gain is that of the memory that the setting reaches, or of all data, where the
    result does not show what the setting reaches."""


def predicted_gain(document: dict[str, Any], setting: Setting | None = None) -> Prediction | None:
    """The gain predicted for a setting, or for larger pages for the program's data; None where the
    result has none.
    """
    items = [one for one in document.get("advice", []) if one.get("scope") in ("program", "region")]
    for item in items:
        gain, size = item.get("gain"), item.get("gain_page_size")
        if (item["scope"], item.get("stream")) != ("program", "data") or not gain or not size:
            continue
        if setting is None:
            return Prediction(size, **gain, of="data")
        own = gain_of_action(items, setting.name, is_library=setting.is_late)
        if own is not None and setting.page_size is not None:
            return Prediction(setting.page_size, **asdict(own), of="setting")
        return Prediction(size, **gain, of="data") if setting.page_size == size else None
    return None
