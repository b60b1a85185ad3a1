"""The table of actions: its lines, their settings, and trials on this kernel."""

import itertools
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from octavo.actions.candidates import candidate_actions
from octavo.actions.for_advice import actions_for
from octavo.actions.model import Action
from octavo.actions.prctl import keep_small_prefix, systemd_version
from octavo.actions.settings import (
    ENABLED,
    needed_for_all,
    needed_for_shared,
    needed_pool,
    needed_to_ask,
    size_file,
)
from octavo.actions.subjects import Subjects, is_mostly_shared
from octavo.actions.table import Line, Subject, lines_for, table
from octavo.actions.trial import Trial, try_pages
from octavo.analysis.advice import Case, Point
from octavo.base.huge_pages import HugePages, read_huge_pages
from octavo.runtimes.detect import Runtime
from test_actions import MISS_UNTIL_2M, data_advice, machine, region_advice

KIB, MIB = 1024, 1 << 20
SIZES = (16 * KIB, 64 * KIB, 2 * MIB)
GENERAL = ("always", "madvise", "never")
OWN = ("always", "inherit", "madvise", "never")

JEMALLOC = Runtime(
    "/bin/x", "redis", (), "jemalloc", (5, 3, 0), frozenset(), malloc_conf="_RJEM_MALLOC_CONF"
)
GLIBC = Runtime("/bin/x", "native", (), "glibc", (), frozenset({"glibc-hugetlb-tunable"}))
FITTING = {
    "glibc": GLIBC,
    "jemalloc": JEMALLOC,
    "mimalloc": Runtime("/bin/x", "native", allocator="mimalloc"),
    "tcmalloc": Runtime("/bin/x", "native", allocator="tcmalloc"),
    "dynamic": Runtime("/bin/x", "native", allocator="musl"),
}


def host(tmp_path: Path, general: str = "madvise", **own: str) -> HugePages:
    """A machine with three sizes of THP; `own` has their settings, such as `k64="always"`."""
    words = {"k16": "never", "k64": "never", "k2048": "inherit", **own}
    sizes = {int(name[1:]): f"[{word}]" for name, word in words.items()}
    return machine(tmp_path, thp=f"[{general}]", sizes=sizes, hugetlb=(2048,), kernel="6.18.1")


def fault_page_size(settings: Mapping[str, str], *, is_advised: bool) -> int:
    """The page size that the kernel gives at a fault, in memory with MADV_HUGEPAGE or without: the
    largest enabled size (Linux, transhuge.rst).
    """
    allowed = ("always", "madvise") if is_advised else ("always",)
    for size in sorted(SIZES, reverse=True):
        word = settings[size_file(size)]
        if (settings[ENABLED] if word == "inherit" else word) in allowed:
            return size
    return 4 * KIB


@pytest.mark.parametrize("general", GENERAL)
@pytest.mark.parametrize("size", SIZES)
def test_settings_give_the_intended_page_size(tmp_path: Path, general: str, size: int) -> None:
    for at, words in enumerate(itertools.product(OWN, repeat=len(SIZES))):
        place = tmp_path / str(at)
        place.mkdir()
        names = dict(zip(("k16", "k64", "k2048"), words, strict=True))
        found = host(place, general, **names)
        for exactly in (False, True):
            needed = needed_to_ask(found, size, exactly=exactly)
            assert needed is not None
            after = {**found.settings, **needed}
            assert fault_page_size(after, is_advised=True) == size
            # Allocators call madvise only if the general setting is `madvise`. Otherwise the size
            # must be given without it.
            assert after[ENABLED] == "madvise" or (
                not exactly and fault_page_size(after, is_advised=False) == size
            )
        needed = needed_for_all(found, size)
        assert needed is not None
        after = {**found.settings, **needed}
        assert fault_page_size(after, is_advised=False) == size
        before = fault_page_size(found.settings, is_advised=True)
        if before > size:
            assert fault_page_size(after, is_advised=True) == before


def test_a_setting_that_already_fits_is_not_changed(tmp_path: Path) -> None:
    found = host(tmp_path)
    needed = needed_to_ask(found, 2 * MIB, exactly=True)
    assert needed == {ENABLED: "madvise", size_file(2 * MIB): "inherit"}
    assert needed_for_shared(replace(found, shared_thp="force"), "always") is not None


def test_a_pool_counts_the_pages_that_are_free_already(tmp_path: Path) -> None:
    found = host(tmp_path)
    file = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages"
    assert needed_pool(found, 140) == {file: "140"}
    used = replace(found, settings={**found.settings, file: "100"}, free_pool_pages={2 * MIB: 30})
    assert needed_pool(used, 140) == {file: "210"}
    assert needed_pool(used, 20) == {file: "100"}


def fitting(line: Line) -> Runtime:
    """A runtime that a line applies to, with the facts that it requires."""
    name = sorted(line.names)[0]
    base = FITTING.get(name, Runtime("/bin/x", name, allocator="glibc"))
    version = line.where.version
    return replace(base, version=version, facts=base.facts | line.where.facts)


@pytest.mark.parametrize("line", table(), ids=lambda line: line.name)
def test_every_line_applies_to_a_program_and_can_be_undone(tmp_path: Path, line: Line) -> None:
    words = line.where.enabled or ("madvise",)
    found = replace(host(tmp_path, words[0]), shared_thp="never")
    shared = {"/sys/kernel/mm/transparent_hugepage/shmem_enabled": "never"}
    found = replace(found, settings={**found.settings, **shared})
    subject = Subject(fitting(line), ("prog", "argument"), pool_pages=10)
    if line.where.command:
        line = replace(line, where=replace(line.where, command=""))
    else:
        assert line in list(lines_for(subject, found, line.reaches))
    assert line.where.unmet(subject, found) is None
    assert line.gives(found)
    for size in line.gives(found):
        action = line.action(subject, found, size)
        assert action is not None
        action = action.for_program("prog argument")
        assert action.command.splitlines()[-1].endswith("argument")
        assert action.text.endswith(".")
        assert action.page_size == size
        assert len(action.undo.splitlines()) == len(action.changes)
        assert set(action.settings) <= set(found.settings)
        assert action.record()["command"] == action.command
        # The answer shows the caution with the lines to paste, without the rest of the text.
        assert action.record().get("caution", "").endswith(line.danger)


def test_names_are_unique() -> None:
    names = [line.name for line in table()]
    assert len(names) == len(set(names))


def test_the_rust_crate_of_jemalloc_reads_a_variable_of_its_own(tmp_path: Path) -> None:
    actions = candidate_actions(JEMALLOC, host(tmp_path))
    found = next(action for action in actions if action.name == "jemalloc-thp 2MiB")
    assert found.environment == {"_RJEM_MALLOC_CONF": "thp:always"}
    assert not found.system_wide
    old = replace(JEMALLOC, allocator_version=(5, 0, 1))
    assert "jemalloc-thp 2MiB" not in {a.name for a in candidate_actions(old, host(tmp_path))}


@pytest.mark.parametrize(
    ("kind", "allocator"), [("redis", "jemalloc"), ("go", "go"), ("jvm", "glibc"), ("x", "musl")]
)
def test_ignored_switches_are_not_advised(tmp_path: Path, kind: str, allocator: str) -> None:
    runtime = replace(GLIBC, kind=kind, allocator=allocator, malloc_conf="MALLOC_CONF")
    for advised in (
        actions_for(data_advice(MISS_UNTIL_2M), host(tmp_path), subject=Subject(runtime)),
        candidate_actions(runtime, host(tmp_path)),
    ):
        assert not any("GLIBC_TUNABLES" in action.environment for action in advised)


def test_candidates_have_names_of_their_own_and_begin_with_those_of_one_process(
    tmp_path: Path,
) -> None:
    actions = candidate_actions(GLIBC, host(tmp_path))
    names = [action.name for action in actions]
    assert len(names) == len(set(names))
    assert {"glibc-thp 2MiB", "glibc-thp 64KiB", "thp-for-all 64KiB", "thp-disable"} <= set(names)
    wide = [action.system_wide for action in actions]
    assert wide == sorted(wide)
    assert not wide[0]


def test_pages_given_by_default_need_no_action(tmp_path: Path) -> None:
    mimalloc = replace(
        GLIBC, allocator="mimalloc", facts=frozenset({"mimalloc-allow-thp", "static"})
    )
    names = {action.name for action in candidate_actions(mimalloc, host(tmp_path))}
    assert "mimalloc-default 2MiB" not in names
    assert "mimalloc-default 64KiB" in names
    action = actions_for(data_advice(MISS_UNTIL_2M), host(tmp_path), subject=Subject(mimalloc))[0]
    assert (action.kind, action.command) == ("note", "")
    assert action.text.endswith("nothing is to be done.")


def test_redis_switches_huge_pages_off_where_they_are_always(tmp_path: Path) -> None:
    found = host(tmp_path, "always")
    (action,) = (a for a in candidate_actions(JEMALLOC, found) if a.name == "jemalloc-thp 2MiB")
    assert action.changes == {ENABLED: "madvise"}


def test_memory_in_small_pieces_gets_64_kib_pages_and_a_note(tmp_path: Path) -> None:
    node = Runtime("/usr/bin/node", "node", allocator="glibc", facts=frozenset({"small-pieces"}))
    note, action = actions_for(data_advice(MISS_UNTIL_2M), host(tmp_path), subject=Subject(node))
    assert "64 KiB is what can be had" in note.text
    assert "page walks do not" in note.text
    assert action.name == "node-64k 64KiB"


def test_large_mappings_of_a_runtime_with_small_pieces_get_the_library(tmp_path: Path) -> None:
    node = Runtime("/usr/bin/node", "node", allocator="glibc", facts=frozenset({"small-pieces"}))
    region = region_advice("anon 8MiB #1")
    for mapped, first in ((2 * MIB, "node-64k 64KiB"), (56 * MIB, "preload 2MiB")):
        advice = replace(region, case=replace(region.case, bytes=mapped))
        found = actions_for(advice, host(tmp_path), subject=Subject(node))
        assert next(action.name for action in found if action.kind != "note") == first


def test_options_in_the_environment_are_not_advised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def names(subject: Subject) -> list[str]:
        found = actions_for(data_advice(MISS_UNTIL_2M), host(tmp_path), subject=subject)
        return [action.name or action.kind for action in found]

    rest = ["preload 2MiB", "glibc-hugetlb 2MiB", "madvise"]
    monkeypatch.setenv("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1:glibc.malloc.check=0")
    assert names(Subject(GLIBC)) == rest
    assert "glibc-thp 2MiB" not in {a.name for a in candidate_actions(GLIBC, host(tmp_path))}
    # A tunable that is not set is still advised.
    action = actions_for(
        data_advice(MISS_UNTIL_2M), host(tmp_path), "prog", subject=Subject(GLIBC, arenas=True)
    )[0]
    assert action.command == (
        "GLIBC_TUNABLES=glibc.malloc.check=0:glibc.malloc.hugetlb=1:glibc.malloc.arena_max=1 prog"
    )
    monkeypatch.setenv("GLIBC_TUNABLES", "glibc.malloc.hugetlb=2")
    assert names(Subject(GLIBC))[0] == "glibc-thp 2MiB"


def test_an_option_of_the_program_is_not_advised(tmp_path: Path) -> None:
    java, option = Runtime("/usr/bin/java", "jvm", (17,), "glibc"), "-XX:+UseTransparentHugePages"
    subject = Subject(java, ("java", option, "Main"))
    for general, advised in (("madvise", False), ("never", True)):
        found = host(tmp_path, general)
        actions = actions_for(
            data_advice(MISS_UNTIL_2M), found, f"java {option} Main", subject=subject
        )
        commands = [a.command for a in actions if a.name == "jvm-thp 2MiB"]
        assert bool(commands) == advised
        # Only the settings are new.
        assert all(lines.endswith(f"\njava {option} Main") for lines in commands)


def test_threads_and_blocks_lengthen_the_tunable(tmp_path: Path) -> None:
    subject = Subject(GLIBC, arenas=True, blocks=True)
    action = actions_for(data_advice(MISS_UNTIL_2M), host(tmp_path), subject=subject)[0]
    assert action.environment["GLIBC_TUNABLES"] == (
        "glibc.malloc.hugetlb=1:glibc.malloc.arena_max=1:glibc.malloc.mmap_threshold=33554432"
    )
    assert "lock" in action.text


def test_glibc_that_may_not_call_madvise_gets_a_caution_and_the_library(tmp_path: Path) -> None:
    facts = GLIBC.facts | {"glibc-may-miss-madvise"}
    for runtime in (GLIBC, replace(GLIBC, facts=facts)):
        found = actions_for(data_advice(MISS_UNTIL_2M), host(tmp_path), subject=Subject(runtime))
        may_miss = runtime is not GLIBC
        assert found[0].name == "glibc-thp 2MiB"
        assert ("/proc/PID/smaps" in found[0].text) == may_miss
        assert any(action.name == "preload 2MiB" for action in found) == may_miss


def test_memory_that_memcached_fills_at_the_start_is_named(tmp_path: Path) -> None:
    """With -L an idle memcached 1.6.18 has 46 MiB resident in place of 5 MiB."""
    subject = Subject(Runtime("/usr/bin/memcached", "memcached", allocator="glibc"))
    found = actions_for(data_advice(MISS_UNTIL_2M), host(tmp_path), subject=subject)
    assert found[0].arguments == ("-L",)
    assert "some 40 MiB in all" in found[0].caution


def test_a_program_started_by_a_script_gets_its_option_by_a_variable(tmp_path: Path) -> None:
    java = Runtime("/usr/bin/java", "jvm", (17,), "glibc")
    subject = Subject(java, ("sh", "start.sh"), is_started_directly=False)
    (action, *_) = actions_for(
        data_advice(MISS_UNTIL_2M), host(tmp_path), "sh start.sh", subject=subject
    )
    assert action.command == "JAVA_TOOL_OPTIONS=-XX:+UseTransparentHugePages sh start.sh"


# --- facts from the rows of a run ----------------------------------------------------------------


def memory_row(name: str, kind: str, touched: int, start: int, size: int) -> dict[str, object]:
    return {
        "region": name,
        "region_kind": kind,
        "start": start,
        "bytes": size,
        "mappings": 1,
        "component": "memory",
        "stream": "all",
        "page_size": 4096,
        "touched_bytes": touched,
    }


@pytest.mark.parametrize(
    ("start", "size", "arenas", "blocks"),
    [
        (64 * MIB * 1000, 64 * MIB, True, False),
        (64 * MIB * 1000 + 4096, MIB, False, True),
        (64 * MIB * 1000 + 4096, 500 * MIB, False, False),
    ],
)
def test_arenas_and_blocks_are_recognised_by_their_regions(
    start: int, size: int, arenas: bool, blocks: bool
) -> None:
    rows = [
        memory_row("heap", "heap", 8 * MIB, 4096, 8 * MIB),
        memory_row("anon", "anonymous", min(size, 8 * MIB), start, size),
    ]
    case = Case("data", (Point(4096, 1, 1.0, 1, 0.0),))
    subject = Subjects(rows, {0: GLIBC}, ["/bin/x"]).of(case)  # type: ignore[arg-type]
    assert (subject.arenas, subject.blocks) == (arenas, blocks)
    assert subject.runtime == GLIBC


@pytest.mark.parametrize(("misses", "file"), [(400, ""), (600, "/etc/passwd")])
def test_data_are_of_a_file_where_it_has_most_misses(misses: int, file: str) -> None:
    """A program of static variables touches more of ld.so.cache than of its heap."""
    cache = {**memory_row("cache", "data", 64 * 1024, 4096, MIB), "path": "/etc/passwd"}
    own = {**memory_row("x data", "data", 8 * MIB, 1 << 30, 8 * MIB), "path": sys.executable}
    tlb = {"component": "tlb.data", "stream": "data"}
    counted = ((cache, misses), (own, 1000 - misses))
    rows = [cache, own, *({**row, **tlb, "misses": of} for row, of in counted)]
    case = Case("data", (Point(4096, 1, 1.0, 1, 0.0),))
    assert Subjects(rows, {0: GLIBC}, ["/bin/x"]).of(case).file == file  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["stack", "thread-stack"])
@pytest.mark.parametrize(
    ("kernel", "misses", "is_note"),
    [((6, 7), 600, True), ((6, 7), 400, False), ((6, 6), 600, None)],
)
def test_data_that_miss_in_stacks_get_no_settings(
    tmp_path: Path, kind: str, kernel: tuple[int, ...], misses: int, is_note: bool | None
) -> None:
    """Linux gives a growing stack no huge pages, and mappings with MAP_STACK none since 6.7."""
    if is_note is None:
        is_note = kind == "stack"
    heap = memory_row("heap", "heap", 64 * MIB, 4096, 64 * MIB)
    stack = {**heap, "region": "its stack", "region_kind": kind}
    tlb = {"component": "tlb.data", "stream": "data"}
    counted = ((heap, 1000 - misses), (stack, misses))
    rows = [heap, *({**row, **tlb, "misses": of} for row, of in counted)]
    case = Case("data", (Point(4096, 1, 1.0, 1, 0.0),))
    subject = Subjects(rows, {0: GLIBC}, ["/bin/x"]).of(case)  # type: ignore[arg-type]
    found = replace(host(tmp_path), kernel=kernel)
    whole = data_advice(MISS_UNTIL_2M)
    (action, *others) = actions_for(whole, found, subject=subject)
    assert (action.kind == "note" and not others) == is_note
    assert ("move large arrays from the stack to the heap" in action.text) == is_note
    own = replace(whole, case=replace(whole.case, region="its stack", region_kind="thread-stack"))
    is_alone = [one.kind for one in actions_for(own, found, subject=subject)] == ["note"]
    assert is_alone == (kernel >= (6, 7))


@pytest.mark.parametrize(
    ("misses", "static", "names"),
    [
        (900, "most", ["preload 2MiB", "madvise"]),
        (200, "much", ["glibc-thp 2MiB", "preload 2MiB", "glibc-hugetlb 2MiB", "madvise"]),
        (50, "little", ["glibc-thp 2MiB", "glibc-hugetlb 2MiB", "madvise"]),
    ],
)
def test_static_variables_that_miss_get_the_library(
    tmp_path: Path, misses: int, static: str, names: list[str]
) -> None:
    """Settings of malloc do not affect static variables."""
    heap = memory_row("heap", "heap", 64 * MIB, 4096, 64 * MIB)
    own = {**heap, "region": "x data", "region_kind": "data", "path": sys.executable}
    cache = {**own, "region": "cache", "path": "/etc/passwd"}
    tlb = {"component": "tlb.data", "stream": "data"}
    counted = ((heap, 1000 - misses), (own, misses), (cache, 5000))
    rows = [heap, *({**row, **tlb, "misses": of} for row, of in counted)]
    case = Case("data", (Point(4096, 1, 1.0, 1, 0.0),))
    subject = Subjects(rows, {0: GLIBC}, ["/bin/x"]).of(case)  # type: ignore[arg-type]
    assert subject.static == static
    found = actions_for(data_advice(MISS_UNTIL_2M), host(tmp_path), subject=subject)
    assert [action.name or action.kind for action in found] == names


def test_static_variables_alone_get_the_library(tmp_path: Path) -> None:
    region = region_advice("anon 8MiB #1")
    case = replace(region.case, region_kind="data", path=sys.executable)
    found = actions_for(replace(region, case=case), host(tmp_path), subject=Subject(GLIBC))
    assert [action.name or action.kind for action in found] == ["preload 2MiB", "madvise"]


def test_the_subject_of_data_is_the_process_whose_data_miss_most() -> None:
    """A script may start a server and a load generator, which executes more instructions."""
    tlb = {"component": "tlb.data", "stream": "data"}
    executed = {"component": "stream", "counter": "instructions"}
    rows = []
    for process, (misses, instructions) in enumerate([(900, 10**6), (100, 10**9)]):
        row = {"process": process, **memory_row("heap", "heap", 64 * MIB, 4096, 64 * MIB)}
        rows += [row, {**row, **tlb, "misses": misses}]
        rows.append({"process": process, **executed, "value": instructions})
    runtimes = {0: GLIBC, 1: JEMALLOC}
    subjects = Subjects(rows, runtimes, ["sh", "server-and-load"])  # type: ignore[arg-type]
    points = (Point(4096, 1, 1.0, 1, 0.0),)
    assert subjects.of(Case("data", points)).runtime == GLIBC
    assert subjects.of(Case("fetch", points)).runtime == JEMALLOC
    assert subjects.of(Case("data", points, processes=(1,))).runtime == JEMALLOC


def test_the_subject_of_data_is_the_process_that_misses_in_shared_memory() -> None:
    """The subject is not the parent, which starts these processes and only waits for them."""
    tlb = {"component": "tlb.data", "stream": "data"}
    rows = []
    for process, kind, misses in ((0, "heap", 20), (1, "heap", 10), (1, "shared", 900)):
        row = {"process": process, **memory_row(kind, kind, 64 * MIB, 4096, 64 * MIB)}
        rows += [row, {**row, **tlb, "misses": misses}]
    subjects = Subjects(rows, {0: GLIBC, 1: JEMALLOC}, ["parent"])  # type: ignore[arg-type]
    assert subjects.of(Case("data", (Point(4096, 1, 1.0, 1, 0.0),))).runtime == JEMALLOC


LIBRARY_FIRST = ["preload 2MiB", "glibc-thp 2MiB", "glibc-hugetlb 2MiB", "madvise"]
MALLOC_ONLY = ["glibc-thp 2MiB", "glibc-hugetlb 2MiB", "madvise"]


@pytest.mark.parametrize(
    ("heap", "anonymous", "start", "of_malloc", "names"),
    [
        (100, 900, 4096, 0, LIBRARY_FIRST),
        (100, 900, 4096, 30 * MIB, LIBRARY_FIRST),
        (100, 900, 4096, 63 * MIB, MALLOC_ONLY),
        (800, 200, 4096, 0, ["glibc-thp 2MiB", "preload 2MiB", "glibc-hugetlb 2MiB", "madvise"]),
        (950, 50, 4096, 0, MALLOC_ONLY),
        (100, 900, 64 * MIB * 1000, 0, MALLOC_ONLY),
    ],
)
def test_mappings_that_may_be_the_programs_own_get_the_library_first(
    tmp_path: Path, heap: int, anonymous: int, start: int, of_malloc: int, names: list[str]
) -> None:
    """Settings of malloc affect a mapping only if malloc made it."""
    regions = [
        memory_row("heap", "heap", 64 * MIB, 4096, 64 * MIB),
        memory_row("anon", "anonymous", 64 * MIB, start, 64 * MIB),
    ]
    tlb = {"component": "tlb.data", "stream": "data"}
    counted = zip(regions, (heap, anonymous), strict=True)
    rows = [{**row, **tlb, "misses": misses} for row, misses in counted]
    if of_malloc:
        counter = {"component": "stream", "counter": "malloc_bytes", "value": of_malloc}
        rows += [regions[1], {"region": "anon", **counter}]

    def found(case: Case, runtime: Runtime) -> list[Action]:
        subject = Subjects(rows, {0: runtime}, ["/bin/x"]).of(case)  # type: ignore[arg-type]
        advice = replace(data_advice(MISS_UNTIL_2M), case=case)
        return actions_for(advice, host(tmp_path), subject=subject)

    whole = data_advice(MISS_UNTIL_2M).case
    actions = found(whole, GLIBC)
    assert [action.name or action.kind for action in actions] == names
    limits = ["memory of malloc alone" in a.text for a in actions if a.name.startswith("glibc")]
    assert set(limits) == {"preload 2MiB" in names}
    is_malloc = names == MALLOC_ONLY and heap < 900
    for row in regions:
        case = replace(whole, **{name: row[name] for name in ("region", "region_kind", "start")})
        case = replace(case, bytes=row["bytes"])
        own = row["region"] == "anon" and not is_malloc
        assert found(case, GLIBC)[0].name == ("preload 2MiB" if own else "glibc-thp 2MiB")
    assert "preload 2MiB" not in [action.name for action in found(whole, JEMALLOC)]


def test_a_moved_block_of_malloc_is_recognised() -> None:
    """The block touches more memory than its size at any time, as it moves between addresses."""
    moved = memory_row("anon", "anonymous", 160 * MIB, 4096, 64 * MIB)
    tlb = {**moved, "component": "tlb.data", "stream": "data", "misses": 900}
    whole = data_advice(MISS_UNTIL_2M).case
    for of_malloc, mapped in ((63 * MIB, "little"), (30 * MIB, "most")):
        counter = {**moved, "component": "stream", "counter": "malloc_bytes", "value": of_malloc}
        subjects = Subjects([moved, tlb, counter], {0: GLIBC}, ["/bin/x"])  # type: ignore[list-item]
        assert subjects.of(whole).mapped == mapped


@pytest.mark.parametrize(
    ("region", "first"),
    [("anon 64.0MiB #1", "preload 2MiB"), ("Python arena 64.0MiB #1", "cpython-malloc 2MiB")],
)
@pytest.mark.parametrize("is_whole", [True, False])
def test_malloc_in_place_of_pythons_allocator_reaches_pythons_arenas_alone(
    tmp_path: Path, region: str, first: str, is_whole: bool
) -> None:
    """The option does not affect memory that a library such as DuckDB maps by itself."""
    row = memory_row(region, "anonymous", 64 * MIB, 4096, 64 * MIB)
    rows = [row, {**row, "component": "tlb.data", "stream": "data", "misses": 900}]
    python = replace(GLIBC, kind="cpython")
    advice = data_advice(MISS_UNTIL_2M)
    if not is_whole:
        of_region = {name: row[name] for name in ("region", "region_kind", "start", "bytes")}
        advice = replace(advice, case=replace(advice.case, **of_region))
    subject = Subjects(rows, {0: python}, ["/bin/x"]).of(advice.case)
    found = actions_for(advice, host(tmp_path), subject=subject)
    assert found[0].name == first


def test_memory_that_is_mostly_shared_gets_the_setting_of_shared_memory(tmp_path: Path) -> None:
    found = replace(host(tmp_path), shared_thp="never")
    shared = {"/sys/kernel/mm/transparent_hugepage/shmem_enabled": "never"}
    found = replace(found, settings={**found.settings, **shared})
    for own, name in ((8, "shared-for-all 2MiB"), (80, "glibc-thp 2MiB")):
        rows = [
            memory_row("shared", "shared", 64 * MIB, 1 << 30, 64 * MIB),
            memory_row("heap", "heap", own * MIB, 4096, own * MIB),
        ]
        case = Case("data", (Point(4096, 1, 1.0, 1, 0.0),))
        subject = Subjects(rows, {0: GLIBC}, ["/bin/x"]).of(case)  # type: ignore[arg-type]
        assert subject.shared == is_mostly_shared(rows) == (own < 64)  # type: ignore[arg-type]
        first = actions_for(data_advice(MISS_UNTIL_2M), found, subject=subject)[0]
        assert first.name == name
        names = [one.name for one in candidate_actions(GLIBC, found, shared=subject.shared)]
        assert ("shared-for-all 2MiB" in names) == subject.shared


def test_memory_mostly_of_files_is_named_by_the_largest_file() -> None:
    heap = memory_row("heap", "heap", 8 * MIB, 4096, 8 * MIB)
    rows = [
        {**memory_row(path, "data", touched * MIB, 1 << 30, touched * MIB), "path": path}
        for path, touched in (("/a", 5), ("/b", 6), (sys.executable, 50), ("/memfd:x", 9))
    ]
    case = Case("data", (Point(4096, 1, 1.0, 1, 0.0),))
    for own, file in (([heap], "/b"), ([heap, {**heap, "touched_bytes": 12 * MIB}], "")):
        subject = Subjects([*own, *rows], {0: GLIBC}, ["/bin/x"]).of(case)  # type: ignore[arg-type]
        assert (subject.file, subject.shared) == (file, len(own) == 1)


@pytest.mark.parametrize(
    ("threads", "arenas"), [([1], False), ([2], True), ([2, 1, 1], False), ([3, 1, 2], True)]
)
def test_a_program_of_one_thread_has_no_arenas_of_threads(threads: list[int], arenas: bool) -> None:
    """With several processes, the first number is the sum over all."""
    rows: list[dict[str, object]] = [
        {"component": "stream", "counter": "threads", "value": value}
        | ({"process": at - 1} if at else {})
        for at, value in enumerate(threads)
    ]
    rows.append(memory_row("anon 128.0MiB #1", "anonymous", 8 * MIB, 4096, 128 * MIB))
    case = Case("data", (Point(4096, 1, 1.0, 1, 0.0),))
    subject = Subjects(rows, {0: GLIBC}, ["/bin/x"]).of(case)  # type: ignore[arg-type]
    assert subject.arenas == arenas


@pytest.mark.parametrize(("asked", "refuses"), [(64, True), (30, False), (0, False)])
def test_memory_with_forbidden_huge_pages_gets_no_action(
    tmp_path: Path, asked: int, refuses: bool
) -> None:
    row = memory_row("anon", "anonymous", 64 * MIB, 4096, 64 * MIB)
    counted = {"component": "stream", "counter": "asked_small_bytes", "value": asked * MIB}
    tlb = {"component": "tlb.data", "stream": "data", "misses": 1000}
    place = {name: row[name] for name in ("region", "region_kind", "start", "bytes")}
    rows = [row, {**row, **tlb}, {**place, **counted}]
    whole = data_advice(MISS_UNTIL_2M)
    for case in (whole.case, replace(whole.case, **place)):
        subject = Subjects(rows, {0: GLIBC}, ["/bin/x"]).of(case)  # type: ignore[arg-type]
        assert subject.refuses == refuses
        advice = replace(whole, case=case)
        actions = actions_for(advice, host(tmp_path), subject=subject)
        assert ([action.kind for action in actions] == ["note"]) == refuses
        assert ("MADV_NOHUGEPAGE" in actions[0].text) == refuses


def test_a_server_that_refuses_huge_pages_can_have_a_pool(tmp_path: Path) -> None:
    server = Runtime("/usr/sbin/mariadbd", "mariadb", allocator="glibc")
    subject = Subject(server, ("prog",), refuses=True, pool_pages=10)
    actions = actions_for(data_advice(MISS_UNTIL_2M), host(tmp_path), subject=subject)
    assert [action.name for action in actions] == ["", "mariadb-large-pages 2MiB"]


def test_blocks_of_threads_need_one_arena_too() -> None:
    """Blocks that malloc no longer maps one by one are in arenas of threads, for which it does not
    call madvise.
    """
    rows = [
        memory_row("anon (small)", "anonymous", 30 * MIB, 4096, MIB),
        memory_row("anon 128.0MiB #1", "anonymous", 8192, 64 * MIB * 1000, 64 * MIB),
    ]
    case = Case("data", (Point(4096, 1, 1.0, 1, 0.0),))
    subject = Subjects(rows, {0: GLIBC}, ["/bin/x"]).of(case)  # type: ignore[arg-type]
    assert (subject.arenas, subject.blocks) == (True, True)


@pytest.mark.parametrize(
    ("kernel", "version", "flags", "setting"),
    [
        ((6, 17), 260, 0, "MemoryTHP=disable"),
        ((6, 18), 260, 2, "MemoryTHP=madvise"),
        ((6, 18), 252, 2, ""),
    ],
)
def test_unwanted_huge_pages_are_disabled_by_means_of_the_kernel_and_systemd(
    tmp_path: Path, kernel: tuple[int, ...], version: int, flags: int, setting: str
) -> None:
    library = tmp_path / f"usr/lib/systemd/libsystemd-shared-{version}.so"
    library.parent.mkdir(parents=True)
    library.write_text("")
    assert systemd_version(tmp_path) == version
    prefix, text = keep_small_prefix(replace(host(tmp_path), kernel=kernel), tmp_path)
    assert f"prctl(41,1,{flags},0,0)" in prefix[-1]
    assert ("MemoryTHP" in text) == bool(setting)
    assert setting in text


def test_this_kernel_knows_the_flags_of_prctl() -> None:
    prefix, _ = keep_small_prefix(read_huge_pages())
    query = [sys.executable, "-c", "import ctypes; print(ctypes.CDLL(None).prctl(42, 0, 0, 0, 0))"]
    done = subprocess.run([*prefix, *query], capture_output=True, text=True, check=True)
    assert done.stdout.strip() in ("1", "3")  # 3: except in memory with MADV_HUGEPAGE


# --- trials ---------------------------------------------------------------------------------

WORKS = Trial(asked=2 * MIB, unasked=4 * KIB, collapses=True, disabled=False)


def tried(tmp_path: Path, trial: Trial | None, **own: str) -> list[tuple[str, str, str]]:
    actions = actions_for(
        data_advice(MISS_UNTIL_2M),
        host(tmp_path, **own),
        subject=Subject(JEMALLOC),
        try_pages=lambda: trial,
    )
    return [(action.kind, action.text, action.tried) for action in actions]


def test_a_successful_trial_is_reported(tmp_path: Path) -> None:
    kind, _, report = tried(tmp_path, WORKS)[0]
    assert kind == "malloc"
    assert report == "Tried: this kernel gives 2 MiB pages under its settings of now."


def test_a_failed_trial_replaces_the_action_by_a_note(tmp_path: Path) -> None:
    kind, text, _ = tried(tmp_path, replace(WORKS, asked=4 * KIB))[0]
    assert kind == "note"
    assert "a trial got 4 KiB where 2 MiB was expected" in text
    kind, text, _ = tried(tmp_path, replace(WORKS, disabled=True))[0]
    assert kind == "note"
    assert "PR_SET_THP_DISABLE" in text


def test_an_action_that_needs_settings_is_not_tried(tmp_path: Path) -> None:
    reports = {kind: report for kind, _, report in tried(tmp_path, WORKS, k2048="never")}
    assert reports["malloc"].startswith("Not tried")
    assert reports["apply"].startswith("Tried: MADV_COLLAPSE")


def test_a_trial_shows_what_this_kernel_gives() -> None:
    """A trial shows the largest enabled size, or 4 KiB if memory is fragmented; a process that
    forbids huge pages has none.
    """
    found = read_huge_pages()
    trial = try_pages()
    if found.thp is None:
        pytest.skip("this kernel has no transparent huge pages")
    assert trial is not None
    on = [size for size, word in found.thp_sizes.items() if word in ("always", "madvise")]
    assert trial.asked in (4 * KIB, max(on, default=4 * KIB))
    always = [size for size, word in found.thp_sizes.items() if word == "always"]
    assert trial.unasked in (4 * KIB, max(always, default=4 * KIB))
    code = (
        "import ctypes; assert ctypes.CDLL(None).prctl(41, 1, 0, 0, 0) == 0\n"
        "from octavo.actions.trial import try_pages; print(try_pages())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "asked=4096, unasked=4096, collapses=False" in done.stdout
    assert "disabled=True" in done.stdout


@pytest.mark.parametrize(
    ("options", "pages"),
    [
        # The heap, 1/16 of the heap, a code cache of 240 MiB, and 8 pages.
        (["-Xmx512m"], 256 + 16 + 120 + 8),
        (["-Xmx1g", "-XX:MaxHeapSize=64m", "-XX:ReservedCodeCacheSize=32m"], 32 + 2 + 16 + 8),
    ],
)
def test_the_pool_of_a_jvm_holds_its_heap_and_its_code(
    options: list[str], pages: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS"):
        monkeypatch.delenv(name, raising=False)
    jvm = Runtime("/usr/bin/java", "jvm", allocator="glibc")
    actions = candidate_actions(jvm, host(tmp_path), options)
    found = next(action for action in actions if action.name == "jvm-large-pages 2MiB")
    assert list(found.changes.values()) == [str(pages)]
    assert found.arguments == ("-XX:+UseLargePages",)


MARIADB_HELP = """\
innodb-buffer-pool-size-max                                  8796093022208
innodb-buffer-pool-size                                      {pool}
innodb-log-buffer-size                                       16777216
key-buffer-size                                              8388608
aria-pagecache-buffer-size                                   {aria}
large-pages                                                  FALSE
"""


@pytest.mark.parametrize(
    ("pool", "aria", "touched", "pages"),
    [
        # The caches, each in whole pages, and two log buffers of 16 MiB.
        (512 * MIB, 3 * MIB, 9 * MIB, 256 + 2 + 4 + 2 * 8),
        # The server does not print its sizes: the memory touched in the run.
        ("", "", 9 * MIB, 5),
    ],
)
def test_the_pool_of_mariadb_holds_its_caches(
    tmp_path: Path, pool: int, aria: int, touched: int, pages: int
) -> None:
    server = tmp_path / "mariadbd"
    text = MARIADB_HELP.format(pool=pool, aria=aria)
    server.write_text(
        f'#!/bin/sh\n[ "$*" = "--port=1 --datadir=/dev/null --verbose --help" ] && echo "{text}"\n'
    )
    server.chmod(0o755)
    runtime = Runtime(str(server), "mariadb", allocator="glibc")
    actions = candidate_actions(runtime, host(tmp_path), ["--port=1"], touched_bytes=touched)
    found = next(action for action in actions if action.name == "mariadb-large-pages 2MiB")
    assert list(found.changes.values()) == [str(pages)]


def test_the_pool_of_malloc_is_as_large_as_the_memory_of_a_run(tmp_path: Path) -> None:
    name = "glibc-hugetlb 2MiB"
    assert name not in {action.name for action in candidate_actions(GLIBC, host(tmp_path))}
    actions = candidate_actions(GLIBC, host(tmp_path), touched_bytes=9 * MIB)
    found = next(action for action in actions if action.name == name)
    assert list(found.changes.values()) == ["5"]
    assert found.environment == {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=2"}


def test_the_pool_for_a_region_holds_all_memory_of_malloc(tmp_path: Path) -> None:
    """The switch reaches the heap and all blocks, so these take pages of the pool, too."""
    block = memory_row("anon", "anonymous", 8 * MIB, 4096, 8 * MIB)
    heap = memory_row("heap", "heap", 6 * MIB, 1 << 30, 6 * MIB)
    rows = [one | {"page_size": size} for one in (block, heap) for size in (4096, 2 * MIB)]
    points = (Point(4096, 1, 1.0, 8 * MIB, 0.0), Point(2 * MIB, 1, 1.0, 8 * MIB, 0.0))
    case = Case("data", points, region="anon", region_kind="anonymous", start=4096, bytes=8 * MIB)
    workers = [row | {"process": process} for row in rows for process in (0, 1)]
    several = replace(
        case,
        program="x",
        processes=(0, 1),
        points=(points[0], replace(points[1], touched_bytes=16 * MIB)),
    )
    for found_rows, about, pages in ((rows, case, 4 + 3 + 1), (workers, several, 2 * (4 + 3 + 1))):
        subject = Subjects(found_rows, {0: GLIBC, 1: GLIBC}, ["/bin/x"]).of(about)
        advice = replace(data_advice(MISS_UNTIL_2M), case=about)
        actions = actions_for(advice, host(tmp_path), subject=subject)
        found = next(action for action in actions if action.kind == "hugetlbfs")
        assert list(found.changes.values()) == [str(pages)]


def test_the_pool_of_malloc_holds_its_blocks_as_a_whole(tmp_path: Path) -> None:
    """hugetlbfs reserves whole mappings, and the heap needs one more page."""
    block = memory_row("anon", "anonymous", 8 * MIB, 4096, 256 * MIB + 4096)
    counter = {**block, "component": "stream", "counter": "malloc_bytes", "value": block["bytes"]}
    rows = [block, {**block, "page_size": 2 * MIB}, counter]
    whole = Case("data", (Point(4096, 1, 1.0, 8 * MIB, 0.0), Point(2 * MIB, 1, 1.0, 8 * MIB, 0.0)))
    one = replace(whole, region="anon", region_kind="anonymous", start=4096, bytes=block["bytes"])
    for case in (whole, one):
        subject = Subjects(rows, {0: GLIBC}, ["/bin/x"]).of(case)
        advice = replace(data_advice(MISS_UNTIL_2M), case=case)
        actions = actions_for(advice, host(tmp_path), subject=subject)
        found = next(action for action in actions if action.kind == "hugetlbfs")
        assert list(found.changes.values()) == ["130"]
        without = replace(host(tmp_path), thp_sizes={})
        actions = actions_for(advice, without, subject=subject)
        found = next(action for action in actions if action.kind == "hugetlbfs")
        assert list(found.changes.values()) == ["130"]
