"""Factories by name: tables of "module:factory", imported on demand."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from qod_magics.errors import UsageProblem, nearest


def factory(path: str) -> Callable[..., Any]:
    """The object that "module:name" names."""
    module, _, attribute = path.partition(":")
    found: Callable[..., Any] = getattr(import_module(module), attribute)
    return found


def factory_of(table: Mapping[str, str], name: str, what: str) -> Callable[..., Any]:
    """The factory that a table has under a name. Raises UsageProblem if it has none; `what`: such as "dispatcher"."""
    if name not in table:
        raise UsageProblem(f"there is no {what} {name!r}.{nearest(name, table)}")
    return factory(table[name])
