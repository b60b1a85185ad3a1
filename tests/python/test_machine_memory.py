"""The long fuzz of the simulated operating system, which is written in Rust."""

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.long
def test_memory_holds_what_was_stored_after_millions_of_steps() -> None:
    fuzz = ["cargo", "test", "-q", "--locked", "-p", "octavo-os", "--test", "fuzz"]
    subprocess.run([*fuzz, "--", "--ignored"], cwd=ROOT, check=True)
