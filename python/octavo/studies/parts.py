"""Results that outlive the run that computed them: `octavo reproduce all` continues with them.

A part is one command of octavo that a study runs. Its key is a hash of the command and of the files
that it reads, so a part is used again only where it would give the same result. A recorded trace
is a part, too: programs differ from run to run, and all parts of a program are of one trace.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import shutil
import tempfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from octavo.base.files import replace_file

Document = dict[str, Any]
_HASHED_AT_ONCE = 1 << 20
_keeper: Keeper | None = None


class Keeper:
    """A directory of parts."""

    def __init__(self, place: Path, salt: str, on_part: Callable[[], None] = lambda: None) -> None:
        """`salt` goes into each key: the version of Octavo, and settings. `on_part` is called after
        each part that was computed.
        """
        self._place, self._salt, self._on_part = place, salt, on_part
        place.mkdir(parents=True, exist_ok=True)

    def document(self, arguments: Sequence[str], compute: Callable[[], Document]) -> Document:
        """The document of a command: the kept part, or else the result of `compute`, kept now."""
        key = self._key(arguments)
        kept = self._place / f"{key}.json.gz"
        trace = _output(arguments)
        kept_trace = self._place / f"{key}.oct"
        found = _read(kept)
        if found is not None and (trace is None or kept_trace.exists()):
            if trace is not None:
                _copy(kept_trace, trace)
            return found
        made = compute()
        if trace is not None and trace.exists():
            replace_file(kept_trace, lambda place: _copy(trace, place))
        packed = gzip.compress(json.dumps(made).encode(), compresslevel=1)

        def write(place: Path) -> None:
            place.write_bytes(packed)

        replace_file(kept, write)
        self._on_part()
        return made

    def _key(self, arguments: Sequence[str]) -> str:
        """The key of a command's part. Temporary directories have other names in each run: a file
        there is hashed by its content, and one that does not exist yet by its name.
        """
        digest = hashlib.sha256(self._salt.encode())
        output = _output(arguments)
        root = re.escape(tempfile.gettempdir())
        for argument in arguments:
            parts = re.split(rf"({root}/octavo-[^/\s]+(?:/[^\s,:\"'=\]]+)*)", argument)
            for number, part in enumerate(parts):
                path = Path(part)
                if number % 2 == 0:
                    digest.update(part.encode(errors="surrogateescape"))
                elif path.is_file() and path != output:
                    digest.update(_content(path))
                else:
                    digest.update(path.name.encode(errors="surrogateescape"))
            digest.update(b"\0")
        return digest.hexdigest()[:32]


@contextmanager
def keeping(keeper: Keeper) -> Iterator[None]:
    """In this context `document_of` keeps and uses parts, on all threads."""
    global _keeper
    _keeper = keeper
    try:
        yield
    finally:
        _keeper = None


def document_of(arguments: Sequence[str], compute: Callable[[], Document]) -> Document:
    """The document of a command: a kept part, or what `compute` gives."""
    return compute() if _keeper is None else _keeper.document(arguments, compute)


def _output(arguments: Sequence[str]) -> Path | None:
    """The trace that a command records."""
    if arguments[0] != "record":
        return None
    return Path(arguments[arguments.index("-o") + 1])


def _copy(source: Path, target: Path) -> None:
    target.unlink(missing_ok=True)
    shutil.copyfile(source, target)


def _read(kept: Path) -> Document | None:
    """A part; None where there is none, or one that is damaged."""
    try:
        found: Document = json.loads(gzip.decompress(kept.read_bytes()))
    except (OSError, EOFError, ValueError, zlib.error):
        return None
    return found


def _content(path: Path) -> bytes:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_HASHED_AT_ONCE):
            digest.update(block)
    return digest.digest()
