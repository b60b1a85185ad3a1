"""The counted part of a run, by time, with a fake run and a fake clock."""

from __future__ import annotations

import math
import signal
from typing import Any

import pytest

from fakes import FakeRun, progress, result
from octavo.base.errors import UsageError
from octavo.tracing.phase import Phase, Timer, part_text, read_span, region_of_interest
from octavo.tracing.scope import Scope, resolve_scope
from octavo.tracing.session import GRACE_SECONDS, drive


def at(seconds: float, *, counting: bool, over: bool = False) -> Any:
    return {**progress(running=True, seconds=seconds), "counting": counting, "over": over}


def test_counting_begins_and_ends_on_time() -> None:
    run = FakeRun(result())
    timer = Timer(Phase(start_after_seconds=30, duration_seconds=10), run)
    assert run.counting == [False]
    assert not timer.look(at(29.9, counting=False))
    assert run.counting == [False]
    assert not timer.look(at(30.1, counting=False))
    assert run.counting == [False, True]
    # The duration begins when counting begins, here 5 s after the command to count.
    assert not timer.look(at(35.0, counting=True))
    assert not timer.look(at(44.9, counting=True))
    assert run.ended_by == []
    assert timer.look(at(45.0, counting=True))
    assert run.ended_by == [signal.SIGINT]
    assert not timer.look(at(46.0, counting=False, over=True))
    assert (run.ended_by, run.counting) == ([signal.SIGINT], [False, True])


def test_a_phase_begun_by_hand_begins_once() -> None:
    run = FakeRun(result())
    timer = Timer(Phase(start_after_seconds=30), run)
    assert not timer.look(at(5, counting=True))
    assert not timer.look(at(31, counting=False))
    assert run.counting == [False]
    never = Timer(Phase(start_after_seconds=math.inf, duration_seconds=1), FakeRun(result()))
    assert not never.look(at(1e9, counting=False))


@pytest.mark.parametrize(("text", "shown"), [("1000h", "1000.0 h"), ("50ms", "0.05 s")])
def test_a_wait_is_shown_in_a_unit_that_fits(text: str, shown: str) -> None:
    _, _, phase = region_of_interest(text, None, skip=0, most=None)
    assert phase is not None
    assert phase.uncounted == f"{shown} of --start-after"


def test_a_limit_of_instructions_ends_counting_softly() -> None:
    run = FakeRun(result())
    timer = Timer(Phase(ends_by_instructions=True), run)
    assert run.softly
    assert run.counting == []
    assert not timer.look(at(1, counting=True))
    assert timer.look(at(2, counting=False, over=True))
    assert run.ended_by == [signal.SIGINT]


def test_a_program_that_does_not_end_is_stopped_after_its_grace() -> None:
    times = iter([0.0, GRACE_SECONDS - 0.1, GRACE_SECONDS, GRACE_SECONDS + 1])
    run = FakeRun(result(), waits=9)
    timer = Timer(Phase(duration_seconds=1.5), run)
    drive(run, lambda progress: None, clock=lambda: next(times), timer=timer)
    assert run.stopped
    # The program was asked to end once, and ran on until the grace period was over.
    assert (run.ended_by, next(times)) == ([signal.SIGINT], GRACE_SECONDS + 1)


@pytest.mark.parametrize(
    ("start_after", "duration", "end", "part"),
    [
        (
            "30s",
            "2s",
            "limit",
            "for 2 s (--duration), from 30 s after its start (--start-after)",
        ),
        (None, "2M", "limit", "for 2,000,000 instructions (--duration)"),
        ("ctl", "1h", "exited", "from `octavo ctl PID start`"),
        ("10M", None, "exited", "from instruction 10,000,000"),
        (None, "1h", "exited", None),
        (None, None, "limit", None),
    ],
)
def test_the_part_that_was_counted_in_words(
    start_after: str | None, duration: str | None, end: str, part: str | None
) -> None:
    scope = Scope(**resolve_scope(start_after=start_after, duration=duration))
    text = f"PART: the program was counted {part}; counts and advice are about that part."
    assert part_text(scope.resolved(), end) == (None if part is None else text)


def test_a_limit_of_instructions_is_no_duration_of_the_part() -> None:
    scope = Scope(**resolve_scope(start_after="2s", max_instructions=10**6))
    text = part_text(scope.resolved(), "limit")
    assert text is not None
    assert text.startswith("PART: the program was counted from 2 s after its start (--start-after)")


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("30s", (30.0, None)),
        ("1.5h", (5400.0, None)),
        ("5min", (300.0, None)),
        ("20ms", (0.02, None)),
        ("200M", (None, 200_000_000)),
        ("1.5k", (None, 1500)),
    ],
)
def test_spans(text: str, meaning: tuple[float | None, int | None]) -> None:
    assert read_span(text, "--duration") == meaning


@pytest.mark.parametrize("text", ["", "30", "5m", "0s", "0M", "1.0005k", "s", "-3s", "1e3s", "3 d"])
def test_invalid_spans_are_refused(text: str) -> None:
    with pytest.raises(UsageError):
        read_span(text, "--duration")


def test_options_become_a_phase() -> None:
    assert region_of_interest(None, None, skip=10, most=20) == (10, 20, None)
    both = region_of_interest("10M", "20M", skip=0, most=None)
    assert both == (10**7, 2 * 10**7, Phase(ends_by_instructions=True))
    timed = Phase(start_after_seconds=2, duration_seconds=3)
    assert region_of_interest("2s", "3s", skip=7, most=None) == (7, None, timed)
