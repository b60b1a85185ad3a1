"""Runtimes and allocators, detected in generated files and in this interpreter."""

import struct
import sys
from pathlib import Path
from typing import Any

import pytest

from fakes import process, region
from octavo.base.errors import CannotRun
from octavo.runtimes.detect import (
    Runtime,
    detect,
    runtime_of_file,
    with_arguments,
)
from octavo.runtimes.naming import name_regions, runtimes_of

MIB = 1 << 20
TUNABLE = b"\0glibc.malloc.hugetlb\0"
LIBC = "/lib/x86_64-linux-gnu/libc.so.6"
JEMALLOC = b"\0<jemalloc>: %s\0\x005.3.0-0-g54eaed1d8b56b1aa528be3bdd1877e59c56fa90c\0"


def elf(
    path: Path, content: bytes = b"", *, loader: str | None = None, unmapped: bytes = b""
) -> str:
    """A 64-bit x86-64 ELF file that maps `content` and also holds `unmapped`."""
    name = b"" if loader is None else loader.encode() + b"\0"
    headers = 64 + 2 * 56
    content_at = -(-(headers + len(name)) // 16) * 16
    header = struct.pack(
        "<16sHHIQQQIHHHHHH", b"\x7fELF\x02\x01\x01", 3, 62, 1, 0, 64, 0, 0, 64, 56, 2, 0, 0, 0
    )
    kind = 3 if loader is not None else 0
    interpreter = struct.pack("<IIQQQQQQ", kind, 4, headers, 0, 0, len(name), len(name), 1)
    load = struct.pack("<IIQQQQQQ", 1, 4, content_at, 0, 0, len(content), len(content), 4096)
    body = header + interpreter + load + name
    path.write_bytes(body.ljust(content_at, b"\0") + content + unmapped)
    return str(path)


@pytest.fixture
def loader(tmp_path: Path) -> str:
    return elf(tmp_path / "ld-linux-x86-64.so.2", TUNABLE)


def facts_of(found: Runtime) -> tuple[str, str, bool]:
    return found.kind, found.allocator, "glibc-hugetlb-tunable" in found.facts


def test_a_program_of_glibc(tmp_path: Path, loader: str) -> None:
    program = elf(tmp_path / "prog", loader=loader)
    assert facts_of(detect(program, [LIBC])) == ("native", "glibc", True)
    old = elf(tmp_path / "old", loader=elf(tmp_path / "ld-linux-x86-64.so.1"))
    assert facts_of(detect(old, [LIBC])) == ("native", "glibc", False)


def test_glibc_before_2_38_may_not_call_madvise(tmp_path: Path, loader: str) -> None:
    """A glibc before 2.38, by the version in the banner of the library."""
    program = elf(tmp_path / "prog", loader=loader)
    for version, misses in (("2.37", True), ("2.38", False), ("2.41", False)):
        banner = f"\0GNU C Library (GNU libc) stable release version {version}.\n".encode()
        directory = tmp_path / version
        directory.mkdir()
        library = elf(directory / "libc.so.6", banner)
        found = detect(program, [library])
        assert ("glibc-may-miss-madvise" in found.facts) == misses


def test_static_programs(tmp_path: Path) -> None:
    tunable = elf(tmp_path / "a", b"\0GLIBC_TUNABLES\0" + TUNABLE)
    assert facts_of(detect(tunable, [])) == ("native", "glibc", True)
    assert facts_of(detect(elf(tmp_path / "b", b"\0GLIBC_TUNABLES\0"), [])) == (
        "native",
        "glibc",
        False,
    )
    musl = detect(elf(tmp_path / "c", b"\0-0X+0X 0X-0x+0x 0x\0"), [])
    assert facts_of(musl) == ("native", "musl", False)
    assert musl.names == ("native", "musl", "any")
    assert detect(elf(tmp_path / "d", b"nothing"), []).allocator == "unknown"


def test_jemalloc_in_a_library(tmp_path: Path, loader: str) -> None:
    library = elf(tmp_path / "libjemalloc.so.2", b"\0MALLOC_CONF\0" + JEMALLOC)
    found = detect(elf(tmp_path / "redis-server", loader=loader), [LIBC, library])
    assert (found.kind, found.allocator) == ("redis", "jemalloc")
    assert found.allocator_version == (5, 3, 0)
    assert found.malloc_conf == "MALLOC_CONF"
    assert str(found) == "Redis, jemalloc 5.3.0"


@pytest.mark.parametrize("variable", ["MALLOC_CONF", "_RJEM_MALLOC_CONF", "JE_MALLOC_CONF"])
def test_jemalloc_in_the_program_reads_the_variable_of_its_build(
    tmp_path: Path, loader: str, variable: str
) -> None:
    content = b"\0MALLOC_CONFIG\0\0%b\0" % variable.encode() + JEMALLOC
    found = detect(elf(tmp_path / "prog", content, loader=loader), [LIBC])
    assert (found.allocator, found.malloc_conf) == ("jemalloc", variable)


def test_names_in_debug_information_do_not_count(tmp_path: Path, loader: str) -> None:
    program = elf(tmp_path / "prog", b"x", loader=loader, unmapped=JEMALLOC)
    assert detect(program, [LIBC]).allocator == "glibc"


@pytest.mark.parametrize(
    ("options", "fact"),
    [
        (b"\0large_os_pages\0", "mimalloc-large-os-pages"),
        (b"\0allow_large_os_pages\0", "mimalloc-allow-large-os-pages"),
        (b"\0allow_large_os_pages\0allow_thp\0", "mimalloc-allow-thp"),
    ],
)
def test_the_options_of_mimalloc_show_its_abilities(
    tmp_path: Path, loader: str, options: bytes, fact: str
) -> None:
    library = elf(tmp_path / "libmimalloc.so.2", options)
    found = detect(elf(tmp_path / "prog", loader=loader), [LIBC, library])
    assert found.allocator == "mimalloc"
    assert fact in found.facts


def test_mimalloc_inside_python_is_not_its_allocator(tmp_path: Path, loader: str) -> None:
    program = elf(tmp_path / "python3.13", b"\0mimalloc: warning: \0", loader=loader)
    found = detect(program, [LIBC])
    assert (found.kind, found.version, found.allocator) == ("cpython", (3, 13), "glibc")


@pytest.mark.parametrize(
    ("name", "content", "has"),
    [
        ("_polars_runtime.abi3.so", b"\0_RJEM_MALLOC_CONF\0" + JEMALLOC, True),
        ("polars.abi3.so", b"\0_RJEM_MALLOC_CONF\0" + JEMALLOC, True),
        ("polars.abi3.so", b"no jemalloc", False),
        ("other.abi3.so", b"\0_RJEM_MALLOC_CONF\0" + JEMALLOC, False),
    ],
)
def test_the_jemalloc_of_polars(
    tmp_path: Path, loader: str, name: str, content: bytes, has: bool
) -> None:
    library = elf(tmp_path / name, content)
    found = detect(elf(tmp_path / "python3.11", loader=loader), [LIBC, library])
    assert (found.kind, found.allocator) == ("cpython", "glibc")
    assert ("polars" in found.facts, found.malloc_conf == "_RJEM_MALLOC_CONF") == (has, has)


def test_go_and_its_version(tmp_path: Path) -> None:
    information = b"\xff Go buildinf:\x08\x02".ljust(32, b"\0") + b"\x06go1.26" + b"\x30path"
    found = detect(elf(tmp_path / "server", information), [])
    assert (found.kind, found.version, found.allocator) == ("go", (1, 26), "go")
    old = b"\xff Go buildinf:\x08\x00".ljust(48, b"\0")
    assert detect(elf(tmp_path / "old", old), []).version == ()


def test_java_and_its_version(tmp_path: Path, loader: str) -> None:
    (tmp_path / "lib/server").mkdir(parents=True)
    (tmp_path / "release").write_text('IMPLEMENTOR="x"\nJAVA_VERSION="17.0.15"\n')
    library = elf(tmp_path / "lib/server/libjvm.so")
    found = detect(elf(tmp_path / "java", loader=loader), [LIBC, library])
    assert (found.kind, found.version) == ("jvm", (17, 0, 15))
    assert "zgc" in with_arguments(found, ["-XX:+UseZGC"]).facts


def test_php_and_its_version(tmp_path: Path, loader: str) -> None:
    content = b"\0X-Powered-By: PHP/8.2.36\0\0USE_ZEND_ALLOC_HUGE_PAGES\0"
    found = detect(elf(tmp_path / "php-fpm8.2", content, loader=loader), [LIBC])
    assert (found.kind, found.version, found.allocator) == ("php", (8, 2, 36), "glibc")
    assert str(found) == "PHP 8.2.36, glibc's malloc"


@pytest.mark.parametrize(("name", "title"), [("beam.smp", "Erlang"), ("luajit", "LuaJIT")])
def test_runtimes_that_map_their_memory_themselves(
    tmp_path: Path, loader: str, name: str, title: str
) -> None:
    found = detect(elf(tmp_path / name, loader=loader), [LIBC])
    assert (found.names, str(found)) == ((found.kind, found.kind, "dynamic", "any"), title)


def test_missing_files_are_recognised_by_their_names() -> None:
    found = detect("/far/away/prog", ["/far/libjemalloc.so.2", LIBC])
    assert (found.allocator, found.malloc_conf) == ("jemalloc", "MALLOC_CONF")
    assert detect("/far/away/prog", []).names[:2] == ("unknown", "unknown")
    assert detect("/far/python3.9", []).version == (3, 9)


@pytest.mark.parametrize("content", [b"", b"#!/bin/sh\n", b"\x7fELF\x02\x01\x01" + b"\xff" * 80])
def test_other_files_have_an_unknown_allocator(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    assert detect(str(path), []).allocator == "unknown"


def test_this_interpreter_is_python() -> None:
    found = runtime_of_file(sys.executable)
    assert found.kind == "cpython"
    assert found.version == sys.version_info[:2]


def test_a_script_has_the_runtime_of_its_interpreter(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text(f"#!/usr/bin/env -S {sys.executable}\n")
    assert runtime_of_file(script).kind == "cpython"


def test_a_missing_program_is_named() -> None:
    with pytest.raises(CannotRun, match="no such program: `/no/such`"):
        runtime_of_file("/no/such")


# --- names of regions ----------------------------------------------------------------------------


def named(runtime: Runtime, *regions: Any, threads: int = 2) -> list[str]:
    made = process(0, regions=regions)
    made["threads"] = threads
    name_regions([made], {0: runtime})
    return [region["name"] for region in made["regions"]]


def anonymous(name: str, start: int, size: int = 8 * MIB, *, code: bool = False) -> Any:
    return region(name, "anonymous", start=start, base=size, stream="fetch" if code else "data")


def test_a_program_of_one_thread_has_no_arenas_of_threads() -> None:
    glibc = Runtime("x", "native", allocator="glibc")
    for threads, name in ((1, "anon 128.0MiB #1"), (2, "malloc arena of a thread 128.0MiB #1")):
        mapping = anonymous("anon 128.0MiB #1", 0x7FFF_0000_1000, 128 * MIB)
        assert named(glibc, mapping, threads=threads) == [name]


def test_the_java_heap_and_the_code_cache() -> None:
    java = Runtime("java", "jvm", allocator="glibc")
    regions = (
        anonymous("anon 512.0MiB #1", 0xE000_0000, 512 * MIB),
        anonymous("anon 2.4MiB #2", 0x7FFF_0000_0000, code=True),
        anonymous("anon 64.0MiB #3", 0x7FFF_0000_0000, 64 * MIB),
        anonymous("anon (small)", 0x7FFF_1000_1000),
    )
    assert named(java, *regions) == [
        "Java heap 512.0MiB #1",
        "Java code cache 2.4MiB #2",
        "malloc arena of a thread 64.0MiB #3",
        "anon (small)",
    ]


def test_a_java_heap_that_is_not_low_is_the_largest_mapping() -> None:
    java = Runtime("java", "jvm", allocator="unknown")
    regions = (
        anonymous("anon 380.0MiB #1", 0x7FF6_8740_0000, 380 * MIB),
        anonymous("anon 9.0MiB #2", 0x7FFF_0000_1000, 9 * MIB),
    )
    assert named(java, *regions) == ["Java heap 380.0MiB #1", "anon 9.0MiB #2"]


def test_the_heap_of_zgc_is_a_file_in_memory() -> None:
    """The heap is not the largest anonymous mapping."""
    java = Runtime("java", "jvm", allocator="glibc")
    file = "/memfd:java_heap (deleted)"
    assert named(
        java,
        region("memfd:java_heap data", "data", path=file),
        anonymous("anon 128.0MiB #1", 0x7FFF_EE60_0000, 128 * MIB),
    ) == ["Java heap", "malloc arena of a thread 128.0MiB #1"]


def test_names_by_runtime() -> None:
    go = Runtime("x", "go", allocator="go")
    assert named(
        go, anonymous("anon 64.0MiB #1", 0xC0 << 32), anonymous("anon (small)", 0x7FFF_B160_0000)
    ) == ["Go heap 64.0MiB #1", "Go runtime (small)"]
    node = Runtime("x", "node", allocator="glibc")
    assert named(node, anonymous("anon (small)", 4096)) == ["V8 heap (small)"]
    python = Runtime("x", "cpython", (3, 11), allocator="glibc")
    assert named(
        python, anonymous("anon 1.0MiB #1", 4096, MIB), anonymous("anon (small)", 4096, MIB // 2)
    ) == ["Python arena 1.0MiB #1", "anon (small)"]
    php = Runtime("x", "php", allocator="glibc")
    assert named(
        php,
        anonymous("anon 20.0MiB #1", 0x7FFF_F1C0_0000, 20 * MIB),
        anonymous("anon 4.5MiB #2", 0x7FFF_F3F8_1000, 9 * MIB // 2),
        anonymous("anon (small)", 0x7FFF_F400_1000, MIB // 2),
    ) == ["PHP heap 20.0MiB #1", "anon 4.5MiB #2", "anon (small)"]
    erlang = Runtime("x", "erlang", allocator="erlang")
    assert named(
        erlang,
        anonymous("anon 8.0MiB #1", 0x7FFF_F380_1000, 8 * MIB),
        anonymous("anon 64.0MiB #2", 0x7FFF_0000_0000, 64 * MIB),
    ) == ["Erlang carrier 8.0MiB #1", "malloc arena of a thread 64.0MiB #2"]
    luajit = Runtime("x", "luajit", allocator="luajit")
    assert named(luajit, anonymous("anon (small)", 4096)) == ["LuaJIT heap (small)"]
    redis = Runtime("x", "redis", allocator="jemalloc")
    assert named(redis, region("heap"), anonymous("anon 8.0MiB #1", 4096)) == [
        "heap",
        "jemalloc arena 8.0MiB #1",
    ]
    postgres = Runtime("x", "postgres", allocator="glibc")
    assert named(postgres, region("shared", "shared")) == ["shared buffers"]
    native = Runtime("x", "native", allocator="glibc")
    assert named(native, anonymous("anon 8.0MiB #1", 4096)) == ["anon 8.0MiB #1"]


def test_the_runtime_of_each_process_is_recognised_by_its_mappings(tmp_path: Path) -> None:
    library = elf(tmp_path / "libjemalloc.so.2", b"\0MALLOC_CONF\0" + JEMALLOC)
    made = [
        process(0, program="/far/prog", regions=[region("libc text", "text", path=LIBC)]),
        process(1, program="/far/prog", regions=[region("l text", "text", path=library)]),
    ]
    found = runtimes_of(made)
    assert [found[0].allocator, found[1].allocator] == ["glibc", "jemalloc"]
