"""Turns advice into actions on this machine, with commands to run.

An action names only what this kernel, runtime and processor offer. x86-64 processors have TLB
entries of 4 KiB, 2 MiB and 1 GiB (AMD's also merge 16 KiB). For another size, the next larger one
is named with its own figures, or the next smaller one where that would grow memory too much.
"""

import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import PurePath

from octavo.actions.file_text import file_system, read_ahead, without_large_folios
from octavo.actions.model import UNKNOWN_PROGRAM, Action, as_root, own_command, show_settings
from octavo.actions.pools import pool_pages
from octavo.actions.prctl import keep_small_prefix
from octavo.actions.settings import Settings, needed_for_shared, needed_pool, needed_to_ask
from octavo.actions.table import (
    Line,
    Subject,
    has_command,
    in_large_pieces,
    is_shared_memory,
    lines_for,
)
from octavo.actions.trial import Trial
from octavo.analysis.advice import Advice, Point, Thresholds, is_allowed
from octavo.base.elf import is_elf_file
from octavo.base.huge_pages import MIN_FILL, MIN_FILL_OPTION, PMD_PAGE, HugePages
from octavo.base.units import BASE_PAGE, GIB, format_bytes, format_mpki, format_share
from octavo.runtimes.detect import Runtime

_SHM = "/dev/shm/"
_IN_SOURCE = "Asks for them in the program's source, before first use"
_FROM_STACK = "move large arrays from the stack to the heap, where they can have them."
_UNKNOWN = Subject(Runtime(program=""))
_WITH_SOURCE = ("native", "unknown")
"""Runtimes whose users may change what the program asks of the kernel in its source."""
_LARGE_PIECE = 4 * PMD_PAGE
"""Bytes of a mapping that holds 2 MiB pages, also in a runtime that maps most in small pieces."""

TryPages = Callable[[], Trial | None]


def actions_for(
    advice: Advice,
    host: HugePages,
    program: str = UNKNOWN_PROGRAM,
    limits: Thresholds = Thresholds(),
    *,
    subject: Subject = _UNKNOWN,
    try_pages: TryPages = lambda: None,
) -> list[Action]:
    """The actions for one piece of advice; the action that changes least is first.

    `program` is the command that was traced, as a shell would take it; `subject` says what manages
    its memory. `try_pages` tries page sizes on this kernel; None is the result of no trial.
    """
    if not advice.changes:
        return list(_keep_small(advice, host, program, limits))
    if subject.runtime.names[:2] == ("unknown", "unknown"):
        subject = replace(subject, runtime=_assumed(subject.runtime, host))
    if advice.case.region is not None and (advice.case.bytes or 0) >= _LARGE_PIECE:
        subject = in_large_pieces(subject)
    chooser = _Chooser(advice, host, program, subject, try_pages)
    size, notes = _usable_size(advice, host, limits)
    if size == BASE_PAGE:
        return [*notes, *chooser.fewer_faults(), *_keep_small(advice, host, program, limits)]
    return [*notes, *chooser.offer(size)]


def _assumed(runtime: Runtime, host: HugePages) -> Runtime:
    """An unknown program, such as that of a foreign trace, with the allocator of this C library."""
    facts = {"assumed"}
    if host.has_malloc_tunable:
        facts.add("glibc-hugetlb-tunable")
    allocator = "glibc" if host.glibc is not None else runtime.allocator
    return replace(runtime, allocator=allocator, facts=frozenset(facts))


def usable_size(advice: Advice, host: HugePages, limits: Thresholds = Thresholds()) -> int:
    """The advised size in bytes, or the size to use instead where this processor lacks it."""
    return _usable_size(advice, host, limits)[0] if advice.changes else BASE_PAGE


def _usable_size(advice: Advice, host: HugePages, limits: Thresholds) -> tuple[int, list[Action]]:
    """The size to act on, and a note where it is not the advised one."""
    wanted = advice.page_size
    sizes = host.tlb_sizes()
    if wanted in sizes:
        return wanted, []
    measured = {point.page_size: point for point in advice.case.points}
    below = max(size for size in sizes if size < wanted)
    above = min(size for size in sizes if size > wanted)
    lead = f"This processor has no TLB entries of {format_bytes(wanted)}"
    if above in measured:
        point = measured[above]
        figures = _figures(point)
        if is_allowed(advice.case, point, limits):
            return above, [
                _note(f"{lead}; the next it has is {format_bytes(above)}, with {figures}.")
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
        _note(
            f"{lead}; on this machine {here}. The advice holds for a processor that has the size."
        )
    ]


def _note(text: str, tried: str = "") -> Action:
    """An action that says what to know before doing anything."""
    return Action("note", text, tried=tried)


def _figures(point: Point) -> str:
    return (
        f"{format_mpki(point.mpki)} misses per 1000 instructions and "
        f"{format_share(point.growth)} more memory"
    )


@dataclass(frozen=True)
class _Chooser:
    """Finds the actions for one piece of advice."""

    advice: Advice
    host: HugePages
    program: str
    subject: Subject
    try_pages: TryPages

    def offer(self, size: int) -> Iterator[Action]:
        """Actions that give the memory of the advice pages of `size` bytes."""
        case = self.advice.case
        if case.region_kind == "stack":
            yield _note(f"The kernel gives a growing stack no large pages; {_FROM_STACK}")
        elif case.region_kind == "thread-stack" and self.host.keeps_thread_stacks_small:
            yield _note(f"Linux since 6.7 gives stacks of threads no large pages; {_FROM_STACK}")
        elif self._is_of_stacks():
            yield _note(
                "Most of its misses are in stacks, to which the kernel gives no large pages; "
                f"{_FROM_STACK}"
            )
        elif is_shared_memory(case.region_kind, case.path) or self._is_on_tmpfs():
            yield from self._for_shared_memory(size)
        elif case.stream == "data" and is_elf_file(case.path):
            yield from self._for_static_data(size)
        elif case.stream == "data" and self._file:
            yield from self._for_data_of_file(size)
        elif case.stream == "data" and case.region is None and self.subject.shared:
            yield from self._for_shared_memory(size)
        elif case.stream == "fetch":
            if case.path in (None, self.subject.runtime.program):
                yield from self._from_table("text", size)
            yield from self._for_text(size)
        else:
            yield from self._for_anonymous(size)

    @property
    def _file(self) -> str:
        """The file that holds the memory of the advice, or most of it; empty where none does."""
        case = self.advice.case
        if case.region is None and case.stream == "data":
            return self.subject.file
        return case.path or ""

    def _is_of_stacks(self) -> bool:
        """Whether the advice is on all data, most of whose misses are in stacks without large
        pages.
        """
        is_all = self.advice.case.region is None and self.advice.case.stream == "data"
        subject, keeps_small = self.subject, self.host.keeps_thread_stacks_small
        return is_all and (subject.all_stacks if keeps_small else subject.stack)

    def _is_on_tmpfs(self) -> bool:
        return self._file.startswith(_SHM)

    def _for_static_data(self, size: int) -> Iterator[Action]:
        """Static variables of a program or library: those without initial values are anonymous
        memory, which no switch of an allocator reaches.
        """
        subject = replace(self.subject, static="most")
        yield from replace(self, subject=subject)._for_anonymous(size)

    def fewer_faults(self) -> Iterator[Action]:
        """Multi-size THP of a size without TLB entries: fewer page faults, as many TLB misses."""
        size, case = self.advice.page_size, self.advice.case
        mapped = case.path is not None or case.region_kind in ("stack", "shared")
        if case.stream != "data" or mapped or size not in self.host.thp_sizes:
            return
        yield _note(
            f"The kernel can still allocate in pieces of {format_bytes(size)}: fewer page faults, "
            "but the TLB misses stay those of the smaller entries."
        )
        yield from self._from_table("heap", size)

    def _for_anonymous(self, size: int) -> Iterator[Action]:
        """Heap, anonymous mappings and thread stacks."""
        host, runtime = self.host, self.subject.runtime
        if self.subject.refuses:
            yield _note(
                "The program asks for no transparent huge pages in this memory (MADV_NOHUGEPAGE, "
                "or PR_SET_THP_DISABLE for all of it), so that no setting and no library gives it "
                "any; only its source can leave that out."
            )
            for line in lines_for(self.subject, host, "heap"):
                if (
                    line.needed == "pool"
                    and runtime.kind in line.names
                    and size in line.gives(host)
                ):
                    yield from self._acted(line, size)
            return
        if size == GIB:
            yield from self._pool(size)
            return
        if size not in host.thp_sizes:
            yield _note(f"This kernel gives no {format_bytes(size)} pages to anonymous memory.")
            if size == PMD_PAGE:
                yield from self._pool(size)
            return
        found = list(self._from_table("heap", size))
        yield from found
        if not any(action.page_size == size for action in found):
            yield from self._other_sizes(size)
        if all(action.system_wide for action in found):
            yield from self._from_outside(size)
        if runtime.kind in _WITH_SOURCE:
            yield self._ask(size, with_settings=not found)

    def _from_outside(self, size: int) -> Iterator[Action]:
        """`octavo apply --pid`, for a program that has no switch of its own."""
        fits = size == PMD_PAGE and "small-pieces" not in self.subject.runtime.facts
        if not fits or not self.host.has_collapse or not has_command("apply"):
            return
        options = self._fill_options(size)
        yield Action(
            "apply",
            "Once it runs, this makes 2 MiB pages of what it uses, from outside, and goes on as it "
            "maps more. Needs root (CAP_SYS_NICE).",
            shlex.join((*own_command(), "apply", "--pid", "PID", *options, "--watch")),
            name="apply-pid",
            page_size=size,
        )

    def _fill_options(self, size: int) -> tuple[str, ...]:
        """Options with which `octavo apply` makes 2 MiB pages of memory as sparse as the advised
        one.
        """
        case = self.advice.case
        fill = case.base.touched_bytes / max(case.at(size).touched_bytes, 1)
        if fill >= MIN_FILL:
            return ()
        # Half the mean, as some ranges are sparser than the mean.
        return MIN_FILL_OPTION, f"{max(1, int(100 * fill / 2))}%"

    def _other_sizes(self, size: int) -> Iterator[Action]:
        """The largest smaller size, for a runtime whose pieces of memory are below `size`."""
        for line in lines_for(self.subject, self.host, "heap"):
            sizes = [other for other in line.gives(self.host) if other < size]
            for other in sizes[-1:]:
                text = (
                    f"Nothing gives the memory of {self.subject.runtime} pages of "
                    f"{format_bytes(size)}; {format_bytes(other)} is what can be had."
                )
                if other not in self.host.tlb_sizes():
                    text += (
                        " This processor has no TLB entries of that size: page faults become "
                        "fewer, page walks do not."
                    )
                yield _note(text)
                yield from self._acted(line, other)
                return

    def _from_table(self, reaches: str, size: int) -> Iterator[Action]:
        """The actions of the table; actions that change no system-wide setting are first."""
        lines = list(lines_for(self.subject, self.host, "text" if reaches == "text" else "heap"))
        if reaches == "heap" and self.subject.static == "most":
            lines = [line for line in lines if line.kind == "apply"]
        subject = self.subject
        offered = [
            (line, action)
            for line in lines
            if size in line.gives(self.host)
            for action in self._acted(line, size)
        ]
        may_be_unreached = subject.mapped == "most"
        offered.sort(
            key=lambda pair: (pair[1].system_wide, may_be_unreached and pair[0].only_malloc)
        )
        has_switch = any(not action.system_wide and action.kind != "apply" for _, action in offered)
        may_miss = "glibc-may-miss-madvise" in subject.runtime.facts
        leaves_out = (
            subject.arenas
            or subject.blocks
            or subject.static == "much"
            or may_miss
            or (subject.mapped != "little" and any(line.only_malloc for line, _ in offered))
        )
        for _, action in offered:
            # The preloaded library is for memory that a switch of the program may not reach.
            if action.kind != "apply" or leaves_out or not has_switch:
                yield action

    def _acted(self, line: Line, size: int) -> Iterator[Action]:
        """The action of a line, or a note where a trial on this kernel failed."""
        subject = self.subject
        if line.needed == "pool" and not subject.pool_pages:
            pages = pool_pages(subject, self.advice.case.at(size).touched_bytes)
            subject = replace(subject, pool_pages=pages)
        action = line.action(subject, self.host, size)
        if action is None:
            return
        if line.kind == "apply":
            # Before `--`, which ends the options.
            options = self._fill_options(size)
            action = replace(action, prefix=(*action.prefix[:-1], *options, *action.prefix[-1:]))
        if "assumed" in subject.runtime.facts:
            action = replace(action, text=f"Where malloc is that of glibc: {action.text}")
        tried, refused = _try(line, action, size, self.try_pages)
        if refused:
            yield _note(refused, refused)
            return
        if not action.does_something(subject.words):
            if action.environment or action.arguments:
                # The traced run already had them, so the advice holds in spite of them.
                return
            text = f"{action.text} The settings of now let it: nothing is to be done."
            yield replace(action, kind="note", text=text, tried=tried)
            return
        action = replace(action, text=_with_settings(action), tried=tried)
        yield action.for_program(self.program)

    def _ask(self, size: int, text: str = _IN_SOURCE, *, with_settings: bool = True) -> Action:
        """MADV_HUGEPAGE in the program's source, and MADV_COLLAPSE where the kernel has it.

        `with_settings` is False where an earlier action has the settings that it needs.
        """
        if self.host.has_collapse and size == PMD_PAGE:
            text += "; MADV_COLLAPSE instead makes them at once of what is in use already"
        needed = needed_to_ask(self.host, size, exactly=False) if with_settings else None
        return self._madvise("MADV_HUGEPAGE", f"{text}.", needed or {})

    def _madvise(self, flag: str, text: str, needed: Settings) -> Action:
        action = Action("madvise", text, settings=needed, now=_now(self.host, needed))
        return _madvise(self.advice, flag, replace(action, text=_with_settings(action)))

    def _pool(self, size: int) -> Iterator[Action]:
        """Pages of hugetlbfs for malloc."""
        pages = -(-self.advice.case.at(size).touched_bytes // size)
        if size == PMD_PAGE:
            pages += self.subject.untouched_pages
        needed = needed_pool(self.host, pages, size)
        if needed is None:
            return
        has_tunable = "glibc-hugetlb-tunable" in self.subject.runtime.facts
        value = 2 if size == PMD_PAGE else size
        action = Action(
            "hugetlbfs",
            f"Sets {pages} pages of {format_bytes(size)} aside, which nothing else can use then"
            + ("; glibc's malloc takes its memory from them." if has_tunable else "."),
            page_size=size,
            environment={"GLIBC_TUNABLES": f"glibc.malloc.hugetlb={value}"} if has_tunable else {},
            settings=needed,
            now=_now(self.host, needed),
        )
        yield action.for_program(self.program)

    def _for_shared_memory(self, size: int) -> Iterator[Action]:
        """Shared memory has settings of its own: the kernel's, and the mount's for /dev/shm."""
        if size == GIB:
            yield from (
                replace(action, environment={}).for_program(self.program)
                for action in self._pool(size)
            )
            return
        if size == PMD_PAGE and self.subject.runtime.kind == "postgres":
            case = self.advice.case
            touched = case.bytes or case.at(size).touched_bytes
            pages = pool_pages(self.subject, touched)
            subject = replace(self.subject, pool_pages=pages)
            yield from replace(self, subject=subject)._lines_for_shared(size)
            return
        if size != PMD_PAGE or self.host.shared_thp in (None, "deny"):
            yield _note(f"This kernel gives no {format_bytes(size)} pages to shared memory.")
            return
        if self.host.shared_thp == "force" and self.host.shares_huge_pages:
            text = f"{format_bytes(size)} pages are switched on for all shared memory already."
            yield _note(text)
            return
        if self._is_on_tmpfs():
            now = self.host.shm_pages
            if now == "always":
                yield _note(f"{_SHM} is mounted with huge=always: files there get 2 MiB pages.")
                return
            always, advise, undo = (
                as_root(f"mount -o remount,huge={word} {_SHM.rstrip('/')}")
                for word in ("always", "advise", now)
            )
            text = "Files there get 2 MiB pages unasked, of every program, until reboot."
            yield Action("mount", text, f"{always}\n{self.program}", restoring=undo)
            asking = self._madvise("MADV_HUGEPAGE", f"{_IN_SOURCE}.", {})
            yield replace(asking, command=f"{advise}\n{asking.command}", restoring=undo)
            return
        yield from self._lines_for_shared(size)
        needed = needed_for_shared(self.host, "advise") or {}
        yield self._madvise("MADV_HUGEPAGE", f"{_IN_SOURCE}.", needed)

    def _lines_for_shared(self, size: int) -> Iterator[Action]:
        for line in lines_for(self.subject, self.host, "shared"):
            yield from self._acted(line, size)

    def _for_data_of_file(self, size: int) -> Iterator[Action]:
        """Data of a mapped file: only a file system with large folios has them in huge pages."""
        name = PurePath(self._file).name
        system = file_system(self._file)
        if size != PMD_PAGE or self.host.thp is None:
            yield _note(f"This kernel gives no {format_bytes(size)} pages to data of mapped files.")
        elif system == "hugetlbfs":
            yield _note(f"{name} is on hugetlbfs, so it has huge pages already.")
        elif system == "tmpfs":
            yield _note(
                f"{name} is on tmpfs, which has huge pages where its mount option is huge=always, "
                "or huge=advise and the program asks (MADV_HUGEPAGE)."
            )
        elif system is None:
            yield _note(
                f"Huge pages for data of {name} need a file system with large folios; which one it "
                "is on cannot be read here."
            )
        elif (why := without_large_folios(system, self.host)) is not None:
            yield _note(f"This kernel makes no huge pages of data of {name}: {why}.")
        else:
            yield _note(
                f"No setting gives huge pages to data of {name}. {system} reads the file into them "
                "if the program asks before first use, in shared mappings and in private ones; "
                "pages that a store to a private mapping copies stay small."
            )
            if self.subject.runtime.kind in _WITH_SOURCE:
                yield self._madvise("MADV_HUGEPAGE", f"{_IN_SOURCE}.", {})

    def _for_text(self, size: int) -> Iterator[Action]:
        """Text of a program or library: the page cache must hold it in large pages."""
        case, host = self.advice.case, self.host
        yield Action(
            "linker",
            f"Aligns the program's segments so that {format_bytes(size)} pages can map them; "
            "needs relinking.",
            f"cc -Wl,-z,max-page-size={size:#x} -Wl,-z,common-page-size={size:#x} OBJECTS",
        )
        if size != PMD_PAGE:
            yield _note(
                f"Whether files are cached in pieces of {format_bytes(size)} is up to "
                "the file system (large folios: XFS, ext4, btrfs in recent kernels); the "
                "kernel does not say."
            )
            return
        if host.thp is None:
            yield _note("This kernel has no transparent huge pages for files.")
            return
        ahead = read_ahead(case.path or self.subject.runtime.program, host)
        if ahead is not None:
            yield ahead.for_program(self.program)
        if host.file_thp is False:
            yield _note(
                "This kernel is built without CONFIG_READ_ONLY_THP_FOR_FS: it makes "
                "huge pages of file text only on tmpfs and on file systems with large folios, "
                "where the text is aligned to them."
            )
            return
        if host.file_thp is None:
            yield _note(
                "Whether this kernel makes huge pages of file text "
                "(CONFIG_READ_ONLY_THP_FOR_FS or large folios) cannot be read here."
            )
        yield self._ask(size, "Lets khugepaged make huge pages of the mapped file in time")


def _try(line: Line, action: Action, size: int, try_pages: TryPages) -> tuple[str, str]:
    """The result of a trial of an action, and the reason to refuse it; each may be empty."""
    if line.needed == "pool" or "shared" in line.needed:
        return "", ""
    if action.system_wide:
        return "Not tried here, since it needs these settings first.", ""
    trial = try_pages()
    if trial is None:
        return "", ""
    if trial.disabled:
        return "", (
            "Huge pages are switched off for this process and all that it starts "
            "(PR_SET_THP_DISABLE): what would ask for them gets none. Start the program from "
            "elsewhere."
        )
    if line.needed == "none":
        if trial.collapses:
            return "Tried: MADV_COLLAPSE makes 2 MiB pages on this kernel.", ""
        return "", "This kernel refused MADV_COLLAPSE in a trial, so `octavo apply` has no effect."
    given = trial.unasked if line.needed == "all" else trial.asked
    if given == size:
        return f"Tried: this kernel gives {format_bytes(size)} pages under its settings of now.", ""
    got = format_bytes(given) if given else "nothing"
    return "", (
        f"`{action.name}` is left out: under the settings of now a trial got {got} where "
        f"{format_bytes(size)} was expected. Memory may be too fragmented; "
        "`echo 1 > /proc/sys/vm/compact_memory` as root gathers what is free."
    )


def _with_settings(action: Action) -> str:
    """The action's text, with the present values of the settings that its command changes."""
    if not action.changes:
        return action.text
    shown = show_settings({path: action.now[path] for path in action.changes})
    return f"{action.text} This changes settings for every program until reboot; now {shown}."


def _now(host: HugePages, settings: Settings) -> dict[str, str]:
    return {path: host.settings[path] for path in settings}


def _madvise(advice: Advice, flag: str, action: Action) -> Action:
    case = advice.case
    lines = action.setting_lines
    if case.region is None or not case.bytes:
        # A region of a trace without mappings has references but no extent.
        call = f"madvise(address, bytes, {flag});"
        return replace(action, command="\n".join([*lines, call]))
    where = f"{case.region}, {format_bytes(case.bytes)} at {case.start:#x} in this run"
    call = f"madvise(address, {case.bytes}, {flag});"
    command = "\n".join([*lines, call])
    return replace(action, text=f"{action.text} Here: {where}.", command=command)


def _keep_small(
    advice: Advice, host: HugePages, program: str, limits: Thresholds
) -> Iterator[Action]:
    """How to keep off huge pages, where they come unasked and would cost memory."""
    case = advice.case
    if case.stream != "data" or case.path is not None or case.region_kind == "shared":
        return
    huge = next((point for point in case.points if point.page_size == PMD_PAGE), None)
    unasked = host.thp_sizes.get(PMD_PAGE) == "always"
    if huge is None or not unasked or is_allowed(case, huge, limits):
        return
    grown = f"2 MiB pages come unasked here and would grow it by {format_share(huge.growth)}"
    if case.region is not None:
        text = f"{grown}; this keeps them off."
        yield _madvise(advice, "MADV_NOHUGEPAGE", Action("madvise", text))
        return
    prefix, what = keep_small_prefix(host)
    action = Action("prctl", f"{grown}; {what}", name="thp-disable", prefix=prefix)
    yield action.for_program(program)
