"""Windows of a live run: their share of the execution, and the notes about them."""

from __future__ import annotations

from typing import Any

import pytest

from octavo.tracing.windows import traced_share, windows_warning


def found(unit: str, *each: int, executed: int | None = None) -> dict[str, Any]:
    """Windows in the form of the manifest, of a process and of an idle one."""
    kept = [{"instructions": instructions} for instructions in each]
    return {
        "periodic": {"unit": unit, "traced": 0.1, "gap": 0.9, "warm": 0} if unit else None,
        "windows": len(each),
        "instructions": sum(each),
        "executed_instructions": executed,
        "processes": [{"kept": kept}, {"kept": [{"instructions": 0}]}],
        "intervals": [],
    }


@pytest.mark.parametrize(
    ("windows", "share", "of_sample"),
    [
        # A sample of windows by instructions has its own numbers of them.
        (found("instructions", 10, 30, executed=80), 0.5, 0.5),
        (found("seconds", 10, 30), 0.1, 0.02),
        # Begun and ended by hand.
        (found("", 10, 30), 1.0, 0.2),
    ],
)
def test_the_share_of_the_execution(
    windows: dict[str, Any], share: float, of_sample: float
) -> None:
    assert traced_share(windows) == pytest.approx(share)
    assert traced_share(windows, kept=0.2) == pytest.approx(of_sample)


def test_windows_by_time_that_hold_few_instructions_are_named() -> None:
    few = windows_warning(found("seconds", 20_000, 40_000))
    assert "A window has 30.0 k instructions on average" in few
    assert "on average" not in windows_warning(found("seconds", 2_000_000, 4_000_000))
    # Windows of a given number of instructions have no warning.
    assert "on average" not in windows_warning(found("instructions", 20_000, 40_000))


def test_instructions_that_warm_the_tlbs_are_named() -> None:
    windows = found("instructions", 100_000, 50_000, executed=800_000)
    assert "2 windows of the execution were traced, 150 k of 800 k" in windows_warning(windows)
    windows["periodic"]["warm"] = 50_000
    assert windows_warning(windows) == (
        "WINDOWS: 2 windows of the execution were traced, and 150 k of 800 k instructions count: "
        "the first 50.0 k of each window but the first one warm the TLBs."
    )
