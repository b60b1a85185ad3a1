"""Designs in Python: the example of the page, and rules for all designs."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import traceback
from array import array
from pathlib import Path
from typing import Any

import pytest

import octavo
from octavo.sweeps.data_set import DataSet
from traces_made import SOME, write_csv

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/developing/python-designs.md").read_text(encoding="utf-8")
(EXAMPLE,) = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
TRACES = (
    "synth:zipf?references=20k&bytes=32MiB&stores=0.3&code=64KiB&code-order=zipf",
    "synth:gups?table=16MiB&updates=10k",
    "synth:columns?bytes=4MiB&references=20k",
)


class Nothing(octavo.Design):
    """A second level that never holds a page."""

    def look_up(self, space: int, page: int) -> int | None:
        return None

    def fill(self, space: int, page: int, page_bytes: int) -> None:
        pass

    def invalidate(self, space: int, first: int, end: int) -> None:
        pass

    def flush(self) -> None:
        pass


@pytest.fixture(scope="module")
def lru() -> Any:
    names: dict[str, Any] = {}
    exec(EXAMPLE, names)
    return names["Lru"]


def check(result: octavo.SimResult, native: str, mine: str) -> None:
    """Asserts equal counters. Only the native design counts the arrays of the second level."""
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


def test_promotions_to_huge_pages_invalidate(lru: Any) -> None:
    """Promotions change mappings of cached entries."""

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
    result = octavo.sim(TRACES[0], "skylake", ["base4k", Nothing])
    counts = result.design("Nothing").counts
    assert counts["tlb.l2", "hits"] == 0
    assert counts["tlb.l2", "misses"] == counts["tlb.l2", "accesses"] > 0
    native, mine = result.total
    assert mine.walks > native.walks
    assert mine.count("tlb.l1d", "misses") == native.count("tlb.l1d", "misses")


def test_an_exception_is_one_sentence_with_the_users_traceback(lru: Any) -> None:
    class Broken(lru):  # type: ignore[misc]
        def fill(self, space: int, page: int, page_bytes: int) -> None:
            if page % 7 == 3:
                raise ZeroDivisionError(f"page {page}")
            super().fill(space, page, page_bytes)

    sentence = r"the design Broken raised ZeroDivisionError: page \d+ \(.*, line \d+, in fill\)\."
    with pytest.raises(octavo.OctavoError, match=f"^{sentence}$") as raised:
        octavo.sim(TRACES[0], "skylake", ["base4k", Broken])
    cause = raised.value.__cause__
    assert isinstance(cause, ZeroDivisionError)
    assert "fill" in [frame.name for frame in traceback.extract_tb(cause.__traceback__)]


def test_an_exception_ends_the_simulation_at_once(lru: Any) -> None:
    """The trace takes an hour. Other designs read a small part of it."""

    class Broken(lru):  # type: ignore[misc]
        def look_up(self, space: int, page: int) -> int | None:
            raise ZeroDivisionError("at once")

    read: list[int] = []
    with pytest.raises(octavo.OctavoError, match="the design Broken raised"):
        octavo.sim(
            "synth:zipf?references=100G&bytes=64MiB",
            "skylake",
            ["base4k", Broken],
            on_progress=lambda progress: read.append(progress["references"]),
        )
    assert max(read, default=0) < 10_000_000_000


@pytest.mark.parametrize(("calls", "most"), [(10, 500), (2_000, 10_000)])
def test_an_interrupt_ends_a_slow_design_within_a_batch(calls: int, most: int) -> None:
    """Without small batches, the design is called 90,000 times; the first are smaller still."""

    interrupted, stopped = threading.Event(), threading.Event()
    reports: list[Any] = []

    def on_progress(progress: Any) -> None:
        """The main thread stops the simulation between two reports after the interrupt."""
        if interrupted.is_set():
            reports.append(progress)
        if len(reports) == 3:
            stopped.set()

    class Slow(Nothing):
        calls = 0

        def look_up(self, space: int, page: int) -> int | None:
            Slow.calls += 1
            if Slow.calls == calls:
                os.kill(os.getpid(), signal.SIGINT)
                interrupted.set()
                assert stopped.wait(60)
            return None

    trace = "synth:gups?table=64MiB&updates=10G"
    result = octavo.sim(trace, "skylake", [Slow], on_progress=on_progress)
    assert (result.partial, result.interrupted_by) == (True, signal.SIGINT)
    assert result.design("Slow").counts["tlb.l2", "accesses"] == Slow.calls < most


def test_the_first_process_has_the_machines_that_were_checked() -> None:
    """Machines with much memory take seconds to make."""
    made = 0

    class Counted(Nothing):
        def __init__(self) -> None:
            nonlocal made
            made += 1

    octavo.sim(TRACES[0], "skylake", [Counted])
    assert made == 1


def test_an_exception_in_the_constructor_has_its_cause(lru: Any) -> None:
    class Unmade(lru):  # type: ignore[misc]
        def __init__(self) -> None:
            raise ZeroDivisionError("made")

    with pytest.raises(octavo.OctavoError, match=r"the design Unmade raised .*made") as raised:
        octavo.sim(TRACES[0], "skylake", [Unmade])
    assert isinstance(raised.value.__cause__, ZeroDivisionError)


@pytest.mark.parametrize("page_bytes", [4096, 2 << 20])
def test_a_page_that_was_never_filled_stops_the_design(page_bytes: int) -> None:
    class Inventive(Nothing):
        def look_up(self, space: int, page: int) -> int | None:
            return page_bytes

    result = octavo.sim(TRACES[0], "skylake", ["base4k", Inventive])
    assert result.design("base4k").stopped is None
    assert result.design("base4k").walks > 0
    stopped = result.design("Inventive").stopped
    assert stopped is not None
    assert "no page of this size was filled there" in stopped


@pytest.mark.long
def test_a_page_that_was_invalidated_stops_the_design(lru: Any, tmp_path: Path) -> None:
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
        (int, "is not a design: give a name, or a subclass of octavo.Design"),
        (type("base4k", (octavo.Design,), {}), "cannot have the name `base4k`"),
        (type("Empty", (octavo.Design,), {}), "Empty has no look_up: a design needs look_up, fill"),
    ],
)
def test_other_objects_are_refused_as_designs(design: Any, sentence: str) -> None:
    with pytest.raises(octavo.OctavoError, match=re.escape(sentence)):
        octavo.sim(TRACES[0], "skylake", [design])


GUESTS: tuple[dict[str, Any], ...] = (
    {"virtualised": True},
    {"host_policy": "thp"},
    {"host_policy": "base", "cores": 2},
    {"virtualised": True, "settings": {"host.tlbs_hold": "halves"}},
)


@pytest.mark.parametrize("choices", GUESTS)
@pytest.mark.parametrize("policy", ["base", "thp"])
def test_a_copy_counts_in_a_guest_what_the_native_design_counts(
    lru: Any, policy: str, choices: dict[str, Any]
) -> None:
    mine = type("Mine", (lru,), {"policy": policy})
    native = {"base": "base4k", "thp": "thp"}[policy]
    for trace in TRACES:
        result = octavo.sim(trace, "skylake", [native, mine], check=True, **choices)
        check(result, native, "Mine")
        assert result.design("Mine").counts["walker.host", "walks"] > 0


TOO_SMALL = "it makes pages of 8KiB, which the page tables of Lru do not have: give one of base, "


def test_a_host_policy_that_it_cannot_translate_is_refused(lru: Any) -> None:
    with pytest.raises(octavo.OctavoError, match=f"^host.policy = tps: {TOO_SMALL}") as raised:
        octavo.sim(TRACES[0], "skylake", [lru], host_policy="tps")
    assert "tps" not in str(raised.value).partition("give one of")[2]


def test_a_policy_that_it_cannot_translate_is_refused(lru: Any) -> None:
    tailored = type("Lru", (lru,), {"policy": "tps"})
    with pytest.raises(octavo.OctavoError, match=f"^Lru: policy = tps: {TOO_SMALL}") as raised:
        octavo.sim(TRACES[0], "skylake", [tailored])
    usable = str(raised.value).partition("give one of ")[2]
    assert "tps" not in usable
    unknown = type("Lru", (lru,), {"policy": "eagr:span=exact"})
    sentence = f"no policy `eagr`: give one of {usable}; did you mean `eager`?"
    with pytest.raises(octavo.OctavoError, match=f"^{re.escape(sentence)}$"):
        octavo.sim(TRACES[0], "skylake", [unknown])


# --- sweeps --------------------------------------------------------------------------------------


def test_a_sweep_counts_what_sim_counts(lru: Any, tmp_path: Path) -> None:
    settings = {"walker.walkers": [1, 2]}
    swept = octavo.sweep(TRACES[:2], "skylake", ["base4k", lru], settings, out=tmp_path / "out")
    assert swept.failed == {}
    rows = swept.table().to_pylist()
    assert [row["design"] for row in rows] == ["base4k", "Lru"] * 4
    for native, mine in zip(rows[::2], rows[1::2], strict=True):
        for name in ("walker.walks", "tlb.l2.hits", "tlb.l1d.misses", "cycles", "instructions"):
            assert mine[name] == native[name], name
    alone = octavo.sim(TRACES[0], "skylake", [lru]).design("Lru")
    assert rows[1]["walker.walks"] == alone.counts["walker", "walks"]


def simulated(out: Path, design: Any) -> int:
    """The number of simulations that a sweep runs."""
    totals: list[int] = []
    result = octavo.sweep(
        TRACES[0],
        designs=design,
        out=out,
        on_progress=lambda progress: totals.append(progress.total),
    )
    assert result.failed == {}
    return totals[0]


def test_a_result_is_kept_under_the_code_of_its_design(lru: Any, tmp_path: Path) -> None:
    def made(ways: int, helper: Any = max) -> Any:
        class Other(lru):  # type: ignore[misc]
            def fill(self, space: int, page: int, page_bytes: int) -> None:
                if helper(page % 16, 0) < ways:
                    super().fill(space, page, page_bytes)

        return Other

    out = tmp_path / "out"
    assert simulated(out, made(12)) == 1
    assert simulated(out, made(12)) == 0
    assert simulated(out, made(11)) == 1
    assert simulated(out, made(12, min)) == 1
    assert simulated(out, type("Other", (made(12),), {"policy": "thp"})) == 1
    assert simulated(out, made(12)) == 0


def test_the_same_code_has_the_same_hash_in_another_process() -> None:
    code = f"""if True:
        names = {{}}
        exec({EXAMPLE.partition("result =")[0]!r}, names)
        from octavo.sweeps.python_design import content_of
        print(content_of(names["Lru"]))
    """
    hashes = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(hashes) == 1


def test_a_class_that_cannot_be_sent_is_refused_in_a_sentence(lru: Any) -> None:
    lock = threading.Lock()

    class Locked(lru):  # type: ignore[misc]
        def flush(self) -> None:
            with lock:
                super().flush()

    sentence = "the design Locked cannot be sent to the processes of a sweep: cannot pickle"
    with pytest.raises(octavo.OctavoError, match=sentence):
        octavo.sweep(TRACES[0], designs=["base4k", Locked])


def test_an_exception_in_a_sweep_leaves_the_other_designs_alone(lru: Any, tmp_path: Path) -> None:
    class Broken(lru):  # type: ignore[misc]
        def fill(self, space: int, page: int, page_bytes: int) -> None:
            raise ZeroDivisionError("here")

    out = tmp_path / "out"
    result = octavo.sweep(TRACES[0], designs=["base4k", Broken, lru], out=out)
    assert [row["design"] for row in result.table().to_pylist()] == ["base4k", "Lru"]
    (why,) = result.failed.values()
    assert "the design Broken raised ZeroDivisionError: here (" in why
    assert any("in fill" in note.get("traceback", "") for note in DataSet(out).notes())


def test_a_script_and_its_modules_reach_the_workers(tmp_path: Path) -> None:
    """The script's folder differs from the working directory."""
    folder = tmp_path / "scripts"
    folder.mkdir()
    (folder / "beside.py").write_text("import math\nsets = int(math.pow(2, 7))\n")
    example = EXAMPLE.partition("result =")[0].replace("self.sets", "beside.sets")
    script = f"import beside\n{example}\nif __name__ == '__main__':\n    "
    script += f"print(octavo.sweep({TRACES[0]!r}, designs=['base4k', Lru]).failed)\n"
    (folder / "script.py").write_text(script)
    done = subprocess.run(
        [sys.executable, folder / "script.py"], cwd=tmp_path, capture_output=True, check=False
    )
    assert done.stdout.decode() == "{}\n", done.stderr.decode()


def test_two_designs_of_one_name_are_refused(lru: Any) -> None:
    other = type("Lru", (lru,), {})
    with pytest.raises(octavo.OctavoError, match="have the same name"):
        octavo.sweep(TRACES[0], designs=[lru, other])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"interval": "abc"}, "interval: `'abc'` is not allowed: give a whole number or None."),
        ({"warm_up": 1.5}, "warm_up: `1.5` is not allowed: give a whole number."),
        ({"timing": None}, "timing: `None` is not allowed: give a text."),
        ({"machine": None}, "machine: `None` is not allowed: give a text."),
        ({"machine": 5}, "machine: `5` is not allowed: give a text."),
        ({"check": "yes"}, "check: `'yes'` is not allowed: give True or False."),
        ({"settings": "a=1"}, "settings: `'a=1'` is not allowed: give a mapping or a list."),
        ({"max_instructions": "1k"}, "max_instructions: `'1k'` is not allowed: give a whole"),
        ({"max_instructions": True}, "max_instructions: `True` is not allowed: give a whole"),
        ({"settings": 5}, "settings: `5` is not allowed: give a mapping or a list."),
        ({"settings": ["core.count=2", 5]}, "settings[1]: `5` is not allowed: give a text."),
        ({"designs": [5]}, "5 is not a design: give a name, or a subclass of octavo.Design."),
    ],
)
def test_arguments_of_other_types_are_refused_in_a_sentence(
    arguments: dict[str, Any], message: str
) -> None:
    trace = "synth:gups?table=1MiB&updates=100"
    with pytest.raises(octavo.OctavoError, match=re.escape(message)):
        octavo.sim(trace, **arguments)
    shared = {name: value for name, value in arguments.items() if name in ("interval", "warm_up")}
    if shared:
        with pytest.raises(octavo.OctavoError, match=re.escape(message)):
            octavo.sweep(trace, **shared)


@pytest.mark.parametrize("call", [octavo.run, octavo.curves, octavo.sim])
def test_a_trace_is_named_by_a_text_or_a_path(call: Any, tmp_path: Path) -> None:
    file = Path(write_csv(tmp_path / "some.csv", SOME))
    assert call(file).rows == call([file]).rows == call(str(file)).rows
    for other, place in [(None, ""), (b"some.csv", ""), ([file, None], "[1]"), ([["ls"]], "[0]")]:
        with pytest.raises(octavo.OctavoError, match=rf"^command{re.escape(place)}: .* give a "):
            call(other)


def test_numbers_of_numpy_are_accepted() -> None:
    np = pytest.importorskip("numpy")
    trace = "synth:gups?table=1MiB&updates=100"
    limited = octavo.run(trace, max_instructions=np.int64(100), max_growth=np.float32(0.5))
    assert limited.rows == octavo.run(trace, max_instructions=100, max_growth=0.5).rows
    pair = np.array([4096, 32768])
    both = octavo.curves(trace, two_sizes=np.array([pair]), windows=np.array([1000]))
    assert both.rows == octavo.curves(trace, two_sizes=[(4096, 32768)], windows=[1000]).rows
    with pytest.raises(octavo.OctavoError, match="page_sizes: `4096` is not allowed: give a list"):
        octavo.run(trace, page_sizes=4096)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda api: api.run("x", entries=64), "entries: `64` is not allowed: give a pair"),
        (lambda api: api.run("x", entries=[1, "x"]), "--entries must be from 1 to 1048576."),
        (lambda api: api.run("x", on_progress=5), "on_progress: `5` is not allowed: give a func"),
        (lambda api: api.sim("x", designs=None), "designs: `None` is not allowed: give a list"),
        (lambda api: api.sweep(5), "traces: `5` is not allowed: give a name, or a list"),
        (
            lambda api: api.sweep(["x", None]),
            "traces: `None` is not a name: give a string or a path.",
        ),
        (lambda api: api.sweep("x", out=5), "out: `5` is not allowed: give a text or a path"),
        (lambda api: api.sweep("x", settings=5), "settings: `5` is not allowed: give a mapping"),
        (lambda api: api.machine(5), "name: `5` is not allowed: give a text or a path."),
        (lambda api: api.machine("zen4", ["a=1"]), "settings: `['a=1']` is not allowed: give a m"),
        (lambda api: api.ctl("1", "status"), "pid: `'1'` is not allowed: give a whole number."),
        (lambda api: api.verify([]), "no program given: name it"),
        (lambda api: api.verify(["ls"], repetitions=0), "repetitions 0: give a number from 1 to 1"),
        (
            lambda api: api.verify(["ls"], repetitions=array("i", [8])),
            "is not allowed: give a whol",
        ),
        (
            lambda api: api.curves("x", windows=["1k"]),
            "windows[0]: `'1k'` is not allowed: give a w",
        ),
        (
            lambda api: api.curves("x", two_sizes=[1, 2]),
            "two_sizes[0]: `1` is not allowed: give a p",
        ),
        (
            lambda api: api.curves("x", two_sizes=[[1]]),
            "two_sizes[0]: `[1]` is not allowed: give a",
        ),
        (
            lambda api: api.sweep("x", seeds=[1, "x"]),
            "seeds[1]: `'x'` is not allowed: give a whole",
        ),
    ],
)
def test_other_types_are_refused_wherever_they_are_given(call: Any, message: str) -> None:
    with pytest.raises(octavo.OctavoError, match=re.escape(message)):
        call(octavo)


def test_one_design_is_accepted_without_a_list() -> None:
    trace = "synth:gups?table=1MiB&updates=100"
    assert octavo.sim(trace, designs="thp").rows == octavo.sim(trace, designs=["thp"]).rows


def test_a_policy_is_a_text() -> None:
    class Odd(Nothing):
        policy = None  # type: ignore[assignment]

    with pytest.raises(octavo.OctavoError, match="Odd: the policy None is not a string"):
        octavo.sim("synth:gups?table=1MiB&updates=100", designs=[Odd])
