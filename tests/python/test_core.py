"""The extension `octavo._core` by itself: results and errors of its functions."""

from __future__ import annotations

import json
import struct
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from octavo import _core
from octavo._core import Analysis, OctavoError, Touched, Trace, TraceRun

if TYPE_CHECKING:
    from octavo._core import TraceJob

PAGE = 4096
NATIVE = _core.trace_formats()[0]["name"]
FETCH, LOAD, STORE, MODIFY = range(4)

Row = tuple[int, int, int]
"""Kind, address, size."""

ROWS: list[Row] = [
    (FETCH, 0x40_0000, 4),
    (LOAD, 1 * PAGE, 8),
    (FETCH, 0x40_0104, 4),
    (STORE, 2 * PAGE, 8),
    (FETCH, 0x40_0208, 2),
    (LOAD, 1 * PAGE + 8, 4),
    (FETCH, 0x40_030A, 4),
    (MODIFY, 3 * PAGE, 2),
]


def packed(rows: Sequence[Row]) -> tuple[bytes, bytes, bytes]:
    kinds, addresses, sizes = zip(*rows, strict=True)
    count = len(rows)
    return (
        bytes(kinds),
        struct.pack(f"<{count}Q", *addresses),
        struct.pack(f"<{count}H", *sizes),
    )


def trace_of(rows: Sequence[Row]) -> Trace:
    trace, feed = _core.open_columns("rows")
    assert feed.push(*packed(rows), None)
    feed.close()
    return trace


def analysed(analysis: Analysis[Any], **limits: Any) -> Any:
    """The result of an analysis of the rows above."""
    scope = {"skip_instructions": 0, "max_instructions": None, "between_marks": False, **limits}
    run = TraceRun(trace_of(ROWS), analysis=analysis, **scope)
    assert run.start() == 0
    while run.wait(10)["running"]:
        pass
    return run.result()


def done(job: TraceJob[Any]) -> Any:
    while job.wait(10)["running"]:
        pass
    return job.result()


def study(**choices: Any) -> Analysis[Any]:
    levels = [{"fetch_entries": 1, "data_entries": 2}, {"fetch_entries": 8, "data_entries": 8}]
    allowed: dict[str, Any] = {"page_sizes": [PAGE], "levels": levels, "layout": "as-traced"}
    return Analysis.study(**{**allowed, **choices})


def sim(**choices: Any) -> Analysis[Any]:
    allowed: dict[str, Any] = {
        "machine": "skylake",
        "settings": ["memory.bytes=64MiB"],
        "designs": ["base4k"],
        "layout": "as-traced",
        "warm_up_instructions": 0,
        "fast_forward": False,
        "interval_instructions": None,
        "checked": True,
        "timing": "additive",
        "processes": "apart",
    }
    return Analysis.sim(**{**allowed, **choices})


def test_page_sizes_are_powers_of_two_from_4_kib_to_1_gib() -> None:
    assert _core.parse_page_size("64KiB") == 65536
    assert _core.parse_page_size("1GiB") == 1 << 30
    for text in ("2KiB", "2GiB", "6KiB", "", "big"):
        with pytest.raises(ValueError, match="power of two"):
            _core.parse_page_size(text)


def test_study_counts_each_level_and_each_page() -> None:
    result, facts = analysed(study())
    assert facts["exact"]
    assert facts["has_instructions"]
    (process,) = result["processes"]
    # A modify is a load and a store.
    counted = {name: process[name] for name in ("instructions", "loads", "stores", "modifies")}
    assert counted == {"instructions": 4, "loads": 3, "stores": 2, "modifies": 1}
    assert process["references"] == 9
    curves = [curve for region in process["regions"] for curve in region["curves"]]
    misses = {
        (stream, level): sum(
            curve["misses"]
            for curve in curves
            if (curve["stream"], curve["level"]) == (stream, level)
        )
        for stream in ("fetch", "data")
        for level in (1, 2)
    }
    # Data pages 1, 2, 1, 3 in two entries and in eight.
    assert misses == {("fetch", 1): 1, ("fetch", 2): 1, ("data", 1): 3, ("data", 2): 3}


def test_limits_are_in_instructions() -> None:
    result, _ = analysed(study(), skip_instructions=1, max_instructions=2)
    (process,) = result["processes"]
    assert (process["instructions"], process["loads"], process["stores"]) == (2, 1, 1)


@pytest.mark.parametrize(
    ("choices", "words"),
    [
        ({"page_sizes": []}, "no page size"),
        ({"page_sizes": [6000]}, "power of two from 4 KiB to 1 GiB"),
        ({"levels": []}, "1 to 4 TLB levels"),
        ({"levels": [{"fetch_entries": 0, "data_entries": 1}]}, "entries `0`: give 1 to 1048576"),
        ({"layout": "linux"}, "layout `linux`: give native or as-traced"),
    ],
)
def test_study_names_the_allowed_values(choices: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        study(**choices)


def test_machines_that_a_study_cannot_model_are_refused() -> None:
    _core.check_machine_tlbs("skylake")
    with pytest.raises(OctavoError, match=r"`tlb\.l1` is `one for code and data`"):
        _core.check_machine_tlbs("r3000")
    with pytest.raises(OctavoError, match="did you mean `skylake`"):
        study(machine="skylak")


def test_simulation_counts_the_references_of_its_design() -> None:
    analysis = sim()
    assert analysis.machine is not None
    config, digest = analysis.machine
    _, expected, _ = _core.resolve_machine("skylake", ["memory.bytes=64MiB"])
    assert (digest, json.loads(config)["name"]) == (expected, "skylake")
    assert study().machine is None
    result, _ = analysed(analysis)
    (process,) = result["processes"]
    (machine,) = process["machines"]
    assert process["instructions"] == 4
    counters = {(component, name): value for component, name, value in machine["counters"]}
    assert counters["os", "faults"] == 4


@pytest.mark.parametrize(
    ("choices", "words"),
    [
        ({"designs": ["base4"]}, "did you mean `base4k`"),
        ({"designs": ["conventional+thp:enabled=no"]}, "give always or madvise"),
        ({"machine": "zen33"}, "did you mean `zen3`"),
        ({"settings": ["memory.bytes=0"]}, "memory.bytes"),
        ({"processes": "together"}, "give apart, asid or flush"),
    ],
)
def test_simulations_name_the_allowed_values(choices: dict[str, Any], words: str) -> None:
    with pytest.raises((ValueError, OctavoError), match=words):
        sim(**choices)


def test_other_threads_run_while_machines_are_made() -> None:
    ticks: list[float] = []
    is_made = threading.Event()

    def tick() -> None:
        while not is_made.wait(0.001):
            ticks.append(time.monotonic())

    thread = threading.Thread(target=tick)
    thread.start()
    holes = "{kind='holes',portion=1.0,fraction=0.5,layout='dispersed',holes='immovable'}"
    settings = ["memory.bytes=128GiB", f"memory.fragmentation={holes}"]
    began = time.monotonic()
    sim(settings=settings)
    ended = time.monotonic()
    is_made.set()
    thread.join()
    # With the interpreter's lock, the thread would run once at the most.
    assert sum(began < at < ended for at in ticks) > 3


def test_resolved_machine_is_canonical_and_names_its_setting() -> None:
    text, digest, toml = _core.resolve_machine("skylake", ["core.base_cpi=0.5"])
    assert json.loads(text)["core"]["base_cpi"] == 0.5
    assert len(digest) == 32
    assert "base_cpi = 0.5  # --set" in toml
    with pytest.raises(OctavoError, match=r"core\.base_cpi = -1: give a number from 0.001 to 1000"):
        _core.resolve_machine("skylake", ["core.base_cpi=-1"])


def test_every_name_is_listed_once() -> None:
    policies = [name for name, _, _ in _core.policies()]
    designs = [name for name, _ in _core.designs()]
    formats = [known["name"] for known in _core.trace_formats()]
    for names in (policies, designs, formats, _core.machine_presets()):
        assert names
        assert len(set(names)) == len(names)
    settings = dict(next(keys for name, _, keys in _core.policies() if name == "thp"))
    assert settings["enabled"] == "always"
    assert settings["max_ptes_none"] == "511"


def test_listing_gives_references_with_their_instruction() -> None:
    entries, fault = trace_of(ROWS).list(entries=3, from_instruction=1)
    assert fault is None
    listed = [
        (entry["instruction"], entry["kind"], entry["address"], entry["size"]) for entry in entries
    ]
    assert listed == [
        (1, "fetch", 0x40_0104, 4),
        (1, "store", 2 * PAGE, 8),
        (2, "fetch", 0x40_0208, 2),
    ]


def test_columns_survive_a_conversion(tmp_path: Path) -> None:
    native = str(tmp_path / "rows.oct")
    converted = done(_core.start_convert(trace_of(ROWS), native, format=NATIVE, about="{}"))
    assert (converted["instructions"], converted["fault"]) == (4, None)
    assert _core.looks_like_a_trace(native)
    overview = _core.trace_overview(native)
    assert overview is not None
    assert overview["is_whole"]
    assert [stream["instructions"] for stream in overview["streams"]] == [4]
    job, drain = _core.start_convert_to_columns(Trace.open(native), "rows")
    blocks = []
    while (block := drain.next()) is not None:
        blocks.append(block)
    done(job)
    kinds, addresses, sizes, _ = (b"".join(column) for column in zip(*blocks, strict=True))
    assert (kinds, addresses, sizes) == packed(ROWS)


def test_pushed_columns_are_whole_numbers_and_of_one_length() -> None:
    kinds, addresses, sizes = packed(ROWS)
    trace, feed = _core.open_columns("rows")
    for columns in ((kinds, addresses[1:], sizes), (kinds, addresses, sizes[1:])):
        with pytest.raises(ValueError, match="in the middle of a number"):
            feed.push(*columns, None)
    feed.push(kinds[1:], addresses, sizes, None)
    _, fault = trace.list(entries=10)
    assert fault is not None


def test_errors_of_feeds_are_forwarded() -> None:
    trace, feed = _core.open_columns("rows")
    feed.fail("the file ends early")
    _, fault = trace.list(entries=10)
    assert fault is not None
    assert "the file ends early" in fault


def test_checks_and_surveys_count_what_they_read() -> None:
    checked = done(_core.start_check(trace_of(ROWS)))
    assert (checked["findings"], checked["fault"]) == ([], None)
    assert (checked["instructions"], checked["references"]) == (4, 9)
    survey = done(_core.start_survey(trace_of(ROWS)))
    (stream,) = survey["streams"]
    assert (stream["instructions"], stream["references"]) == (4, 9)


@pytest.mark.parametrize(
    "read",
    [
        Trace.open,
        _core.read_snapshot,
        lambda path: _core.start_convert(
            Trace.open(path), f"{path}.oct", format=NATIVE, about="{}"
        ),
    ],
)
def test_other_files_are_errors_with_their_names(
    tmp_path: Path, read: Callable[[str], object]
) -> None:
    missing, text = tmp_path / "missing", tmp_path / "text"
    text.write_text("no trace\n")
    for path in (missing, text):
        with pytest.raises(OctavoError, match=path.name):
            read(str(path))
    assert not _core.looks_like_a_trace(str(text))
    assert _core.trace_overview(str(text)) is None


def test_shared_pages_are_counted_once() -> None:
    def image(process: int, own: Sequence[int] = ()) -> tuple[int, list[Any]]:
        return process, [("file:/lib/x", 0, Touched(fetch=[0, 1], data=[1, 2], own=own))]

    again = _core.memory_counted_again([image(1), image(2)], [PAGE, 2 * PAGE])
    counted = {
        (footprint["stream"], footprint["page_size"]): footprint["touched_bytes"]
        for footprint in again
    }
    assert counted["all", PAGE] == 3 * PAGE
    assert counted["all", 2 * PAGE] == 2 * 2 * PAGE
    own = _core.memory_counted_again([image(1, [0, 1, 2]), image(2, [0, 1, 2])], [PAGE])
    assert all(footprint["touched_bytes"] == 0 for footprint in own)


def test_available_memory_is_the_kernels(tmp_path: Path) -> None:
    assert _core.available_memory(tmp_path) is None
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text("MemTotal: 2048 kB\nMemAvailable: 1024 kB\n")
    assert _core.available_memory(tmp_path) == 1 << 20
