"""Pages of the notebooks in docs/notebooks, with their kept outputs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from nbconvert import MarkdownExporter

_STYLE = re.compile(r"<style scoped>.*?</style>\n?", flags=re.DOTALL)
"""Style rules that pandas adds to each table; the site has its own."""


def notebook_files(path: Path) -> Iterator[tuple[str, str | bytes]]:
    """Names and contents of the notebook's page and of its figures."""
    exporter = MarkdownExporter()
    text, resources = exporter.from_filename(
        str(path), resources={"output_files_dir": f"{path.stem}_files"}
    )
    text = text.replace(' border="1" class="dataframe"', "")
    title, _, rest = _STYLE.sub("", text).lstrip().partition("\n")
    yield f"{path.stem}.md", f"{title}\n\n[Download this notebook]({path.name})\n{rest}"
    yield from resources["outputs"].items()
