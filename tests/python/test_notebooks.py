"""The notebooks of docs/notebooks run to their end, and hold their outputs."""

import re
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

ROOT = Path(__file__).parents[2]
PLACE = ROOT / "docs/notebooks"
FIGURES = {"first-steps": 4, "five-papers": 5}
"""Figures that each notebook shows."""
MOST_BYTES = 250_000
PUBLIC = ("record", "run", "curves", "sim", "sweep", "machine", "machines", "OctavoError")


def notebook(name: str) -> Any:
    return nbformat.read(PLACE / f"{name}.ipynb", as_version=4)


def figures(loaded: Any) -> int:
    data = [output.get("data", {}) for cell in loaded.cells for output in cell.get("outputs", [])]
    return sum("image/svg+xml" in one or "<img" in one.get("text/html", "") for one in data)


def test_every_notebook_is_tested() -> None:
    assert {path.stem for path in PLACE.glob("*.ipynb")} == set(FIGURES)


@pytest.mark.parametrize("name", FIGURES)
def test_stored_outputs_are_whole_small_and_name_no_directory(name: str) -> None:
    path = PLACE / f"{name}.ipynb"
    text = path.read_text(encoding="utf-8")
    assert len(text) < MOST_BYTES
    assert str(ROOT) not in text
    assert figures(notebook(name)) == FIGURES[name]
    assert not re.findall(r'"output_type": "error"', text)
    nbformat.validate(notebook(name))


@pytest.mark.parametrize("name", FIGURES)
def test_only_the_public_interface_is_used(name: str) -> None:
    code = "\n".join(cell.source for cell in notebook(name).cells if cell.cell_type == "code")
    assert not re.findall(r"from octavo|import octavo\.", code)
    assert set(re.findall(r"octavo\.(\w+)", code)) <= set(PUBLIC)


@pytest.mark.long
@pytest.mark.parametrize("name", FIGURES)
def test_a_notebook_runs_to_its_end(name: str) -> None:
    loaded = notebook(name)
    for cell in loaded.cells:
        if cell.cell_type == "code":
            cell.outputs = []
    NotebookClient(loaded, timeout=1800).execute()
    assert figures(loaded) == FIGURES[name]
