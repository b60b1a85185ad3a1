"""How many random cases a property test tries: the same ones in every run, unless more are asked
for by `OCTAVO_CASES=N`, as `make test-long` does. The Rust tests follow the same variable.
"""

import os

from hypothesis import settings

FACTOR = int(os.environ.get("OCTAVO_CASES", "1"))


def cases(usual: int) -> int:
    """The number of cases of a test that usually tries so many."""
    return usual * FACTOR


def use_profile() -> None:
    """A case may take any time: another process may have the processor."""
    is_usual = "OCTAVO_CASES" not in os.environ
    settings.register_profile(
        "octavo", max_examples=cases(100), deadline=None, derandomize=is_usual
    )
    settings.load_profile("octavo")
