"""Documents of `octavo sim`, as the studies read them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from octavo.analysis.rows import stream_counters
from octavo.analysis.view import main_process
from octavo.simulation.model import Simulated


def simulated_of(result: Mapping[str, Any], *, of_all: bool = False) -> dict[str, Simulated]:
    """The results of each design of a document, by its whole name: of the process that did most, or
    of all of them. Those that ran out of memory are left out.
    """
    if of_all:
        rows = [row for row in result["rows"] if "process" not in row]
    else:
        rows = main_process(result["rows"])
    configuration = result["run"]["configuration"]
    base_cpi = configuration["machine"]["core"]["base_cpi"]
    totals = stream_counters(rows)
    found = {}
    for design in configuration["designs"]:
        counts = {
            (row["component"], row["counter"]): row["value"]
            for row in rows
            if row.get("design") == design and "interval" not in row
        }
        one = Simulated(design, counts, totals["instructions"], totals["references"], base_cpi)
        # A design that stops in the warm-up has no counts.
        if not one.count("os", "out_of_memory") and one.count("tlb.l1d", "accesses"):
            found[design] = one
    return found
