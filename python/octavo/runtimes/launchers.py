"""Programs that execute another one in their place: `taskset -c 0 server --port 7`."""

import shutil
from collections.abc import Sequence
from pathlib import Path

_LAUNCHERS = frozenset(
    [
        *("chrt", "env", "ionice", "nice", "nohup", "numactl"),
        *("setpriv", "setsid", "stdbuf", "taskset", "timeout"),
    ]
)


def program_at(words: Sequence[str]) -> int:
    """The place in a command line of the program that is started in the end; 0 without launchers.

    It is the first word behind a launcher that is no option, no assignment, and an executable.
    """
    at = 0
    while Path(words[at]).name in _LAUNCHERS:
        behind = range(at + 1, len(words))
        found = next((place for place in behind if _is_program(words[place])), None)
        if found is None:
            break
        at = found
    return at


def with_options(words: Sequence[str], options: Sequence[str]) -> list[str]:
    """The command line with options inserted behind the name of the program that it starts."""
    behind = program_at(words) + 1
    return [*words[:behind], *options, *words[behind:]]


def _is_program(word: str) -> bool:
    return not word.startswith("-") and "=" not in word and shutil.which(word) is not None
