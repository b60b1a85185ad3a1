"""Runs a small part of the study of perforated pages."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from octavo import sim
from octavo.base.units import MIB
from octavo.studies.perforated_pages import Plan, run_study
from octavo.studies.perforated_pages import redis as perforated_redis
from octavo.studies.perforated_pages.measurement import (
    BASE,
    BASELINE,
    PERFORATED,
    all_counted,
    name_of,
)
from octavo.studies.perforated_pages.memory import Fragments
from octavo.studies.perforated_pages.random_accesses import (
    GTSM,
    IDEAL,
    MACHINE,
    PAPER_PORTION,
    Faults,
    Point,
    grid_passes,
    stream,
)
from octavo.studies.perforated_pages.redis import RedisMeasurement, RedisSize
from octavo.studies.reproduction import Request
from octavo.studies.simulation_pool import STOPPED, Done, run_passes
from perforated_fakes import SMALL


def test_a_small_grid_is_run() -> None:
    chosen = [
        Point(Fragments(0.0, 0.1, "clustered"), is_allocated=True),
        Point(Fragments(0.5, 0.25, "clustered"), is_allocated=True),
        Point(Fragments(1.0, 0.5, "dispersed"), is_allocated=False),
    ]
    messages: list[str] = []
    study = run_study(Request(messages.append, messages.append), Plan(chosen, SMALL, (), None))
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
    assert "Figure 7" in study.markdown()


def test_memory_with_faults_is_run() -> None:
    """Faults of 2% leave no free block of 2 MiB; GTSM and perforated pages have large pages
    nevertheless.
    """
    chosen = [Faults(0.02, "dispersed"), Faults(PAPER_PORTION, "dispersed")]
    messages: list[str] = []
    study = run_study(Request(messages.append, messages.append), Plan((), SMALL, (), None, chosen))
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
    assert "Figure 10" in study.markdown()


def test_the_study_measures_the_simulated_design(tmp_path: Path) -> None:
    """Compares the document of a pass with the same simulation run directly."""
    point = Point(Fragments(0.5, 0.25, "dispersed"), is_allocated=True)
    (one,) = grid_passes([point], SMALL, tmp_path)
    done = run_passes([one], "one", lambda line: None)
    made = all_counted(done.documents[point.key])
    _, warm_up = stream(point, SMALL)
    options = dict(zip(one.arguments[1:-1], one.arguments[2:], strict=False))
    designs = options["--design"].split(",")
    settings = [word for at, word in enumerate(one.arguments) if one.arguments[at - 1] == "--set"]
    direct = sim(
        one.arguments[-1], MACHINE, designs, settings, warm_up=warm_up, timing="out-of-order"
    )
    for design in direct.total:
        mine = made[name_of(design.design)]
        assert mine.cycles == pytest.approx(design.cycles)
        assert mine.walks == design.walks
        assert mine.large_pages == design.count("os.pages.2MiB", "mapped")
    assert made[PERFORATED].content["perforated"] > 0
    assert made[PERFORATED].bitmap_bytes > 0


def test_a_server_that_is_not_there_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("octavo.studies.perforated_pages.redis.SERVER", "no-such-redis-server")
    size = RedisSize(stream_keys=500, stream_lookups=50)
    measured: list[RedisMeasurement] = []
    skipped: dict[str, str] = {}
    perforated_redis.measure_redis(size, lambda line: None, measured, skipped)
    assert [one.name for one in measured] == ["a stream of 500 keys"]
    assert skipped == {"Redis, the server": "no-such-redis-server is not installed"}


def test_ctrl_c_in_a_later_part_keeps_the_parts_before(monkeypatch: pytest.MonkeyPatch) -> None:
    package = "octavo.studies.perforated_pages.redis"
    stopped = Done({}, {BASE: STOPPED}, is_partial=True)
    monkeypatch.setattr(f"{package}.SERVER", "no-such-redis-server")
    monkeypatch.setattr(f"{package}.run_passes", lambda passes, what, say: stopped)
    chosen = [Point(Fragments(0.0, 0.1, "clustered"), is_allocated=True)]
    plan = Plan(chosen, SMALL, (), RedisSize(stream_keys=500, stream_lookups=50))
    study = run_study(Request(lambda name: None), plan)
    assert study.is_partial
    assert [row.point for row in study.grid] == chosen
    assert study.redis == ()
    assert study.skipped[f"Redis, the stream, {BASE}"] == STOPPED


@pytest.mark.skipif(shutil.which("redis-server") is None, reason="no redis-server")
@pytest.mark.long
def test_a_real_server_is_traced() -> None:
    size = RedisSize(keys=300, lookups=200, stream_keys=500, stream_lookups=50)
    measured: list[RedisMeasurement] = []
    skipped: dict[str, str] = {}
    perforated_redis.measure_redis(size, lambda line: None, measured, skipped)
    assert skipped == {}
    server = measured[0]
    assert server.instructions_per_lookup is not None
    assert 5_000 < server.instructions_per_lookup < 500_000
    assert server.designs[BASE].resident_bytes > 300 * 16 * 1024
    assert (server.bloat or 0) > 0
    assert server.growth(PERFORATED) == pytest.approx(0, abs=0.02)
