"""`octavo curves` through the extension: exact numbers on small traces, files and errors."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from typer.testing import Result

import naive_curves as naive
import octavo
from called import invoke
from octavo.base.errors import UsageError
from octavo.tlb_curves.api import CurvesResult
from octavo.tlb_curves.view import grids
from traces_made import SOME, Reference, read, write_csv

SYNTHETIC = "synth:zipf?table=1MiB&references=20k"
FEW = ["--entries", "64", "--sets", "4", "--windows", "1k", "--policy-window", "1k"]


def run(*arguments: str) -> Result:
    return invoke("curves", *arguments)


def made_up(seed: int) -> list[Reference]:
    """References near each other and far apart; some span two pages."""
    rng = random.Random(seed)
    made: list[Reference] = []
    while len(made) < 1500:
        near = rng.randrange(4) * 0x10_0000 + rng.randrange(12) * naive.BASE
        for _ in range(rng.randrange(1, 12)):
            offset = rng.choice((0, 8, 4092, 4095))
            kind = rng.choice(("fetch", "load", "store", "modify"))
            made.append((kind, 0x40_0000 + near + offset, rng.choice((1, 8))))
    return made


@pytest.fixture(scope="module", params=[1, 2])
def seeded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("traces") / "made.csv"
    return write_csv(path, made_up(request.param))


@pytest.fixture(scope="module")
def counted(seeded: str) -> CurvesResult:
    return octavo.curves(
        seeded,
        page_sizes=[4096, 16384, 65536],
        entries=40,
        sets=8,
        indexes=["low", "bits:2", "xor"],
        windows=[1, 7, 300, 10**9],
        two_sizes=[(4096, 16384), (8192, 65536)],
        threshold="50%",
        policy_window=40,
    )


STREAMS_AND_SIZES = [
    (stream, size) for stream in ("fetch", "data", "all") for size in (4096, 16384, 65536)
]


@pytest.mark.parametrize(("stream", "page_size"), STREAMS_AND_SIZES)
def test_misses_of_fully_associative_tlbs_equal_those_of_a_naive_tlb(
    counted: CurvesResult, seeded: str, stream: str, page_size: int
) -> None:
    references = naive.stream_of(read(seeded), stream)
    curves = counted.total[stream]
    assert curves.references == len(references)
    for entries in (1, 2, 3, 8, 17, 40):
        expected = naive.misses(references, page_size, 1, entries)
        assert curves.full_misses(page_size, entries) == expected
    assert curves.stack[page_size].pages == naive.misses(references, page_size, 1, 10**6)


def fold(page: int, bits: int) -> int:
    """Pieces of the page number, of a number of bits each, combined by exclusive or."""
    folded = 0
    while bits and page:
        folded ^= page & ((1 << bits) - 1)
        page >>= bits
    return folded


@pytest.mark.parametrize(("stream", "page_size"), STREAMS_AND_SIZES)
def test_misses_of_set_associative_tlbs_equal_those_of_a_naive_tlb(
    counted: CurvesResult, seeded: str, stream: str, page_size: int
) -> None:
    references = naive.stream_of(read(seeded), stream)
    curves = counted.total[stream]
    for sets, ways in ((1, 16), (2, 1), (4, 3), (8, 2)):
        bits = sets.bit_length() - 1
        indexes: dict[str, Callable[[int], int]] = {
            "low": lambda page: page,
            "bits:2": lambda page: page >> 2,
            "xor": partial(fold, bits=bits),
        }
        for index, place in indexes.items():
            expected = naive.misses(references, page_size, sets, ways, place)
            assert curves.set_misses(index, page_size, sets, ways) == expected


@pytest.mark.parametrize("stream", ["fetch", "data", "all"])
def test_cache_misses_are_those_of_a_naive_cache(seeded: str, stream: str) -> None:
    result = octavo.curves(seeded, cache_lines=[16, 64, 4096], streams=[stream], entries=1)
    chosen = [
        (of, times)
        for of, times in ((it, 2 if it[0] == "modify" else 1) for it in read(seeded))
        if stream in ("all", "fetch" if of[0] == "fetch" else "data")
    ]
    for size, caches in result.total[stream].caches.items():
        lines = [
            line
            for (_, address, length), times in chosen
            for _ in range(times)
            for line in range(address // size, (address + length - 1) // size + 1)
        ]
        assert caches.lookups == len(lines)
        for sets, ways in ((1, 1), (1, 16), (4, 3), (64, 1), (1024, 2), (65536, 1)):
            cache = naive.Lru(sets, ways)
            for line in lines:
                cache.look_up(line, line)
            assert caches.missed(size * sets * ways, ways) == cache.misses
    of_16 = result.total[stream].caches[16]
    assert [of_16.missed(size, 1) for size in (8, 3 * 16, 32 << 20)] == [None] * 3


@pytest.mark.parametrize("stream", ["data", "all"])
def test_working_sets_are_those_of_naive_windows(
    counted: CurvesResult, seeded: str, stream: str
) -> None:
    references = naive.in_program_time(read(seeded), stream)
    rows = [
        row for row in counted.rows if row["component"] == "working_set" and row["stream"] == stream
    ]
    assert len(rows) == 5 * 4  # The policy's window, 40, is the fifth; 8 KiB the fourth size.
    for row in rows:
        expected = naive.working_set(references, row["page_size"], row["window_refs"])
        assert row["average_bytes"] == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("stream", ["data", "all"])
@pytest.mark.parametrize(("number", "small", "large"), [(0, 4096, 16384), (1, 8192, 65536)])
@pytest.mark.parametrize(("sets", "ways"), [(1, 3), (1, 11), (4, 2)])
def test_two_sizes_are_those_of_a_naive_policy(
    counted: CurvesResult,
    seeded: str,
    stream: str,
    number: int,
    small: int,
    large: int,
    sets: int,
    ways: int,
) -> None:
    """All references decide on the sizes of pages, whichever the stream looks up."""
    program = naive.stream_of(read(seeded), "all")
    looked_up = [bool(pages) for pages in naive.in_program_time(read(seeded), stream)]
    blocks = large // small
    expected = naive.TwoSizes(small, large, blocks // 2, 40, sets, ways).run(program, looked_up)
    pair = counted.total[stream].pairs[number]
    assert pair.counters["promotions"] == expected.promotions > 0
    assert pair.counters["demotions"] == expected.demotions > 0
    assert pair.counters["large_lookups"] == expected.large_lookups
    moved = pair.counters["blocks_copied"] + pair.counters["blocks_zeroed"]
    assert moved == blocks * expected.promotions
    rows = [
        row
        for row in counted.rows
        if row.get("index", "exact") == "exact"
        and (row.get("small"), row.get("large")) == (small, large)
        and row["stream"] == stream
        and (row.get("sets"), row.get("ways")) == (sets, ways)
    ]
    assert len(rows) == (2 if sets == 1 else 1)
    for row in rows:
        assert row["misses"] == expected.tlb.misses
        assert row["large_misses"] == expected.large_misses
    if stream == "all":
        assert pair.byte_refs[40] == expected.byte_refs


def test_the_working_set_of_both_streams_contains_that_of_each(tmp_path: Path) -> None:
    """Windows are measured in references of the program, not of the stream."""
    trace = "synth:zipf?table=4MiB&references=30k&instructions=3"
    result = octavo.curves(trace, windows=[10_000], streams=["fetch", "data", "all"], entries=16)
    for size in (4096, 1 << 20):
        fetch, data, both = (
            row["average_bytes"]
            for stream in ("fetch", "data", "all")
            for row in result.rows
            if row["component"] == "working_set"
            and (row["stream"], row["page_size"], row["window_refs"]) == (stream, size, 10_000)
        )
        assert fetch is not None
        assert data is not None
        assert both is not None
        assert max(fetch, data) <= both <= fetch + data
    for pair in result.total["all"].pairs:
        others = [result.total[of].pairs for of in ("fetch", "data")]
        for of in others:
            (same,) = (one for one in of if (one.small, one.large) == (pair.small, pair.large))
            assert same.counters["promotions"] == pair.counters["promotions"]
            assert all(
                same.byte_refs[window] <= pair.byte_refs[window] for window in same.byte_refs
            )


def test_a_run_prints_tables_on_standard_error_only() -> None:
    done = run(*FEW, SYNTHETIC)
    assert done.exit_code == 0, done.stderr
    assert done.stdout == ""
    assert "references per instruction" in done.stderr
    assert "4 KiB + 32 KiB" in done.stderr
    assert done.stderr.isascii()


def test_quiet_prints_nothing() -> None:
    done = run(*FEW, "--quiet", SYNTHETIC)
    assert (done.exit_code, done.stdout, done.stderr) == (0, "", "")


def test_json_and_parquet_have_the_same_rows(tmp_path: Path) -> None:
    file, directory = tmp_path / "rows.parquet", tmp_path / "out"
    done = run(*FEW, "--quiet", "--json", "-", "--out", str(file), SYNTHETIC)
    assert done.exit_code == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["schema"] == "octavo/curves/1"
    assert document["run"]["configuration"]["max_entries"] == 64
    assert document["run"]["trace"]["format"] == "synthetic"
    rows = [_bare(row) for row in document["rows"]]
    assert [_bare(row) for row in pq.read_table(file).to_pylist()] == rows
    assert run(*FEW, "--quiet", "-o", str(directory), SYNTHETIC).exit_code == 0
    assert sorted(path.name for path in directory.iterdir()) == [
        "manifest.json",
        "report.html",
        "report.json",
        "rows.parquet",
    ]
    assert pq.read_table(directory / "rows.parquet").equals(pq.read_table(file))
    manifest = json.loads((directory / "manifest.json").read_text())
    for name in ("trace_hash", "configuration_sha256"):
        assert manifest[name] == document["run"][name]


def _bare(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if value is not None}


def test_files_are_not_overwritten_unasked(tmp_path: Path) -> None:
    file = tmp_path / "rows.parquet"
    file.write_text("precious")
    done = run(*FEW, "--out", str(file), SYNTHETIC)
    assert done.exit_code == 2
    assert "exists; --force overwrites it" in done.stderr
    assert file.read_text() == "precious"
    assert run(*FEW, "--force", "--out", str(file), SYNTHETIC).exit_code == 0
    assert pq.read_table(file).num_rows > 100


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--two-sizes", "32KiB+4KiB"], ["32 KiB + 4 KiB", "larger"]),
        (["--two-sizes", "4KiB"], ["such as 4KiB+32KiB"]),
        (["--two-sizes", "4KiB+32KiB", "--threshold", "9"], ["1 to 8 blocks"]),
        (["--threshold", "0"], ["--threshold 0", "1 to 4 blocks"]),
        (["--windows", "1M,0"], ["--windows 0", "from 1 to"]),
        (["--windows", "1M,"], ["is not a count"]),
        (["--policy-window", "0"], ["--policy-window 0"]),
        (["--entries", "5000"], ["1 to 4096"]),
        (["--sets", "3"], ["power of two from 1 to 1024"]),
        (["--cache-lines", "48"], ["line size `48`", "power of two", "16 to 4096"]),
        (["--cache-lines", "64..16"], ["runs from large to small"]),
        (["--cache-lines", "wide"], ["`wide` is not a size"]),
        (["--index", "middle"], ["low, xor, or bits:N"]),
        (["--page-sizes", "12KiB"], ["power of two"]),
        (["--streams", "data,code"], ["unknown stream `code`"]),
        (["--presets", "r4001"], ["did you mean `r4000`"]),
        (["--without", "full,ways"], ["unknown part `ways`"]),
        (["--miss-penalty", "-3"], ["cycles from 0 to 1000000"]),
        (["--tracer", "octavo"], ["is a trace"]),
        (["--out", ""], ["--out is empty"]),
    ],
)
def test_bad_options_are_one_sentence(options: list[str], words: list[str]) -> None:
    done = run(*options, SYNTHETIC)
    assert done.exit_code == 2, done.stderr
    assert done.stderr.startswith("octavo: ")
    assert done.stderr.count("\n") == 1
    for word in words:
        assert word in done.stderr


def test_a_trace_with_a_broken_line_is_partial(tmp_path: Path) -> None:
    broken = Path(write_csv(tmp_path / "broken.csv", SOME * 100))
    broken.write_text(broken.read_text() + "load,what,8\n")
    done = run(*FEW, "--json", str(tmp_path / "some.json"), str(broken))
    assert done.exit_code == 125
    assert "PARTIAL" in done.stderr
    document = json.loads((tmp_path / "some.json").read_text())
    assert document["run"]["partial"] is True
    counters = {row["counter"]: row["value"] for row in document["rows"] if "counter" in row}
    assert counters["instructions"] == 200


def test_a_region_of_interest() -> None:
    result = octavo.curves(
        SYNTHETIC, entries=8, sets=1, skip_instructions=1000, max_instructions=5000
    )
    counters = {
        row["counter"]: row["value"]
        for row in result.rows
        if row["component"] == "stream" and "stream" not in row
    }
    assert 5000 <= counters["instructions"] < 5100


def test_a_trace_without_instructions(tmp_path: Path) -> None:
    trace = write_csv(tmp_path / "data.csv", [("load", 4096 * page, 8) for page in range(50)])
    done = run(*FEW, trace)
    assert done.exit_code == 0, done.stderr
    assert "no instructions" in done.stderr
    assert "misses per reference" in done.stderr
    row = next(
        row
        for row in octavo.curves(trace, entries=4, sets=1).rows
        if row["component"] == "tlb.full" and row["stream"] == "data"
    )
    assert (row["misses"], row["miss_ratio"], row["cpi_tlb"]) == (50, 1.0, None)


def test_no_program_names_the_command() -> None:
    with pytest.raises(UsageError, match="octavo curves -- PROGRAM"):
        octavo.curves([])


# --- miss classes ------------------------------------------------------------------------------


def test_misses_are_classified_by_region_and_function(seeded: str) -> None:
    result = octavo.curves(
        seeded,
        page_sizes=[4096, 65536],
        entries=16,
        sets=8,
        classify="16x4",
        classify_sizes="4KiB+64KiB",
    )
    for curves in result.total.values():
        classes = curves.classes
        assert classes is not None
        total = classes.total
        assert total.misses == curves.set_misses("low", 4096, sets=4, ways=4)
        assert total.compulsory == curves.stack[4096].pages
        assert 0 < total.page_size < total.misses
        for places in (classes.regions, classes.functions):
            assert sum(place.misses for place in places.values()) == total.misses
    rows = [row for row in result.rows if row["component"] == "classes"]
    assert [row["stream"] for row in rows] == ["fetch", "data", "all"]


def test_a_fully_associative_tlb_has_no_conflicts(seeded: str) -> None:
    result = octavo.curves(seeded, streams=["all"], entries=64, classify="24")
    classes = result.total["all"].classes
    assert classes is not None
    assert classes.total.misses == result.total["all"].full_misses(4096, 24)
    assert classes.total.conflict == 0


def test_classes_without_other_parts_are_shown(seeded: str) -> None:
    done = run("--without", "full,sets,working-sets,two-sizes", "--classify", "64x4", seeded)
    assert done.exit_code == 0, done.stderr
    assert "by function" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["--classify", "64x3"], "power of two of sets"),
        (["--classify", "8192"], "4096"),
        (["--classify", "0"], "ENTRIES"),
        (["--classify", "many"], "ENTRIES"),
        (["--classify", "64x4", "--classify-sizes", "2MiB+4KiB"], "larger"),
        (["--classify", "64x4", "--classify-sizes", "4KiB"], "4KiB+2MiB"),
        (["--classify-sizes", "4KiB+2MiB"], "--classify"),
    ],
)
def test_bad_classes_are_refused(arguments: list[str], word: str, seeded: str) -> None:
    done = run(*arguments, seeded)
    assert done.exit_code == 2
    assert word in done.stderr


def test_a_stream_without_references_has_no_rows_in_tables(tmp_path: Path) -> None:
    loads = [("load", number * 4096, 8) for number in range(100)]
    result = octavo.curves(write_csv(tmp_path / "loads.csv", loads), page_sizes=[4096])
    shown = list(grids(result))
    titles = [grid.title.partition(":")[0] for grid in shown]
    assert "Data" in titles
    assert "Code" not in titles
    policy = next(grid for grid in shown if grid.head[0] == "two sizes")
    assert {row[1] for row in policy.rows} == {"data", "both"}
