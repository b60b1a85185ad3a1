"""Finding Valgrind and our tool, with the way to get them when they are not there."""

import os
import re
import resource
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from octavo.base.errors import CannotRun

OLDEST_VERSION = (3, 19)
"""The version that our tool is written against (Debian 12 ships it)."""

TOOL_NAME = "octavo-amd64-linux"
TOOL_DIR_VARIABLE = "OCTAVO_TOOL_DIR"

_PACKAGE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Valgrind:
    """A Valgrind that is there and new enough."""

    launcher: Path
    version: str


def find_valgrind() -> Valgrind:
    """The launcher on PATH.

    Debian's `valgrind` is a shell script that changes the traced program's environment; the real
    launcher lies beside it as `valgrind.bin` and is preferred.
    """
    found = shutil.which("valgrind")
    if found is None:
        raise CannotRun("Valgrind is not installed; `apt-get install valgrind` brings it.")
    real = Path(found).resolve().with_name("valgrind.bin")
    launcher = real if os.access(real, os.X_OK) else Path(found)
    version = _version_of(launcher)
    numbers = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
    if numbers < OLDEST_VERSION:
        oldest = ".".join(map(str, OLDEST_VERSION))
        raise CannotRun(f"Valgrind {version} is too old; Octavo needs {oldest} or later.")
    return Valgrind(launcher, version)


def _version_of(launcher: Path) -> str:
    try:
        done = subprocess.run(
            [launcher, "--version"], capture_output=True, text=True, timeout=30, check=False
        )
    except BlockingIOError as error:
        limit = resource.getrlimit(resource.RLIMIT_NPROC)[0]
        raise CannotRun(
            f"cannot start Valgrind: {error.strerror}; the limit of processes (`ulimit -u`) is "
            f"{limit}."
        ) from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CannotRun(f"`{launcher} --version` does not work: {error}.") from None
    match = re.match(r"valgrind-(\d+\.\d+\S*)", done.stdout)
    if match is None:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise CannotRun(f"`{launcher} --version` does not work: {said[0] if said else 'silence'}.")
    return match.group(1)


def check_temporary_directory() -> None:
    """A tool of Valgrind's own writes to TMPDIR, and says little but at length when it cannot."""
    named = os.environ.get("TMPDIR")
    if named and not (Path(named).is_dir() and os.access(named, os.W_OK | os.X_OK)):
        raise CannotRun(f"TMPDIR names `{named}`, which is no directory that can be written to.")


def find_tool_dir_of(tracer: str) -> Path:
    """The directory of our tool; none for Lackey, which is Valgrind's own."""
    if tracer == "octavo":
        return find_tool_dir()
    check_temporary_directory()
    return Path()


def find_tool_dir() -> Path:
    """The private VALGRIND_LIB directory that holds our tool.

    `OCTAVO_TOOL_DIR` decides when it is set; otherwise the directory inside the package, then
    that of a checkout.
    """
    named = os.environ.get(TOOL_DIR_VARIABLE)
    if named:
        if _holds_tool(Path(named)):
            return Path(named).resolve()
        raise CannotRun(f"{TOOL_DIR_VARIABLE} names `{named}`, which holds no {TOOL_NAME}.")
    for directory in (_PACKAGE / "tracer", _PACKAGE.parents[1] / "build" / "tracer"):
        if _holds_tool(directory):
            return directory
    raise CannotRun(
        "the tracer is not built; `make setup` builds it (or use --tracer lackey, far slower)."
    )


def _holds_tool(directory: Path) -> bool:
    return os.access(directory / TOOL_NAME, os.X_OK)
