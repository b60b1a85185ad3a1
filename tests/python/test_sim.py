"""`octavo.sim` on streams with counts worked out by hand, and tables of counters."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

import octavo
from octavo._core import MAX_CORES
from octavo.base.errors import UsageError
from octavo.simulation.api import SimResult
from octavo.simulation.choice import sentence
from octavo.simulation.configuration import EMPTY_GUEST_NOTE, configure_sim
from octavo.simulation.model import added
from octavo.simulation.view import grids, remarks
from sim_fakes import STRIDED, counters_of, counts, design, machine, sim_process, sim_result
from traces_made import write_csv


@pytest.fixture(scope="module")
def strided() -> SimResult:
    return octavo.sim(STRIDED, check=True)


def test_base_pages_by_hand(strided: SimResult) -> None:
    """The trace goes round 1024 pages. The 64 entries of the first level never hit; the second
    level, 1536 entries in sets of 12, holds all pages, 8 in a set.
    """
    assert counters_of(strided, "base4k", "tlb.l1d", "accesses", "misses") == [10240, 10240]
    assert counters_of(strided, "base4k", "tlb.l1i", "accesses", "misses") == [40960, 1]
    assert counters_of(strided, "base4k", "tlb.l2", "accesses", "misses") == [10241, 1025]
    assert counters_of(strided, "base4k", "core", "cycles_tlb_l2") == [9 * 10241]
    faults = ["faults", "bytes_zeroed", "bytes_read", "promotions", "peak_resident_bytes"]
    assert counters_of(strided, "base4k", "os", *faults) == [1025, 4 << 20, 4096, 0, 1025 * 4096]
    # Tables: the root, three for the code, and for the data two upper ones and two last ones.
    assert counters_of(strided, "base4k", "os", "page_table_bytes") == [8 * 4096]
    # Each page has a walk that faults and a walk after the fault. The first faults of code and of
    # data read the root's entry only, the walks after them all four entries. Later walks read the
    # last entry only, as the walk caches hold the rest. For the first page of the second last table
    # the walk that faults reads one entry and the next walk two.
    assert counters_of(strided, "base4k", "walker", "walks", "faulted") == [2050, 1025]
    assert counters_of(strided, "base4k", "walker", "references") == [
        2 * (1 + 4) + (1 + 2) + 2 * 1022
    ]


def test_huge_pages_by_hand(strided: SimResult) -> None:
    """The program has two huge pages, and one base page of code."""
    assert counters_of(strided, "thp", "tlb.l1d", "accesses", "misses") == [10240, 2]
    assert counters_of(strided, "thp", "tlb.l2", "accesses", "misses") == [3, 3]
    assert counters_of(strided, "thp", "core", "cycles_tlb_l2") == [9 * 3]
    assert counters_of(strided, "thp", "os", "faults", "bytes_zeroed") == [3, 4 << 20]
    assert counters_of(strided, "thp", "walker", "walks", "faulted") == [6, 3]
    # Code as above. Data: the root's entry and then three entries for the first page, one entry and
    # one entry for the second.
    assert counters_of(strided, "thp", "walker", "references") == [(1 + 4) + (1 + 3) + (1 + 1)]


@pytest.mark.parametrize("settings", [{}, {"walker.start": "with-lookup"}])
def test_better_translation_never_takes_more_cycles(settings: dict[str, Any]) -> None:
    """Each of 2048 pages misses a second level of 1536 entries. Its walk mostly costs less
    than the look-up: one entry, eight of which are in a line of L1D.
    """
    stream = "synth:strided?bytes=8MiB&stride=4KiB&references=20k&instructions=1"
    names = ["perfect_l1", "perfect_l2", "base4k", "perforated"]
    result = octavo.sim(stream, "skylake", names, settings, warm_up=5000)
    cycles = [result.design(name).cycles for name in names]
    assert cycles[:3] == sorted(cycles[:3])
    # `perforated` has huge pages, and no misses of the second level.
    assert cycles[3] < cycles[2]
    assert result.design("perforated").count("tlb.l2", "misses") == 0
    base = result.design("base4k")
    assert base.count("tlb.l2", "hits") == 0
    assert base.count("core", "cycles_walks") < 9 * base.count("tlb.l2", "misses")
    assert result.design("perfect_l2").count("tlb.l2", "misses") == 0


def test_the_table_by_hand(strided: SimResult) -> None:
    grid = next(grids(strided))
    assert grid.head == ("", "base4k", "thp")
    rows = {cells[0]: cells[1:] for cells in grid.rows}
    assert rows["L1 TLB misses of data, per 1000 instructions"] == ("250.000", "0.049")
    assert rows["L1 TLB misses of code, per 1000 instructions"] == ("0.024", "0.024")
    assert rows["L2 TLB misses, per 1000 instructions"] == ("25.024", "0.073")
    assert rows["page walks, per 1000 instructions"] == ("50.049", "0.146")
    assert rows["references of a walk"] == ("1.00", "1.83")
    assert rows["memory, resident at most"] == ("4.00 MiB", "4.00 MiB")
    assert rows["zeroed"] == ("4 MiB", "4 MiB")
    assert rows["faults"] == ("1025", "3")
    base = strided.design("base4k")
    cpi = base.translation_cycles / 40960
    assert rows["translation, cycles per instruction, added up"][0] == f"{cpi:.3f}"
    assert rows["execution time, over base4k, an estimate"][0] == "1.000"
    best = {(grid.rows[row][0], grid.head[column]) for row, column in grid.best}
    assert ("faults", "thp") in best
    assert ("translation, share of all cycles", "thp") in best
    assert not any(name.startswith("L1 TLB misses of code") for name, _ in best)


def test_memory_of_a_phase_is_in_the_table_where_there_was_any() -> None:
    title = "of it, there when the phase began"
    for present, expected in [({}, []), ({"present_bytes": 8 << 20}, [("8 MiB",)])]:
        made = [machine("plain", counts(resident=16 << 20, **present))]
        rows = next(grids(sim_result([sim_process(made)]))).rows
        assert [cells[1:] for cells in rows if cells[0] == title] == expected


def test_memory_of_a_designs_own_tables_is_in_the_table_where_there_is_any() -> None:
    tables = {"design_table_bytes": 16 << 20, "bitmap_bytes": 1 << 20}
    made = [machine("plain", counts()), machine("special", counts(**tables))]
    rows = next(grids(sim_result([sim_process(made)]))).rows
    found = [cells[1:] for cells in rows if cells[0] == "other tables of the design"]
    assert found == [("", "17 MiB")]
    rows = next(grids(sim_result([sim_process(made[:1])]))).rows
    assert "other tables of the design" not in [cells[0] for cells in rows]


def test_structures_of_a_design_beside_the_levels_are_in_the_table() -> None:
    own = {("tlb.own", "accesses"): 40, ("tlb.own", "misses"): 10, ("tlb.own.4k", "misses"): 10}
    others = {("tlb.l2", "misses"): 20, ("tlb.flushes", "made"): 3}
    made = [machine("plain", {**counts(), **others}), machine("special", {**counts(), **own})]
    grid = next(grids(sim_result([sim_process(made)])))
    rows = {cells[0]: cells[1:] for cells in grid.rows if "tlb." in cells[0]}
    assert rows == {
        "look-ups of tlb.own, per 1000 instructions": ("", "40.000"),
        "misses of tlb.own, per 1000 instructions": ("", "10.000"),
    }
    result = octavo.sim(STRIDED, designs=["base4k", "rmm"])
    names = [cells[0] for cells in next(grids(result)).rows]
    at = names.index("L2 TLB misses, per 1000 instructions")
    assert names[at + 1] == "look-ups of tlb.range, per 1000 instructions"
    assert next(grids(result)).rows[at + 1][1] == ""


def test_cycles_are_all_accounted_for(strided: SimResult) -> None:
    for one in strided.total:
        core = {name: value for (of, name), value in one.counts.items() if of == "core"}
        assert one.cycles == 40960 * strided.configuration.base_cpi + sum(core.values())
        assert one.translation_cycles == core["cycles_tlb_l2"] + core["cycles_walks"]
        assert one.walk_cycles == core["cycles_walks"]
    for _, times in strided.times():
        for one, time in zip(strided.total, times, strict=True):
            assert time is not None
            assert time.cycles == one.cycles
            assert time.walk_cycles + time.tlb_cycles == one.translation_cycles


def test_every_machine_that_ships_simulates() -> None:
    for preset in octavo.machines():
        result = octavo.sim("synth:gups?table=1MiB&updates=2k", preset["name"], check=True)
        for one in result.total:
            assert one.stopped is None
            assert one.translation_cycles > 0
            for (component, counter), value in one.counts.items():
                if counter == "accesses":
                    parts = (one.count(component, part) for part in ("hits", "misses"))
                    assert value == sum(parts), (preset["name"], component)
        (unified,) = {one.misses("l1") is not None for one in result.total}
        assert unified == ("l1" in result.configuration.machine["tlb"])
        assert next(grids(result)).rows


def test_settings_change_the_machine() -> None:
    settings = {"tlb.l2.main.entries": 768, "tlb.l2.main.ways": 6, "memory.bytes": "1GiB"}
    result = octavo.sim(STRIDED, settings=settings, designs=["base4k"])
    machine = result.manifest["configuration"]["machine"]
    assert machine == octavo.machine("skylake", settings)
    # Eight pages share a set of six ways, so every data page misses in every round. The page of
    # code is looked up once.
    assert counters_of(result, "base4k", "tlb.l2", "misses") == [10241]
    other = configure_sim()
    assert other.machine_hash != result.configuration.machine_hash
    assert other.sha256() != result.configuration.sha256()


def test_a_warm_up_is_simulated_and_not_counted(strided: SimResult) -> None:
    """The first of ten rounds: 4096 instructions."""
    result = octavo.sim(STRIDED, warm_up=4096)
    assert result.rows[0]["value"] == 9 * 5120
    assert counters_of(result, "base4k", "tlb.l1d", "accesses", "misses") == [9216, 9216]
    assert counters_of(result, "base4k", "tlb.l2", "misses") == [0]
    assert counters_of(result, "base4k", "os", "faults", "peak_resident_bytes") == [0, 1025 * 4096]
    assert counters_of(result, "thp", "walker", "walks") == [0]
    for name in ("base4k", "thp"):
        whole = counters_of(strided, name, "tlb.l1d", "accesses", "hits")
        assert counters_of(result, name, "tlb.l1d", "accesses", "hits")[0] == whole[0] - 1024


def test_a_run_within_its_warm_up_is_an_error() -> None:
    with pytest.raises(octavo.OctavoError, match="within the 50,000 instructions to skip and to"):
        octavo.sim(STRIDED, warm_up=40_000, skip_instructions=10_000)


def test_intervals_add_up_to_the_whole(strided: SimResult) -> None:
    result = octavo.sim(STRIDED, interval=4096)
    for one, whole in zip(result.total, strided.total, strict=True):
        assert len(one.intervals) == 10
        total = added(one.intervals)
        for key in (("tlb.l1d", "misses"), ("walker", "walks"), ("os", "faults")):
            assert total[key] == whole.counts[key]
        assert one.counts == whole.counts
    first, second, *_ = result.design("base4k").intervals
    assert (first["os", "faults"], second["os", "faults"]) == (1025, 0)
    assert second["os", "resident_bytes"] == 1025 * 4096
    rows = [row for row in result.rows if row.get("interval") == 9]
    assert {row["design"] for row in rows} == {"base4k", "thp"}


def test_a_trace_without_mappings_has_a_note(tmp_path: Path) -> None:
    plain = write_csv(tmp_path / "data.csv", [("load", 4096 * page, 8) for page in range(50)])
    result = octavo.sim(plain)
    assert any("one mapping of anonymous memory" in note for note in result.manifest["notes"])
    assert not any("one mapping" in note for note in octavo.sim(STRIDED).manifest["notes"])
    # Without instructions there are no times.
    rows = {cells[0] for cells in next(grids(result)).rows}
    assert "L1 TLB misses of data, per 1000 references" in rows
    assert not any("instruction" in name or "time" in name for name in rows)
    assert "runs" not in sentence(result.total)
    assert "cycles to translation" in sentence(result.total)


@pytest.mark.parametrize("option", ["warm_up", "interval"])
def test_options_in_instructions_need_instructions(tmp_path: Path, option: str) -> None:
    plain = write_csv(tmp_path / "data.csv", [("load", 4096, 8)])
    with pytest.raises(octavo.OctavoError, match=f"--{option.replace('_', '-')} goes by instr"):
        octavo.sim(plain, **{option: 5000})


def test_a_design_that_runs_out_of_memory_has_a_result() -> None:
    result = octavo.sim(STRIDED, settings=["memory.bytes=4MiB"])
    assert all(one.stopped is not None for one in result.total)
    assert sentence(result.total).startswith("Which design? None")
    assert [text.split()[0:2] for text in remarks(result)] == [
        ["base4k", "stopped:"],
        ["thp", "stopped:"],
    ]
    assert result.document()["run"]["notes"][:2] == list(remarks(result))
    # A stopped design has counts of a part of the stream only, and hence no cycles.
    assert not any(row["component"] == "core" and row["counter"] == "cycles" for row in result.rows)
    grid, *others = [grid for grid in grids(result) if grid.rows]
    assert grid.head == ("", "base4k\n(stopped)", "thp\n(stopped)")
    assert not others
    assert not grid.best
    assert {cells[0] for cells in grid.rows} == {
        "memory, resident at most",
        "page tables, at most",
        "memory with page tables, at most",
        "faults",
        "zeroed",
        "promotions",
    }


@pytest.mark.parametrize(
    ("settings", "choices", "why"),
    [
        ({"asap.registers": 3}, {}, "no design that uses it is simulated (asap)"),
        ({"asap.registers": 3}, {"designs": ["base4k", "asap+thp:asap.leaf=false"]}, None),
        ({"colt.range_pages": 8}, {"designs": ["colt_fa"]}, None),
        (
            {"colt.range_pages": 8},
            {"designs": ["colt_sa", "colt_sa+thp"]},
            "no design that uses it is simulated (colt, colt_fa)",
        ),
        ({"softvm.tlb.entries": 32}, {"designs": ["softvm"]}, "(mips_physical, mips_virtual)"),
        ({"softvm.l1.line_bytes": 64}, {"designs": ["softvm"]}, None),
        (
            {"core.pipeline.width": 2},
            {},
            "only out-of-order timing uses it, and cycles are additive (the stream has no register "
            "dependences)",
        ),
        ({"core.pipeline.width": 2}, {"timing": "out-of-order"}, None),
        ({"dram": None}, {"timing": "overlapped"}, "only out-of-order timing uses it, and cycles"),
        (
            {"core.address_spaces": "flushed"},
            {},
            "each process has machines of its own, where nothing switches processes",
        ),
        ({"core.address_spaces": "flushed"}, {"processes": "flush"}, None),
        ({"core.pipeline": None, "tlb.l2.main.ways": 6}, {}, None),
    ],
)
def test_a_setting_without_effect_is_named_with_the_reason(
    settings: dict[str, Any], choices: dict[str, Any], why: str | None
) -> None:
    choices = {"designs": ["base4k"], "max_instructions": 5000, **choices}
    result = octavo.sim(STRIDED, settings=settings, **choices)
    message = [text for text in remarks(result) if "has no effect" in text]
    assert set(message) <= set(result.document()["run"]["notes"])
    if why is None:
        assert not message
    else:
        (key,) = settings
        assert message[0].startswith(f"The setting `{key}=")
        assert "` has no effect in this run: " in message[0]
        assert why in message[0]


def test_a_setting_of_a_design_that_does_not_use_it_is_named() -> None:
    designs = ["colt_sa:colt.range_pages=8", "colt:colt.range_pages=8", "granule+fixed:size=16KiB"]
    result = octavo.sim(STRIDED, designs=designs, max_instructions=5000)
    notes = [text for text in remarks(result) if "has no effect" in text]
    assert notes == [
        "The setting `colt.range_pages=8` of `colt_sa:colt.range_pages=8` has no effect in this "
        "run: the design does not use it (it affects colt, colt_fa)."
    ]
    assert set(notes) <= set(result.document()["run"]["notes"])


UPDATES = "synth:gups?table=2MiB&updates=7k"
MAPPINGS = str(Path(__file__).parents[1] / "golden/traces/events.oct")
EVENTS: dict[str, Any] = {
    "softvm.rates.protections_per_billion": 1_000_000,
    "softvm.rates.dma_pages_per_billion": 1_000_000,
}
"""Without these events, some settings have no effect in any design."""
USERS = {
    "colt.range_entries": "colt",
    "colt.range_pages": "colt",
    "softvm.cycles.step_cycles": "spur",
    "softvm.tlb.entries": "mips_virtual",
    "softvm.tlb.reserved": "mips_virtual",
}
"""A design that uses a setting, where that is not `softvm`."""


@pytest.mark.parametrize(
    ("design", "settings"),
    [
        ("colt_sa", {"colt.range_entries": 4, "colt.range_pages": 64}),
        (
            "softvm",
            {"softvm.tlb.entries": 16, "softvm.tlb.reserved": 2, "softvm.cycles.step_cycles": 50},
        ),
        (
            "spur",
            {
                "softvm.tlb.entries": 16,
                "softvm.kernel.table": "inverted",
                "softvm.kernel.handler_instructions": 40,
                "softvm.cycles.handler_cycles": 50,
            },
        ),
        (
            "mips_virtual",
            {
                "softvm.kernel.protection_bytes": 512,
                "softvm.cycles.step_cycles": 50,
            },
        ),
        (
            "mips_physical",
            {
                "softvm.kernel.write_back": "kept",
                "softvm.kernel.protection_bytes": 512,
                "softvm.rates.protections_per_billion": 2_000_000,
                "softvm.rates.dma_pages_per_billion": 2_000_000,
                "softvm.cycles.step_cycles": 50,
                "softvm.cycles.check_l1_cycles": 50,
                "softvm.cycles.change_l1_cycles": 50,
                "softvm.cycles.check_l2_cycles": 50,
                "softvm.cycles.change_l2_cycles": 50,
            },
        ),
        # Only the two-tier table has entries for less than a page.
        ("mips_virtual", {"softvm.kernel.table": "inverted"}),
        ("mips_physical", {"softvm.kernel.table": "inverted"}),
        (
            "softvm_free",
            {
                "softvm.tlb.entries": 16,
                "softvm.kernel.table": "inverted",
                "softvm.kernel.handler_instructions": 40,
                "softvm.cycles.handler_cycles": 50,
                "softvm.cycles.step_cycles": 50,
            },
        ),
    ],
)
def test_settings_that_a_design_does_not_use_change_no_count(
    design: str, settings: dict[str, Any]
) -> None:
    """Each of them changes a count of another design on the same trace."""
    trace, events = (STRIDED, {}) if design == "colt_sa" else (UPDATES, EVENTS)
    assert_unused(design, settings, trace, events)


def test_settings_of_mappings_change_no_count_of_physical_caches() -> None:
    """The trace has a region whose protection changes, and one that two processes share."""
    settings = {"softvm.kernel.increase": "eager", "softvm.kernel.aliases": "refuse"}
    aliased = {"softvm.kernel.sharing": "aliased"}
    assert_unused("mips_physical", settings, MAPPINGS, aliased, processes="asid", quantum=3000)


def assert_unused(
    design: str, settings: dict[str, Any], trace: str, others: dict[str, Any], **choices: Any
) -> None:
    usual = octavo.sim(trace, designs=[design], settings=others, **choices)
    changed = octavo.sim(trace, designs=[design], settings={**others, **settings}, **choices)
    assert changed.rows == usual.rows
    useless = [text for text in remarks(changed) if "has no effect" in text]
    for key, value in settings.items():
        assert any(f"The setting `{key}=" in text for text in useless)
        user = USERS.get(key, "softvm")
        without, with_it = (
            octavo.sim(trace, designs=[user], settings={**others, **more}, **choices).rows
            for more in ({}, {key: value})
        )
        assert with_it != without, key


def test_a_level_may_have_no_additional_latency() -> None:
    """Its latency then adds nothing, like that of an ideal machine's memory."""
    for key in ("cache.memory_latency_cycles=0", "cache.l2.latency_cycles=0"):
        for timing in ("additive", "out-of-order"):
            result = octavo.sim(
                STRIDED, designs=["base4k"], settings=[key], timing=timing, max_instructions=5000
            )
            usual = octavo.sim(STRIDED, designs=["base4k"], timing=timing, max_instructions=5000)
            assert 0 < result.total[0].cycles <= usual.total[0].cycles


def test_bounds_are_marked_by_the_engine() -> None:
    result = octavo.sim(STRIDED, designs=["base4k", "conventional+mthp", "perfect_l2"])
    assert [one.is_bound for one in result.total] == [False, False, True]
    assert result.design("perfect_l2").walk_cycles == 0
    assert "perfect_l2" not in sentence(result.total)


def test_cores_are_short_for_a_setting() -> None:
    assert (
        configure_sim(cores=4).machine_json == configure_sim(settings=["core.count=4"]).machine_json
    )
    both = configure_sim(cores=4, settings=["core.count=2"])
    assert both.machine["core"]["count"] == 2
    # The most cores of a machine.
    assert configure_sim(cores=MAX_CORES).machine["core"]["count"] == MAX_CORES
    with pytest.raises(UsageError, match=f"from 1 to {MAX_CORES}"):
        configure_sim(settings={"core.count": MAX_CORES + 1})


def test_notes_are_of_this_machine() -> None:
    notes = configure_sim(settings={"core.count": 4}, warm_up=7).notes()
    assert any("on the 4 cores one after another" in note for note in notes)
    assert any(note.startswith("The first 7 instructions") for note in notes)
    assert any("share its TLBs" in note for note in configure_sim().notes())
    assert EMPTY_GUEST_NOTE not in configure_sim().notes()
    assert EMPTY_GUEST_NOTE in configure_sim(virtualised=True).notes()
    faults = {"memory.fragmentation": {"kind": "faults", "portion": 0.1, "layout": "dispersed"}}
    assert EMPTY_GUEST_NOTE not in configure_sim(virtualised=True, settings=faults).notes()


def test_processes_are_reported_and_summed() -> None:
    wrapper = sim_process(
        [machine("base4k", counts(walk_cycles=10)), machine("thp", counts(walk_cycles=5))],
        instructions=100,
        data_references=10,
    )
    worker = sim_process(
        [
            machine("base4k", counts(walk_cycles=400, faults=7), intervals=[counts()]),
            machine("thp", counts(walk_cycles=1), stopped="no block is free"),
        ],
        number=1,
    )
    result = sim_result([wrapper, worker])
    assert result.main == 1
    total = result.design("base4k")
    assert (total.instructions, total.walk_cycles, total.count("os", "faults")) == (1100, 410, 7)
    assert result.design("thp").stopped == "no block is free"
    wanted = {"component": "core", "counter": "cycles_walks", "design": "base4k"}
    values = {
        (row.get("process"), row.get("interval")): row["value"]
        for row in result.rows
        if wanted.items() <= row.items()
    }
    assert values == {(None, None): 410, (0, None): 10, (1, None): 400, (1, 0): 0}
    whole, main, *_ = grids(result)
    assert whole.title == "On skylake, all processes, each alone on it"
    assert main.title == "On skylake, process 1 (true), which did most"
    assert whole.rows[0][1:] == ("0.373", "")
    assert main.rows[0][1:] == ("0.400", "")
    with pytest.raises(KeyError, match="no design `tps` in the result, but base4k"):
        result.design("tps")


def test_a_counter_that_no_machine_has_is_not_0(strided: SimResult) -> None:
    base = strided.design("base4k")
    assert base.count("tlb.range", "hits") == base.count("os.pages.64KiB", "mapped") == 0
    with pytest.raises(KeyError, match=r"no counter `wlks` of .* `walker`; did you mean `walks`"):
        base.count("walker", "wlks")
    with pytest.raises(KeyError, match=r"no counter `walks` of .* `wlker`; did you mean `walker`"):
        base.count("wlker", "walks")


def test_rows_are_a_table(strided: SimResult, tmp_path: Path) -> None:
    table = strided.table()
    assert table.num_rows == len(strided.rows)
    assert table.column_names == [
        "process",
        "design",
        "interval",
        "component",
        "counter",
        "value",
    ]
    back = [
        {name: value for name, value in row.items() if value is not None}
        for row in table.to_pylist()
    ]
    assert back == strided.rows
    seen = [tuple(row.get(name) for name in table.column_names[:-1]) for row in strided.rows]
    assert len(set(seen)) == len(seen)


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ({"designs": ["base4"]}, "no design `base4`: give one of base4k, .*; did you mean `base4k"),
        ({"designs": []}, "no design is named: give one of base4k, thp"),
        ({"designs": ["thp", ""]}, "the name of a design is empty: give one of base4k, thp"),
        ({"designs": ["tps+base"]}, r"tps\+base: tps needs pages of all sizes"),
        ({"machine": "skylark"}, "there is no machine `skylark`: .*did you mean `skylake`"),
        ({"machine": "sky\udcff"}, "is not UTF-8 text"),
        ({"designs": ["\udcff"]}, "is not UTF-8 text"),
        ({"settings": {"tlb.l2.main.entires": 5}}, "main.entires: .*did you mean `entries`"),
        ({"settings": ["tlb.l2.main.entries=1537"]}, "give a multiple of 12"),
        ({"warm_up": -1}, "--warm-up -1: give instructions from 0"),
        ({"cores": 0}, "^--cores 0: give a number from 1 to 256"),
        ({"cores": MAX_CORES + 1}, "^--cores 257: give a number from 1 to 256"),
        ({"host_policy": "thpp"}, "^--host-policy thpp: .*did you mean `thp`"),
        ({"interval": 999}, "--interval 999: give instructions from 1000 to 4611686T."),
        ({"layout": "nativ"}, "did you mean `native`"),
        ({"perf_4k": "x"}, "--perf-4k and --perf-thp go together"),
        ({"perf_4k": "x", "perf_thp": "y", "designs": ["base4k"]}, "give it to --design, too"),
    ],
)
def test_impossible_configurations_are_refused(choices: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        configure_sim(**choices)


def test_a_design_named_twice_is_simulated_once() -> None:
    assert configure_sim(designs=["thp", "base4k", "thp"]).designs == ("thp", "base4k")


def test_shares_are_of_all_cycles() -> None:
    one = design(of=counts(walk_cycles=300, tlb_cycles=100))
    assert one.translation_share == 0.2
    assert math.isclose(sum(one.cycles_by_part.values()), 2000)
    assert design(instructions=0).translation_share is None
    assert one.references_per_walk is None


@pytest.mark.long
def test_the_number_of_intervals_is_bounded() -> None:
    """An interval keeps all counters; an endless series would take all memory."""
    stream = "synth:strided?bytes=64KiB&stride=4KiB&references=11M&instructions=1"
    result = octavo.sim(stream, interval=1000, designs=["base4k"])
    (base4k,) = result.total
    assert "more than 10000 intervals" in (base4k.stopped or "")
    assert len(base4k.intervals) == 10_000
