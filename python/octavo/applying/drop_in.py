"""`octavo apply --unit`: a systemd drop-in that gives a service huge pages."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from octavo.actions.file_text import read_ahead, why_not
from octavo.applying.launch import Launch, prepare
from octavo.applying.preload import LIBRARY, PreloadSettings, find_library
from octavo.applying.unit_files import Unit, read_unit, similar_unit, unit_name
from octavo.base.errors import CannotRun, hint
from octavo.base.huge_pages import PMD_PAGE, HugePages, read_huge_pages
from octavo.base.text import capitalised
from octavo.runtimes.launchers import added_to

_OLDEST_WITH_MEMORY_THP = 260
"""MemoryTHP= was added in January 2026: https://github.com/systemd/systemd/pull/39085."""
_CONFINING = ("SystemCallFilter", "NoExecPaths", "ExecPaths", "RootDirectory", "RootImage")
"""Settings that may forbid the library's system calls, or hide its file."""
_INSTALLED = ("/usr/", "/opt/")
"""Directories that every service can read."""
_PLACE = Path("/usr/local/lib")


def drop_in(
    name: str,
    command: Sequence[str],
    settings: PreloadSettings,
    *,
    by: str,
    result: str | None,
    root: Path = Path("/"),
    version: int | None = None,
) -> str:
    """The text of a drop-in for the service `name`. `command` is its program where no unit file
    names one, `result` the name of the result that `settings` come from, and `version` that of
    systemd. Raises OctavoError.
    """
    name = unit_name(name)
    unit = read_unit(name, root) or Unit(name, {})
    words = [*command] or unit.command()
    if not words:
        end = hint(similar_unit(name, root))
        raise CannotRun(
            f"no unit file says what `{name}` starts{end} Name the program: octavo apply "
            f"--unit {name} -- PROGRAM."
        )
    version = systemd_version() if version is None else version
    lines, notes = _settings(unit, words, settings, by=by, result=result)
    for path in settings.selection.texts:
        lines += _read_ahead(path, notes)
    lines += _memory_thp(unit, settings, read_huge_pages(), version)
    return "".join(f"{line}\n" for line in [*_head(name, notes), "[Service]", *lines])


def systemd_version() -> int:
    """The version of systemd on this machine; 0 without systemd."""
    systemctl = shutil.which("systemctl")
    if systemctl is None:
        return 0
    done = subprocess.run([systemctl, "--version"], capture_output=True, text=True, check=False)
    match = re.match(r"systemd (\d+)", done.stdout)
    return int(match[1]) if match else 0


def _head(name: str, notes: list[str]) -> list[str]:
    return [
        f"# Huge pages for {name}, by octavo apply --unit.",
        *(f"# {note}" for note in notes),
        f"# Save it as /etc/systemd/system/{name}.d/octavo.conf; then, as root:",
        f"#   systemctl daemon-reload && systemctl restart {name}",
        "# To undo it, remove the file and do the same.",
        "",
    ]


def _settings(
    unit: Unit, words: list[str], settings: PreloadSettings, *, by: str, result: str | None
) -> tuple[list[str], list[str]]:
    """The lines under [Service], and sentences about them."""
    try:
        launch = prepare(words, settings, by)
    except CannotRun as error:
        if by != "auto":
            raise
        return _from_outside(settings, result), [_first_sentence(str(error))]
    confining = [key for key in _CONFINING if unit.has(key)]
    if launch.by == "preload" and confining:
        note = f"{confining[0]}= of the service may forbid a preloaded library its work."
        return _from_outside(settings, result), [note]
    if launch.by == "nothing":
        return [], [_sentence(launch.text)]
    return _by_launch(unit, words, launch)


def _read_ahead(path: str, notes: list[str]) -> list[str]:
    """The line that reads a file in huge pages before the service starts; where that is not
    possible, no line, and the reason among the notes.
    """
    host = read_huge_pages()
    action = read_ahead(path, host)
    if action is None:
        notes.append(f"The text of {Path(path).name} stays in 4 KiB pages: {why_not(path, host)}.")
        return []
    python, *words = action.prefix
    line = shlex.join([shutil.which(python) or f"/usr/bin/{python}", *words, "/bin/true"])
    return [f"ExecStartPre={line}".replace("%", "%%").replace("$", "$$")]


def _by_launch(unit: Unit, words: list[str], launch: Launch) -> tuple[list[str], list[str]]:
    variables, notes = dict(launch.variables), [_sentence(launch.text)]
    present = unit.environment()
    if launch.by == "preload":
        library = find_library()
        if not str(library).startswith(_INSTALLED):
            notes.append("First copy the library, as root, to where every service can read it:")
            notes.append(f"  install -m 644 {shlex.quote(str(library))} {_PLACE}/")
            library = _PLACE / LIBRARY
        others = present.get("LD_PRELOAD")
        variables["LD_PRELOAD"] = f"{library}:{others}" if others else str(library)
    else:
        variables = added_to(present, variables)
    lines = [_environment_line(key, value) for key, value in variables.items()]
    arguments = launch.command[1 : len(launch.command) - len(words) + 1]
    if arguments:
        if not unit.has("ExecStart"):
            raise CannotRun(
                f"no unit file of `{unit.name}` has an ExecStart= to insert options in."
            )
        lines += ["ExecStart=", f"ExecStart={unit.command_with(arguments)}"]
    return lines, notes


def _environment_line(name: str, value: str) -> str:
    text = f"{name}={value}".replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'Environment="{text}"'


def _from_outside(settings: PreloadSettings, result: str | None) -> list[str]:
    """The line that starts a transient service, which ends with the service and runs
    `octavo apply --pid` on it.
    """
    octavo = Path(sys.argv[0]).resolve()
    words = [
        *("systemd-run", "--collect", "--unit=octavo-apply-%N"),
        *("--property=BindsTo=%n", "--property=After=%n"),
        *(str(octavo), "apply", "--quiet", "--pid", "$MAINPID", "--watch"),
        *(("--children",) if settings.children else ()),
        f"--min-fill={settings.fill_percent}%%",
    ]
    line = " ".join(words)
    if result is not None:
        line += f" --from {shlex.quote(str(Path(result).resolve()))}".replace("%", "%%")
    return [f"ExecStartPost=+{line}"]


def _memory_thp(
    unit: Unit, settings: PreloadSettings, machine: HugePages, version: int
) -> list[str]:
    """The line with MemoryTHP=, which can only keep huge pages off; systemd has it since 260."""
    if version < _OLDEST_WITH_MEMORY_THP:
        return []
    if settings.selection.is_empty:
        unasked = machine.thp_sizes.get(PMD_PAGE) == "always"
        return ["MemoryTHP=madvise"] if unasked else []
    return ["MemoryTHP=inherit"] if unit.has("MemoryTHP") else []


def _sentence(text: str) -> str:
    return f"{capitalised(text)}."


def _first_sentence(text: str) -> str:
    return f"{re.split(r'[:;] ', text, maxsplit=1)[0].rstrip('.')}."
