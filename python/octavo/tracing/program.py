"""The program to trace: finds it, refuses programs that cannot be traced before anything runs, and
names processes after the name by which it was started.
"""

import os
import re
import shutil
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from octavo.base.elf import ELF_MAGIC, read_target
from octavo.base.errors import NotExecutable, NotFound, hint, nearest
from octavo.base.own_files import description
from octavo.runtimes.program_file import open_program

if TYPE_CHECKING:
    from octavo._core import Progress

P = TypeVar("P", bound="Progress")

_HEAD_BYTES = 256
"""The bytes of a file that the kernel reads to recognise its kind (BINPRM_BUF_SIZE)."""

_PAGE_BYTES = 4096

_INTERPRETER_DEPTH = 4
"""The longest chain of #! lines that the kernel follows (fs/exec.c)."""


def find_program(name: str) -> Path:
    """The executable that a shell would start for `name`, checked to be one we can trace.

    Raises NotFound or NotExecutable with the sentence to show.
    """
    path = locate_program(name)
    shown = as_written(name, path)
    if gives_privileges(path):
        raise NotExecutable(
            f"`{shown}` runs with privileges that you do not have (set-user-ID, set-group-ID or "
            "file capabilities), which the kernel would give to Valgrind instead; trace it as "
            "root, or a copy without them."
        )
    check_format(path, shown)
    return path


def as_written(name: str, path: Path) -> str:
    """The name of a program for messages: as the user wrote it, or where it was found on PATH."""
    return name if "/" in name else str(path)


def words_to_start(command: Sequence[str], program: Path) -> list[str]:
    """The command line for the tracer. Without PATH, the tracer cannot find a program by name, so
    it gets the path.
    """
    first = command[0] if "PATH" in os.environ else str(program)
    return [first, *command[1:]]


def locate_program(name: str) -> Path:
    """The executable file that a shell would start for `name`, whatever its format.

    Raises NotFound or NotExecutable with the sentence to show.
    """
    if not name:
        raise NotFound("the name of the program is empty.")
    first, *others = name.split() or [name]
    if others and not shutil.which(name) and shutil.which(first):
        raise NotFound(
            f"no program `{name}`; give `{first}` and each of its arguments as a word of its own."
        )
    path = Path(name) if "/" in name else _find_on_path(name)
    _check_is_program(path, as_written(name, path))
    return path


def _find_on_path(name: str) -> Path:
    found = shutil.which(name)
    if found is not None:
        return Path(found)
    if Path(name).is_file():
        _refuse_own_file(name)
        here = f"is started with `./{name}`" if os.access(name, os.X_OK) else "is not executable"
        raise NotFound(f"no program `{name}` on PATH; the file here {here}.")
    if Path(name).is_dir():
        _check_is_program(Path(name), name)
    raise NotFound(f"no program `{name}` on PATH{hint(nearest(name, _names_on_path()))}")


def _names_on_path() -> set[str]:
    names: set[str] = set()
    for directory in os.get_exec_path():
        names |= _names_in(Path(directory))
    return names


def _names_in(directory: Path) -> set[str]:
    try:
        return {entry.name for entry in directory.iterdir()}
    except OSError:
        return set()


def _check_is_program(path: Path, shown: str) -> None:
    try:
        status = path.stat()
    except FileNotFoundError:
        if path.is_symlink():
            target = path.readlink()
            raise NotFound(f"`{shown}` is a link to `{target}`, which is not there.") from None
        end = hint(nearest(path.name, _names_in(path.parent)))
        raise NotFound(f"no such program: `{shown}`{end}") from None
    except OSError as error:
        raise NotExecutable(f"cannot reach `{shown}`: {error.strerror}.") from None
    if stat.S_ISDIR(status.st_mode):
        kind = description(shown) or "is a directory, not a program; name a file in it"
        raise NotExecutable(f"`{shown}` {kind}.")
    if not stat.S_ISREG(status.st_mode):
        raise NotExecutable(f"`{shown}` is not a regular file.")
    if not os.access(path, os.X_OK):
        _refuse_own_file(shown)
        raise NotExecutable(
            f"`{shown}` is not executable; `chmod +x` makes it so (and if it is a trace, --format "
            "says of which format)."
        )


def _refuse_own_file(name: str) -> None:
    kind = description(name)
    if kind is not None:
        raise NotExecutable(f"`{name}` {kind}.")


def gives_privileges(path: Path) -> bool:
    """Whether the file's owner, group or capabilities give a process privileges that it lacks.

    For root only a set-user-ID program of another user counts, whose files that user would own. The
    tracer applies the same rule to programs that the traced one executes.
    """
    status = path.stat()
    if status.st_mode & stat.S_ISUID and status.st_uid != os.geteuid():
        return True
    if os.geteuid() == 0:
        return False
    if status.st_mode & stat.S_ISGID and status.st_gid != os.getegid():
        return True
    return _has_capabilities(path)


def _has_capabilities(path: Path) -> bool:
    try:
        return bool(os.getxattr(path, "security.capability"))
    except OSError:
        return False


def check_format(program: Path, shown: str | None = None) -> None:
    """Refuses a program that the kernel could not execute, or a foreign one. `shown` is its name in
    messages.
    """
    name = shown or str(program)
    _check_format(program, name, name, _INTERPRETER_DEPTH)


def _check_format(path: Path, shown: str, program: str, depth: int) -> None:
    """Checks that `path`, the program itself or an interpreter of it, is of our kind. `shown` is
    its name in messages, and `program` that of the program.
    """
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD_BYTES)
    except OSError as error:
        raise NotExecutable(f"cannot read `{shown}`: {error.strerror}.") from None
    if head.startswith(ELF_MAGIC):
        _check_elf(path, shown, head)
    elif head.startswith(b"#!"):
        _check_interpreter(shown, program, head, depth)
    else:
        _refuse_own_file(shown)
        raise NotExecutable(
            f"`{shown}` is neither an ELF program nor a script that begins with #!."
        )


def _check_elf(path: Path, shown: str, head: bytes) -> None:
    target = read_target(head)
    if target is None:
        raise NotExecutable(f"`{shown}` has a broken ELF header.")
    if not target.is_traceable:
        raise NotExecutable(
            f"`{shown}` is a {target} program; Octavo takes 64-bit x86-64 programs only."
        )
    with open_program(path) as file:
        # The kernel fills the last page with zeros, so a file may end within it.
        size = len(file.image) if file is not None else 0
        if file is not None and file.needed_bytes > -(-size // _PAGE_BYTES) * _PAGE_BYTES:
            raise NotExecutable(
                f"`{shown}` is truncated: it has {size} bytes, and its headers name "
                f"{file.needed_bytes}."
            )


def _check_interpreter(shown: str, program: str, head: bytes, depth: int) -> None:
    words = re.split(rb"[ \t]+", head[2:].split(b"\n", 1)[0].strip(b" \t"), maxsplit=1)
    if not words[0]:
        raise NotExecutable(f"the #! line of `{shown}` names no interpreter.")
    if words[0].endswith(b"\r"):
        raise NotExecutable(
            f"the #! line of `{shown}` ends as on Windows, so the kernel finds no interpreter; "
            "`dos2unix` mends it."
        )
    interpreter = Path(os.fsdecode(words[0]))
    if not interpreter.is_file():
        raise NotExecutable(f"`{shown}` wants the interpreter `{interpreter}`, which is not there.")
    if not os.access(interpreter, os.X_OK):
        raise NotExecutable(f"`{interpreter}`, the interpreter of `{shown}`, is not executable.")
    if depth == 0:
        raise NotExecutable(f"the #! lines of `{program}` lead from script to script without end.")
    _check_format(interpreter, str(interpreter), program, depth - 1)


def use_started_name(processes: Sequence[Any], program: str, image: str) -> None:
    """Renames processes whose program is `image`, and their regions of that file, after `program`.

    `image` is the target of the symbolic link `program`. A script is no link to its interpreter, so
    its processes keep their names.
    """
    linked, started = Path(image).name, Path(program).name
    if linked == started:
        return
    for process in processes:
        if process["program"] != image:
            continue
        process["program"] = program
        regions = list(_regions(process))
        taken = {region["name"] for region in regions if region["path"] != image}
        for region in regions:
            name = f"{started}{region['name'].removeprefix(linked)}"
            is_named_so = region["name"].startswith(f"{linked} ")
            if region["path"] == image and is_named_so and name not in taken:
                region["name"] = name


def with_started_name(progress: P, program: Path) -> P:
    """The progress of a run, with `program` named as it was started."""
    image, started = str(program.resolve()), str(program)
    names = [started if name == image else name for name in progress["programs"]]
    return cast(P, {**progress, "programs": names})


def _regions(process: Any) -> Iterator[Any]:
    """The regions of a process of any engine."""
    yield from process.get("regions", ())
    for stream in process.get("streams", ()):
        for classes in stream["classes"]:
            yield from classes["regions"]
