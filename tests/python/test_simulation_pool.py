"""The passes of a study: failures, results kept on Ctrl-C, and progress."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from octavo.studies import simulation_pool as pool
from octavo.studies.simulation_pool import STOPPED, Pass, run_passes


def test_a_failed_pass_has_its_error() -> None:
    messages: list[str] = []
    done = run_passes(
        [
            Pass("good", ("sim", "--design", "base4k", "synth:gups?table=1MiB&updates=2k")),
            Pass("bad", ("sim", "--design", "base5k", "synth:gups?table=1MiB&updates=2k")),
        ],
        "two",
        messages.append,
    )
    assert list(done.documents) == ["good"]
    assert "base4k" in done.failed["bad"]
    assert not done.is_partial
    assert messages == ["two: 2 passes"]


def test_ctrl_c_keeps_finished_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second of three passes never ends by itself, and the main thread is interrupted."""
    good = ("sim", "--design", "base4k", "synth:gups?table=1MiB&updates=2k")
    endless = ("sim", "--design", "base4k", "synth:gups?table=1MiB&updates=1e12")
    interrupt = pool.wait
    seen = []

    def once(futures: Any, **options: Any) -> Any:
        if seen:
            raise KeyboardInterrupt
        seen.append(1)
        return interrupt(futures, **options)

    monkeypatch.setattr(pool, "wait", once)
    before = threading.active_count()
    done = run_passes(
        [Pass("one", good), Pass("two", endless), Pass("three", endless)],
        "three",
        lambda line: None,
        jobs=1,
    )
    assert list(done.documents) == ["one"]
    assert done.failed == {"two": STOPPED, "three": STOPPED}
    assert done.is_partial
    assert threading.active_count() == before


def test_progress_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(0, 1000, 60))
    monkeypatch.setattr(pool.time, "monotonic", lambda: float(next(clock)))
    messages: list[str] = []
    progress = pool._Progress("grid", 3, messages.append)
    for _ in range(3):
        progress.one_more()
    assert messages == [
        "grid: 3 passes",
        "grid: 1 of 3, about 2 min left",
        "grid: 2 of 3, about 60 s left",
    ]
