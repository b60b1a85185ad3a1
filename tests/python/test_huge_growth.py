"""The growth of a program's data in 2 MiB pages."""

from octavo.analysis.advice import Case, Point
from octavo.analysis.huge_growth import huge_growth, with_growth
from octavo.analysis.rows import HUGE_PAGES, Row
from octavo.base.units import BASE_PAGE, MIB

HUGE = 2 * MIB


def own(growth: int, **place: int) -> Row:
    return Row(  # type: ignore[typeddict-item]
        component=HUGE_PAGES, counter="growth_bytes", value=growth, page_size=HUGE, **place
    )


def memory(kind: str, size: int, touched: int) -> Row:
    return Row(
        component="memory",
        stream="data",
        region=kind,
        region_kind=kind,
        start=0,
        page_size=size,
        touched_bytes=touched,
    )


def case(base: int, huge: int, region: str | None = None) -> Case:
    sizes = ((BASE_PAGE, base), (HUGE, huge))
    points = tuple(Point(size, 10, 0.1, touched, touched / base - 1) for size, touched in sizes)
    return Case("data", points, region=region)


def test_own_and_shared_memory_grow_and_data_of_libraries_do_not() -> None:
    rows = [own(3 * MIB), own(7 * MIB, process=1)]
    for kind, huge in (("shared", 6 * MIB), ("data", 90 * MIB), ("heap", 50 * MIB)):
        rows += [memory(kind, BASE_PAGE, 2 * MIB), memory(kind, HUGE, huge)]
    assert huge_growth(rows) == 7 * MIB
    assert huge_growth(rows[2:]) is None


def test_only_the_whole_programs_data_change_and_never_grow_more_than_all_memory() -> None:
    grown = with_growth(case(100 * MIB, 180 * MIB), 5 * MIB).at(HUGE)
    assert (grown.touched_bytes, grown.growth) == (105 * MIB, 1.05 - 1)
    assert with_growth(case(100 * MIB, 102 * MIB), 5 * MIB).at(HUGE).touched_bytes == 102 * MIB
    region = case(100 * MIB, 180 * MIB, "heap")
    assert with_growth(region, 5 * MIB) == region
    assert with_growth(region, None) == region
