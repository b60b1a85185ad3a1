"""Octavo: what address translation costs a program at every page size, and which to choose."""

# Not imported from `typing`: that takes some milliseconds, in which Ctrl-C would print a traceback.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from octavo._core import OctavoError
    from octavo.hardware.machines import machine, machines
    from octavo.runs.api import run
    from octavo.runs.result import RunResult
    from octavo.simulation.api import SimResult, sim
    from octavo.simulation.python_design import Design
    from octavo.sweeps.api import sweep
    from octavo.sweeps.results import SweepResult
    from octavo.tlb_curves.api import CurvesResult, curves
    from octavo.tracing.recording import RecordedTrace, record
    from octavo.verification.api import verify
    from octavo.verification.outcome import Outcome as VerifyResult

    __version__: str

__all__ = [
    "CurvesResult",
    "Design",
    "OctavoError",
    "RecordedTrace",
    "RunResult",
    "SimResult",
    "SweepResult",
    "VerifyResult",
    "__version__",
    "ctl",
    "curves",
    "machine",
    "machines",
    "record",
    "run",
    "sim",
    "sweep",
    "verify",
]

_PLACES = {
    "CurvesResult": ("octavo.tlb_curves.api", "CurvesResult"),
    "curves": ("octavo.tlb_curves.api", "curves"),
    "Design": ("octavo.simulation.python_design", "Design"),
    "ctl": ("octavo.control.client", "ctl"),
    "OctavoError": ("octavo._core", "OctavoError"),
    "RecordedTrace": ("octavo.tracing.recording", "RecordedTrace"),
    "RunResult": ("octavo.runs.result", "RunResult"),
    "__version__": ("octavo._core", "VERSION"),
    "machine": ("octavo.hardware.machines", "machine"),
    "machines": ("octavo.hardware.machines", "machines"),
    "record": ("octavo.tracing.recording", "record"),
    "run": ("octavo.runs.api", "run"),
    "sim": ("octavo.simulation.api", "sim"),
    "SimResult": ("octavo.simulation.api", "SimResult"),
    "sweep": ("octavo.sweeps.api", "sweep"),
    "SweepResult": ("octavo.sweeps.results", "SweepResult"),
    "verify": ("octavo.verification.api", "verify"),
    "VerifyResult": ("octavo.verification.outcome", "Outcome"),
}


def __getattr__(name: str) -> "Any":
    """Imports public names on first use, so that the command line soon handles Ctrl-C."""
    if name not in _PLACES:
        raise AttributeError(f"module `octavo` has no attribute `{name}`")
    from importlib import import_module

    module, attribute = _PLACES[name]
    return getattr(import_module(module), attribute)


def __dir__() -> list[str]:
    """The names for completion, with public ones that are not imported yet."""
    return sorted({*globals(), *__all__})
