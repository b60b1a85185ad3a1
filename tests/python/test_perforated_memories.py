"""The memories and streams of the study of perforated pages have the intended properties."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from octavo import machine, sim
from octavo.base.errors import OctavoError
from octavo.base.units import BASE_PAGE, MIB, byte_size
from octavo.studies.perforated_pages.measurement import BASE, BASELINE
from octavo.studies.perforated_pages.memory import (
    LAYOUTS,
    REGION,
    REGION_PAGES,
    Fragments,
    always,
    dense_fraction,
    fragmented,
)
from octavo.studies.perforated_pages.random_accesses import MACHINE, OBSERVED, Point, stream
from octavo.studies.perforated_pages.redis import RedisSize
from octavo.studies.perforated_pages.redis import stream as redis_stream
from perforated_fakes import SMALL


@pytest.mark.parametrize("fraction", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_memory_has_as_many_regions_of_each_kind(fraction: float, layout: Any) -> None:
    fragments = Fragments(0.25, fraction, layout)
    made = machine(MACHINE, fragmented(fragments, 64, 100))["memory"]
    regions = _bytes(made["bytes"]) // REGION
    groups = made["fragmentation"]["groups"]
    assert round(groups["holes"]["portion"] * regions) == 16
    dense = round(groups["dense"]["portion"] * regions)
    assert regions - dense - 16 == 48
    # The free frames of dense regions suffice for holes and for the rest.
    free = dense * (REGION_PAGES - round(groups["dense"]["fraction"] * REGION_PAGES))
    assert free >= 16 * round(fraction * REGION_PAGES) + 100
    # No policy perforates these, and every policy the others.
    match = re.search(r":max_immovable_percent=(\d+):", always(fragments))
    assert match is not None
    assert 100 * fraction < int(match[1]) < 100 * dense_fraction(fraction)


def test_a_program_that_fills_region_after_region_gets_its_portion() -> None:
    """The portion is reached even if pages of holes lie in regions that were meant to be
    perforated.
    """
    fragments = Fragments(0.5, 0.25, "clustered")
    settings = fragmented(fragments, 16, 100, has_spare=True)
    trace = f"synth:sequential?table={16 * REGION}&base=0x1000000000&access=64&references=600k"
    design = always(fragments)
    result = sim(trace, MACHINE, [BASELINE, design], settings=settings)
    large, one = result.total
    assert large.count("os.pages.2MiB", "mapped") == 8
    assert one.count("os.pages.2MiB", "mapped") == pytest.approx(8, abs=1)
    assert one.count("os.pages.perforated", "mapped") == pytest.approx(8, abs=1)


def test_some_regions_have_base_pages_alone() -> None:
    made = machine(MACHINE, fragmented(OBSERVED[0], 1000))["memory"]
    regions = _bytes(made["bytes"]) // REGION
    groups = made["fragmentation"]["groups"]
    assert round(groups["holes"]["portion"] * regions) == 180
    clean = regions - sum(round(group["portion"] * regions) for group in groups.values())
    assert clean == 220


def test_mixed_holes_need_groups() -> None:
    with pytest.raises(OctavoError, match="groups"):
        machine(MACHINE, {"memory.fragmentation": {"kind": "mixed-holes"}})


def _bytes(text: Any) -> int:
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
