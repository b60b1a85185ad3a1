"""Settings of a machine that change no number of a simulation, and why."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

import octavo._core as _core
from octavo.base.text import quoted
from octavo.simulation.configuration import OUT_OF_ORDER, SimConfiguration
from octavo.simulation.timing import Timing

_OF_CORES = re.compile(
    r"core\.pipeline\.(?!frequency_ghz)|(host\.)?(memory\.tiers\.[^.]+\.)?dram(\.|$)"
    r"|cache\.others_fill_every_cycles"
)
"""Keys that out-of-order timing alone uses. (The clock also makes cycles of nanoseconds.)"""


def unused_settings(configuration: SimConfiguration, timing: Timing) -> Iterator[str]:
    """A sentence for each setting that was given and has no effect."""
    for setting in configuration.settings:
        why = _why_unused(setting.partition("=")[0].strip(), configuration, timing)
        if why is not None:
            yield f"The setting `{quoted(setting)}` has no effect in this run: {why}."
    for design in configuration.designs:
        for setting in design.split(":")[1:]:
            users = _designs_with(setting.partition("=")[0])
            if users and _hardware(design) not in users:
                yield (
                    f"The setting `{quoted(setting)}` of `{quoted(design)}` has no effect in this "
                    f"run: the design does not use it (it affects {', '.join(sorted(users))})."
                )


def _why_unused(key: str, configuration: SimConfiguration, timing: Timing) -> str | None:
    """Why a key has no effect, as the end of a sentence; None where it may have one."""
    designs = _designs_with(key)
    if designs and not designs & set(map(_hardware, configuration.designs)):
        return f"no design that uses it is simulated ({', '.join(sorted(designs))})"
    if timing.name != OUT_OF_ORDER and _OF_CORES.match(key):
        return f"only out-of-order timing uses it, and cycles are {timing.name} ({timing.reason})"
    if key == "core.address_spaces" and configuration.processes == "apart":
        return "each process has machines of its own, where nothing switches processes"
    return None


def _designs_with(key: str) -> set[str]:
    """The hardware that a key, or a table of keys, of designs affects; all that has the first table
    of a key without a default. Empty for a key of the machine that all designs share.
    """
    known = _designs_by_key()
    table = key.partition(".")[0]
    for given in (key, table):
        found = {
            hardware
            for one, designs in known.items()
            if f"{one}.".startswith(f"{given}.") or f"{given}.".startswith(f"{one}.")
            for hardware in designs
        }
        if found:
            return found
    return set()


@cache
def _designs_by_key() -> dict[str, set[str]]:
    """The hardware that each key of the tables of designs affects."""
    keys: dict[str, set[str]] = {}
    for name, _ in _core.designs():
        explained = _core.explain_design(name)
        for key, _ in explained[4] if explained else ():
            keys.setdefault(key, set()).add(_hardware(name))
    return keys


def _hardware(design: str) -> str:
    """The hardware of a design: that of its name, or the first part of `HARDWARE+POLICY`."""
    name = design.partition(":")[0]
    explained = _core.explain_design(name)
    return name.partition("+")[0] if explained is None else explained[0]
