"""From advice to what can be done about it on this machine, in commands that run.

Only what the kernel, the C library and the processor really offer is named. x86-64 processors have
TLB entries of 4 KiB, 2 MiB and 1 GiB (AMD's also merge 16 KiB); for a size between, the nearest
usable one is named with its own figures, and refused where its memory growth is too large.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from octavo.advice import Advice, Point, Thresholds
from octavo.elf import ELF_MAGIC
from octavo.huge_pages import HUGETLB, PMD_PAGE, THP, HugePages
from octavo.units import (
    BASE_PAGE,
    GIB,
    KIB,
    format_bytes,
    format_mpki,
    format_share,
)

UNKNOWN_PROGRAM = "PROGRAM ARGUMENTS"
"""In the place of a command that is not known."""
_ROOT = Path("/")
_SHM = "/dev/shm/"
_PR_SET_THP_DISABLE = 41
"""Of <linux/prctl.h>."""


@dataclass(frozen=True)
class Means:
    """One thing to do, or to know before doing anything."""

    kind: str
    """note (nothing to run), thp, mthp, malloc, madvise, hugetlbfs, linker or prctl."""
    text: str
    command: str = ""

    def record(self) -> dict[str, str]:
        """Plain data for the JSON."""
        return asdict(self)


def means_for(
    advice: Advice,
    machine: HugePages,
    program: str = UNKNOWN_PROGRAM,
    limits: Thresholds | None = None,
) -> list[Means]:
    """What to do about one piece of advice, the least intrusive first.

    `program` is the command that was traced, as a shell would take it.
    """
    limits = limits or Thresholds()
    if not advice.changes:
        return list(_keep_small(advice, machine, program, limits))
    size, notes = _usable_size(advice, machine, limits)
    if size == BASE_PAGE:
        faults = _fewer_faults(advice, machine)
        return [*notes, *faults, *_keep_small(advice, machine, program, limits)]
    return [*notes, *_offer(advice, machine, program, size)]


def usable_size(advice: Advice, machine: HugePages, limits: Thresholds | None = None) -> int:
    """The advised size in bytes, or the one to use where this processor does not have that."""
    if not advice.changes:
        return BASE_PAGE
    return _usable_size(advice, machine, limits or Thresholds())[0]


def _offer(advice: Advice, machine: HugePages, program: str, size: int) -> list[Means]:
    if advice.case.region_kind == "stack":
        return [
            Means(
                "note",
                "The kernel gives a growing stack no large pages; move large arrays "
                "from the stack to the heap, where they can have them.",
            )
        ]
    if _is_shared_memory(advice):
        return list(_for_shared_memory(advice, machine, program, size))
    if advice.case.stream == "fetch" or advice.case.path is not None:
        return list(_for_files(advice, machine, size))
    return list(_for_anonymous(advice, machine, program, size))


def _usable_size(advice: Advice, machine: HugePages, limits: Thresholds) -> tuple[int, list[Means]]:
    """The size to act on, and what to say when it is not the advised one."""
    wanted = advice.page_size
    sizes = machine.tlb_sizes()
    if wanted in sizes:
        return wanted, []
    measured = {point.page_size: point for point in advice.case.points}
    below = max(size for size in sizes if size < wanted)
    above = min(size for size in sizes if size > wanted)
    lead = f"This processor has no TLB entries of {format_bytes(wanted)}"
    if above in measured:
        point = measured[above]
        figures = _figures(point)
        if (point.growth or 0) <= limits.max_growth:
            return above, [
                Means("note", f"{lead}; the next it has is {format_bytes(above)}, with {figures}.")
            ]
        lead += f", and {format_bytes(above)} would mean {figures}"
    else:
        lead += f", and {format_bytes(above)}, which it has, is not among the sizes measured"
    here = f"keep {format_bytes(below)}"
    if below != BASE_PAGE:
        here = f"use {format_bytes(below)}"
        if below in measured:
            here += f", with {_figures(measured[below])}"
    return below, [
        Means(
            "note",
            f"{lead}; on this machine {here}. The advice holds for a processor that has the size.",
        )
    ]


def _figures(point: Point) -> str:
    return (
        f"{format_mpki(point.mpki)} misses per 1000 instructions and "
        f"{format_share(point.growth)} more memory"
    )


def _fewer_faults(advice: Advice, machine: HugePages) -> Iterator[Means]:
    """Multi-size THP of a size that the TLB does not know: worth naming, not to be oversold."""
    size = advice.page_size
    setting = machine.thp_sizes.get(size)
    mapped = advice.case.path is not None or advice.case.region_kind in ("stack", "shared")
    if advice.case.stream != "data" or mapped or setting in (None, "always"):
        return
    text = (
        f"The kernel can still allocate in pieces of {format_bytes(size)} for programs that ask "
        "by madvise(address, bytes, MADV_HUGEPAGE): fewer page faults, but the TLB misses stay "
        "those of the smaller entries."
    )
    if setting == "never":
        file = _ROOT / THP / f"hugepages-{size // KIB}kB" / "enabled"
        yield Means("mthp", f"{text} Off here; this lets them.", f"echo madvise | sudo tee {file}")
    else:
        yield Means("note", text)


def _for_anonymous(advice: Advice, machine: HugePages, program: str, size: int) -> Iterator[Means]:
    """Heap, anonymous mappings and thread stacks."""
    if size == GIB:
        yield from _hugetlb(advice, machine, program, size)
        return
    setting = machine.thp_sizes.get(size)
    if setting is None:
        yield Means("note", f"This kernel gives no {format_bytes(size)} pages to anonymous memory.")
        if size == PMD_PAGE:
            yield from _hugetlb(advice, machine, program, size)
        return
    if setting == "always":
        yield Means(
            "note",
            f"{format_bytes(size)} pages are switched on for every program already;"
            " what is aligned and large enough gets them.",
        )
        return
    if setting == "never":
        yield _switch_on(machine, size)
    heap = advice.case.region_kind in (None, "heap")
    if heap and machine.has_malloc_tunable and machine.thp in ("madvise", "never"):
        yield Means(
            "malloc",
            "Lets glibc's malloc ask for them, without a change to the program (glibc 2.35 and "
            "later, where the general setting is `madvise`).",
            f"GLIBC_TUNABLES=glibc.malloc.hugetlb=1 {program}",
        )
    yield _ask(advice, machine, "Asks for them in the program's source, before first use", size)


def _switch_on(machine: HugePages, size: int) -> Means:
    general = size == PMD_PAGE and machine.thp == "never"
    file = THP / "enabled" if general else THP / f"hugepages-{size // KIB}kB" / "enabled"
    return Means(
        "thp",
        f"Switches {format_bytes(size)} pages on for programs that ask for them (until reboot).",
        f"echo madvise | sudo tee {_ROOT / file}",
    )


def _ask(advice: Advice, machine: HugePages, text: str, size: int) -> Means:
    """MADV_HUGEPAGE, and what does the same at once where the kernel knows it."""
    if machine.has_collapse and size == PMD_PAGE:
        text += "; MADV_COLLAPSE instead makes them at once of what is in use already"
    return _madvise(advice, "MADV_HUGEPAGE", f"{text}.")


def _madvise(advice: Advice, flag: str, text: str) -> Means:
    case = advice.case
    if case.region is None or not case.bytes:
        # A region without mappings, as of a trace that has none, has references and no extent.
        return Means("madvise", text, f"madvise(address, bytes, {flag});")
    where = f"{case.region}, {format_bytes(case.bytes)} at {case.start:#x} in this run"
    return Means("madvise", f"{text} Here: {where}.", f"madvise(address, {case.bytes}, {flag});")


def _hugetlb(advice: Advice, machine: HugePages, program: str, size: int) -> Iterator[Means]:
    if size not in machine.hugetlb_sizes:
        return
    pages = -(-advice.case.at(size).touched_bytes // size)
    file = _ROOT / HUGETLB / f"hugepages-{size // KIB}kB" / "nr_hugepages"
    yield Means(
        "hugetlbfs",
        f"Sets {pages} pages of {format_bytes(size)} aside, which nothing else can use then.",
        f"echo {pages} | sudo tee {file}",
    )
    if machine.has_malloc_tunable:
        value = 2 if size == PMD_PAGE else size
        yield Means(
            "malloc",
            "Lets glibc's malloc take its memory from those pages (glibc 2.35 and later).",
            f"GLIBC_TUNABLES=glibc.malloc.hugetlb={value} {program}",
        )


def _is_shared_memory(advice: Advice) -> bool:
    """MAP_SHARED without a file, System V shared memory, or a file of /dev/shm."""
    path = advice.case.path
    return advice.case.region_kind == "shared" or (path is not None and path.startswith(_SHM))


def _for_shared_memory(
    advice: Advice, machine: HugePages, program: str, size: int
) -> Iterator[Means]:
    """Shared memory has settings of its own: the kernel's, and the mount's for /dev/shm."""
    if size == GIB:
        reserved = _hugetlb(advice, machine, program, size)
        yield from (means for means in reserved if means.kind != "malloc")
        return
    if size != PMD_PAGE or machine.shared_thp in (None, "deny"):
        text = f"This kernel gives no {format_bytes(size)} pages to shared memory."
        yield Means("note", text)
        return
    if machine.shared_thp == "force":
        text = f"{format_bytes(size)} pages are switched on for all shared memory already."
        yield Means("note", text)
        return
    text = (
        f"Lets shared memory have {format_bytes(size)} pages where a program asks (until reboot)."
    )
    if advice.case.path is not None:
        yield Means("thp", text, f"sudo mount -o remount,huge=advise {_SHM.rstrip('/')}")
    elif machine.shared_thp == "never":
        yield Means("thp", text, f"echo advise | sudo tee {_ROOT / THP / 'shmem_enabled'}")
    yield _ask(advice, machine, "Asks for them in the program's source, before first use", size)


def _is_program_file(path: str | None) -> bool:
    """Whether a linker made the file; what cannot be read is taken for one that it did not."""
    try:
        with Path(path or "").open("rb") as file:
            return file.read(len(ELF_MAGIC)) == ELF_MAGIC
    except OSError:
        return False


def _for_files(advice: Advice, machine: HugePages, size: int) -> Iterator[Means]:
    """Text and data of mapped files: the page cache must hold them in large pages."""
    if advice.case.stream == "fetch" or _is_program_file(advice.case.path):
        yield Means(
            "linker",
            f"Aligns the program's segments so that {format_bytes(size)} pages can map them; "
            "needs linking anew.",
            f"cc -Wl,-z,max-page-size={size:#x} -Wl,-z,common-page-size={size:#x} OBJECTS",
        )
    if size != PMD_PAGE:
        yield Means(
            "note",
            f"Whether files are cached in pieces of {format_bytes(size)} is up to "
            "the file system (large folios: XFS, ext4, btrfs in recent kernels); the "
            "kernel does not say.",
        )
        return
    if machine.thp is None:
        yield Means("note", "This kernel has no transparent huge pages for files.")
        return
    if machine.file_thp is False:
        yield Means(
            "note",
            "This kernel is built without CONFIG_READ_ONLY_THP_FOR_FS: it makes "
            "huge pages of file text only on tmpfs and on file systems with large folios.",
        )
    elif machine.file_thp is None:
        yield Means(
            "note",
            "Whether this kernel makes huge pages of file text "
            "(CONFIG_READ_ONLY_THP_FOR_FS or large folios) cannot be read here.",
        )
    text = "Lets khugepaged make huge pages of the mapped file in time"
    yield _ask(advice, machine, text, size)


def _keep_small(
    advice: Advice, machine: HugePages, program: str, limits: Thresholds
) -> Iterator[Means]:
    """Where huge pages come unasked and would cost memory, how to keep them off."""
    case = advice.case
    if case.stream != "data" or case.path is not None or case.region_kind == "shared":
        return
    huge = next((point for point in case.points if point.page_size == PMD_PAGE), None)
    unasked = machine.thp_sizes.get(PMD_PAGE) == "always"
    if huge is None or not unasked or (huge.growth or 0) <= limits.max_growth:
        return
    grown = f"2 MiB pages come unasked here and would grow it by {format_share(huge.growth)}"
    if case.region is not None:
        yield _madvise(advice, "MADV_NOHUGEPAGE", f"{grown}; this keeps them off.")
        return
    yield Means(
        "prctl",
        f"{grown}; PR_SET_THP_DISABLE keeps them off for this program and its children.",
        "python3 -c 'import ctypes,os,sys; "
        f"ctypes.CDLL(None).prctl({_PR_SET_THP_DISABLE},1,0,0,0); "
        f"os.execvp(sys.argv[1],sys.argv[1:])' {program}",
    )
