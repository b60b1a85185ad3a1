"""Output in a locale whose encoding lacks characters of the text."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

C_LOCALE = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


def octavo(*words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **C_LOCALE}
    environment.pop("PYTHONIOENCODING", None)
    argv = [sys.executable, "-m", "octavo", *words]
    return subprocess.run(
        argv, env=environment, capture_output=True, encoding="ascii", check=False, timeout=300
    )


def test_characters_that_standard_output_lacks_are_escaped() -> None:
    done = octavo("list", "machines")
    assert (done.returncode, done.stderr) == (0, "")
    assert r"\u2026" in done.stdout


@pytest.mark.parametrize("words", [["info", "ü.oct"], ["run", "ü"], ["list", "ü"], ["run", "--ü"]])
def test_names_in_messages_are_escaped(words: list[str]) -> None:
    done = octavo(*words)
    assert done.returncode in (2, 125, 127)
    assert r"\xc3\xbc" in done.stderr
    assert "a bug in Octavo" not in done.stderr
