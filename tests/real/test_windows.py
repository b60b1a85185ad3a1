"""`--window`: traced parts of an execution, and the events that are followed between them."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from octavo import _core
from schemas import first_error, validator_of

from .conftest import OCTAVO, TIMEOUT_SECONDS, Octavo, Traced, natively, read_document, workload

ALL = 1 << 40
# A superblock has at most 60 instructions, and a window ends with one.
SUPERBLOCK = 64
WARM = ("--window", "60k/340k", "--window-warm", "40k")
STATIC = workload("static_count")

Recorded = Callable[..., Path]


@pytest.fixture
def recorded(tmp_path: Path) -> Recorded:
    """Records a command: recorded([argv], "--option", …)."""

    def record(argv: Sequence[str], *options: str) -> Path:
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.oct"
        ended = natively([OCTAVO, "record", "--quiet", "-o", path, *options, "--", *argv])
        assert path.exists(), ended.stderr.decode()
        return path

    return record


def entries_of(path: Path) -> Sequence[dict[str, Any]]:
    entries, error = _core.Trace.open(str(path)).list(entries=ALL, from_instruction=0)
    assert error is None
    return entries


def references_of(path: Path) -> list[tuple[Any, ...]]:
    """The references of a trace with the number of their instruction in the whole execution."""
    found: list[tuple[Any, ...]] = []
    outside = 0
    for entry in entries_of(path):
        if entry["kind"] != "event":
            number = entry["instruction"] + outside
            found.append((number, entry["kind"], entry["address"], entry["size"]))
        elif entry["event"].startswith("window begins after "):
            outside = int(entry["event"].split()[3]) - entry["instruction"]
    return found


def windows_of(traced: Traced) -> dict[str, Any]:
    windows: dict[str, Any] = traced.run["windows"]
    return windows


def test_a_window_holds_the_references_of_its_instructions_and_of_no_others(recorded: Recorded):
    whole = references_of(recorded(STATIC))
    parts = recorded(STATIC, "--window", "20k/30k")
    ends = [e["event"] for e in entries_of(parts) if "window" in str(e.get("event"))]
    bounds = [0, *(int(text.split()[3]) for text in ends[:-1])]
    for begin, end in zip(bounds[::2], bounds[1::2], strict=True):
        assert begin % 50_000 < SUPERBLOCK
        assert (end - 20_000) % 50_000 < SUPERBLOCK
    inside = [
        reference
        for reference in whole
        if any(b <= reference[0] < e for b, e in zip(bounds[::2], bounds[1::2], strict=True))
    ]
    assert len(inside) > 100_000
    assert references_of(parts) == inside
    assert int(ends[-1].split()[3]) == whole[-1][0] + 1, "the end of the execution is recorded"


def test_windows_by_instructions_are_the_same_in_every_run(octavo: Octavo):
    first, second = (octavo(STATIC, "--window", "10k/25k") for _ in range(2))
    assert first.run["trace_hash"] == second.run["trace_hash"]
    assert windows_of(first) == windows_of(second)
    assert windows_of(first)["windows"] > 10


@pytest.mark.parametrize(
    "window", ["25k/0", "1G/1G"], ids=["without gaps", "longer than the program"]
)
def test_windows_that_hold_everything_change_no_number(window: str, octavo: Octavo):
    whole, parts = octavo(STATIC), octavo(STATIC, "--window", window)
    assert parts.document is not None
    assert whole.document is not None
    assert parts.document["rows"] == whole.document["rows"]
    windows = windows_of(parts)
    assert windows["instructions"] == windows["executed_instructions"]
    assert windows["instructions"] == whole.count("instructions")
    assert windows["references"] == whole.count("references")
    (process,) = windows["processes"]
    kept = process["kept"]
    assert sum(window["references"] for window in kept) == whole.count("references")
    assert (len(kept) == 1) == (window == "1G/1G")


@pytest.mark.parametrize(
    "command",
    [
        workload("many_maps", 300),
        workload("threads", 3, 2, 1),
        workload("forks", 5),
        ["sh", "-c", "(exit 3); /bin/echo one; ls /; exec /bin/echo two"],
    ],
    ids=["mappings", "threads", "forks", "executions"],
)
def test_events_between_windows_are_followed(
    command: list[str], octavo: Octavo, recorded: Recorded
):
    whole, parts = octavo(command), octavo(command, "--window", "10k/40k")
    assert (parts.status, parts.stdout) == (whole.status, whole.stdout)
    assert 0 < parts.count("instructions") < whole.count("instructions") / 2
    events = [
        {(row["counter"], row["value"]) for row in traced.rows(component="stream.events")}
        for traced in (whole, parts)
    ]
    assert events[0] == events[1]
    # The check finds no reference outside mappings or of unknown threads.
    trace = recorded(command, "--window", "10k/40k")
    checked = natively([OCTAVO, "check", trace])
    assert checked.status == 0, checked.stdout.decode()


def test_a_process_continues_the_period_of_its_parent(octavo: Octavo):
    # Children have some hundred instructions: with periods of their own, all would be traced.
    traced = octavo(workload("forks", 20), "--window", "10k/1G")
    processes = {process["stream"] for process in windows_of(traced)["processes"]}
    assert processes == {0}
    assert traced.count("instructions") < 10_000 + SUPERBLOCK


def test_signals_are_delivered_between_windows(octavo: Octavo):
    for argument in ("usr1", "segv", "die-segv", "exit-3"):
        command = workload("signals", argument)
        whole, parts = octavo(command), octavo(command, "--window", "10k/100k")
        assert (parts.status, parts.stdout) == (whole.status, whole.stdout)


def test_an_interrupt_between_windows_ends_the_run(tmp_path: Path):
    result = tmp_path / "result.json"
    command = [OCTAVO, "run", "-q", "--window", "10k/1T", "--json", result, "--"]
    octavo = subprocess.Popen(
        [*command, *workload("signals", "spin")], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert octavo.stdout is not None
    octavo.stdout.readline()
    octavo.send_signal(signal.SIGINT)
    octavo.communicate(timeout=TIMEOUT_SECONDS)
    assert octavo.returncode == 130
    document = read_document(result)
    assert document is not None
    assert document["run"]["partial_reason"].startswith("interrupted by SIGINT")
    assert 10_000 <= document["run"]["windows"]["instructions"] < 10_000 + SUPERBLOCK


def test_windows_by_time(octavo: Octavo):
    options = ("--window", "50ms/100ms", "--duration", "1s")
    traced = octavo(workload("signals", "spin"), *options)
    windows = windows_of(traced)
    assert windows["periodic"] == {"unit": "seconds", "traced": 0.05, "gap": 0.1, "warm": 0}
    begins = [window["begin_milliseconds"] for window in windows["processes"][0]["kept"]]
    assert len(begins) >= 3
    # Each window is in another period; on a busy machine it may begin late.
    periods = [begin // 150 for begin in begins]
    assert periods == sorted(set(periods))


def test_a_recorded_run_gives_the_windows_of_the_live_one(octavo: Octavo, recorded: Recorded):
    live = octavo(STATIC, "--window", "20k/80k")
    result = natively([OCTAVO, "run", "-q", "--json", "-", recorded(STATIC, "--window", "20k/80k")])
    replayed = json.loads(result.stdout)
    assert live.document is not None
    assert replayed["rows"] == live.document["rows"]
    assert replayed["run"]["windows"] == windows_of(live)
    assert not replayed["run"]["trace"]["exact"]
    for document in (live.document, replayed):
        assert first_error(validator_of("run"), document) is None


def test_a_stationary_program_is_estimated_within_the_interval(octavo: Octavo):
    command = workload("random_reads", "--block", "64MiB", "--reads", "400k")
    whole, parts = octavo(command), octavo(command, "--window", "20k/180k")
    keys = {"stream": "data", "page_size": 4096}
    tlb = whole.row(component="tlb.data", **keys)
    truth = 1000 * tlb["misses"] / whole.count("instructions")
    (found,) = (
        one
        for one in windows_of(parts)["intervals"]
        if not one["modelled"] and keys.items() <= one.items()
    )
    assert found["low"] <= found["misses_per_kilo_instruction"] <= found["high"]
    assert found["low"] <= truth <= found["high"]


def test_windows_give_the_advice_of_the_whole_execution(octavo: Octavo):
    """The windows have fewer than 10,000 walks, and the whole execution has more."""
    argv = workload("gups", 64, 60_000)

    def advised(*options: str) -> int:
        traced = octavo(argv, "--tlb", "zen5", *options)
        assert traced.document is not None
        (data,) = (
            item
            for item in traced.document["advice"][1:]
            if item["stream"] == "data" and item.get("region") is None
        )
        return int(data["page_size"])

    assert advised("--window", "100k/900k") == advised() == 2 << 20


def test_warming_instructions_fill_tlbs_and_are_not_counted(octavo: Octavo):
    cold = octavo(STATIC, "--window", "30k/30k")
    warm = octavo(STATIC, "--window", "30k/30k", "--window-warm", "10k")
    kept = [windows_of(traced)["processes"][0]["kept"] for traced in (cold, warm)]
    assert kept[0][0] == kept[1][0], "the first window begins with the program"
    for one, other in zip(kept[0][1:-1], kept[1][1:-1], strict=True):
        assert 10_000 <= one["instructions"] - other["instructions"] < 10_000 + SUPERBLOCK
        assert one["begin_instructions"] == other["begin_instructions"]
    for traced in (cold, warm):
        traced.check()
        windows = windows_of(traced)
        assert windows["instructions"] == traced.count("instructions")
        (process,) = windows["processes"]
        assert windows["references"] == sum(one["references"] for one in process["kept"])
        for side in ("fetch", "data"):
            tlb = traced.row(component=f"tlb.{side}", page_size=4096)
            (found,) = (
                one
                for one in windows["intervals"]
                if (one["stream"], one["page_size"], one["modelled"]) == (side, 4096, False)
            )
            rate = 1000 * tlb["misses"] / windows["instructions"]
            assert found["misses_per_kilo_instruction"] == pytest.approx(rate)
    memory = {"component": "memory", "stream": "data", "page_size": 4096}
    assert warm.row(**memory) == cold.row(**memory), "warming counts as touching"


def test_stale_tlbs_overestimate_misses_and_warming_reduces_that(octavo: Octavo):
    # TLBs lack pages that the program has used since the window before.
    command = workload("random_reads", "--block", "4MiB", "--reads", "2M", "--check", "no")
    options = ("--tlb", "zen4", "--page-sizes", "4KiB")
    rates = []
    for how in (("--window", "1T/0"), ("--window", "20k/380k"), WARM):
        windows = windows_of(octavo(command, *options, *how))
        (last,) = (
            one
            for one in windows["intervals"]
            if (one["stream"], one["level"], one["modelled"]) == ("data", 2, True)
            and one["page_size"] == 4096
        )
        rates.append(last["misses_per_kilo_instruction"])
    whole, cold, warm = rates
    assert whole < warm < cold


@pytest.mark.parametrize(
    ("window", "message"),
    [
        ("20M", "give the length of a window and of the gap after it"),
        ("20M/1s", "give both lengths in instructions, or both as times"),
        ("1k/1M", "a window must have from 10k to 9000T instructions, and the gap at most 9000T."),
        ("1ms/1s", "a window must have from 10ms to 250000h, and the gap at most 250000h."),
        ("x/1M", "give a time with its unit"),
        ("20M/-1", "give a time with its unit"),
    ],
)
def test_invalid_windows_are_refused(window: str, message: str, octavo: Octavo):
    traced = octavo(["true"], "--window", window)
    assert traced.status == 2
    text = traced.stderr.decode()
    assert message in text
    assert text.count("\n") == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--tracer", "lackey"), "needs octavo's own tracer"),
        (("--window-warm", "1M"), "must be less than the 1,000,000 instructions"),
        (("--skip-instructions", "1M"), "exclude each other"),
        (("--start-after", "1M"), "exclude each other"),
    ],
)
def test_options_that_exclude_windows_are_refused(
    options: tuple[str, ...], message: str, octavo: Octavo
):
    traced = octavo(["true"], "--window", "1M/9M", *options)
    assert traced.status == 2
    assert message in traced.stderr.decode()


def test_a_trace_is_read_as_a_whole(tmp_path: Path):
    refused = natively([OCTAVO, "run", "--window", "1M/9M", "synth:gups?updates=1k"])
    assert refused.status == 2
    assert b"octavo convert --sample" in refused.stderr
