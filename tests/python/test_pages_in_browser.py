"""The pages of reports in a headless browser, wide and narrow, in light and dark colours."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import octavo
from octavo.report import curves_data, sim_data
from octavo.report.curves import render_curves
from octavo.report.run import render_run
from octavo.report.sim import render_sim
from pages import charts_of

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

DESK, PHONE = 1400, 390
TRACE = "synth:zipf?table=16MiB&references=40k"
ONE_PAGE = "synth:sequential?table=4KiB&references=10k"
"""A trace with one miss only, so that the curves of all page sizes are the same line."""
HOSTILE = "</script><img src=x onerror=alert(1)><b>\u202e\x1b[31m'\"&amp;{{7*7}}"
"""A name that would close an element, run a script, reverse text, or be read as a template."""


def run_page() -> str:
    return render_run(octavo.run(TRACE).document())


def curves_page() -> str:
    choices: dict[str, Any] = {"two_sizes": [(4096, 65536)], "windows": [1000, 10000]}
    result = octavo.curves(TRACE, sets=64, cache_lines=[64], **choices)
    return render_curves(curves_data.report_data(result))


def sim_page() -> str:
    designs = ["base4k", "thp", "tps", "colt", "perfect_l1"]
    result = octavo.sim(TRACE, designs=designs, interval=2000)
    return render_sim(sim_data.report_data(result))


def equal_run_page() -> str:
    return render_run(octavo.run(ONE_PAGE).document())


def equal_curves_page() -> str:
    return render_curves(curves_data.report_data(octavo.curves(ONE_PAGE)))


PAGES: dict[str, Callable[[], str]] = {
    "run": run_page,
    "curves": curves_page,
    "sim": sim_page,
    "run, equal lines": equal_run_page,
    "curves, equal lines": equal_curves_page,
}


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The file of a page, made once."""
    place = tmp_path_factory.mktemp("pages")

    def written(kind: str) -> Path:
        file = place / f"{kind}.html"
        if not file.exists():
            file.write_text(PAGES[kind](), encoding="utf-8")
        return file

    return written


class Opened:
    """A page with all figures drawn, and the browser's messages meanwhile."""

    def __init__(self, browser: Browser, file: Path, width: int, scheme: Any) -> None:
        self.messages: list[str] = []
        self.page: Page = browser.new_page(
            viewport={"width": width, "height": 900}, color_scheme=scheme
        )
        self.page.on("console", lambda message: self.messages.append(message.text))
        self.page.on("pageerror", lambda error: self.messages.append(str(error)))
        self.page.on("dialog", self._note_dialog)
        self.page.on("request", self._note_request)
        self.page.goto(file.as_uri())
        # The buttons come when the figure is drawn.
        self.page.wait_for_function(
            "() => { const count = (of) => document.querySelectorAll(of).length;"
            " return count('.save') === count('.chart'); }"
        )

    def _note_dialog(self, dialog: Any) -> None:
        self.messages.append(f"a dialog: {dialog.message}")
        dialog.dismiss()

    def _note_request(self, request: Any) -> None:
        if not request.url.startswith(("file:", "data:", "blob:")):
            self.messages.append(f"asked for {request.url}")


_OVERLAPS = """() => {
  const found = [];
  for (const chart of document.querySelectorAll(".chart")) {
    const boxes = [...chart.querySelectorAll("svg text")]
      .filter((text) => text.textContent.trim() && getComputedStyle(text).opacity !== "0")
      .map((text) => ({
        text: text.textContent,
        turned: /rotate/.test(text.outerHTML),
        of: text.getBoundingClientRect(),
      }));
    const outer = chart.querySelector("svg").getBoundingClientRect();
    for (const { text, of } of boxes)
      if (of.left < outer.left - 2 || of.right > outer.right + 2)
        found.push(`${chart.id}: "${text}" is cut`);
    for (let a = 0; a < boxes.length; a++)
      for (let b = a + 1; b < boxes.length; b++) {
        // A slanted label's box is larger than its text.
        if (boxes[a].turned && boxes[b].turned) continue;
        const p = boxes[a].of, q = boxes[b].of;
        const wide = Math.min(p.right, q.right) - Math.max(p.left, q.left);
        const high = Math.min(p.bottom, q.bottom) - Math.max(p.top, q.top);
        // Lines of text may touch: a box has room above and below its letters.
        if (wide > 1 && high > 4)
          found.push(`${chart.id}: "${boxes[a].text}" over "${boxes[b].text}"`);
      }
  }
  return found;
}"""


_BROKEN_WORDS = """() => {
  const found = [];
  for (const cell of document.querySelectorAll("thead th")) {
    const walker = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);
    for (let node; (node = walker.nextNode()); )
      for (const word of node.data.matchAll(/[A-Za-z0-9]+/g)) {
        const range = document.createRange();
        range.setStart(node, word.index);
        range.setEnd(node, word.index + word[0].length);
        if (range.getClientRects().length > 1) found.push(`"${word[0]}" is broken`);
      }
  }
  for (const cell of document.querySelectorAll("th"))
    if (!cell.textContent.trim()) found.push("a header without a name");
  for (const caption of document.querySelectorAll("caption"))
    if (caption.getBoundingClientRect().right > innerWidth)
      found.push(`"${caption.textContent}" is cut`);
  return found;
}"""


@pytest.mark.parametrize("kind", list(PAGES))
def test_tables_on_a_phone_have_whole_words_and_captions(
    browser: Browser, written: Callable[[str], Path], kind: str
) -> None:
    page = Opened(browser, written(kind), PHONE, "light").page
    assert page.evaluate(_BROKEN_WORDS) == []
    assert "`" not in page.locator("main").inner_text()
    page.close()


@pytest.mark.parametrize("kind", list(PAGES))
@pytest.mark.parametrize(("width", "scheme"), [(DESK, "light"), (PHONE, "dark")])
def test_figures_are_drawn_and_no_text_overlaps(
    browser: Browser, written: Callable[[str], Path], kind: str, width: int, scheme: str
) -> None:
    file = written(kind)
    opened = Opened(browser, file, width, scheme)
    page = opened.page
    assert opened.messages == []
    for name in charts_of(file.read_text(encoding="utf-8")):
        chart = page.locator(f'[id="{name}"]')
        assert chart.locator("svg.marks").count() == 1
        marks = chart.locator("svg :is(.mark-line, .mark-symbol, .mark-rect) path")
        assert any(
            path for path in marks.evaluate_all("all => all.map(of => of.getAttribute('d'))")
        )
        title = page.locator(f'[id="{chart.get_attribute("aria-labelledby")}"]')
        assert title.inner_text().strip()
    assert page.evaluate(_OVERLAPS) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.close()


_COLOURS = """() => {
  const of = (where, what) =>
    [...document.querySelectorAll(where)].map((one) => getComputedStyle(one)[what]);
  const text = of("p, td, th, h1, h2, figcaption", "color");
  return [...new Set([...text, ...of(".chart svg text", "fill")])];
}"""


def _luminance(colour: str) -> float:
    """The luminance of `rgb(1, 2, 3)` by WCAG 2."""
    channels = [int(part) / 255 for part in colour[colour.index("(") + 1 : -1].split(",")[:3]]
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("kind", list(PAGES))
def test_text_has_sufficient_contrast(
    browser: Browser, written: Callable[[str], Path], kind: str, scheme: str
) -> None:
    page = Opened(browser, written(kind), DESK, scheme).page
    ground = _luminance(page.evaluate("getComputedStyle(document.body).backgroundColor"))
    colours = page.evaluate(_COLOURS)
    assert len(colours) > 2
    for colour in colours:
        light, dark = sorted([_luminance(colour), ground], reverse=True)
        # WCAG requires a contrast of 3 in figures: names of lines have the colours of the lines.
        assert (light + 0.05) / (dark + 0.05) >= 3, colour
    page.close()


def test_hostile_names_are_inert(browser: Browser, tmp_path: Path) -> None:
    document = octavo.run(TRACE).document()
    text = json.dumps(document)
    document["run"]["command"] = ["run", HOSTILE]
    document["run"]["notes"].append(HOSTILE)
    for row in document["rows"]:
        if "region" in row:
            row["region"] = f"{row['region']}{HOSTILE}"
    for item in document["advice"]:
        item["text"] = f"{item['text']} {HOSTILE}"
        if "region" in item:
            item["region"] = f"{item['region']}{HOSTILE}"
    assert json.dumps(document) != text
    file = tmp_path / "hostile.html"
    file.write_text(render_run(document), encoding="utf-8")
    opened = Opened(browser, file, PHONE, "light")
    opened.page.wait_for_timeout(200)
    assert opened.messages == []
    assert opened.page.locator("img, main b").count() == 0
    shown = opened.page.locator("body").inner_text()
    assert "<img src=x" in shown
    assert "{{7*7}}" in shown
    assert "\x1b" not in shown
    assert "\u202e" not in shown
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= PHONE
    opened.page.close()


def regions_named(beginning: str, browser: Browser, directory: Path, width: int) -> Page:
    """The page of a run with regions whose names begin with the given text."""
    document = octavo.run(TRACE).document()
    for row in document["rows"]:
        if "region" in row:
            row["region"] = f"{beginning}{row['region']}"
    file = directory / "long.html"
    file.write_text(render_run(document), encoding="utf-8")
    return Opened(browser, file, width, "light").page


@pytest.mark.parametrize("width", [DESK, PHONE])
def test_long_names_of_rows_keep_their_ends(browser: Browser, tmp_path: Path, width: int) -> None:
    long = "the arena of a library that has a long name"
    page = regions_named(f"{long} ", browser, tmp_path, width)
    labels = page.locator("#map .role-axis-label text").all_text_contents()
    ends = {text.partition("…")[2] for text in labels if text.startswith(long[:8])}
    assert len(ends) == 2
    assert {end[-4:] for end in ends} == {"text", "B #1"}
    page.close()


def test_long_names_leave_room_for_other_columns(browser: Browser, tmp_path: Path) -> None:
    page = regions_named("long_" * 20, browser, tmp_path, PHONE)
    table = page.locator("table", has=page.locator("caption", has_text="Regions")).first
    box = table.locator("tbody tr").first.locator("td").nth(1).bounding_box()
    assert box
    assert box["x"] + box["width"] <= PHONE
    page.close()


def test_long_names_of_lines_keep_their_ends(browser: Browser, tmp_path: Path) -> None:
    designs = ["base4k", "conventional+thp", "conventional+mthp"]
    result = octavo.sim(TRACE, designs=designs, interval=2000)
    file = tmp_path / "sim.html"
    file.write_text(render_sim(sim_data.report_data(result)), encoding="utf-8")
    page = Opened(browser, file, PHONE, "light").page
    names = page.locator("#series-0 .role-mark text").all_text_contents()
    assert {"conven…al+thp", "conven…l+mthp"} <= set(names)
    page.close()


def test_a_long_table_scrolls(browser: Browser, tmp_path: Path) -> None:
    document = octavo.run(TRACE).document()
    rows = document["rows"]
    first = next(row["region"] for row in rows if row.get("region_kind") == "anonymous")
    own = [row for row in rows if row.get("region") == first]
    more = [{**row, "region": f"lib{at}.so data", "start": at} for at in range(200) for row in own]
    document["rows"] = [*rows, *more]
    file = tmp_path / "many.html"
    file.write_text(render_run(document), encoding="utf-8")
    page = Opened(browser, file, DESK, "light").page
    table = page.locator(".scroll", has=page.locator("caption", has_text="Regions")).first
    assert table.locator("tbody tr").count() > 200
    assert table.evaluate("of => of.getBoundingClientRect().height") < 900
    table.evaluate("of => of.scrollTo(0, of.scrollHeight)")
    box, head = table.bounding_box(), table.locator("thead th").first.bounding_box()
    assert box is not None
    assert head is not None
    assert head["y"] == pytest.approx(box["y"], abs=1), "the names of columns stay in sight"
    page.emulate_media(media="print")
    assert table.evaluate("of => of.scrollHeight === of.clientHeight")
    page.close()


def test_a_table_is_sorted_by_keyboard(browser: Browser, written: Callable[[str], Path]) -> None:
    page = Opened(browser, written("run"), DESK, "light").page
    table = page.locator(
        "table", has=page.locator("caption", has_text=re.compile("^TLB with"))
    ).first
    head = table.locator("thead th").last
    before = table.locator("tbody tr td:last-child").all_inner_texts()

    def growth() -> list[float]:
        cells = table.locator("tbody tr td:last-child").all_inner_texts()
        return [float(cell.strip("%").replace(",", "")) for cell in cells]

    head.locator("button").focus()
    page.keyboard.press("Enter")
    assert head.get_attribute("aria-sort") == "descending"
    assert growth() == sorted(growth(), reverse=True)
    page.keyboard.press("Enter")
    assert head.get_attribute("aria-sort") == "ascending"
    assert growth() == sorted(growth())
    assert sorted(before) == sorted(table.locator("tbody tr td:last-child").all_inner_texts())
    page.close()


def test_a_figure_is_saved(browser: Browser, written: Callable[[str], Path]) -> None:
    page = Opened(browser, written("sim"), DESK, "light").page
    starts = {"SVG": b"<svg", "PNG": b"\x89PNG"}
    for name, start in starts.items():
        with page.expect_download() as saved:
            page.get_by_label(f"Save parts as {name}").click()
        path = saved.value.path()
        assert saved.value.suggested_filename == f"parts.{name.lower()}"
        assert path.read_bytes().startswith(start)
    page.close()


def test_the_reader_chooses_the_data(browser: Browser, written: Callable[[str], Path]) -> None:
    page = Opened(browser, written("curves"), DESK, "light").page
    assert page.locator("select[name=stream]").input_value() == "Data"
    drawn = page.locator('[id="sets"] svg').inner_html()
    page.select_option("select[name=pages]", "4 KiB + 64 KiB")
    page.select_option("select[name=index]", "large")
    assert page.locator("select[name=index] option").all_inner_texts() == [
        "exact",
        "small",
        "large",
    ]
    page.wait_for_function(
        "(before) => document.querySelector('#sets svg').innerHTML !== before", arg=drawn
    )
    page.close()


def test_a_page_without_scripts_has_its_tables(
    browser: Browser, written: Callable[[str], Path]
) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(written("sim").as_uri())
    assert "JavaScript" in page.locator("noscript").first.inner_text()
    assert page.locator("table tbody tr").count() > 5
    context.close()
