"""Arguments of the functions that users call: an unknown one is an error with the nearest name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from octavo.base.errors import choose

Parameters = ParamSpec("Parameters")
Found = TypeVar("Found")


def keywords_of(call: Callable[..., Any]) -> list[str]:
    """The names that a function takes as keywords."""
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [
        name for name, of in inspect.signature(call).parameters.items() if of.kind not in variable
    ]


def with_checked_names(
    also: Iterable[str] = (),
) -> Callable[[Callable[Parameters, Found]], Callable[Parameters, Found]]:
    """Decorates a function so that an unknown keyword is a UsageError that names the nearest one.
    `also` are keywords that it passes on.
    """

    def decorate(call: Callable[Parameters, Found]) -> Callable[Parameters, Found]:
        allowed = list(dict.fromkeys([*keywords_of(call), *also]))

        @wraps(call)
        def checked(*given: Parameters.args, **named: Parameters.kwargs) -> Found:
            for name in named:
                choose(name, allowed, f"argument of octavo.{call.__name__}")
            return call(*given, **named)

        return checked

    return decorate
