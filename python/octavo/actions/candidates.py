"""All actions worth trying on one program on one machine, to be compared by running it."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from octavo.actions.file_text import TEXT, read_ahead
from octavo.actions.file_text import why_not as why_not_in_huge_pages
from octavo.actions.model import Action, sized
from octavo.actions.pools import pool_pages
from octavo.actions.prctl import keep_small_prefix
from octavo.actions.settings import needed_for_all
from octavo.actions.table import Reach, Subject, in_large_pieces, lines_for, table, why_not
from octavo.base.huge_pages import PMD_PAGE, HugePages
from octavo.base.units import KIB
from octavo.runtimes.detect import Runtime, runtime_of_file

SIZES = (PMD_PAGE, 64 * KIB)
SHARED_FOR_ALL = "shared-for-all"
"""The line of the table for the shared memory of any program."""
_ONE_ARENA = "-one-arena"
"""The end of the name of a setting with all that a run may show to be needed."""


def candidate_actions(
    program: Path | str | Runtime,
    host: HugePages,
    arguments: Sequence[str] = (),
    sizes: Sequence[int] = SIZES,
    touched_bytes: int = 0,
    *,
    shared: bool = False,
) -> list[Action]:
    """The actions worth trying for a program; actions that change no system-wide setting are first.

    `program` is a path, a name on PATH, or its runtime; `arguments` are those of its command line;
    `sizes` are those of the pages, in bytes; `touched_bytes` is the program's memory in 2 MiB
    pages, if it is known: the size of a pool where the program does not state one; `shared` says
    whether shared memory holds most of it.
    Each has a `name` of its own, `environment`, `arguments` to insert after the program's name,
    `prefix` words before it, and `settings`, which `system_wide` says to differ from now. The
    program as it is, with nothing changed, is not among them. Raises CannotRun where there is no
    such program.
    """
    subject = _subject(program, arguments, touched_bytes, shared=shared)
    runtime, words = subject.runtime, subject.words
    found: dict[str, Action] = {}
    reaches: tuple[Reach, ...] = ("heap", "shared", "text")
    for size in sizes:
        for reach in reaches:
            for action in _of_table(subject, host, reach, size):
                found.setdefault(action.name, action)
    text = read_ahead(runtime.program, host)
    if text is not None:
        found[text.name] = text
    for size in sizes:
        needed = needed_for_all(host, size)
        if needed is not None:
            action = Action(
                kind="thp",
                text="Every program gets such pages unasked.",
                name=sized("thp-for-all", size),
                page_size=size,
                settings=needed,
                now={path: host.settings[path] for path in needed},
            )
            same = (other.settings == needed and not other.environment for other in found.values())
            if not any(same):
                found[action.name] = action
    if host.thp_sizes:
        prefix, what = keep_small_prefix(host)
        found["thp-disable"] = Action("prctl", what, name="thp-disable", prefix=prefix)
    useful = [action for action in found.values() if action.does_something(words)]
    return sorted(useful, key=lambda action: action.system_wide)


def why_no_candidate(
    word: str, program: Path | str, host: HugePages, arguments: Sequence[str] = ()
) -> str | None:
    """Why a setting that Octavo knows is none of the candidates of a program, as a clause; None
    where it knows no setting of this name. `word` is the name, with a page size or without.
    """
    subject = _subject(program, arguments)
    name = word.split(" ")[0]
    if name == TEXT:
        return why_not_in_huge_pages(subject.runtime.program, host)
    of_name = (line for line in table() if line.name == name.removesuffix(_ONE_ARENA))
    line = next(of_name, None)
    if line is None:
        return None
    reason, sizes = why_not(line, subject, host), line.gives(host)
    if reason is not None:
        return reason
    if not sizes:
        return "this kernel has no pages of its size"
    if line.needed == "pool" and not subject.pool_pages:
        return "the size of its pool is not known (--from names a result that says it)"
    if all(line.action(subject, host, size) is None for size in sizes):
        return "this kernel, or how it is set, does not allow it"
    return "it would change nothing here"


def _subject(
    program: Path | str | Runtime,
    arguments: Sequence[str],
    touched_bytes: int = 0,
    *,
    shared: bool = False,
) -> Subject:
    runtime = program if isinstance(program, Runtime) else runtime_of_file(program, arguments)
    started = program.program if isinstance(program, Runtime) else str(program)
    subject = in_large_pieces(Subject(runtime, (started, *arguments), shared=shared))
    return replace(subject, pool_pages=pool_pages(subject, touched_bytes))


def _of_table(subject: Subject, host: HugePages, reach: Reach, size: int) -> list[Action]:
    """The actions of the table; an action with additions also appears with all of them."""
    found = []
    for line in lines_for(subject, host, reach):
        if reach == "shared" and not subject.shared and subject.runtime.kind not in line.names:
            continue
        if size not in line.gives(host):
            continue
        action = line.action(subject, host, size)
        if action is not None:
            found.append(action)
        if line.add and action is not None:
            longer = line.action(replace(subject, arenas=True, blocks=True), host, size)
            if longer is not None:
                found.append(replace(longer, name=sized(f"{line.name}{_ONE_ARENA}", size)))
    return found
