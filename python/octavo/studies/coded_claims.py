"""Claims of a paper, each with a number, a test that was stated before the measurement, and the
measured answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

Studied = TypeVar("Studied")
"""The study that a claim is tested on."""


@dataclass(frozen=True)
class Found:
    """The measured answer to a claim."""

    ours: str
    agrees: bool


@dataclass(frozen=True)
class Claim(Generic[Studied]):
    """A statement of the paper with a number in it, or one that a number decides."""

    key: str
    where: str
    paper: str
    line: str
    """When ours is taken to agree."""
    find: Callable[[Studied], Found | None]
    """None if no measurement decides it."""
    why: str
    """Why it may differ here."""


Answered = tuple[Claim[Any], Found | None]
"""A claim and its answer."""


def answers(claims: Iterable[Claim[Studied]], studied: Studied) -> list[Answered]:
    """Each claim and what the measurements say to it."""
    return [(claim, claim.find(studied)) for claim in claims]


def claims_document(answered: Iterable[Answered]) -> list[dict[str, Any]]:
    """Plain data for the JSON."""
    return [
        {
            "key": claim.key,
            "where": claim.where,
            "paper": claim.paper,
            "line": claim.line,
            "ours": None if found is None else found.ours,
            "agrees": None if found is None else found.agrees,
        }
        for claim, found in answered
    ]


def claims_text(
    answered: Iterable[Answered], nothing: str = "no measurement decides it"
) -> Iterator[str]:
    """Each claim as a paragraph of a numbered list; `nothing` replaces a missing answer."""
    yield "## Claims of the paper"
    yield ""
    for number, (claim, found) in enumerate(answered, start=1):
        yield f"{number}. {claim.where[0].upper()}{claim.where[1:]}: {claim.paper}."
        if found is None:
            yield f"   Here: {nothing}."
            continue
        verdict = "Agrees" if found.agrees else "Differs"
        yield f"   Here: {found.ours}. **{verdict}** ({claim.line})."
        if not found.agrees:
            yield f"   Why it may: {claim.why}."
