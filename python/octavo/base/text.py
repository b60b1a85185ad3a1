"""Foreign text in messages and tables: file names, program names, values that a user gave."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Iterable
from html import escape
from typing import Any

MOST_QUOTED = 60
"""Characters of a value that a sentence quotes."""

MOST_OF_PATH = 120
"""Characters of a path or program name that text for people shows."""

_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters, characters that change the direction of writing, and surrogates."""
_CODE = re.compile("`([^`\n]+)`")
_SURROGATE = re.compile("[\ud800-\udfff]")
_SHORT = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}
_SURROGATE_BYTES = range(0xDC80, 0xDD00)
"""Surrogates that Python decodes bytes of a file name to that are not UTF-8."""


def printable(text: str) -> str:
    """The text with an escape for each character that does not print.

    So a name can neither end a line nor control a terminal, and every stream can encode it.
    `octavo_types::spelling::printable` does the same.
    """
    return _UNPRINTABLE.sub(_escape, text)


def printable_lines(text: str) -> str:
    """Escapes a text as `printable` does, but keeps its line ends."""
    return "\n".join(map(printable, text.split("\n")))


def html_with_code(text: str) -> str:
    """A text as HTML, with words between backticks as code."""
    return _CODE.sub(r'<code class="inline">\1</code>', escape(printable_lines(text), quote=False))


def shell_word(word: str) -> str:
    """The word as a shell takes it, on one line: bash's `$'…'` where it holds characters that do
    not print, or bytes that are not UTF-8.
    """
    if not _UNPRINTABLE.search(word):
        return shlex.quote(word)
    text = word.replace("\\", r"\\").replace("'", r"\'")
    return f"$'{_UNPRINTABLE.sub(_escape_bytes, text)}'"


def shell_line(words: Iterable[str]) -> str:
    """The words as a command line."""
    return " ".join(map(shell_word, words))


def printable_document(value: Any) -> Any:
    """Plain data with all its texts as `printable_lines` returns them."""
    return _changed(value, printable_lines)


def unicode_document(value: Any) -> Any:
    """Plain data with an escape for each surrogate: a byte of a file name that is not UTF-8."""
    return _changed(value, lambda text: _SURROGATE.sub(_escape, text))


def _changed(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {key: _changed(inner, change) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_changed(inner, change) for inner in value]
    return value


def plural(count: float, noun: str) -> str:
    """The noun in its form for the count: `run` or `runs`, `process` or `processes`."""
    ending = "es" if noun.endswith("s") else "s"
    return noun if count == 1 else f"{noun}{ending}"


def capitalised(text: str) -> str:
    """The text with its first letter in upper case."""
    return text[:1].upper() + text[1:]


def quoted(value: object, most: int = MOST_QUOTED) -> str:
    """The beginning of a value, printable and short enough for a sentence."""
    text = str(value)
    return printable(text) if len(text) <= most else f"{printable(text[:most])}…"


def short_path(path: str) -> str:
    """A path or program name for people: of a long one, the end, which has the file's name."""
    return path if len(path) <= MOST_OF_PATH else f"…{path[1 - MOST_OF_PATH :]}"


def _escape_bytes(match: re.Match[str]) -> str:
    character = match[0]
    code = os.fsencode(character)
    return _SHORT.get(character) or "".join(f"\\x{byte:02x}" for byte in code)


def _escape(match: re.Match[str]) -> str:
    character = match[0]
    code = ord(character)
    if code in _SURROGATE_BYTES:
        code -= 0xDC00
    return _SHORT.get(character) or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}")
