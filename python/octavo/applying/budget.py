"""A limit of processor time: a second at the start, and then a share of the elapsed time."""

import time
from collections.abc import Callable

_BURST_SECONDS = 1.0
_ENOUGH_SECONDS = 0.02
"""Processor time that suffices for some pages."""


class Budget:
    """Processor time of this process, kernel time included, as a share of one processor."""

    def __init__(
        self,
        share: float,
        clock: Callable[[], float] = time.monotonic,
        processor_clock: Callable[[], float] = time.process_time,
    ) -> None:
        self._share = share
        self._clock, self._processor_clock = clock, processor_clock
        self._credit = _BURST_SECONDS
        self._time, self._used = clock(), processor_clock()

    def is_spent(self) -> bool:
        """Updates the credit and returns whether it is used up."""
        now, used = self._clock(), self._processor_clock()
        self._credit += (now - self._time) * self._share - (used - self._used)
        self._credit = min(self._credit, _BURST_SECONDS)
        self._time, self._used = now, used
        return self._credit <= 0

    def seconds_to_credit(self) -> float:
        """Seconds until there is credit for some pages; 0 if there is now."""
        self.is_spent()
        return max(0.0, (_ENOUGH_SECONDS - self._credit) / self._share)
