"""Designs in Python: the example of the page, and the laws of all designs."""

import re
import traceback
from pathlib import Path
from typing import Any

import pytest

import octavo

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/developing/python-designs.md").read_text(encoding="utf-8")
(EXAMPLE,) = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
TRACES = (
    "synth:zipf?references=20k&bytes=32MiB&stores=0.3&code=64KiB&code-order=zipf",
    "synth:gups?table=16MiB&updates=10k",
    "synth:columns?bytes=4MiB&references=20k",
)


@pytest.fixture(scope="module")
def lru() -> Any:
    names: dict[str, Any] = {}
    exec(EXAMPLE, names)
    return names["Lru"]


def check(result: octavo.SimResult, native: str, mine: str) -> None:
    """Equal counters, but for those of the level's arrays, which only the native design has."""
    of_native, of_mine = result.design(native).counts, result.design(mine).counts
    assert of_mine == {key: value for key, value in of_native.items() if key in of_mine}
    arrays = {component for component, _ in of_native.keys() - of_mine.keys()}
    assert arrays == {"tlb.l2.main", "tlb.l2.1g"}


@pytest.mark.parametrize("trace", TRACES)
@pytest.mark.parametrize("timing", ["additive", "out-of-order"])
def test_a_copy_counts_what_the_native_design_counts(lru: Any, trace: str, timing: str) -> None:
    result = octavo.sim(trace, "skylake", ["base4k", lru], timing=timing, check=True)
    check(result, "base4k", "Lru")
    counts = result.design("Lru").counts
    assert counts["tlb.l2", "hits"] > 0
    assert counts["tlb.l2", "misses"] > 0
    first = counts["tlb.l1i", "misses"] + counts["tlb.l1d", "misses"]
    assert counts["tlb.l2", "accesses"] == first
    assert counts["tlb.l2", "accesses"] == counts["tlb.l2", "hits"] + counts["tlb.l2", "misses"]


def test_huge_pages_and_their_promotion_invalidate(lru: Any) -> None:
    """Promotions change mappings under the entries."""

    class Huge(lru):  # type: ignore[misc]
        policy = "thp"
        invalidated = 0

        def invalidate(self, space: int, first: int, end: int) -> None:
            Huge.invalidated += 1
            super().invalidate(space, first, end)

    trace = "synth:pointer-chase?bytes=8MiB&references=200k&element=4096"
    result = octavo.sim(trace, "skylake", ["thp", Huge], check=True)
    check(result, "thp", "Huge")
    # A read-only zero page or a clean page is replaced at the first store.
    result = octavo.sim(TRACES[0], "skylake", ["thp", Huge], check=True)
    check(result, "thp", "Huge")
    assert Huge.invalidated > 0


@pytest.mark.long
def test_a_copy_counts_the_same_of_a_program_with_processes_and_unmapped_memory(
    lru: Any, tmp_path: Path
) -> None:
    script = "for n in 1 2 3; do (sort /etc/services; ls /usr/bin) | gzip -c | wc -c; done"
    trace = octavo.record(["sh", "-c", script], tmp_path / "sh.oct", max_instructions=10_000_000)
    for choices in ({}, {"cores": 2}, {"processes": "flush", "quantum": 100_000}):
        result = octavo.sim(trace.path, "skylake", ["base4k", lru], check=True, **choices)
        check(result, "base4k", "Lru")


def test_a_level_that_holds_nothing_never_hits() -> None:
    class Nothing(octavo.Design):
        def look_up(self, space: int, page: int) -> int | None:
            return None

        def fill(self, space: int, page: int, page_bytes: int) -> None:
            pass

        def invalidate(self, space: int, first: int, end: int) -> None:
            pass

        def flush(self) -> None:
            pass

    result = octavo.sim(TRACES[0], "skylake", ["base4k", Nothing])
    counts = result.design("Nothing").counts
    assert counts["tlb.l2", "hits"] == 0
    assert counts["tlb.l2", "misses"] == counts["tlb.l2", "accesses"] > 0
    native, mine = result.total
    assert mine.walks > native.walks
    assert mine.count("tlb.l1d", "misses") == native.count("tlb.l1d", "misses")


def test_an_exception_is_the_users_own(lru: Any) -> None:
    class Broken(lru):  # type: ignore[misc]
        def fill(self, space: int, page: int, page_bytes: int) -> None:
            if page % 7 == 3:
                raise ZeroDivisionError(f"page {page}")
            super().fill(space, page, page_bytes)

    with pytest.raises(ZeroDivisionError, match=r"page \d+") as raised:
        octavo.sim(TRACES[0], "skylake", ["base4k", Broken])
    lines = [frame.name for frame in traceback.extract_tb(raised.value.__traceback__)]
    assert "fill" in lines


def test_an_exception_in_the_making_is_the_users_own(lru: Any) -> None:
    class Unmade(lru):  # type: ignore[misc]
        def __init__(self) -> None:
            raise ZeroDivisionError("made")

    with pytest.raises(ZeroDivisionError, match="made"):
        octavo.sim(TRACES[0], "skylake", [Unmade])


def test_a_page_that_was_never_filled_stops_it(lru: Any) -> None:
    class Inventive(lru):  # type: ignore[misc]
        def look_up(self, space: int, page: int) -> int | None:
            return 2 << 20

    result = octavo.sim(TRACES[0], "skylake", ["base4k", Inventive])
    assert result.design("base4k").stopped is None
    stopped = result.design("Inventive").stopped
    assert stopped is not None
    assert "no page of this size was filled there" in stopped


@pytest.mark.long
def test_a_page_that_was_invalidated_stops_it(lru: Any, tmp_path: Path) -> None:
    class Stale(lru):  # type: ignore[misc]
        def invalidate(self, space: int, first: int, end: int) -> None:
            pass

    # A loader maps and unmaps.
    trace = octavo.record(["ls", "/usr/bin"], tmp_path / "ls.oct")
    result = octavo.sim(trace.path, "skylake", ["base4k", Stale])
    assert result.design("base4k").stopped is None
    stopped = result.design("Stale").stopped
    assert stopped is not None
    assert "invalidated since" in stopped


@pytest.mark.parametrize(
    ("design", "sentence"),
    [
        (int, "is no design: give a name, or a subclass of octavo.Design"),
        (type("base4k", (octavo.Design,), {}), "cannot have the name `base4k`"),
        (type("Empty", (octavo.Design,), {}), "Empty has no look_up: a design needs look_up, fill"),
    ],
)
def test_what_is_no_design_is_refused(design: Any, sentence: str) -> None:
    with pytest.raises(octavo.OctavoError, match=re.escape(sentence)):
        octavo.sim(TRACES[0], "skylake", [design])


def test_places_without_python_designs_say_so(lru: Any) -> None:
    with pytest.raises(octavo.OctavoError, match="a sweep's workers do not have it"):
        octavo.sweep(TRACES[0], designs=[lru])
    with pytest.raises(octavo.OctavoError, match="it cannot run in a guest"):
        octavo.sim(TRACES[0], "skylake", [lru], virtualised=True)
