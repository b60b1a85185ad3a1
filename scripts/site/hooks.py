"""Pages of the documentation site that are not files of docs/, and links between all pages.

MkDocs calls the functions `on_…` (mkdocs.yml). They add pages from outside docs/ and a page for
each command, and turn links to other files of the repository into plain text, as the site does not
have these files.
"""

from __future__ import annotations

import logging
import posixpath
import re
import sys
from pathlib import Path
from typing import Any

from markdown.extensions import Extension
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

sys.path.insert(0, str(Path(__file__).parent))
from command_pages import COMMANDS, command_page
from notebook_pages import notebook_files

ROOT = Path(__file__).resolve().parents[2]
OUTSIDE = {
    "ARCHITECTURE.md": "developing/architecture.md",
    "CONTRIBUTING.md": "developing/contributing.md",
    "CHANGELOG.md": "developing/changes.md",
    "conformance/README.md": "developing/conformance.md",
    "README.md": "index.md",
}
"""Pages of the repository outside of docs/, with their place in the site."""
COMMANDS_TITLE = "Every command and option"
LINK = re.compile(r"\[([^\[\]]*)\]\((?!\w+:|#)([^)#\s]+)(#[^)\s]*)?\)")
FIGURE = re.compile(r"^!\[[^\]]*\]\((figures/[\w-]+\.svg)\)$", flags=re.MULTILINE)
"""An SVG figure, which is inlined into its page so that it has the page's colours."""
STYLE = re.compile(r"<style>.*?</style>\n?", flags=re.DOTALL)
FENCE = re.compile(r"(^ *```.*?^ *```$)", flags=re.DOTALL | re.MULTILINE)

log = logging.getLogger("mkdocs.plugins.octavo")


class _TwoSpaces(Extension):
    """Sets the indentation of text in list items to two spaces, as in docs/."""

    def extendMarkdown(self, md: Any) -> None:  # noqa: N802
        md.tab_length = 2


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Adds the pages of commands to the navigation, and the width of an indentation."""
    config.markdown_extensions.append(_TwoSpaces())  # type: ignore[arg-type]
    _fill(config.nav)
    return config


def _fill(entries: Any) -> None:
    for entry in entries or []:
        if isinstance(entry, dict):
            for title, content in entry.items():
                if title == COMMANDS_TITLE:
                    entry[title] = [{f"octavo {name}": _place(name)} for name in COMMANDS]
                elif isinstance(content, list):
                    _fill(content)


def _place(command: str) -> str:
    return f"reference/commands/{command}.md"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages of OUTSIDE, of notebooks and of commands."""
    for name, place in OUTSIDE.items():
        if files.get_file_from_path(place) is None:
            text = (ROOT / name).read_text(encoding="utf-8")
            files.append(File.generated(config, place, content=text))
    for path in sorted((ROOT / "docs/notebooks").glob("*.ipynb")):
        for name, content in notebook_files(path):
            files.append(File.generated(config, f"notebooks/{name}", content=content))
    for command in COMMANDS:
        files.append(File.generated(config, _place(command), content=command_page(command)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Changes links of the page to the site's and inlines drawings. Blocks of code stay as they
    are, except that `ignore`, which highlighters do not know, is removed after `rust`.
    """
    place = page.file.src_uri
    generated = {site: name for name, site in OUTSIDE.items() if site != "index.md"}
    source = generated.get(place, f"docs/{place}")
    markdown = FIGURE.sub(lambda figure: _drawing(source, figure[1]), markdown)
    parts = FENCE.split(markdown)
    parts[::2] = [LINK.sub(lambda link: _link(link, source, place), part) for part in parts[::2]]
    parts[1::2] = [part.replace("```rust,ignore\n", "```rust\n", 1) for part in parts[1::2]]
    return "".join(parts)


def _drawing(source: str, name: str) -> str:
    text = (ROOT / source).parent.joinpath(name).read_text(encoding="utf-8")
    return f"<figure>{STYLE.sub('', text).strip()}</figure>"


def _link(link: re.Match[str], source: str, place: str) -> str:
    text, target, anchor = link[1], link[2], link[3] or ""
    name = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
    if name.startswith("docs/"):
        wanted = name.removeprefix("docs/")
        if wanted != f"{place.removesuffix('.md')}.ipynb":
            wanted = wanted.removesuffix(".ipynb") + (".md" if wanted.endswith(".ipynb") else "")
    elif name in OUTSIDE:
        wanted = OUTSIDE[name]
    else:
        if not (ROOT / name).exists():
            log.warning("%s links to %s, which does not exist", source, name)
        return text
    return f"[{text}]({posixpath.relpath(wanted, posixpath.dirname(place) or '.')}{anchor})"
