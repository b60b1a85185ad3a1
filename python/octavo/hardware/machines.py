"""The machines of simulations: the presets of Octavo, and the resolution of any machine."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import octavo._core as _core
from octavo.base.arguments import with_checked_names
from octavo.base.errors import UsageError
from octavo.base.host import configuration_directory
from octavo.base.own_files import SNAPSHOT_MAGIC, begins_with, description
from octavo.base.table import Grid, Shown, Tabular, arrow_table
from octavo.base.text import printable, shell_word
from octavo.base.toml import TomlValue, toml_value

if TYPE_CHECKING:
    import pyarrow as pa

SCHEMA = "octavo/machine/1"

Setting = TomlValue
"""The value of a key of a machine; None removes an optional table."""


@dataclass(frozen=True)
class ResolvedMachine:
    """A checked machine with a value for every key."""

    config: dict[str, Any]
    hash: str
    """The XXH3 hash of the canonical JSON: 128 bits, hexadecimal."""
    toml: str
    """A complete machine file, with the comments of the file that it came from."""

    def document(self) -> dict[str, Any]:
        """The document of `octavo machines MACHINE --json`."""
        return {"schema": SCHEMA, "hash": self.hash, "machine": self.config}


class Machine(dict[str, Any], Shown):
    """A machine with every key; its `repr` is short."""

    def headline(self) -> str:
        """Its name and description."""
        return f"{self['name']}, {self['description']}"

    __repr__ = Shown.__repr__


class Machines(list[dict[str, str]], Tabular):
    """The machines that ship with Octavo: `name`, `description` and `source` of each."""

    def headline(self) -> str:
        """The names of the machines."""
        return ", ".join(one["name"] for one in self)

    def table(self) -> pa.Table:
        """A row for each machine."""
        return arrow_table(self, dict.fromkeys(_LISTED, "string"))

    __repr__ = Shown.__repr__


_LISTED = ("name", "description", "source")

HOST = "host"
"""The name of the machine that `octavo calibrate` measured."""


def default_host_machine() -> Path:
    """The file of the machine that `host` names."""
    return configuration_directory() / "machine.toml"


def named_machine(name: str) -> str:
    """The name of a preset or a file; for `host`, the file of the measured machine. Raises
    UsageError where `octavo calibrate` has not measured it, and for a file that Octavo wrote and
    that is no machine.
    """
    if name != HOST:
        check_kind(name)
        return name
    place = default_host_machine()
    if not place.exists():
        raise UsageError(
            f"`{HOST}` is this machine as `octavo calibrate` measures it, and there is no "
            f"`{printable(str(place))}` yet: run `octavo calibrate`."
        )
    return str(place)


def check_kind(name: str) -> None:
    """Refuses a file that Octavo wrote and that is no machine. Raises UsageError."""
    if name in _core.machine_presets():
        return
    kind = description(name)
    if kind is None or kind.startswith("is a machine"):
        return
    if begins_with(Path(name), SNAPSHOT_MAGIC):
        file = shell_word(f"memory.fragmentation.file={name}")
        kind += (
            "; `octavo sim --set memory.fragmentation.kind=snapshot --set "
            f"{file}` gives a machine this memory"
        )
    raise UsageError(f"`{printable(name)}` {kind}.")


def machines() -> Machines:
    """The machines that ship with Octavo: `name`, `description` and `source` of each."""
    configs = (machine(name) for name in _core.machine_presets())
    return Machines({key: config[key] for key in _LISTED} for config in configs)


@with_checked_names()
def machine(name: str | os.PathLike[str], settings: Mapping[str, Setting] | None = None) -> Machine:
    """A machine with every key: a preset, a TOML file whose name ends with `.toml`, or `host`.

    `settings` change it in order, such as `{"tlb.l2.main.entries": 2048, "tlb.l2.main.ways": 16}`.
    Raises OctavoError for what is not a machine: a sentence that names the key and what is allowed.
    """
    return Machine(resolve_machine(os.fspath(name), setting_texts(settings or {})).config)


def resolve_machine(name: str, settings: list[str]) -> ResolvedMachine:
    """Resolves a machine, with settings in the notation of the command line: `KEY=VALUE`."""
    check_texts(name, *settings)
    try:
        text, digest, toml = _core.resolve_machine(named_machine(name), settings)
    except _core.OctavoError as error:
        raise UsageError(str(error)) from None
    return ResolvedMachine(json.loads(text), digest, toml)


def check_snapshots(name: str, machine: Mapping[str, Any]) -> None:
    """Checks that the snapshots of memory that a machine names can be read. Raises UsageError."""
    host = machine.get("host") or {}
    for key, memory in (("memory", machine["memory"]), ("host.memory", host.get("memory", {}))):
        file = memory.get("fragmentation", {}).get("file")
        if file is not None:
            try:
                _core.read_snapshot(file)
            except _core.OctavoError as error:
                raise UsageError(f"{name}: {key}.fragmentation: {error}") from None


def setting_texts(settings: Mapping[str, Setting]) -> list[str]:
    """Settings in the notation of the command line: `KEY=VALUE`."""
    return [f"{key}={toml_value(value)}" for key, value in settings.items()]


def check_texts(*texts: str) -> None:
    """Refuses texts of the command line that are not UTF-8. Raises UsageError."""
    for text in texts:
        try:
            text.encode()
        except UnicodeEncodeError:
            raise UsageError(f"{text!a} is not UTF-8 text.") from None


def machines_grid(listed: list[dict[str, str]]) -> Grid:
    """The machines, one a line; long sources are cut."""
    head = ("machine", "what it is", "source")
    rows = tuple((one["name"], one["description"], _beginning(one["source"], 50)) for one in listed)
    return Grid("Machines", head, rows, left_columns=3, spare=(2,))


def _beginning(text: str, length: int) -> str:
    return text if len(text) <= length else text[:length].rsplit(" ", 1)[0] + " …"
