"""`octavo apply -- PROGRAM`: the program in this process's place, with what gives it huge pages."""

from __future__ import annotations

import os
import shlex
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn

from octavo.applying.preload import PreloadSettings, elf_of, find_library, is_static
from octavo.applying.running import SCHEMA
from octavo.environment import added_to
from octavo.errors import CannotRun, NotExecutable, choose
from octavo.huge_pages import PMD_PAGE, read_huge_pages
from octavo.program import gives_privileges, locate_program

if TYPE_CHECKING:
    from octavo.actions.model import Action

By = Literal["runtime", "preload", "nothing"]
MEANS = ("auto", "runtime", "preload")
"""Values of `--by`."""
_OWN_SWITCHES = ("malloc", "runtime")
"""Kinds of actions that a program is started with and that reach the memory it allocates."""
_TUNABLES = "GLIBC_TUNABLES"
_LOCALE = "LC_CTYPE"


@dataclass(frozen=True)
class Launch:
    """A program to execute, and what is changed for it."""

    program: Path
    command: tuple[str, ...]
    by: By
    text: str
    """The means, in a sentence."""
    variables: Mapping[str, str]
    """Of the environment, those that are set for it."""

    def shell(self) -> str:
        """The command line that does the same."""
        settings = [f"{name}={shlex.quote(value)}" for name, value in self.variables.items()]
        return " ".join([*settings, shlex.join(self.command)])

    def document(self) -> dict[str, Any]:
        """The document of `--json`."""
        return {
            "schema": SCHEMA,
            "program": str(self.program),
            "command": list(self.command),
            "by": self.by,
            "text": self.text,
            "environment": dict(self.variables),
        }

    def execute(self) -> NoReturn:
        """Becomes the program: its process, descriptors and signals are those of this one.

        Raises NotExecutable.
        """
        # Python ignores these from its start, and a program inherits what is ignored.
        for number in (signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        try:
            os.execve(self.program, self.command, {**inherited_environment(), **self.variables})
        except OSError as error:
            raise NotExecutable(f"cannot execute `{self.program}`: {error.strerror}.") from None


def inherited_environment() -> dict[str, str]:
    """The environment without the locale that Python sets for itself in the C locale (PEP 538)."""
    environment = dict(os.environ)
    try:
        at_start = Path("/proc/self/environ").read_bytes().split(b"\0")
    except OSError:
        return environment
    if not any(entry.startswith(f"{_LOCALE}=".encode()) for entry in at_start):
        environment.pop(_LOCALE, None)
    return environment


def prepare(command: Sequence[str], settings: PreloadSettings, by: str = "auto") -> Launch:
    """Decides by what means the program gets huge pages, where `by` leaves it open.

    Raises OctavoError.
    """
    by = choose(by, MEANS, "means")
    program = locate_program(command[0])
    if settings.selection.is_empty:
        origin = settings.selection.origin
        text = f"{origin}: no memory is to have huge pages, so nothing is changed"
        return Launch(program, tuple(command), "nothing", text, {})
    action = None if by == "preload" else _own_switch(program, command)
    if by == "runtime" and action is None:
        raise CannotRun(
            f"`{program}` has no switch of its own that gives it 2 MiB pages with the settings of "
            "this machine; --by preload does without one."
        )
    if action is not None and (by == "runtime" or _is_preferred(action, program, settings)):
        words = (command[0], *action.arguments, *command[1:])
        variables = added_to(os.environ, action.environment)
        return Launch(program, words, "runtime", action.text.rstrip("."), variables)
    check_reachable(program)
    return _by_preload(program, command, settings)


def _own_switch(program: Path, command: Sequence[str]) -> Action | None:
    """The switch that makes the program's allocator or runtime ask for 2 MiB pages.

    Only a switch that works under the present settings of this machine counts.
    """
    from octavo.actions.candidates import candidate_actions

    for action in candidate_actions(program, read_huge_pages(), command[1:]):
        if action.page_size == PMD_PAGE and action.kind in _OWN_SWITCHES and not action.system_wide:
            return action
        if action.kind == "apply":
            # The table has what it would rather use first.
            return None
    return None


def _is_preferred(action: Action, program: Path, settings: PreloadSettings) -> bool:
    """Whether the switch does what is meant, and better than the preload library.

    It is for all memory that the program allocates. That of glibc's malloc leaves out the arenas of
    threads and blocks that it maps one by one, which the library reaches.
    """
    if not settings.selection.is_whole:
        return False
    return _TUNABLES not in action.environment or is_static(elf_of(program))


def _by_preload(program: Path, command: Sequence[str], settings: PreloadSettings) -> Launch:
    library = find_library()
    return Launch(
        program,
        tuple(command),
        "preload",
        "a preloaded library makes 2 MiB pages of its memory as it comes into use; "
        f"{settings.selection.origin}",
        settings.environment(library, os.environ),
    )


def check_reachable(program: Path) -> None:
    """Refuses a program into which no library can be preloaded. Raises CannotRun."""
    try:
        elf = elf_of(program)
        static = is_static(elf)
    except OSError as error:
        raise CannotRun(f"cannot read `{program}`: {error.strerror}.") from None
    if static:
        why = f"`{elf}` is statically linked, so no library can be preloaded into it"
    elif gives_privileges(program):
        why = (
            f"`{program}` gives its process privileges (set-user-ID, set-group-ID or file "
            "capabilities), and the loader takes no library into such programs"
        )
    else:
        return
    raise CannotRun(
        f"{why}: start it without octavo, then `octavo apply --pid PID --watch` as root does the "
        "same from outside."
    )
