"""Files that appear whole or not at all.

A file is written in a temporary directory beside its place and renamed at the end; a pipe or a
device is written directly. Permissions are checked before the run, so that "permission denied" does
not come after an hour. Without `--force`, a file that another process has put in the place
meanwhile is kept: the result gets the next free name beside it, and CannotRun says which.
"""

import fcntl
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from octavo.base.errors import CannotRun, UsageError
from octavo.base.signals import uninterrupted
from octavo.base.temporary import TemporaryDirectory

if TYPE_CHECKING:
    import pyarrow as pa

STANDARD_OUTPUT = "-"
_OUTPUT, _ERROR = 1, 2
"""File descriptors."""
_STAGING = ".octavo-"
"""The prefix of temporary names."""
_LAST = "manifest.json"
"""Its presence says that a directory of results is whole: it is renamed after all others."""


def to_json(document: Any, indent: int | None = None) -> str:
    """The document as one line, or indented. Raises ValueError for NaN and infinities, which JSON
    does not have.
    """
    return json.dumps(document, indent=indent, allow_nan=False) + "\n"


@contextmanager
def failing_with(what: str) -> Iterator[None]:
    """Turns an OSError into a CannotRun that says that `what` cannot be written."""
    try:
        yield
    except BrokenPipeError:
        # The reader has gone, which is not an error: `octavo.cli.guard` ends the command.
        raise
    except OSError as error:
        raise CannotRun(f"cannot write {what}: {words_of(error)}.") from None


def words_of(error: OSError) -> str:
    """The system's own words for an error, also where Arrow raised it."""
    return os.strerror(error.errno) if error.errno else error.strerror or str(error)


def write_parquet(table: "pa.Table", path: Path) -> None:
    """Writes a table to a file of any name."""
    import pyarrow.parquet as pq

    with open_for_arrow(path, "wb") as file:
        pq.write_table(table, file, compression="zstd")


def open_for_arrow(path: Path, mode: Literal["rb", "wb"]) -> "pa.NativeFile":
    """Opens a file for pyarrow, which would parse a name with a colon as a URI and encode it as
    UTF-8.

    It is no file object of Python's: a thread of pyarrow that uses one at exit aborts the process.
    """
    import pyarrow as pa

    return pa.OSFile(os.fsencode(path), mode)  # type: ignore[arg-type]  # Bytes are taken, too.


def write_standard_output(text: str) -> None:
    """Writes and flushes, so that a closed pipe is noticed here and not at exit. Raises
    BrokenPipeError for a closed pipe and CannotRun for every other error.
    """
    check_standard_output()
    with failing_with("to standard output"):
        _print(text)


def _print(text: str) -> None:
    """Writes and flushes; what could not be written is not tried again when the process ends."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError:
        discard_standard_output()
        raise


def discard_standard_output() -> None:
    """Redirects standard output to /dev/null, so that the interpreter's flush at exit cannot
    fail.
    """
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def check_standard_output() -> None:
    """Refuses one that is closed: Python has no `sys.stdout` where a shell's `>&-` closed it."""
    if sys.stdout is None:
        raise CannotRun("cannot write to standard output: it is closed.")


@contextmanager
def output_to_error(when: bool) -> Iterator[None]:
    """If `when`, redirects the standard output of child programs to standard error, so that the
    result stands alone on standard output. Where standard error is closed, that output is lost.
    """
    if not when:
        yield
        return
    before = os.dup(_OUTPUT)
    try:
        if sys.stderr is None:
            discard_standard_output()
        else:
            os.dup2(_ERROR, _OUTPUT)
        yield
    finally:
        os.dup2(before, _OUTPUT)
        os.close(before)


def check_new_file(name: str, *, force: bool, option: str) -> None:
    """Checks that a file can be written, and that none exists there unless `force`."""
    if not name:
        raise UsageError(f"{option} is empty; name a file.")
    if name == STANDARD_OUTPUT:
        raise UsageError(f"{option} -: this is not written to standard output; name a file.")
    _check_is_a_name(name, option, "file")
    place = Path(name)
    with failing_with(f"`{name}`"):
        _check_no_directory(name)
        if not place.exists():
            _check_directory_of(place)
            return
        if place.is_file() and not force:
            raise UsageError(f"`{name}` exists; --force overwrites it.")
        if not os.access(place, os.W_OK):
            raise PermissionError(None, "permission denied")


class NewFile:
    """An output file that an option names."""

    def __init__(self, name: str, *, force: bool, option: str) -> None:
        """Checks that it can be written, as `check_new_file` does."""
        check_new_file(name, force=force, option=option)
        self.name, self._force = name, force
        self._place = _place_of(name)

    def write(self, content: str | Callable[[Path], None]) -> None:
        """Writes a text, or calls a function that makes the file. Raises CannotRun and leaves an
        existing file as it was if that fails.
        """
        writer = text_writer(content) if isinstance(content, str) else content
        _replace_or_keep(f"`{self.name}`", self._place, writer, overwrite=self._force)


class JsonFile:
    """The file that `--json` names; `-` is standard output."""

    def __init__(self, name: str, *, force: bool = False) -> None:
        """Checks that the file can be written: an existing one with `force` only."""
        if not name:
            raise UsageError("--json is empty; name a file, or - for standard output.")
        _check_is_a_name(name, "--json", "file")
        self._name = name
        self._what = "to standard output" if name == STANDARD_OUTPUT else f"`{name}`"
        self._place = _place_of(name)
        self._force = force
        with failing_with(self._what):
            if name == STANDARD_OUTPUT:
                check_standard_output()
                return
            _check_no_directory(name)
            if _is_special(self._place):
                if not os.access(self._place, os.W_OK):
                    raise PermissionError(None, "permission denied")
                return
            if self._place.exists() and not force:
                raise UsageError(f"`{name}` exists; --force overwrites it.")
            _check_directory_of(self._place)

    def write(self, document: Any) -> None:
        """Writes the document whole, or raises and leaves an existing file as it was."""
        text = to_json(document)
        if self._name == STANDARD_OUTPUT:
            check_standard_output()
            with _keeping_elsewhere(self._what, {"result.json": text_writer(text)}):
                _print(text)
        else:
            _replace_or_keep(self._what, self._place, text_writer(text), overwrite=self._force)


def _check_is_a_name(name: str, option: str, kind: str) -> None:
    """Refuses the next option, or the `--` before a program, as the value of an option without
    one.
    """
    if name.startswith("-") and name != STANDARD_OUTPUT:
        raise UsageError(
            f"{option} has no value: `{name}` after it begins as options do; name a {kind} "
            f"(./{name} is one)."
        )


def _check_no_directory(name: str) -> None:
    """Refuses a name of a directory, such as one that ends in `/`, whether it exists or not."""
    if Path(name).is_dir():
        raise CannotRun(f"cannot write `{name}`: it is a directory.")
    if name.rpartition("/")[2] in ("", ".", ".."):
        raise CannotRun(f"cannot write `{name}`: this is the name of a directory; name a file.")


def _check_directory_of(place: Path) -> None:
    """Makes the directory of a file, and checks that files can be written there."""
    with suppress(FileExistsError):
        place.parent.mkdir(parents=True, exist_ok=True)
    if not place.parent.is_dir():
        raise CannotRun(f"cannot write `{place}`: `{place.parent}` is not a directory.")
    with tempfile.TemporaryFile(dir=place.parent):
        pass


def check_directory_name(name: str) -> None:
    """Refuses a value of `--out` that names no directory. Raises UsageError."""
    if not name:
        raise UsageError("--out is empty; name a directory.")
    if name == STANDARD_OUTPUT:
        raise UsageError(
            "--out -: several files are written, which standard output cannot hold; name a "
            "directory (./- is one)."
        )
    _check_is_a_name(name, "--out", "directory")


class OutputDirectory:
    """The directory that `--out` names."""

    def __init__(self, name: str, *, force: bool) -> None:
        """Makes the directory and a staging place inside it, or says why not. Removes the staging
        places of processes that were killed.
        """
        check_directory_name(name)
        self._place = Path(name)
        self._made = not self._place.exists()
        if self._made:
            # A link may name a directory that is not there yet.
            self._place = Path(os.path.realpath(name))
        self._force = force
        with failing_with(f"to `{name}`"):
            if not self._made and not self._place.is_dir():
                raise CannotRun(f"cannot write to `{name}`: it is not a directory.")
            if not self._made and not force and self._holds_files():
                raise UsageError(f"`{name}` is not empty; --force overwrites the results in it.")
            self._place.mkdir(parents=True, exist_ok=True)
            self._temporary = TemporaryDirectory(_STAGING, self._place)
            self._staging = Path(self._temporary.name)

    def _holds_files(self) -> bool:
        """Whether there is more than staging places: other runs may have theirs."""
        return not all(entry.name.startswith(_STAGING) for entry in self._place.iterdir())

    def write(
        self, files: dict[str, Callable[[Path], None]], optional: Collection[str] = ()
    ) -> None:
        """Lets each writer make its file, then puts all of them in place. Files named in `optional`
        that an earlier result has left and this one does not have are removed, with the folder that
        was theirs alone.
        """
        shown = f"to `{self._place}`"
        with _keeping_elsewhere(shown, files):
            _write_all(files, self._staging)
        with failing_with(shown), uninterrupted(), self._alone():
            if not self._force and self._holds_files():
                raise _taken(self._place, self._move_beside())
            for name in {_LAST, *optional} - (files.keys() - {_LAST}):
                (self._place / name).unlink(missing_ok=True)
                if (folder := (self._place / name).parent) != self._place:
                    with suppress(OSError):
                        # Files that are no part of a result stay.
                        folder.rmdir()
            for name in sorted(files, key=lambda name: name == _LAST):
                (self._staging / name).replace(self._place / name)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Locks the directory, so that all files in it come from one process's result."""
        handle = os.open(self._place, os.O_RDONLY)
        try:
            # Some file systems have no locks.
            with suppress(OSError):
                fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)

    def _move_beside(self) -> Path:
        """Renames the staging directory to a free name and returns that: beside the place, or
        inside it where nothing can be put beside it, as at a mount point.
        """
        self._temporary.disown()
        self._staging.chmod(0o777 & ~_umask())
        place = self._place.resolve()
        with suppress(OSError):
            return _rename_free(self._staging, place)
        return _rename_free(self._staging, place / place.name)

    def close(self) -> None:
        """Removes the staging directory, and the directory itself if this run made it and it is
        empty.
        """
        with uninterrupted():
            self._temporary.cleanup()
            if self._made and not any(self._place.iterdir()):
                self._place.rmdir()


def _write_all(files: dict[str, Callable[[Path], None]], directory: Path) -> None:
    for name, writer in files.items():
        writer(directory / name)


def _replace_or_keep(
    shown: str, place: Path, writer: Callable[[Path], None], *, overwrite: bool
) -> None:
    """Calls `replace_file`. Raises CannotRun about `shown`. If the file cannot be written, the
    result goes to a temporary directory.
    """
    with _keeping_elsewhere(shown, {place.name: writer}):
        replace_file(place, writer, overwrite=overwrite)


@contextmanager
def _keeping_elsewhere(shown: str, files: dict[str, Callable[[Path], None]]) -> Iterator[None]:
    """Where its body cannot write, as the disk may be full after hours, writes the files to a
    directory for temporary files. Raises CannotRun about `shown`, which says where they are.
    """
    with failing_with(shown):
        try:
            yield
        except BrokenPipeError:
            raise
        except OSError as error:
            with suppress(OSError):
                kept = _written_elsewhere(files)
                raise CannotRun(
                    f"cannot write {shown}: {words_of(error)}; the result is in `{kept}`."
                ) from None
            raise


def _written_elsewhere(files: dict[str, Callable[[Path], None]]) -> Path:
    """A new directory with the files. Raises OSError."""
    place = Path(tempfile.mkdtemp(prefix="octavo-"))
    try:
        _write_all(files, place)
    except OSError:
        shutil.rmtree(place, ignore_errors=True)
        raise
    return place


def text_writer(text: str) -> Callable[[Path], None]:
    """A writer of a text file; characters that UTF-8 cannot encode are written as escapes."""

    def write(path: Path) -> None:
        path.write_text(text, encoding="utf-8", errors="backslashreplace")

    return write


def replace_text(place: Path, text: str, *, overwrite: bool = True) -> None:
    """Writes a text file as `replace_file` does."""
    replace_file(place, text_writer(text), overwrite=overwrite)


def replace_file(place: Path, writer: Callable[[Path], None], *, overwrite: bool = True) -> None:
    """Lets `writer` make a file in a temporary directory beside `place` and renames it to `place`;
    a device or a pipe is written directly. Where `place` exists and not `overwrite`, the file gets
    another name, which the CannotRun that is raised gives. Removes the temporary directories of
    processes that were killed while they wrote to `place`.
    """
    if _is_special(place):
        # Some files, such as Parquet, are written back and forth.
        with TemporaryDirectory(_STAGING) as directory:
            whole = Path(directory, place.name)
            writer(whole)
            with whole.open("rb") as content, place.open("wb") as target:
                shutil.copyfileobj(content, target)
        return
    with TemporaryDirectory(f".{place.name}-", place.parent) as directory:
        temporary = Path(directory, place.name)
        writer(temporary)
        temporary.chmod(0o666 & ~_umask())
        if overwrite:
            temporary.replace(place)
        else:
            _link_free(temporary, place)


def _link_free(file: Path, place: Path) -> None:
    """Gives a file the name `place`. Where that is taken, the file gets a name beside it, which the
    CannotRun that is raised gives.
    """
    name, others = place, _names_beside(place)
    while True:
        try:
            os.link(file, name)
            break
        except FileExistsError:
            name = next(others)
        except OSError:
            # Some file systems have no links.
            if not os.path.lexists(name):
                file.replace(name)
                break
            name = next(others)
    if name != place:
        raise _taken(place, name)


def _rename_free(directory: Path, place: Path) -> Path:
    """Gives a directory the first free name beside `place`, and returns it."""
    for name in _names_beside(place):
        if not os.path.lexists(name):
            try:
                # It fails where a directory that holds files has the name.
                return directory.rename(name)
            except OSError:
                # Another process may have taken the name meanwhile.
                if not os.path.lexists(name):
                    raise
    raise AssertionError("names do not end")


def _place_of(name: str) -> Path:
    """The path of a file with symbolic links resolved. The path of a pipe or a device stays: the
    target of `/dev/stdout` may have no path of its own.
    """
    place = Path(name)
    return place if _is_special(place) else Path(os.path.realpath(place))


def _is_special(place: Path) -> bool:
    """Whether it is a device or a pipe, which is written directly and never renamed over."""
    return place.exists() and not place.is_file()


def _names_beside(place: Path) -> Iterator[Path]:
    """`result-2.json`, `result-3.json`, … of `result.json`."""
    return (place.with_name(f"{place.stem}-{number}{place.suffix}") for number in count(2))


def _taken(place: Path, other: Path) -> CannotRun:
    return CannotRun(
        f"`{place}` was written by another process meanwhile and is left as it is; this result is "
        f"in `{other}`."
    )


def in_turn(*writers: Callable[[], None]) -> None:
    """Calls every writer, also where an earlier one fails. Raises one CannotRun with the messages
    of all that failed, each but the first with a capital letter.
    """
    failures = []
    for writer in writers:
        try:
            writer()
        except CannotRun as failure:
            failures.append(str(failure))
    if failures:
        first, *others = failures
        raise CannotRun(" ".join([first, *(text[0].upper() + text[1:] for text in others)]))


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
