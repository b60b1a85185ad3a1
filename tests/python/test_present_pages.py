"""Memory that has 2 MiB pages without a change."""

from dataclasses import replace
from pathlib import Path

import pytest

from octavo.actions.settings import SHARED, needed_for_shared
from octavo.analysis.advice import Advice, Thresholds
from octavo.analysis.gain import Gain
from octavo.analysis.present_pages import ASKED, ASKED_SMALL, HUGETLB, leave_as_is
from octavo.analysis.rows import Row
from octavo.base.huge_pages import PMD_PAGE, SHARED_OF_SIZE
from octavo.base.units import MIB
from test_actions import MISS_UNTIL_2M, data_advice, machine, region_advice

GAIN = Gain(0.02, 0.08, 0.19)


def walking(item: Advice, walks: int) -> Advice:
    """The advice with 2 MiB pages, and the given number of walks per 1000 walks in 4 KiB pages."""
    case = item.case
    points = tuple(replace(point, walks=walks) for point in case.points)
    case = replace(case, points=points, bytes=None if case.region is None else 64 * MIB)
    gain = Gain(*(walks / 1000 * share for share in (GAIN.low, GAIN.expected, GAIN.high)))
    return replace(item, case=case, page_size=PMD_PAGE, gain=gain, reason="gain", basis="walks")


def judged(
    tmp_path: Path,
    thp: str,
    asked: int,
    region_walks: int,
    counter: str = ASKED,
    most: int = 64 * MIB,
) -> list[str]:
    """The reasons of the advice on all data, which has 1,000 walks, and on a region of it.

    `region_walks` of the walks are in the region. The region had at most `most` bytes.
    """
    whole = walking(data_advice(MISS_UNTIL_2M), 1000)
    region = walking(region_advice("anon 8MiB #1"), region_walks)
    region = replace(region, case=replace(region.case, bytes=most))
    host = machine(tmp_path, thp=thp, sizes={2048: "always [inherit] madvise never"})
    row = Row(region="anon 8MiB #1", start=2, counter=counter, value=asked)
    found = leave_as_is([whole, region], [row], host, Thresholds())
    return [item.reason for item in found]


@pytest.mark.parametrize(
    ("thp", "asked", "walks", "reasons"),
    [
        ("always [madvise] never", 1 << 40, 950, ["already", "already"]),
        ("always [madvise] never", 1 << 40, 500, ["gain", "already"]),
        ("always [madvise] never", 4096, 950, ["gain", "gain"]),
        ("always madvise [never]", 1 << 40, 950, ["gain", "gain"]),
        ("[always] madvise never", 0, 950, ["already", "already"]),
    ],
)
def test_memory_with_huge_pages_is_left_as_it_is(
    tmp_path: Path, thp: str, asked: int, walks: int, reasons: list[str]
) -> None:
    assert judged(tmp_path, thp, asked, walks) == reasons


def test_a_moved_region_is_judged_by_its_bytes_at_one_time(tmp_path: Path) -> None:
    """The region has touched more than the bytes of its mapping."""
    touched = region_advice("anon 8MiB #1").case.base.touched_bytes
    thp = "always [madvise] never"
    assert judged(tmp_path, thp, touched // 2, 950)[1] == "gain"
    assert judged(tmp_path, thp, touched // 2, 950, most=touched // 2)[1] == "already"


@pytest.mark.parametrize(
    ("thp", "counter", "asked", "has"),
    [
        ("always madvise [never]", HUGETLB, 1 << 40, True),
        ("always [madvise] never", HUGETLB, 4096, False),
        ("[always] madvise never", ASKED_SMALL, 1 << 40, False),
        ("[always] madvise never", ASKED_SMALL, 4096, True),
        ("always [madvise] never", ASKED_SMALL, 1 << 40, False),
    ],
)
def test_pages_of_hugetlbfs_are_present_and_refused_ones_are_not(
    tmp_path: Path, thp: str, counter: str, asked: int, has: bool
) -> None:
    assert judged(tmp_path, thp, asked, 950, counter)[1] == ("already" if has else "gain")


@pytest.mark.parametrize(
    ("general", "own", "found", "needed"),
    [
        ("never", "inherit", "never", {SHARED: "always"}),
        ("always", "inherit", "always", {SHARED: "always"}),
        ("never", "always", "always", {SHARED: "always", SHARED_OF_SIZE: "always"}),
        ("always", "never", "never", {SHARED: "always", SHARED_OF_SIZE: "inherit"}),
        ("within_size", "advise", "advise", {SHARED: "within_size", SHARED_OF_SIZE: "inherit"}),
        ("never", "within_size", "within_size", {SHARED: "always", SHARED_OF_SIZE: "within_size"}),
        # Under `force` the kernel uses only sizes set to `inherit`.
        ("force", "inherit", "force", {SHARED: "force"}),
        ("force", "always", "never", {SHARED: "force", SHARED_OF_SIZE: "inherit"}),
        ("deny", "always", "deny", None),
        (None, "always", None, None),
    ],
)
def test_shared_memory_without_a_file_has_the_setting_of_the_size(
    tmp_path: Path, general: str | None, own: str, found: str, needed: dict[str, str] | None
) -> None:
    directory = tmp_path / "sys/kernel/mm/transparent_hugepage"
    (directory / "hugepages-2048kB").mkdir(parents=True)
    words = ("always", "inherit", "within_size", "advise", "never")
    text = " ".join(f"[{word}]" if word == own else word for word in words)
    (directory / "hugepages-2048kB/shmem_enabled").write_text(f"{text}\n")
    if general is not None:
        (directory / "shmem_enabled").write_text(f"[{general}]\n")
    host = machine(tmp_path)
    assert host.anonymous_shared_thp == found
    assert host.shares_huge_pages == (found in ("always", "within_size", "force"))
    assert needed_for_shared(host, "always") == needed
    if needed is not None:
        assert needed.keys() <= host.settings.keys()
        after = replace(host, shared_thp=needed[SHARED], settings={**host.settings, **needed})
        assert after.shares_huge_pages
    region = walking(region_advice("anon 8MiB #1"), 950)
    region = replace(region, case=replace(region.case, region_kind="shared"))
    (judged,) = leave_as_is([region], [], host, Thresholds())
    assert (judged.reason == "already") == host.shares_huge_pages


@pytest.mark.parametrize(
    ("setting", "has"),
    [
        ("always", True),
        ("within_size", True),
        ("force", True),
        ("advise", False),
        ("never", False),
        (None, False),
    ],
)
def test_shared_memory_has_a_setting_of_its_own(
    tmp_path: Path, setting: str | None, has: bool
) -> None:
    region = walking(region_advice("anon 8MiB #1"), 950)
    region = replace(region, case=replace(region.case, region_kind="shared"))
    host = replace(machine(tmp_path, thp="[always] madvise never"), shared_thp=setting)
    (found,) = leave_as_is([region], [], host, Thresholds())
    assert found.reason == ("already" if has else "gain")
    if has:
        assert needed_for_shared(host, "always") == {SHARED: setting}
