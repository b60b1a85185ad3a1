"""The configuration of a simulation, resolved to plain values and checked before it starts."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import octavo._core as _core
from octavo.base.errors import UsageError, check_range, choose
from octavo.base.text import plural
from octavo.base.toml import toml_value
from octavo.hardware.machines import Setting, check_texts, named_machine, setting_texts
from octavo.simulation.execution_time import Measured, read_measured
from octavo.simulation.python_design import Design, for_core, name_of
from octavo.tracing.scope import (
    KERNEL_NOTE,
    MOST_INSTRUCTIONS,
    SHARED_THREADS_NOTE,
    SharedScope,
    choose_processes,
    resolve_scope,
    time_slicing_note,
)

if TYPE_CHECKING:
    from octavo._core import SimResult

DEFAULT_MACHINE = "skylake"
DEFAULT_DESIGNS = ("base4k", "thp")
ADDITIVE, OVERLAPPED, OUT_OF_ORDER = "additive", "overlapped", "out-of-order"
BY_STREAM = "auto"
"""Selects OUT_OF_ORDER where the machine describes its core and the stream has register
dependences, else ADDITIVE."""
TIMINGS = (BY_STREAM, ADDITIVE, OVERLAPPED, OUT_OF_ORDER)
LEAST_INTERVAL_INSTRUCTIONS = 1000
"""Least length of an interval, which ends with a straight run of some tens of instructions."""

ADDITIVE_NOTE = (
    "Cycles are added up: the base CPI, what TLBs and walks cost, what misses of caches cost. An "
    "out-of-order core overlaps walks with other work, and misses of data with each other; neither "
    "is simulated, so the share of translation may come out too high or too low, and relative "
    "times are estimates and not predictions."
)
OVERLAPPED_NOTE = (
    "Cycles are added up, except for walks, which take the least time that the machine's walkers "
    "allow: as if walks did not depend on each other and every walker were always busy. All other "
    "latencies count in full, and relative times are estimates and not predictions."
)
CORE_NOTE = (
    "Cycles are those of the machine's core model, which executes the instructions out of order by "
    "their register dependences. Times of a real core differ: the model executes at most the part "
    "of a wrong path that the right path shares with it (core.pipeline.wrong_paths), and "
    "prefetches lines only if the machine has prefetchers. The sum of all latencies is reported "
    "too."
)
SYSTEM_NOTE = (
    "The operating system's work (faults, zeroing, copying, promotions) is counted and costs no "
    "cycles. A page that faults is walked again after the fault, and a store may walk to set a "
    "dirty bit, so page walks can be more than misses of the last TLB level."
)
GUEST_NOTE = (
    "Programs run in the guest of a virtual machine: the machine's memory and policies are the "
    "guest's, and the host has its own. Exits to the host are counted and cost no cycles, and the "
    "guest's operating system touches only the memory of page tables."
)
EMPTY_GUEST_NOTE = (
    "The guest's memory begins empty, so that its 4 KiB pages are contiguous. On a machine that "
    "has run for some time they are scattered, and their walks cost more: see memory.fragmentation."
)
OWN_NOTE = (
    "Each design has its own operating system, memory and caches. Each process image has its own "
    "machine for each design, with the memory that the machine describes."
)


@dataclass(frozen=True)
class SimConfiguration(SharedScope):
    """A resolved simulation: equal configurations on the same stream give the same rows."""

    designs: tuple[str, ...]
    machine_json: str = field(repr=False)
    """The machine with every key, as canonical JSON."""
    machine_hash: str
    settings: tuple[str, ...]
    """The given settings of the machine as `KEY=VALUE`, without options that are short for some."""
    warm_up_instructions: int
    """Instructions that are simulated and not counted."""
    fast_forward: bool
    """Whether the warm-up is simulated without the core model."""
    interval_instructions: int | None
    checked: bool
    """Whether each translation is compared with the page table's."""
    timing: str
    """The way in which cycles are computed: one of `TIMINGS`."""
    measured: Measured | None
    """Measurements of the program on a real machine."""
    core_analysis: _core.Analysis[SimResult]
    """The analysis for the extension to run."""

    @property
    def machine(self) -> dict[str, Any]:
        """The machine with every key."""
        machine: dict[str, Any] = json.loads(self.machine_json)
        return machine

    @property
    def base_cpi(self) -> float:
        """Cycles per instruction of a core without stalls."""
        return float(self.machine["core"]["base_cpi"])

    @property
    def is_virtualised(self) -> bool:
        """Whether programs run in a guest."""
        return "host" in self.machine

    @property
    def counts_instructions(self) -> str | None:
        """The option that needs a trace with instructions, if there is one."""
        warm_up = "--warm-up" if self.warm_up_instructions else None
        interval = None if self.interval_instructions is None else "--interval"
        return super().counts_instructions or warm_up or interval

    @property
    def uncounted(self) -> str | None:
        """The part before counting starts."""
        if not self.warm_up_instructions:
            return super().uncounted
        before = self.skip_instructions + self.warm_up_instructions
        return f"{before:,} {plural(before, 'instruction')} to skip and to warm up with"

    def resolved(self) -> dict[str, Any]:
        """Plain data, for the manifest."""
        return {
            "designs": list(self.designs),
            "machine": self.machine,
            "machine_hash": self.machine_hash,
            "warm_up_instructions": self.warm_up_instructions,
            "fast_forward": self.fast_forward,
            "interval_instructions": self.interval_instructions,
            "checked": self.checked,
            "timing": self.timing,
            "processes": self.processes,
            "quantum_instructions": self.quantum_instructions,
            "first_quantum_instructions": self.first_quantum_instructions,
            "measured": None if self.measured is None else self.measured.resolved(),
            **super().resolved(),
        }

    def notes(self) -> list[str]:
        """The assumptions and limits of the model, a sentence each."""
        first = self.warm_up_instructions
        warm = (
            f"The first {first} {plural(first, 'instruction')} of "
            f"{'each process image' if self.processes == 'apart' else 'all of them together'} "
            f"{'is' if first == 1 else 'are'} simulated and not counted"
            f"{', and no core executes them' if self.fast_forward else ''}."
        )
        return [
            *([] if self.measured is None else [self.measured.note()]),
            SYSTEM_NOTE,
            *self._guest_notes(),
            *self._sharing_notes(),
            self._threads_note(),
            KERNEL_NOTE,
            *([warm] if self.warm_up_instructions else []),
        ]

    def _guest_notes(self) -> Iterator[str]:
        if self.is_virtualised:
            yield GUEST_NOTE
            if self.machine["memory"]["fragmentation"]["kind"] == "empty":
                yield EMPTY_GUEST_NOTE

    def _threads_note(self) -> str:
        cores = self.machine["core"]["count"]
        if cores == 1:
            return SHARED_THREADS_NOTE
        owner = "a process" if self.processes == "apart" else "all processes"
        return (
            f"Threads of {owner} are placed on the {cores} cores one after another, as they are "
            "first seen, and run one at a time, in the order in which they were traced."
        )

    def _sharing_notes(self) -> Iterator[str]:
        if self.processes != "apart":
            cores = self.machine["core"]["count"]
            translations = "tagged with identifiers"
            if self.processes == "flush":
                translations = "flushed at a switch"
                if cores > 1:
                    translations += (
                        " of a core to another process, which is rare if each process has a core"
                    )
            yield time_slicing_note(self, cores)
            yield f"Each design has one machine for all of them; translations are {translations}."
        else:
            yield OWN_NOTE

    def analysis(self) -> _core.Analysis[SimResult]:
        """The analysis for the extension to run."""
        return self.core_analysis


def configure_sim(
    *,
    machine: str = DEFAULT_MACHINE,
    designs: Sequence[str | type[Design]] = DEFAULT_DESIGNS,
    settings: Mapping[str, Setting] | Sequence[str] = (),
    warm_up: int = 0,
    fast_forward: bool = False,
    interval: int | None = None,
    check: bool = False,
    timing: str = BY_STREAM,
    cores: int | None = None,
    virtualised: bool = False,
    host_policy: str | None = None,
    perf_4k: str | None = None,
    perf_thp: str | None = None,
    processes: str = "apart",
    quantum: int | None = None,
    first_quantum: int | None = None,
    **scope: Any,
) -> SimConfiguration:
    """Checks the choices against each other and fills in the defaults. Raises UsageError.

    `settings` change the machine, as `{"tlb.l2.main.entries": 2048}` or as `KEY=VALUE`.
    `timing` is one of `TIMINGS`; `cores` is the number of cores; `virtualised` adds a host to the
    machine, and so does `host_policy`, the page-size policy of that host. `scope` are the arguments
    of `octavo.tracing.scope.resolve_scope`.
    """
    resolved = resolve_scope(**scope)
    shared = choose_processes(processes, quantum, first_quantum)
    names = tuple(dict.fromkeys(map(name_of, designs)))
    measured = read_measured(perf_4k, perf_thp, names)
    if isinstance(settings, Mapping):
        settings = setting_texts(settings)
    given = tuple(settings)
    settings = [*short_settings(cores, virtualised, host_policy), *given]
    chosen = tuple(dict.fromkeys(designs))
    if len(names) < len(chosen):
        raise UsageError("two designs in Python have the same name: give them different ones.")
    if not all(names) or not names:
        known = ", ".join(name for name, _ in _core.designs())
        mistake = "the name of a design is empty" if names else "no design is named"
        raise UsageError(f"{mistake}: give one of {known}.")
    check_texts(machine, *names, *settings)
    choose(timing, TIMINGS, "--timing")
    most, what = MOST_INSTRUCTIONS, "instructions"
    check_range("--warm-up", warm_up, 0, most, what)
    if fast_forward and not warm_up:
        raise UsageError("--fast-forward needs --warm-up.")
    check_range("--interval", interval, LEAST_INTERVAL_INSTRUCTIONS, most, what)
    try:
        analysis = _core.Analysis.sim(
            machine=named_machine(machine),
            settings=list(settings),
            designs=[for_core(design) for design in chosen],
            layout=resolved["layout"],
            warm_up_instructions=warm_up,
            fast_forward=fast_forward,
            interval_instructions=interval,
            checked=check,
            timing=ADDITIVE if timing == OVERLAPPED else timing,
            processes=shared["processes"],
        )
    except (_core.OctavoError, ValueError) as error:
        if error.__cause__ is not None:
            raise  # An error from a design in Python.
        raise UsageError(_as_asked(str(error), host_policy)) from None
    assert analysis.machine is not None, "it is a simulation's"
    text, digest = analysis.machine
    made = SimConfiguration(
        designs=names,
        machine_json=text,
        machine_hash=digest,
        settings=given,
        warm_up_instructions=warm_up,
        fast_forward=fast_forward,
        interval_instructions=interval,
        checked=check,
        timing=timing,
        measured=measured,
        core_analysis=analysis,
        **shared,
        **resolved,
    )
    if (virtualised or host_policy is not None) and not made.is_virtualised:
        asked = "--virtualised" if virtualised else "--host-policy"
        raise UsageError(f"{asked} wants a host, and `--set host=none` removes it: leave out one.")
    return made


def short_settings(
    cores: int | None = None, virtualised: bool = False, host_policy: str | None = None
) -> Iterator[str]:
    """The settings for which options stand. Raises UsageError."""
    check_range("--cores", cores, 1, _core.MAX_CORES)
    if cores is not None:
        yield f"core.count={cores}"
    if virtualised or host_policy is not None:
        yield "host=usual"
    if host_policy is not None:
        yield f"host.policy={toml_value(host_policy)}"


def _as_asked(sentence: str, host_policy: str | None) -> str:
    """An error about a setting, with the option in place of the setting that it stands for."""
    if host_policy is None:
        return sentence
    setting = f"--set: host.policy = {toml_value(host_policy)}"
    return sentence.replace(setting, f"--host-policy {host_policy}")
