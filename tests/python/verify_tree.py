"""A fake sysfs, for tests of code that changes settings."""

from __future__ import annotations

from pathlib import Path

THP = "/sys/kernel/mm/transparent_hugepage"
FILES = {
    f"{THP}/enabled": "always [madvise] never",
    f"{THP}/hugepages-64kB/enabled": "always inherit madvise [never]",
    f"{THP}/hugepages-2048kB/enabled": "always [inherit] madvise never",
    "/proc/sys/kernel/random/boot_id": "8a1f6b1e",
}


def make_tree(root: Path) -> Path:
    """Writes files with the contents of a kernel's."""
    for name, text in FILES.items():
        file = root / name.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n")
    return root


def chosen(root: Path) -> dict[str, str]:
    """The value of every setting."""
    from octavo.base.host import read_setting

    return {name: read_setting(root / name.lstrip("/")) or "" for name in FILES}


BEFORE = {
    f"{THP}/enabled": "madvise",
    f"{THP}/hugepages-64kB/enabled": "never",
    f"{THP}/hugepages-2048kB/enabled": "inherit",
    "/proc/sys/kernel/random/boot_id": "8a1f6b1e",
}
