"""Study files: a sweep as TOML, checked as a whole before anything runs."""

from __future__ import annotations

import hashlib
import itertools
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from octavo._core import OctavoError
from octavo.base.errors import CannotRun, UsageError, hint, nearest
from octavo.base.own_files import description
from octavo.base.text import printable, quoted
from octavo.base.toml import TomlError, read_toml
from octavo.base.units import count
from octavo.simulation.configuration import DEFAULT_DESIGNS, DEFAULT_MACHINE
from octavo.sweeps.plan import Combination, Plan, Traces, crossed, resolve, variants
from octavo.sweeps.simulation import COUNTING, MACHINE_CHOICES
from octavo.traces.by_name import SYNTHETIC
from octavo.tracing.program import find_program

CROSSED, ZIPPED = "crossed", "zipped"
_UNRECORDED = f"{SYNTHETIC}zipf"
"""Stands for a program's recording in checks."""
_MOST_NAME_BYTES = 200
"""Limit of a program's name: a file name has up to 255 bytes, with a hash and a suffix."""
_NUMBERS = (
    "skip_instructions",
    "max_instructions",
    "warm_up",
    "interval",
    "quantum",
    "first_quantum",
    "cores",
)
_CHOICES = (*COUNTING, *MACHINE_CHOICES)
_KINDS: dict[str, tuple[type, ...]] = {
    "out": (str,),
    "combine": (str,),
    "traces": (str, list, dict),
    "programs": (dict,),
    "machines": (str, list, dict),
    "designs": (str, list),
    "parameters": (dict, list),
    "seeds": (int, list),
    "format": (str,),
    **dict.fromkeys(_NUMBERS, (str, int)),
    "between_marks": (bool,),
    "layout": (str,),
    "timing": (str,),
    "processes": (str,),
    "fast_forward": (bool,),
    "virtualised": (bool,),
    "host_policy": (str,),
}
"""The keys, each with the types of its values."""
_OPTIONS = {"--set": "`parameters`", **{f"--{key.replace('_', '-')}": key for key in _CHOICES}}
"""The keys that correspond to options of the command line."""
_WORDS = {str: "a text", list: "a list", dict: "a table", int: "a whole number", bool: "true/false"}


@dataclass(frozen=True)
class Study:
    """The content of a study file."""

    path: Path
    out: Path
    is_zipped: bool
    traces: Traces
    """Traces with the names in the file, which are relative to it."""
    programs: Mapping[str, Sequence[str]]
    machines: Mapping[str, str]
    designs: Sequence[str]
    parameters: Any
    seeds: Sequence[int | None]
    format: str | None
    choices: Mapping[str, Any]
    """Arguments of `configure_sim`."""

    def recording(self, name: str) -> Path:
        """The path of a program's trace, which need not exist; it depends on the command."""
        command = hashlib.blake2b("\0".join(self.programs[name]).encode(), digest_size=6)
        return self.out / "recordings" / f"{name}-{command.hexdigest()}.oct"

    @property
    def unrecorded(self) -> list[str]:
        """The programs without a trace."""
        return [name for name in self.programs if not self.recording(name).exists()]

    def plan(self) -> Plan:
        """All simulations. Raises OctavoError, also where a program is not recorded."""
        return self._resolved({name: str(self.recording(name)) for name in self.programs})

    def check(self) -> None:
        """Checks that everything can be simulated and recorded. Raises OctavoError."""
        self._resolved(dict.fromkeys(self.programs, _UNRECORDED))
        for name in self.unrecorded:
            try:
                find_program(self.programs[name][0])
            except OctavoError as error:
                raise UsageError(f"{self.path}: `programs.{quoted(name)}`: {error}") from None

    def _resolved(self, recordings: Mapping[str, str]) -> Plan:
        traces = {**self._placed(recordings), **recordings}
        try:
            combinations = (
                self._zipped(traces)
                if self.is_zipped
                else crossed(traces, self.machines, self.designs, self.parameters, self.seeds)
            )
            return resolve(combinations, traces, self.machines, format=self.format, **self.choices)
        except OctavoError as error:
            raise UsageError(f"{self.path}: {_in_keys(str(error))}") from None

    def _placed(self, recordings: Mapping[str, str]) -> Traces:
        """Traces by path; in a list, the name of a program stands for its recording."""

        def place(text: str) -> str:
            return _beside(self.path, text)

        return {
            name: place(given)
            if isinstance(given, str)
            else [recordings.get(text) or place(text) for text in given]
            for name, given in self.traces.items()
        }

    def _zipped(self, traces: Traces) -> list[Combination]:
        lists: dict[str, Sequence[Any]] = {
            "traces": list(traces),
            "machines": list(self.machines),
            "designs": self.designs,
            "parameters": _zipped_settings(self.parameters),
            "seeds": self.seeds,
        }
        lengths = {name: len(values) for name, values in lists.items() if len(values) != 1}
        if len(set(lengths.values())) > 1:
            listed = ", ".join(f"{name} has {length}" for name, length in lengths.items())
            raise UsageError(f"zipped lists have one length, or one value: {listed}.")
        most = max(lengths.values(), default=1)
        columns = [[*values] * (most if len(values) == 1 else 1) for values in lists.values()]
        return [
            Combination(trace, machine, design, settings, seed)
            for trace, machine, design, settings, seed in zip(*columns, strict=True)
        ]


def read_study(name: str) -> Study:
    """Reads and checks a study file. Raises UsageError with a sentence for each error."""
    path = Path(name)
    kind = description(name)
    if kind is not None and not kind.startswith("is a study"):
        raise UsageError(f"`{name}` {kind}.")
    try:
        given = read_toml(path)
    except OSError as error:
        raise CannotRun(f"cannot read `{name}`: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise UsageError(f"`{name}` is no TOML file: it is not UTF-8 text.") from None
    except TomlError as error:
        raise UsageError(f"`{name}` is no TOML file: {error}.") from None
    if _holds_nul(given):
        raise UsageError(f"{name}: a text has a NUL character, which no name and no word can have.")
    errors = list(_errors(given))
    if errors:
        raise UsageError(" ".join(f"{name}: {error}" for error in errors))
    seeds = given.get("seeds", [])
    choices = {key: given[key] for key in _CHOICES if key in given}
    for key in _NUMBERS:
        if isinstance(choices.get(key), str):
            choices[key] = count(choices[key], f"{name}: {key}")
    return Study(
        path=path,
        out=path.parent / given.get("out", f"{path.stem}.results"),
        is_zipped=given.get("combine", CROSSED) == ZIPPED,
        traces=_named(given.get("traces", []), lambda given: given),
        programs=given.get("programs", {}),
        machines=_named(
            given.get("machines", DEFAULT_MACHINE),
            lambda text: _beside(path, text) if text.endswith(".toml") else text,
        ),
        designs=_listed(given.get("designs", list(DEFAULT_DESIGNS))),
        parameters=given.get("parameters"),
        seeds=_listed(seeds) or [None],
        format=given.get("format"),
        choices=choices,
    )


def _errors(given: Mapping[str, Any]) -> Any:
    for key, value in given.items():
        if key not in _KINDS:
            end = hint(nearest(key, _KINDS))
            yield f"unknown key `{quoted(key)}`{end} Allowed: {', '.join(_KINDS)}."
        elif type(value) not in _KINDS[key]:
            kinds = " or ".join(_WORDS[kind] for kind in _KINDS[key])
            yield f"`{key}` is {kinds}."
        elif value in ([], {}, ""):
            yield f"`{key}` is empty."
    combine = given.get("combine", CROSSED)
    if isinstance(combine, str) and combine not in (CROSSED, ZIPPED):
        yield f"`combine` is {CROSSED} or {ZIPPED}, not `{quoted(combine)}`."
    if "traces" not in given and "programs" not in given:
        yield "give `traces`, `programs` or both."
    for key in ("traces", "machines", "designs"):
        values = given.get(key, [])
        if isinstance(values, dict):
            values = [*values.values()]
            if key == "traces":
                values = [text for value in values for text in _listed(value) or [""]]
        if not all(isinstance(value, str) and value for value in _listed(values)):
            yield f"`{key}` has a value that is not a string."
    if not all(type(seed) is int and seed >= 0 for seed in _listed(given.get("seeds", []))):
        yield "`seeds` has a value that is not a whole number from 0."
    programs = given.get("programs", {})
    if isinstance(programs, dict):
        traces = given.get("traces")
        for name, command in programs.items():
            if not _is_file_name(name):
                yield (
                    f"`programs.{quoted(name)}`: the name is part of a file's name; it has from 1 "
                    f"to {_MOST_NAME_BYTES} bytes, no / and no control characters."
                )
            if name in traces if isinstance(traces, dict) else name in _listed(traces):
                yield f"`{quoted(name)}` names a trace and a program; give each its own name."
            if not (isinstance(command, list) and command) or not all(
                isinstance(word, str) for word in command
            ):
                yield f'`programs.{quoted(name)}` is a list of texts, as ["gzip", "-k", "file"].'


def _in_keys(sentence: str) -> str:
    """The sentence of an error, with keys of a study file in place of options."""
    sentence = re.sub(r"`--set ([^`]+)`", r"`\1` of `parameters`", sentence)
    return re.sub(r"--[a-z-]+", lambda option: _OPTIONS.get(option[0], option[0]), sentence)


def _holds_nul(value: Any) -> bool:
    """Whether a text in a value, or a key, has a NUL character."""
    if isinstance(value, dict):
        return any(map(_holds_nul, (*value, *value.values())))
    if isinstance(value, list):
        return any(map(_holds_nul, value))
    return isinstance(value, str) and "\0" in value


def _is_file_name(name: str) -> bool:
    """Whether the name can be the first part of a file name."""
    is_plain = "/" not in name and name == printable(name)
    return is_plain and 0 < len(os.fsencode(name)) <= _MOST_NAME_BYTES


def _zipped_settings(parameters: Any) -> list[dict[str, Any]]:
    if not isinstance(parameters, Mapping):
        return variants(parameters)
    lists = [_listed(values) for values in parameters.values()]
    most = max((len(values) for values in lists), default=1)
    if any(len(values) not in (1, most) for values in lists):
        raise UsageError("zipped lists of `parameters` have one length, or one value.")
    columns = [values * most if len(values) == 1 else values for values in lists]
    return [
        dict(zip(parameters, values, strict=True)) for values in itertools.zip_longest(*columns)
    ]


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _named(given: Any, place: Callable[[Any], Any]) -> dict[str, Any]:
    pairs = given.items() if isinstance(given, dict) else ((text, text) for text in _listed(given))
    return {name: place(text) for name, text in pairs}


def _beside(path: Path, text: str) -> str:
    """The path of a file, relative to the study file; a URI or a synthetic trace as it is."""
    return text if text.startswith(SYNTHETIC) or "://" in text else str(path.parent / text)
