"""Checks the arguments of public functions. An unknown keyword, or a value of a wrong type, raises
a UsageError that says which keyword is nearest, or which types are allowed.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterable
from functools import wraps
from numbers import Integral, Real
from typing import Any, ParamSpec, TypeVar, cast

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
    "tuple": ((), "a pair of numbers"),
    "type": ((type,), "a class"),
    "Path": ((os.PathLike,), "a path"),
    "os.PathLike": ((os.PathLike,), "a path"),
    "Callable": ((Callable,), "a function"),  # type: ignore[dict-item]
    "OnProgress": ((Callable,), "a function"),  # type: ignore[dict-item]
    "Names": ((str, os.PathLike, list, tuple, dict), "a name, or a list or a mapping of names"),
    "Variants": ((list, tuple, dict), "a mapping or a list of mappings"),
}
"""Annotations whose values are checked: the types that are accepted, and their name in messages."""
_LISTS = {"Sequence", "Mapping"}
_NO_LISTS = (str, bytes, dict, os.PathLike)
"""Iterables that count as one value, not as a list."""


def keywords_of(call: Callable[..., Any]) -> list[str]:
    """The names that a function takes as keywords."""
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [
        name
        for name, parameter in inspect.signature(call).parameters.items()
        if parameter.kind not in variable
    ]


def with_checked_names(
    also: Iterable[str] = (), functions: Iterable[Callable[..., Any]] = ()
) -> Callable[[Callable[Parameters, Found]], Callable[Parameters, Found]]:
    """Decorates a function so that an unknown keyword, or a value that does not match a simple
    annotation, raises UsageError. `also` are keywords that it passes on to `functions`, whose
    annotations hold for them.
    """

    def decorate(call: Callable[Parameters, Found]) -> Callable[Parameters, Found]:
        allowed = list(dict.fromkeys([*keywords_of(call), *also]))
        annotated = {
            name: str(parameter.annotation)
            for function in (*functions, call)
            for name, parameter in inspect.signature(function).parameters.items()
        }
        signature = inspect.signature(call)
        variable = inspect.Parameter.VAR_KEYWORD
        keywords = [name for name, one in signature.parameters.items() if one.kind is variable]

        @wraps(call)
        def checked(*given: Parameters.args, **named: Parameters.kwargs) -> Found:
            for name in named:
                choose(name, allowed, f"argument of octavo.{call.__name__}")
            bound = signature.bind_partial(*given, **named)
            for values in (bound.arguments, *(bound.arguments.get(name, {}) for name in keywords)):
                for name, value in values.items():
                    values[name] = _checked(name, value, annotated.get(name, ""))
            return cast("Callable[..., Found]", call)(*bound.args, **bound.kwargs)

        return checked

    return decorate


def _checked(name: str, value: object, annotation: str) -> object:
    """The value, with NumPy numbers as Python numbers, and paths as strings where the annotation
    has `str`. Raises UsageError for a value, or an element of a list, that has none of the
    annotation's types. Of an annotation with types that are not in `_KINDS`, it checks only that a
    string is not given for a list. Elements that may have several types are not checked.
    """
    inside = dict(_alternatives(annotation))
    is_text_for_list = isinstance(value, str) and "str" not in inside and _LISTS & {*inside}
    if not is_text_for_list and not all(kind in _KINDS for kind in inside):
        return _plain(value)
    if isinstance(value, Iterable) and not isinstance(value, _NO_LISTS):
        if "Sequence" in inside:
            kind = inside["Sequence"] if len(_alternatives(inside["Sequence"])) == 1 else ""
            return [_checked(f"{name}[{index}]", item, kind) for index, item in enumerate(value)]
        if "tuple" in inside:
            several = tuple(map(_plain, value))
            if len(several) == len(inside["tuple"].split(",")):
                return several
    known = [_KINDS[kind] for kind in inside if kind in _KINDS]
    is_truth_for_number = isinstance(value, bool) and "bool" not in inside
    if is_truth_for_number or not any(isinstance(value, types) for types, _ in known):
        allowed = " or ".join(words for _, words in known)
        raise UsageError(f"{name}: `{quoted(repr(value))}` is not allowed: give {allowed}.")
    if isinstance(value, os.PathLike) and "str" in inside:
        return os.fspath(value)
    return _plain(value)


def _alternatives(annotation: str) -> list[tuple[str, str]]:
    """`Sequence[tuple[int, int]] | None` → (`Sequence`, `tuple[int, int]`) and (`None`, ``)."""
    parts, depth = [""], 0
    for letter in annotation:
        depth += (letter == "[") - (letter == "]")
        if letter == "|" and not depth:
            parts.append("")
        else:
            parts[-1] += letter
    split = (part.strip().removesuffix("]").partition("[") for part in parts)
    return [(kind, inside) for kind, _, inside in split]


def _plain(value: object) -> object:
    """Numbers of other libraries, such as NumPy, as Python's own."""
    if isinstance(value, Integral) and not isinstance(value, bool):
        return int(value)
    return float(value) if isinstance(value, Real) and not isinstance(value, Integral) else value
