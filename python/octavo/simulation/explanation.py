"""Explains a design, from its source file, the registry, and docs/sim.md."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import octavo._core as _core
from octavo.simulation.api import sim
from octavo.simulation.counter_meanings import LINK, ROW, meanings, place_of

SCHEMA = "octavo/explanation/1"
_PROBE = "synth:zipf?table=4MiB&references=20k"
"""A short trace that shows which counters a design reports."""


@dataclass(frozen=True)
class Explanation:
    """A design: its idea, its settings and its counters."""

    name: str
    about: str
    hardware: str
    policy: str
    figure: str
    """The name of the figure of its mechanism, in octavo.report.mechanisms."""
    documentation: str
    """The idea, the paper and the assumptions, as its source file gives them."""
    assumptions: str
    """The text of docs/sim.md on the design; empty where there is none."""
    parameters: tuple[tuple[str, str], ...]
    """Settings of its policy, and keys of a machine that only its hardware uses, with their
    defaults; names contain the units."""
    counters: tuple[tuple[str, str, str], ...]
    """Component, counter and meaning of each counter that it reports."""

    def document(self) -> dict[str, Any]:
        """The document of `octavo explain DESIGN --json`."""
        names = ("name", "about", "hardware", "policy", "documentation", "assumptions")
        return {
            "schema": SCHEMA,
            **{name: getattr(self, name) for name in names},
            "parameters": dict(self.parameters),
            "counters": [
                {"component": component, "counter": counter, "meaning": meaning}
                for component, counter, meaning in self.counters
            ],
        }


def explain(name: str) -> Explanation:
    """Explains a named design or `HARDWARE+POLICY`, with its settings. Raises the OctavoError of
    `octavo.sim` for a design that this refuses.
    """
    counters = tuple(_counters(name))
    design, *given = name.split(":")
    hardware, policy, about, figure, settings, documentation = _described(design)
    base, *usual = policy.split(":")
    own = next(defaults for known, _, defaults in _core.policies() if known == base)
    chosen = dict(setting.split("=", 1) for setting in usual + given)
    return Explanation(
        name=name,
        about=about,
        hardware=hardware,
        policy=":".join((policy, *(setting for setting in given if "." not in setting))),
        figure=figure,
        documentation=LINK.sub(r"\1", documentation),
        assumptions=_assumptions(hardware, design),
        parameters=tuple((key, chosen.get(key, value)) for key, value in (*own, *settings)),
        counters=counters,
    )


def _described(design: str) -> tuple[str, str, str, str, list[tuple[str, str]], str]:
    """Properties of a design without settings: hardware, policy, description, figure, settings of
    the hardware, documentation. `HARDWARE+POLICY` has the description of the policy, and everything
    else from the first named design with this hardware.
    """
    named = {known: _core.explain_design(known) for known, _ in _core.designs()}
    if found := named.get(design):
        return found
    hardware, _, policy = design.partition("+")
    about = next(description for known, description, _ in _core.policies() if known == policy)
    of_hardware = (found for found in named.values() if found and found[0] == hardware)
    _, _, _, figure, settings, documentation = next(of_hardware)
    return hardware, policy, about, figure, settings, documentation


def _assumptions(*names: str) -> str:
    """The item of docs/sim.md on a design or on its hardware."""
    for name in names:
        found = re.search(
            rf"^- \*\*`{re.escape(name)}`\*\*(.*?)(?=^- |^#|^\n)",
            _core.sim_pages(),
            flags=re.MULTILINE | re.DOTALL,
        )
        if found:
            return LINK.sub(r"\1", " ".join(found[1].split()).lstrip(": "))
    return ""


def _counters(name: str) -> Iterator[tuple[str, str, str]]:
    """The counters that a design reports on the default machine, with their meanings from the pages
    of `octavo sim` and in their order. Counters of the core model come from the page, as the probed
    trace has no register dependences.
    """
    rows = meanings()
    reported = set(sim(_PROBE, designs=[name]).design(name).counts) | set(_core_counters())
    placed = ((component, place_of(component, counter), counter) for component, counter in reported)
    for component, (row, _), counter in sorted(placed):
        yield component, counter, rows[row][2] if row < len(rows) else ""


def _core_counters() -> Iterator[tuple[str, str]]:
    """The counters of the tables of docs/core.md."""
    _, _, page = _core.sim_pages().partition("\n# Time: the core model")
    page = page.partition("\n# ")[0]
    for components, counters, _ in ROW.findall(page.partition("## Counters")[2]):
        for component in re.findall(r"`([^`]+)`", components):
            for counter in re.findall(r"`([^`]+)`", counters):
                yield component, counter
