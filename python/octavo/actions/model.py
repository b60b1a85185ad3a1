"""An action: commands that give a program pages of another size, and commands that undo it."""

import os
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from octavo.base.text import shell_line, shell_word
from octavo.base.units import format_bytes
from octavo.runtimes.launchers import added_to, has_options, with_options

UNKNOWN_PROGRAM = "PROGRAM ARGUMENTS"
"""Stands for a command line that is not known."""


@dataclass(frozen=True)
class Action:
    """One thing to do, or to know before doing anything."""

    kind: str
    """note (nothing to run), thp, mthp, malloc, runtime, madvise, hugetlbfs, mount, file, linker,
    prctl or apply."""
    text: str
    command: str = ""
    """Lines of shell to paste: the settings that differ from now, then the program. For the kinds
    `madvise` and `linker` a line of source or of the build; empty for a note."""
    name: str = ""
    """Unique among the candidates of a program, such as `jemalloc-thp 2MiB`; empty for notes."""
    page_size: int | None = None
    """Size in bytes of the pages that it gives."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables to set for the program."""
    arguments: tuple[str, ...] = ()
    """Words to insert after the program's name."""
    prefix: tuple[str, ...] = ()
    """Words before the program's name."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Every system-wide file that decides the result, by absolute path, with the value it needs."""
    now: Mapping[str, str] = field(default_factory=dict)
    """The values of these files when they were read."""
    restoring: str = ""
    """A line of shell that undoes a change of no file of `settings`, such as a mount option."""
    caution: str = ""
    """The part of the text to show beside the command: when it has no effect, and its side
    effects."""
    tried: str = ""
    """The result of a trial on this kernel, or why there was none."""

    @property
    def changes(self) -> dict[str, str]:
        """The settings that differ from now, in the order in which to write them."""
        return {path: value for path, value in self.settings.items() if self.now[path] != value}

    @property
    def system_wide(self) -> bool:
        """Whether it changes a setting that other programs share."""
        return bool(self.changes or self.restoring)

    def does_something(self, program: Sequence[str]) -> bool:
        """Whether the action changes anything for the program of a command line, under the present
        variables and settings.
        """
        return bool(
            self.changes
            or self.prefix
            or self._new_variables != {name: os.environ.get(name) for name in self.environment}
            or self._new_options(program)
        )

    @property
    def undo(self) -> str:
        """Lines of shell that restore the settings as they were read; empty where none changes."""
        lines = [write_setting(path, self.now[path]) for path in reversed(self.changes)]
        return "\n".join([*lines, self.restoring] if self.restoring else lines)

    def words(self, program: Sequence[str]) -> list[str]:
        """The program's command line under this action, without settings and environment."""
        return [*self.prefix, *with_options(program, self._new_options(program))]

    def for_program(self, program: str) -> "Action":
        """The action with its command: the settings, then the program, quoted for a shell."""
        lines = [*self.setting_lines, self._start(program)]
        return replace(self, command="\n".join(lines))

    @property
    def setting_lines(self) -> list[str]:
        """Lines of shell that write the settings that differ from now."""
        return [write_setting(path, value) for path, value in self.changes.items()]

    def _start(self, program: str) -> str:
        variables = (f"{name}={shell_word(value)}" for name, value in self._new_variables.items())
        return " ".join((*variables, shell_line(self.words(shlex.split(program)))))

    @property
    def _new_variables(self) -> dict[str, str]:
        # The line is pasted into a shell in which the present variables are set.
        return added_to(os.environ, self.environment)

    def _new_options(self, program: Sequence[str]) -> tuple[str, ...]:
        return () if has_options(program, self.arguments) else self.arguments

    def record(self) -> dict[str, Any]:
        """Plain data for the JSON; docs/rows.md describes it."""
        record = {
            **asdict(self),
            "arguments": list(self.arguments),
            "prefix": list(self.prefix),
            "settings": [
                {"path": path, "value": value, "now": self.now[path]}
                for path, value in self.settings.items()
            ],
            "undo": self.undo,
        }
        always = ("kind", "text", "command")
        del record["now"], record["restoring"]
        return {name: value for name, value in record.items() if value or name in always}


def write_setting(path: str, value: str) -> str:
    """The shell command that writes one setting as root."""
    if _is_root_without_sudo():
        return f"echo {value} > {path}"
    return f"echo {value} | sudo tee {path}"


def as_root(command: str) -> str:
    """The shell command that runs another one as root."""
    return command if _is_root_without_sudo() else f"sudo {command}"


def own_command() -> tuple[str, ...]:
    """The words that start this Octavo: `octavo` if it is on PATH, else the Python module."""
    if shutil.which("octavo") is not None:
        return ("octavo",)
    return (sys.executable, "-m", "octavo")


def show_settings(settings: Mapping[str, str]) -> str:
    """`transparent_hugepage/enabled is madvise, …` for sentences."""
    shown = (
        f"{path.removeprefix('/sys/kernel/mm/')} is {value}" for path, value in settings.items()
    )
    return ", ".join(shown)


def sized(name: str, page_size: int) -> str:
    """The name of an action for one page size."""
    return f"{name} {format_bytes(page_size).replace(' ', '')}"


def _is_root_without_sudo() -> bool:
    return os.geteuid() == 0 and shutil.which("sudo") is None
