"""One simulation of a sweep: a design on a machine, fed by a trace, and the key of its result."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import octavo._core as _core
from octavo.base.errors import UsageError
from octavo.hardware.machines import Setting, resolve_machine, setting_texts
from octavo.simulation.configuration import DEFAULT_DESIGNS, configure_sim, short_settings
from octavo.simulation.python_design import Design, name_of
from octavo.sweeps.content import file_hash
from octavo.sweeps.python_design import PythonDesign

_NAMES = ("name", "description", "source")
"""Keys of a machine that have no effect on numbers."""
COUNTING = (
    "layout",
    "skip_instructions",
    "max_instructions",
    "between_marks",
    "warm_up",
    "interval",
    "timing",
    "processes",
    "quantum",
    "first_quantum",
    "fast_forward",
)
"""The arguments of `configure_sim` that are the same in a sweep and have an effect on numbers."""
MACHINE_CHOICES = ("cores", "virtualised", "host_policy")
"""The arguments of `configure_sim` that stand for settings of the machine."""


@dataclass(frozen=True)
class TraceFile:
    """A trace with the hash of its content."""

    uri: str
    hash: str
    """See `octavo.sweeps.content.trace_hash`."""
    format: str | None = None


@dataclass(frozen=True)
class TraceContent:
    """The traces that a simulation reads: one, or several whose processes share its machine."""

    files: tuple[TraceFile, ...]

    @cached_property
    def hash(self) -> str:
        """The hash of all files, in order."""
        hashes = [one.hash for one in self.files]
        return hashes[0] if len(hashes) == 1 else digest(canonical(hashes))

    @property
    def format(self) -> str | None:
        """The format that the user gave; synthetic traces have their own."""
        return next((one.format for one in self.files if one.format is not None), None)


@dataclass(frozen=True)
class Machine:
    """A checked machine with all its settings."""

    toml: str
    """The complete machine file."""
    numbers: str
    """Canonical JSON of the keys that have an effect on numbers, with hashes in place of files."""
    stream: str
    """A text that is equal for machines that one reading of a trace can feed."""
    footprint_bytes: int
    """An upper bound of the memory of one design at the start."""

    @cached_property
    def hash(self) -> str:
        """The hash of `numbers`."""
        return digest(self.numbers)


@dataclass(frozen=True)
class Simulation:
    """One design on one machine, fed by one trace."""

    trace: TraceContent
    machine: Machine
    design: str
    """Its name."""
    counting: str
    """Canonical JSON of the arguments in `COUNTING`. Arguments that were added after the first data
    sets are included only where they have an effect."""
    python: PythonDesign | None = None
    """The design, if it is written in Python."""

    @cached_property
    def resolved(self) -> dict[str, Any]:
        """Everything that determines the result, as plain data."""
        return {
            "model": _core.MODEL,
            "trace": self.trace.hash,
            "format": self.trace.format,
            "design": self.design,
            **({} if self.python is None else {"python": self.python.content}),
            "machine": json.loads(self.machine.numbers),
            "counting": json.loads(self.counting),
        }

    @cached_property
    def key(self) -> str:
        """The name of the result, 32 hex digits."""
        return digest(canonical(self.resolved))


def canonical(data: Any) -> str:
    """JSON with one spelling for equal data."""
    return json.dumps(data, sort_keys=True, separators=(",", ":"))


def digest(text: str) -> str:
    """A hash of 32 hex digits."""
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def resolve_on(
    machine: str,
    settings: Mapping[str, Setting],
    design: str | type[Design],
    choices: Mapping[str, Any],
) -> Machine:
    """The machine with these settings, on which the design can be built. Raises UsageError."""
    texts = setting_texts(settings)
    short = [*short_settings(**{key: choices[key] for key in MACHINE_CHOICES if key in choices})]
    try:
        configuration = configure_sim(machine=machine, designs=[design], settings=texts, **choices)
        resolved = resolve_machine(machine, [*short, *texts])
    except UsageError as error:
        about = _cause(str(error), machine, texts, design, choices)
        sentence = str(error)
        if about:
            sentence = about + sentence.removeprefix(f"{machine}: ")
        raise UsageError(sentence) from None
    analysis = configuration.core_analysis
    assert analysis.stream is not None, "it is a simulation's"
    assert analysis.footprint_bytes is not None, "it is a simulation's"
    numbers = {key: value for key, value in resolved.config.items() if key not in _NAMES}
    return Machine(
        toml=resolved.toml,
        numbers=canonical(_with_contents(numbers)),
        stream=analysis.stream,
        footprint_bytes=analysis.footprint_bytes,
    )


def _cause(
    error: str,
    machine: str,
    texts: list[str],
    design: str | type[Design],
    choices: Mapping[str, Any],
) -> str:
    """The beginning of an error's sentence. It is empty where the design has the error on any
    machine, names the machine where another design has it, too, and names both otherwise.
    """

    def is_of(**given: Any) -> bool:
        try:
            configure_sim(**given)
        except UsageError as other:
            return str(other) == error
        return False

    if is_of(designs=[design]):
        return ""
    where = f"machine {machine}{' with ' if texts else ''}{', '.join(texts)}: "
    if is_of(machine=machine, settings=texts, designs=DEFAULT_DESIGNS[:1], **choices):
        return where
    return f"design {name_of(design)} on {where}"


def resolve_counting(**choices: Any) -> str:
    """The `counting` of simulations. Raises UsageError."""
    configuration = configure_sim(**choices)
    counting = {
        "layout": configuration.layout,
        "skip_instructions": configuration.skip_instructions,
        "max_instructions": configuration.max_instructions,
        "between_marks": configuration.between_marks,
        "warm_up": configuration.warm_up_instructions,
        "interval": configuration.interval_instructions,
        "timing": configuration.timing,
        **(
            {}
            if configuration.shared_quanta is None
            else {
                "processes": configuration.processes,
                "quantum": configuration.quantum_instructions,
                "first_quantum": configuration.first_quantum_instructions,
            }
        ),
        **({"fast_forward": True} if configuration.fast_forward else {}),
    }
    return canonical(counting)


def _with_contents(value: Any) -> Any:
    """The keys of a machine, with the hash of the content in place of each file name."""
    if isinstance(value, dict):
        return {
            key: file_hash(Path(inner)) if key == "file" else _with_contents(inner)
            for key, inner in value.items()
        }
    return value
