"""The number of random cases of a property test. The cases are the same in every run, unless
`OCTAVO_CASES=N` requests more, as `make test-long` does. The Rust tests follow the same variable.
"""

import os

from hypothesis import settings

FACTOR = int(os.environ.get("OCTAVO_CASES", "1"))


def cases(usual: int) -> int:
    """The number of cases of a test whose default number is `usual`."""
    return usual * FACTOR


def use_profile() -> None:
    """Loads the settings of property tests. Cases have no time limit: other processes may run."""
    is_usual = "OCTAVO_CASES" not in os.environ
    settings.register_profile(
        "octavo", max_examples=cases(100), deadline=None, derandomize=is_usual
    )
    settings.load_profile("octavo")
