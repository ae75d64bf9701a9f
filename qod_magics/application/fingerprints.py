"""Hashes of streams and tasks that are the same in every process: whether a cell is the one of an earlier kernel.

A recipe is hashed by its text, by the code of the functions that it reads, and by their plain values. Other objects,
such as a model or a DataFrame of the notebook, count by their types only.
"""

from __future__ import annotations

import datetime
import decimal
import enum
import functools
import hashlib
import pathlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from qod_magics.application.recipes.capture import names_of
from qod_magics.application.streams.stream import StreamDeclaration
from qod_magics.application.tasks import TaskSpec, settings_of, work_of

_PLAIN = (
    *(bool, int, float, complex, str, bytes, type(None), range),
    *(datetime.date, datetime.time, datetime.timedelta, decimal.Decimal, enum.Enum, pathlib.PurePath),
)
#: Characters of a hash: 64 bits.
LENGTH = 16


def digest(*parts: Any) -> str:
    """Return the hash of values: equal for equal ones in any process of one release of Python."""
    return hashlib.sha256(_form(parts, ()).encode()).hexdigest()[:LENGTH]


def of_recipe(stream: StreamDeclaration) -> str:
    """Return the hash of a stream's recipe."""
    return digest(stream.recipe)


def of_work(spec: TaskSpec) -> str:
    """Return the hash of all that a task's rows depend on."""
    return digest(work_of(spec))


def of_settings(spec: TaskSpec) -> str:
    """Return the hash of what a task's checkpoint depends on beside its recipes."""
    return digest(settings_of(spec), spec.parallelism)


def of_columns(columns: Iterable[tuple[str, str]]) -> str:
    """Return the hash of columns, given by name and type."""
    return digest(list(columns))


def _form(value: Any, within: tuple[int, ...]) -> str:
    """Write a value as text. `within`: ids of the values that hold it."""
    if isinstance(value, _PLAIN):
        return repr(value)
    if id(value) in within:
        return "<itself>"
    inner = (*within, id(value))

    def form(each: Any) -> str:
        return _form(each, inner)

    kind = type(value).__qualname__
    if isinstance(value, list | tuple):
        return f"{kind}[{', '.join(map(form, value))}]"
    if isinstance(value, set | frozenset):
        return f"{kind}{{{', '.join(sorted(map(form, value)))}}}"
    if isinstance(value, Mapping):
        return f"{kind}{{{', '.join(f'{form(key)}: {form(each)}' for key, each in value.items())}}}"
    if isinstance(value, FunctionType):
        return f"function {_function(value, inner)}"
    if isinstance(value, CodeType):
        return f"code {value.co_code.hex()} {form(value.co_names)} {form(value.co_consts)}"
    if isinstance(value, functools.partial):
        return f"partial {form(value.func)} {form(value.args)} {form(value.keywords)}"
    if isinstance(value, MethodType):
        return f"method {form(value.__func__)} {form(value.__self__)}"
    if isinstance(value, re.Pattern):
        return f"pattern {value.pattern!r} {value.flags}"
    if isinstance(value, type):
        own = value.__module__ == "__main__"
        members = {name: each for name, each in vars(value).items() if isinstance(each, FunctionType)} if own else {}
        return f"type {value.__module__}.{value.__qualname__} {form(members)}"
    if isinstance(value, ModuleType):
        return f"module {value.__name__}"
    if hasattr(value, "source_text") and hasattr(value, "captured"):  # a cell in Python
        return f"{kind} {form(value.source_text)} {form(value.captured)}"
    if is_dataclass(value):
        held = {f.name: getattr(value, f.name) for f in fields(value) if f.init and not _is_unstated(f, value)}
        return f"{kind}({', '.join(f'{name}={form(each)}' for name, each in held.items())})"
    if callable(getattr(value, "func", None)):  # a function in Python for Spark
        return f"{kind} {form(value.func)} {getattr(value, '_returnType', '')!r}"
    return f"<{type(value).__module__}.{kind}>"


def _is_unstated(field: Field[Any], value: Any) -> bool:
    """Return whether earlier releases lack this field of a dataclass, and it has its default."""
    default = field.default if field.default_factory is MISSING else field.default_factory()
    return "later" in field.metadata and getattr(value, field.name) == default


def _function(function: FunctionType, within: tuple[int, ...]) -> str:
    """Write a function: its code, and what it reads where it is one of the notebook; of a module, its name and code."""
    if function.__module__ not in (None, "__main__"):
        return f"{function.__module__}.{function.__qualname__} {_form(function.__code__, within)}"
    space = function.__globals__
    read = {name: space[name] for name in sorted(names_of(function)) if name in space}
    cells = [cell.cell_contents for cell in function.__closure__ or () if _is_filled(cell)]
    parts = (function.__code__, function.__defaults__, function.__kwdefaults__, cells, read)
    return f"{function.__name__} {_form(parts, within)}"


def _is_filled(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True
