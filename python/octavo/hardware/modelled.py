"""The machine whose TLBs a run models beside the 64-entry TLB: that of this processor, or a named
one.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

import octavo._core as _core
from octavo.base.errors import UsageError
from octavo.hardware.machines import named_machine, resolve_machine
from octavo.hardware.processors import Processor, machine_for, this_processor

Chosen = Literal["this-processor", "nearest", "given"]


@dataclass(frozen=True)
class ModelledMachine:
    """A machine with first- and second-level TLBs, by page size."""

    name: str
    """A preset, or a file whose name ends with `.toml`."""
    description: str
    hash: str
    """The hash of its canonical JSON, which `octavo machines` prints."""
    config: dict[str, Any]
    """The machine with every key."""
    chosen: Chosen
    """Whether it describes this processor, is the nearest to it, or was named by the user."""
    processor: Processor | None = None
    """The processor for which it was chosen; None where the user named the machine."""
    nearest: str | None = None
    """The name of the processor, where the machine is only the nearest one."""

    def resolved(self) -> dict[str, Any]:
        """Plain data, for the manifest."""
        processor = None if self.processor is None else asdict(self.processor)
        plain = {**vars(self), "processor": processor}
        del plain["config"]
        return plain

    def sentence(self) -> str:
        """Which machine it is, and why."""
        if self.chosen == "given":
            return f"TLBs of {self.name}: {self.description}."
        if self.chosen == "nearest":
            return (
                f"TLBs of {self.name}, the nearest machine known to this processor, "
                f"{self.nearest}: {self.processor}. --tlb names another of octavo list machines."
            )
        return f"TLBs of {self.name}, this processor: {self.processor}."

    def notes(self) -> list[str]:
        """The modelled parts, a sentence each."""
        return [
            f"{self.sentence()} Both levels are set-associative LRU, for pages of each size that "
            "the machine has entries for, as if all memory had that size; misses of the last level "
            "are page walks. Unmapping and protecting memory invalidates entries. The walk that "
            "sets a page's dirty bit is not counted."
        ]


def this_machine() -> ModelledMachine:
    """The machine of this processor, or the nearest to it."""
    processor = this_processor()
    match = machine_for(processor)
    chosen: Chosen = "nearest" if match.nearest else "this-processor"
    return _modelled(match.machine, chosen, processor, match.nearest)


def given_machine(name: str) -> ModelledMachine:
    """The machine of a preset or a `.toml` file. Raises UsageError if it cannot be modelled."""
    return _modelled(name, "given")


def can_be_modelled(preset: str) -> bool:
    """Whether a run can model a preset's TLBs."""
    try:
        given_machine(preset)
    except UsageError:
        return False
    return True


def _modelled(
    name: str, chosen: Chosen, processor: Processor | None = None, nearest: str | None = None
) -> ModelledMachine:
    resolved = resolve_machine(name, [])
    try:
        _core.check_machine_tlbs(named_machine(name))
    except _core.OctavoError as error:
        raise UsageError(f"TLB `{name}`: {error}.") from None
    description = resolved.config["description"]
    return ModelledMachine(
        name, description, resolved.hash, resolved.config, chosen, processor, nearest
    )
