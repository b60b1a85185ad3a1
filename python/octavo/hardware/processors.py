"""Finds the machine that describes this processor: looks up CPUID's vendor, family and model in
presets/processors.toml.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from octavo.base.host import cpu_field
from octavo.base.toml import read_toml

TABLE = Path(__file__).parents[1] / "presets" / "processors.toml"


@dataclass(frozen=True)
class Processor:
    """A processor as CPUID describes it; None for what cannot be read."""

    vendor: str | None
    family: int | None
    model: int | None
    name: str | None

    def __str__(self) -> str:
        """The name with vendor, family and model: `AMD EPYC (AuthenticAMD family 25 model 1)`."""
        known = self.vendor is not None
        cpuid = f"{self.vendor} family {self.family} model {self.model}" if known else "unknown"
        return f"{self.name} ({cpuid})" if self.name else cpuid


@dataclass(frozen=True)
class Match:
    """The machine for a processor."""

    machine: str
    """The name of a preset."""
    nearest: str | None
    """The name of the processor, where the machine is only the nearest known one."""


def this_processor(root: Path = Path("/")) -> Processor:
    """The first processor of /proc/cpuinfo."""
    return Processor(
        vendor=cpu_field("vendor_id", root),
        family=_number(cpu_field("cpu family", root)),
        model=_number(cpu_field("model", root)),
        name=cpu_field("model name", root),
    )


def machine_for(processor: Processor) -> Match:
    """The preset of a processor, or the nearest one."""
    for entry in read_toml(TABLE)["processor"]:
        if _fits(entry, processor):
            return Match(entry["machine"], entry.get("nearest"))
    raise AssertionError("the last entry fits every processor")


def _fits(entry: dict[str, Any], processor: Processor) -> bool:
    if entry.get("vendor", processor.vendor) != processor.vendor:
        return False
    if entry.get("family", processor.family) != processor.family:
        return False
    if "models" not in entry:
        return True
    model = processor.model
    return model is not None and any(low <= model <= high for low, high in entry["models"])


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() else None
