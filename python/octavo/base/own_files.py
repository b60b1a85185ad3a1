"""Files and directories of Octavo, known by their contents, and the commands that read them."""

import re
from pathlib import Path

from octavo.base.text import shell_word
from octavo.base.toml import TomlError, read_toml

TRACE_MAGIC, SNAPSHOT_MAGIC = b"OCTAVO\r\n", b"OCTMEM\r\n"
_OF_RESULTS = ("result.json", "report.json")
"""Files of which a directory of results has one."""
_DOCUMENT = re.compile(rb'\s*\{\s*"schema":\s*"octavo/([a-z-]+)/')
_HEAD_BYTES = 256
_MOST_TOML_BYTES = 1 << 20


def begins_with(path: Path, *magic: bytes) -> bool:
    """Whether a file begins with one of these; False for a pipe, which can be read only once."""
    if not path.is_file():
        return False
    try:
        with path.open("rb") as file:
            return file.read(max(map(len, magic))).startswith(magic)
    except OSError:
        return False


def description(name: str) -> str | None:
    """The kind of a file or directory and the command that reads it, as the end of a sentence that
    begins with its name; None for one that is none of Octavo's.
    """
    path, word = Path(name), shell_word(name)
    try:
        if any((path / data).is_file() for data in _OF_RESULTS):
            return f"is a directory of results, of which `octavo report {word}` rebuilds the report"
        if not path.is_file():
            return None
        with path.open("rb") as file:
            head = file.read(_HEAD_BYTES)
        if head.startswith(SNAPSHOT_MAGIC):
            return f"is a snapshot of memory, which `octavo snapshot --show {word}` reads"
        if head.startswith(TRACE_MAGIC):
            return f"is a trace, which `octavo run {word}` reads"
        if match := _DOCUMENT.match(head):
            return _document(match[1].decode(), path)
        if path.suffix == ".toml" and path.stat().st_size <= _MOST_TOML_BYTES:
            return _table({*read_toml(path)}, word)
    except (OSError, UnicodeDecodeError, TomlError):
        pass
    return None


def _document(schema: str, path: Path) -> str:
    if schema == "run":
        word = shell_word(str(path))
        return (
            f"is a result of `octavo run`, which `octavo apply --from {word}` and `octavo verify "
            f"--from {word}` read"
        )
    if schema.endswith("-report"):
        return (
            f"is the data of a report, which `octavo report {shell_word(str(path.parent))}` reads"
        )
    return f"is JSON that Octavo wrote for other programs (octavo/{schema})"


def _table(keys: set[str], word: str) -> str | None:
    if keys & {"designs", "programs", "traces"}:
        return f"is a study, which `octavo study run {word}` runs"
    if keys & {"extends", "tlb", "page_table"}:
        return (
            f"is a machine, which `octavo sim --machine {word}` and `octavo run --tlb {word}` take "
            f"and `octavo machines {word}` shows"
        )
    if "cycles_per_second" in keys:
        return "is a calibration, which Octavo reads from where `octavo calibrate` writes it"
    return None
