"""The plan of a sweep: a simulation for each combination, with its labels."""

from __future__ import annotations

import itertools
import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass
from typing import Any

from octavo.base.errors import UsageError
from octavo.base.text import quoted
from octavo.hardware.machines import Setting
from octavo.simulation.python_design import Design, name_of
from octavo.sweeps.content import trace_hash
from octavo.sweeps.python_design import pack
from octavo.sweeps.simulation import (
    MACHINE_CHOICES,
    Machine,
    Simulation,
    TraceContent,
    TraceFile,
    resolve_counting,
    resolve_on,
)
from octavo.traces.by_name import check_applies, check_format, format_among

MOST_PLANNED = 1_000_000
"""Limit of simulations in a plan."""
SEED_KEY = "memory.fragmentation.seed"
"""The setting that seeds change: the random placement of memory in use at the start."""
LABELS = ("trace", "machine", "design", "seed")
"""Label columns of every table; columns of settings follow them."""
Names = str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | Mapping[str, Any]
Traces = Mapping[str, str | Sequence[str]]
"""Traces by name; a list stands for several traces whose processes share machines."""
Variants = Mapping[str, "Setting | Sequence[Setting]"] | Sequence[Mapping[str, Setting]]


@dataclass(frozen=True)
class Planned:
    """A simulation with its labels."""

    labels: Mapping[str, Any]
    """Values by column: `LABELS`, and the settings."""
    simulation: Simulation


@dataclass(frozen=True)
class Plan:
    """All simulations of a sweep, in order."""

    planned: tuple[Planned, ...]

    @property
    def simulations(self) -> list[Simulation]:
        """The simulations without duplicates, as several combinations may mean the same one."""
        return list({one.simulation.key: one.simulation for one in self.planned}.values())

    @property
    def settings(self) -> list[str]:
        """The columns of settings, in order."""
        names = dict.fromkeys(name for one in self.planned for name in one.labels)
        return [name for name in names if name not in LABELS]


@dataclass(frozen=True)
class Combination:
    """One trace, machine and design, with settings of the machine."""

    trace: str
    machine: str
    design: str | type[Design]
    settings: Mapping[str, Setting]
    seed: int | None = None


def named(given: Names, what: str) -> dict[str, str]:
    """The given texts by name; a text without a name is its own name. Raises UsageError."""
    if isinstance(given, str | os.PathLike):
        given = [given]
    values = list(given.values() if isinstance(given, Mapping) else given)
    for value in values:
        if not isinstance(value, str | os.PathLike):
            raise UsageError(
                f"{what}: `{quoted(repr(value))}` is not a name: give a string or a path."
            )
    names = map(str, given) if isinstance(given, Mapping) else map(os.fspath, values)
    found = dict(zip(names, map(os.fspath, values), strict=True))
    if not found or not all(found.values()):
        raise UsageError(f"a sweep needs {what}.")
    return found


def named_traces(given: Names) -> dict[str, str | Sequence[str]]:
    """Traces by name, like `named`; a mapping may have lists of traces. Raises UsageError."""
    if not isinstance(given, Mapping):
        return {**named(given, "traces")}
    lists = {
        str(name): value if isinstance(value, list | tuple) else [value]
        for name, value in given.items()
    }
    for values in [*lists.values()] or [[]]:
        named(values, "traces")
    return {name: [*map(os.fspath, values)] for name, values in lists.items()}


def variants(settings: Variants | None) -> list[dict[str, Setting]]:
    """The settings of each variant of a machine: lists in a mapping are crossed, and a sequence of
    mappings is a list of variants. Raises UsageError.
    """
    if not settings:
        return [{}]
    if not isinstance(settings, Mapping):
        if not all(isinstance(one, Mapping) for one in settings):
            raise UsageError("settings: give a mapping of lists, or a list of mappings.")
        return [dict(one) for one in settings]
    lists: list[Sequence[Any]] = [
        values if isinstance(values, list | tuple | range) else [values]
        for values in settings.values()
    ]
    for key, values in zip(settings, lists, strict=True):
        if not values:
            raise UsageError(f"settings: `{key}` has no values.")
    _check_count(lists, "combinations of settings")
    return [dict(zip(settings, values, strict=True)) for values in itertools.product(*lists)]


def crossed(
    traces: Traces,
    machines: Mapping[str, str],
    designs: Sequence[str | type[Design]],
    settings: Variants | None,
    seeds: Sequence[int | None],
) -> list[Combination]:
    """Every combination, in order of traces. Raises UsageError, also for too many."""
    of_settings = variants(settings)
    _check_count((traces, machines, of_settings, seeds, designs), "simulations")
    return [
        Combination(trace, machine, design, variant, seed)
        for trace, machine, variant, seed, design in itertools.product(
            traces, machines, of_settings, seeds, designs
        )
    ]


def _check_count(lists: Iterable[Sized], what: str) -> None:
    """Raises UsageError for more combinations than a plan can have, before they take memory."""
    count = math.prod(map(len, lists))
    if count > MOST_PLANNED:
        raise UsageError(
            f"{count:,} {what}: a sweep has at most {MOST_PLANNED:,} "
            "simulations; give fewer values."
        )


def _check_keys(keys: Iterable[str]) -> None:
    """Refuses white space in keys: they name columns, too. Raises UsageError."""
    for key in keys:
        plain = "".join(key.split())
        if key != plain:
            raise UsageError(f"the key `{quoted(key)}` has white space: give `{quoted(plain)}`.")


def resolve(
    combinations: Sequence[Combination],
    traces: Traces,
    machines: Mapping[str, str],
    *,
    format: str | None = None,
    **choices: Any,
) -> Plan:
    """The plan of combinations, all of which can be simulated; equal ones are planned once. Raises
    OctavoError.
    """
    if format is not None:
        check_format(format)
    counted = resolve_counting(
        **{key: value for key, value in choices.items() if key not in MACHINE_CHOICES}
    )
    contents = {name: _content(uris, format) for name, uris in traces.items()}
    check_applies(format, [one.uri for content in contents.values() for one in content.files])
    if choices.get("processes", "apart") == "apart":
        for name, content in contents.items():
            if len(content.files) > 1:
                raise UsageError(
                    f"`{quoted(name)}` is several traces: with --processes asid or flush they "
                    "share a core; else give each a name."
                )
    resolved: dict[tuple[str, str, str | type[Design]], Machine] = {}
    packed = {one.design: pack(one.design) for one in combinations}
    planned = {}
    for one in combinations:
        settings = {**one.settings, **({} if one.seed is None else {SEED_KEY: one.seed})}
        which = (one.machine, json.dumps(settings), one.design)
        if which not in resolved:
            _check_keys(one.settings)
            resolved[which] = resolve_on(machines[one.machine], settings, one.design, choices)
        labels = {
            "trace": one.trace,
            "machine": one.machine,
            "design": name_of(one.design),
            "seed": one.seed,
            **one.settings,
        }
        design = packed[one.design]
        python = None if isinstance(design, str) else design
        name = name_of(one.design)
        simulation = Simulation(contents[one.trace], resolved[which], name, counted, python)
        planned[one.trace, which] = Planned(labels, simulation)
    return Plan(tuple(planned.values()))


def _content(uris: str | Sequence[str], format: str | None) -> TraceContent:
    """The content of a trace, or of several. Raises OctavoError."""
    listed = [uris] if isinstance(uris, str) else uris
    files = (TraceFile(uri, trace_hash(uri), format_among(uri, format)) for uri in listed)
    return TraceContent(tuple(files))
