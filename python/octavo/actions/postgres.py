"""How many huge pages PostgreSQL's shared memory takes."""

import itertools
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from octavo.runtimes.launchers import program_at

_SECONDS = 2
_SETTING = "shared_memory_size_in_huge_pages"


def ask_postgres(words: Sequence[str]) -> int | None:
    """Huge pages of 2 MiB that the server of a command line wants; None where it does not say.

    It is asked by `postgres -C shared_memory_size_in_huge_pages` with the server's own arguments.

    PostgreSQL 15 and later know it, and answer beside a running server. They answer the owner of
    the data directory alone, so root asks as that user.
    """
    if len(words) < 2:
        return None
    server, *arguments = words[program_at(words) :]
    command = [server, "-C", _SETTING, *arguments]
    try:
        user, group = _owner(words) if os.geteuid() == 0 else (None, None)
        done = subprocess.run(
            command,
            capture_output=True,
            timeout=_SECONDS,
            check=False,
            text=True,
            user=user,
            group=group,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    text = done.stdout.strip()
    return int(text) if done.returncode == 0 and text.isdigit() else None


def _owner(words: Sequence[str]) -> tuple[int | None, int | None]:
    """User and group of the data directory of a command line, of the environment otherwise."""
    named = [after for word, after in itertools.pairwise(words) if word == "-D"]
    joined = [word[2:] for word in words if word.startswith("-D") and len(word) > 2]
    for directory in (*named, *joined, os.environ.get("PGDATA", "")):
        if directory:
            status = Path(directory).stat()
            return status.st_uid, status.st_gid
    return None, None
