"""Support for large pages on this machine: from sysfs, the kernel's release and glibc.

References: Documentation/admin-guide/mm/transhuge.rst of Linux (the `enabled` files, in 6.8 and
later one for each size), madvise(2), and the glibc manual, "Memory Allocation Tunables".
"""

import gzip
import os
import platform
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from octavo.base.host import cpu_field, read_setting, read_text
from octavo.base.units import BASE_PAGE, GIB, KIB, MIB

THP = Path("sys/kernel/mm/transparent_hugepage")
HUGETLB = Path("sys/kernel/mm/hugepages")
PMD_PAGE = 2 * MIB
SHARED_OF_SIZE = f"/{THP}/hugepages-{PMD_PAGE // KIB}kB/shmem_enabled"
"""The setting of 2 MiB pages of shared memory without a file, of Linux 6.11 and later."""
MIN_FILL_OPTION = "--min-fill"
"""The option of `octavo apply` and `octavo verify` that changes MIN_FILL."""
MIN_FILL = 0.5
"""Share of a 2 MiB range in use from which `octavo apply` makes a page of it, by default. The
preloaded library has the same default (`preload/settings.c`).
"""
UNASKED = ("always", "within_size", "force")
"""Settings under which shared memory gets huge pages that no program asks for."""

_COLLAPSE_SINCE = (6, 1)
_SMALL_STACKS_SINCE = (6, 7)
_MALLOC_TUNABLE_SINCE = (2, 35)
_FILE_THP_OPTION = "CONFIG_READ_ONLY_THP_FOR_FS"


@dataclass(frozen=True)
class HugePages:
    """Large pages on one x86-64 Linux machine."""

    thp: str | None
    """`always`, `madvise` or `never`; None when the kernel has no transparent huge pages."""
    thp_sizes: dict[int, str]
    """Setting by size in bytes, `inherit` resolved; before Linux 6.8 the 2 MiB of `thp` alone.
    Sizes that only shared memory can have (8 KiB) are not among them."""
    shared_thp: str | None
    """The setting for shared memory: `never`, `advise`, `within_size`, `always`, `deny` or `force`.
    See `anonymous_shared_thp` for memory without a file."""
    hugetlb_sizes: frozenset[int]
    """Sizes that hugetlbfs can reserve."""
    kernel: tuple[int, ...]
    glibc: tuple[int, ...] | None
    """Its version; None when the C library is another one."""
    file_thp: bool | None
    """Whether khugepaged may make huge pages of a file's read-only text; None: not known."""
    cpu_vendor: str | None
    settings: Mapping[str, str]
    """The word of each file under `transparent_hugepage` that decides page sizes, and the pages of
    each pool of hugetlbfs, by absolute path and as read: `inherit` stays `inherit`."""
    free_pool_pages: Mapping[int, int]
    """Pages of hugetlbfs that are neither in use nor reserved, by size in bytes."""
    default_pool_size: int = PMD_PAGE
    """The size of pages of hugetlbfs for mappings that name none (`default_hugepagesz=`)."""
    shm_pages: str = "never"
    """The option `huge` with which `/dev/shm` is mounted: `never`, `advise`, `within_size` or
    `always`."""

    @property
    def anonymous_shared_thp(self) -> str | None:
        """`shared_thp` for 2 MiB pages of shared memory without a file, which have a setting of
        their own. Memory of `memfd_create` and System V has the general one.
        """
        general, own = self.shared_thp, self.settings.get(SHARED_OF_SIZE, "inherit")
        if own == "inherit" or general in (None, "deny"):
            return general
        return "never" if general == "force" else own

    @property
    def shares_huge_pages(self) -> bool:
        """Whether shared memory without a file gets 2 MiB pages that no program asks for."""
        return self.anonymous_shared_thp in UNASKED

    @property
    def has_collapse(self) -> bool:
        """Whether madvise knows MADV_COLLAPSE."""
        return self.kernel >= _COLLAPSE_SINCE

    @property
    def keeps_thread_stacks_small(self) -> bool:
        """Whether mappings with MAP_STACK get no huge pages."""
        return self.kernel >= _SMALL_STACKS_SINCE

    @property
    def has_malloc_tunable(self) -> bool:
        """Whether glibc's malloc has a tunable that makes it ask for huge pages."""
        return self.glibc is not None and self.glibc >= _MALLOC_TUNABLE_SINCE

    @property
    def merges_ptes(self) -> bool:
        """Whether one TLB entry can hold four adjacent 4 KiB pages, as in AMD's cores since Zen."""
        return self.cpu_vendor == "AuthenticAMD"

    def tlb_sizes(self) -> list[int]:
        """Sizes for which the processor has TLB entries of their own."""
        merged = [4 * BASE_PAGE] if self.merges_ptes else []
        return [BASE_PAGE, *merged, PMD_PAGE, GIB]


def read_huge_pages(
    root: Path = Path("/"), *, kernel: str | None = None, libc: str | None = None
) -> HugePages:
    """Reads the settings under `root`; `kernel` and `libc` replace this machine's versions."""
    thp = read_setting(root / THP / "enabled")
    libc = os.confstr("CS_GNU_LIBC_VERSION") or "" if libc is None else libc
    return HugePages(
        thp=thp,
        thp_sizes=_thp_sizes(root, thp),
        shared_thp=read_setting(root / THP / "shmem_enabled"),
        hugetlb_sizes=frozenset(sizes_in(root / HUGETLB)),
        kernel=_numbers(kernel or platform.release()),
        glibc=_numbers(libc.removeprefix("glibc")) if libc.startswith("glibc") else None,
        file_thp=_file_thp(root, kernel or platform.release()),
        cpu_vendor=cpu_field("vendor_id", root),
        settings=dict(_settings(root)),
        free_pool_pages={
            size: _number(path / "free_hugepages") - _number(path / "resv_hugepages")
            for size, path in sizes_in(root / HUGETLB).items()
        },
        default_pool_size=_default_pool_size(root),
        shm_pages=_shm_pages(root),
    )


def _default_pool_size(root: Path) -> int:
    meminfo = read_text(root / "proc/meminfo") or ""
    stated = re.search(r"^Hugepagesize: +([1-9]\d*) kB$", meminfo, re.M)
    return int(stated[1]) * KIB if stated else PMD_PAGE


def _shm_pages(root: Path) -> str:
    for line in (read_text(root / "proc/self/mounts") or "").splitlines():
        _, place, _, options, *_ = line.split()
        if place == "/dev/shm":
            given = re.search(r"(?:^|,)huge=([a-z_]+)", options)
            return given[1] if given else "never"
    return "never"


def _settings(root: Path) -> Iterator[tuple[str, str]]:
    files = [root / THP / name for name in ("enabled", "shmem_enabled")]
    files.append(root / SHARED_OF_SIZE.lstrip("/"))
    files += [path / "enabled" for path in sizes_in(root / THP).values()]
    files += [path / "nr_hugepages" for path in sizes_in(root / HUGETLB).values()]
    for file in files:
        value = read_setting(file)
        if value is not None:
            yield f"/{file.relative_to(root)}", value
        elif file.name == "nr_hugepages":
            yield f"/{file.relative_to(root)}", "0"


def _number(path: Path) -> int:
    text = (read_text(path) or "").strip()
    return int(text) if text.isdigit() else 0


def _thp_sizes(root: Path, thp: str | None) -> dict[int, str]:
    if thp is None:
        return {}
    sizes = {}
    for size, directory in sizes_in(root / THP).items():
        setting = read_setting(directory / "enabled")
        if setting is not None:
            sizes[size] = thp if setting == "inherit" else setting
    return sizes or {PMD_PAGE: thp}


def sizes_in(directory: Path) -> dict[int, Path]:
    """The `hugepages-<N>kB` directories, by size in bytes."""
    by_size = {}
    for path in directory.glob("hugepages-*kB"):
        by_size[int(path.name.removeprefix("hugepages-").removesuffix("kB")) * KIB] = path
    return dict(sorted(by_size.items()))


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text)[:2])


def _file_thp(root: Path, release: str) -> bool | None:
    text = _kernel_config(root, release)
    return None if text is None else f"{_FILE_THP_OPTION}=y" in text


def _kernel_config(root: Path, release: str) -> str | None:
    try:
        with gzip.open(root / "proc/config.gz", "rt", encoding="utf-8") as file:
            return file.read()
    except OSError:
        return read_text(root / "boot" / f"config-{release}")
