"""The study of perforated pages: figures come from the right rows, and claims can fail."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from called import invoke
from octavo.base.units import MIB
from octavo.report.figures import figure_files
from octavo.studies.claims import answers
from octavo.studies.perforated_pages import Study
from octavo.studies.perforated_pages.figures import figures_of
from octavo.studies.perforated_pages.measurement import (
    BASE,
    BASELINE,
    KINDS,
    PERFORATED,
    Counted,
)
from octavo.studies.perforated_pages.memory import (
    LAYOUTS,
    Fragments,
)
from octavo.studies.perforated_pages.programs import ProgramMeasurement, ProgramRow, memories
from octavo.studies.perforated_pages.random_accesses import (
    GTSM,
    IDEAL,
    OBSERVED,
    PAPER_PORTION,
    FaultRow,
    Faults,
    GridRow,
    Point,
    faulty_memories,
    points,
)
from octavo.studies.perforated_pages.redis import RedisMeasurement
from octavo.studies.reproduction import Request
from pages import panels_of

FIGURES = ["figure-7", "figure-8", "figure-9", "figure-11", "figure-10"]
MEMORY_BYTES = 1 << 35


def counted(ipc: float, walks: int = 1000, **more: Any) -> Counted:
    """The counts of a design over a hundred thousand instructions."""
    usual: dict[str, Any] = {
        "instructions": 100_000,
        "cycles": 100_000 / ipc,
        "added_cycles": 100_000 / ipc,
        "cache_cycles": 0.0,
        "first_misses": 2 * walks,
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
    """The paper's results on a memory, or similar ones."""
    fragments = point.fragments
    base = 1.0
    relative = 1.0 + 0.5 * (1 - fragments.portion * fragments.fraction)
    if fragments in OBSERVED:
        relative = 1.203 if fragments.clean == 0.22 else 1.694
    elif fragments == Fragments(0.5, 0.25, "clustered"):
        relative = 1.594
    elif not fragments.portion:
        base, relative = 3.488, 1.0
    elif fragments.fraction == 0.1:
        relative = 3.3
    elif fragments.fraction == 0.9:
        relative = 2.4 if not point.is_allocated else 1.0
    bitmap = 42 if fragments.layout == "clustered" else 100
    content = dict(zip(KINDS, (100, 200, 300, bitmap), strict=True))
    designs = {
        BASE: counted(1.0),
        point.baseline: counted(base),
        PERFORATED: counted(base * relative, content=content),
    }
    return GridRow(point, MEMORY_BYTES, designs)


def unlike_the_paper(point: Point) -> GridRow:
    """Results in which perforated pages have no advantage."""
    content = dict(zip(KINDS, (100, 200, 300, 50), strict=True))
    fragments = point.fragments
    slow = 0.9 if fragments.layout == "dispersed" else 0.5
    one = counted(slow, content=content, filtered=0, bitmap_bytes=MEMORY_BYTES // 64)
    best = 1.0 if fragments.portion else 3.0
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
    """Counts with the given large pages of GTSM for data of 1024 regions, and with the given 2 MiB
    pages in memory with faults.
    """
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
        skipped={"xz": "not installed"},
        grid=tuple(map(like_the_paper, points())),
        programs=(
            program("gups", is_virtual=False, ideal=1.65, gained=1.06),
            program("gups", is_virtual=True, ideal=2.0, gained=1.25),
        ),
        redis=(
            redis("redis-server, 2 k keys", (175, 105, 145), (929, 777)),
            redis("a stream of 2 k keys", (175, 105, 145), (929, 777)),
        ),
        faults=tuple(with_faults(faults, 1.062 * 2.0, 2.0, 1024) for faults in faulty_memories()),
    )


def test_every_claim_can_agree_and_differ(study: Study) -> None:
    virtual = program("gups", is_virtual=True, ideal=4.0, gained=0.9)
    rows = tuple(
        ProgramRow(
            row.fragments,
            {
                **row.designs,
                PERFORATED: replace(row.designs[PERFORATED], walk_references=24_000),
            },
        )
        for row in virtual.rows
    )
    unlike = Study(
        grid=tuple(map(unlike_the_paper, points())),
        programs=(
            program("gups", is_virtual=False, ideal=4.0, gained=0.9),
            replace(virtual, rows=rows),
        ),
        redis=(
            redis("redis-server, 2 k keys", (175, 170, 175), (1600, 900)),
            redis("a stream of 2 k keys", (175, 10, 11), (929, 777)),
        ),
        faults=(with_faults(Faults(PAPER_PORTION, "dispersed"), 2.0, 1.2, 100),),
    )
    answered = (answers("perforated_pages", tried.values()) for tried in (study, unlike, Study()))
    for (claim, agreed), (_, differed), (_, undecided) in zip(*answered, strict=True):
        assert agreed is not None, claim.key
        assert agreed.agrees, (claim.key, agreed)
        assert differed is not None, claim.key
        assert not differed.agrees, (claim.key, differed)
        assert undecided is None, claim.key


def test_numbers_are_the_papers(study: Study) -> None:
    seen = study.at(Fragments(0.5, 0.25, "clustered"))
    assert seen is not None
    assert seen.gain() == pytest.approx(0.594)
    counts = replace(counted(0.5), added_cycles=400_000.0, cache_cycles=300_000.0)
    assert (counts.ipc, counts.ipc_added, counts.ipc_overlapped) == pytest.approx((0.5, 0.25, 1.0))
    assert counts.mpki == pytest.approx(10.0)
    assert counts.filter_share == pytest.approx(0.68)
    assert counts.references_per_walk == pytest.approx(6.0)
    empty = replace(counts, walks=0, filtered=0, bitmap_lookups=0)
    assert (empty.filter_share, empty.references_per_walk) == (None, None)
    large, _ = study.redis
    assert large.bloat == pytest.approx(929 / 777 - 1)
    assert large.instructions_per_lookup == pytest.approx(50.0)


def test_memories_without_holes_share_one_row(study: Study) -> None:
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
    text = replace(study, is_partial=True, max_instructions=5_000_000).markdown()
    for wanted in (
        "PARTIAL", "Figure 7: IPC over 4 KiB pages, holes allocated elsewhere", "not allocated",
        "Figure 8", "(d) 25% dispersed, unallocated", "Figure 9: programs, native",
        "Figure 11: programs, in a virtual machine", "Table I", "Left out: xz",
        "Figure 10: memory with faults",
        "Section III-C: memory as it was seen", "the first 5.00 M instructions",
    ):  # fmt: skip
        assert wanted in text, wanted
    assert "PARTIAL" not in study.markdown()
    (observed,) = [line for line in text.splitlines() if line.startswith("| 22% ")]
    assert "18%" in observed
    assert "+20.3%" in observed
    (quarter,) = [
        line for line in text.splitlines() if line.startswith("| perforated, 25% clustered")
    ][:1]
    assert [cell.split()[0] for cell in quarter.split("|")[2:-1]][3] == "1.59"
    made = json.loads(json.dumps(study.document()))
    assert len(made["claims"]) == 26
    assert len(made["grid"]) == 104
    assert made["redis"][0]["designs"][BASELINE]["mpki"] == pytest.approx(1.05)
    records = study.records()
    assert len(records) == 3 * 104 + 2 * (2 + 3 * 12) + 2 * 3 + 6 * 5
    assert not any(isinstance(value, dict) for record in records for value in record.values())
    assert {"portion", "content.bitmap", "ipc"} <= set(records[0])
    assert len({tuple(record) for record in records}) == 1, "all have the same columns"
    assert "Left out" in Study().markdown()


def test_the_figures_are_the_papers(study: Study, tmp_path: Path) -> None:
    figures = figures_of(study)
    assert list(figures) == FIGURES
    for name, write in figure_files(figures, ["svg"]).items():
        write(tmp_path / name)
        words = set(re.findall(r"<text[^>]*>([^<]+)</text>", (tmp_path / name).read_text()))
        assert {"portion"} <= words, name
    values = [
        value
        for data in panels_of(figures["figure-7"])
        for value in data
        if value["of"] == "25%" and value["portion"] == 0.5
    ]
    assert sorted(value["value"] for value in values)[-1] == pytest.approx(1.594)
    assert len(values) == 4, "a panel for each layout and kind of holes"
    shares = [
        value
        for data in panels_of(figures["figure-8"])
        for value in data
        if value["kind"] == "bitmap" and value["portion"] == 0.5
    ]
    assert {round(value["value"], 4) for value in shares} == {
        round(42 / 642, 4),
        round(100 / 700, 4),
    }
    assert figures_of(Study()) == {}


def test_reproduce_writes_the_tables_and_the_figures(
    study: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = []
    made = study

    def pretend(request: Request) -> Study:
        limits.append(request.max_instructions)
        request.say("random accesses: 1 of 104, about 2 min left")
        return made

    monkeypatch.setattr("octavo.studies.perforated_pages.run_study", pretend)
    out = tmp_path / "out"
    arguments = ["reproduce", "perforated-pages", "--max-instructions", "5M"]
    done = invoke(*arguments, "--out", str(out))
    assert done.exit_code == 0, done.stderr
    assert limits == [5_000_000]
    assert done.stdout == study.markdown()
    assert "about 2 min left" in done.stderr
    tables = [f"perforated-pages.{suffix}" for suffix in ("json", "md", "parquet")]
    figures = [f"{name}.{suffix}" for name in FIGURES for suffix in ("pdf", "svg")]
    assert {path.name for path in out.iterdir()} == {*tables, *figures}
    # A stopped study writes its partial results.
    made = replace(study, is_partial=True)
    stopped = invoke(*arguments, "--out", str(tmp_path / "partial"))
    assert stopped.exit_code == 130
    assert stopped.stdout == made.markdown()
    assert (tmp_path / "partial" / "perforated-pages.json").exists()
