"""Adds options to command lines and environments of programs. In `taskset -c 0 server --port 7`
the program is `server`, and GLIBC_TUNABLES may have options already.
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

_FIRST_OPTIONS = (
    *("--no-defaults", "--print-defaults"),
    *("--defaults-file=", "--defaults-extra-file=", "--defaults-group-suffix="),
)
"""Beginnings of options that programs of MariaDB and MySQL accept only before all others."""


def program_at(words: Sequence[str]) -> int:
    """The index in a command line of the program that launchers start; 0 without launchers.

    It is the first word behind a launcher that is an executable, and neither an option nor an
    assignment.
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
    """The command line with options inserted behind the name of the program that it starts, and
    behind options that the program accepts only in the first place.
    """
    behind = program_at(words) + 1
    while behind < len(words) and words[behind].startswith(_FIRST_OPTIONS):
        behind += 1
    return [*words[:behind], *options, *words[behind:]]


def _is_program(word: str) -> bool:
    return not word.startswith("-") and "=" not in word and shutil.which(word) is not None


def has_options(words: Sequence[str], options: Sequence[str]) -> bool:
    """Whether a command line already has these options, one after the other."""
    length = len(options)
    return any(tuple(words[at : at + length]) == tuple(options) for at in range(len(words)))


_JOINED_BY = {
    "GLIBC_TUNABLES": (":", "="),
    "MALLOC_CONF": (",", ":"),
    "_RJEM_MALLOC_CONF": (",", ":"),
    "LD_PRELOAD": (":", "="),
    "JAVA_TOOL_OPTIONS": (" ", "="),
    "JDK_JAVA_OPTIONS": (" ", "="),
    "NODE_OPTIONS": (" ", "="),
    "GODEBUG": (",", "="),
}
"""For each variable with several options, the separator of options, and that before a value."""


def added_to(present: Mapping[str, str], new: Mapping[str, str]) -> dict[str, str]:
    """The new variables. In a variable with several options, present options stay in front of new
    ones; an option that both have gets the new value.
    """
    joined = {}
    for name, value in new.items():
        old = present.get(name)
        if old and name in _JOINED_BY:
            value = _with_new(old, value, *_JOINED_BY[name])
        joined[name] = value
    return joined


def _with_new(old: str, new: str, separator: str, assigns: str) -> str:
    """The options of a variable; the old value unchanged if it has all new options already."""
    present, added = old.split(separator), new.split(separator)
    names = {option.partition(assigns)[0] for option in added}
    others = [option for option in present if option.partition(assigns)[0] not in names]
    replaced = [option for option in present if option not in others]
    return old if sorted(replaced) == sorted(added) else separator.join((*others, *added))
