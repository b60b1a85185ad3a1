"""Runs `python -m octavo.report DIR` as `octavo report DIR`."""

import runpy
import sys

sys.argv.insert(1, "report")
runpy.run_module("octavo", run_name="__main__")
