"""Octavo: what address translation costs a program at every page size, and which to choose."""

from octavo._core import VERSION, OctavoError
from octavo.api import run
from octavo.result import RunResult

__version__ = VERSION

__all__ = ["OctavoError", "RunResult", "__version__", "run"]
