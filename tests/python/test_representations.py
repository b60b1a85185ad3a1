"""Results in Python: texts, HTML for notebooks, tables, arguments, Ctrl-C."""

import os
import re
import signal
import threading
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from jupyter_client.manager import start_new_kernel

import octavo
from octavo.base.errors import UsageError
from octavo.base.table import Shown, Tabular, cell_text
from octavo.base.text import printable
from octavo.base.units import format_bytes, format_count
from octavo.notebook import html_of
from octavo.report.figures import svg_of
from octavo.report.sim import sim_figures
from octavo.report.sim_data import report_data
from octavo.traces.survey import survey_trace

TRACE = "synth:zipf?references=20k&bytes=1MiB"
ENDLESS = "synth:uniform?references=1000G&bytes=64MiB"
MAKERS: dict[str, Callable[[], Any]] = {
    "run": lambda: octavo.run(TRACE),
    "curves": lambda: octavo.curves(TRACE, entries=64, sets=64, windows=[10_000]),
    "sim": lambda: octavo.sim(TRACE),
    "sweep": lambda: octavo.sweep(TRACE, ["skylake", "zen4"], workers=1),
    "machine": lambda: octavo.machine("skylake"),
    "machines": octavo.machines,
    "info": lambda: survey_trace(TRACE, lambda progress: None),
}
WITH_FIGURE = ("run", "curves", "sim", "sweep")
MOST_HTML = 60_000


@pytest.fixture(scope="module")
def results() -> dict[str, Any]:
    return {name: make() for name, make in MAKERS.items()}


class _Loaded(HTMLParser):
    """The addresses that a page loads, and its elements."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.sources: list[str] = []
        self.elements: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(tag)
        self.sources += [value or "" for name, value in attrs if name in ("src", "href", "data")]


@pytest.mark.parametrize("name", MAKERS)
def test_a_text_has_at_most_three_lines(results: dict[str, Any], name: str) -> None:
    text = repr(results[name])
    assert text.startswith("<")
    assert len(text.splitlines()) <= 3
    assert len(text) < 600


@pytest.mark.parametrize("name", MAKERS)
def test_html_has_a_table_loads_nothing_and_is_small(results: dict[str, Any], name: str) -> None:
    text = results[name]._repr_html_()
    page = _Loaded(text)
    assert "table" in page.elements
    assert ("img" in page.elements) == (name in WITH_FIGURE)
    assert all(source.startswith("data:image/svg+xml;base64,") for source in page.sources)
    assert "script" not in page.elements
    assert len(text) < MOST_HTML


@pytest.mark.parametrize("name", ["run", "curves", "sim", "sweep", "machines"])
def test_every_result_with_rows_is_read_by_other_libraries(
    results: dict[str, Any], name: str
) -> None:
    result = results[name]
    table = result.table()
    assert table.num_rows > 0
    assert pa.RecordBatchReader.from_stream(result).read_all() == table
    assert len(result.to_pandas()) == table.num_rows
    assert result.to_polars().columns == table.column_names


def test_panels_of_a_figure_have_their_own_texts(results: dict[str, Any]) -> None:
    text = svg_of(sim_figures(report_data(results["sim"]))["differences"])
    cycles = format_count(round(results["sim"].design("base4k").cycles))
    memory = format_bytes(results["sim"].design("base4k").memory_bytes)
    assert text.count(f">{cycles}<") == 1
    assert text.count(f">{memory}<") == 1


def test_parts_of_results_are_short_too(results: dict[str, Any]) -> None:
    for part in (results["sim"].total, results["curves"].total, results["sim"].configuration):
        assert len(repr(part)) < 2000


def test_a_machine_is_still_a_dictionary(results: dict[str, Any]) -> None:
    machine = results["machine"]
    assert machine == {**machine}
    assert machine["tlb"]["l2"]["main"]["entries"] == 1536
    assert results["machines"][0]["name"] == "skylake"


def test_a_recorded_trace_is_short(tmp_path: Path) -> None:
    from octavo.tracing.recording import RecordedTrace

    about = {"exit": {"status": 0}, "host": {"kernel": "x" * 10_000}}
    trace = RecordedTrace("a.oct", about, 2048, 1_500_000, 1_000_000, 1, 0.5)
    assert repr(trace) == "<RecordedTrace: a.oct: 1.50 M references, 1.00 M instructions, 2 KiB>"
    html = trace._repr_html_()
    assert "1500000" in html
    assert "<thead>" not in html, "its columns have no names"


class _Hostile(Tabular):
    def __init__(self, name: str) -> None:
        self.name = name

    def headline(self) -> str:
        return self.name

    def conclusion(self) -> str:
        return f"{self.name * 100} `code`"

    def table(self) -> pa.Table:
        return pa.table({self.name: [self.name]})


def test_a_hostile_name_is_inert() -> None:
    name = "<script>alert(1)</script>\n\x1b[2J\u202e"
    text, html = repr(_Hostile(name)), html_of(_Hostile(name))
    assert len(text.splitlines()) == 2
    assert len(text) < 600
    for shown in (text.replace("\n", ""), html):
        assert printable(shown) == shown
    assert "<script" not in html
    assert '<code class="inline">code</code>' in html


@pytest.mark.parametrize(
    ("call", "given", "meant"),
    [
        (octavo.run, "page_size", "page_sizes"),
        (octavo.curves, "page_size", "page_sizes"),
        (octavo.curves, "policywindow", "policy_window"),
        (octavo.sim, "warmup", "warm_up"),
        (octavo.sim, "setting", "settings"),
        (octavo.sweep, "machine", "machines"),
        (octavo.sweep, "warmup", "warm_up"),
        (octavo.record, "maxinstructions", "max_instructions"),
        (octavo.verify, "repetition", "repetitions"),
    ],
)
def test_an_unknown_argument_is_named_with_the_nearest(
    call: Callable[..., Any], given: str, meant: str
) -> None:
    with pytest.raises(octavo.OctavoError) as raised:
        call(TRACE, **{given: 1})
    assert re.match(
        f"unknown argument of octavo.{call.__name__} `{given}`; did you mean `{meant}`",
        str(raised.value),
    )


@pytest.mark.parametrize("call", [octavo.run, octavo.curves, octavo.sim])
def test_a_trace_may_be_a_path(call: Callable[..., Any], tmp_path: Path) -> None:
    """The annotation says so, too, for those who check types."""
    trace = tmp_path / "made.csv"
    trace.write_text("kind,address,size\nfetch,0x1000,4\nload,0x2000,8\n")
    assert call(trace).manifest["command"] == [str(trace)]
    with pytest.raises(UsageError, match="`5` is not allowed: give a list or a text or a path"):
        call(5)


@pytest.mark.parametrize("call", [octavo.run, octavo.curves, octavo.sim])
def test_ctrl_c_ends_long_work_while_another_thread_runs(
    call: Callable[..., Any],
) -> None:
    """The interrupt comes from a thread of this process, which needs the interpreter lock."""
    counted, is_over = threading.Event(), threading.Event()

    def interrupt() -> None:
        if counted.wait(600) and not is_over.is_set():
            os.kill(os.getpid(), signal.SIGINT)

    def listen(progress: Any) -> None:
        if progress["references"]:
            counted.set()

    thread = threading.Thread(target=interrupt)
    thread.start()
    result = call(ENDLESS, on_progress=listen)
    is_over.set()
    thread.join()
    assert result.partial
    assert "interrupted" in result.manifest["partial_reason"]
    assert "PARTIAL" in result._repr_html_()


IN_A_KERNEL = f"""
import os, signal, octavo
from octavo.base import progress
progress._REDRAWN_AFTER_SECONDS = 0.0
result = octavo.sim("{ENDLESS}")
assert result.partial, result
result
"""


def test_a_notebook_shows_progress_and_is_interrupted() -> None:
    manager, client = start_new_kernel(kernel_name="python3")
    try:
        request = client.execute(IN_A_KERNEL)
        lines: list[str] = []
        is_interrupted = False
        shown: dict[str, str] = {}
        while True:
            message = client.get_iopub_msg(timeout=600)
            if message["parent_header"].get("msg_id") != request:
                continue
            kind, content = message["msg_type"], message["content"]
            assert kind not in ("error", "stream"), content
            if kind in ("display_data", "update_display_data"):
                lines.append(content["data"]["text/plain"])
                if not is_interrupted and "references" in lines[-1]:
                    manager.interrupt_kernel()
                    is_interrupted = True
            if kind == "execute_result":
                shown = content["data"]
            if kind == "status" and content["execution_state"] == "idle":
                break
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
    assert any("references" in line for line in lines)
    assert lines[-1] == ""
    assert shown["text/plain"].startswith("<SimResult: synth:uniform on skylake")
    assert "PARTIAL" in shown["text/html"]


def test_progress_is_silent_off_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    octavo.sim(TRACE)
    assert capsys.readouterr() == ("", "")


def test_completion_offers_every_public_name() -> None:
    assert set(octavo.__all__) <= set(dir(octavo))


def test_every_public_result_is_short_by_its_class() -> None:
    names = [name for name in octavo.__all__ if name.endswith("Result") or name == "RecordedTrace"]
    assert len(names) == 6
    for name in names:
        result_class = getattr(octavo, name)
        assert issubclass(result_class, Shown)
        assert result_class.__repr__ is Shown.__repr__, name
        if name != "RecordedTrace":
            assert issubclass(result_class, Tabular)


@pytest.mark.parametrize(
    ("value", "text"),
    [(1234567.0, "1234567"), (1234.56, "1235"), (0.123456, "0.1235"), (3, "3"), (None, "")],
)
def test_counts_are_shown_exactly(value: float | None, text: str) -> None:
    assert cell_text(value) == text
