"""Declarations of commands: `command` for a command, `option` or `flag` for an option, `argument`
for another word.

Many options are in groups that several commands share: dataclasses with a field for each option.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import MISSING, Field, field, fields, is_dataclass
from functools import wraps
from inspect import Parameter, Signature, get_annotations, signature
from typing import Annotated, Any, TypeVar, get_type_hints

import typer

from octavo.cli import COMMANDS, DECLARED, TYPER_SETTINGS
from octavo.cli.command_line import Command

Value = TypeVar("Value")


def option(default: Value, metavar: str, text: str, *names: str, **more: Any) -> Value:
    """An option with a value. Without `names` it has the name of its parameter; `more` is for
    typer.
    """
    info = typer.Option(*names, metavar=metavar, help=text, **more)
    declared: Value = field(default=default, metadata={"info": info})
    return declared


def argument(metavar: str, text: str, default: Any = MISSING, **more: Any) -> Any:
    """A word that is not an option; it is required unless there is a default."""
    info = typer.Argument(metavar=metavar, help=text, **more)
    return field(default=default, metadata={"info": info})


def flag(text: str, *names: str, default: Any = False) -> Any:
    """An option without a value: `--name`, or `--name/--no-name` where it is on by default."""
    return field(default=default, metadata={"names": names, "help": text})


def optional(read: Callable[..., Value], text: str | None, *name: str) -> Value | None:
    """The value of an option, or None where it is absent; `read` gets `name`, too, if given."""
    return None if text is None else read(text, *name)


def command(
    name: str, *, cls: type[Command] = Command, no_args_is_help: bool = True, **settings: Any
) -> Callable[[Callable[..., None]], None]:
    """Declares the command of a module; `settings` are for typer. The function has a parameter for
    each option, and one parameter for a group of options, whose type is the group's dataclass.
    """

    def declare(function: Callable[..., None]) -> None:
        app = DECLARED[name] = typer.Typer(**TYPER_SETTINGS)
        settings.update(cls=cls, short_help=COMMANDS[name], no_args_is_help=no_args_is_help)
        app.command(name, **settings)(_with_groups(function))

    return declare


def _with_groups(command: Callable[..., None]) -> Callable[..., None]:
    """The command in the form that typer needs: with a parameter for each option of a group."""
    types = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {name: kind for name, kind in types.items() if is_dataclass(kind)}
    listed: list[Parameter] = []
    for name, plain in signature(command).parameters.items():
        listed += _options_of(groups[name]) if name in groups else [_plain(plain, types[name])]

    @wraps(command)
    def flat(**given: Any) -> None:
        made = {
            name: group(**{one.name: given.pop(one.name) for one in fields(group)})
            for name, group in groups.items()
        }
        command(**given, **made)

    flat.__signature__ = Signature(listed)  # type: ignore[attr-defined]
    flat.__annotations__ = {each.name: each.annotation for each in listed}
    return flat


def _options_of(group: Any) -> Iterator[Parameter]:
    """The options of a group; options of a derived class come before those of its base."""
    types = get_type_hints(group, include_extras=True)
    by_name = {one.name: one for one in fields(group)}
    for owner in group.__mro__:
        for name in get_annotations(owner):
            if name in by_name:
                yield _declared(by_name[name], name, types[name])


def _declared(declared: Field[Any], name: str, kind: Any) -> Parameter:
    info = declared.metadata.get("info")
    if "names" in declared.metadata:
        names = declared.metadata["names"]
        names = names or (() if declared.default else (f"--{name.replace('_', '-')}",))
        info = typer.Option(*names, help=declared.metadata["help"])
    annotation = kind if info is None else Annotated[kind, info]
    default = Parameter.empty if declared.default is MISSING else declared.default
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _plain(parameter: Parameter, kind: Any) -> Parameter:
    if isinstance(parameter.default, Field):
        return _declared(parameter.default, parameter.name, kind)
    return parameter.replace(kind=Parameter.KEYWORD_ONLY, annotation=kind)
