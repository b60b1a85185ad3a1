"""Detects the language runtime and the allocator of a program from its file and its mappings.

The same rules serve a traced program (paths of its regions), a running one (/proc/PID/maps) and a
file that has not been started (the libraries that its loader names).
"""

import re
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from octavo.base.errors import CannotRun
from octavo.runtimes.program_file import ProgramFile, open_program

_LIST_SECONDS = 5
_INTERPRETER_DEPTH = 4

_NATIVE = "native"
_UNKNOWN = "unknown"

_ALLOCATOR_LIBRARIES = {
    "jemalloc": re.compile(r"libjemalloc[-_.\w]*\.so"),
    "tcmalloc": re.compile(r"libtcmalloc[-_.\w]*\.so"),
    "mimalloc": re.compile(r"libmimalloc[-_.\w]*\.so"),
}
_PYTHON = re.compile(r"(?:lib)?python(\d+\.\d+)?[a-z]*(?:\.so[.\d]*)?$")
_POLARS = re.compile(r"_?polars[-_.\w]*\.so$")
"""The library of Polars, `_polars_runtime.abi3.so` or `polars.abi3.so`; it has a jemalloc."""
_SERVERS = {
    "postgres": "postgres",
    "postmaster": "postgres",
    "memcached": "memcached",
    "mariadbd": "mariadb",
    "mysqld": "mariadb",
    "redis-server": "redis",
    "redis-check-rdb": "redis",
    "valkey-server": "redis",
    "node": "node",
    "nodejs": "node",
    "beam.smp": "erlang",
    "luajit": "luajit",
}
"""Programs by the name of their file. Debian starts redis-server by a link to redis-check-rdb."""

_JEMALLOC_MARKER = b"<jemalloc>: "
_OWN_ALLOCATORS = ("go", "erlang", "luajit")
"""Runtimes that map nearly all their memory themselves, where no switch of malloc reaches it."""
_STATIC_MUSL = (b"No error information\0", b"-0X+0X 0X-0x+0x 0x\0")
"""Strings in musl's strerror and printf that no other C library has."""
_GLIBC_READS_MODE = (2, 38)
"""The first glibc whose malloc terminates the text of `transparent_hugepage/enabled` before it
compares it (commit 801deb07f6, April 2023). Before that, a byte of the stack decides whether it
sees `madvise`.
"""

_TITLES = {
    "jvm": "Java virtual machine",
    "go": "Go",
    "node": "Node.js",
    "cpython": "Python",
    "php": "PHP",
    "erlang": "Erlang",
    "luajit": "LuaJIT",
    "postgres": "PostgreSQL",
    "memcached": "memcached",
    "mariadb": "MariaDB",
    "redis": "Redis",
    "glibc": "glibc's malloc",
    "musl": "musl's malloc",
    "jemalloc": "jemalloc",
    "tcmalloc": "tcmalloc",
    "mimalloc": "mimalloc",
}


def title(name: str) -> str:
    """The name of a runtime or an allocator in a sentence."""
    return _TITLES.get(name, name)


@dataclass(frozen=True)
class Runtime:
    """The runtime and the allocator that manage a program's memory."""

    program: str
    """Path of the executable; empty where it is not known."""
    kind: str = _UNKNOWN
    """jvm, go, node, cpython, php, erlang, luajit, postgres, memcached, mariadb, redis, native or
    unknown."""
    version: tuple[int, ...] = ()
    """Version of the runtime; empty where it is not known."""
    allocator: str = _UNKNOWN
    """The implementation of malloc: glibc, jemalloc, tcmalloc, mimalloc, musl or unknown; the kind
    of a runtime that maps its memory itself."""
    allocator_version: tuple[int, ...] = ()
    facts: frozenset[str] = frozenset()
    """static, glibc-hugetlb-tunable, glibc-may-miss-madvise (the tunable does nothing in some
    starts), mimalloc-large-os-pages, mimalloc-allow-large-os-pages, mimalloc-allow-thp, zgc, numpy,
    polars (its library has a jemalloc), small-pieces (below 2 MiB, apart), assumed (nothing is
    known; this machine has glibc)."""
    malloc_conf: str = ""
    """The variable that this build of jemalloc reads."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names whose actions apply, the most specific first: the runtime, the allocator, …"""
        dynamic = () if "static" in self.facts else ("dynamic",)
        return (self.kind, self.allocator, *dynamic, "any")

    @property
    def is_server(self) -> bool:
        """Whether the program is a server, which runs until it is stopped."""
        return self.kind in ("postgres", "memcached", "mariadb", "redis")

    def __str__(self) -> str:
        """`Java virtual machine 17.0.17`, `Redis, jemalloc 5.3.0`, `glibc's malloc`."""
        parts = [
            " ".join((_TITLES[name], ".".join(map(str, version)))).strip()
            for name, version in (
                (self.kind, self.version),
                (self.allocator, self.allocator_version),
            )
            if name in _TITLES
        ]
        if self.kind in ("jvm", "go"):
            parts = parts[:1]
        return ", ".join(dict.fromkeys(parts)) or "unknown allocator"


def runtime_of_file(program: Path | str, arguments: Sequence[str] = ()) -> Runtime:
    """The runtime of a program that is not running; for a script, that of its interpreter.

    `program` is a path or a name on PATH. Its loader lists its libraries; the program does not run.
    Raises CannotRun where there is no such file.
    """
    name = str(program)
    found = name if "/" in name else shutil.which(name)
    if found is None or not Path(found).is_file():
        raise CannotRun(f"no such program: `{name}`.")
    path = _interpreter_of(Path(found).resolve())
    with open_program(path) as file:
        loader = file.loader if file is not None else None
    libraries = _libraries(path, loader) if loader else ()
    if (jvm := _jvm_of_launcher(path)) is not None:
        libraries = (*libraries, str(jvm))
    return with_arguments(detect(str(path), libraries, started_as=found), arguments)


def with_arguments(runtime: Runtime, arguments: Sequence[str]) -> Runtime:
    """The runtime with facts from the command line: the garbage collector of a JVM."""
    if runtime.kind == "jvm" and "-XX:+UseZGC" in arguments:
        return replace(runtime, facts=runtime.facts | {"zgc"})
    return runtime


def detect(program: str, mapped: Iterable[str], *, started_as: str | None = None) -> Runtime:
    """The runtime of a program, from the files that it has mapped, with or without its own file.

    `started_as` is the name of a symbolic link by which it was started. Of files that are not on
    this machine, such as those of a trace from elsewhere, only the names are used.
    """
    return _detect(program, tuple(sorted(set(mapped))), started_as or program)


@lru_cache(maxsize=64)
def _detect(program: str, mapped: tuple[str, ...], started_as: str) -> Runtime:
    libraries = {Path(path).name: Path(path) for path in mapped}
    with open_program(Path(program)) as file:
        allocator = _allocator(libraries, file)
        kind, version = _kind({Path(program).name, Path(started_as).name}, libraries, file)
        if kind == "cpython" and allocator.allocator not in _preloaded(libraries):
            # Python 3.13 and later contain a mimalloc that they use only if configured to.
            allocator = _libc(libraries, file)
        if kind in _OWN_ALLOCATORS:
            allocator = Runtime(program, allocator=kind, facts=allocator.facts)
        if kind == _UNKNOWN and (file is not None or allocator.allocator != _UNKNOWN):
            kind = _NATIVE
        facts = set(allocator.facts)
        if kind == "cpython" and any(name.startswith("_multiarray_umath.") for name in libraries):
            facts.add("numpy")
        if kind == "cpython" and (variable := _variable_of_polars(libraries)) is not None:
            allocator = replace(allocator, malloc_conf=variable)
            facts.add("polars")
        if kind == "node":
            facts.add("small-pieces")
        if file is not None and file.loader is None:
            facts.add("static")
    return replace(allocator, program=program, kind=kind, version=version, facts=frozenset(facts))


def _kind(
    names: set[str], libraries: dict[str, Path], file: ProgramFile | None
) -> tuple[str, tuple[int, ...]]:
    """The runtime of the program, and its version."""
    if "libjvm.so" in libraries:
        return "jvm", _jvm_version(libraries["libjvm.so"])
    if file is not None and (go := _go_version(file)) is not None:
        return "go", go
    pythons = [match for name in (*names, *libraries) if (match := _PYTHON.match(name))]
    if pythons:
        # The name `python3.11` has the version; `python`, which links to it, has none.
        return "cpython", max(_numbers(match[1] or "") for match in pythons)
    for name in names:
        if name in _SERVERS:
            kind = _SERVERS[name]
            return kind, _node_version(file) if kind == "node" else ()
    if file is not None and file.has(b"V8 is running "):
        return "node", _node_version(file)
    if file is not None and file.has(b"\0USE_ZEND_ALLOC_HUGE_PAGES\0"):
        return "php", _version_in(file, b"X-Powered-By: PHP/", rb"PHP/(\d+\.\d+\.\d+)")
    return _UNKNOWN, ()


def _allocator(libraries: dict[str, Path], file: ProgramFile | None) -> Runtime:
    """The allocator: a library that replaces malloc, one in the program, or the C library."""
    for name, path in _preloaded(libraries).items():
        with open_program(path) as library:
            return _known_allocator(name, library)
    if file is not None:
        for name, marker in (
            ("jemalloc", _JEMALLOC_MARKER),
            ("tcmalloc", b"TCMALLOC_MAX_TOTAL_THREAD_CACHE_BYTES"),
            ("mimalloc", b"mimalloc: warning: "),
        ):
            if file.has(marker):
                found = _known_allocator(name, file)
                return replace(found, facts=found.facts | _libc(libraries, file).facts)
    return _libc(libraries, file)


def _preloaded(libraries: dict[str, Path]) -> dict[str, Path]:
    """Libraries that replace malloc, by allocator."""
    return {
        allocator: path
        for allocator, pattern in _ALLOCATOR_LIBRARIES.items()
        for name, path in libraries.items()
        if pattern.match(name)
    }


def _known_allocator(name: str, file: ProgramFile | None) -> Runtime:
    """Version and features of an allocator, from the file that contains it."""
    unknown = Runtime("", allocator=name)
    if name == "jemalloc":
        if file is None:
            return replace(unknown, malloc_conf="MALLOC_CONF")
        variable = file.around(b"MALLOC_CONF\0", rb"\0([A-Z_]*MALLOC_CONF)\0")
        return replace(
            unknown,
            allocator_version=_version_in(file, b"-g", rb"(\d+\.\d+\.\d+)-\d+-g[0-9a-f]{40}"),
            malloc_conf=(variable or b"MALLOC_CONF").decode(),
        )
    if name == "mimalloc" and file is not None:
        options = ("allow_thp", "allow_large_os_pages", "large_os_pages")
        # The newest option that the file contains shows the version.
        newest = next((text for text in options if file.has(b"\0%b\0" % text.encode())), None)
        facts = {f"mimalloc-{newest.replace('_', '-')}"} if newest else set()
        return replace(unknown, facts=frozenset(facts))
    return unknown


def _variable_of_polars(libraries: dict[str, Path]) -> str | None:
    """The variable that the jemalloc in the library of Polars reads; None without it."""
    path = next((path for name, path in libraries.items() if _POLARS.match(name)), None)
    if path is None:
        return None
    with open_program(path) as library:
        if library is None or not library.has(_JEMALLOC_MARKER):
            return None
        return _known_allocator("jemalloc", library).malloc_conf


def _libc(libraries: dict[str, Path], file: ProgramFile | None) -> Runtime:
    """The C library's malloc; the loader, or a static program, contains the names of tunables."""
    if any(name.startswith(("ld-musl-", "libc.musl-")) for name in libraries):
        return Runtime("", allocator="musl")
    tunable = frozenset({"glibc-hugetlb-tunable"})
    if "libc.so.6" in libraries or any(name.startswith("libc-2.") for name in libraries):
        loaders = [path for name, path in libraries.items() if name.startswith("ld-linux-")]
        if file is not None and file.loader:
            loaders.append(Path(file.loader))
        if not any(_has_tunable(path) for path in loaders):
            return Runtime("", allocator="glibc")
        version = _glibc_version(libraries.get("libc.so.6"))
        misses = {"glibc-may-miss-madvise"} if () < version < _GLIBC_READS_MODE else set()
        return Runtime("", allocator="glibc", facts=tunable | misses)
    if file is None:
        return Runtime("")
    if file.loader is not None:
        return Runtime("", allocator="musl" if "musl" in file.loader else _UNKNOWN)
    if file.has(b"GLIBC_TUNABLES"):
        has = file.has(b"glibc.malloc.hugetlb")
        return Runtime("", allocator="glibc", facts=tunable if has else frozenset())
    if any(file.has(text) for text in _STATIC_MUSL):
        return Runtime("", allocator="musl")
    return Runtime("")


def _has_tunable(loader: Path) -> bool:
    with open_program(loader) as file:
        return file is not None and file.has(b"glibc.malloc.hugetlb")


def _glibc_version(library: Path | None) -> tuple[int, ...]:
    """The version in the text that the library prints when executed; empty where not known."""
    if library is None:
        return ()
    with open_program(library) as file:
        return _version_in(file, b" release version ", rb" release version (\d+\.\d+)")


def _go_version(file: ProgramFile) -> tuple[int, ...] | None:
    """The version in the build information that Go's linker writes; None for other programs.

    Reference: debug/buildinfo of Go's library. Before 1.18 the version is behind a pointer; it is
    empty here.
    """
    at = file.find(b"\xff Go buildinf:")
    if at is None or at % 16:
        return None
    flags = file.image[at + 15]
    if not flags & 2:
        return ()
    length = file.image[at + 32]
    text = file.image[at + 33 : at + 33 + min(length, 64)].decode(errors="replace")
    return _numbers(text)


def _node_version(file: ProgramFile | None) -> tuple[int, ...]:
    return _version_in(file, b"/download/release/v", rb"/download/release/v(\d+\.\d+\.\d+)/")


def _jvm_version(library: Path) -> tuple[int, ...]:
    """The version in the file `release` at the top of the Java installation."""
    for directory in library.parents:
        try:
            text = (directory / "release").read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        match = re.search(r'JAVA_VERSION="([\d.]+)', text)
        return _numbers(match[1]) if match else ()
    return ()


def _jvm_of_launcher(path: Path) -> Path | None:
    """The libjvm.so that the `java` launcher loads by dlopen; the loader does not list it."""
    for place in ("lib/server/libjvm.so", "jre/lib/amd64/server/libjvm.so"):
        library = path.parent.parent / place
        if path.name in ("java", "javac", "jshell") and library.is_file():
            return library
    return None


def _interpreter_of(path: Path) -> Path:
    """The interpreter of a script, also one that `/usr/bin/env` starts; else the program."""
    for _ in range(_INTERPRETER_DEPTH):
        try:
            with path.open("rb") as file:
                head = file.read(256)
        except OSError:
            return path
        if not head.startswith(b"#!"):
            return path
        words = head[2:].split(b"\n", 1)[0].decode(errors="replace").split()
        if words and Path(words[0]).name == "env":
            words = [word for word in words[1:] if not word.startswith("-") and "=" not in word]
            found = shutil.which(words[0]) if words else None
            words = [found] if found else []
        if not words:
            return path
        path = Path(words[0]).resolve()
    return path


def _libraries(path: Path, loader: str) -> tuple[str, ...]:
    """The libraries of a program that its loader finds, and the loader itself."""
    listing = [loader, "--list", str(path)]
    try:
        done = subprocess.run(
            listing, capture_output=True, timeout=_LIST_SECONDS, check=False, text=True
        )
    except (OSError, subprocess.SubprocessError):
        return (loader,)
    found = re.findall(r"(?:=> )?(/\S+) \(0x", done.stdout)
    return (loader, *found)


def _version_in(file: ProgramFile | None, near: bytes, pattern: bytes) -> tuple[int, ...]:
    """The version in a file; empty where there is none, or where the file cannot be read."""
    version = file.around(near, pattern) if file is not None else None
    return _numbers((version or b"").decode())


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text)[:3])
