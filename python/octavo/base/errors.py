"""Failures that a user can act on: one clear sentence each, and the exit status that goes with it.

The statuses follow `env` and `timeout`: 125 for our own failures, 126 and 127 for a program that
cannot be started, so that a script can distinguish them from the traced program's own.
"""

import difflib
from collections.abc import Iterable

from octavo._core import OctavoError
from octavo.base.text import quoted

USAGE = 2
FAILED = 125
NOT_EXECUTABLE = 126
NOT_FOUND = 127
TRILLION = 10**12


class UsageError(OctavoError):
    """An option or value that Octavo does not know."""

    status = USAGE


class CannotRun(OctavoError):
    """Octavo could not do its own part: a missing tool, an unwritable output, nothing to count."""

    status = FAILED


class NotExecutable(OctavoError):
    """The program is there but cannot be traced or executed."""

    status = NOT_EXECUTABLE


class NotFound(OctavoError):
    """There is no such program."""

    status = NOT_FOUND


class Interrupted(OctavoError):
    """The user ended the work before there was anything to keep."""

    def __init__(self, number: int, before: str = "before anything was counted") -> None:
        super().__init__(f"interrupted {before}.")
        self.number = number
        self.status = 128 + number


def status_of(error: OctavoError) -> int:
    """The exit status for an error; an error that the extension raised has FAILED."""
    status = getattr(error, "status", FAILED)
    return status if isinstance(status, int) else FAILED


def nearest(word: str, allowed: Iterable[str]) -> str | None:
    """The allowed word that is spelt most like `word`, or None when none is near."""
    matches = difflib.get_close_matches(word, list(allowed), n=1, cutoff=0.6)
    return matches[0] if matches else None


def hint(meant: str | None) -> str:
    """The end of a sentence about an unknown word: what was probably meant, if anything."""
    return f"; did you mean `{meant}`?" if meant else "."


def check_range(
    option: str, value: float | None, least: int, most: int, what: str = "a number"
) -> None:
    """Refuses a value of an option outside `least` to `most`; None is an option that was not given.
    `what` names the values, with their unit. A limit of 13 digits or more is shown in trillions.
    """
    if value is not None and not least <= value <= most:
        given = f"{value:g}" if isinstance(value, float) else value
        end = f"{most // TRILLION}T" if most >= TRILLION else most
        raise UsageError(f"{option} {given}: give {what} from {least} to {end}.")


def choose(word: str, allowed: Iterable[str], what: str) -> str:
    """Returns `word` if it is allowed. Otherwise raises UsageError with the allowed words and the
    nearest of them; `what` names the kind of word.
    """
    names = list(allowed)
    if word in names:
        return word
    meant = nearest(word, names)
    raise UsageError(f"unknown {what} `{quoted(word)}`{hint(meant)} Allowed: {', '.join(names)}.")
