"""Finds Valgrind and Octavo's tool, and interprets Valgrind's messages."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

from octavo.base.errors import CannotRun
from octavo.base.limits import limit_behind
from octavo.base.units import KIB

OLDEST_VERSION = (3, 19)
"""The version for which Octavo's tool is written (that of Debian 12)."""

TOOL_NAME = "octavo-amd64-linux"
TOOL_DIR_VARIABLE = "OCTAVO_TOOL_DIR"

_PACKAGE = Path(__file__).resolve().parents[1]

_MARK = re.compile(r"^==\d+==")
_UNKNOWN_INSTRUCTION = re.compile(r"Unrecognised instruction at address (0x[0-9a-f]+)", re.I)
_BYTES = re.compile(r"unhandled instruction bytes: ((?:0x[0-9A-F]{2} ?)+)", re.I)
_CONFINED = re.compile(r"^octavo tracer: (.+ confined its system calls .+)", re.M)
_UNTRACED = re.compile(r"^octavo tracer: (.+) ran untraced: (.+)", re.M)
_LACKS_ROOM = re.compile(r"^octavo tracer: (.+ of address space in one piece .+)", re.M)
_REFUSED_PAGES = re.compile(
    r"^(?:==(\d{1,20})== *)?octavo tracer: (.+) got no pages of hugetlbfs "
    r"\((?:([1-9]\d{0,14}) KiB each|of the default size)\): "
    r"mappings refused: (\d{1,20}), with (\d{1,20}) bytes in all, (\d{1,20}) in the largest$",
    re.M,
)
_COMPLAINT = re.compile(r"^(?:valgrind: +)(.+)", re.M)


@dataclass(frozen=True)
class Valgrind:
    """An installed Valgrind of a sufficient version."""

    launcher: Path
    """The executable: Valgrind's launcher, or Octavo's tool, which contains Valgrind's core."""
    version: str
    tool_dir: Path
    """The private VALGRIND_LIB directory of Octavo's tool; not used for Lackey."""


def find_valgrind(tracer: str) -> Valgrind:
    """Octavo's tool for the tracer "octavo"; the Valgrind on PATH for Lackey, a tool of Valgrind.

    Debian's `valgrind` is a shell script that changes the traced program's environment; the real
    launcher beside it, `valgrind.bin`, is preferred.
    """
    if tracer == "octavo":
        directory = find_tool_dir()
        return Valgrind(directory / TOOL_NAME, _version_of(directory / TOOL_NAME), directory)
    check_temporary_directory()
    found = shutil.which("valgrind")
    if found is None:
        raise CannotRun(
            "--tracer lackey needs Valgrind, which is not installed; `apt-get install valgrind` "
            "brings it."
        )
    real = Path(found).resolve().with_name("valgrind.bin")
    launcher = real if os.access(real, os.X_OK) else Path(found)
    version = _version_of(launcher)
    numbers = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
    if numbers < OLDEST_VERSION:
        oldest = ".".join(map(str, OLDEST_VERSION))
        raise CannotRun(f"Valgrind {version} is too old; Octavo needs {oldest} or later.")
    return Valgrind(launcher, version, Path())


def _version_of(launcher: Path) -> str:
    try:
        done = subprocess.run(
            [launcher, "--version"],
            # Set here because Octavo's tool is started without the launcher that sets it.
            env={**os.environ, "VALGRIND_LAUNCHER": str(launcher)},
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        if isinstance(error, OSError) and (limit := limit_behind(error)):
            raise CannotRun(f"cannot start Valgrind: {error.strerror}{limit}.") from None
        raise CannotRun(f"`{launcher} --version` does not work: {error}.") from None
    match = re.match(r"valgrind-(\d+\.\d+\S*)", done.stdout)
    if match is None:
        lines = (done.stderr or done.stdout).strip().splitlines()
        first = lines[0] if lines else "it printed nothing"
        raise CannotRun(f"`{launcher} --version` does not work: {first}.")
    return match.group(1)


def check_temporary_directory() -> None:
    """Checks TMPDIR, to which Valgrind's own tools write: their error message does not name it."""
    named = os.environ.get("TMPDIR")
    if named and not (Path(named).is_dir() and os.access(named, os.W_OK | os.X_OK)):
        raise CannotRun(f"TMPDIR names `{named}`, which is not a directory that can be written to.")


def find_tool_dir() -> Path:
    """The private VALGRIND_LIB directory with Octavo's tool: the one that `OCTAVO_TOOL_DIR` names,
    else that of the package, else that of a checkout. Raises CannotRun.
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


def diagnose(diagnostics: str) -> str | None:
    """The cause of a failure, without a full stop; None if Valgrind's message names none.

    The JSON has Valgrind's whole message.
    """
    confined = seccomp_death(diagnostics)
    if confined is not None:
        return confined
    text = _bare(diagnostics)
    unknown, code = _UNKNOWN_INSTRUCTION.search(text), _BYTES.search(text)
    if unknown is not None and code is not None:
        return (
            f"the program executed an instruction that Valgrind does not know ({code[1].strip()}) "
            f"at {unknown[1]}, such as one of AVX-512; build it for an older processor"
        )
    complaint = _COMPLAINT.search(text)
    return f"Valgrind says: {complaint[1].rstrip('.')}" if complaint else None


def seccomp_death(diagnostics: str) -> str | None:
    """The program that seccomp killed, and why the tracer may be the cause; None without one."""
    confined = _CONFINED.search(_bare(diagnostics))
    return confined[1] if confined else None


def lack_of_room(diagnostics: str) -> str | None:
    """The program that asked for more address space than it has under the tracer, if any."""
    lacking = _LACKS_ROOM.search(_bare(diagnostics))
    return lacking[1] if lacking else None


@dataclass(frozen=True)
class RefusedPages:
    """A program's mappings in pages of hugetlbfs that the kernel had too few pages for."""

    program: str
    page_size: int
    mappings: int
    bytes: int
    largest_bytes: int
    """Bytes of the largest mapping."""

    def plus(self, other: RefusedPages) -> RefusedPages:
        """These mappings and those of another process."""
        return replace(
            self,
            mappings=self.mappings + other.mappings,
            bytes=self.bytes + other.bytes,
            largest_bytes=max(self.largest_bytes, other.largest_bytes),
        )


def refused_pages(diagnostics: str, default_size: int) -> list[RefusedPages]:
    """Such mappings by program and page size, in the order of the first ones. A message about one
    mapping begins an image, and the totals of an image replace its message before. A process that
    executes its program again has several images. Mappings that name no size have `default_size`.
    """
    by_process: dict[tuple[str | None, str, str | None], list[RefusedPages]] = {}
    for line in _REFUSED_PAGES.finditer(diagnostics):
        process, program, kib = line.group(1, 2, 3)
        size = int(kib) * KIB if kib else default_size
        found = RefusedPages(program, size, *map(int, line.group(4, 5, 6)))
        images = by_process.setdefault((process, program, kib), [])
        if found.mappings > 1 and images:
            images[-1] = found
        else:
            images.append(found)
    by_program: dict[tuple[str, int], RefusedPages] = {}
    for one in chain.from_iterable(by_process.values()):
        before = by_program.get((one.program, one.page_size))
        by_program[one.program, one.page_size] = one if before is None else before.plus(one)
    return list(by_program.values())


def untraced_program(diagnostics: str) -> tuple[str, str] | None:
    """The first program that ran untraced, and the reason; None without one."""
    untraced = _UNTRACED.search(_bare(diagnostics))
    return (untraced[1], untraced[2]) if untraced else None


def _bare(diagnostics: str) -> str:
    """The text without Valgrind's prefix before each line."""
    return "\n".join(_MARK.sub("", line).strip() for line in diagnostics.splitlines())


def first_line(diagnostics: str) -> str | None:
    """The first line that is not empty, for messages that `diagnose` does not know. Lines about
    refused memory come last, as programs go on without it.
    """
    lines = [line.rstrip(".") for line in _bare(diagnostics).splitlines() if line]
    lines.sort(key=lambda line: any(one.match(line) for one in (_REFUSED_PAGES, _LACKS_ROOM)))
    return next(iter(lines), None)
