"""The documentation site is built without a warning, and loads nothing from elsewhere."""

from __future__ import annotations

import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

import pytest

from octavo.cli import COMMANDS

if TYPE_CHECKING:
    from playwright.sync_api import Browser

ROOT = Path(__file__).parents[2]
LOADING = {
    "script": "src",
    "img": "src",
    "iframe": "src",
    "source": "src",
    "object": "data",
    "link": "href",
}
CODE = {"code", "pre", "script", "style"}
CONTEXTS = {*CODE, "th"}
RENDERED_BY_MAKE_DOCS = ("reference/python/index.html", "reference/rust/octavo_types/index.html")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("site")
    command = [sys.executable, ROOT / "scripts/build-site", place]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    return place


class _Page(HTMLParser):
    """The identifiers of a page's elements, its links, everything that it loads, its text outside
    code, and the heads of its tables.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        self.names: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.text: list[str] = []
        self.heads: list[list[str]] = []
        self._open: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if "id" in given:
            self.names.add(given["id"])
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if LOADING.get(tag) in given:
            self.loaded.append(given[LOADING[tag]])
        if tag == "tr":
            self.heads.append([])
        if tag == "th":
            self.heads[-1].append("")
        if tag in CONTEXTS:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in CONTEXTS:
            assert self._open.pop() == tag, self.path

    def handle_data(self, data: str) -> None:
        if "th" in self._open:
            self.heads[-1][-1] += data
        if not CODE & set(self._open):
            self.text.append(data)


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, _Page]:
    return {path: _Page(path) for path in site.rglob("*.html")}


def test_nothing_is_loaded_from_elsewhere(site: Path, pages: dict[Path, _Page]) -> None:
    for path, page in pages.items():
        outside = [name for name in page.loaded if re.match(r"(?!data:)\w+:|//", name)]
        assert not outside, (path, outside)
    for sheet in site.rglob("*.css"):
        assert not re.search(r"(@import|url\()\s*[\"']?(https?:)?//", sheet.read_text()), sheet


def test_every_link_within_the_site_leads_somewhere(site: Path, pages: dict[Path, _Page]) -> None:
    for path, page in pages.items():
        for link in page.links:
            target, _, name = link.partition("#")
            if re.match(r"\w+:", target):
                continue
            wanted = (path.parent / unquote(target)).resolve() if target else path
            if wanted.is_dir():
                wanted /= "index.html"
            if str(wanted.relative_to(site)) in RENDERED_BY_MAKE_DOCS:
                continue
            assert wanted.exists(), (path, link)
            if name and wanted.suffix == ".html":
                assert unquote(name) in pages[wanted].names, (path, link)


def test_the_page_of_missing_pages_has_no_relative_links(
    site: Path, pages: dict[Path, _Page]
) -> None:
    missing = pages[site / "404.html"]
    assert (missing.loaded, missing.links) == ([], [])
    assert "<style>" in missing.path.read_text()
    assert "Page not found" in missing.text


def test_no_page_shows_backticks(pages: dict[Path, _Page]) -> None:
    shown = {path.name: [text for text in page.text if "`" in text] for path, page in pages.items()}
    assert {name: texts for name, texts in shown.items() if texts} == {}


def test_the_last_column_of_a_table_has_a_name(pages: dict[Path, _Page]) -> None:
    """The first column may have none, as its cells are names. Notebooks show tables of pandas."""
    for path, page in pages.items():
        for head in page.heads:
            if len(head) > 1 and path.parent.name != "notebooks":
                assert head[-1].strip(), (path, head)


def test_the_facts_of_a_notebook_have_no_empty_head(pages: dict[Path, _Page]) -> None:
    for path, page in pages.items():
        assert ["", ""] not in page.heads, path


def test_tables_suit_a_phone(browser: Browser, site: Path) -> None:
    """Captions are visible, options leave room for their meaning, and numbers have their unit
    beside them.
    """
    page = browser.new_page(viewport={"width": 390, "height": 900})
    page.goto((site / "notebooks/first-steps.html").as_uri())
    boxes = [one.bounding_box() for one in page.locator("caption").all()]
    assert boxes
    assert all(box and box["x"] >= 0 and box["x"] + box["width"] <= 390 for box in boxes)
    page.goto((site / "reference/commands/run.html").as_uri())
    cells = page.locator("tbody tr").first.locator("td")
    option, meaning = (cell.bounding_box() for cell in cells.all())
    assert option
    assert meaning
    assert meaning["width"] > option["width"]
    page.goto((site / "results/tailored-page-sizes.html").as_uri())
    number = page.locator("td", has_text=re.compile(r"^[\d.]+ M$")).first
    assert (
        number.evaluate(
            "cell => { const range = document.createRange(); range.selectNodeContents(cell);"
            " return range.getClientRects().length; }"
        )
        == 1
    )
    page.close()


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_has_a_page_with_its_options(site: Path, command: str) -> None:
    text = (site / f"reference/commands/{command}.html").read_text(encoding="utf-8")
    assert f"octavo {command}" in text
    assert "--help" in text
