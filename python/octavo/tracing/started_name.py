"""Names of a program that was started through a symbolic link.

A process maps the file that the link leads to: `redis-server` is a link to `redis-check-rdb` on
Debian. Users know the program by the name that they started, so its process and its regions have
that name. The paths of regions stay those of the files.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any


def use_started_name(processes: Sequence[Any], program: str, image: str) -> None:
    """Renames processes whose program is `image`, and their regions of that file, after `program`.

    `image` is the file that `program` leads to. A script is no link to its interpreter, so nothing
    is renamed after it.
    """
    linked, started = Path(image).name, Path(program).name
    if linked == started:
        return
    for process in processes:
        if process["program"] != image:
            continue
        process["program"] = program
        regions = list(_regions(process))
        taken = {region["name"] for region in regions if region["path"] != image}
        for region in regions:
            name = f"{started}{region['name'].removeprefix(linked)}"
            is_named_so = region["name"].startswith(f"{linked} ")
            if region["path"] == image and is_named_so and name not in taken:
                region["name"] = name


def _regions(process: Any) -> Iterator[Any]:
    """The regions of a process of any engine."""
    yield from process.get("regions", ())
    for stream in process.get("streams", ()):
        for classes in stream["classes"]:
            yield from classes["regions"]
