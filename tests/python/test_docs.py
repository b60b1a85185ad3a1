"""The examples of the documentation, run as they stand."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RUN_PAGE = (ROOT / "docs" / "run.md").read_text(encoding="utf-8")


def examples(language: str) -> list[str]:
    blocks: list[str] = re.findall(rf"```{language}\n(.*?)```", RUN_PAGE, flags=re.DOTALL)
    return blocks


def test_there_are_examples() -> None:
    assert len(examples("sh")) == 1
    assert len(examples("python")) == 1


@pytest.mark.long
def test_the_shell_examples_run(tmp_path: Path) -> None:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    for script in examples("sh"):
        subprocess.run(
            ["sh", "-eu", "-c", script], cwd=tmp_path, env={**os.environ, "PATH": path}, check=True
        )
    assert (tmp_path / "result" / "report.html").exists()


@pytest.mark.long
def test_the_python_examples_run(tmp_path: Path) -> None:
    for script in examples("python"):
        subprocess.run([sys.executable, "-c", script], cwd=tmp_path, check=True)
