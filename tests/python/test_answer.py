"""The answer to "which page size?" from pieces of advice that are based on page walks."""

import shlex
import sys
from typing import Any

import pytest

from octavo.actions.candidates import candidate_actions
from octavo.analysis.advice import Thresholds
from octavo.analysis.rows import family_of
from octavo.analysis.view import one_of_each_family
from octavo.base.huge_pages import read_huge_pages
from octavo.base.units import MIB
from octavo.runs.answer import Answer, answer_of
from octavo.runs.result import is_tried

Record = dict[str, Any]
BASE, HUGE = 4096, 2 * MIB
PROGRAM = ["server", "--port", "7 7"]


def item(stream: str, size: int, gain: tuple[float, float, float], **more: Any) -> Record:
    """A piece of advice on the whole program, or on the region that `more` names."""
    named = {"low": gain[0], "expected": gain[1], "high": gain[2]}
    return {
        "scope": "region" if "region" in more else "program",
        "stream": stream,
        "page_size": size,
        "usable_page_size": size,
        "reason": "gain" if size > BASE else "no-gain",
        "gain": named,
        "gain_page_size": HUGE,
        "growth_bytes": 0,
        "touched_bytes_base": 100 * MIB,
        "actions": [],
        **more,
    }


def act(kind: str, command: str, **more: str) -> Record:
    return {"kind": kind, "text": "", "command": command, **more}


def answer(
    *items: Record,
    program: list[str] | None = PROGRAM,
    walks: int = 1_000_000,
    growth: int = 1000 * MIB,
    sizes: tuple[int, ...] = (BASE, HUGE, 1024 * MIB),
    chains: dict[int, int] | None = None,
    counts_fitting: bool = True,
    is_server: bool = False,
    was_stopped: bool = False,
    tried: bool = True,
    seconds_a_page: float = 0.0,
    run_seconds: float | None = None,
    simulation: str = "",
) -> Answer:
    memory = {BASE: 100 * MIB, HUGE: 100 * MIB + growth}
    cost = "walk cost measured"
    return answer_of(
        items,
        "zen3",
        cost,
        program,
        Thresholds(),
        walks=walks,
        memory=memory,
        machine_sizes=sizes,
        chains=chains or {},
        counts_fitting=counts_fitting,
        is_server=is_server,
        was_stopped=was_stopped,
        is_tried=lambda action: tried,
        seconds_of_pages=lambda pages: pages * seconds_a_page,
        run_seconds=run_seconds,
        simulation=simulation,
    )


def test_pages_of_both_code_and_data_grow_once() -> None:
    both = [
        item(stream, HUGE, (0.02, 0.03, 0.04), growth_bytes=8 * MIB) for stream in ("fetch", "data")
    ]
    assert answer(*both).growth_bytes == 16 * MIB
    assert answer(*both, growth=10 * MIB).growth_bytes == 10 * MIB
    assert (
        "for up to 10 MiB (5.0%) more memory than in 4 KiB pages"
        in answer(*both, growth=10 * MIB).text
    )


def test_growth_is_a_bound_where_fitting_pages_are_not_known() -> None:
    """Of forked processes alone, such as the workers of a server in a phase of its run."""
    data = item("data", HUGE, (0.02, 0.03, 0.04), growth_bytes=8 * MIB)
    assert "for 8 MiB (8.0%) more memory" in answer(data).text
    assert "for up to 8 MiB (8.0%) more memory" in answer(data, counts_fitting=False).text


def test_one_piece_grows_by_no_more_than_all_memory() -> None:
    """Large pages of data that also contain code do not enlarge the memory of code."""
    data = item("data", HUGE, (0.02, 0.03, 0.04), growth_bytes=12 * MIB)
    code = item("fetch", BASE, (0, 0, 0))
    assert answer(code, data, growth=10 * MIB).growth_bytes == 10 * MIB
    assert answer(code, data, growth=14 * MIB).growth_bytes == 12 * MIB


def test_the_image_that_grows_most_counts_among_images_replaced_by_exec() -> None:
    heaps = [
        item(
            "data",
            HUGE,
            (0, 0.02, 0.04),
            region="heap",
            process=process,
            growth_bytes=growth * MIB,
        )
        for process, growth in ((0, 5), (1, 7), (1, 2), (2, 3))
    ]
    whole = [item("fetch", BASE, (0, 0, 0)), item("data", BASE, (0, 0.05, 0.1))]
    assert answer(*whole, *heaps, chains={0: 0, 1: 0, 2: 2}).growth_bytes == (7 + 2 + 3) * MIB


def test_the_reason_to_keep_small_pages_is_reported() -> None:
    little = [item(stream, BASE, (0.0, 0.004, 0.1)) for stream in ("fetch", "data")]
    assert answer(*little).text == (
        "Which page size? Keep 4 KiB: the gain expected on zen3 is too small; larger pages would "
        "save about 0.8% (0.0% to 20.0%) of the time (walk cost measured). Not certain: the high "
        "estimate is 20.0%; measure before you rule them out."
    )
    certain = [item(stream, BASE, (0.0, 0.004, 0.024)) for stream in ("fetch", "data")]
    assert "Not certain" not in answer(*certain).text
    assert answer(*little, walks=147).text == (
        "Which page size? Keep 4 KiB: no gain is expected on zen3, which has only 147 page walks "
        "here."
    )
    each = [item(stream, BASE, (0.0, 0.009, 0.1)) for stream in ("fetch", "data")]
    assert answer(*each).text == (
        "Which page size? Keep 4 KiB: neither code nor data alone gains 1% on zen3; larger pages "
        "for both would save about 1.8% (0.0% to 20.0%) of the time (walk cost measured). Not "
        "certain: the high estimate is 20.0%; measure before you rule them out."
    )
    few = [item(stream, BASE, (0.0, 0.02, 0.1), reason="no-gain") for stream in ("fetch", "data")]
    assert answer(*few, walks=12_000).text == (
        "Which page size? Keep 4 KiB: no gain is expected on zen3: larger pages would save fewer "
        "than 10.0 k page walks of code or data, which are not a reason to change anything."
    )


def test_data_of_the_whole_program_are_advised() -> None:
    source = act("madvise", "madvise(…);")
    switch = act("malloc", "A=1 server", undo="echo never > x")
    code = item("fetch", BASE, (0, 0, 0))
    data = item("data", HUGE, (0.02, 0.08, 0.19), growth_bytes=20 * MIB, actions=[source, switch])
    found = answer(code, data)
    assert found.text == (
        "Which page size? 2 MiB for data. Expect about 8.0% (2.0% to 19.0%) less time on zen3 "
        "(walk cost measured), for 20 MiB (10.0%) more memory than in "
        "4 KiB pages. Even the low estimate is worth it. The lines to paste need root "
        "and change settings for every program until reboot."
    )
    assert (found.changes, found.settings, found.undo) == (True, "A=1 server", "echo never > x")
    assert found.verify.endswith("verify --allow-system -- server --port '7 7'")


def test_settings_that_verify_does_not_try_by_default_are_named() -> None:
    more = {"environment": {"A": "1", "B": "2"}, "arguments": ["-x"]}
    switch = {**act("malloc", "A=1 B=2 server -x"), **more}
    data = item("data", HUGE, (0.02, 0.08, 0.19), actions=[switch])
    assert "--try" not in answer(data).verify
    named = answer(data, tried=False).verify
    assert named.endswith("verify --try 'A=1 B=2 -x' -- server --port '7 7'")


def test_verify_has_the_share_in_use_of_the_line_to_paste() -> None:
    prefix = ["octavo", "apply", "--by", "preload", "--min-fill", "30%", "--"]
    library = {**act("apply", shlex.join([*prefix, "server"])), "prefix": prefix}
    data = item("data", HUGE, (0.02, 0.08, 0.19), actions=[library])
    assert answer(data).verify.endswith("verify --min-fill 30% -- server --port '7 7'")


def test_settings_that_verify_tries_by_default() -> None:
    host = read_huge_pages()
    command = ["nice", sys.executable, "x.py"]
    for action in candidate_actions(sys.executable, host, ["x.py"]):
        assert is_tried(action.record(), command, host)
    other = {"environment": {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1:glibc.malloc.x=1"}}
    assert not is_tried(other, command, host)
    assert is_tried(other, ["/no/such"], host)


def test_a_server_is_measured_under_a_load() -> None:
    switch = act("malloc", "A=1 server")
    data = item("data", HUGE, (0.02, 0.08, 0.19), actions=[switch])
    note, command = answer(data, is_server=True).verify.splitlines()
    assert note == "# Put the command of a load generator in place of LOAD."
    assert command.endswith("verify --metric cpu:LOAD -- server --port '7 7'")


def test_a_program_that_was_stopped_may_be_a_server() -> None:
    data = item("data", HUGE, (0.02, 0.08, 0.19), actions=[act("malloc", "A=1 server")])
    note, command = answer(data, was_stopped=True).verify.splitlines()
    assert note.startswith("# For a server, add --metric cpu:LOAD, ")
    assert command.endswith("verify -- server --port '7 7'")
    assert answer(data, is_server=True, was_stopped=True) == answer(data, is_server=True)


def test_only_data_in_2_mib_pages_are_simulated() -> None:
    def simulate(stream: str, size: int, *, is_server: bool = False) -> str:
        action = act("malloc", "A=1 server") | {"page_size": size}
        found = item(stream, size, (0.02, 0.08, 0.19), actions=[action])
        return answer(found, is_server=is_server, simulation="octavo sim").simulate

    assert simulate("data", HUGE) == "octavo sim"
    assert simulate("fetch", HUGE) == simulate("data", 1024 * MIB) == ""
    note, command = simulate("data", HUGE, is_server=True).splitlines()
    assert (note, command) == ("# Give the server the same load again.", "octavo sim")
    data = item("data", HUGE, (0.02, 0.08, 0.19))
    assert answer(data, program=None, simulation="octavo sim").simulate == ""


def test_the_memory_that_a_pool_reserves_is_reported() -> None:
    pool = {"path": "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages"}
    switch: Record = {"path": "/sys/kernel/mm/transparent_hugepage/shmem_enabled"}
    switch |= {"value": "always", "now": "never"}

    def text(*settings: Record) -> str:
        action = act("hugetlbfs", "x") | {"settings": [*settings], "page_size": HUGE}
        return answer(item("data", HUGE, (0.02, 0.08, 0.19), actions=[action])).text

    reserved = "The lines to paste reserve 552 MiB, which nothing else can use then."
    assert text({**pool, "value": "286", "now": "10"}).endswith(reserved)
    assert "reserve" not in text(switch)


def test_settings_that_change_for_every_program_are_reported() -> None:
    """The terminal omits the text of the action whose lines are in the answer."""

    def text(**more: str) -> str:
        action = act("thp", "echo always > enabled\nserver", **more)
        return answer(item("data", HUGE, (0.02, 0.08, 0.19), actions=[action])).text

    message = "The lines to paste need root and change settings for every program until reboot."
    assert text(undo="echo madvise > enabled").endswith(message)
    assert message not in text()


def test_a_mount_option_is_not_measured_by_verify() -> None:
    """`octavo verify` sets no mount options: it would measure the program as it is."""
    action = act("mount", "mount -o huge=always /dev/shm\nserver", undo="mount -o huge=never")
    found = answer(item("data", HUGE, (0.02, 0.08, 0.19), actions=[action]))
    assert (found.undo, found.verify) == ("mount -o huge=never", "")
    assert "change settings for every program until reboot" in found.text


def test_regions_are_advised_where_the_whole_program_is_refused() -> None:
    arena = act("malloc", "M=1 server")
    regions = [
        item(
            "data",
            HUGE,
            (0, at / 100, 0.1),
            region=f"jemalloc arena {at}.0MiB #{at}",
            actions=[arena],
        )
        for at in (1, 2)
    ]
    found = answer(item("fetch", BASE, (0, 0, 0)), item("data", BASE, (0, 0.05, 0.1)), *regions)
    assert found.text.startswith(
        "Which page size? 2 MiB for jemalloc arena. Expect about 3.0% (0.0% to 20.0%) less time"
    )
    assert "Not certain: the low estimate is below 1%; measure" in found.text
    assert found.settings == "M=1 server"


def test_the_loss_of_a_negative_low_estimate_is_reported() -> None:
    code = item("fetch", BASE, (0, 0, 0))
    found = answer(code, item("data", HUGE, (-0.006, 0.03, 0.1)))
    assert "Not certain: the low estimate loses 0.6% of the time; measure" in found.text
    found = answer(code, item("data", HUGE, (-0.0004, 0.03, 0.1)))
    assert "about 3.0% (0.0% to 10.0%)" in found.text
    assert "the low estimate is below 1%; measure" in found.text


def test_settings_are_those_of_the_largest_gain() -> None:
    one = item("data", HUGE, (0, 0.01, 0.1), region="a", actions=[act("malloc", "one")])
    two = item("data", HUGE, (0, 0.09, 0.1), region="b", actions=[act("malloc", "two")])
    assert answer(item("data", BASE, (0, 0, 0)), one, two).settings == "two"


def test_the_part_of_the_gain_that_the_lines_do_not_reach_is_reported() -> None:
    library = {**act("apply", "octavo apply server"), "name": "preload"}
    switch = {**act("malloc", "A=1 server"), "name": "glibc"}
    shared = {**act("thp", "echo always"), "name": "shared"}
    data = item("data", HUGE, (0.02, 0.14, 0.19), actions=[library, switch])

    def part(kind: str, expected: float, *actions: Record, **more: str) -> Record:
        given: Record = {"region": kind, "region_kind": kind, "actions": list(actions), **more}
        return item("data", HUGE, (0.01, expected, 0.05), **given)

    own = [part("heap", 0.03, switch), part("anonymous", 0.04, library, switch)]
    others = [part("shared", 0.05, shared), part("libx.so data", 0.02, act("note", ""))]
    assert "do not reach" not in answer(data, *own).text
    assert "do not reach" not in answer(data, part("shared", 0.009, shared)).text
    found = answer(data, *own, *others)
    assert "2 MiB for data. Expect about 7.0% (0.0% to 9.0%) less time" in found.text
    assert (
        "Such pages for data of shared and libx.so data would save about 7.0% (2.0% to 10.0%) "
        "more, but the lines to paste do not reach them." in found.text
    )
    assert found.gain.expected == 0.14
    for left in (act("note", ""), {**act("note", ""), "name": "other"}):
        refused = part("anonymous", 0.04, left)
        assert "Expect about 10.0%" in answer(data, refused).text
        assert (
            "Such pages for data of anonymous would save about 4.0%" in answer(data, refused).text
        )
    code = item("fetch", HUGE, (0.01, 0.02, 0.03), growth_bytes=MIB, actions=[act("linker", "cc")])
    found = answer(code, data)
    assert "2 MiB for data. Expect about 14.0% (2.0% to 19.0%) less time" in found.text
    assert "for little more memory" in found.text
    assert "Such pages for code would save about 2.0%" in found.text


def test_lines_that_reach_too_little_to_gain_are_not_shown() -> None:
    """The settings of a program whose data misses are those of its stack."""
    switch = {**act("malloc", "A=1 server"), "name": "glibc"}
    data = item("data", HUGE, (0.0, 0.028, 0.14), actions=[switch])
    stack = {"region": "stack", "region_kind": "stack", "actions": [act("note", "")]}
    found = answer(data, item("data", HUGE, (0.0, 0.027, 0.13), **stack))
    assert (found.settings, found.verify) == ("", "")
    assert "2 MiB for data would save about 2.8% (0.0% to 14.0%) of the time" in found.text
    shared = {**act("thp", "echo always"), "name": "shared", "undo": "echo never"}
    buffers = {"region": "shared", "region_kind": "shared", "actions": [shared]}
    found = answer(data, item("data", HUGE, (0.0, 0.027, 0.13), **buffers))
    assert found.settings == "echo always"
    assert "2 MiB for shared. Expect about 2.7% (0.0% to 13.0%) less time" in found.text


def test_settings_that_give_smaller_pages_are_no_settings() -> None:
    small = {**act("mthp", "echo always > 64kB"), "page_size": 64 * 1024}
    data = item("data", HUGE, (0.02, 0.08, 0.19), actions=[small])
    found = answer(item("fetch", BASE, (0, 0, 0)), data)
    assert found.settings == ""
    assert "No setting of this system gives such pages" in found.text
    huge = {**act("apply", "octavo apply"), "page_size": HUGE}
    assert answer({**data, "actions": [small, huge]}).settings == "octavo apply"


def test_larger_pages_that_were_not_measured_are_named() -> None:
    neither = [
        {**item(stream, BASE, (0, 0, 0), reason="largest-size"), "gain": None}
        for stream in ("fetch", "data")
    ]
    assert answer(*neither).text == (
        "Which page size? Not known: no page size of zen3 above 4 KiB was measured (2 MiB, "
        "1 GiB); --page-sizes 4KiB,2MiB measures 2 MiB."
    )
    assert answer(*neither, sizes=(BASE,)).text == (
        "Which page size? Keep 4 KiB: zen3 has no other page size."
    )
    assert "which has only 147 page walks here" in answer(*neither, walks=147).text


def test_present_large_pages_need_no_change() -> None:
    data = item("data", HUGE, (0.02, 0.08, 0.19), reason="already")
    region = {**data, "scope": "region", "region": "anon 64.0MiB #1"}
    code = item("fetch", BASE, (0, 0, 0))
    found = answer(code, data, region)
    assert (found.changes, found.settings) == (False, "")
    assert found.text == (
        "Which page size? 2 MiB for data, which it has already: nothing is to be done. They save "
        "about 8.0% (2.0% to 19.0%) of the time on zen3 (walk cost measured)."
    )
    rest = {**region, "reason": "gain", "region": "heap", "actions": [act("malloc", "A=1 server")]}
    refused = item("data", BASE, (0, 0, 0), reason="memory")
    assert answer(code, refused, region, rest).settings == "A=1 server"
    assert not answer(code, refused, region).changes


def test_the_expected_gain_excludes_present_pages() -> None:
    data = item("data", HUGE, (0.02, 0.14, 0.19), growth_bytes=12 * MIB)
    data["actions"] = [{**act("malloc", "A=1 server"), "name": "glibc"}]
    one = {"region": "anon 64.0MiB #1", "growth_bytes": 4 * MIB}
    present = item("data", HUGE, (0.01, 0.04, 0.1), reason="already", **one)
    found = answer(item("fetch", BASE, (0, 0, 0)), data, present)
    assert found.text.startswith(
        "Which page size? 2 MiB for data. Expect about 10.0% (1.0% to 10.0%) less time on zen3 "
        "(walk cost measured), for 8 MiB (4.0%) more memory than in 4 KiB pages."
    )
    assert found.text.endswith(
        "It has 2 MiB for anon already, which saves about 4.0% (1.0% to 10.0%) besides."
    )


def test_a_library_that_makes_pages_of_memory_in_use_saves_no_first_touches() -> None:
    library = {**act("apply", "octavo apply server"), "name": "preload"}
    data = item("data", HUGE, (0.02, 0.14, 0.19), actions=[library])
    data["gain_of_walks"] = {"low": 0.01, "expected": 0.05, "high": 0.07}
    found = answer(item("fetch", BASE, (0, 0, 0)), data)
    assert (found.gain.expected, found.settings) == (0.05, "octavo apply server")
    assert "Expect about 5.0% (1.0% to 7.0%) less time" in found.text
    assert "All would save about 14.0% (2.0% to 19.0%) with larger pages from" in found.text
    assert "To make these pages" not in found.text
    slow = answer(item("fetch", BASE, (0, 0, 0)), data, seconds_a_page=0.01).text
    assert (
        "To make these pages takes the processor about 0.5 s, once: runs of more than about 10 s "
        "gain." in slow
    )
    data["gain_of_walks"] = {"low": 0.0, "expected": 0.005, "high": 0.01}
    kept = answer(item("fetch", BASE, (0, 0, 0)), data)
    assert (kept.changes, kept.settings) == (False, "")
    assert kept.text.startswith(
        "Which page size? Keep 4 KiB: 2 MiB for data would save about 14.0%"
    )
    switch = {**act("malloc", "A=1 server"), "name": "glibc"}
    assert answer({**data, "actions": [switch, library]}).gain.expected == 0.14


def test_the_gain_of_the_library_excludes_present_pages() -> None:
    """The time to make pages excludes them as well."""
    library = {**act("apply", "octavo apply server"), "name": "preload"}
    data = item("data", HUGE, (0.02, 0.14, 0.19), actions=[library])
    data["gain_of_walks"] = {"low": 0.01, "expected": 0.05, "high": 0.09}
    present = item("data", HUGE, (0.01, 0.045, 0.08), reason="already", region="anon 64.0MiB #1")
    kept = answer(data, present)
    assert (kept.changes, kept.settings) == (False, "")
    assert kept.text == (
        "Which page size? Keep the pages as they are: 2 MiB for data would save about 9.5% (1.0% "
        "to 11.0%) of the time on zen3 (walk cost measured), mostly by page faults at first "
        "touches. This system makes larger pages of that memory only after its first touch. It "
        "has 2 MiB for anon already, which saves about 4.5% (1.0% to 8.0%) besides."
    )
    # An environment variable changes no setting of the system.
    switch = act("malloc", "A=1 server")
    assert answer({**data, "actions": [library, switch]}, present).text == kept.text
    setting = act("thp", "echo madvise > enabled", undo="echo never > enabled")
    kept = answer({**data, "actions": [library, switch, setting]}, present)
    assert kept.settings == ""
    assert (
        "Without a change of its settings, this system makes larger pages of that memory after "
        "its first touch; the evidence below says what else could be done. It has 2 MiB"
    ) in kept.text
    part = item("data", HUGE, (0.0, 0.01, 0.02), reason="already", region="anon 64.0MiB #1")
    part["touched_bytes_base"] = 60 * MIB
    short, long = (answer(data, part, seconds_a_page=0.01, run_seconds=time) for time in (4.9, 5.1))
    assert "Keep the pages as they are in runs as short as this: 2 MiB for data" in short.text
    assert "would save about 4.0%" in short.text
    assert "less than the 0.2 s that" in short.text
    assert "All would save about 13.0%" in long.text
    assert "about 0.2 s, once: runs of more than about 5 s gain." in long.text
    for found in (short, long):
        assert "It has 2 MiB for anon already, which saves about 1.0%" in found.text


def test_a_short_run_keeps_small_pages_if_large_ones_cost_more() -> None:
    library = {**act("apply", "octavo apply server"), "name": "preload"}
    data = item("data", HUGE, (0.01, 0.05, 0.07), actions=[library])
    short, long = (answer(data, seconds_a_page=0.01, run_seconds=time) for time in (9.9, 10.1))
    assert short.text == (
        "Which page size? Keep 4 KiB in runs as short as this: 2 MiB for data would save about "
        "5.0% (1.0% to 7.0%) of the time on zen3 (walk cost measured), less than the 0.5 s that it "
        "takes the processor to make these pages. Runs of more than about 10 s gain."
    )
    assert (short.changes, short.settings, short.verify) == (False, "", "")
    assert (long.changes, long.settings) == (True, "octavo apply server")
    assert answer(data, seconds_a_page=0.001, run_seconds=0.1).changes
    switch = {**act("malloc", "A=1 server"), "name": "glibc"}
    early = {**data, "actions": [switch, library]}
    assert answer(early, seconds_a_page=0.01, run_seconds=9.9).changes


def test_a_synthetic_trace_gets_no_settings() -> None:
    data = item("data", HUGE, (0.02, 0.08, 0.19))
    found = answer(item("fetch", BASE, (0, 0, 0)), data)
    assert found.text.startswith("Which page size? 2 MiB for data would save about 8.0%")
    assert "setting" not in found.text
    assert "evidence" not in found.text


def test_settings_for_a_part_are_advised_if_none_reaches_all() -> None:
    data = item("data", HUGE, (0.02, 0.14, 0.19), actions=[act("note", "")])
    part = item("data", HUGE, (0.01, 0.06, 0.1), region="V8 heap", actions=[act("malloc", "A=1 b")])
    found = answer(item("fetch", BASE, (0, 0, 0)), data, part)
    assert found.settings == "A=1 b"
    assert found.text.startswith("Which page size? 2 MiB for V8 heap. Expect about 6.0%")
    assert answer(data).text.startswith("Which page size? 2 MiB for data would save about 14.0%")


def test_memory_that_no_setting_reaches_is_named() -> None:
    linker = act("linker", "cc -Wl,…")
    found = answer(item("fetch", HUGE, (0.02, 0.03, 0.04), actions=[linker]))
    assert found.text.startswith("Which page size? 2 MiB for code would save about 3.0%")
    assert (
        "No setting of this system gives such pages: the evidence below says what can be done."
        in found.text
    )
    assert (found.settings, found.verify) == ("", "")


def test_a_trace_has_nothing_to_verify() -> None:
    data = item("data", HUGE, (0.02, 0.03, 0.04), actions=[act("malloc", "A=1 PROGRAM")])
    assert answer(data, program=None).verify == ""


def test_growth_beyond_the_limit_is_reported() -> None:
    found = answer(item("data", BASE, (0.02, 0.08, 0.19), reason="memory"))
    assert found.text == (
        "Which page size? Keep 4 KiB: 2 MiB pages for data would save about 8.0% (2.0% to 19.0%) "
        "of the time on zen3 (walk cost measured), but take more than 25% more memory "
        "(--max-growth)."
    )
    assert (found.changes, found.settings) == (False, "")


@pytest.mark.parametrize(
    ("gain", "walks", "message"),
    [
        ((0, 0, 0.004), 10**6, "; larger pages would save at most 0.4% of the time"),
        ((0, 0, 0), 10**6, "; larger pages would save less than 0.1% of the time"),
        ((0, 0, 0), 9, ", which has only 9 page walks here."),
        ((0, 0, 0), 0, ", which has no page walks here."),
    ],
)
def test_a_missing_gain_is_reported(
    gain: tuple[float, float, float], walks: int, message: str
) -> None:
    found = answer(item("fetch", BASE, (0, 0, 0)), item("data", BASE, gain), walks=walks)
    assert found.text.startswith("Which page size? Keep 4 KiB: no gain is expected on zen3")
    assert message in found.text


@pytest.mark.parametrize(
    ("region", "family"),
    [
        ("jemalloc arena 2.0MiB #7", "jemalloc arena"),
        ("anon 128.0MiB #1", "anon"),
        ("anon (small)", "anon"),
        ("libc.so.6 text", "libc.so.6 text"),
        ("heap", "heap"),
        ("build 2.0MiB old data", "build 2.0MiB old data"),
    ],
)
def test_families(region: str, family: str) -> None:
    assert family_of(region) == family


def test_similar_regions_are_shown_once() -> None:
    alike = [
        item("data", HUGE, (0, 0, 0), region=f"anon {n}.0MiB #{n}", text=f"{n}.") for n in (1, 2, 3)
    ]
    other = item("data", BASE, (0, 0, 0), region="anon 4.0MiB #4", text="4.")
    shown = one_of_each_family([alike[0], other, *alike[1:]])
    assert [one["text"] for one in shown] == ["1. The same for 2 more of anon.", "4."]
