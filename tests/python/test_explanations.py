"""The figures of the explanations: drawn by their script, and part of each page of the site."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PLACE = ROOT / "docs/explanation"


def test_figures_are_as_the_script_draws_them(tmp_path: Path) -> None:
    subprocess.run([sys.executable, ROOT / "scripts/explanation-figures", tmp_path], check=True)
    drawn = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert drawn == {path.name: path.read_text() for path in (PLACE / "figures").iterdir()}


def test_each_explanation_has_a_figure() -> None:
    pages = {path.stem for path in PLACE.glob("*.md")} - {"index"}
    figures = {path.stem for path in (PLACE / "figures").glob("*.svg")}
    assert pages == figures
    for page in pages:
        assert f"](figures/{page}.svg)" in (PLACE / f"{page}.md").read_text()


def test_letters_of_figures_stay_inside() -> None:
    """By the width of a letter, at most 0.62 of its height on average."""
    for path in (PLACE / "figures").glob("*.svg"):
        for tag, text in re.findall(r"<text ([^>]*)>([^<]*)</text>", path.read_text()):
            given = dict(re.findall(r'([\w-]+)="([^"]*)"', tag))
            width = 0.62 * int(given["font-size"]) * len(text)
            left = (
                int(given["x"])
                - {"start": 0.0, "middle": 0.5, "end": 1.0}[given["text-anchor"]] * width
            )
            assert left >= 0, (path.name, text)
            assert left + width <= 480, (path.name, text)
