"""The number of huge pages that a program takes from hugetlbfs: by its options, or by asking it."""

import itertools
import os
import re
import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path

from octavo.actions.table import Subject
from octavo.base.host import memory_bytes
from octavo.base.huge_pages import PMD_PAGE
from octavo.base.units import KIB, MIB
from octavo.runtimes.launchers import program_at

_JVM_HEAP = re.compile(r"-(?:Xmx|XX:MaxHeapSize=)([0-9]+)([kKmMgG]?)$")
_JVM_CODE = re.compile(r"-XX:ReservedCodeCacheSize=([0-9]+)([kKmMgG]?)$")
_JVM_CODE_BYTES = 240 * MIB
"""ReservedCodeCacheSize with tiered compilation."""
_JVM_HEAP_SHARE = 4
"""Without an option, the heap takes at most 1/4 of the machine's memory."""
_JVM_VARIABLES = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS")
_UNITS = {"": 1, "k": KIB, "m": MIB, "g": 1024 * MIB}


def pool_pages(subject: Subject, touched_bytes: int) -> int:
    """Huge pages of 2 MiB that the program wants: by its own count or its options, else as many as
    hold the memory that the run touched and that malloc reserves. 0 where nothing is known.
    """
    stated = None
    if subject.runtime.kind == "postgres" and subject.is_started_directly:
        stated = ask_postgres(subject.words)
    elif subject.runtime.kind == "jvm":
        stated = _jvm_pages(subject.words)
    elif subject.runtime.kind == "mariadb" and subject.is_started_directly:
        stated = _ask_mariadb(subject.words)
    if stated is not None or not touched_bytes:
        return stated or 0
    return -(-touched_bytes // PMD_PAGE) + subject.untouched_pages


def _jvm_pages(words: Sequence[str]) -> int:
    """Pages for the whole heap, the tables of its collector, and the code cache, which the JVM
    takes at its start.
    """
    options = [word for name in _JVM_VARIABLES for word in shlex.split(os.environ.get(name, ""))]
    options += words
    heap = _last(_JVM_HEAP, options, memory_bytes() // _JVM_HEAP_SHARE)
    code = _last(_JVM_CODE, options, _JVM_CODE_BYTES)
    return -(-(heap + heap // 16 + code) // PMD_PAGE) + 8


def _last(pattern: re.Pattern[str], options: Sequence[str], default: int) -> int:
    """The value in bytes of the last option that matches."""
    matches = [match for word in options if (match := pattern.match(word))]
    if not matches:
        return default
    number, unit = matches[-1].groups()
    return int(number) * _UNITS[unit.lower()]


_SECONDS = 2
_SETTING = "shared_memory_size_in_huge_pages"


def ask_postgres(words: Sequence[str]) -> int | None:
    """Huge pages of 2 MiB that the server of a command line wants; None where it does not say.

    The question is `postgres -C shared_memory_size_in_huge_pages` with the server's own arguments.

    PostgreSQL 15 and later answer it, also beside a running server. They answer the owner of the
    data directory alone, so root asks as that user.
    """
    if len(words) < 2:
        return None
    server, *arguments = words[program_at(words) :]
    try:
        user, group = _owner(words) if os.geteuid() == 0 else (None, None)
    except OSError:
        return None
    text = _output_of([server, "-C", _SETTING, *arguments], user, group).strip()
    return int(text) if text.isdigit() else None


_CACHES = {
    "key-buffer-size": 1,
    "aria-pagecache-buffer-size": 1,
    "innodb-buffer-pool-size": 1,
    "innodb-log-buffer-size": 2,
}
"""MariaDB's options for sizes of caches in huge pages, and the number of such caches."""
_CACHE_LINE = re.compile(rf"^({'|'.join(_CACHES)})\s+([0-9]+)$", re.MULTILINE)


def _ask_mariadb(words: Sequence[str]) -> int | None:
    """Huge pages of 2 MiB that the server of a command line wants; None where it does not say.

    Its help ends with the values of its options, from these arguments and its option files. For
    the help, too, it opens files in its data directory, so it gets /dev/null for one.
    """
    output = _output_of([*words[program_at(words) :], "--datadir=/dev/null", "--verbose", "--help"])
    sizes = {name: int(value) for name, value in _CACHE_LINE.findall(output)}
    if "innodb-buffer-pool-size" not in sizes:
        return None
    return sum(_CACHES[name] * -(-size // PMD_PAGE) for name, size in sizes.items())


def _output_of(command: Sequence[str], user: int | None = None, group: int | None = None) -> str:
    """The standard output of a server; empty where it fails."""
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_SECONDS,
            check=False,
            text=True,
            user=user,
            group=group,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout if done.returncode == 0 else ""


def _owner(words: Sequence[str]) -> tuple[int | None, int | None]:
    """User and group of the data directory, which the command line or the environment names."""
    named = [after for word, after in itertools.pairwise(words) if word == "-D"]
    joined = [word[2:] for word in words if word.startswith("-D") and len(word) > 2]
    for directory in (*named, *joined, os.environ.get("PGDATA", "")):
        if directory:
            status = Path(directory).stat()
            return status.st_uid, status.st_gid
    return None, None
