"""`octavo calibrate`: results from computed samples, and a short real measurement.

No test depends on measured times, as other programs may prolong them.
"""

from __future__ import annotations

import errno
import json
import math
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from called import invoke as octavo
from octavo.base.errors import CannotRun, Interrupted, UsageError
from octavo.base.units import byte_size
from octavo.calibration import measurement as calibrating
from octavo.calibration.caches import DataCache, cache_levels, data_caches
from octavo.calibration.file import (
    CORE_FIGURES,
    Calibration,
    MeasuredHost,
    Reach,
    Spread,
    calibration_toml,
    load_calibration,
    parse_calibration,
)
from octavo.calibration.measurement import Measurement, default_memory, describe, evaluate, measure
from octavo.calibration.view import headline, latency_grid, tlb_grid
from octavo.hardware.machines import machine, resolve_machine
from octavo.simulation.host_machine import MachineFile, machine_toml
from octavo.snapshot import read_snapshot

if TYPE_CHECKING:
    from octavo._core import CalibrationSamples

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
SMALL, HUGE = 4 * KIB, 2 * MIB
RATIO, HIT, ROUNDS = 1.25, 7.0, 5
MEMORY_CYCLES = 300.0
COMPUTED = 11.0
"""Cycles to compute the address of a random read."""
WALKERS = 5
WINDOWS = {"mixed": (202, 2), "additions": (150, 2), "loads": (70, 2), "stores": (40, 0)}
"""The entries of the window that each filler fills, and the entries that the two loads occupy."""
PAGES = [
    step << octave for octave in range(15) for step in range(8, 16) if step << octave <= 131072
]
PIECES = [pages for pages in PAGES if pages >= 1024 and pages.bit_count() <= 2]
HOST = MeasuredHost("CPU", "vendor family 1 model 2 stepping 3", "2026-11-23", "6.18", "0.1", False)


def made_up(
    *,
    first: int = 64,
    second: int = 2048,
    walks: dict[int, float] | None = None,
    entry_bytes: int = HUGE,
    huge_pages: int = 4096,
) -> CalibrationSamples:
    """Samples of a machine with fully associative LRU TLBs, without noise."""
    walk = walks or {SMALL: 40.0, HUGE: 30.0}

    def ticks(lines: int, entries: float, page: int) -> list[float]:
        cycles = 4.0 if lines <= 512 else 12.0 if lines <= 8192 else 50.0
        if entries > first:
            cycles += HIT
        if entries > second:
            cycles += walk[page]
        return [cycles / RATIO] * ROUNDS

    def spread(page: int, pages: int, stride: int | None = None) -> dict[str, Any]:
        stride = stride or page
        used = pages * stride / min(max(entry_bytes, stride), page)
        control_bytes = 64 * pages * (4 if pages <= 8192 else 1)
        entries = control_bytes / entry_bytes
        return {
            "page_bytes": page,
            "stride_bytes": stride,
            "pages": pages,
            "control_bytes": control_bytes,
            "dependent": ticks(pages, used, page),
            "overlapped": [one / 8 for one in ticks(pages, used, page)],
            "control_dependent": ticks(pages, entries, HUGE),
            "control_overlapped": [one / 8 for one in ticks(pages, entries, HUGE)],
        }

    def memory(page: int, wanted: int, given: int) -> dict[str, Any]:
        refusal = None if given == wanted else "none was left"
        return {
            "page_bytes": page,
            "wanted_bytes": wanted,
            "obtained_bytes": given,
            "means": "madvise" if given else None,
            "refusal": refusal,
        }

    small = [spread(SMALL, pages) for pages in PAGES] if huge_pages else []
    samples: Any = {
        "rounds": ROUNDS,
        "ticks_per_second": 2e9,
        "core_cycles_per_tick": [RATIO] * 9,
        "memory": [
            memory(SMALL, 512 * MIB, 512 * MIB),
            memory(HUGE, 4096 * HUGE, huge_pages * HUGE),
            memory(GIB, 8 * GIB, 0),
        ],
        "huge_bytes_lost": 0,
        "latency_page_bytes": HUGE,
        "latency": [
            {"bytes": size, "ticks": [cycles / RATIO] * ROUNDS}
            for size, cycles in ((16 * KIB, 4.0), (128 * KIB, 12.0), (256 * MIB, MEMORY_CYCLES))
        ],
        "spread": [
            *small,
            *(spread(HUGE, pages) for pages in PAGES if pages <= huge_pages),
            *(spread(HUGE, pages, SMALL) for pages in PIECES if huge_pages),
        ],
        "strides": [
            {
                "stride_bytes": 256 << step,
                "lines": 192,
                "ticks": ticks(192, min(192, 192 * (256 << step) / entry_bytes), HUGE),
            }
            for step in range(14 if huge_pages else 0)
        ],
        "pause_ticks": 1000,
        "dense": [
            {
                "bytes": size,
                "small": {
                    "dependent": [300 / RATIO] * ROUNDS,
                    "overlapped": [50 / RATIO] * ROUNDS,
                    "paced": [500 / RATIO] * ROUNDS,
                    "displaced": [900 / RATIO] * ROUNDS,
                },
                "huge": {
                    "dependent": [240 / RATIO] * ROUNDS,
                    "overlapped": [45 / RATIO] * ROUNDS,
                    "paced": [260 / RATIO] * ROUNDS,
                    "displaced": [280 / RATIO] * ROUNDS,
                },
            }
            for size in ((32 * MIB, 64 * MIB) if huge_pages else ())
        ],
        "parallel": [
            {
                "bytes": 256 * MIB,
                "by_chases": [
                    {"chases": chases, "ticks": [MEMORY_CYCLES / min(chases, 8) / RATIO] * ROUNDS}
                    for chases in (1, 4, 8, 16)
                ],
            }
        ],
        "random": [
            {"bytes": size, "ticks": [(cycles + COMPUTED) / RATIO] * ROUNDS}
            for size, cycles in ((16 * KIB, 4.0), (256 * MIB, MEMORY_CYCLES))
        ],
        "lone": [
            {"bytes": 8 * MIB, "ticks": [(MEMORY_CYCLES / 2 + COMPUTED) / RATIO] * 3},
            {"bytes": 16 * MIB, "ticks": []},
        ],
        "walkers": [
            {
                "pages": pages,
                "by_chases": [
                    {
                        "chases": chases,
                        "ticks": [(HIT + walk[SMALL]) / min(chases, WALKERS) / RATIO] * ROUNDS,
                    }
                    for chases in (1, 4, 8, 16)
                ],
            }
            for pages in (4096, 8192)
        ],
        "windows": [
            {
                "filler": filler,
                "instructions": count,
                "ticks": [MEMORY_CYCLES * (1 + (count + loads > entries)) / RATIO] * ROUNDS,
            }
            for filler, (entries, loads) in WINDOWS.items()
            for count in range(16, 400, 4)
        ],
        "streams": [{"direction": "read", "bytes": 128 * MIB, "ticks": [4.0] * ROUNDS}],
        "faults": [
            {"page_bytes": SMALL, "pages": 2048, "ticks": [1000.0] * ROUNDS},
            {"page_bytes": HUGE, "pages": 8, "ticks": []},
        ],
        "later_faults": [],
    }
    found: CalibrationSamples = samples
    return found


def figures(samples: CalibrationSamples) -> Calibration:
    return evaluate(samples, host=HOST).calibration


def numbers(spread: Spread) -> tuple[float, float, float]:
    return spread.low, spread.median, spread.high


def same(value: float) -> Any:
    return pytest.approx((value, value, value))


def test_figures_equal_those_of_a_machine_without_noise() -> None:
    found = figures(made_up())
    for size in (SMALL, HUGE):
        reach = found.tlb[size]
        assert reach.first is not None
        assert reach.second is not None
        assert numbers(reach.first) == (64, 64, 72)
        assert numbers(reach.second) == (2048, 2048, 2304)
        assert numbers(found.second_level_hit_cycles[size]) == same(HIT)
    walk = HIT + 40
    assert numbers(found.walk_cycles[SMALL]) == pytest.approx((walk / 8, walk, walk))
    by_footprint = found.walk_cycles_by_footprint[SMALL]
    assert list(by_footprint) == [
        pages * SMALL
        for pages in (
            3072,
            *(step << octave for octave in range(11, 16) for step in (2, 3)),
            131072,
        )
    ]
    assert all(
        numbers(one) == pytest.approx((walk / 8, walk, walk)) for one in by_footprint.values()
    )
    assert found.walk_cycles[HUGE].median == pytest.approx(HIT + 30)
    assert found.entry_bytes == {HUGE: HUGE}
    assert found.cycles_per_second == pytest.approx(2.5e9)
    assert found.tsc_per_second == 2e9
    assert numbers(found.latency_cycles[256 * MIB]) == same(300.0)
    assert list(found.load_cycles[SMALL]) == [32 * MIB, 64 * MIB]
    assert numbers(found.load_cycles[SMALL][64 * MIB]) == pytest.approx((50, 300, 300))
    assert numbers(found.load_cycles[HUGE][64 * MIB]) == pytest.approx((45, 240, 240))
    assert numbers(found.paced_load_cycles[SMALL][64 * MIB]) == same(500)
    assert numbers(found.paced_load_cycles[HUGE][32 * MIB]) == same(260)
    assert numbers(found.displaced_load_cycles[SMALL][64 * MIB]) == same(900)
    assert numbers(found.displaced_load_cycles[HUGE][32 * MIB]) == same(280)
    assert found.pause_cycles == pytest.approx(1000 * RATIO)
    assert found.notes == (
        "The core's clock ran at 1.25 times the rate of the time-stamp counter; cycles are those "
        "of the core.",
    )


def test_windows_of_the_core_are_found_by_fillers_between_two_loads() -> None:
    core = figures(made_up()).core
    # The number of instructions is measured in steps of four.
    assert {name: numbers(one) for name, one in core.items() if name != "walkers"} == {
        "reorder_buffer": (202, 203.5, 205),
        "rename_registers": (150, 151.5, 153),
        "load_queue": (70, 71.5, 73),
        "store_queue": (40, 41.5, 43),
    }
    assert numbers(core["walkers"]) == same(WALKERS)


def test_a_window_without_a_step_is_not_found() -> None:
    samples = made_up()
    for one in samples["windows"]:
        wide = one["filler"] == "mixed"
        # One disturbed number of instructions is not a step.
        slow = wide and one["instructions"] == 100
        one["ticks"] = [600.0 if slow else 300.0] * ROUNDS if wide else one["ticks"]
    samples["walkers"] = []
    assert set(figures(samples).core) == {"rename_registers", "load_queue", "store_queue"}
    assert figures({**samples, "windows": []}).core == {}


def test_latencies_that_scatter_are_reported() -> None:
    samples = made_up()
    samples["latency"][1]["ticks"] = [9.6, 9.6, 9.9, 9.9, 9.9]
    sentence = "Of 3 latencies 1 still scattered after 5 rounds, the least of them over 128 KiB."
    assert sentence in figures(samples).notes
    samples["latency"][1]["ticks"] = [9.6, 9.6, 9.7, 9.9, 9.9]
    assert sentence not in figures(samples).notes


@pytest.mark.parametrize("entry_bytes", [4 * KIB, 16 * KIB, 64 * KIB])
@pytest.mark.parametrize("first", [64, 96])
def test_pages_that_the_host_has_in_pieces_are_noticed(entry_bytes: int, first: int) -> None:
    """The control then needs more entries, and its second-level hits are subtracted."""
    found = figures(made_up(entry_bytes=entry_bytes, first=first))
    assert found.entry_bytes == {HUGE: entry_bytes}
    assert any("covers" in note and "of a 2 MiB page" in note for note in found.notes)
    reach = found.tlb[SMALL]
    assert reach.first is not None
    assert reach.second is not None
    assert (reach.first.median, reach.second.median) == (first, 2048)
    assert found.walk_cycles[SMALL].median == pytest.approx(HIT + 40)


def test_a_busy_machine_is_reported() -> None:
    samples = made_up()
    samples["latency"][-1]["ticks"] = [400.0, 500.0, 600.0, 700.0, 800.0]
    notes = " ".join(figures(samples).notes)
    assert "Other work disturbed the measurement: loads over 256 MiB took 550 to 950 cyc" in notes


@pytest.mark.parametrize("huge_pages", [128, 4096])
def test_pieces_of_huge_pages_give_their_walk_cost_where_each_needs_an_entry(
    huge_pages: int,
) -> None:
    found = figures(made_up(entry_bytes=4 * KIB, huge_pages=huge_pages))
    assert found.walk_cycles[HUGE].median == pytest.approx(HIT + 30)
    assert list(found.walk_cycles_by_footprint[HUGE])[:2] == [12 * MIB, 16 * MIB]
    assert not any("walk cost of 2 MiB pages was not measured" in note for note in found.notes)


def test_without_huge_pages_only_latencies_are_measured() -> None:
    found = figures(made_up(huge_pages=0))
    assert (found.tlb, found.walk_cycles, found.entry_bytes) == ({}, {}, {})
    assert numbers(found.latency_cycles[16 * KIB]) == same(4.0)
    notes = " ".join(found.notes)
    assert "Of 8 GiB in 2 MiB pages the kernel gave 0 B: none was left" in notes
    assert "TLB reach and walk cost were not measured" in notes
    assert "not found" in str(tlb_grid(found).rows)


def test_too_little_memory_for_the_second_level_is_reported() -> None:
    found = figures(made_up(huge_pages=1024))
    reach = found.tlb[HUGE]
    assert reach.first is not None
    assert reach.second is None
    assert HUGE not in found.walk_cycles
    assert "TLB of 2 MiB pages: no second step up to 1024 pages." in found.notes
    assert (
        "The walk cost of 2 MiB pages was not measured: the second level's reach was not found."
        in found.notes
    )


def test_a_virtual_machine_and_a_varying_clock_are_reported() -> None:
    samples = made_up()
    samples["core_cycles_per_tick"] = [1.0, 1.1, 1.2, 1.3]
    samples["huge_bytes_lost"] = HUGE
    host = MeasuredHost("CPU", "id", "2026-11-23", "6.18", "0.1", virtualised=True)
    found = evaluate(samples, host=host, interrupted_by=2)
    notes = " ".join(found.calibration.notes)
    assert found.calibration.notes[0] == "Interrupted after 5 rounds."
    assert "also walks the host's tables" in notes
    assert "clock varied between 1.03 and 1.27" in notes
    assert "2 MiB of the 2 MiB pages were split" in notes
    assert ", a virtual machine: " in headline(found.calibration)


def test_an_evaluation_is_written_and_read(tmp_path: Path) -> None:
    found = figures(made_up())
    read = parse_calibration(calibration_toml(found), tmp_path)
    assert read.tlb == found.tlb
    assert read.entry_bytes == found.entry_bytes
    assert set(read.core) == set(CORE_FIGURES)
    assert read.core["reorder_buffer"].low == found.core["reorder_buffer"].low
    assert read.random_read_cycles[256 * MIB].median == MEMORY_CYCLES + COMPUTED
    assert {size: spread.median for size, spread in read.lone_read_cycles.items()} == {
        8 * MIB: MEMORY_CYCLES / 2 + COMPUTED
    }
    assert read.paced_load_cycles == found.paced_load_cycles
    assert read.displaced_load_cycles == found.displaced_load_cycles
    assert read.pause_cycles == pytest.approx(1000 * RATIO)
    assert read.host == found.host
    assert list(read.walk_cycles) == [SMALL, HUGE]
    parallel = read.parallel_load_cycles[256 * MIB]
    assert {chases: spread.median for chases, spread in parallel.items()} == {
        1: 300,
        4: 75,
        8: 37.5,
        16: 37.5,
    }
    # A line of 64 bytes in 4 ticks, 2 G ticks a second.
    assert read.stream_bytes_per_second["read"].median == 32e9
    assert {size: spread.median for size, spread in read.fault_cycles.items()} == {SMALL: 1250}


def test_memory_that_the_host_took_back_costs_more_at_first_touches() -> None:
    """Seven samples of two pages are fast, and a fast one lies between slow ones; 1000 ticks are
    usual.
    """
    samples = made_up()
    samples["faults"][1]["ticks"] = [1000.0] * ROUNDS
    ticks = [1100.0] * 7 + [40_000.0] * 3 + [1000.0] + [50_000.0] * 5
    samples["later_faults"] = [
        {"page_bytes": SMALL, "pages": 512, "ticks": [1500.0] * 16},
        {"page_bytes": HUGE, "pages": 2, "ticks": ticks},
    ]
    found = figures(samples)
    assert found.kept_free_bytes == {HUGE: 28 * MIB}
    assert list(found.returned_fault_cycles) == [HUGE]
    assert found.returned_fault_cycles[HUGE].median == 50_000 * RATIO
    expected = "a first touch of a 2 MiB page of such memory takes 25 microseconds"
    assert any(expected in note for note in found.notes)
    read = parse_calibration(calibration_toml(found), Path("calibration.toml"))
    assert read.kept_free_bytes == found.kept_free_bytes
    assert read.returned_fault_cycles[HUGE].median == 50_000 * RATIO
    # A single slow sample is taken for an interrupt, not for an effect of the host.
    samples["later_faults"][1]["ticks"] = [1500.0] * 15 + [9000.0]
    assert figures(samples).returned_fault_cycles == {}


def cache_files(root: Path) -> None:
    caches = (("1", "Data", "32K"), ("1", "Instruction", "32K"), ("2", "Unified", "512K"))
    for index, (level, kind, size) in enumerate(caches):
        place = root / f"sys/devices/system/cpu/cpu0/cache/index{index}"
        place.mkdir(parents=True)
        for name, text in (("level", level), ("type", kind), ("size", size)):
            (place / name).write_text(f"{text}\n")
    (root / "sys/devices/system/cpu/cpu0/cache/index0/ways_of_associativity").write_text("8\n")


def cpu_files(root: Path) -> None:
    """The files of a Zen 3."""
    (root / "proc").mkdir()
    (root / "proc/cpuinfo").write_text(
        "vendor_id : AuthenticAMD\ncpu family : 25\nmodel : 1\nmodel name : EPYC\n"
    )


def test_latencies_are_shown_by_cache(tmp_path: Path) -> None:
    found = figures(made_up())
    cache_files(tmp_path)
    assert data_caches(tmp_path) == [
        DataCache("L1", 32 * KIB, 8),
        DataCache("L2", 512 * KIB, None),
    ]
    rows = latency_grid(found, tmp_path).rows
    assert [row[:2] for row in rows] == [
        ("L1", "16 KiB"),
        ("L2", "128 KiB"),
        ("memory", "256 MiB"),
    ]
    assert rows[0][2:] == ("4.0 (4.0–4.0)", "1.6 (1.6–1.6)")
    assert [row[0] for row in latency_grid(found, tmp_path / "none").rows] == ["unknown"]


def test_the_memory_is_a_third_of_what_is_available(tmp_path: Path) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/meminfo").write_text("MemTotal: 99 kB\nMemAvailable: 3145728 kB\n")
    assert default_memory(tmp_path) == GIB
    group = tmp_path / "sys/fs/cgroup/user"
    group.mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text("0::/user\n")
    (group / "memory.current").write_text(f"{100 * MIB}\n")
    (group / "memory.max").write_text("max\n")
    assert default_memory(tmp_path) == GIB
    (group / "memory.max").write_text(f"{400 * MIB}\n")
    assert default_memory(tmp_path) == 100 * MIB
    (tmp_path / "proc/meminfo").write_text(f"MemAvailable: {1 << 30} kB\n")
    (group / "memory.max").write_text("max\n")
    assert default_memory(tmp_path) == 8 * GIB


def waits_in(dram: dict[str, Any], load_cycles: float) -> float:
    """Cycles that a random load waits for a refresh and for a row to close."""
    every, banks = dram["refresh_every_cycles"], dram["channels"] * dram["banks"]
    # A row is open if one of the loads since the last refresh has opened it.
    loads = [every / load_cycles * (step + 0.5) / 1000 for step in range(1000)]
    opened = sum(1 - math.exp(-number / banks) for number in loads) / len(loads)
    refreshes = dram["refresh_cycles"] ** 2 / (2 * every)
    return float(dram["precharge_cycles"] * opened + refreshes)


def test_the_machine_file_has_the_measured_values(tmp_path: Path) -> None:
    cache_files(tmp_path)
    cpu_files(tmp_path)
    place = tmp_path / "machine.toml"
    place.write_text(machine_toml(figures(made_up()), tmp_path))
    found, preset = machine(place), machine("zen3")
    # Eight chases take an eighth of the time, and more no less.
    assert found["core"]["pipeline"]["outstanding"]["l1d"] == 8
    # 202 instructions are surely under way, where the preset has 256; 5 walks, where it has 6.
    assert found["core"]["pipeline"]["reorder_buffer"] == 204
    assert found["core"]["pipeline"]["store_queue"] == 42
    assert (found["walker"]["walkers"], found["walker"]["window_instructions"]) == (5, 204)
    # 64 entries of the first level are the preset's; its 2048 of the second, too.
    assert found["tlb"]["l2"]["main"]["entries"] == preset["tlb"]["l2"]["main"]["entries"] == 2048
    assert found["cache"]["l1d"]["bytes"] == "32KiB"
    # 256 MiB in 2 MiB pages are 128 entries: half of the loads hit the second level, at 7 cycles.
    dram = found["dram"]
    memory = MEMORY_CYCLES - HIT / 2
    memory -= waits_in(dram, memory)
    assert found["cache"]["memory_latency_cycles"] == round(memory)
    clock = {"core.pipeline.frequency_ghz": found["core"]["pipeline"]["frequency_ghz"]}
    assert dram == machine("zen3", clock)["dram"] != preset["dram"]
    assert "host" not in found
    # Entries that are not between low and high of what was measured are replaced.
    place.write_text(machine_toml(figures(made_up(first=96)), tmp_path))
    assert [
        array["entries"]
        for name, array in machine(place)["tlb"]["l1d"].items()
        if isinstance(array, dict)
    ] == [96]


def test_a_larger_window_than_the_preset_has_does_not_count(tmp_path: Path) -> None:
    cache_files(tmp_path)
    cpu_files(tmp_path)
    core = {"reorder_buffer": Spread(380, 384, 388), "load_queue": Spread(130, 135, 137)}
    place = tmp_path / "machine.toml"
    place.write_text(machine_toml(replace(figures(made_up()), core=core), tmp_path))
    pipeline = machine(place)["core"]["pipeline"]
    assert pipeline["reorder_buffer"] == machine("zen3")["core"]["pipeline"]["reorder_buffer"] < 380
    assert pipeline["load_queue"] == 135


LAST_HIT, LAST_MISS = 50.0, 450.0
"""Cycles of a load that the last cache serves, and of one that memory serves."""


def last_cache_files(root: Path, mebibytes: int = 16) -> None:
    """A last cache of this size and 16 ways."""
    cache_files(root)
    last = root / "sys/devices/system/cpu/cpu0/cache/index3"
    last.mkdir()
    size = f"{mebibytes}M"
    texts = {"level": 3, "type": "Unified", "size": size, "ways_of_associativity": 16}
    for name, text in texts.items():
        (last / name).write_text(f"{text}\n")


def loads(held: float, extra: float = 0) -> dict[int, Spread]:
    """Cycles of loads by working set, where the last cache holds `held` MiB of those larger than
    4 MiB, and each load takes `extra` cycles more.
    """
    cycles = {
        size * MIB: LAST_HIT
        if size <= max(4, held)
        else LAST_MISS - (LAST_MISS - LAST_HIT) * held / size
        for size in (2, 4, 8, 16, 32, 64, 128)
    }
    all_cycles = {16 * KIB: 4.0, **cycles}
    return {size: Spread(*[one + extra] * 3) for size, one in all_cycles.items()}


@pytest.mark.parametrize("is_random", [True, False])
@pytest.mark.parametrize("own", [6, 15])
def test_the_share_of_the_last_cache_is_measured(tmp_path: Path, own: int, is_random: bool) -> None:
    """A load over W bytes hits the last cache with the share of its own bytes in W: random reads
    where they were measured, however little of it the chases hold, which come back to a line late.
    Lone reads, which would show how fast others fill the rest, were not measured.
    """
    last_cache_files(tmp_path)
    measured = replace(
        figures(made_up(huge_pages=0)),
        latency_cycles=loads(1 if is_random else own),
        random_read_cycles=loads(own, COMPUTED) if is_random else {},
        lone_read_cycles={},
    )
    place = tmp_path / "machine.toml"
    place.write_text(machine_toml(measured, tmp_path))
    found = machine(place)
    llc = found["cache"]["llc"]
    assert (llc["bytes"], llc["ways"]) == ((f"{own}MiB", own) if own == 6 else ("16MiB", 16))
    latency_cycles = round(LAST_MISS - waits_in(found["dram"], LAST_MISS))
    assert found["cache"]["memory_latency_cycles"] == latency_cycles


def test_a_last_cache_that_others_fill_may_be_larger_than_all_working_sets(tmp_path: Path) -> None:
    """Linux reports 256 MiB, of which random reads hold 14. Chases hold 1 MiB, and take longer also
    over the 2 MiB by which the latency of the cache is measured.
    """
    last_cache_files(tmp_path, 256)
    chases = loads(1)
    measured = replace(
        figures(made_up(huge_pages=0)),
        latency_cycles={**chases, 2 * MIB: Spread(150, 150, 150)},
        random_read_cycles=loads(14, COMPUTED),
        lone_read_cycles={},
    )
    place = tmp_path / "machine.toml"
    place.write_text(machine_toml(measured, tmp_path))
    found = machine(place)
    assert (found["cache"]["llc"]["bytes"], found["cache"]["llc"]["ways"]) == ("16MiB", 1)
    assert "measured: 14 MiB of 256 MiB" in place.read_text()
    assert found["cache"]["llc"]["latency_cycles"] == LAST_HIT
    latency_cycles = round(LAST_MISS - waits_in(found["dram"], LAST_MISS))
    assert found["cache"]["memory_latency_cycles"] == latency_cycles
    assert ("memory", 128 * MIB) in cache_levels(measured, tmp_path)
    slow = {**measured.latency_cycles, 2 * MIB: chases[128 * MIB]}
    assert ("memory", 128 * MIB) in cache_levels(replace(measured, latency_cycles=slow), tmp_path)


@pytest.mark.parametrize("walk", [0.0, 60.0])
def test_a_last_cache_that_holds_all_working_sets_is_the_programs(
    tmp_path: Path, walk: float
) -> None:
    """Loads of the largest may take twice as long only for their walks."""
    last_cache_files(tmp_path, 256)
    all_hit = {16 * KIB: 4.0, **{size * MIB: LAST_HIT for size in (2, 4, 8, 16, 32, 64, 128)}}
    # 2048 entries cover 8 MiB in 4 KiB pages.
    walking = {size: walk * max(0, 1 - 8 * MIB / size) for size in all_hit}
    cycles = {size: Spread(*[one + walking[size]] * 3) for size, one in all_hit.items()}
    measured = replace(
        figures(made_up(huge_pages=0)),
        latency_cycles=cycles,
        random_read_cycles={
            size: Spread(*[one.median + COMPUTED] * 3) for size, one in cycles.items()
        },
        lone_read_cycles={},
        entry_bytes={HUGE: 4 * KIB},
        walk_cycles_by_footprint={HUGE: {MIB: Spread(walk, walk, walk)}},
        tlb={4 * KIB: Reach(None, Spread(2048, 2048, 2048))},
    )
    place = tmp_path / "machine.toml"
    place.write_text(machine_toml(measured, tmp_path))
    assert machine(place)["cache"]["llc"]["bytes"] == "256MiB"
    assert "memory" not in dict(cache_levels(measured, tmp_path))


def test_a_measured_walk_is_too_long_where_its_own_lines_displace_the_page_table(
    tmp_path: Path,
) -> None:
    """The second cache has 512 KiB, so that walks count up to 4096 entries of 4 KiB, or 16 MiB."""
    last_cache_files(tmp_path, 256)
    walks = {8 * MIB: 20.0, 16 * MIB: 20.0, 64 * MIB: 300.0}
    # All loads but those of 8 MiB walk.
    share = {size: max(0.0, 1 - 8 * MIB / size) for size in loads(14)}
    measured = replace(
        figures(made_up(huge_pages=0)),
        latency_cycles=loads(1),
        random_read_cycles={
            size: Spread(*[one.median + 20 * share[size]] * 3)
            for size, one in loads(14, COMPUTED).items()
        },
        lone_read_cycles={},
        entry_bytes={HUGE: 4 * KIB},
        walk_cycles_by_footprint={
            HUGE: {size: Spread(one, one, one) for size, one in walks.items()}
        },
        tlb={4 * KIB: Reach(None, Spread(2048, 2048, 2048))},
    )
    place = tmp_path / "machine.toml"
    place.write_text(machine_toml(measured, tmp_path))
    found = machine(place)
    latency_cycles = round(LAST_MISS - waits_in(found["dram"], LAST_MISS))
    assert found["cache"]["memory_latency_cycles"] == pytest.approx(latency_cycles, abs=1)


@pytest.mark.parametrize("held", [2, 5])
def test_others_fill_the_last_cache_where_slow_reads_hold_less(tmp_path: Path, held: int) -> None:
    """Reads that faster ones came before hold 6 of 16 MiB. Where lone reads hold 2 of 8 MiB, a
    third of the 8 MiB is read again before the cache was filled once. How fast the faster ones are
    was not measured.
    """
    last_cache_files(tmp_path)
    lone = {8 * MIB: loads(held, COMPUTED)[8 * MIB]}
    # All in the cache, and nothing in it: neither says how much it holds.
    lone |= {size * MIB: loads(0, COMPUTED)[size * MIB] for size in (4, 64)}
    measured = replace(
        figures(made_up(huge_pages=0)),
        latency_cycles=loads(1),
        random_read_cycles=loads(6, COMPUTED),
        lone_read_cycles=lone,
        parallel_load_cycles={},
    )
    place = tmp_path / "machine.toml"
    place.write_text(machine_toml(measured, tmp_path))
    caches = machine(place)["cache"]
    if held == 5:
        assert "others_fill_every_cycles" not in caches
        assert (caches["llc"]["bytes"], caches["llc"]["ways"]) == ("6MiB", 6)
        return
    assert (caches["llc"]["bytes"], caches["llc"]["ways"]) == ("16MiB", 16)
    lines = 8 * MIB / 64
    turn = -math.log(1 - 2 / 8) * (350 + COMPUTED) * lines
    assert caches["others_fill_every_cycles"] == round(turn / (14 * MIB / 64))


@pytest.mark.parametrize("kept", [4, 0])
def test_others_may_keep_a_part_of_the_last_cache(tmp_path: Path, kept: int) -> None:
    """Others keep a part of 16 MiB, and fill a line of the rest every 100 cycles. Fast reads, one
    every 40 cycles, then hold 100 of 140 lines of the rest. Lone reads over 8 MiB hit where a line
    comes back before the rest is filled once.
    """
    last_cache_files(tmp_path)
    every, between, lines, low, high = 100.0, 40.0, 8 * MIB / 64, 0.0, 1.0
    while high - low > 1e-9:
        hits = (low + high) / 2
        cycles = LAST_MISS - (LAST_MISS - LAST_HIT) * hits + COMPUTED
        filled = lines * hits - math.log(1 - hits) * cycles * lines / every
        low, high = (hits, high) if filled < (16 - kept) * MIB / 64 else (low, hits)
    measured = replace(
        figures(made_up(huge_pages=0)),
        latency_cycles=loads(1),
        random_read_cycles=loads((16 - kept) * every / (every + between), COMPUTED),
        lone_read_cycles={8 * MIB: loads(8 * low, COMPUTED)[8 * MIB]},
        parallel_load_cycles={128 * MIB: {16: Spread(between, between, between)}},
    )
    place = tmp_path / "machine.toml"
    place.write_text(machine_toml(measured, tmp_path))
    caches = machine(place)["cache"]
    assert caches["others_fill_every_cycles"] == pytest.approx(every, abs=1)
    assert (caches["llc"]["bytes"], caches["llc"]["ways"]) == (f"{16 - kept}MiB", 16 - kept)


def test_a_latency_too_short_by_noise_becomes_one_cycle(tmp_path: Path) -> None:
    cache_files(tmp_path)
    # Half of the time of a hit in the second-level TLB alone: less than the machine can take.
    cycles = Spread(HIT / 2, HIT / 2, HIT / 2)
    measured = replace(figures(made_up()), latency_cycles={16 * KIB: cycles, 256 * MIB: cycles})
    place = tmp_path / "machine.toml"
    place.write_text(machine_toml(measured, tmp_path))
    assert machine(place)["cache"]["memory_latency_cycles"] == 1


def test_memory_of_the_machine_begins_as_a_snapshot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = MachineFile(str(tmp_path / "mine.toml"))
    file.take_snapshot()
    assert file.memory is not None
    file.write(figures(made_up()))
    assert read_snapshot(tmp_path / "mine.octmem").summary == file.memory.summary
    # The snapshot is seen from the machine's file, not from where it is used.
    monkeypatch.chdir(tmp_path.parent)
    name = f"{tmp_path.name}/mine.toml"
    memory = machine(name)["memory"]
    assert byte_size(memory["bytes"]) == file.memory.summary["simulated_bytes"]
    assert memory["fragmentation"]["file"] == f"{tmp_path.name}/mine.octmem"
    # A machine that stands alone may lie elsewhere.
    copy = tmp_path / "elsewhere" / "copy.toml"
    copy.parent.mkdir()
    copy.write_text(resolve_machine(name, []).toml)
    expected = {**memory["fragmentation"], "file": str(tmp_path / "mine.octmem")}
    assert machine(copy)["memory"]["fragmentation"] == expected
    # An existing snapshot alone is not overwritten, either.
    (tmp_path / "mine.toml").unlink()
    with pytest.raises(UsageError, match=r"mine\.octmem` exists; --force overwrites it"):
        MachineFile(str(tmp_path / "mine.toml"))


def test_a_machine_whose_snapshot_does_not_fit_its_disk_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, other = tmp_path / "mine.toml", tmp_path / "other"
    other.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(other))
    file = MachineFile(str(place))
    file.take_snapshot()
    write_bytes = Path.write_bytes

    def fits_elsewhere(path: Path, content: bytes) -> int:
        if other not in path.parents:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write_bytes(path, content)

    monkeypatch.setattr(Path, "write_bytes", fits_elsewhere)
    with pytest.raises(CannotRun, match="No space left on device; the result is in `"):
        file.write(figures(made_up()))
    (kept,) = other.iterdir()
    assert read_snapshot(kept / "mine.octmem").summary == file.memory.summary
    assert "snapshot" in place.read_text()


def test_the_measured_machine_has_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    refused = octavo("machines", "host")
    assert refused.exit_code == 2
    assert "run `octavo calibrate`" in refused.stderr
    (tmp_path / "octavo").mkdir()
    (tmp_path / "octavo/machine.toml").write_text('extends = "zen3"\nname = "host"\n')
    assert machine("host")["name"] == "host"
    assert octavo("machines", "host").exit_code == 0


def test_a_busy_machine_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibrating, "busy_processors", lambda seconds, root: 1.52)
    refused = octavo("calibrate", "--quick", "-o", str(tmp_path / "new.toml"))
    assert refused.exit_code != 0
    assert "other work keeps 1.5 of " in refused.stderr
    assert "--busy" in refused.stderr
    assert not (tmp_path / "new.toml").exists()


class FakeJob:
    """A measurement that may have been stopped."""

    def __init__(self, rounds: int) -> None:
        self._rounds = rounds

    def result(self) -> str:
        return json.dumps({**made_up(), "rounds": self._rounds})


@pytest.mark.parametrize(("rounds", "signal"), [(5, None), (3, 2), (2, 2), (2, None)])
def test_an_interrupted_measurement_is_kept_where_it_is_enough(
    monkeypatch: pytest.MonkeyPatch, rounds: int, signal: int | None
) -> None:
    monkeypatch.setattr(calibrating, "start_calibration", lambda **options: FakeJob(rounds))
    monkeypatch.setattr(calibrating, "see_through", lambda *words, **options: signal)
    if rounds == 2:
        error = Interrupted if signal else CannotRun
        with pytest.raises(error, match=r"before enough was measured|only 2 rounds"):
            measure(memory_bytes=GIB, busy=True)
        return
    assert measure(memory_bytes=GIB, busy=True).interrupted_by == signal


def test_wrong_sizes_are_refused(tmp_path: Path) -> None:
    out = str(tmp_path / "new.toml")
    refused = octavo("calibrate", "-o", out, "--memory", "much")
    assert refused.exit_code == 2
    assert "`much` is not a size" in refused.stderr
    refused = octavo("calibrate", "-o", out, "--memory", "1MiB")
    assert refused.exit_code == 2
    assert "1 MiB of memory are too few: give --memory at least 32 MiB." in refused.stderr
    assert not Path(out).exists()


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any], str]:
    """One short measurement of this machine: its file, its JSON and its text."""
    place = tmp_path_factory.mktemp("calibration")
    file, document = place / "quick.toml", place / "quick.json"
    done = octavo(
        "calibrate",
        "--quick",
        "--busy",
        "--memory",
        "64MiB",
        "-o",
        str(file),
        "--json",
        str(document),
    )
    assert done.exit_code == 0, done.stderr
    assert done.stdout == ""
    return file, json.loads(document.read_text()), done.stderr


def test_a_real_measurement_is_written_and_accepted_here(
    quick: tuple[Path, dict[str, Any], str],
) -> None:
    file, document, shown = quick
    notes: list[str] = []
    found = load_calibration(file, note=notes.append)
    assert found is not None
    assert notes == []
    assert document["schema"] == "octavo/calibration/1"
    assert document["host"]["cpu_id"] == found.host.cpu_id == describe().cpu_id
    assert found.cycles_per_second > 0
    assert f"Written to {file}." in shown
    assert headline(found) in shown
    for note in found.notes:
        assert note in shown


def test_a_real_measurement_has_every_sample(quick: tuple[Path, dict[str, Any], str]) -> None:
    samples = quick[1]["samples"]
    assert samples["rounds"] >= 3
    small, huge, gigantic = samples["memory"]
    assert [one["page_bytes"] for one in samples["memory"]] == [SMALL, HUGE, GIB]
    assert small["obtained_bytes"] == small["wanted_bytes"] == 16 * MIB
    assert (huge["obtained_bytes"] < huge["wanted_bytes"]) == (huge["refusal"] is not None)
    assert (gigantic["means"] is None) == (gigantic["refusal"] is not None)
    latency = samples["latency"]
    assert [one["bytes"] for one in latency] == sorted(one["bytes"] for one in latency)
    assert all(min(one["ticks"]) > 0 for one in latency)
    if not huge["obtained_bytes"]:
        assert samples["spread"] == samples["dense"] == []
        return
    assert [one["bytes"] for one in samples["dense"]] == [8 * MIB, 16 * MIB]
    for one in samples["dense"]:
        for times in (one["small"], one["huge"]):
            assert min(*times["dependent"], *times["overlapped"]) > 0
    pages = [one["pages"] for one in samples["spread"] if one["page_bytes"] == SMALL]
    assert pages[0] == 8
    assert pages[-1] == 4096
    for one in samples["spread"]:
        kinds = ("dependent", "overlapped", "control_dependent", "control_overlapped")
        assert all(len(one[kind]) >= samples["rounds"] for kind in kinds)
        assert all(min(one[kind]) > 0 for kind in kinds)


def test_measured_figures_are_in_order(quick: tuple[Path, dict[str, Any], str]) -> None:
    found = load_calibration(quick[0])
    assert found is not None
    loads = (*found.load_cycles.get(SMALL, {}).values(), *found.load_cycles.get(HUGE, {}).values())
    for spread in (*found.latency_cycles.values(), *found.walk_cycles.values(), *loads):
        assert 0 <= spread.low <= spread.median <= spread.high
    for reach in found.tlb.values():
        if reach.first is not None and reach.second is not None:
            assert reach.first.median < reach.second.median


def test_a_file_that_exists_is_kept(quick: tuple[Path, dict[str, Any], str]) -> None:
    file = quick[0]
    before = file.read_text()
    refused = octavo("calibrate", "--quick", "-o", str(file))
    assert refused.exit_code == 2
    assert refused.stderr == f"octavo: `{file}` exists; --force overwrites it.\n"
    assert file.read_text() == before


def test_quiet_prints_nothing_and_replaces_the_default_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fake(**options: object) -> Measurement:
        return evaluate(made_up(), host=describe())

    monkeypatch.setattr("octavo.cli.calibrate.measure", fake)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    done = octavo("calibrate", "-q", "--busy")
    assert (done.exit_code, done.stdout, done.stderr) == (0, "", "")
    found = load_calibration()
    assert found is not None
    again = octavo("calibrate", "--busy")
    assert f", in place of that of {found.host.measured_at}." in again.stderr
    assert "4 KiB" in again.stderr


def test_an_interrupted_command_writes_a_partial_result(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(
        "octavo.cli.calibrate.measure",
        lambda **options: evaluate(made_up(), host=describe(), interrupted_by=2),
    )
    file = tmp_path / "partial.toml"
    done = octavo("calibrate", "--busy", "-o", str(file), "--json", str(tmp_path / "partial.json"))
    assert done.exit_code == 130
    assert "Interrupted after 5 rounds." in done.stderr
    found = load_calibration(file)
    assert found is not None
    assert "Interrupted after 5 rounds." in found.notes
    assert json.loads((tmp_path / "partial.json").read_text())["partial"] is True


def test_too_little_available_memory_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibrating, "default_memory", lambda: MIB)
    with pytest.raises(UsageError, match="1 MiB of memory are too few"):
        measure()
