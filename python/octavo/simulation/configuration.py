"""The configuration of a simulation, resolved to plain values and checked before it starts."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import octavo._core as _core
from octavo.base.errors import UsageError
from octavo.base.toml import toml_value
from octavo.hardware.machines import Setting, check_texts, setting_texts
from octavo.simulation.execution_time import SIMULATED, Measured, read_measured
from octavo.tracing.scope import (
    KERNEL_NOTE,
    MOST_INSTRUCTIONS,
    SHARED_THREADS_NOTE,
    Processes,
    Scope,
    choose_processes,
    resolve_scope,
    time_slicing_note,
)

if TYPE_CHECKING:
    from octavo._core import SimResult

DEFAULT_MACHINE = "skylake"
DEFAULT_DESIGNS = ("base4k", "thp")
LEAST_INTERVAL_INSTRUCTIONS = 1000
"""An interval ends where a straight run of instructions does, and those are some tens."""

ADDITIVE_NOTE = (
    "Cycles are added up: the base CPI, what TLBs and walks cost, what misses of caches cost. An "
    "out-of-order core overlaps walks with other work, and misses of data with each other; neither "
    "is simulated, so the share of translation may come out too high or too low, and relative "
    "times are estimates, no predictions."
)
SYSTEM_NOTE = (
    "The operating system's work (faults, zeroing, copying, promotions) is counted and costs no "
    "cycles."
)
GUEST_NOTE = (
    "Programs run in the guest of a virtual machine: the machine's memory and policies are the "
    "guest's, and the host has its own. Exits to the host are counted and cost no cycles, and the "
    "guest's operating system touches no memory but page tables."
)
OWN_NOTE = (
    "Each design has an operating system, a memory and caches of its own, and each process image "
    "machines of its own, with memory as the machine says."
)


@dataclass(frozen=True)
class SimConfiguration(Scope):
    """Resolved: two equal configurations on the same stream give the same rows."""

    designs: tuple[str, ...]
    machine_json: str
    """The machine with every key, as canonical JSON."""
    machine_hash: str
    warm_up_instructions: int
    """Simulated and not counted."""
    interval_instructions: int | None
    checked: bool
    """Whether each translation is compared with the page table's."""
    processes: Processes
    """Each has machines of its own, or all share one."""
    quantum_instructions: int
    """The quantum."""
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
        """Cycles per instruction of a core that never waits."""
        return float(self.machine["core"]["base_cpi"])

    @property
    def shared_quantum_instructions(self) -> int | None:
        """The quantum, if the processes of all traces share a core."""
        return None if self.processes == "apart" else self.quantum_instructions

    @property
    def is_virtualised(self) -> bool:
        """Whether programs run in a guest."""
        return "host" in self.machine

    @property
    def counts_instructions(self) -> str | None:
        """The option that wants a trace to have instructions, if any does."""
        if self.processes != "apart":
            return f"--processes {self.processes}"
        if self.warm_up_instructions:
            return "--warm-up"
        return None if self.interval_instructions is None else "--interval"

    @property
    def uncounted(self) -> str | None:
        """The part before counting starts."""
        if not self.warm_up_instructions:
            return super().uncounted
        before = self.skip_instructions + self.warm_up_instructions
        return f"{before} instructions to skip and to warm up with"

    def resolved(self) -> dict[str, Any]:
        """Plain data, for the manifest."""
        return {
            "designs": list(self.designs),
            "machine": self.machine,
            "machine_hash": self.machine_hash,
            "warm_up_instructions": self.warm_up_instructions,
            "interval_instructions": self.interval_instructions,
            "checked": self.checked,
            "processes": self.processes,
            "quantum_instructions": self.quantum_instructions,
            "measured": None if self.measured is None else self.measured.resolved(),
            **super().resolved(),
        }

    def notes(self) -> list[str]:
        """The assumptions and limits of the model, a sentence each."""
        warm = (
            f"The first {self.warm_up_instructions} instructions of "
            f"{'each process image' if self.processes == 'apart' else 'all of them together'} are "
            "simulated and not counted."
        )
        return [
            ADDITIVE_NOTE,
            SIMULATED,
            *([] if self.measured is None else [self.measured.note()]),
            SYSTEM_NOTE,
            *([GUEST_NOTE] if self.is_virtualised else []),
            *self._sharing_notes(),
            self._threads_note(),
            KERNEL_NOTE,
            *([warm] if self.warm_up_instructions else []),
        ]

    def _threads_note(self) -> str:
        cores = self.machine["core"]["count"]
        if cores == 1:
            return SHARED_THREADS_NOTE
        return (
            f"Threads of a process are placed on the {cores} cores one after another, as they are "
            "first seen, and run one at a time, in the order in which they were traced."
        )

    def _sharing_notes(self) -> Iterator[str]:
        if self.processes != "apart":
            translations = (
                "tagged with identifiers" if self.processes == "asid" else "flushed at a switch"
            )
            yield time_slicing_note(self.quantum_instructions)
            yield f"Each design has one machine for all of them; translations are {translations}."
        else:
            yield OWN_NOTE

    def analysis(self) -> _core.Analysis[SimResult]:
        """The analysis for the extension to run."""
        return self.core_analysis


def configure_sim(
    *,
    machine: str = DEFAULT_MACHINE,
    designs: Sequence[str] = DEFAULT_DESIGNS,
    settings: Mapping[str, Setting] | Sequence[str] = (),
    warm_up: int = 0,
    interval: int | None = None,
    check: bool = False,
    cores: int | None = None,
    virtualised: bool = False,
    host_policy: str | None = None,
    perf_4k: str | None = None,
    perf_thp: str | None = None,
    processes: str = "apart",
    quantum: int | None = None,
    **scope: Any,
) -> SimConfiguration:
    """Checks the choices against each other and fills in the defaults. Raises UsageError.

    `settings` change the machine, as `{"tlb.l2.main.entries": 2048}` or as `KEY=VALUE`.
    `cores` is how many cores it has; `virtualised` gives it a host, and so does `host_policy`,
    which is that host's. `scope` is what `octavo.tracing.scope.resolve_scope` takes.
    """
    resolved = resolve_scope(**scope)
    sharing, quantum_instructions = choose_processes(processes, quantum)
    measured = read_measured(perf_4k, perf_thp, designs)
    if isinstance(settings, Mapping):
        settings = setting_texts(settings)
    settings = [*_core_settings(cores), *_host_settings(virtualised, host_policy), *settings]
    chosen = tuple(dict.fromkeys(designs))
    if not all(chosen) or not chosen:
        names = ", ".join(name for name, _ in _core.designs())
        raise UsageError(f"--design is empty: give some of {names}.")
    check_texts(machine, *chosen, *settings)
    if not 0 <= warm_up <= MOST_INSTRUCTIONS:
        raise UsageError(f"--warm-up {warm_up}: give instructions from 0 to {MOST_INSTRUCTIONS}.")
    if interval is not None and not LEAST_INTERVAL_INSTRUCTIONS <= interval <= MOST_INSTRUCTIONS:
        raise UsageError(
            f"--interval {interval}: give instructions from {LEAST_INTERVAL_INSTRUCTIONS} to "
            f"{MOST_INSTRUCTIONS}."
        )
    try:
        analysis = _core.Analysis.sim(
            machine=machine,
            settings=list(settings),
            designs=list(chosen),
            layout=resolved["layout"],
            warm_up_instructions=warm_up,
            interval_instructions=interval,
            checked=check,
            processes=sharing,
        )
    except (_core.OctavoError, ValueError) as error:
        raise UsageError(_as_asked(str(error), host_policy)) from None
    assert analysis.machine is not None, "it is a simulation's"
    text, digest = analysis.machine
    return SimConfiguration(
        designs=chosen,
        machine_json=text,
        machine_hash=digest,
        warm_up_instructions=warm_up,
        interval_instructions=interval,
        checked=check,
        processes=sharing,
        quantum_instructions=quantum_instructions,
        measured=measured,
        core_analysis=analysis,
        **resolved,
    )


def _core_settings(cores: int | None) -> Iterator[str]:
    """The settings that give a machine so many cores. Raises UsageError."""
    if cores is None:
        return
    if not 1 <= cores <= _core.MAX_CORES:
        raise UsageError(f"--cores {cores}: give a number from 1 to {_core.MAX_CORES}.")
    yield f"core.count={cores}"


def _host_settings(virtualised: bool, policy: str | None) -> Iterator[str]:
    """The settings that give a machine a host."""
    if virtualised or policy is not None:
        yield "host=usual"
    if policy is not None:
        yield f"host.policy={toml_value(policy)}"


def _as_asked(sentence: str, host_policy: str | None) -> str:
    """The sentence on a setting, with the option that it came from."""
    if host_policy is None:
        return sentence
    setting = f"--set: host.policy = {toml_value(host_policy)}"
    return sentence.replace(setting, f"--host-policy {host_policy}")


def names_in(texts: Iterable[str]) -> list[str]:
    """The names in several texts, each with commas between some."""
    return [name.strip() for text in texts for name in text.split(",")]
