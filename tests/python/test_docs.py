"""The examples of the documentation, run as they stand."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RESULTS = {
    "run.md": "result/manifest.json",
    "traces.md": "result/manifest.json",
    "curves.md": "result/manifest.json",
    "sim.md": "result/manifest.json",
    "perforated.md": "result/manifest.json",
    "softvm.md": "softvm.json",
    "snapshot.md": "now.json",
    "machines.md": "mine.toml",
    "workloads.md": "result/manifest.json",
}
"""Each page with a file that its examples leave behind."""
PAGES = tuple(RESULTS)


ENVIRONMENT = {
    **os.environ,
    "PATH": f"{Path(sys.executable).parent}:{ROOT / 'build/workloads'}:{os.environ['PATH']}",
}


def examples(page: str, language: str) -> list[str]:
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    blocks: list[str] = re.findall(rf"```{language}\n(.*?)```", text, flags=re.DOTALL)
    return blocks


@pytest.mark.parametrize("page", PAGES)
def test_there_are_examples(page: str) -> None:
    assert len(examples(page, "sh")) == 1
    assert len(examples(page, "python")) == 1


@pytest.mark.long
@pytest.mark.parametrize("page", PAGES)
def test_the_shell_examples_run(page: str, tmp_path: Path) -> None:
    for script in examples(page, "sh"):
        subprocess.run(["sh", "-eu", "-c", script], cwd=tmp_path, env=ENVIRONMENT, check=True)
    assert (tmp_path / RESULTS[page]).exists()


@pytest.mark.long
@pytest.mark.parametrize("page", PAGES)
def test_the_python_examples_run(page: str, tmp_path: Path) -> None:
    for script in examples(page, "python"):
        subprocess.run([sys.executable, "-c", script], cwd=tmp_path, env=ENVIRONMENT, check=True)
