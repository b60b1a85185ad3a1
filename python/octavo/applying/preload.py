"""The preload library: its file, its settings (preload/settings.h), and programs it can reach."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from octavo.applying.selection import Selection
from octavo.base.errors import CannotRun
from octavo.runtimes.program_file import open_program

LIBRARY = "liboctavo-apply.so"
LIBRARY_VARIABLE = "OCTAVO_PRELOAD"

_PACKAGE = Path(__file__).resolve().parents[1]
_SEPARATORS = frozenset(" :")
"""Separators in LD_PRELOAD, which cannot be quoted: ld.so(8)."""


@dataclass(frozen=True)
class PreloadSettings:
    """The settings of the library."""

    selection: Selection
    fill_percent: int = 50
    budget_percent: int = 10
    children: bool = True
    log: str | None = None

    def environment(self, library: Path, present: Mapping[str, str]) -> dict[str, str]:
        """The variables to set; the libraries in the LD_PRELOAD of `present` are kept."""
        others = present.get("LD_PRELOAD")
        return {
            "LD_PRELOAD": f"{library}:{others}" if others else str(library),
            "OCTAVO_APPLY_REGIONS": self.selection.text(),
            "OCTAVO_APPLY_FILL": str(self.fill_percent),
            "OCTAVO_APPLY_BUDGET": str(self.budget_percent),
            "OCTAVO_APPLY_CHILDREN": str(int(self.children)),
            **({"OCTAVO_APPLY_LOG": self.log} if self.log is not None else {}),
        }


def find_library() -> Path:
    """The preload library: the file that OCTAVO_PRELOAD names, or that of the package or checkout.

    Raises CannotRun.
    """
    named = os.environ.get(LIBRARY_VARIABLE)
    places = [_PACKAGE / "preload" / LIBRARY, _PACKAGE.parents[1] / "build" / "preload" / LIBRARY]
    found = next((place for place in ([Path(named)] if named else places) if place.is_file()), None)
    if found is None:
        if named:
            raise CannotRun(f"{LIBRARY_VARIABLE} names `{named}`, which is not a file.")
        raise CannotRun("the preload library is not built; `make setup` builds it.")
    found = found.resolve()
    if _SEPARATORS & set(str(found)):
        raise CannotRun(
            f"LD_PRELOAD cannot name `{found}`, which has a space or a colon in its path: copy it "
            f"elsewhere and set {LIBRARY_VARIABLE} to the copy."
        )
    return found


def elf_of(program: Path) -> Path:
    """The ELF file that the kernel executes for a program; for a script, its interpreter."""
    for _ in range(5):
        with program.open("rb") as file:
            line = file.readline(256)
        if not line.startswith(b"#!"):
            break
        program = Path(os.fsdecode(line[2:].split()[0]))
    return program


def is_static(program: Path) -> bool:
    """Whether a 64-bit ELF file names no dynamic loader, which would take a preloaded library."""
    with open_program(program) as file:
        return file is not None and file.loader is None
