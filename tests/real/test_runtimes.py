"""Actions on real programs: the printed lines are pasted, and their effects checked.

They change settings of the system and restore them, and need root. Programs that are not installed
are skipped, and the reason names them.
"""

import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from tests.real.conftest import OCTAVO
from tests.real.page_census import anonymous_bytes, rollup

from octavo.actions.candidates import candidate_actions
from octavo.actions.model import Action
from octavo.base.huge_pages import read_huge_pages
from octavo.runtimes.detect import Runtime, detect, runtime_of_file, with_arguments

pytestmark = [
    pytest.mark.long,
    pytest.mark.usefixtures("changes_settings"),
    pytest.mark.skipif(os.geteuid() != 0, reason="settings of the system are changed by root only"),
]


FILL = Path(__file__).parent / "fill"
KIB, MIB = 1024, 1 << 20
WAIT_SECONDS = 60
JEMALLOC = "/usr/lib/x86_64-linux-gnu/libjemalloc.so.2"
TCMALLOC = "/usr/lib/x86_64-linux-gnu/libtcmalloc_minimal.so.4"
MIMALLOC = "/usr/lib/x86_64-linux-gnu/libmimalloc.so.2.0"


@dataclass(frozen=True)
class Program:
    """A program that fills memory."""

    command: str
    executable: str
    """The name of the executed file, by which its process is found."""
    fill: Callable[[], None] | None = None
    """Fills the program's memory; None: the program fills its memory and prints `ready`."""
    user: str | None = None
    preload: str = ""
    settling_seconds: float = 0
    """The longest time until huge pages are there."""


@dataclass(frozen=True)
class Seen:
    """Memory of a process, in MiB."""

    large: int
    """Anonymous memory in folios of the promised size or larger."""
    larger: int
    """Anonymous memory in folios larger than the promised size."""
    anonymous: int
    shared: int
    """Shared memory in huge pages, transparent or of a pool."""
    resident: int
    described: str
    """The runtime that is detected from the process."""


def see(program: Program, block: str, size: int = 2 * MIB) -> Seen:
    """Pastes a block into a shell and measures the memory of the program that it starts."""
    settings, line = block.rsplit("\n", 1) if "\n" in block else ("", block)
    if settings:
        subprocess.run(["bash", "-euc", settings], check=True, stdout=subprocess.DEVNULL)
    environment = {**os.environ, **({"LD_PRELOAD": program.preload} if program.preload else {})}
    server = subprocess.Popen(
        ["bash", "-uc", line],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT if program.fill is None else subprocess.DEVNULL,
        start_new_session=True,
        env=environment,
        user=program.user,
        group=program.user,
        extra_groups=[] if program.user else None,
    )
    try:
        if program.fill is not None:
            program.fill()
        else:
            assert server.stdout is not None
            printed = []
            for output in server.stdout:
                printed.append(output)
                if output.strip() == b"ready":
                    break
            else:
                pytest.fail(f"`{line}` ended: {b''.join(printed).decode()}")
        end, before = time.monotonic() + program.settling_seconds, 0
        while True:
            seen = _look(server.pid, program.executable, size)
            # Pages that the kernel moves into a huge page are not mapped meanwhile, nor counted.
            is_whole = abs(seen.anonymous - before) <= seen.anonymous // 20
            if (is_whole and seen.large > 0.8 * seen.anonymous) or time.monotonic() > end:
                return seen
            before = seen.anonymous
            time.sleep(0.5)
    finally:
        _end(server)


def _end(server: subprocess.Popen[bytes]) -> None:
    """Interrupts a program, and kills its processes that have not ended."""
    pids = _pids_of(server.pid)
    server.send_signal(signal.SIGINT)
    with suppress(subprocess.TimeoutExpired):
        server.wait(10)
    for pid in pids:
        if server.poll() is None or Path(f"/proc/{pid}").exists():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    server.wait()


def _look(root: int, executable: str, size: int) -> Seen:
    pids = [pid for pid in _pids_of(root) if _executable(pid) == executable]
    assert pids, f"no process of {executable}"
    # A server that forks has anonymous memory in all processes; each maps the shared memory.
    counts = [anonymous_bytes(pid) for pid in pids]
    maps = [rollup(pid) for pid in pids]

    def total(smallest: int) -> int:
        return sum(
            number for count in counts for folio, number in count.items() if folio >= smallest
        )

    return Seen(
        large=total(size) // MIB,
        larger=total(size + 1) // MIB,
        anonymous=total(0) // MIB,
        shared=max(
            fields["ShmemPmdMapped"] + fields["Shared_Hugetlb"] + fields["Private_Hugetlb"]
            for fields in maps
        )
        // MIB,
        resident=max(fields["Rss"] for fields in maps) // MIB,
        described=str(runtime_of_process(pids[0])),
    )


def runtime_of_process(pid: int) -> Runtime:
    """The runtime of a running process, by the files that it has mapped."""
    program = str(Path(f"/proc/{pid}/exe").readlink())
    fields = (line.split(maxsplit=5) for line in Path(f"/proc/{pid}/maps").read_text().splitlines())
    paths = [parts[5] for parts in fields if len(parts) > 5 and parts[5].startswith("/")]
    words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    return with_arguments(detect(program, paths), words[1:])


def _pids_of(root: int) -> list[int]:
    """A process and all its descendants, in any session."""
    parents = {}
    for path in Path("/proc").iterdir():
        with suppress(ValueError, OSError):
            stat = (path / "stat").read_text().rpartition(")")[2].split()
            parents[int(path.name)] = int(stat[1])
    found = [root]
    for pid in found:
        found += [child for child, parent in parents.items() if parent == pid]
    return found


def _executable(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/exe").readlink().name
    except OSError:
        return ""


@contextmanager
def restored(action: Action) -> Iterator[None]:
    """Finally pastes the lines that undo an action, and checks that settings are restored."""
    before = read_huge_pages().settings
    try:
        yield
    finally:
        if action.undo:
            subprocess.run(["bash", "-euc", action.undo], check=True, stdout=subprocess.DEVNULL)
    assert read_huge_pages().settings == before


def act(program: Program, name: str, *, touched_bytes: int = 0) -> Seen:
    """Follows an action of this program and measures memory. `touched_bytes` stand for a run's."""
    words = shlex.split(program.command)
    host = read_huge_pages()
    runtime = runtime_of_file(words[0], words[1:])
    if program.preload:
        library = Path(program.preload)
        if not library.exists():
            pytest.skip(f"{library.name} is not installed")
        runtime = _preloaded_runtime(program)
    actions = {
        action.name: action
        for action in candidate_actions(
            runtime if program.preload else words[0], host, words[1:], touched_bytes=touched_bytes
        )
    }
    assert name in actions, sorted(actions)
    action = actions[name].for_program(program.command)
    with restored(action):
        return see(program, action.command, action.page_size or 2 * MIB)


def _preloaded_runtime(program: Program) -> Runtime:
    words = shlex.split(program.command)
    plain = runtime_of_file(words[0])
    found = detect(words[0], ["/lib/x86_64-linux-gnu/libc.so.6", program.preload])
    return replace(found, facts=found.facts | plain.facts)


def needs(*names: str) -> None:
    for name in names:
        if shutil.which(name) is None:
            pytest.skip(f"{name} is not installed")


def compiled(binary: Path, text: str, *options: str) -> Path:
    """Compiles a C program beside its source."""
    source = binary.with_suffix(".c")
    source.write_text(text)
    subprocess.run(["gcc", "-O1", *options, "-o", str(binary), str(source)], check=True)
    return binary


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("fill")
    directory.chmod(0o755)
    compile_c = ["gcc", "-O1", "-pthread", "-Wall", "-Wextra", str(FILL / "fill.c"), "-o"]
    subprocess.run([*compile_c, str(directory / "fill")], check=True)
    subprocess.run([*compile_c, str(directory / "fill-static"), "-static"], check=True)
    return directory


# --- pools of hugetlbfs -----------------------------------------------------------------------


@pytest.mark.parametrize("threads", [1, 4])
def test_malloc_takes_its_memory_from_a_pool(built: Path, threads: int) -> None:
    command = f"{built / 'fill'} 100 150 {threads}"
    seen = act(Program(command, "fill"), "glibc-hugetlb 2MiB", touched_bytes=300 * MIB)
    assert seen.shared >= 160
    assert seen.resident < 16, "RSS leaves it out"


def test_the_jvm_takes_its_heap_from_a_pool(tmp_path: Path) -> None:
    needs("java", "javac")
    subprocess.run(["javac", "-d", str(tmp_path), str(FILL / "Fill.java")], check=True)
    seen = act(Program(f"java -Xmx512m -cp {tmp_path} Fill", "java"), "jvm-large-pages 2MiB")
    # At least the part of the heap that the program fills.
    assert seen.shared >= 200


OPENMP = """
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
int main(void)
{
    enum { ARRAYS = 24 };
    static char *arrays[ARRAYS];
#pragma omp parallel for num_threads(4)
    for (int i = 0; i < ARRAYS; i++)
        memset(arrays[i] = malloc(8 << 20), i, 8 << 20);
    puts("ready");
    fflush(stdout);
    pause();
}
"""


def test_openmp(tmp_path: Path) -> None:
    """Arrays of 8 MiB: malloc maps each by itself in each thread and requests huge pages for it."""
    binary = compiled(tmp_path / "arrays", OPENMP, "-fopenmp")
    seen = act(Program(str(binary), "arrays"), "glibc-thp 2MiB")
    assert seen.large >= 140
    assert seen.described.startswith("native") or "glibc" in seen.described


# --- C programs, under several allocators -------------------------------------------------------

SMALL, LARGE, MIDDLE = "100 150 1", "1000000 150 1", "300000 150 1"


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (SMALL, "glibc-thp 2MiB"),
        (SMALL, "glibc-thp 64KiB"),
        (SMALL, "glibc-thp-one-arena 2MiB"),
        ("100 150 4", "glibc-thp-one-arena 2MiB"),
        ("100 150 4", "glibc-thp-one-arena 64KiB"),
        (LARGE, "glibc-thp-one-arena 2MiB"),
        (MIDDLE, "glibc-thp-one-arena 2MiB"),
    ],
)
@pytest.mark.parametrize("executable", ["fill", "fill-static"])
def test_glibc(built: Path, executable: str, arguments: str, name: str) -> None:
    program = Program(f"{built / executable} {arguments}", executable)
    seen = act(program, name)
    assert seen.large > 0.95 * seen.anonymous > 100
    assert seen.larger == 0
    assert seen.described == "glibc's malloc"


STATIC = """
#include <string.h>
#include <stdio.h>
#include <unistd.h>
static char array[150 << 20];
int main(void)
{
    memset(array, 1, sizeof array);
    puts("ready");
    fflush(stdout);
    pause();
}
"""


def test_the_library_reaches_static_variables(tmp_path: Path) -> None:
    binary = compiled(tmp_path / "static", STATIC)
    seen = act(Program(str(binary), "static", settling_seconds=15), "preload 2MiB")
    assert seen.large > 0.8 * seen.anonymous > 100


@pytest.mark.parametrize("arguments", ["100 150 4", LARGE])
def test_the_library_reaches_arenas_and_blocks(built: Path, arguments: str) -> None:
    program = Program(f"{built / 'fill'} {arguments}", "fill", settling_seconds=15)
    seen = act(program, "preload 2MiB")
    assert seen.large > 0.8 * seen.anonymous > 100


@pytest.mark.parametrize("arguments", ["100 150 4", LARGE])
def test_the_tunable_alone_does_not_reach_arenas_and_blocks(built: Path, arguments: str) -> None:
    """The other two tunables are for arenas of threads and for blocks mapped one by one."""
    seen = act(Program(f"{built / 'fill'} {arguments}", "fill"), "glibc-thp 2MiB")
    assert seen.large < 0.05 * seen.anonymous


@pytest.mark.parametrize(
    ("library", "name", "share"),
    [
        (JEMALLOC, "jemalloc-thp 2MiB", 0.95),
        (JEMALLOC, "jemalloc-thp 64KiB", 0.95),
        (MIMALLOC, "mimalloc-large-os-pages 2MiB", 0.95),
        (TCMALLOC, "tcmalloc-64k 64KiB", 0.9),
    ],
)
def test_other_allocators(built: Path, library: str, name: str, share: float) -> None:
    seen = act(Program(f"{built / 'fill'} {SMALL}", "fill", preload=library), name)
    assert seen.large > share * seen.anonymous > 100
    assert seen.larger == 0
    assert name.split("-")[0] in seen.described


@contextmanager
def general_setting(word: str) -> Iterator[None]:
    file = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    before = read_huge_pages().thp
    file.write_text(word)
    try:
        yield
    finally:
        file.write_text(before or word)


@pytest.mark.parametrize("name", ["glibc-top-pad 2MiB", "glibc-thp 2MiB"])
def test_glibc_where_huge_pages_are_always_on(built: Path, name: str) -> None:
    with general_setting("always"):
        seen = act(Program(f"{built / 'fill'} {SMALL}", "fill"), name)
    assert seen.large > 0.9 * seen.anonymous > 100


@pytest.mark.parametrize("name", ["glibc-thp 2MiB", "glibc-thp 64KiB"])
def test_glibc_where_huge_pages_are_off(built: Path, name: str) -> None:
    with general_setting("never"):
        seen = act(Program(f"{built / 'fill'} {SMALL}", "fill"), name)
    assert seen.large > 0.9 * seen.anonymous > 100


def test_jemalloc_at_64_kib_where_huge_pages_are_always_on(built: Path) -> None:
    """jemalloc requests nothing there, so the general setting has to change, too."""
    with general_setting("always"):
        program = Program(f"{built / 'fill'} {SMALL}", "fill", preload=JEMALLOC)
        seen = act(program, "jemalloc-thp 64KiB")
    assert seen.large > 0.9 * seen.anonymous > 100
    assert seen.larger == 0


def test_huge_pages_that_are_always_on_are_disabled(built: Path) -> None:
    """By prctl: jemalloc's memory gets huge pages without a request where they are always on."""
    with general_setting("always"):
        program = Program(f"{built / 'fill'} {SMALL}", "fill", preload=JEMALLOC)
        kept = act(program, "thp-disable")
        plain = see(program, program.command)
    assert plain.large > 0.9 * plain.anonymous > 100
    assert kept.large == 0 < 100 < kept.anonymous


# --- runtimes ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("size", "name"), [(2 * MIB, "jvm-thp 2MiB"), (64 * KIB, "jvm-thp 64KiB")])
def test_java(tmp_path: Path, size: int, name: str) -> None:
    needs("java", "javac")
    subprocess.run(["javac", "-d", str(tmp_path), str(FILL / "Fill.java")], check=True)
    seen = act(Program(f"java -cp {tmp_path} Fill", "java"), name)
    assert seen.large > 0.85 * seen.anonymous > 100
    assert seen.larger == 0
    assert seen.described.startswith("Java virtual machine")


def test_java_with_a_heap_in_shared_memory(tmp_path: Path) -> None:
    needs("java", "javac")
    subprocess.run(["javac", "-d", str(tmp_path), str(FILL / "Fill.java")], check=True)
    seen = act(Program(f"java -XX:+UseZGC -cp {tmp_path} Fill", "java"), "jvm-zgc-thp 2MiB")
    assert seen.shared > 100


@pytest.mark.parametrize("name", ["go-thp-all 2MiB", "go-thp-all 64KiB"])
def test_go(tmp_path: Path, name: str) -> None:
    needs("go")
    binary = tmp_path / "fillgo"
    subprocess.run(["go", "build", "-o", str(binary), str(FILL / "fill.go")], check=True)
    seen = act(Program(str(binary), "fillgo"), name)
    assert seen.large > 0.9 * seen.anonymous > 100
    assert seen.larger == 0
    assert seen.described.startswith("Go 1.")


def test_rust(tmp_path: Path) -> None:
    needs("rustc")
    binary = tmp_path / "fillrs"
    subprocess.run(["rustc", "-O", "-o", str(binary), str(FILL / "fill.rs")], check=True)
    # glibc 2.36 sees `madvise` in some starts only (docs/runtimes.md).
    starts = (act(Program(str(binary), "fillrs"), "glibc-thp 2MiB") for _ in range(12))
    seen = next(one for one in starts if one.large)
    assert seen.large > 0.9 * seen.anonymous > 100
    assert seen.described == "glibc's malloc"


def test_node() -> None:
    needs("node")
    program = Program(f"node --max-old-space-size=2000 {FILL / 'fill.js'}", "node")
    seen = act(program, "node-64k 64KiB")
    assert seen.large > 0.9 * seen.anonymous > 100
    assert seen.larger == 0
    assert seen.described.startswith("Node.js")
    text = act(program, "node-text 2MiB")
    assert text.large >= 20


def file_pages(pid: int) -> int:
    return rollup(pid).get("FilePmdMapped", 0)


@pytest.mark.parametrize("aligned", [True, False])
def test_the_text_of_a_program(tmp_path: Path, aligned: bool) -> None:
    """Text is read in pieces of 2 MiB, and mapped by huge pages if the linker has aligned it."""
    source = tmp_path / "text.c"
    source.write_text(
        "#include <stdio.h>\n#include <unistd.h>\n"
        '__asm__(".text\\n.globl body\\nbody: .fill 8388608, 1, 0x90\\nret\\n");\n'
        "void body(void);\n"
        'int main(void) { body(); puts("ready"); fflush(stdout); pause(); return 0; }\n'
    )
    binary = tmp_path / "text"
    options = ["-Wl,-z,max-page-size=0x200000"] if aligned else []
    subprocess.run(["gcc", "-o", str(binary), str(source), *options], check=True)
    os.sync()  # dirty pages cannot be changed
    actions = {a.name: a for a in candidate_actions(binary, read_huge_pages())}
    if not aligned:
        assert "text-of text" not in actions
        return
    if "text-of text" not in actions:
        pytest.skip("this file system has no large folios")
    line = actions["text-of text"].for_program(str(binary)).command
    server = subprocess.Popen(["bash", "-uc", line], stdout=subprocess.PIPE)
    try:
        assert server.stdout is not None
        assert server.stdout.readline() == b"ready\n"
        assert file_pages(server.pid) >= 6 * MIB
    finally:
        _end(server)


def test_python() -> None:
    needs("python3.11")
    python = subprocess.run(
        ["python3.11", "-c", "import sys; print(sys.executable)"],
        capture_output=True,
        check=True,
        text=True,
    ).stdout.strip()
    program = Program(f"{python} {FILL / 'fill.py'}", Path(python).resolve().name)
    small = act(program, "cpython-64k 64KiB")
    assert small.large > 0.85 * small.anonymous > 100
    assert small.larger == 0
    huge = act(program, "cpython-malloc 2MiB")
    assert huge.large > 0.85 * huge.anonymous > 100
    assert huge.described.startswith("Python 3.11")


@pytest.mark.parametrize(
    ("library", "fill"),
    [
        # Arrays below 4 MiB, for which numpy does not request huge pages.
        ("numpy", "[numpy.ones(60_000) for _ in range(300)]"),
        ("polars", "polars.arange(0, 30_000_000, eager=True)"),
    ],
)
def test_libraries_of_python(tmp_path: Path, library: str, fill: str) -> None:
    """Mappings of the library show that the program uses it."""
    python = shutil.which("python3.11")
    if (
        python is None
        or subprocess.run([python, "-c", f"import {library}"], check=False).returncode
    ):
        pytest.skip(f"python3.11 with {library} is not installed")
    script = tmp_path / "fill.py"
    script.write_text(
        f"import {library}, time\nkept = {fill}\nprint('ready', flush=True)\ntime.sleep(600)\n"
    )
    plain = subprocess.Popen([python, str(script)], stdout=subprocess.PIPE)
    try:
        assert plain.stdout is not None
        assert plain.stdout.readline() == b"ready\n"
        runtime = runtime_of_process(plain.pid)
    finally:
        _end(plain)
    program = Program(f"{python} {script}", Path(python).resolve().name)
    actions = {a.name: a for a in candidate_actions(runtime, read_huge_pages(), [str(script)])}
    action = actions[f"cpython-{library} 2MiB"].for_program(program.command)
    with restored(action):
        seen = see(program, action.command)
    assert seen.large > 0.85 * seen.anonymous > 100


def test_php() -> None:
    needs("php")
    program = Program(f"php {FILL / 'fill.php'}", Path(shutil.which("php") or "").resolve().name)
    seen = act(program, "php-zend 2MiB")
    assert seen.large > 0.9 * seen.anonymous > 100
    assert seen.described.startswith("PHP ")


# --- servers -----------------------------------------------------------------------------------


def until(answers: Callable[[], bool]) -> None:
    end = time.monotonic() + WAIT_SECONDS
    while not answers():
        assert time.monotonic() < end, "the server does not answer"
        time.sleep(0.1)


def ask(address: Path, text: bytes, end: bytes) -> bytes | None:
    """The answer of a server on a local socket; None before it listens."""
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(WAIT_SECONDS)
        try:
            client.connect(str(address))
        except OSError:
            return None
        client.sendall(text)
        answer = b""
        while not answer.endswith(end):
            part = client.recv(1 << 16)
            if not part:
                break
            answer += part
        return answer


@pytest.mark.parametrize("name", ["jemalloc-thp 2MiB", "jemalloc-thp 64KiB"])
def test_redis(tmp_path: Path, name: str) -> None:
    needs("redis-server")
    address = tmp_path / "socket"
    options = f"--port 0 --unixsocket {address} --save '' --enable-debug-command local"

    def fill() -> None:
        until(lambda: ask(address, b"PING\r\n", b"\r\n") == b"+PONG\r\n")
        assert ask(address, b"DEBUG POPULATE 1000000 key 60\r\n", b"\r\n") == b"+OK\r\n"

    program = Program(f"redis-server {options}", "redis-check-rdb", fill)
    if Path(shutil.which("redis-server") or "").resolve().name == "redis-server":
        program = replace(program, executable="redis-server")
    seen = act(program, name)
    assert seen.large > 0.85 * seen.anonymous > 80
    assert seen.larger == 0
    assert seen.described.startswith("Redis, jemalloc 5.")


def test_memcached(tmp_path: Path) -> None:
    needs("memcached")
    address = tmp_path / "socket"

    def fill() -> None:
        value = b"v" * 1000
        stored = b"".join(
            b"set key%d 0 0 1000 noreply\r\n%b\r\n" % (at, value) for at in range(90_000)
        )
        until(lambda: address.exists())
        assert ask(address, stored + b"get key89999\r\n", b"END\r\n")

    program = Program(f"memcached -u root -m 128 -s {address}", "memcached", fill)
    seen = act(program, "memcached-large-pages 2MiB")
    assert seen.large > 0.8 * seen.anonymous > 80
    assert seen.described.startswith("memcached")


POSTGRES = Path("/usr/lib/postgresql/15/bin")
AS_SERVER: dict[str, Any] = {
    "user": "postgres",
    "group": "postgres",
    "extra_groups": [],
    "stderr": subprocess.DEVNULL,
}


@pytest.fixture
def open_place() -> Iterator[Path]:
    """A directory that other users can enter, unlike the directories of pytest."""
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


@pytest.mark.parametrize("name", ["postgres-huge-pages 2MiB", "shared-for-all 2MiB"])
def test_postgres(open_place: Path, name: str) -> None:
    if not (POSTGRES / "postgres").exists():
        pytest.skip("PostgreSQL 15 is not installed")
    place = open_place
    shutil.chown(place, "postgres", "postgres")
    subprocess.run(
        [POSTGRES / "initdb", "-D", place / "data"],
        stdout=subprocess.DEVNULL,
        check=True,
        **AS_SERVER,
    )

    client = ["psql", "-q", "-t", "-h", str(place), "postgres"]
    sessions: list[subprocess.Popen[bytes]] = []

    def fill() -> None:
        """Fills from a session that continues, as shared memory counts only while it is mapped."""
        until(lambda: subprocess.run([*client, "-c", ""], **AS_SERVER).returncode == 0)
        session = subprocess.Popen(
            client, stdin=subprocess.PIPE, stdout=subprocess.PIPE, **AS_SERVER
        )
        sessions.append(session)
        assert session.stdin is not None
        assert session.stdout is not None
        # Unlike COPY, it fills all of the shared buffers.
        session.stdin.write(b"create table t (n int);\n")
        session.stdin.write(b"insert into t select generate_series(1, 2400000);\n")
        session.stdin.write(b"\\echo filled\n")
        session.stdin.flush()
        assert session.stdout.readline() == b"filled\n"

    program = Program(
        f"{POSTGRES / 'postgres'} -D {place / 'data'} -k {place} -h '' -c shared_buffers=128MB",
        "postgres",
        fill,
        user="postgres",
    )
    try:
        seen = act(program, name)
    finally:
        for session in sessions:
            session.communicate()
    assert seen.shared >= 70
    assert seen.described.startswith("PostgreSQL")


def test_nginx_asks_for_no_huge_pages_by_default(open_place: Path) -> None:
    """The processes of a server that forks before it serves have the tunable, too."""
    needs("nginx")
    runtime = runtime_of_file("nginx")
    assert (runtime.kind, runtime.allocator) == ("native", "glibc")
    actions = {action.name: action for action in candidate_actions("nginx", read_huge_pages())}
    assert not actions["glibc-thp 2MiB"].system_wide
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    open_place.chmod(0o755)
    (open_place / "page").write_text("x" * 1000)
    (open_place / "nginx.conf").write_text(
        f"daemon off; worker_processes 4; pid {open_place}/pid; error_log /dev/null;"
        "events {} http { access_log off; "
        + "".join(
            f"{kind}_temp_path {open_place}/{kind};"
            for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        )
        + f" server {{ listen 127.0.0.1:{port}; root {open_place}; }} }}"
    )

    def load() -> None:
        def answers() -> bool:
            with suppress(OSError), socket.create_connection(("127.0.0.1", port)) as client:
                client.sendall(b"GET /page HTTP/1.0\r\n\r\n")
                return b"200 OK" in client.recv(4096)
            return False

        until(answers)
        for _ in range(200):
            assert answers()

    program = Program(f"nginx -c {open_place}/nginx.conf", "nginx", load)
    seen = act(program, "glibc-thp 2MiB")
    # All processes together have too little memory to gain from larger pages.
    assert seen.anonymous <= 32


def test_mariadb(open_place: Path) -> None:
    needs("mariadbd", "mariadb-install-db")
    place = open_place
    shutil.chown(place, "mysql", "mysql")
    subprocess.run(
        ["mariadb-install-db", "--user=mysql", f"--datadir={place / 'data'}"],
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    address = place / "socket"
    program = Program(
        f"mariadbd --no-defaults --user=mysql --datadir={place / 'data'} --skip-networking "
        f"--socket={address} --innodb-buffer-pool-size=128M --key-buffer-size=8M "
        "--aria-pagecache-buffer-size=8M",
        "mariadbd",
        lambda: until(address.exists),
    )
    arguments = shlex.split(program.command)[1:]
    (action,) = (
        action
        for action in candidate_actions("mariadbd", read_huge_pages(), arguments)
        if action.name == "mariadb-large-pages 2MiB"
    )
    action = action.for_program(program.command)
    with restored(action):
        pool = Path("/sys/kernel/mm/hugepages/hugepages-2048kB")
        used = []

        def reserved() -> None:
            until(address.exists)
            total, free, kept = (
                int((pool / f"{name}_hugepages").read_text()) for name in ("nr", "free", "resv")
            )
            used.append(total - free + kept)

        see(replace(program, fill=reserved), action.command)
    # Pages for the buffer pool and both log buffers.
    assert used[0] >= 64 + 16


# --- from a run to what it promises --------------------------------------------------------------

CHASE = """
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
struct node { struct node *next; char pad[104]; };
int main(int argc, char **argv) {
    enum { NODES = 600000, STEPS = 1500000 };
    struct node **all = malloc(NODES * sizeof *all);
    unsigned long random = 88172645463325252ul;
    (void)argv;
    for (int at = 0; at < NODES; at++)
        all[at] = malloc(sizeof **all);
    for (int at = 0; at < NODES; at++) {
        random ^= random << 13, random ^= random >> 7, random ^= random << 17;
        all[at]->next = all[random % NODES];
    }
    struct node *here = all[0];
    for (int step = 0; step < STEPS; step++) {
        random ^= random << 13, random ^= random >> 7, random ^= random << 17;
        here = random % 16 ? here->next : all[random % NODES];
    }
    printf("%s\\n", here ? "ready" : "never");
    fflush(stdout);
    if (getenv("STAY"))
        pause();
    return argc > 9;
}
"""


def test_the_block_that_a_run_prints_gives_what_it_promises(tmp_path: Path) -> None:
    binary, document = compiled(tmp_path / "chase", CHASE), tmp_path / "run.json"
    run = [OCTAVO, "run", "-q", "--json", document, "--", binary]
    subprocess.run(run, check=True, stdout=subprocess.DEVNULL)
    items = json.loads(document.read_text())["advice"][1:]
    (data,) = (item for item in items if item["scope"] == "program" and item["stream"] == "data")
    assert data["page_size"] == 2 * MIB
    action = next(action for action in data["actions"] if action["command"])
    assert action["kind"] == "malloc"
    assert action["tried"].startswith("Tried: this kernel gives 2 MiB pages")
    assert "undo" not in action
    seen = see(Program(str(binary), "chase"), f"STAY=1 {action['command']}")
    assert seen.large > 0.9 * seen.anonymous > 60
