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

_FIRST_OPTIONS = (
    *("--no-defaults", "--print-defaults"),
    *("--defaults-file=", "--defaults-extra-file=", "--defaults-group-suffix="),
)
"""Beginnings of options of MariaDB's and MySQL's programs that have to come before all others."""


def program_at(words: Sequence[str]) -> int:
    """The place in a command line of the program that is started in the end; 0 without launchers.

    It is the first word behind a launcher that is an executable, and neither an option nor an assignment.
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
    behind options that the program accepts in the first place alone.
    """
    behind = program_at(words) + 1
    while behind < len(words) and words[behind].startswith(_FIRST_OPTIONS):
        behind += 1
    return [*words[:behind], *options, *words[behind:]]


def _is_program(word: str) -> bool:
    return not word.startswith("-") and "=" not in word and shutil.which(word) is not None


def has_options(words: Sequence[str], options: Sequence[str]) -> bool:
    """Whether a command line has these options already, one after the other."""
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
"""Of each such variable, the separators of its options and of an option and its value."""


def added_to(present: Mapping[str, str], new: Mapping[str, str]) -> dict[str, str]:
    """The new variables; of those that hold several options, the present ones stay in front.

    An option that both name has the new value alone.
    """
    joined = {}
    for name, value in new.items():
        old = present.get(name)
        if old and name in _JOINED_BY:
            value = _with_new(old, value, *_JOINED_BY[name])
        joined[name] = value
    return joined


def _with_new(old: str, new: str, separator: str, assigns: str) -> str:
    """The options of a variable: the old value itself where it has all that is new."""
    present, added = old.split(separator), new.split(separator)
    names = {option.partition(assigns)[0] for option in added}
    others = [option for option in present if option.partition(assigns)[0] not in names]
    replaced = [option for option in present if option not in others]
    return old if sorted(replaced) == sorted(added) else separator.join((*others, *added))
