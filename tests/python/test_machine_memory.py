"""The long fuzzes of the simulated operating system and of all machines, written in Rust."""

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.long
@pytest.mark.parametrize("crate", ["octavo-os", "octavo-machine"])
def test_memory_holds_what_was_stored_after_millions_of_steps(crate: str) -> None:
    fuzz = ["cargo", "test", "-q", "--locked", "-p", crate, "--test", "all"]
    subprocess.run([*fuzz, "--", "--ignored", "fuzz::"], cwd=ROOT, check=True)
