"""The system-wide settings that one page size needs: every file that decides the result.

The kernel gives a fault the largest enabled size that fits, so a size is used only when larger
sizes are off. A size's own file overrides the general one, to which `inherit` refers. Allocators
and the JVM read the general one, and ask for nothing unless it says `madvise` (or `always`).
Reference: Documentation/admin-guide/mm/transhuge.rst of Linux.
"""

from octavo.base.huge_pages import HUGETLB, PMD_PAGE, SHARED_OF_SIZE, THP, UNASKED, HugePages
from octavo.base.units import KIB

ENABLED = f"/{THP}/enabled"
SHARED = f"/{THP}/shmem_enabled"

Settings = dict[str, str]


def size_file(size: int) -> str:
    """The setting of one size of transparent huge pages, in bytes."""
    return f"/{THP}/hugepages-{size // KIB}kB/enabled"


def needed_to_ask(host: HugePages, size: int, *, exactly: bool) -> Settings | None:
    """Settings under which memory that a program asks for gets pages of `size` bytes.

    `exactly`: the program asks only where the general setting is `madvise`, as glibc's malloc
    does. None where this kernel has no pages of that size for anonymous memory.
    """
    if size not in host.thp_sizes:
        return None
    if host.settings[ENABLED] == "always" and not exactly:
        # Allocators see `always` and ask for nothing, so this size must be `always`, too.
        needed = _needed_under(host, size, "always")
        if needed.get(size_file(size), "inherit") in ("inherit", "always"):
            return needed
    return _needed_under(host, size, "madvise")


def _needed_under(host: HugePages, size: int, general: str) -> Settings:
    """All settings that are needed under this value of the general setting."""
    needed = {ENABLED: general}
    for other, file in _size_files(host):
        own = host.settings[file]
        effective = general if own == "inherit" else own
        if other == size:
            needed[file] = own if effective in ("madvise", "always") else "madvise"
        elif other > size:
            needed[file] = own if effective == "never" else "never"
    return needed


def needed_for_all(host: HugePages, size: int) -> Settings | None:
    """Settings under which memory that no program asks for gets pages of `size` bytes.

    Larger sizes stay for programs that ask. None where this kernel has no pages of that size.
    """
    if size not in host.thp_sizes:
        return None
    general = host.settings[ENABLED]
    files = _size_files(host)
    if not files:
        return {ENABLED: "always"}
    needed = {}
    for other, file in files:
        own = host.settings[file]
        effective = general if own == "inherit" else own
        if other == size:
            needed[file] = own if effective == "always" else "always"
        elif other > size:
            needed[file] = "madvise" if effective == "always" else own
    # The value `inherit` depends on the general setting.
    if any(value == "inherit" for value in needed.values()):
        needed = {ENABLED: general, **needed}
    return needed


def needed_for_shared(host: HugePages, value: str) -> Settings | None:
    """Settings under which shared memory gets 2 MiB pages: `advise` where asked for, or `always`.

    The size's own setting decides for memory without a file, unless it is `inherit`, and the
    general one for the rest. None where this kernel has none for shared memory.
    """
    now, own = host.shared_thp, host.settings.get(SHARED_OF_SIZE, "inherit")
    if now is None or now == "deny":
        return None
    needed = {SHARED: now if now in UNASKED else value}
    if own != "inherit":
        suits = host.anonymous_shared_thp in (*UNASKED, value)
        needed[SHARED_OF_SIZE] = own if suits else "inherit"
    return needed


def needed_pool(host: HugePages, pages: int, size: int = PMD_PAGE) -> Settings | None:
    """Settings under which hugetlbfs has `pages` free pages of `size` bytes; None where this kernel
    has no such size.
    """
    if size not in host.hugetlb_sizes:
        return None
    file = f"/{HUGETLB}/hugepages-{size // KIB}kB/nr_hugepages"
    missing = max(0, pages - host.free_pool_pages.get(size, 0))
    return {file: str(int(host.settings[file]) + missing)}


def _size_files(host: HugePages) -> list[tuple[int, str]]:
    """Sizes with a file of their own, in descending order; none before Linux 6.8."""
    files = ((size, size_file(size)) for size in sorted(host.thp_sizes, reverse=True))
    return [(size, file) for size, file in files if file in host.settings]
