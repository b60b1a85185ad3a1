"""`octavo apply -- PROGRAM`: executes a program with a switch or a library for huge pages."""

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
from octavo.tracing.program import as_written, check_format, gives_privileges, locate_program

if TYPE_CHECKING:
    from octavo.actions.model import Action

By = Literal["runtime", "preload", "nothing"]
MEANS = ("auto", "runtime", "preload")
"""Values of `--by`."""
_OWN_SWITCHES = ("malloc", "runtime")
"""Kinds of actions that start a program with a switch for the memory that it allocates."""
_TUNABLES = "GLIBC_TUNABLES"
_LOCALE = "LC_CTYPE"


@dataclass(frozen=True)
class Launch:
    """A program to execute, with its command line and environment."""

    program: Path
    command: tuple[str, ...]
    by: By
    text: str
    """How it gets huge pages, in a sentence without full stop."""
    variables: Mapping[str, str]
    """The environment variables that are set for it."""
    texts: tuple[str, ...] = ()
    """Files that are read into the page cache in huge pages before it starts."""

    @property
    def name(self) -> str:
        """The name of the program that launchers at the beginning of the command start."""
        return Path(self.command[program_at(self.command)]).name

    def shell(self) -> str:
        """The shell command that starts the program in the same way without octavo."""
        settings = [f"{name}={shell_word(value)}" for name, value in self.variables.items()]
        host = read_huge_pages()
        reading = [action.prefix for path in self.texts if (action := read_ahead(path, host))]
        first = [shell_line(word for prefix in reading for word in prefix)] if reading else []
        if first and settings:
            first.append("env")
        return " ".join([*first, *settings, shell_line(self.command)])

    def read_texts(self) -> list[FileText]:
        """Reads `texts` into the page cache in huge pages, and returns the result for each."""
        host = read_huge_pages()
        return [read_in_huge_pages(path, host) for path in self.texts]

    def document(self, texts: Sequence[FileText]) -> dict[str, Any]:
        """The document of `--json`; `texts` is the result of `read_texts`."""
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
        """Executes the program in this process, so that it inherits descriptors and signals.

        Raises NotExecutable.
        """
        # Python ignores these signals from its start, and an exec would keep them ignored.
        for number in (signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        try:
            os.execve(self.program, self.command, {**inherited_environment(), **self.variables})
        except OSError as error:
            shown = as_written(self.command[0], self.program)
            check_format(self.program, shown)
            raise NotExecutable(f"cannot execute `{shown}`: {error.strerror}.") from None


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
    """Prepares the start of a program; for `auto`, chooses how it gets huge pages.

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
    shown = as_written(command[0], program)
    if by == "runtime" and action is None:
        raise CannotRun(
            f"`{shown}` has no switch of its own that gives it 2 MiB pages with the settings of "
            "this machine; --by preload does without one."
        )
    if action is not None and (by == "runtime" or _is_preferred(action, program, settings)):
        words = tuple(with_options(command, action.arguments))
        variables = added_to(os.environ, action.environment)
        return Launch(program, words, "runtime", action.text.rstrip("."), variables)
    check_reachable(program, shown)
    return _by_preload(program, command, settings)


def _with_smaller_pages(program: Path, command: Sequence[str], origin: str, size: int) -> Launch:
    """A launch with pages between 4 KiB and 2 MiB. Only page faults make such pages, where the
    settings of their size allow it and the program, by its own switch, asks for them.
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
            # The table is in order of preference: the library comes before any later switch.
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
    wants_shared = any(rule.wanted for rule in settings.selection.rules if rule.kind == "shared")
    if wants_shared and read_huge_pages().anonymous_shared_thp == "never":
        text += (
            "; shared memory gets none unless its mapping is aligned to 2 MiB, and Linux aligns no "
            "shared memory while transparent_hugepage/shmem_enabled of this size is never"
        )
    variables = settings.environment(library, os.environ)
    return Launch(program, tuple(command), "preload", text, variables)


def check_reachable(program: Path, shown: str) -> None:
    """Refuses a program into which no library can be preloaded. `shown` is its name in messages.
    Raises OctavoError.
    """
    check_format(program, shown)
    elf = elf_of(program)
    if is_static(elf):
        name = shown if elf == program else elf
        why = f"`{name}` is statically linked, so no library can be preloaded into it"
    elif gives_privileges(program):
        why = (
            f"`{shown}` gives its process privileges (set-user-ID, set-group-ID or file "
            "capabilities), and the loader takes no library into such programs"
        )
    else:
        return
    raise CannotRun(
        f"{why}: start it without octavo, then `octavo apply --pid PID --watch` as root does the "
        "same from outside."
    )
