"""Arguments of the functions that users call: an unknown one is an error with the nearest name, and
so is a value of another type, with what is allowed.
"""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable, Iterable
from functools import wraps
from numbers import Integral, Real
from typing import Any, ParamSpec, TypeVar

from octavo.base.errors import UsageError, choose
from octavo.base.text import quoted

Parameters = ParamSpec("Parameters")
Found = TypeVar("Found")

_KINDS: dict[str, tuple[tuple[type, ...], str]] = {
    "int": ((Integral,), "a whole number"),
    "float": ((Real,), "a number"),
    "str": ((str, os.PathLike), "a text"),
    "bool": ((bool,), "True or False"),
    "None": ((type(None),), "None"),
    "Sequence": ((list, tuple), "a list"),
    "Mapping": ((dict,), "a mapping"),
}
"""Annotations whose values are checked: the types that are taken, and their name."""
_LISTS = {"Sequence", "Mapping"}


def keywords_of(call: Callable[..., Any]) -> list[str]:
    """The names that a function takes as keywords."""
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [
        name for name, of in inspect.signature(call).parameters.items() if of.kind not in variable
    ]


def with_checked_names(
    also: Iterable[str] = (), of: Iterable[Callable[..., Any]] = ()
) -> Callable[[Callable[Parameters, Found]], Callable[Parameters, Found]]:
    """Decorates a function so that an unknown keyword is a UsageError that names the nearest one,
    and that so is a value that is not of its annotation, where this is a simple one. `also` are
    keywords that it passes on, to the functions `of`.
    """

    def decorate(call: Callable[Parameters, Found]) -> Callable[Parameters, Found]:
        allowed = list(dict.fromkeys([*keywords_of(call), *also]))
        annotated = {
            name: str(parameter.annotation)
            for function in (*of, call)
            for name, parameter in inspect.signature(function).parameters.items()
        }
        signature = inspect.signature(call)

        @wraps(call)
        def checked(*given: Parameters.args, **named: Parameters.kwargs) -> Found:
            for name in named:
                choose(name, allowed, f"argument of octavo.{call.__name__}")
            bound = signature.bind_partial(*given, **named).arguments
            for name, value in {**bound, **named}.items():
                _check_type(name, value, annotated.get(name, ""))
            return call(*given, **named)

        return checked

    return decorate


def _check_type(name: str, value: object, annotation: str) -> None:
    """Refuses a value that is of none of the annotation's types. Annotations with other types than
    simple ones are not checked, but that a text is no list.
    """
    while annotation != (annotation := re.sub(r"\[[^\[\]]*\]", "", annotation)):
        pass
    kinds = [kind.strip() for kind in annotation.split("|")]
    is_text_for_list = isinstance(value, str) and "str" not in kinds and _LISTS & {*kinds}
    if not is_text_for_list and not all(kind in _KINDS and kind not in _LISTS for kind in kinds):
        return
    if not any(isinstance(value, _KINDS[kind][0]) for kind in kinds if kind in _KINDS):
        allowed = " or ".join(_KINDS[kind][1] for kind in kinds if kind in _KINDS)
        raise UsageError(f"{name}: `{quoted(repr(value))}` is not allowed: give {allowed}.")
