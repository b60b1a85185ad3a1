"""The time that a program takes natively, as the user gives it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class NativeTime:
    """Native processor time of the counted part with 4 KiB pages, in seconds."""

    user: float
    """In user mode: of instructions, the loads that they wait for, and walks."""
    system: float = 0.0
    """In the kernel; 0 if it is not known."""

    @property
    def total(self) -> float:
        """The time of which gains are shares."""
        return self.user + self.system

    def part(self, share: float) -> NativeTime:
        """A share of it."""
        return NativeTime(share * self.user, share * self.system)
