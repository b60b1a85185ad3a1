"""Advice on traces: the program that its commands start, if there is one."""

from __future__ import annotations

from pathlib import Path

import pytest

import octavo
from octavo.analysis.view import machine_grid
from octavo.base.huge_pages import HugePages, read_huge_pages
from traces_made import convert, write_csv

SPARSE = "synth:gups?table=32MiB&updates=40k"
"""Misses at every page, so that larger pages are advised."""


@pytest.fixture
def offering(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with a malloc that has the tunable for 2 MiB pages."""
    root = tmp_path / "machine"
    setting = root / "sys/kernel/mm/transparent_hugepage"
    setting.mkdir(parents=True)
    (setting / "enabled").write_text("always [madvise] never\n")
    (root / "proc").mkdir()
    (root / "proc/cpuinfo").write_text("vendor_id : GenuineIntel\n")
    found: HugePages = read_huge_pages(root, kernel="6.1", libc="glibc 2.36")
    monkeypatch.setattr("octavo.runs.result.read_huge_pages", lambda: found)


def commands(trace: str) -> list[str]:
    advice = octavo.run(trace).advice
    assert any(item.get("page_size", 0) > 4096 for item in advice)
    return [action["command"] for item in advice for action in item.get("actions", ())]


@pytest.mark.usefixtures("offering")
def test_no_program_is_started_for_a_synthetic_trace() -> None:
    assert commands(SPARSE) == []


@pytest.mark.usefixtures("offering")
def test_a_trace_that_names_no_program_has_a_placeholder(tmp_path: Path) -> None:
    trace = convert(SPARSE, tmp_path / "gups.din")
    found = commands(trace)
    assert "GLIBC_TUNABLES=glibc.malloc.hugetlb=1 PROGRAM ARGUMENTS" in found
    assert not any("gups" in command for command in found)


@pytest.mark.parametrize(
    ("trace", "place"), [(SPARSE, 0), ("synth:gups?table=8KiB&updates=100k", 1)]
)
def test_the_origin_of_costs_is_reported_once(trace: str, place: int) -> None:
    """In the answer, or in the first piece of advice where the answer has no gain."""
    texts = [item["text"] for item in octavo.run(trace).advice]
    labelled = [at for at, text in enumerate(texts) if "(walk " in text]
    assert labelled == [place]
    assert texts[place].count("(walk ") == 1


def test_a_trace_of_fetches_alone_is_judged_by_the_machines_walks(tmp_path: Path) -> None:
    pages = [("fetch", 0x40000000 + number * 4096, 4) for number in range(20_000)]
    result = octavo.run(write_csv(tmp_path / "fetches.csv", pages), tlb="zen5")
    grid = machine_grid(result.rows, result.manifest)
    assert grid is not None
    walks = dict(zip(grid.head, grid.rows[0], strict=True))
    assert (walks["code\nwalks"], walks["data\nwalks"]) == ("20.0 k", "")
    code = next(item["text"] for item in result.advice if item.get("stream") == "fetch")
    assert "page walks" in code.lower(), code
