"""Families of regions: mappings of one kind that a program makes many of, such as arenas."""

import re

_NUMBERED = re.compile(r" (?:[\d.]+(?:KiB|MiB|GiB)(?: #\d+)?|\(small\))$")


def family_of(region: str) -> str:
    """The name without size and number: `jemalloc arena 2.0MiB #7` is a `jemalloc arena`."""
    return _NUMBERED.sub("", region)
