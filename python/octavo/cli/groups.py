"""Commands as they are declared: each by `command`, each option by a line of `option` or `flag`,
each other word by one of `argument`.

Many options are in groups that several commands share: dataclasses with a field for each option.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import MISSING, Field, field, fields, is_dataclass
from functools import wraps
from inspect import Parameter, Signature, get_annotations, signature
from typing import Annotated, Any, TypeVar, get_type_hints

import typer

from octavo.cli import DECLARED, LOOK

Value = TypeVar("Value")


def option(default: Value, metavar: str, text: str, *names: str, **more: Any) -> Value:
    """An option with a value. Without `names` it is called as its parameter; `more` is typer's."""
    declared: Value = field(
        default=default, metadata={"of": typer.Option(*names, metavar=metavar, help=text, **more)}
    )
    return declared


def argument(metavar: str, text: str, default: Any = MISSING, **more: Any) -> Any:
    """A word that is not an option; it has to be given unless there is a default."""
    of = typer.Argument(metavar=metavar, help=text, **more)
    return field(default=default, metadata={"of": of})


def flag(text: str, *names: str, default: Any = False) -> Any:
    """An option without a value: `--name`, or `--name/--no-name` where it is on by default."""
    return field(default=default, metadata={"of": names, "help": text})


def optional(read: Callable[..., Value], text: str | None, *name: str) -> Value | None:
    """The value of an option that may be absent; `read` gets its name, too, where there is one."""
    return None if text is None else read(text, *name)


def command(
    name: str, *, no_args_is_help: bool = True, **settings: Any
) -> Callable[[Callable[..., None]], None]:
    """Declares the command of a module; `settings` are typer's. The function has a parameter for
    each option or, of those in a group, one whose type is the group's dataclass.
    """

    def declare(function: Callable[..., None]) -> None:
        app = DECLARED[name] = typer.Typer(**LOOK)
        app.command(name, no_args_is_help=no_args_is_help, **settings)(_with_groups(function))

    return declare


def _with_groups(command: Callable[..., None]) -> Callable[..., None]:
    """The command as typer takes it: with a parameter for each option, also for those of groups."""
    types = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {name: of for name, of in types.items() if is_dataclass(of)}
    listed: list[Parameter] = []
    for name, plain in signature(command).parameters.items():
        listed += _options_of(groups[name]) if name in groups else [_plain(plain, types[name])]

    @wraps(command)
    def flat(**given: Any) -> None:
        made = {
            name: group(**{of.name: given.pop(of.name) for of in fields(group)})
            for name, group in groups.items()
        }
        command(**given, **made)

    flat.__signature__ = Signature(listed)  # type: ignore[attr-defined]
    flat.__annotations__ = {each.name: each.annotation for each in listed}
    return flat


def _options_of(group: Any) -> Iterator[Parameter]:
    """The options of a group: of a derived class before its base."""
    types = get_type_hints(group, include_extras=True)
    by_name = {of.name: of for of in fields(group)}
    for owner in group.__mro__:
        for name in get_annotations(owner):
            if name in by_name:
                yield _declared(by_name[name], name, types[name])


def _declared(declared: Field[Any], name: str, kind: Any) -> Parameter:
    of = declared.metadata.get("of")
    if isinstance(of, tuple):
        names = of or (() if declared.default else (f"--{name.replace('_', '-')}",))
        of = typer.Option(*names, help=declared.metadata["help"])
    annotation = kind if of is None else Annotated[kind, of]
    default = Parameter.empty if declared.default is MISSING else declared.default
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _plain(parameter: Parameter, kind: Any) -> Parameter:
    if isinstance(parameter.default, Field):
        return _declared(parameter.default, parameter.name, kind)
    return parameter.replace(kind=Parameter.KEYWORD_ONLY, annotation=kind)
