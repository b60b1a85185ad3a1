"""The report of a run: one HTML page that needs nothing but itself."""

from octavo.report.page import render

__all__ = ["render"]
