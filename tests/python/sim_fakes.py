"""Fake simulations with numbers that each test chooses, and a stream whose counts are computed by
hand.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fakes import finished, process
from octavo.simulation.api import SimResult
from octavo.simulation.configuration import SimConfiguration, configure_sim
from octavo.simulation.model import Simulated

if TYPE_CHECKING:
    from octavo._core import MachineCounts, SimProcess

Counts = Mapping[tuple[str, str], int]

STRIDED = "synth:strided?bytes=4MiB&stride=4KiB&references=10240&base=0x7f0000000000"
"""Ten rounds over 1024 pages: 10240 loads, and four instructions per load, 40960 in one page of
code. The table is two aligned pages of 2 MiB."""


def counters_of(result: SimResult, name: str, component: str, *counters: str) -> list[int]:
    """Counters of a design."""
    return [result.design(name).counts[component, counter] for counter in counters]


def counts(
    *, walk_cycles: int = 0, tlb_cycles: int = 0, resident: int = 0, **more: int
) -> dict[tuple[str, str], int]:
    """Counters of a design; `more` are counters of `os`."""
    return {
        ("core", "cycles_data"): 500,
        ("core", "cycles_fetches"): 100,
        ("core", "cycles_tlb_l2"): tlb_cycles,
        ("core", "cycles_walks"): walk_cycles,
        ("os", "peak_resident_bytes"): resident,
        ("os", "peak_page_table_bytes"): 4096,
        **{("os", name): value for name, value in more.items()},
    }


def design(
    name: str = "one",
    of: Counts | None = None,
    *,
    instructions: int = 1000,
    references: int = 1400,
    stopped: str | None = None,
    is_bound: bool = False,
) -> Simulated:
    """A design on a core of one cycle per instruction."""
    return Simulated(
        design=name,
        counts=counts() if of is None else of,
        instructions=instructions,
        references=references,
        base_cpi=1.0,
        stopped=stopped,
        is_bound=is_bound,
    )


def machine(
    name: str, of: Counts, *, intervals: Sequence[Counts] = (), stopped: str | None = None
) -> MachineCounts:
    """The counts of a machine in the form of the extension."""

    def listed(some: Counts) -> list[tuple[str, str, int]]:
        return [(component, counter, value) for (component, counter), value in some.items()]

    return {
        "design": name,
        "counters": listed(of),
        "intervals": [listed(interval) for interval in intervals],
        "stopped": stopped,
        "bound": False,
        "own_caches": False,
    }


def sim_process(
    machines: Sequence[MachineCounts],
    number: int = 0,
    *,
    instructions: int = 1000,
    data_references: int = 400,
) -> SimProcess:
    made = process(number, instructions=instructions, data_references=data_references)
    whole: Any = {
        key: value for key, value in made.items() if key not in ("curves", "footprints", "regions")
    }
    return {**whole, "machines": list(machines), "dependences": False, "mapped": True}  # type: ignore[no-any-return]


def sim_result(
    processes: Sequence[SimProcess], configuration: SimConfiguration | None = None
) -> SimResult:
    """A finished simulation of made-up processes."""
    chosen = configuration or configure_sim(settings={"core.base_cpi": 1.0})
    manifest, counted = finished(processes, chosen)
    result = SimResult(manifest, chosen, counted)
    manifest["timing"] = result.timing.document()
    return result
