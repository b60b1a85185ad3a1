"""Real programs: threads with private TLBs, and processes that share a core."""

from pathlib import Path
from typing import Any

import pytest

import octavo
from octavo.tlb_curves.api import CurvesResult

from .conftest import OCTAVO, natively, workload

SMALL: dict[str, Any] = {
    "entries": 64,
    "sets": 16,
    "windows": [10_000],
    "policy_window": 10_000,
    "page_sizes": [4096, 65536],
}
SCRIPT = """
for word in one two three; do
    echo "$word" | sed s/o/0/ > /dev/null
done
exec ls /
"""


def recorded(path: Path, *argv: str) -> str:
    assert natively([OCTAVO, "record", "-q", "-o", path, "--", *argv]).status == 0
    return str(path)


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The trace of a shell script that forks, runs programs, and at its end executes another."""
    return recorded(tmp_path_factory.mktemp("shell") / "shell.oct", "sh", "-c", SCRIPT)


@pytest.fixture(scope="module")
def threads(tmp_path_factory: pytest.TempPathFactory) -> str:
    directory = tmp_path_factory.mktemp("threads")
    return recorded(directory / "threads.oct", *workload("threads", 3, 2, 2))


def misses(result: CurvesResult, stream: str = "data", entries: int = 16) -> int:
    found = result.total[stream].full_misses(4096, entries)
    assert found is not None
    return found


def time_sliced(trace: str, *more: str, **choices: Any) -> CurvesResult:
    return octavo.curves([trace, *more], **SMALL, **choices)


def test_time_slicing_keeps_counts_and_adds_misses(shell: str):
    apart = octavo.curves(shell, **SMALL)
    tagged = time_sliced(shell, processes="asid", quantum=5_000)
    flushed = time_sliced(shell, processes="flush", quantum=5_000)
    for result in (tagged, flushed):
        assert result.manifest["trace_hash"] == apart.manifest["trace_hash"]
        counts = [row for row in result.rows if row["component"] == "stream"]
        of_apart = [row for row in apart.rows if row["component"] == "stream"]
        keys = {(row["counter"], row.get("process")) for row in counts}
        assert len(keys) > 50
        for row in counts:
            assert row in of_apart
    assert len(apart.manifest["processes"]) > 7
    # Processes evict each other's entries; flushing also loses the entries that tags keep.
    assert misses(apart) < misses(tagged) < misses(flushed)
    # With longer turns, flushes are fewer.
    rarely = time_sliced(shell, processes="flush", quantum=10**9)
    assert misses(rarely) < misses(flushed)
    pages = {
        curve.pages for curve in (result.total["data"].stack[4096] for result in (apart, tagged))
    }
    assert len(pages) == 1


def test_flushing_after_whole_processes_equals_separate_ones(tmp_path: Path):
    """Each of two programs runs alone, from its beginning to its end."""
    traces = [
        recorded(tmp_path / "true.oct", "true"),
        recorded(tmp_path / "gzip.oct", "gzip", "--stdout", "/etc/services"),
    ]
    alone = [octavo.curves(trace, **SMALL) for trace in traces]
    together = time_sliced(*traces, processes="flush", quantum=10**12)
    for stream in ("fetch", "data", "all"):
        for size in (4096, 65536):
            expected = [result.total[stream].stack[size].misses for result in alone]
            assert list(together.total[stream].stack[size].misses) == [
                sum(pair) for pair in zip(*expected, strict=True)
            ]
    assert [process["stream"] for process in together.manifest["processes"]] == [0, 1]
    assert [process["program"] for process in together.manifest["processes"]] == [
        result.manifest["processes"][0]["program"] for result in alone
    ]


def test_context_switches_cost_misses(threads: str):
    plain = octavo.curves(threads, **SMALL)
    flushed = octavo.curves(threads, **SMALL, flush_every=1_000)
    switches = plain.counted["processes"][0]["instructions"] // 1_000
    assert switches > 10
    # Each switch causes misses for the pages in use: at least one, and at most the entries.
    more = misses(flushed) - misses(plain)
    assert 0 < more <= 16 * switches
    assert flushed.total["data"].stack[4096].pages == plain.total["data"].stack[4096].pages


def test_threads_of_their_own_add_up(threads: str):
    shared = octavo.curves(threads, **SMALL, classify="16x4")
    private = octavo.curves(threads, **SMALL, threads="private", classify="16x4")
    (of_threads,) = private.by_thread
    # A thread may get the number of one that has ended.
    assert {1, 2} <= set(of_threads) <= {1, 2, 3, 4}
    for name, total in private.total.items():
        own = [curves[name] for curves in of_threads.values()]
        assert total.references == shared.total[name].references
        assert total.references == sum(curves.references for curves in own)
        assert total.byte_refs == shared.total[name].byte_refs
        for counters in ("promotions", "demotions", "blocks_copied", "small_lookups"):
            assert (
                total.pairs[0].counters[counters] == shared.total[name].pairs[0].counters[counters]
            )
        for entries in (1, 16, 64):
            found = [curves.full_misses(4096, entries) or 0 for curves in own]
            assert total.full_misses(4096, entries) == sum(found)
        assert total.classes is not None
        assert total.classes.total.misses == total.set_misses("low", 4096, 4, 4)
    instructions = [curves["data"].instructions for curves in of_threads.values()]
    assert sum(instructions) == private.counted["processes"][0]["instructions"]
    # Rows of one thread have all components of curves.
    rows = [row for row in private.rows if row.get("thread") == 2]
    assert {"stream", "tlb.full", "tlb.sets", "two_sizes", "classes"} <= {
        row["component"] for row in rows
    }


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--processes", "asid", "--", "true"], "octavo record -o FILE -- PROGRAM"),
        (["--processes", "asids", "{trace}"], "did you mean `asid`"),
        (["--threads", "privat", "{trace}"], "did you mean `private`"),
        (["{trace}", "{trace}"], "--processes asid or flush"),
        (["--processes", "flush", "{trace}", "true"], "`true` is none"),
        (["--quantum", "1k", "{trace}"], "--quantum needs --processes asid or flush"),
        (["--processes", "asid", "--threads", "private", "{trace}"], "give one of them"),
        (["--processes", "asid", "--quantum", "0", "{trace}"], "--quantum 0: give instructions"),
        (["--flush-every", "0", "{trace}"], "--flush-every 0: give instructions"),
        (["--flush-every", "1k", "{data}"], "--flush-every goes by instructions"),
        (["--processes", "flush", "{data}"], "--processes flush goes by instructions"),
        (["--processes", "asid", "{packed}"], "holds several processes"),
    ],
)
def test_impossible_requests_are_errors(
    arguments: list[str], message: str, shell: str, tmp_path: Path
):
    data = tmp_path / "data.din"
    data.write_text("0 1000\n1 2000\n" * 50)
    packed = tmp_path / "shell.oct.gz"
    if "{packed}" in arguments:
        packed.write_bytes(natively(["gzip", "--stdout", shell]).stdout)
    words = [word.format(trace=shell, data=data, packed=packed) for word in arguments]
    ended = natively([OCTAVO, "curves", "--entries", "16", "--sets", "4", *words])
    text = " ".join(ended.stderr.decode().split())
    assert ended.status in (2, 125)
    assert message in text
    assert "Traceback" not in text
