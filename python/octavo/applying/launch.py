"""`octavo apply -- PROGRAM`: the program in this process's place, with what gives it huge pages."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn

from octavo.actions.file_text import read_ahead
from octavo.analysis.stored_result import other_program
from octavo.applying import SCHEMA
from octavo.applying.preload import PreloadSettings, elf_of, find_library, is_static
from octavo.applying.text import FileText, read_in_huge_pages
from octavo.base.errors import CannotRun, NotExecutable, choose
from octavo.base.huge_pages import PMD_PAGE, read_huge_pages
from octavo.base.text import shell_line, shell_word
from octavo.base.units import format_bytes
from octavo.runtimes.launchers import added_to, program_at, with_options
from octavo.tracing.program import check_format, gives_privileges, locate_program

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
    texts: tuple[str, ...] = ()
    """Files that are to be read into the page cache in huge pages before it starts."""

    def shell(self) -> str:
        """The command line that does the same."""
        settings = [f"{name}={shell_word(value)}" for name, value in self.variables.items()]
        host = read_huge_pages()
        reading = [action.prefix for path in self.texts if (action := read_ahead(path, host))]
        first = [shell_line(word for prefix in reading for word in prefix)] if reading else []
        if first and settings:
            first.append("env")
        return " ".join([*first, *settings, shell_line(self.command)])

    def read_texts(self) -> list[FileText]:
        """Reads these files in huge pages, and looks at the result."""
        host = read_huge_pages()
        return [read_in_huge_pages(path, host) for path in self.texts]

    def document(self, texts: Sequence[FileText]) -> dict[str, Any]:
        """The document of `--json`; `texts` are those read."""
        return {
            "schema": SCHEMA,
            "program": str(self.program),
            "command": list(self.command),
            "by": self.by,
            "text": self.text,
            "environment": dict(self.variables),
            "texts": [asdict(text) for text in texts],
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
            check_format(self.program)
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
    launch = _memory_by(command, settings, choose(by, MEANS, "means"))
    started = locate_program(command[program_at(command)])
    other = other_program(settings.selection.programs, launch.program, started)
    text = f"{launch.text}. {other}" if other else launch.text
    return replace(launch, text=text, texts=settings.selection.texts)


def _memory_by(command: Sequence[str], settings: PreloadSettings, by: str) -> Launch:
    program = locate_program(command[0])
    selection = settings.selection
    if selection.is_empty and selection.smaller is not None and by != "preload":
        return _with_smaller_pages(program, command, selection.origin, selection.smaller)
    if selection.is_empty:
        text = f"{selection.choice}, so nothing is changed for it"
        return Launch(program, tuple(command), "nothing", text, {})
    action = None if by == "preload" else _own_switch(command)
    if by == "runtime" and action is None:
        raise CannotRun(
            f"`{program}` has no switch of its own that gives it 2 MiB pages with the settings of "
            "this machine; --by preload does without one."
        )
    if action is not None and (by == "runtime" or _is_preferred(action, program, settings)):
        words = tuple(with_options(command, action.arguments))
        variables = added_to(os.environ, action.environment)
        return Launch(program, words, "runtime", action.text.rstrip("."), variables)
    check_reachable(program)
    return _by_preload(program, command, settings)


def _with_smaller_pages(program: Path, command: Sequence[str], origin: str, size: int) -> Launch:
    """Pages between 4 KiB and 2 MiB: only a fault makes them, where the settings of their size say
    so, and the program's own switch makes it ask for them.
    """
    from octavo.actions.candidates import candidate_actions
    from octavo.actions.settings import needed_for_all

    host = read_huge_pages()
    started, *arguments = command[program_at(command) :]
    actions = candidate_actions(started, host, arguments, [size])
    of_size = [action for action in actions if action.page_size == size and not action.prefix]
    pages = f"{format_bytes(size)} pages"
    for_all = needed_for_all(host, size)
    if for_all is not None and all(host.settings[path] == for_all[path] for path in for_all):
        text = f"{origin}: {pages}, which every program gets here, so nothing is changed"
        return Launch(program, tuple(command), "nothing", text, {})
    ready = next((action for action in of_size if not action.system_wide), None)
    if ready is not None:
        words = tuple(with_options(command, ready.arguments))
        variables = added_to(os.environ, ready.environment)
        return Launch(program, words, "runtime", ready.text.rstrip("."), variables)
    text = f"{origin}: {pages}, which this kernel does not have, so nothing is changed"
    if size in host.thp_sizes and of_size:
        lines = "; ".join(of_size[0].setting_lines)
        text = (
            f"{origin}: {pages}, which the settings of this machine do not give, so nothing is "
            f"changed; as root, for all programs: {lines}"
        )
    return Launch(program, tuple(command), "nothing", text, {})


def _own_switch(command: Sequence[str]) -> Action | None:
    """The switch that makes the program's allocator or runtime ask for 2 MiB pages.

    Only a switch that works under the present settings of this machine counts.
    """
    from octavo.actions.candidates import candidate_actions

    started, *arguments = command[program_at(command) :]
    for action in candidate_actions(started, read_huge_pages(), arguments):
        if action.page_size == PMD_PAGE and action.kind in _OWN_SWITCHES and not action.system_wide:
            return action
        if action.kind == "apply":
            # The table has what it would rather use first.
            return None
    return None


def _is_preferred(action: Action, program: Path, settings: PreloadSettings) -> bool:
    """Whether the switch does as the settings ask, and better than the preload library.

    A switch reaches all memory that the program allocates. The one of glibc does not reach
    arenas of threads and blocks that malloc maps one by one; the library does.
    """
    if not settings.selection.is_whole:
        return False
    return _TUNABLES not in action.environment or is_static(elf_of(program))


def _by_preload(program: Path, command: Sequence[str], settings: PreloadSettings) -> Launch:
    library = find_library()
    text = (
        "a preloaded library makes 2 MiB pages of its memory as it comes into use; "
        f"{settings.selection.origin}"
    )
    means_shared = any(rule.wanted for rule in settings.selection.rules if rule.kind == "shared")
    if means_shared and read_huge_pages().anonymous_shared_thp == "never":
        text += (
            "; shared memory gets none unless its mapping is aligned to 2 MiB, and Linux aligns no "
            "shared memory while transparent_hugepage/shmem_enabled of this size is never"
        )
    variables = settings.environment(library, os.environ)
    return Launch(program, tuple(command), "preload", text, variables)


def check_reachable(program: Path) -> None:
    """Refuses a program into which no library can be preloaded. Raises OctavoError."""
    check_format(program)
    elf = elf_of(program)
    if is_static(elf):
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
