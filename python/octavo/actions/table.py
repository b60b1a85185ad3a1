"""Reads the table of actions (`runtimes.toml`), and selects the lines that apply to a program."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, get_args

from octavo.actions.model import Action, own_command, sized
from octavo.actions.settings import (
    Settings,
    needed_for_all,
    needed_for_shared,
    needed_pool,
    needed_to_ask,
)
from octavo.base.huge_pages import HugePages
from octavo.base.toml import read_toml
from octavo.base.units import page_size
from octavo.runtimes.detect import Runtime, title

TABLE = Path(__file__).parent / "runtimes.toml"

Reach = Literal["heap", "shared", "text"]
Needed = Literal["none", "ask", "ask-exactly", "all", "ask+shared-advise", "shared-always", "pool"]
When = Literal["arenas", "blocks"]

_MAY_MISS = (
    "In a few starts a glibc before 2.38 does not see that `enabled` is `madvise`, and asks for "
    "nothing: then `grep -c 'VmFlags.* hg' /proc/PID/smaps` gives 0; start the program again, or "
    "preload the library instead."
)
_ONLY_MALLOC = (
    "It reaches memory of malloc alone: none that the program, or a library of it, maps by itself."
)
_FACTS = {
    "glibc-hugetlb-tunable": "a glibc with the tunable glibc.malloc.hugetlb (2.35 and later)",
    "small-pieces": "memory that it maps in pieces below 2 MiB",
}
"""Facts of a program in words, where these are not its name."""
Share = Literal["little", "much", "most"]


@dataclass(frozen=True)
class Subject:
    """The subject of an action: a program, and facts that a run of it showed."""

    runtime: Runtime
    words: tuple[str, ...] = ()
    """Its command line; empty where it is not known."""
    is_started_directly: bool = True
    """Whether the command line starts the program itself, and no script or shell that starts it."""
    arenas: bool = False
    """Whether arenas of threads hold much of its memory."""
    blocks: bool = False
    """Whether blocks below 4 MiB that malloc mapped one by one hold much of it."""
    static: Share = "little"
    """Share of its data misses in static variables of the program and of libraries."""
    mapped: Share = "little"
    """Share of its data misses in mappings that it may have made itself, without glibc's malloc."""
    shared: bool = False
    """Whether shared memory holds most of its data."""
    refuses: bool = False
    """Whether it asks for no huge pages (MADV_NOHUGEPAGE) in the memory of the advice, or most."""
    stack: bool = False
    """Whether growing stacks, those of main threads, have most of its data misses."""
    all_stacks: bool = False
    """Whether these and the stacks of other threads have most of its data misses."""
    file: str = ""
    """The file with most data, where files hold more than its own memory and shared memory, and
    have most of its data misses."""
    pool_pages: int = 0
    """Pages of hugetlbfs that its memory takes; 0 where that is not known."""
    untouched_pages: int = 0
    """Huge pages that malloc reserves beside those of touched memory."""


def is_shared_memory(kind: str | None, path: str | None) -> bool:
    """Whether a region is shared memory on no mounted file system: MAP_SHARED without a file,
    System V shared memory, or a file of memfd_create.
    """
    return kind == "shared" or (path or "").startswith(("/memfd:", "/SYSV"))


def in_large_pieces(subject: Subject) -> Subject:
    """The subject for a mapping that is large enough for 2 MiB pages, in a runtime that maps most
    memory in small pieces.
    """
    facts = subject.runtime.facts - {"small-pieces"}
    return replace(subject, runtime=replace(subject.runtime, facts=facts))


@dataclass(frozen=True)
class Addition:
    """A value that is appended to a variable where the run showed a fact."""

    when: When
    variable: str
    value: str
    text: str


@dataclass(frozen=True)
class Where:
    """Conditions; one that is absent holds."""

    kernel: tuple[int, ...] = ()
    version: tuple[int, ...] = ()
    allocator_version: tuple[int, ...] = ()
    before: tuple[int, ...] = ()
    enabled: tuple[str, ...] = ()
    facts: frozenset[str] = frozenset()
    without: frozenset[str] = frozenset()
    command: str = ""

    def unmet(self, subject: Subject, host: HugePages) -> str | None:
        """The first condition that does not hold, as a clause; None where all hold. A version that
        is not known is taken for a recent one.
        """
        runtime = subject.runtime
        version, allocator = runtime.version, runtime.allocator_version
        missing, unwanted = self.facts - runtime.facts, self.without & runtime.facts
        if host.kernel < self.kernel:
            return f"it needs Linux {_dotted(self.kernel)} or later"
        if version and version < self.version:
            return f"it needs {_versioned(runtime.kind, self.version)} or later{_here(version)}"
        if allocator and allocator < self.allocator_version:
            needed = _versioned(runtime.allocator, self.allocator_version)
            return f"it needs {needed} or later{_here(allocator)}"
        if self.before and (version or allocator) >= self.before:
            name = runtime.kind if version else runtime.allocator
            needed = _versioned(name, self.before)
            return f"it needs a version before {needed}{_here(version or allocator)}"
        if self.enabled and host.thp not in self.enabled:
            values = " or ".join(self.enabled)
            return f"it needs transparent_hugepage/enabled to be {values}, which is {host.thp}"
        if missing:
            return f"it needs {_facts(missing)}"
        if unwanted:
            return f"it is not for a program with {_facts(unwanted)}"
        if self.command and not has_command(self.command):
            return f"this Octavo has no `octavo {self.command}`"
        return None


def _dotted(version: Sequence[int]) -> str:
    return ".".join(map(str, version))


def _versioned(name: str, version: Sequence[int]) -> str:
    return f"{title(name)} {_dotted(version)}"


def _here(version: Sequence[int]) -> str:
    return f" (here: {_dotted(version)})"


def _facts(facts: frozenset[str]) -> str:
    return ", ".join(_FACTS.get(fact, fact.replace("-", " ")) for fact in sorted(facts))


@dataclass(frozen=True)
class Line:
    """One action of the table; its head describes the columns."""

    name: str
    names: frozenset[str]
    kind: str
    reaches: Reach
    pages: tuple[int, ...]
    """Empty: every size of transparent huge pages."""
    needed: Needed
    text: str
    environment: Mapping[str, str] = field(default_factory=dict)
    arguments: tuple[str, ...] = ()
    prefix: tuple[str, ...] = ()
    instead: Mapping[str, str] = field(default_factory=dict)
    """Variables in place of the arguments, for a program that another one starts."""
    where: Where = Where()
    add: tuple[Addition, ...] = ()
    danger: str = ""
    only_malloc: bool = False
    """Whether it leaves out mappings that the program made without glibc's malloc."""

    def gives(self, host: HugePages) -> list[int]:
        """The page sizes that it can give on this kernel, in bytes."""
        sizes = host.thp_sizes if self.needed != "pool" else host.hugetlb_sizes
        return sorted(size for size in sizes if not self.pages or size in self.pages)

    def action(self, subject: Subject, host: HugePages, size: int) -> Action | None:
        """The action for pages of `size` bytes; None where this kernel has no such setting."""
        settings = self._settings(subject, host, size)
        if settings is None:
            return None
        environment = {
            name.format(malloc_conf=subject.runtime.malloc_conf): value
            for name, value in self.environment.items()
        }
        texts = [self.text]
        arguments = self.arguments
        if arguments and not subject.is_started_directly:
            arguments = ()
            environment |= self.instead
            name = Path(subject.runtime.program).name
            if not self.instead:
                texts.append(f"Give {name} these options: {' '.join(self.arguments)}.")
        for addition in self.add:
            if getattr(subject, addition.when):
                environment[addition.variable] += addition.value
                texts.append(addition.text)
        if self.only_malloc and subject.mapped != "little":
            texts.append(_ONLY_MALLOC)
        may_miss = (
            self.needed == "ask-exactly" and "glibc-may-miss-madvise" in subject.runtime.facts
        )
        caution = " ".join(filter(None, (_MAY_MISS if may_miss else "", self.danger)))
        return Action(
            kind=self.kind,
            text=" ".join(filter(None, (*texts, caution))),
            caution=caution,
            name=sized(self.name, size),
            page_size=size,
            environment=environment,
            arguments=arguments,
            prefix=(*own_command(), *self.prefix[1:]) if self.prefix else (),
            settings=settings,
            now={path: host.settings[path] for path in settings},
        )

    def _settings(self, subject: Subject, host: HugePages, size: int) -> Settings | None:
        if self.needed == "none":
            return {}
        if self.needed == "all":
            return needed_for_all(host, size)
        if self.needed == "shared-always":
            return needed_for_shared(host, "always")
        if self.needed == "pool":
            return needed_pool(host, subject.pool_pages, size) if subject.pool_pages else None
        # Redis switches huge pages off for itself where they are `always` (disable-thp).
        exactly = self.needed == "ask-exactly" or subject.runtime.kind == "redis"
        asked = needed_to_ask(host, size, exactly=exactly)
        if asked is None or self.needed != "ask+shared-advise":
            return asked
        shared = needed_for_shared(host, "advise")
        return None if shared is None else {**asked, **shared}


def lines_for(subject: Subject, host: HugePages, reaches: Reach) -> Iterator[Line]:
    """The lines that apply to this memory of the program, the one to prefer first."""
    for line in table():
        if line.reaches == reaches and why_not(line, subject, host) is None:
            yield line


def why_not(line: Line, subject: Subject, host: HugePages) -> str | None:
    """Why a line does not apply to the program, as a clause; None where it does.

    Where the runtime has lines of its own, lines of the allocator below it are left out: they do
    not reach the memory that the runtime manages itself.
    """
    runtime = subject.runtime
    if not line.names.intersection(runtime.names):
        if "dynamic" in line.names:
            return "it is statically linked, so no library can be preloaded into it"
        names = " or ".join(sorted(map(title, line.names)))
        return f"it is for programs with {names} (recognised here: {runtime})"
    if (
        line.needed != "none"
        and runtime.kind not in line.names
        and any(
            one.reaches == line.reaches and one.needed != "none" and runtime.kind in one.names
            for one in table()
        )
    ):
        return f"{title(runtime.kind)} manages this memory itself, and has settings of its own"
    return line.where.unmet(subject, host)


@lru_cache(maxsize=1)
def table() -> tuple[Line, ...]:
    """Every line of the table."""
    return tuple(map(_line, read_toml(TABLE)["action"]))


def _line(record: dict[str, Any]) -> Line:
    given = dict(record)
    pages: Sequence[str] = given.pop("pages")
    return Line(
        name=given.pop("name"),
        names=frozenset(given.pop("for")),
        kind=given.pop("kind"),
        reaches=_one_of(given.pop("reaches"), get_args(Reach)),
        pages=() if pages == ["any"] else tuple(map(page_size, pages)),
        needed=_one_of(given.pop("settings"), get_args(Needed)),
        text=given.pop("text"),
        arguments=tuple(given.pop("arguments", ())),
        prefix=tuple(given.pop("prefix", ())),
        where=_where(given.pop("where", {})),
        add=tuple(Addition(**addition) for addition in given.pop("add", ())),
        **given,
    )


def _where(record: dict[str, Any]) -> Where:
    versions = ("kernel", "version", "allocator_version", "before")
    lists = {"enabled": tuple, "facts": frozenset, "without": frozenset}
    read: dict[str, Any] = {}
    for name, value in record.items():
        if name in versions:
            read[name] = tuple(int(part) for part in value.split("."))
        else:
            read[name] = lists.get(name, str)(value)
    return Where(**read)


def _one_of(word: str, allowed: tuple[Any, ...]) -> Any:
    if word not in allowed:
        raise ValueError(f"{TABLE.name}: `{word}` is none of {', '.join(allowed)}")
    return word


def has_command(name: str) -> bool:
    """Whether this Octavo has a command of that name."""
    return importlib.util.find_spec(f"octavo.cli.{name}") is not None
