"""The documentation site: it is built without a warning, and loads nothing from elsewhere."""

import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest

from octavo.cli import COMMANDS

ROOT = Path(__file__).parents[2]
LOADING = {
    "script": "src",
    "img": "src",
    "iframe": "src",
    "source": "src",
    "object": "data",
    "link": "href",
}
RENDERED_BY_MAKE_DOCS = ("reference/python/index.html", "reference/rust/octavo_types/index.html")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("site")
    command = [sys.executable, ROOT / "scripts/build-site", place]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    return place


class _Page(HTMLParser):
    """The names that a page's elements have, its links, and all that it loads."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        self.names: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if "id" in given:
            self.names.add(given["id"])
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if LOADING.get(tag) in given:
            self.loaded.append(given[LOADING[tag]])


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
        if path.name == "404.html":
            continue
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


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_has_a_page_with_its_options(site: Path, command: str) -> None:
    text = (site / f"reference/commands/{command}.html").read_text(encoding="utf-8")
    assert f"octavo {command}" in text
    assert "--help" in text
