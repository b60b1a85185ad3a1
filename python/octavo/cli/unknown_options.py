"""The sentence about an option that a command does not have: which commands have it, or what was
probably meant.
"""

from collections.abc import Callable
from difflib import SequenceMatcher
from typing import Any, NoReturn

from octavo.base.text import quoted

_NEAR = 0.7
"""The least similarity of a misspelt option."""
_LISTED = 3


def refuse(error: Exception, ctx: Any) -> NoReturn:
    """Refuses a command line with the sentence about its unknown option."""
    name: str = getattr(error, "option_name", "")
    ctx.fail(f"{ctx.command_path} has no option {quoted(name)}{_end(name, ctx)}")
    raise error


def _end(name: str, ctx: Any) -> str:
    """The end of the sentence."""
    root = ctx.find_root()
    commands: dict[str, Any] = dict(getattr(root.command, "commands", {}))
    having = {
        f"{root.command_path} {word}": _options(command)
        for word, command in commands.items()
        if command is not ctx.command
    }
    owners = [path for path, options in having.items() if name in options]
    if owners:
        others = len(owners) - _LISTED
        if others > 1:
            owners[_LISTED:] = [f"{others} others"]
        place = ", after the command" if ctx is root else ""
        have = "has" if len(owners) == 1 else "have"
        return f"; {_joined(owners)} {have} it{place}."
    own = [(word, "") for word in _options(ctx.command)]
    elsewhere = [(word, f" of {path}") for path, options in having.items() for word in options]
    likeness = _likeness_to(name)
    word, owner = max([*own, *elsewhere], key=lambda one: likeness(one[0]), default=("", ""))
    return f"; did you mean {word}{owner}?" if likeness(word) >= _NEAR else "."


def _options(command: Any) -> list[str]:
    """All spellings of a command's options."""
    return [
        name
        for one in command.params
        if one.param_type_name == "option" and not one.hidden
        for name in (*one.opts, *one.secondary_opts)
    ]


def _joined(words: list[str]) -> str:
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last


def _likeness_to(name: str) -> Callable[[str], float]:
    matcher = SequenceMatcher(b=name.lstrip("-"))

    def likeness(word: str) -> float:
        matcher.set_seq1(word.lstrip("-"))
        return matcher.ratio()

    return likeness
