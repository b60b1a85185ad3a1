"""Variables of the environment that hold several options."""

from __future__ import annotations

from collections.abc import Mapping

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
