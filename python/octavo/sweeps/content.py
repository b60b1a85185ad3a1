"""Traces by content: hashes, and copies on this machine of traces that are elsewhere."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Any

from octavo.base.errors import CannotRun, UsageError
from octavo.traces.by_name import STANDARD_STREAM, SYNTHETIC, open_trace

_BLOCK_BYTES = 1 << 20
_CACHE_VARIABLE = "OCTAVO_TRACE_CACHE"


def trace_hash(uri: str) -> str:
    """The hash of a trace in 32 hex digits. It covers the content, and the suffixes of the name,
    which may determine the format; for a synthetic trace, it covers the name. Raises OctavoError.
    """
    if uri == STANDARD_STREAM:
        raise UsageError("a sweep reads its traces several times: give files, not -.")
    if uri.startswith(SYNTHETIC):
        open_trace(uri)  # Raises an error for a wrong description.
        return hashlib.blake2b(uri.encode(), digest_size=16).hexdigest()
    if _is_remote(uri):
        with _opened(uri) as file:
            return _hash_of(_name(uri), file)
    path = Path(uri)
    try:
        if path.is_dir():
            return _directory_hash(path)
        return _file_trace_hash(uri, *_identity(path))
    except OSError as error:
        raise CannotRun(f"cannot read `{uri}`: {error.strerror}.") from None


def file_hash(path: Path) -> str:
    """The hash of a file in 32 hex digits. Raises CannotRun."""
    try:
        with path.open("rb") as file:
            return _hash_of("", file)
    except OSError as error:
        raise CannotRun(f"cannot read `{path}`: {error.strerror}.") from None


def local_trace(uri: str, expected_hash: str) -> str:
    """The name by which this machine can read a trace. A remote trace is copied once, to the
    directory that `OCTAVO_TRACE_CACHE` names. Raises OctavoError, also for another hash.
    """
    if not _is_remote(uri):
        if trace_hash(uri) != expected_hash:
            raise CannotRun(f"`{uri}` is not the trace that was planned with: its content differs.")
        return uri
    place = _cache() / expected_hash / _name(uri)
    place.parent.mkdir(parents=True, exist_ok=True)
    with (place.parent / "lock").open("w") as lock:
        # Another process of this machine may be copying it.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not place.exists():
            _fetch(uri, expected_hash, place)
    return str(place)


def _fetch(uri: str, expected_hash: str, place: Path) -> None:
    with tempfile.NamedTemporaryFile(dir=place.parent, delete=False) as copy:
        try:
            with _opened(uri) as file:
                shutil.copyfileobj(file, copy, _BLOCK_BYTES)
            copy.flush()
            with Path(copy.name).open("rb") as written:
                found = _hash_of(_name(uri), written)
            if found != expected_hash:
                raise CannotRun(f"`{uri}` has changed since the sweep was planned.")
            Path(copy.name).replace(place)
        except BaseException:
            Path(copy.name).unlink(missing_ok=True)
            raise


def _cache() -> Path:
    named = os.environ.get(_CACHE_VARIABLE)
    return Path(named or Path(tempfile.gettempdir()) / f"octavo-traces-{os.getuid()}")


def _is_remote(uri: str) -> bool:
    return "://" in uri and not uri.startswith(SYNTHETIC)


def _name(uri: str) -> str:
    return PurePosixPath(uri.split("?")[0]).name


@contextmanager
def _opened(uri: str) -> Iterator[Any]:
    """Opens a file of any file system that Arrow or fsspec knows. Raises CannotRun."""
    import pyarrow as pa
    from pyarrow.fs import FileSystem

    try:
        try:
            system, path = FileSystem.from_uri(uri)
        except pa.ArrowInvalid:
            with _opened_by_fsspec(uri) as file:
                yield file
            return
        with system.open_input_stream(path) as file:
            yield file
    except (OSError, ValueError) as error:
        first = str(error).splitlines()[0].rstrip(".") if str(error) else type(error).__name__
        raise CannotRun(f"cannot read `{uri}`: {first}.") from None


def _opened_by_fsspec(uri: str) -> Any:
    try:
        import fsspec  # type: ignore[import-untyped]
    except ImportError:
        scheme = uri.split("://")[0]
        raise CannotRun(
            f"cannot read `{uri}`: Arrow does not know `{scheme}`, and fsspec is not installed "
            "(pip install 'octavo[ray]')."
        ) from None
    return fsspec.open(uri, "rb")


def _hash_of(name: str, file: Any) -> str:
    found = hashlib.blake2b(digest_size=16)
    found.update("".join(PurePosixPath(name).suffixes).encode() + b"\0")
    while block := file.read(_BLOCK_BYTES):
        found.update(block)
    return found.hexdigest()


def _identity(path: Path) -> tuple[int, int, int]:
    status = path.stat()
    return status.st_ino, status.st_size, status.st_mtime_ns


@lru_cache(maxsize=4096)
def _file_trace_hash(name: str, *identity: int) -> str:
    with Path(name).open("rb") as file:
        return _hash_of(Path(name).name, file)


def _directory_hash(path: Path) -> str:
    found = hashlib.blake2b(digest_size=16)
    for file in sorted(path.rglob("*")):
        if file.is_file():
            one = _file_trace_hash(str(file), *_identity(file))
            found.update(f"{file.relative_to(path)}\0{one}\0".encode())
    return found.hexdigest()
