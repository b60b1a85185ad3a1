"""The settings to compare: which, and how a program is started under each."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from octavo.analysis.stored_result import read_run
from octavo.base.errors import CannotRun, NotExecutable, UsageError, choose
from octavo.base.huge_pages import PMD_PAGE, HugePages
from octavo.base.text import printable, quoted
from octavo.runtimes.launchers import added_to, program_at, with_options

if TYPE_CHECKING:
    from octavo.actions.model import Action
    from octavo.analysis.rows import Row

AS_NOW = "as now"
"""The name of the setting that the others are compared with."""
THP_DISABLE = "thp-disable"
"""The name of the setting without transparent huge pages, tried where as now has some."""

_NOT_TRIED = "Not tried: "
"""The beginning of the note on a setting that is known and that the program cannot have."""
_VARIABLE = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)


@dataclass(frozen=True)
class Setting:
    """One way to run the program."""

    name: str
    text: str
    """Its effect, in a sentence."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables to set for the program."""
    arguments: tuple[str, ...] = ()
    """Words to insert after the program's name."""
    prefix: tuple[str, ...] = ()
    """Words before the program's name."""
    thp_disable: int | None = None
    """Flags of prctl(PR_SET_THP_DISABLE), or None: no such call."""
    page_size: int | None = None
    """Bytes of the pages that it gives to the program's data; None: not known, or as now."""
    system: Mapping[str, str] = field(default_factory=dict)
    """Files of sysfs, by absolute path, with the values that they need."""
    is_late: bool = False
    """Whether it makes pages of memory in use, so that page faults at first touches stay."""

    def argv(self, command: Sequence[str]) -> list[str]:
        """The command line under this setting."""
        return [*self.prefix, *with_options(command, self.arguments)]

    def environment_over(self, before: Mapping[str, str]) -> dict[str, str]:
        """The environment under this setting, made of the user's."""
        return {**before, **added_to(before, self.environment)}

    def record(self) -> dict[str, Any]:
        """Plain data for the JSON."""
        return {
            "name": self.name,
            "text": self.text,
            "environment": dict(self.environment),
            "arguments": list(self.arguments),
            "prefix": list(self.prefix),
            "thp_disable": self.thp_disable,
            "page_size": self.page_size,
            "system": dict(self.system),
        }


def candidates(
    command: Sequence[str],
    host: HugePages,
    result: str | None = None,
    names: Sequence[str] | None = None,
    min_fill_percent: int = 50,
) -> tuple[list[Setting], list[str]]:
    """The settings worth trying on this machine, and notes on what cannot be tried.

    As now is the first, then those that change nothing system-wide. `result` names what
    `octavo run` wrote: the preloaded library gives large pages to the regions advised there.
    `names` are those that the user asks for, if any. `min_fill_percent` is the share of a range in
    use from which that library makes a page of it.
    """
    from octavo.actions.candidates import SHARED_FOR_ALL, candidate_actions
    from octavo.actions.subjects import is_mostly_shared, untouched_pages

    found = [Setting(AS_NOW, "The program as it is, under the settings as they are.")]
    notes: list[str] = []
    if host.thp is None:
        return found, ["This kernel has no transparent huge pages: nothing else is tried."]
    program, *arguments = command[program_at(command) :]
    rows = [] if result is None else read_run(result).get("rows", [])
    is_named = any(name.startswith(SHARED_FOR_ALL) for name in names or ())
    touched, shared = _touched(rows), is_named or is_mostly_shared(rows)
    touched += PMD_PAGE * sum(untouched_pages(rows).values())
    found_actions = candidate_actions(
        program, host, arguments, touched_bytes=touched, shared=shared
    )
    for action in found_actions:
        if action.kind == "apply":
            preloaded = _preloaded(action, command, result, min_fill_percent)
            if isinstance(preloaded, Setting):
                found.append(preloaded)
            else:
                notes.append(preloaded)
        elif action.kind != "prctl":
            found.append(_of_action(action))
    without = "PR_SET_THP_DISABLE: the program has no transparent huge pages at all."
    # Before the system-wide ones.
    at = sum(not setting.system for setting in found)
    found.insert(at, Setting(THP_DISABLE, without, thp_disable=0))
    return found, notes


def _touched(rows: Sequence[Row]) -> int:
    """The data of a result in 2 MiB pages, in bytes; 0 where it was not measured."""
    return next(
        (
            int(row["touched_bytes"])
            for row in rows
            if (row["component"], row.get("stream"), row.get("page_size"))
            == ("memory", "data", PMD_PAGE)
            and not {"process", "region"} & row.keys()
        ),
        0,
    )


def _of_action(action: Action) -> Setting:
    return Setting(
        action.name,
        action.text,
        environment=action.environment,
        arguments=action.arguments,
        prefix=action.prefix,
        page_size=action.page_size,
        system=action.changes,
    )


def _preloaded(
    action: Action, command: Sequence[str], result: str | None, min_fill_percent: int
) -> Setting | str:
    """The library of `octavo apply`, without the time that Octavo takes to start."""
    from octavo.applying.launch import prepare
    from octavo.applying.preload import PreloadSettings
    from octavo.applying.selection import read_selection

    try:
        settings = PreloadSettings(read_selection(result), min_fill_percent)
        launch = prepare(command, settings, "preload")
    except (CannotRun, NotExecutable) as error:
        return f"{_NOT_TRIED}{action.name}: {str(error).rstrip('.')}."
    if launch.by == "nothing":
        return f"{_NOT_TRIED}{action.name}: {launch.text}."
    preloaded = {**launch.variables, "LD_PRELOAD": launch.variables["LD_PRELOAD"].split(":")[0]}
    return Setting(
        action.name,
        action.text,
        environment=preloaded,
        page_size=action.page_size,
        is_late=True,
    )


def setting_of_words(text: str) -> Setting:
    """The setting of `--try`: VARIABLE=VALUE words, then words to insert behind the program.

    Raises UsageError.
    """
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise UsageError(f"--try `{quoted(text)}`: {error}.") from None
    if not words:
        raise UsageError("--try is empty; give variables (NAME=VALUE) or options of the program.")
    environment: dict[str, str] = {}
    while words and (match := _VARIABLE.fullmatch(words[0])):
        environment[match[1]] = match[2]
        words.pop(0)
    return Setting(
        text,
        "Named by --try.",
        environment=environment,
        arguments=tuple(words),
        page_size=PMD_PAGE,
    )


def select(settings: Sequence[Setting], names: Sequence[str] | None) -> list[Setting]:
    """The settings with these names, as now first; all where no names are given.

    Raises UsageError for a name that none has, and for a short one that several have.
    """
    if names is None:
        return list(settings)
    wanted = {_full_name(name, settings) for name in names}
    return [setting for setting in settings if setting.name in {AS_NOW, *wanted}]


def check_applicable(
    names: Sequence[str] | None,
    settings: Sequence[Setting],
    notes: Sequence[str],
    command: Sequence[str],
    host: HugePages,
) -> None:
    """Refuses the name of a setting that Octavo knows and that does not apply to the program, with
    the reason. `settings` and `notes` are those of `candidates`. Raises UsageError.
    """
    from octavo.actions.candidates import why_no_candidate

    program, *arguments = command[program_at(command) :]
    for name in names or ():
        word = name.split(" ")[0]
        if names_meant(word, settings):
            continue
        said = (note.removeprefix(_NOT_TRIED) for note in notes if note.startswith(_NOT_TRIED))
        reasons = (note.partition(": ") for note in said)
        reason = next((why for of, _, why in reasons if of.split(" ")[0] == word), None)
        reason = reason or why_no_candidate(name, program, host, arguments)
        if reason is not None:
            raise UsageError(
                f"setting `{quoted(name)}` does not apply to `{printable(program)}`: "
                f"{reason.rstrip('.')}."
            )


def names_meant(word: str, settings: Iterable[Setting]) -> list[str]:
    """The names of the settings that a word is the name of, or else their names without the page
    size.
    """
    names = [setting.name for setting in settings]
    return [word] if word in names else [one for one in names if one.split(" ")[0] == word]


def _full_name(word: str, settings: Sequence[Setting]) -> str:
    meant = names_meant(word, settings)
    if len(meant) > 1:
        raise UsageError(f"setting `{quoted(word)}`: give `{'` or `'.join(meant)}`.")
    return (meant or [choose(word, [setting.name for setting in settings], "setting")])[0]
