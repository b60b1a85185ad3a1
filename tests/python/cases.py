"""The number of random cases of a property test. The cases are the same in every run, unless
`OCTAVO_CASES=N` requests more, as `make test-long` does. The Rust tests follow the same variable.
"""

import os

from hypothesis import settings

FACTOR = int(os.environ.get("OCTAVO_CASES", "1"))


def cases(usual: int) -> int:
    """The number of cases of a test that has `usual` by default."""
    return usual * FACTOR


def use_profile() -> None:
    """Sets no time limit for a case, as another process may have the processor."""
    is_usual = "OCTAVO_CASES" not in os.environ
    settings.register_profile(
        "octavo", max_examples=cases(100), deadline=None, derandomize=is_usual
    )
    settings.load_profile("octavo")
