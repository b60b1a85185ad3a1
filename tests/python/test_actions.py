import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from fakes import FLAT, process, region, result
from octavo.actions.for_advice import actions_for, usable_size
from octavo.actions.model import Action
from octavo.actions.table import Subject
from octavo.analysis.advice import Advice, Thresholds, advise, advise_all
from octavo.analysis.rows import rows_of
from octavo.base.huge_pages import HugePages, read_huge_pages
from octavo.hardware.tlb_levels import load_preset
from octavo.runs.result import refusal_warning
from octavo.runtimes.detect import Runtime
from octavo.tracing.valgrind import RefusedPages

KIB = 1024
MIB = 1 << 20
MISS_UNTIL_2M = (10_000_000,) * 9 + (0,)
MISS_UNTIL_64K = (10_000_000,) * 4 + (0,) * 6
SIZE_FILE = "/sys/kernel/mm/transparent_hugepage/hugepages-{}kB/enabled"
STEEP = (0, 0, 0, 0, 0, 0.5, 1, 2, 4, 8)


@pytest.fixture(autouse=True)
def _user_with_sudo(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("octavo.actions.model._is_root_without_sudo", lambda: False)


def machine(
    root: Path,
    *,
    thp: str | None = "always [madvise] never",
    sizes: dict[int, str] | None = None,
    hugetlb: tuple[int, ...] = (),
    vendor: str = "GenuineIntel",
    kernel: str = "6.8.0",
    libc: str = "glibc 2.36",
    config: str | None = None,
) -> HugePages:
    """A fake machine whose files are under `root`."""
    (root / "proc").mkdir(exist_ok=True)
    (root / "proc/cpuinfo").write_text(f"processor : 0\nvendor_id : {vendor}\n")
    directory = root / "sys/kernel/mm/transparent_hugepage"
    if thp is not None:
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "enabled").write_text(f"{thp}\n")
    for kib, setting in (sizes or {}).items():
        (directory / f"hugepages-{kib}kB").mkdir(exist_ok=True)
        (directory / f"hugepages-{kib}kB/enabled").write_text(f"{setting}\n")
    for kib in hugetlb:
        (root / f"sys/kernel/mm/hugepages/hugepages-{kib}kB").mkdir(parents=True, exist_ok=True)
    if config is not None:
        (root / "boot").mkdir()
        (root / f"boot/config-{kernel}").write_text(config)
    return read_huge_pages(root, kernel=kernel, libc=libc)


def data_advice(misses: tuple[int, ...], growth: tuple[float, ...] = FLAT) -> Advice:
    return advices(misses, growth)[1]


def advices(misses: tuple[int, ...], growth: tuple[float, ...] = FLAT) -> list[Advice]:
    lru = load_preset("lru64")
    regions = [
        region("heap", misses=misses, growth=growth),
        region("anon 8MiB #1", "anonymous", misses=misses, growth=growth, start=2),
        region("stack", "stack", misses=misses, growth=growth, start=3),
        region("shared", "shared", misses=misses, growth=growth, start=5),
        region("buffer data", "data", misses=misses, growth=growth, path="/dev/shm/b", start=6),
        region("table data", "data", misses=misses, growth=growth, path="/no/table", start=7),
        region("prog text", "text", stream="fetch", misses=misses, path="/usr/bin/prog", start=4),
    ]
    made = process(
        0,
        code_misses=misses,
        data_misses=misses,
        code_growth=growth,
        data_growth=growth,
        regions=regions,
    )
    return advise_all(rows_of(result(made), lru), lru)


def region_advice(name: str, misses: tuple[int, ...] = MISS_UNTIL_2M) -> Advice:
    return next(item for item in advices(misses) if item.case.region == name)


def kinds(actions: list[Action]) -> list[str]:
    return [item.kind for item in actions]


def commands(actions: list[Action]) -> str:
    return "\n".join(item.command for item in actions)


def test_settings_of_the_machine_are_read(tmp_path: Path) -> None:
    found = machine(
        tmp_path,
        sizes={64: "always inherit [madvise] never", 2048: "always [inherit] madvise never"},
        hugetlb=(2048, 1048576),
        config="CONFIG_READ_ONLY_THP_FOR_FS=y\n",
    )
    assert found.thp == "madvise"
    assert found.thp_sizes == {64 * KIB: "madvise", 2 * MIB: "madvise"}
    assert found.hugetlb_sizes == {2 * MIB, 1 << 30}
    assert found.file_thp is True
    assert found.has_collapse
    assert found.has_malloc_tunable


def test_the_default_size_of_hugetlbfs_is_that_of_the_kernel(tmp_path: Path) -> None:
    assert machine(tmp_path).default_pool_size == 2 * MIB
    (tmp_path / "proc/meminfo").write_text("HugePages_Total:  0\nHugepagesize:    1048576 kB\n")
    assert read_huge_pages(tmp_path).default_pool_size == 1 << 30
    (tmp_path / "proc/meminfo").write_text("Hugepagesize:          0 kB\n")
    assert read_huge_pages(tmp_path).default_pool_size == 2 * MIB


def test_the_line_for_refused_pages_reserves_those_of_the_largest_mapping(tmp_path: Path) -> None:
    refused = RefusedPages("a", 1 << 30, mappings=2, bytes=5 << 30, largest_bytes=3 << 30)
    warning = refusal_warning(refused, machine(tmp_path, hugetlb=(2048, 1048576)))
    assert "asked for 2 mappings (5 GiB in all, at most 3 GiB) in 1 GiB pages" in warning
    assert "the largest needs 3 of them free. `echo 3 " in warning
    assert "hugepages-1048576kB/nr_hugepages" in warning


def test_before_multi_size_thp_there_is_one_size(tmp_path: Path) -> None:
    found = machine(tmp_path, kernel="5.15.0-91-generic", libc="glibc 2.31")
    assert found.thp_sizes == {2 * MIB: "madvise"}
    assert not found.has_collapse
    assert not found.has_malloc_tunable
    assert found.file_thp is None


def test_a_bare_machine(tmp_path: Path) -> None:
    found = machine(tmp_path, thp=None, libc="musl")
    assert found.thp is None
    assert found.thp_sizes == {}
    assert found.glibc is None
    assert kinds(actions_for(data_advice(MISS_UNTIL_2M), found)) == ["note"]


def test_2_mib_for_data_where_programs_may_ask(tmp_path: Path) -> None:
    actions = actions_for(data_advice(MISS_UNTIL_2M), machine(tmp_path))
    assert kinds(actions) == ["malloc", "madvise"]
    assert "GLIBC_TUNABLES=glibc.malloc.hugetlb=1 " in commands(actions)
    assert "MADV_COLLAPSE" in actions[1].text


def test_an_old_glibc_and_kernel_offer_less(tmp_path: Path) -> None:
    found = machine(tmp_path, kernel="5.10.0", libc="glibc 2.31")
    actions = actions_for(data_advice(MISS_UNTIL_2M), found)
    assert kinds(actions) == ["madvise"]
    assert "MADV_COLLAPSE" not in actions[0].text


def test_disabled_huge_pages_are_enabled_first(tmp_path: Path) -> None:
    actions = actions_for(
        data_advice(MISS_UNTIL_2M), machine(tmp_path, thp="always madvise [never]")
    )
    assert kinds(actions) == ["apply", "malloc", "madvise"]
    assert not actions[0].system_wide
    actions = actions[1:]
    assert actions[0].command == (
        "echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled\n"
        "GLIBC_TUNABLES=glibc.malloc.hugetlb=1 PROGRAM ARGUMENTS"
    )
    assert actions[0].undo == "echo never | sudo tee /sys/kernel/mm/transparent_hugepage/enabled"
    assert "transparent_hugepage/enabled is never" in actions[0].text


def test_under_always_malloc_grows_in_steps_that_huge_pages_fit_into(tmp_path: Path) -> None:
    """hugetlb=1 has no effect there, as glibc requests huge pages only where the setting is
    `madvise`.
    """
    actions = actions_for(
        data_advice(MISS_UNTIL_2M), machine(tmp_path, thp="[always] madvise never")
    )
    assert actions[0].command == "GLIBC_TUNABLES=glibc.malloc.top_pad=67108864 PROGRAM ARGUMENTS"
    assert actions[1].command.splitlines() == [
        "echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled",
        "GLIBC_TUNABLES=glibc.malloc.hugetlb=1 PROGRAM ARGUMENTS",
    ]


def test_hugetlbfs_is_advised_without_thp(tmp_path: Path) -> None:
    found = machine(tmp_path, thp=None, hugetlb=(2048,))
    actions = actions_for(data_advice(MISS_UNTIL_2M), found)
    assert kinds(actions) == ["note", "hugetlbfs"]
    assert "echo 8 | sudo tee /sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages" in commands(
        actions
    )
    assert "hugetlb=2" in commands(actions)


def test_a_size_without_tlb_entries_is_replaced_by_the_next_one(tmp_path: Path) -> None:
    actions = actions_for(data_advice(MISS_UNTIL_64K), machine(tmp_path))
    assert "no TLB entries of 64 KiB; the next it has is 2 MiB" in actions[0].text
    assert kinds(actions)[1:] == ["malloc", "madvise"]


def test_a_size_without_tlb_entries_is_refused_if_the_next_takes_too_much_memory(
    tmp_path: Path,
) -> None:
    found = machine(tmp_path, sizes={64: "always inherit madvise [never]"})
    actions = actions_for(data_advice(MISS_UNTIL_64K, STEEP), found)
    assert "800% more memory; on this machine keep 4 KiB" in actions[0].text
    assert kinds(actions) == ["note", "note", "malloc"]
    assert "TLB misses stay" in actions[1].text
    assert "hugepages-64kB/enabled" in actions[2].command


def test_amd_merges_16_kib(tmp_path: Path) -> None:
    found = machine(
        tmp_path,
        vendor="AuthenticAMD",
        sizes={16: "always inherit madvise [never]", 2048: "always [inherit] madvise never"},
    )
    advice = data_advice((10_000_000,) * 2 + (0,) * 8)
    assert advice.page_size == 16 * KIB
    actions = actions_for(advice, found)
    assert kinds(actions) == ["malloc", "madvise"]
    assert actions[0].command.splitlines() == [
        f"echo never | sudo tee {SIZE_FILE.format(2048)}",
        f"echo madvise | sudo tee {SIZE_FILE.format(16)}",
        "GLIBC_TUNABLES=glibc.malloc.hugetlb=1 PROGRAM ARGUMENTS",
    ]
    assert actions[0].undo.splitlines() == [
        f"echo never | sudo tee {SIZE_FILE.format(16)}",
        f"echo inherit | sudo tee {SIZE_FILE.format(2048)}",
    ]


def test_huge_pages_that_would_hurt_are_kept_off(tmp_path: Path) -> None:
    found = machine(tmp_path, thp="[always] madvise never")
    actions = actions_for(data_advice((0,) * 10, STEEP), found)
    assert kinds(actions) == ["prctl"]
    assert "prctl(41,1,0,0,0)" in actions[0].command
    newer = replace(found, kernel=(6, 18))
    assert "prctl(41,1,2,0,0)" in commands(actions_for(data_advice((0,) * 10, STEEP), newer))
    heap = next(item for item in advices((0,) * 10, STEEP) if item.case.region == "heap")
    assert "MADV_NOHUGEPAGE" in commands(actions_for(heap, found))


def test_no_action_is_given_for_unchanged_pages(tmp_path: Path) -> None:
    assert actions_for(data_advice((0,) * 10, STEEP), machine(tmp_path)) == []


def test_regions_are_named_with_their_place(tmp_path: Path) -> None:
    actions = actions_for(region_advice("anon 8MiB #1"), machine(tmp_path))
    assert kinds(actions) == ["malloc", "madvise"]
    assert "anon 8MiB #1, 8 MiB at 0x2 in this run" in actions[1].text
    assert actions_for(region_advice("stack"), machine(tmp_path))[0].kind == "note"


@pytest.mark.parametrize(
    ("config", "message"),
    [(None, "cannot be read"), ("# CONFIG_READ_ONLY_THP_FOR_FS is not set\n", "without CONFIG")],
)
def test_file_text(tmp_path: Path, config: str | None, message: str) -> None:
    actions = actions_for(region_advice("prog text"), machine(tmp_path, config=config))
    ways = ["linker", "note"] if config else ["linker", "note", "madvise"]
    assert kinds(actions) == ways
    assert "max-page-size=0x200000" in actions[0].command
    assert message in actions[1].text


def test_file_text_with_read_only_thp(tmp_path: Path) -> None:
    found = machine(tmp_path, config="CONFIG_READ_ONLY_THP_FOR_FS=y\n")
    assert kinds(actions_for(region_advice("prog text"), found)) == ["linker", "madvise"]


def test_a_size_of_shared_memory_alone_is_not_listed(tmp_path: Path) -> None:
    directory = tmp_path / "sys/kernel/mm/transparent_hugepage/hugepages-8kB"
    directory.mkdir(parents=True)
    (directory / "shmem_enabled").write_text("always inherit [never]\n")
    found = machine(tmp_path, sizes={64: "always inherit madvise [never]"})
    assert found.thp_sizes == {64 * KIB: "never"}


def test_the_command_names_the_program(tmp_path: Path) -> None:
    actions = actions_for(data_advice(MISS_UNTIL_2M), machine(tmp_path), "sort 'my file'")
    assert "GLIBC_TUNABLES=glibc.malloc.hugetlb=1 sort 'my file'" in commands(actions)


@pytest.mark.parametrize(
    ("setting", "lines"),
    [("always inherit madvise [never]", 2), ("always [madvise] never", 1)],
)
def test_only_disabled_settings_are_changed(tmp_path: Path, setting: str, lines: int) -> None:
    found = machine(tmp_path, sizes={64: setting})
    actions = actions_for(data_advice(MISS_UNTIL_64K, STEEP), found)
    assert kinds(actions) == ["note", "note", "malloc"]
    assert len(actions[2].command.splitlines()) == lines
    assert actions[2].system_wide == (lines == 2)
    assert usable_size(data_advice(MISS_UNTIL_64K, STEEP), found) == 4 * KIB


def test_the_replacing_size_is_given_with_its_misses(tmp_path: Path) -> None:
    advice = data_advice(MISS_UNTIL_64K)
    found = machine(tmp_path)
    assert usable_size(advice, found) == 2 * MIB
    assert "2 MiB, with 0 misses per 1000 instructions" in actions_for(advice, found)[0].text


def test_an_unmeasured_size_is_reported_as_such(tmp_path: Path) -> None:
    advice = data_advice(MISS_UNTIL_64K)
    few = replace(advice, case=replace(advice.case, points=advice.case.points[:5]))
    message = actions_for(few, machine(tmp_path))[0].text
    assert "2 MiB, which it has, is not among the sizes measured" in message
    assert "keep 4 KiB" in message


def test_shared_memory_has_settings_of_its_own(tmp_path: Path) -> None:
    directory = tmp_path / "sys/kernel/mm/transparent_hugepage"
    directory.mkdir(parents=True)
    (directory / "shmem_enabled").write_text("always within_size advise [never] deny force\n")
    found = machine(tmp_path)
    anonymous = actions_for(region_advice("shared"), found)
    assert kinds(anonymous) == ["thp", "madvise"]
    assert anonymous[0].command == (
        "echo always | sudo tee /sys/kernel/mm/transparent_hugepage/shmem_enabled\n"
        "PROGRAM ARGUMENTS"
    )
    assert anonymous[1].command == (
        "echo advise | sudo tee /sys/kernel/mm/transparent_hugepage/shmem_enabled\n"
        "madvise(address, 8388608, MADV_HUGEPAGE);"
    )
    file = actions_for(region_advice("buffer data"), found)
    assert kinds(file) == ["mount", "madvise"]
    never = "sudo mount -o remount,huge=never /dev/shm"
    assert [action.record()["undo"] for action in file] == [never, never]
    assert "restoring" not in file[0].record()
    assert file[0].command == "sudo mount -o remount,huge=always /dev/shm\nPROGRAM ARGUMENTS"
    assert file[1].command == (
        "sudo mount -o remount,huge=advise /dev/shm\nmadvise(address, 8388608, MADV_HUGEPAGE);"
    )


@pytest.mark.parametrize(("option", "undo"), [("huge=advise,", "advise"), ("", "never")])
def test_a_mount_option_is_undone_to_the_one_that_was_there(
    tmp_path: Path, option: str, undo: str
) -> None:
    shared_memory(tmp_path, option)
    found = actions_for(region_advice("buffer data"), machine(tmp_path))
    undone = [action.record()["undo"] for action in found]
    assert undone == 2 * [f"sudo mount -o remount,huge={undo} /dev/shm"]


def test_a_mount_option_that_is_there_is_not_advised(tmp_path: Path) -> None:
    shared_memory(tmp_path, "huge=always,")
    (note,) = actions_for(region_advice("buffer data"), machine(tmp_path))
    assert (note.kind, note.command) == ("note", "")
    assert "huge=always" in note.text


def shared_memory(root: Path, option: str) -> None:
    """The settings of shared memory, with an option of the mount of `/dev/shm`."""
    directory = root / "sys/kernel/mm/transparent_hugepage"
    directory.mkdir(parents=True)
    (directory / "shmem_enabled").write_text("always within_size advise [never] deny force\n")
    mounts = root / "proc/self/mounts"
    mounts.parent.mkdir(parents=True)
    mounts.write_text(f"proc /proc proc rw 0 0\ntmpfs /dev/shm tmpfs rw,{option}nosuid 0 0\n")


def test_without_a_setting_shared_memory_has_no_huge_pages(tmp_path: Path) -> None:
    assert kinds(actions_for(region_advice("shared"), machine(tmp_path))) == ["note"]


def test_a_data_file_gets_no_advice_to_link_again(tmp_path: Path) -> None:
    assert "linker" not in kinds(actions_for(region_advice("table data"), machine(tmp_path)))


@pytest.mark.parametrize("path", ["/memfd:x (deleted)", "/SYSV00001234 (deleted)"])
def test_shared_memory_without_a_mount_has_the_setting_of_shared_memory(
    tmp_path: Path, path: str
) -> None:
    directory = tmp_path / "sys/kernel/mm/transparent_hugepage"
    directory.mkdir(parents=True)
    (directory / "shmem_enabled").write_text("always within_size advise [never] deny force\n")
    region = region_advice("table data")
    advice = replace(region, case=replace(region.case, path=path))
    actions = actions_for(advice, machine(tmp_path))
    assert kinds(actions) == ["thp", "madvise"]
    assert "shmem_enabled" in actions[0].command


@pytest.mark.parametrize(
    ("system", "kernel", "message", "asks"),
    [
        (
            "ext4",
            "6.18.1",
            "if the program asks before first use, in shared mappings and in private",
            True,
        ),
        ("ext4", "6.8.0", "no huge pages of data of table: ext4 has large folios since", False),
        ("ext3", "6.18.1", "no huge pages of data of table: ext3 has no large folios", False),
        ("tmpfs", "6.18.1", "mount option is huge=always", False),
        ("hugetlbfs", "6.18.1", "has huge pages already", False),
        (None, "6.18.1", "cannot be read here", False),
    ],
)
def test_advice_on_data_of_files_depends_on_the_file_system(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    system: str | None,
    kernel: str,
    message: str,
    asks: bool,
) -> None:
    monkeypatch.setattr("octavo.actions.for_advice.file_system", lambda path: system)
    found = machine(tmp_path, kernel=kernel)
    whole = data_advice(MISS_UNTIL_2M)
    subject = Subject(Runtime("/bin/x", "native", allocator="glibc"), file="/no/table")
    for advice in (region_advice("table data"), whole):
        actions = actions_for(advice, found, subject=subject)
        assert kinds(actions) == ["note", "madvise"][: 1 + asks]
        assert message in actions[0].text


@pytest.mark.parametrize(
    ("growth", "options"),
    [(0.9, ""), (3.0, " --min-fill 12%"), (500.0, " --min-fill 1%")],
)
def test_sparse_memory_gets_the_fill_that_lets_the_library_act(
    tmp_path: Path, growth: float, options: str
) -> None:
    grown = (0.0,) * 9 + (growth,)
    found = machine(tmp_path, thp="always madvise [never]")
    allowed = Thresholds(max_growth=1000)
    (advice,) = (
        advise(item.case, allowed)
        for item in advices(MISS_UNTIL_2M, grown)
        if item.case.region == "anon 8MiB #1"
    )
    action = actions_for(advice, found, "prog", allowed)[0]
    assert action.command.endswith(f" apply --by preload{options} -- prog")
    static = Runtime("/bin/x", "native", allocator="musl", facts=frozenset({"static"}))
    outside = actions_for(advice, found, "prog", allowed, subject=Subject(static))[0]
    assert outside.command.endswith(f" apply --pid PID{options} --watch")


def test_a_region_without_extent_has_no_address_to_advise(tmp_path: Path) -> None:
    """The region has references outside all mappings, as in a trace without mappings."""
    other = region("other", "other", misses=MISS_UNTIL_2M)
    other["bytes"] = 0
    lru = load_preset("lru64")
    made = process(0, data_misses=MISS_UNTIL_2M, regions=[other])
    (advice,) = (item for item in advise_all(rows_of(result(made), lru), lru) if item.case.region)
    (action,) = (item for item in actions_for(advice, machine(tmp_path)) if item.kind == "madvise")
    assert action.command == "madvise(address, bytes, MADV_HUGEPAGE);"
    assert "Here:" not in action.text


def test_the_line_to_paste_keeps_options_of_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("GLIBC_TUNABLES", "glibc.malloc.check=0")
    action = Action("malloc", "", environment={"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"})
    assert action.for_program("prog").command == (
        "GLIBC_TUNABLES=glibc.malloc.check=0:glibc.malloc.hugetlb=1 prog"
    )


def test_an_argument_with_a_line_end_stays_on_its_line() -> None:
    action = Action("malloc", "", environment={"A": "1"}, arguments=("-x",))
    assert action.for_program(shlex.join(["python", "-c", "a\nb"])).command == (
        r"A=1 python -x -c $'a\nb'"
    )
    assert replace(action, arguments=()).for_program("'b\udcff'").command == r"A=1 $'b\xff'"
