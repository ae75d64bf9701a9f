"""`replace` for dataclasses and structs: what `copy.replace` is from Python 3.13 on. Pure."""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar

from msgspec import Struct, structs

_Object = TypeVar("_Object")


def replace(obj: _Object, /, **changes: Any) -> _Object:
    """Return a copy of a dataclass or a struct with other values in these fields."""
    if isinstance(obj, Struct):
        return structs.replace(obj, **changes)
    return dataclasses.replace(obj, **changes)  # type: ignore[type-var]
