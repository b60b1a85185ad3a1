"""The study of perforated pages: figures come from the right rows, claims can fail, and a small
grid is really run.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from octavo import machine, sim
from octavo.cli import app
from octavo.errors import OctavoError
from octavo.report.figures import figure_files
from octavo.studies import passes as passes_room
from octavo.studies import perforated_redis
from octavo.studies.passes import STOPPED, Pass, run_passes
from octavo.studies.perforated_claims import CLAIMS
from octavo.studies.perforated_faults import (
    GTSM,
    IDEAL,
    PAPER_PORTION,
    FaultRow,
    Faults,
)
from octavo.studies.perforated_faults import (
    memories as faulty_memories,
)
from octavo.studies.perforated_figures import figures_of
from octavo.studies.perforated_grid import (
    MACHINE,
    OBSERVED,
    PORTIONS,
    GridRow,
    Point,
    Size,
    grid_passes,
    points,
    stream,
)
from octavo.studies.perforated_measurement import (
    BASE,
    BASELINE,
    KINDS,
    PERFORATED,
    Counted,
    all_counted,
    name_of,
)
from octavo.studies.perforated_memory import (
    LAYOUTS,
    REGION,
    REGION_PAGES,
    Fragments,
    always,
    dense_fraction,
    fragmented,
)
from octavo.studies.perforated_pages import Plan, Study, run_study
from octavo.studies.perforated_programs import ProgramMeasurement, ProgramRow, memories
from octavo.studies.perforated_redis import RedisMeasurement, RedisSize
from octavo.studies.perforated_redis import stream as redis_stream
from octavo.studies.perforated_text import to_document, to_markdown, to_records
from octavo.units import BASE_PAGE, MIB

FIGURES = ["figure-7", "figure-8", "figure-9", "figure-11", "figure-10"]
SMALL = Size(table_bytes=64 * MIB, warm_references=20_000, references=40_000)
"""32 regions, of which the second-level TLB of the tests holds a part."""
MEMORY_BYTES = 1 << 35


def counted(ipc: float, walks: int = 1000, **more: Any) -> Counted:
    """One of a hundred thousand instructions."""
    usual: dict[str, Any] = {
        "instructions": 100_000,
        "cycles": 100_000 / ipc,
        "cache_cycles": 0.0,
        "walks": walks,
        "walk_references": 6 * walks,
        "bitmap_lookups": 32,
        "bitmap_fetches": 2,
        "filtered": 68,
        "perforated_pages": 10,
        "large_pages": 10,
        "content": {},
        "resident_bytes": 1000 * MIB,
        "page_table_bytes": 1 * MIB,
        "shadow_bytes": 8192,
        "bitmap_bytes": MEMORY_BYTES // 32768,
    }
    return Counted(**{**usual, **more})


def like_the_paper(point: Point) -> GridRow:
    """What the paper says of a memory, or something in its way."""
    of = point.fragments
    base = 1.0
    relative = 1.0 + 0.5 * (1 - of.portion * of.fraction)
    if of in OBSERVED:
        relative = 1.203 if of.clean == 0.22 else 1.694
    elif of == Fragments(0.5, 0.25, "clustered"):
        relative = 1.594
    elif not of.portion:
        base, relative = 3.488, 1.0
    elif of.fraction == 0.1:
        relative = 3.3
    elif of.fraction == 0.9:
        relative = 2.4 if not point.is_allocated else 1.0
    bitmap = 42 if of.layout == "clustered" else 100
    content = dict(zip(KINDS, (100, 200, 300, bitmap), strict=True))
    designs = {
        BASE: counted(1.0),
        point.baseline: counted(base),
        PERFORATED: counted(base * relative, content=content),
    }
    return GridRow(point, MEMORY_BYTES, designs)


def unlike_the_paper(point: Point) -> GridRow:
    """Perforated pages are of no use at all."""
    content = dict(zip(KINDS, (100, 200, 300, 50), strict=True))
    of = point.fragments
    slow = 0.9 if of.layout == "dispersed" else 0.5
    one = counted(slow, content=content, filtered=0, bitmap_bytes=MEMORY_BYTES // 64)
    best = 1.0 if of.portion else 3.0
    return GridRow(
        point, MEMORY_BYTES, {BASE: counted(1.0), point.baseline: counted(best), PERFORATED: one}
    )


def program(name: str, *, is_virtual: bool, ideal: float, gained: float) -> ProgramMeasurement:
    rows = tuple(
        ProgramRow(
            of,
            {BASE: counted(1.0), BASELINE: counted(1.5), PERFORATED: counted(1.5 * gained)},
        )
        for of in memories()
    )
    designs = {BASE: counted(1.0), BASELINE: counted(ideal)}
    return ProgramMeasurement(name, is_virtual, 64, designs, rows)


def redis(name: str, misses: tuple[int, int, int], memory: tuple[int, int]) -> RedisMeasurement:
    base, large, perforated = misses
    designs = {
        BASE: counted(1.0, base, resident_bytes=777 * MIB),
        BASELINE: counted(1.29, large, resident_bytes=memory[0] * MIB),
        PERFORATED: counted(1.1, perforated, resident_bytes=memory[1] * MIB),
    }
    return RedisMeasurement(name, 1000, 2000, designs)


def with_faults(faults: Faults, perforated: float, gtsm: float, pages: int) -> FaultRow:
    """So many pages of GTSM for data of 1024 regions, and as many 2 MiB pages left of its."""
    designs = {
        BASE: counted(1.0),
        BASELINE: counted(1.0, large_pages=0 if pages == 1024 else 7),
        PERFORATED: counted(perforated),
        GTSM: counted(gtsm, gapped_pages=pages, large_pages=0),
        IDEAL: counted(3.0, large_pages=1024),
    }
    return FaultRow(faults, 12 << 30, designs)


@pytest.fixture
def study() -> Study:
    return Study(
        tuple(map(like_the_paper, points())),
        (
            program("gups", is_virtual=False, ideal=1.65, gained=1.06),
            program("gups", is_virtual=True, ideal=2.0, gained=1.25),
        ),
        (
            redis("redis-server, 2 k keys", (175, 105, 145), (929, 777)),
            redis("a stream of 2 k keys", (175, 105, 145), (929, 777)),
        ),
        {"xz": "not installed"},
        tuple(with_faults(of, 1.062 * 2.0, 2.0, 1024) for of in faulty_memories()),
    )


def test_every_claim_can_agree_and_differ(study: Study) -> None:
    virtual = program("gups", is_virtual=True, ideal=4.0, gained=0.9)
    for_ever = replace(virtual.rows[0].designs[PERFORATED], walk_references=24_000)
    rows = tuple(
        ProgramRow(
            row.fragments,
            {
                **row.designs,
                PERFORATED: replace(
                    row.designs[PERFORATED], walk_references=for_ever.walk_references
                ),
            },
        )
        for row in virtual.rows
    )
    unlike = Study(
        tuple(map(unlike_the_paper, points())),
        (program("gups", is_virtual=False, ideal=4.0, gained=0.9), replace(virtual, rows=rows)),
        (
            redis("redis-server, 2 k keys", (175, 170, 175), (1600, 900)),
            redis("a stream of 2 k keys", (175, 10, 11), (929, 777)),
        ),
        faults=(with_faults(Faults(PAPER_PORTION, "dispersed"), 2.0, 1.2, 100),),
    )
    for claim in CLAIMS:
        agreed, differed = claim.find(study), claim.find(unlike)
        assert agreed is not None, claim.key
        assert agreed.agrees, (claim.key, agreed)
        assert differed is not None, claim.key
        assert not differed.agrees, (claim.key, differed)
        assert claim.find(Study()) is None, claim.key


def test_numbers_are_the_papers(study: Study) -> None:
    seen = study.at(Fragments(0.5, 0.25, "clustered"))
    assert seen is not None
    assert seen.gain() == pytest.approx(0.594)
    of = replace(counted(0.5), cache_cycles=100_000.0)
    assert of.ipc_overlapped == pytest.approx(1.0)
    assert of.mpki == pytest.approx(10.0)
    assert of.filter_share == pytest.approx(0.68)
    assert of.references_per_walk == pytest.approx(6.0)
    empty = replace(of, walks=0, filtered=0, bitmap_lookups=0)
    assert (empty.filter_share, empty.references_per_walk) == (None, None)
    large, _ = study.redis
    assert large.bloat == pytest.approx(929 / 777 - 1)
    assert large.instructions_per_lookup == pytest.approx(50.0)


def test_where_no_region_has_holes_one_row_stands_for_all(study: Study) -> None:
    rows = [
        study.at(Fragments(0.0, fraction, layout)) for fraction in (0.1, 0.9) for layout in LAYOUTS
    ]
    assert rows[0] is not None
    assert all(row is rows[0] for row in rows)
    assert study.at(Fragments(0.0, 0.1, "clustered"), is_allocated=False) is not rows[0]
    assert study.at(Fragments(0.3, 0.1, "clustered")) is None


def test_the_grid_is_the_papers_and_more() -> None:
    keys = [point.key for point in points()]
    assert len(keys) == len(set(keys)) == 2 * (2 * 5 * 5 + 1) + 2


def test_the_page_and_the_document(study: Study) -> None:
    text = to_markdown(replace(study, is_partial=True, max_instructions=5_000_000))
    for wanted in (
        "PARTIAL", "Figure 7: IPC over 4 KiB pages, holes allocated elsewhere", "not allocated",
        "Figure 8", "(d) 25% dispersed, unallocated", "Figure 9: programs, native",
        "Figure 11: programs, in a virtual machine", "Table I", "Left out: xz",
        "Figure 10: memory with faults",
        "Section III-C: memory as it was seen", "the first 5.00 M instructions",
    ):  # fmt: skip
        assert wanted in text, wanted
    assert "PARTIAL" not in to_markdown(study)
    (observed,) = [line for line in text.splitlines() if line.startswith("| 22% ")]
    assert "18%" in observed
    assert "+20.3%" in observed
    (quarter,) = [
        line for line in text.splitlines() if line.startswith("| perforated, 25% clustered")
    ][:1]
    assert [cell.split()[0] for cell in quarter.split("|")[2:-1]][3] == "1.59"
    made = json.loads(json.dumps(to_document(study)))
    assert len(made["claims"]) == len(CLAIMS)
    assert len(made["grid"]) == 104
    assert made["redis"][0]["designs"][BASELINE]["mpki"] == pytest.approx(1.05)
    records = to_records(study)
    assert len(records) == 3 * 104 + 2 * (2 + 3 * 12) + 2 * 3 + 6 * 5
    assert not any(isinstance(value, dict) for record in records for value in record.values())
    assert {"portion", "content.bitmap", "ipc"} <= set(records[0])
    assert len({tuple(record) for record in records}) == 1, "all have the same columns"
    assert "Not told" in to_markdown(Study())


def test_the_figures_are_the_papers(study: Study, tmp_path: Path) -> None:
    figures = figures_of(study)
    assert list(figures) == FIGURES
    for name, write in figure_files(figures, ["svg"]).items():
        write(tmp_path / name)
        words = set(re.findall(r"<text[^>]*>([^<]+)</text>", (tmp_path / name).read_text()))
        assert {"portion"} <= words, name
    values = [
        value
        for data in figures["figure-7"]["datasets"].values()
        for value in data
        if value["of"] == "25%" and value["portion"] == 0.5
    ]
    assert sorted(value["value"] for value in values)[-1] == pytest.approx(1.594)
    assert len(values) == 4, "a panel for each layout and kind of holes"
    shares = [
        value
        for data in figures["figure-8"]["datasets"].values()
        for value in data
        if value["kind"] == "bitmap" and value["portion"] == 0.5
    ]
    assert {round(value["value"], 4) for value in shares} == {
        round(42 / 642, 4),
        round(100 / 700, 4),
    }
    assert figures_of(Study()) == {}


# --- memories and streams


@pytest.mark.parametrize("fraction", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_memory_has_as_many_regions_of_each_kind(fraction: float, layout: Any) -> None:
    of = Fragments(0.25, fraction, layout)
    made = machine(MACHINE, fragmented(of, 64, 100))["memory"]
    regions = _bytes(made["bytes"]) // REGION
    groups = made["fragmentation"]["groups"]
    assert round(groups["holes"]["portion"] * regions) == 16
    dense = round(groups["dense"]["portion"] * regions)
    assert regions - dense - 16 == 48
    # What is free in dense regions suffices for holes and for the rest.
    free = dense * (REGION_PAGES - round(groups["dense"]["fraction"] * REGION_PAGES))
    assert free >= 16 * round(fraction * REGION_PAGES) + 100
    # Nobody perforates these, and everybody the others.
    match = re.match(r"max_immovable_percent=(\d+):", always(of))
    assert match is not None
    assert 100 * fraction < int(match[1]) < 100 * dense_fraction(fraction)


def test_a_program_that_fills_region_after_region_gets_its_portion() -> None:
    """Even where pages of holes lie in regions that were to be perforated."""
    of = Fragments(0.5, 0.25, "clustered")
    settings = fragmented(of, 16, 100, has_spare=True)
    trace = f"synth:sequential?table={16 * REGION}&base=0x1000000000&access=64&references=600k"
    design = f"{PERFORATED}:{always(of)}:min_parts=0"
    result = sim(trace, MACHINE, [BASELINE, design], settings=settings)
    large, one = result.total
    assert large.count("os.pages.2MiB", "mapped") == 8
    assert one.count("os.pages.2MiB", "mapped") == pytest.approx(8, abs=1)
    assert one.count("os.pages.perforated", "mapped") == pytest.approx(8, abs=1)


def test_of_some_regions_base_pages_alone() -> None:
    made = machine(MACHINE, fragmented(OBSERVED[0], 1000))["memory"]
    regions = _bytes(made["bytes"]) // REGION
    groups = made["fragmentation"]["groups"]
    assert round(groups["holes"]["portion"] * regions) == 180
    clean = regions - sum(round(of["portion"] * regions) for of in groups.values())
    assert clean == 220


def _bytes(text: Any) -> int:
    from octavo.units import byte_size

    return byte_size(str(text))


def test_streams_touch_all_that_is_used_before_they_are_warm(tmp_path: Path) -> None:
    for point in (
        Point(Fragments(0.5, 0.25, "clustered"), is_allocated=True),
        Point(Fragments(0.5, 0.25, "dispersed"), is_allocated=False),
    ):
        text, warm_up = stream(point, SMALL)
        path = tmp_path / "stream.toml"
        path.write_text(text)
        touched = SMALL.table_bytes // BASE_PAGE
        if not point.is_allocated:
            touched -= 16 * 128
        result = sim(str(path), MACHINE, [BASE], warm_up=warm_up, settings={"memory.bytes": "1GiB"})
        one = result.design(BASE)
        assert one.count("os", "faults") == 0, "all was touched before"
        assert one.instructions == 4 * SMALL.references
        assert one.count("os", "resident_bytes") == pytest.approx(touched * BASE_PAGE, abs=2 * MIB)


def test_the_stream_of_keys_has_the_papers_memory(tmp_path: Path) -> None:
    size = RedisSize(stream_keys=3000, stream_lookups=500)
    text, warm_up = redis_stream(size, 15_000)
    path = tmp_path / "stream.toml"
    path.write_text(text)
    result = sim(str(path), MACHINE, [BASE, BASELINE], warm_up=warm_up)
    base, large = result.design(BASE), result.design(BASELINE)
    assert base.count("os", "faults") <= 3, "of the loops' code"
    assert base.instructions / 500 == pytest.approx(15_000, rel=0.02)
    # Of 3587 slots a sixth are free.
    assert base.count("os", "resident_bytes") == pytest.approx(3000 * 5 * BASE_PAGE, rel=0.02)
    growth = large.count("os", "resident_bytes") / base.count("os", "resident_bytes")
    assert growth == pytest.approx(92.9 / 77.7, abs=0.03)


# --- passes


def test_a_pass_that_fails_says_why() -> None:
    said: list[str] = []
    done = run_passes(
        [
            Pass("good", ("sim", "--design", BASE, "synth:gups?table=1MiB&updates=2k")),
            Pass("bad", ("sim", "--design", "base5k", "synth:gups?table=1MiB&updates=2k")),
        ],
        "two",
        said.append,
    )
    assert list(done.documents) == ["good"]
    assert "base4k" in done.failed["bad"]
    assert not done.is_partial
    assert said == ["two: 2 passes"]


def test_ctrl_c_keeps_what_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second of three passes goes on for ever, until the main thread is interrupted."""
    good = ("sim", "--design", BASE, "synth:gups?table=1MiB&updates=2k")
    endless = ("sim", "--design", BASE, "synth:gups?table=1MiB&updates=1e12")
    interrupt = passes_room.wait
    seen = []

    def once(futures: Any, **options: Any) -> Any:
        if seen:
            raise KeyboardInterrupt
        seen.append(1)
        return interrupt(futures, **options)

    monkeypatch.setattr(passes_room, "wait", once)
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


def test_how_far_it_is_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(0, 1000, 60))
    monkeypatch.setattr(passes_room.time, "monotonic", lambda: float(next(clock)))
    said: list[str] = []
    told = passes_room._Told("grid", 3, said.append)
    for _ in range(3):
        told.one_more()
    assert said == [
        "grid: 3 passes",
        "grid: 1 of 3, about 2 min left",
        "grid: 2 of 3, about 60 s left",
    ]


# --- the whole


def test_a_small_grid_is_run() -> None:
    chosen = [
        Point(Fragments(0.0, 0.1, "clustered"), is_allocated=True),
        Point(Fragments(0.5, 0.25, "clustered"), is_allocated=True),
        Point(Fragments(1.0, 0.5, "dispersed"), is_allocated=False),
    ]
    said: list[str] = []
    study = run_study(said.append, said.append, plan=Plan(chosen, SMALL, (), None))
    assert study.skipped == {}
    assert [row.point for row in study.grid] == chosen
    none, some, unused = study.grid
    regions = SMALL.regions
    assert none.designs[BASELINE].large_pages == regions
    assert some.designs[BASELINE].large_pages == regions // 2
    assert some.designs[PERFORATED].perforated_pages == pytest.approx(regions // 2, abs=2)
    assert some.designs[PERFORATED].walks < some.designs[BASELINE].walks
    assert unused.designs[PERFORATED].perforated_pages == regions
    half = SMALL.table_bytes // 2
    assert unused.designs[PERFORATED].resident_bytes == pytest.approx(half, abs=MIB)
    for row in study.grid:
        assert set(row.designs) == {BASE, row.point.baseline, PERFORATED}
        for one in row.designs.values():
            assert one.instructions == 4 * SMALL.references
    assert "Figure 7" in to_markdown(study)


def test_memory_with_faults_is_run() -> None:
    """2% leave no block of 2 MiB whole; GTSM and perforated pages have large pages all the same."""
    chosen = [Faults(0.02, "dispersed"), Faults(PAPER_PORTION, "dispersed")]
    said: list[str] = []
    study = run_study(said.append, said.append, plan=Plan((), SMALL, (), None, chosen))
    assert study.skipped == {}
    few, many = study.faults
    for row in study.faults:
        assert set(row.designs) == {BASE, BASELINE, PERFORATED, GTSM, IDEAL}
        assert row.designs[BASELINE].large_pages == 0
        assert row.designs[IDEAL].large_pages == SMALL.regions
        assert row.designs[PERFORATED].perforated_pages == pytest.approx(SMALL.regions, abs=2)
    assert few.covered == pytest.approx(1.0, abs=0.05)
    # 96 chunks, of which 8% have 32 sub-blocks of 64 KiB without a fault.
    assert many.covered is not None
    assert 0 < many.covered < 0.6
    assert few.designs[GTSM].walks < few.designs[BASE].walks / 2
    assert study.with_faults(0.02, "dispersed") is few
    assert "Figure 10" in to_markdown(study)


def test_what_is_simulated_is_what_is_measured(tmp_path: Path) -> None:
    """The document of a pass, and the same asked directly."""
    point = Point(Fragments(0.5, 0.25, "dispersed"), is_allocated=True)
    (one,) = grid_passes([point], SMALL, tmp_path)
    done = run_passes([one], "one", lambda line: None)
    made = all_counted(done.documents[point.key])
    _, warm_up = stream(point, SMALL)
    options = dict(zip(one.arguments[1:-1], one.arguments[2:], strict=False))
    designs = options["--design"].split(",")
    settings = [word for at, word in enumerate(one.arguments) if one.arguments[at - 1] == "--set"]
    direct = sim(one.arguments[-1], MACHINE, designs, settings, warm_up=warm_up)
    for design in direct.total:
        mine = made[name_of(design.design)]
        assert mine.cycles == pytest.approx(design.cycles)
        assert mine.walks == design.walks
        assert mine.large_pages == design.count("os.pages.2MiB", "mapped")
    assert made[PERFORATED].content["perforated"] > 0
    assert made[PERFORATED].bitmap_bytes > 0


def test_a_server_that_is_not_there_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("octavo.studies.redis_server.SERVER", "redis-server-that-nobody-has")
    size = RedisSize(stream_keys=500, stream_lookups=50)
    measured, skipped, is_partial = perforated_redis.measure_redis(size, lambda line: None)
    assert [one.name for one in measured] == ["a stream of 500 keys"]
    assert skipped == {"Redis, the server": "redis-server-that-nobody-has is not installed"}
    assert not is_partial


@pytest.mark.skipif(shutil.which("redis-server") is None, reason="no redis-server")
@pytest.mark.long
def test_a_real_server_is_traced() -> None:
    size = RedisSize(keys=300, lookups=200, stream_keys=500, stream_lookups=50)
    measured, skipped, _ = perforated_redis.measure_redis(size, lambda line: None)
    assert skipped == {}
    server = measured[0]
    assert server.instructions_per_lookup is not None
    assert 5_000 < server.instructions_per_lookup < 500_000
    assert server.designs[BASE].resident_bytes > 300 * 16 * 1024
    assert (server.bloat or 0) > 0
    assert server.growth(PERFORATED) == pytest.approx(0, abs=0.02)


def test_reproduce_writes_the_tables_and_the_figures(
    study: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []
    made = study

    def pretend(on_program: Any, say: Any, most: int | None) -> Study:
        asked.append(most)
        say("random accesses: 1 of 104, about 2 min left")
        return made

    monkeypatch.setattr("octavo.studies.perforated_pages.run_study", pretend)
    out = tmp_path / "out"
    arguments = ["reproduce", "perforated-pages", "--max-instructions", "5M"]
    done = CliRunner().invoke(app, [*arguments, "--out", str(out)])
    assert done.exit_code == 0, done.stderr
    assert asked == [5_000_000]
    assert done.stdout == to_markdown(study)
    assert "about 2 min left" in done.stderr
    tables = [f"perforated-pages.{of}" for of in ("json", "md", "parquet")]
    figures = [f"{name}.{of}" for name in FIGURES for of in ("pdf", "svg")]
    assert {path.name for path in out.iterdir()} == {*tables, *figures}
    # Stopped, it still gives what was done.
    made = replace(study, is_partial=True)
    stopped = CliRunner().invoke(app, [*arguments, "--out", str(tmp_path / "partial")])
    assert stopped.exit_code == 130
    assert stopped.stdout == to_markdown(made)
    assert (tmp_path / "partial" / "perforated-pages.json").exists()


def test_portions_are_those_of_the_figure() -> None:
    assert PORTIONS == (0.0, 0.1, 0.25, 0.5, 0.75, 1.0)
    assert os.cpu_count()
    with pytest.raises(OctavoError):
        machine(MACHINE, {"memory.fragmentation": {"kind": "mixed-holes"}})
