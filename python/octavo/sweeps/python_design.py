"""Designs in Python as plain data: the pickled class for other processes and nodes, and a hash of
the code that determines the result.
"""

from __future__ import annotations

import dis
import hashlib
import pickle
import sys
import sysconfig
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from octavo.base.errors import CannotRun, UsageError
from octavo.simulation.python_design import Design, name_of


@dataclass(frozen=True)
class PythonDesign:
    """A subclass of `octavo.Design`, packed."""

    name: str
    content: str
    """A hash of its code and of all that the code refers to; for installed packages, only of the
    names."""
    packed: bytes = field(compare=False, repr=False)

    def load(self) -> type[Design]:
        """The class. Raises CannotRun where a module of it is missing."""
        try:
            found: type[Design] = pickle.loads(self.packed)
        except Exception as error:
            raise CannotRun(
                f"the design {self.name} cannot be loaded here: {_described(error)}."
            ) from error
        return found


def pack(design: str | type[Design]) -> str | PythonDesign:
    """A design in the form for tasks. Raises UsageError for a class that cannot be pickled."""
    if isinstance(design, str):
        return design
    import cloudpickle  # type: ignore[import-untyped,unused-ignore]

    name = name_of(design)
    known = cloudpickle.list_registry_pickle_by_value()
    # Workers may be unable to import modules beside a script, so these are pickled with their code.
    modules = [
        module
        for key, module in [*sys.modules.items()]
        if type(module) is types.ModuleType
        and module.__name__ == key
        and key not in known
        and not is_installed(key)
    ]
    for module in modules:
        cloudpickle.register_pickle_by_value(module)
    try:
        return PythonDesign(name, content_of(design), cloudpickle.dumps(design))
    except Exception as error:
        raise UsageError(
            f"the design {name} cannot be sent to the processes of a sweep: {_described(error)}; "
            "give it to octavo.sim, or make that in its __init__."
        ) from error
    finally:
        for module in modules:
            cloudpickle.unregister_pickle_by_value(module)


def _described(error: Exception) -> str:
    lines = str(error).splitlines()
    return lines[0].rstrip(".") if lines else type(error).__name__


def is_installed(module: str) -> bool:
    """Whether a module belongs to Python, to Octavo or to an installed package."""
    if module.partition(".")[0] == "octavo" or module in sys.builtin_module_names:
        return True
    found = sys.modules.get(module)
    place = getattr(found, "__file__", None) or next(iter(getattr(found, "__path__", ())), None)
    if place is None:
        return False
    path = Path(place)
    return not _PACKAGES.isdisjoint(path.parts) or path.is_relative_to(_STANDARD_LIBRARY)


_PACKAGES = {"site-packages", "dist-packages"}
_STANDARD_LIBRARY = sysconfig.get_path("stdlib")


def _is_installed_as(value: Any) -> bool:
    """Whether a class or function can be found in an installed module."""
    module, name = value.__module__ or "", value.__qualname__
    if not is_installed(module):
        return False
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return found is value


def content_of(value: Any) -> str:
    """A hash of a value, and of all code and data that it refers to. Raises TypeError or
    pickle.PicklingError for a value without content, such as an open file.
    """
    hashed = hashlib.blake2b(digest_size=16)
    hashed.update(repr(sys.version_info[:2]).encode())
    seen: dict[int, tuple[int, Any]] = {}
    for part in _parts(value, seen):
        hashed.update(part.encode() + b"\0")
    return hashed.hexdigest()


def _parts(value: Any, seen: dict[int, tuple[int, Any]]) -> Iterator[str]:
    """Texts that differ where the contents differ. `seen` numbers the values visited so far."""
    if value is None or isinstance(value, bool | int | float | complex | str | bytes):
        yield f"{type(value).__name__} {value!r}"
        return
    # Equal constants of code may or may not be one object, which must not change the hash.
    if not isinstance(value, tuple | frozenset | types.CodeType):
        if id(value) in seen:
            yield f"again {seen[id(value)][0]}"
            return
        seen[id(value)] = (len(seen), value)
    for of_kind, parts in _KINDS:
        if isinstance(value, of_kind):
            yield from parts(value, seen)
            return
    function, arguments, *state = value.__reduce_ex__(4)[:5]
    yield "object"
    yield from _parts(function, seen)
    yield from _parts(arguments, seen)
    yield from _parts([list(one) if isinstance(one, Iterator) else one for one in state], seen)


def _of_sequence(value: Any, seen: dict[int, tuple[int, Any]]) -> Iterator[str]:
    yield f"{type(value).__name__} of {len(value)}"
    for one in value:
        yield from _parts(one, seen)


def _of_set(value: Any, seen: dict[int, tuple[int, Any]]) -> Iterator[str]:
    yield f"{type(value).__name__} of {len(value)}"
    yield from sorted(content_of(one) for one in value)


def _of_dict(value: Any, seen: dict[int, tuple[int, Any]]) -> Iterator[str]:
    yield f"dict of {len(value)}"
    for key, one in value.items():
        yield from _parts(key, seen)
        yield from _parts(one, seen)


def _of_module(value: types.ModuleType, seen: dict[int, tuple[int, Any]]) -> Iterator[str]:
    first = sys.modules.get(value.__name__.partition(".")[0])
    yield f"module {value.__name__} {getattr(first, '__version__', '')}"
    if not is_installed(value.__name__):
        public = sorted(name for name in vars(value) if not name.startswith("__"))
        yield from _parts({name: vars(value)[name] for name in public}, seen)


def _of_class(value: type, seen: dict[int, tuple[int, Any]]) -> Iterator[str]:
    yield f"class {value.__qualname__}"
    if _is_installed_as(value):
        yield value.__module__
        return
    yield from _parts(value.__bases__, seen)
    for name in sorted(vars(value)):
        if name not in _NO_CONTENT:
            yield name
            yield from _parts(vars(value)[name], seen)


_NO_CONTENT = {
    *("__dict__", "__weakref__", "__module__", "__doc__", "__annotations__", "__abstractmethods__"),
    *("_abc_impl", "__firstlineno__", "__static_attributes__", "__annotate_func__", "__annotate__"),
    "__annotations_cache__",
}
"""Attributes of classes that have no effect, or are derived from others."""


def _of_function(value: types.FunctionType, seen: dict[int, tuple[int, Any]]) -> Iterator[str]:
    yield "function"
    if _is_installed_as(value):
        yield f"{value.__module__} {value.__qualname__}"
        return
    yield from _parts(value.__code__, seen)
    yield from _parts((value.__defaults__, value.__kwdefaults__), seen)
    for cell in value.__closure__ or ():
        try:
            yield from _parts(cell.cell_contents, seen)
        except ValueError:
            yield "empty"
    for name in sorted(_globals_in(value.__code__) & value.__globals__.keys()):
        yield name
        yield from _parts(value.__globals__[name], seen)


def _globals_in(code: types.CodeType) -> set[str]:
    """The names of globals that the code and the functions in it use."""
    found = {
        one.argval
        for one in dis.get_instructions(code)
        if one.opname in ("LOAD_GLOBAL", "LOAD_NAME")
    }
    inner = (_globals_in(part) for part in code.co_consts if isinstance(part, types.CodeType))
    return found.union(*inner)


def _of_code(value: types.CodeType, seen: dict[int, tuple[int, Any]]) -> Iterator[str]:
    yield f"code {value.co_code!r} {value.co_names} {value.co_varnames} {value.co_freevars}"
    yield f"{value.co_argcount} {value.co_kwonlyargcount} {value.co_flags}"
    yield f"{getattr(value, 'co_exceptiontable', b'')!r}"
    yield from _parts(value.co_consts, seen)


def _of_wrapper(value: Any, seen: dict[int, tuple[int, Any]]) -> Iterator[str]:
    yield type(value).__name__
    yield from _parts(value.__func__, seen)


def _of_property(value: property, seen: dict[int, tuple[int, Any]]) -> Iterator[str]:
    yield "property"
    yield from _parts((value.fget, value.fset, value.fdel), seen)


def _of_builtin(value: Any, seen: dict[int, tuple[int, Any]]) -> Iterator[str]:
    yield f"built in {value.__qualname__}"


Parts = Callable[[Any, dict[int, tuple[int, Any]]], Iterator[str]]
_KINDS: tuple[tuple[Any, Parts], ...] = (
    (types.FunctionType, _of_function),
    (types.CodeType, _of_code),
    (types.ModuleType, _of_module),
    (type, _of_class),
    (tuple | list, _of_sequence),
    (set | frozenset, _of_set),
    (dict, _of_dict),
    (staticmethod | classmethod | types.MethodType, _of_wrapper),
    (property, _of_property),
    (
        types.BuiltinFunctionType
        | types.WrapperDescriptorType
        | types.MethodDescriptorType
        | types.GetSetDescriptorType
        | types.MemberDescriptorType,
        _of_builtin,
    ),
)
"""Kinds of values, each with the function for its parts."""
