"""Command lines and environments of programs, with options added: `taskset -c 0 server --port 7`
starts `server`, and GLIBC_TUNABLES may hold options already.
"""

import shutil
from collections.abc import Mapping, Sequence
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


_JOINED_BY = {
    "GLIBC_TUNABLES": ":",
    "MALLOC_CONF": ",",
    "_RJEM_MALLOC_CONF": ",",
    "LD_PRELOAD": ":",
    "JAVA_TOOL_OPTIONS": " ",
    "JDK_JAVA_OPTIONS": " ",
    "NODE_OPTIONS": " ",
    "GODEBUG": ",",
}
"""The separator of each such variable."""


def added_to(present: Mapping[str, str], new: Mapping[str, str]) -> dict[str, str]:
    """The new variables; of those that hold several options, the present ones stay in front.

    Where both name an option, allocators and runtimes use the last.
    """
    joined = {}
    for name, value in new.items():
        old, separator = present.get(name), _JOINED_BY.get(name)
        joined[name] = f"{old}{separator}{value}" if old and separator else value
    return joined
