"""The decisions of `octavo apply`, with fake processes."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from called import invoke as octavo
from octavo.analysis.stored_result import other_program, programs_of_run
from octavo.applying.budget import Budget
from octavo.applying.collapse import ENDED, FORBIDDEN, FORKED, MISPLACED, Work, perform, plan
from octavo.applying.drop_in import drop_in
from octavo.applying.launch import Launch, prepare
from octavo.applying.mappings import Kind, Mapping, parse_mappings
from octavo.applying.preload import PreloadSettings, elf_of, is_static
from octavo.applying.running import ProcessReport, obstacle
from octavo.applying.selection import ALL_LARGE, Rule, Selection, read_selection, selection_of
from octavo.applying.unit_files import Unit, read_unit
from octavo.applying.view import headline, ranges_left_alone, regions_grid, remarks
from octavo.base.errors import CannotRun, UsageError
from octavo.base.huge_pages import read_huge_pages
from octavo.runtimes.launchers import added_to
from verify_tree import THP, make_tree

HUGE = 2 << 20
BASE = 4096
MIB = 1 << 20

SMAPS = """\
00400000-00500000 r-xp 00000000 fe:00 1234                               /usr/bin/a name
Rss:                 100 kB
VmFlags: rd ex mr mw me
01000000-01a00000 rw-p 00000000 00:00 0                                  [heap]
Rss:               10240 kB
Pss:                5120 kB
AnonHugePages:      4096 kB
VmFlags: rd wr mr mw me ac hg
7f0000000000-7f0000001000 ---p 00000000 00:00 0
VmFlags: mr mw me
7f0000001000-7f0000801000 rw-p 00000000 00:00 0
VmFlags: rd wr mr mw me ac nh
7f0001000000-7f0002000000 rw-p 00000000 00:00 0
7f0003000000-7f0004000000 rw-s 00001000 00:01 77                         /memfd:pool (deleted)
ShmemPmdMapped:     2048 kB
7f0005000000-7f0005001000 r--p 00000000 00:00 0                          [vvar]
7ffc00000000-7ffc00021000 rw-p 00000000 00:00 0                          [stack]
"""


def test_mappings_are_classified() -> None:
    mappings = parse_mappings(SMAPS.encode())
    kinds = ["text", "heap", "other", "thread-stack", "anonymous", "shared", "other", "stack"]
    assert [mapping.kind for mapping in mappings] == kinds
    heap = mappings[1]
    assert (heap.resident_bytes, heap.huge) == (10 * MIB, 4 * MIB)
    assert "hg" in heap.flags
    assert mappings[0].name == "/usr/bin/a name"
    assert (mappings[5].huge, mappings[5].offset) == (2 * MIB, BASE)
    assert not mappings[5].is_aligned
    assert [*heap.ranges()] == [0x1000000 + HUGE * number for number in range(5)]
    assert [*mappings[0].ranges()] == []


def mapping(start: int, size: int, kind: Any = "anonymous", **more: Any) -> Mapping:
    given = {"access": "rw-p", "resident_bytes": size, **more}
    return Mapping("", start, start + size, kind=kind, **given)


def advice(kind: str, size: int, page: int, usable: int | None = None) -> dict[str, Any]:
    return {
        "scope": "region",
        "stream": "data",
        "region_kind": kind,
        "bytes": size,
        "page_size": page,
        "usable_page_size": usable or page,
    }


def program_advice(page: int) -> dict[str, Any]:
    return {"scope": "program", "stream": "data", "page_size": page, "usable_page_size": page}


def test_a_region_stands_for_mappings_of_its_kind_and_about_its_size() -> None:
    selection = selection_of(
        [
            program_advice(BASE),
            advice("heap", MIB, HUGE),
            advice("anonymous", 4 * MIB, BASE),
            advice("anonymous", 64 * MIB, HUGE),
            advice("anonymous", 256 * MIB, HUGE),
            {**advice("text", 8 * MIB, HUGE), "stream": "fetch"},
        ],
        "result",
    )
    assert selection.text() == f"heap,!anonymous=0-{16 * MIB},anonymous={16 * MIB + 1}-,!shared"
    assert selection.wants("heap", 10**12)
    assert not selection.wants("anonymous", 16 * MIB)
    assert selection.wants("anonymous", 17 * MIB)
    assert not selection.wants("text", 8 * MIB)
    assert not selection.is_whole


def test_the_whole_program_decides_on_kinds_without_advice() -> None:
    for page, text in ((HUGE, "heap,anonymous,!shared"), (BASE, "!heap,!anonymous,!shared")):
        selection = selection_of([program_advice(page)], "result")
        assert selection.text() == text
        assert selection.is_empty == (page == BASE)
        assert selection.is_whole == (page == HUGE)


def test_regions_that_gain_too_little_alone_belong_to_the_program() -> None:
    small = {**advice("anonymous", 4 * MIB, BASE), "reason": "no-gain"}
    sparse = {**advice("anonymous", 64 * MIB, BASE), "reason": "memory"}
    shared = {**advice("shared", 4 * MIB, BASE), "reason": "no-gain"}
    selection = selection_of([program_advice(HUGE), small, sparse, shared], "result")
    assert selection.text() == f"heap,anonymous=0-{16 * MIB},!anonymous={16 * MIB + 1}-,!shared"
    assert selection_of([program_advice(BASE), small], "result").is_empty


def test_a_size_that_the_processor_lacks_counts_as_the_one_to_use_instead() -> None:
    wanted = [advice("heap", MIB, 64 << 10, HUGE), advice("shared", MIB, HUGE, BASE)]
    assert selection_of(wanted, "result").text() == "heap,!anonymous,!shared"


def test_code_for_huge_pages_is_that_of_advised_text_regions() -> None:
    code = {"scope": "program", "stream": "fetch"}
    texts = [
        {**advice("text", 8 * MIB, HUGE), "stream": "fetch", "path": "/usr/bin/huge"},
        {**advice("text", 8 * MIB, BASE), "stream": "fetch", "path": "/usr/bin/small"},
    ]
    for size, files in ((BASE, ("/usr/bin/huge",)), (HUGE, ("/usr/bin/huge", "/usr/bin/small"))):
        whole = {**code, "page_size": size, "usable_page_size": size}
        selection = selection_of([program_advice(BASE), whole, *texts], "result")
        assert selection.texts == files
        assert selection.is_empty


@pytest.mark.parametrize(
    ("values", "by", "message"),
    [
        (
            {},
            "nothing",
            f"as root, for all programs: echo never > {THP}/hugepages-2048kB/enabled; "
            f"echo madvise > {THP}/hugepages-64kB/enabled",
        ),
        ({"64kB": "madvise", "2048kB": "never"}, "runtime", "glibc's malloc asks for large pages"),
        ({"64kB": "always", "2048kB": "never"}, "nothing", "64 KiB pages, which every program"),
        ({"64kB": None}, "nothing", "64 KiB pages, which this kernel does not have"),
    ],
)
def test_pages_below_2_mib_are_those_of_the_runtime_where_settings_give_them(
    values: dict[str, str | None],
    by: str,
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tree = make_tree(tmp_path)
    for size, value in values.items():
        file = tree / f"{THP}/hugepages-{size}/enabled".lstrip("/")
        file.unlink()
        if value is None:
            file.parent.rmdir()
        else:
            file.write_text(f"always inherit madvise never [{value}]\n".replace(f" {value} ", " "))
    host = read_huge_pages(tree, kernel="6.18.0", libc="glibc 2.36")
    monkeypatch.setattr("octavo.applying.launch.read_huge_pages", lambda: host)
    monkeypatch.setattr("octavo.actions.model._is_root_without_sudo", lambda: True)
    settings = PreloadSettings(selection_of([program_advice(64 << 10)], "result"))
    launch = prepare(["sort", "-n"], settings)
    assert launch.by == by
    assert message in launch.text
    assert launch.command == ("sort", "-n")
    tunables = launch.variables.get("GLIBC_TUNABLES", "")
    assert ("glibc.malloc.hugetlb=1" in tunables) == (by == "runtime")


@pytest.mark.parametrize(
    ("kind", "setting", "warns"),
    [("shared", "never", True), ("shared", "advise", False), ("heap", "never", False)],
)
def test_a_disabled_setting_of_shared_memory_is_reported(
    kind: Kind, setting: str, warns: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = replace(read_huge_pages(), shared_thp=setting)
    monkeypatch.setattr("octavo.applying.launch.read_huge_pages", lambda: host)
    settings = PreloadSettings(Selection((Rule(kind),), "as `r` advises"))
    text = prepare(["sort"], settings, "preload").text
    assert text.endswith("shmem_enabled of this size is never" if warns else "as `r` advises")


def test_other_files_are_refused_as_results(tmp_path: Path) -> None:
    assert read_selection(None) is ALL_LARGE
    file = tmp_path / "result.json"
    for text, why in (("{", "is not JSON"), ('{"schema": "x"}', "is not a result of `octavo run`")):
        file.write_text(text)
        with pytest.raises(CannotRun, match=why):
            read_selection(str(tmp_path))
    with pytest.raises(CannotRun, match="cannot read"):
        read_selection(str(tmp_path / "nothing"))
    # A directory of `octavo sim` or `curves`.
    file.rename(tmp_path / "manifest.json")
    with pytest.raises(CannotRun, match=f"`{tmp_path}` is not a result of `octavo run`"):
        read_selection(str(tmp_path))


@pytest.mark.parametrize(
    ("run", "command", "is_other"),
    [
        ({"program": "/usr/bin/sort"}, ["true"], True),
        ({"program": "/usr/bin/../bin/sort"}, ["sort"], False),
        ({"program": "other"}, ["./program"], True),
        # The program of the result is relative to the directory of the run.
        ({"program": "program"}, ["./elsewhere/../program"], False),
        (
            {"program": "/usr/bin/taskset", "processes": [{"program": "program"}]},
            ["program"],
            False,
        ),
        ({"program": "program"}, ["nice", "./program"], False),
        ({"program": None, "processes": []}, ["true"], False),
        (None, ["true"], False),
    ],
)
def test_a_result_of_another_program_is_reported(
    run: dict[str, Any] | None,
    command: list[str],
    is_other: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    program = tmp_path / "traced/program"
    (program.parent / "elsewhere").mkdir(parents=True)
    shutil.copy("/usr/bin/true", program)
    document: dict[str, Any] = {"schema": "octavo/run/1", "advice": [program_advice(HUGE)]}
    if run is not None:
        document["run"] = {"directory": str(program.parent), **run}
    (tmp_path / "result.json").write_text(json.dumps(document))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    words = [word.replace("./", "../traced/", 1) for word in command]
    if words[-1] == "program":
        monkeypatch.setenv("PATH", str(program.parent), prepend=os.pathsep)
    done = octavo("apply", "--dry-run", "--from", "../result.json", "--", *words)
    assert done.exit_code == 0
    shown = " ".join(done.output.split())
    assert ("The result of --from is of another program, `/" in shown) == is_other


def test_a_result_of_another_program_is_named_as_it_was_started(tmp_path: Path) -> None:
    program = tmp_path / "server"
    program.symlink_to("/usr/bin/sort")
    named = other_program(programs_of_run({"run": {"program": str(program)}}), Path("/bin/true"))
    assert named == f"The result of --from is of another program, `{program}`"
    assert other_program([program], Path("/usr/bin/sort")) == ""


Pages = dict[int, tuple[int, int] | None]


class FakeProcess:
    """A process. Each of its 2 MiB ranges has a number of present pages and of exclusive pages, or
    is a huge page (None).
    """

    def __init__(self, pages: Pages, errors: dict[int, int] | None = None) -> None:
        self.pages = pages
        self.errors = errors or {}
        self.calls = 0
        self.collapsed: list[int] = []
        self.has_ended = False

    def find_used(self, start: int, end: int) -> tuple[int, bool] | None:
        found = min((at for at in self.pages if start <= at < end), default=None)
        return None if found is None else (found + BASE, self.pages[found] is None)

    def pages_in_use(self, address: int) -> tuple[int, int]:
        return self.pages[address] or (512, 512)

    def collapse(self, address: int, count: int = 1) -> int:
        self.calls += 1
        for number in range(count):
            at = address + number * HUGE
            if at in self.errors:
                return self.errors[at]
            if at not in self.collapsed:
                self.collapsed.append(at)
        return 0


def work_on(process: FakeProcess, *mappings: Mapping, fill: float = 0.5) -> list[Work]:
    shared_too = Selection((*ALL_LARGE.rules, Rule("shared")), "all")
    return plan(process, mappings, shared_too, fill)  # type: ignore[arg-type]


def full(*numbers: int) -> Pages:
    return {HUGE * number: (512, 512) for number in numbers}


def test_only_ranges_in_use_by_this_process_alone_are_planned() -> None:
    process = FakeProcess(
        {
            **full(1),
            HUGE * 2: None,
            HUGE * 4: (255, 255),
            HUGE * 5: (512, 255),
            HUGE * 6: (256, 256),
        }
    )
    (work,) = work_on(process, mapping(HUGE - BASE, 8 * HUGE))
    assert work.todo == [HUGE, HUGE * 6]
    assert work.growth == MIB
    assert sorted(work.left_alone.values()) == [1, 1]
    (work,) = work_on(process, mapping(HUGE, 8 * HUGE, "shared"))
    assert work.todo == [HUGE, HUGE * 5, HUGE * 6]


def test_ranges_where_the_program_forbids_huge_pages_are_left_alone() -> None:
    (work,) = work_on(FakeProcess(full(1)), mapping(HUGE, HUGE, flags=frozenset({"nh"})))
    assert (work.todo, sum(work.left_alone.values())) == ([], 1)
    (work,) = work_on(FakeProcess(full(1)), mapping(HUGE, HUGE, flags=frozenset({"ht"})))
    assert (work.todo, sum(work.left_alone.values())) == ([], 0)
    assert work_on(FakeProcess(full(1)), mapping(HUGE, HUGE, "stack")) == []


def test_shared_memory_needs_the_alignment_of_its_file() -> None:
    for offset, left_alone in ((0, 0), (HUGE, 0), (BASE, 1)):
        (work,) = work_on(FakeProcess(full(1)), mapping(HUGE, HUGE, "shared", offset=offset))
        assert sum(work.left_alone.values()) == left_alone
    (work,) = work_on(FakeProcess(full(1)), mapping(HUGE, HUGE, offset=BASE))
    assert not work.left_alone


def test_the_reasons_of_several_processes_are_added_up() -> None:
    works = work_on(FakeProcess(full(1)), mapping(HUGE, HUGE, "shared", offset=BASE))
    (sentence,) = ranges_left_alone([ProcessReport(number, "postgres", works) for number in (7, 8)])
    assert sentence.startswith("Left as they are: 2 ranges of 2 MiB; the mapping begins elsewhere")


def test_a_run_fails_where_no_page_could_be_made() -> None:
    def reason(pages: Pages, **more: Any) -> str | None:
        process = FakeProcess(pages, more.pop("errors", {}))
        works = work_on(process, mapping(HUGE, 3 * HUGE, **more))
        run(process, works)
        return obstacle([ProcessReport(7, "prog", works)])

    sparse: Pages = {HUGE: (10, 10)}
    misplaced = {"kind": "shared", "offset": BASE}
    assert reason(full(1, 2)) is reason(sparse) is reason({}) is None
    assert reason(full(1, 2), **misplaced) == MISPLACED
    # Less than --min-fill is in use, as in the stack of a thread.
    assert reason(sparse, **misplaced) is reason(sparse, flags=frozenset({"nh"})) is None
    # The other ranges already have huge pages.
    assert reason(full(1), huge_bytes={"anonymous": HUGE}, **misplaced) is None
    assert reason(full(1), flags=frozenset({"nh"})) == FORBIDDEN
    assert reason({HUGE: (512, 0)}) == FORKED
    busy = {HUGE: errno.EAGAIN, 2 * HUGE: errno.EAGAIN}
    assert reason(full(1, 2), errors={HUGE: errno.EAGAIN}) is None
    assert "(EAGAIN)" in (reason(full(1, 2), errors=busy) or "")
    assert reason(full(1, 2), errors={HUGE: errno.ESRCH}) == ENDED


def run(process: FakeProcess, works: list[Work], most: int = 100) -> str | None:
    return perform(process, works, lambda made: made < most)  # type: ignore[arg-type]


def test_a_range_that_is_refused_does_not_end_the_work() -> None:
    process = FakeProcess(full(1, 2, 3), {2 * HUGE: errno.EAGAIN})
    works = work_on(process, mapping(HUGE, 3 * HUGE))
    assert run(process, works) is None
    assert (works[0].done, process.collapsed) == (2, [HUGE, 3 * HUGE])
    assert sum(works[0].refused.values()) == 1


def test_the_work_ends_where_every_range_would_be_refused() -> None:
    process = FakeProcess(full(1, 2, 3), {2 * HUGE: errno.ENOMEM, 3 * HUGE: errno.ENOMEM})
    works = work_on(process, mapping(HUGE, 3 * HUGE))
    reason = run(process, works)
    assert reason is not None
    assert "no free 2 MiB" in reason
    assert works[0].refused == {reason: 2}
    report = ProcessReport(7, "prog", works, 0.5, reason)
    assert (report.planned, report.made) == (3, 1)
    assert any("no free 2 MiB" in sentence for sentence in remarks(report, dry_run=False))


def test_the_work_ends_with_the_process_and_on_request() -> None:
    process = FakeProcess(full(1, 2), {HUGE: errno.ESRCH})
    works = work_on(process, mapping(HUGE, 2 * HUGE))
    assert run(process, works) == ENDED
    assert "it ended meanwhile" in headline(ProcessReport(7, "p", works, 0, ENDED), dry_run=False)
    process = FakeProcess(full(1, 3))
    works = work_on(process, mapping(HUGE, 3 * HUGE))
    assert run(process, works, most=1) is None
    assert works[0].todo == [3 * HUGE]


def test_neighbours_are_collapsed_together() -> None:
    process = FakeProcess(full(*range(1, 36), 40))
    works = work_on(process, mapping(HUGE, 50 * HUGE))
    assert run(process, works) is None
    assert (works[0].done, process.calls) == (36, 4)


def test_a_missing_privilege_is_an_error() -> None:
    process = FakeProcess(full(1), {HUGE: errno.EPERM})
    with pytest.raises(CannotRun, match="needs the capability CAP_SYS_NICE"):
        run(process, work_on(process, mapping(HUGE, HUGE)))


def test_a_result_that_advises_nothing_is_named_for_a_process(tmp_path: Path) -> None:
    result = tmp_path / "result.json"
    result.write_text(json.dumps({"schema": "octavo/run/1", "run": {}, "rows": [], "advice": []}))
    done = octavo("apply", "--pid", os.getpid(), "--dry-run", "--from", result)
    assert done.exit_code == 0, done.output
    chosen = f"Chosen: as `{result}` advises: no data is to have huge pages."
    assert chosen in " ".join(done.output.split())


def test_a_process_of_another_user_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreadable(traced: Sequence[Path], *running: Path) -> str:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(running[0]))

    monkeypatch.setattr("octavo.cli.apply.other_program", unreadable)
    pid = os.getpid()
    done = octavo("apply", "--pid", pid)
    assert done.exit_code == 125
    expected = f"the memory of process {pid} may not be read: run octavo as the user of the process"
    assert expected in done.output


def test_many_regions_are_one_row() -> None:
    process = FakeProcess(full(*range(1, 40)))
    works = work_on(process, *(mapping(number * HUGE, HUGE) for number in range(1, 40)))
    grid = regions_grid(ProcessReport(7, "prog", works), dry_run=True)
    assert len(grid.rows) == 9
    assert grid.rows[-1][0] == "31 smaller ones"
    assert grid.rows[-1][4] == "31"


def test_a_budget_is_a_second_and_then_a_share_of_the_time() -> None:
    clocks = {"time": 0.0, "used": 0.0}
    budget = Budget(0.01, lambda: clocks["time"], lambda: clocks["used"])
    clocks["used"] = 0.9
    assert not budget.is_spent()
    clocks["used"] = 1.01
    assert budget.is_spent()
    assert budget.seconds_to_credit() == pytest.approx(3)
    clocks["time"] = 3.0
    assert budget.seconds_to_credit() == pytest.approx(0)
    clocks["time"] = 1e6
    assert not budget.is_spent()
    clocks["used"] += 1.001
    assert budget.is_spent()


def test_messages_name_the_program_that_launchers_start() -> None:
    done = octavo("apply", "--dry-run", "--", "env", "A=1", "nice", "/usr/bin/sort")
    assert done.exit_code == 0
    assert done.stderr.startswith("octavo: sort: ")


def test_options_are_added_to_variables_of_the_environment() -> None:
    present = {"MALLOC_CONF": "narenas:1", "LD_PRELOAD": "/lib/a.so", "PYTHONMALLOC": "debug"}
    new = {"MALLOC_CONF": "thp:always", "PYTHONMALLOC": "malloc", "GLIBC_TUNABLES": "a=1"}
    assert added_to(present, new) == {**new, "MALLOC_CONF": "narenas:1,thp:always"}
    variables = PreloadSettings(ALL_LARGE).environment(Path("/x/ours.so"), present)
    assert variables["LD_PRELOAD"] == "/x/ours.so:/lib/a.so"
    assert variables["OCTAVO_APPLY_REGIONS"] == "heap,anonymous"
    assert "OCTAVO_APPLY_LOG" not in variables


def test_the_program_of_a_script_is_its_interpreter(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("#! /bin/sh -e\nexit 0\n")
    assert elf_of(script) == Path("/bin/sh")
    assert not is_static(Path("/bin/sh"))
    assert not is_static(script)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"#!/no/such/interpreter\n", "wants the interpreter `/no/such/interpreter`"),
        (b"just words\n", "neither an ELF program nor a script"),
        (Path("/bin/true").resolve().read_bytes()[:3000], "truncated: it has 3000 bytes"),
    ],
    ids=["interpreter", "text", "truncated"],
)
@pytest.mark.parametrize("by", ["auto", "preload"])
def test_a_program_that_the_kernel_would_not_execute_is_refused(
    by: str, content: bytes, sentence: str, tmp_path: Path
) -> None:
    program = tmp_path / "program"
    program.write_bytes(content)
    program.chmod(0o755)
    done = octavo("apply", "--by", by, "--", str(program))
    assert done.exit_code == 126
    assert sentence in done.output


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--pid", "1", "--unit", "x"], "give --pid or --unit, not both"),
        (["--pid", "1", "--", "true"], "leave out the program `true`"),
        (["--pid", "abc"], "`abc`: give the number of a process, from 1 to 4194304"),
        (["--pid", "0"], "`0`: give the number of a process"),
        (["--pid", "9" * 5000], ": give the number of a process"),
        (["--watch", "--", "true"], "--watch goes with --pid"),
        (["--pid", "1", "--log", "x"], "--log goes with a program"),
        (["--pid", "1", "--by", "runtime"], "--by goes with a program"),
        (["--min-fill", "0", "--", "true"], "--min-fill `0`: give a percentage from 1% to 100%"),
        (["--budget", "1.5", "--", "true"], "--budget `1.5`: give a percentage"),
        (["--by", "preolad", "--", "true"], "unknown means `preolad`; did you mean `preload`?"),
        ([], "Usage:"),
        (["-q"], "no PROGRAM given"),
    ],
)
def test_contradictory_and_invalid_options_are_refused(words: list[str], sentence: str) -> None:
    done = octavo("apply", *words)
    assert done.exit_code == 2
    assert sentence in done.output
    assert "Traceback" not in done.output


def test_a_log_that_cannot_be_written_is_refused_before_the_start(tmp_path: Path) -> None:
    done = octavo("apply", "--log", str(tmp_path / "none/log"), "--", "true")
    assert done.exit_code == 125
    assert f"cannot write to `{tmp_path}/none/log`: No such file or directory." in done.output


# --- drop-ins of systemd -------------------------------------------------------------------------

LIBRARY = Path("/usr/lib/liboctavo-apply.so")


def make_unit(root: Path, text: str, name: str = "some.service", **drop_ins: str) -> None:
    directory = root / "usr/lib/systemd/system"
    directory.mkdir(parents=True)
    (directory / name).write_text(f"[Unit]\nDescription=ExecStart=/no\n[Service]\n{text}")
    for key, content in drop_ins.items():
        place = root / "etc/systemd/system" / f"{name}.d"
        place.mkdir(parents=True, exist_ok=True)
        (place / f"{key}.conf").write_text(f"[Service]\n{content}")


def lines_of(
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    name: str = "some",
    command: Sequence[str] = (),
    by: str = "preload",
    version: int = 252,
    settings: PreloadSettings | None = None,
) -> list[str]:
    """The lines of a drop-in under [Service]."""
    for module in ("launch", "drop_in"):
        monkeypatch.setattr(f"octavo.applying.{module}.find_library", lambda: LIBRARY)
    chosen = settings or PreloadSettings(ALL_LARGE)
    text = drop_in(name, command, chosen, by=by, result=None, root=root, version=version)
    head, _, rest = text.partition("[Service]\n")
    assert "daemon-reload" in head
    assert all(line.startswith("#") or not line for line in head.splitlines())
    return rest.splitlines()


def test_a_unit_is_read_with_its_drop_ins(tmp_path: Path) -> None:
    make_unit(
        tmp_path,
        'Environment="A=b c" D=e\nExecStart=/no\nExecStart=\nExecStart=@/bin/sh name -c \\\n  x\n',
        name="some@.service",
        later="ExecStart=\nExecStart=-+/bin/sort 'a b'\n; ExecStart=/no\nNoExecPaths=/\n",
    )
    unit = read_unit("some@1.service", tmp_path)
    assert unit is not None
    assert unit.command() == ["/bin/sort", "a b"]
    assert unit.command_with(("-r", "x y")) == "-+/bin/sort -r 'x y' 'a b'"
    assert unit.environment() == {"A": "b c", "D": "e"}
    assert unit.has("NoExecPaths")
    assert not unit.has("SystemCallFilter")
    assert read_unit("other.service", tmp_path) is None
    named = Unit("a.service", {"ExecStart": ["@/bin/sh name -c x"]})
    assert named.command() == ["/bin/sh", "-c", "x"]
    assert named.command_with(("-e",)) == "@/bin/sh name -e -c x"


def test_a_drop_in_preloads_the_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_unit(tmp_path, "ExecStart=/bin/sort\nEnvironment=LD_PRELOAD=/a.so\n")
    lines = lines_of(tmp_path, monkeypatch)
    assert f'Environment="LD_PRELOAD={LIBRARY}:/a.so"' in lines
    assert 'Environment="OCTAVO_APPLY_REGIONS=heap,anonymous"' in lines
    assert not [line for line in lines if line.startswith("Exec")]


@pytest.mark.parametrize("setting", ["SystemCallFilter=@system-service", "NoExecPaths=/"])
def test_a_confined_service_is_changed_from_outside(
    setting: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_unit(tmp_path, f"ExecStart=/bin/sort\n{setting}\n")
    (line,) = lines_of(tmp_path, monkeypatch)
    assert line.startswith("ExecStartPost=+systemd-run --collect --unit=octavo-apply-%N ")
    assert line.endswith(" apply --quiet --pid $MAINPID --watch --children --min-fill=50%%")


def test_a_switch_is_an_option_or_a_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_unit(tmp_path, "ExecStart=/bin/sort --key 1\nEnvironment=MALLOC_CONF=a:1\n")
    launch = Launch(
        Path("/bin/sort"),
        ("/bin/sort", "--huge", "--key", "1"),
        "runtime",
        "it asks",
        {"MALLOC_CONF": "thp:always"},
    )
    monkeypatch.setattr("octavo.applying.drop_in.prepare", lambda *words: launch)
    assert lines_of(tmp_path, monkeypatch, by="auto") == [
        'Environment="MALLOC_CONF=a:1,thp:always"',
        "ExecStart=",
        "ExecStart=/bin/sort --huge --key 1",
    ]


def test_memory_thp_needs_a_systemd_that_supports_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_unit(tmp_path, "ExecStart=/bin/sort\nMemoryTHP=disable\n")
    assert "MemoryTHP=inherit" not in lines_of(tmp_path, monkeypatch, version=259)
    assert "MemoryTHP=inherit" in lines_of(tmp_path, monkeypatch, version=260)
    nothing = PreloadSettings(selection_of([program_advice(BASE)], "result"))
    always = replace(read_huge_pages(), thp_sizes={HUGE: "always"})
    monkeypatch.setattr("octavo.applying.drop_in.read_huge_pages", lambda: always)
    for version, lines in ((259, []), (260, ["MemoryTHP=madvise"])):
        assert lines_of(tmp_path, monkeypatch, version=version, settings=nothing) == lines


def test_a_missing_unit_needs_a_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_unit(tmp_path, "ExecStart=/bin/sort\n")
    with pytest.raises(CannotRun, match=r"did you mean `some.service`\? Name the program"):
        lines_of(tmp_path, monkeypatch, name="sone")
    with pytest.raises(CannotRun, match=r"what `other.service` starts\. Name the program"):
        lines_of(tmp_path, monkeypatch, name="other")
    assert lines_of(tmp_path, monkeypatch, name="sone", command=["sort"])
    for name in ("some.socket", "some service", "../x"):
        with pytest.raises(UsageError, match="name a service"):
            lines_of(tmp_path, monkeypatch, name=name)
