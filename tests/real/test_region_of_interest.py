"""A region of interest: after a number of instructions, for a number, or between marks."""

import pytest

from .conftest import Octavo, workload

# Segments are counted as a whole or not at all; all segments are shorter than this.
SEGMENT = 200


def test_max_instructions_ends_an_endless_program(octavo: Octavo):
    traced = octavo(workload("signals", "spin"), "--max-instructions", "1M")
    assert traced.status == 0
    assert traced.stdout.startswith(b"ready\n")
    counted = traced.count("instructions")
    assert 10**6 <= counted < 10**6 + SEGMENT
    reason = f"stopped by --max-instructions after {counted:,} counted instructions"
    assert traced.run["partial_reason"] == reason
    traced.check()


@pytest.mark.parametrize("skipped", [0, 1000, 123_456])
def test_skip_instructions(skipped: int, octavo: Octavo):
    whole = octavo(workload("static_count"))
    part = octavo(workload("static_count"), "--skip-instructions", str(skipped))
    assert part.status == 42
    part.check()
    missing = whole.count("instructions") - part.count("instructions")
    assert skipped <= missing < skipped + SEGMENT
    assert part.count("loads") <= whole.count("loads")


def test_skip_and_max_together(octavo: Octavo):
    options = ("--skip-instructions", "50k", "--max-instructions", "100k")
    traced = octavo(workload("static_count"), *options)
    assert 100_000 <= traced.count("instructions") < 100_000 + SEGMENT


def test_marks(octavo: Octavo):
    stores = 100_000
    whole = octavo(workload("marks", stores))
    part = octavo(workload("marks", stores), "--marks")
    assert part.stdout == b"done\n"
    part.check()
    assert stores <= part.count("stores") < stores + 100
    # The marked part touches 16 pages and the stack's; the rest 2048 more.
    memory = {"component": "memory", "stream": "data", "page_size": 4096}
    assert 16 * 4096 <= part.row(**memory)["touched_bytes"] <= 18 * 4096
    assert whole.row(**memory)["touched_bytes"] > 2048 * 4096
    assert whole.count("mark", "stream.events") == 3


@pytest.mark.parametrize(
    "options", [("--marks",), ("--skip-instructions", "1T")], ids=["marks", "skip"]
)
def test_a_region_that_never_begins_is_no_result(options: tuple[str, ...], octavo: Octavo):
    traced = octavo(workload("static_count"), *options)
    assert traced.status == 125
    assert traced.stderr.startswith(b"octavo: ")
    assert traced.document is None
