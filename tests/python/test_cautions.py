"""Warnings before all numbers of a program that failed or was stopped."""

from collections.abc import Callable

import pytest

import octavo
from called import invoke
from fakes import FakeRun, exited, killed, result
from octavo.report.run import render_run
from octavo.runs.result import RunResult
from octavo.tracing.manifest import cautions

Finish = Callable[..., RunResult]
FAILED = "STATUS 3: the program ended with this error status"
STOPPED = "PARTIAL: stopped by --max-instructions after 1,000,000,000 counted instructions"
SMALL = "synth:strided?references=2k&instructions=1"


def test_a_failed_program_is_reported_before_any_number(
    pretend: Callable[[FakeRun], None],
) -> None:
    pretend(FakeRun(result(ended=exited(3))))
    done = invoke("run", "prog")
    lines = done.stderr.splitlines()
    assert done.exit_code == 3
    assert lines[1] == f"{FAILED}; counts and advice are about the part that ran."
    assert "\nFor the part that ran: Which page size?" in done.stderr


def test_every_output_of_a_failed_program_has_the_caution(finish: Finish) -> None:
    document = finish(result(ended=exited(3))).document()
    assert not document["run"]["partial"]
    assert document["advice"][0]["text"].startswith("For the part that ran: ")
    assert f'<p class="partial">{FAILED};' in render_run(document)


def test_a_program_that_succeeded_has_no_caution(finish: Finish) -> None:
    done = finish(result())
    assert cautions(done.manifest) == []
    assert done.document()["advice"][0]["text"].startswith("Which page size?")


def test_a_run_stopped_by_the_limit_is_partial(finish: Finish) -> None:
    stopped = finish(result(ended={**killed(9), "reason": "limit"}))
    assert stopped.status == 0
    assert cautions(stopped.manifest) == [f"{STOPPED}; counts end there."]


@pytest.mark.parametrize("verb", [octavo.run, octavo.curves, octavo.sim])
@pytest.mark.parametrize(("limit", "is_partial"), [(1000, True), (10_000, False)])
def test_a_limit_inside_a_trace_makes_the_result_partial(
    verb: Callable[..., RunResult], limit: int, is_partial: bool
) -> None:
    done = verb(SMALL, max_instructions=limit)
    assert done.status == 0
    assert done.partial is is_partial
    assert any("stopped by --max-instructions" in text for text in cautions(done.manifest)) is (
        is_partial
    )


def test_a_trace_of_a_failed_program_has_the_caution(finish: Finish) -> None:
    manifest = finish(result()).manifest
    manifest["trace"] = {"about": {"exit": {**exited(3), "status": 3}}}
    assert cautions(manifest) == [
        f"{FAILED} when it was recorded; counts and advice are about the part that ran."
    ]
