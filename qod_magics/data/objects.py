"""JSON files, and JSON objects whose fields are those of a dataclass."""

from __future__ import annotations

import json
from dataclasses import MISSING, fields
from math import inf
from pathlib import Path
from typing import Any, TypeVar

from qod_magics.data.fields import Fields
from qod_magics.errors import ScenarioError

T = TypeVar("T")


def read_json(path: str | Path) -> Any:
    """The value in a scenario's file. Raises ScenarioError, one line: there is no such file, or it is not JSON."""
    try:
        return json.loads(Path(path).read_text("utf-8"))
    except OSError as problem:
        raise ScenarioError(f"scenario {path} can't be read ({problem.strerror}): check the path") from None
    except (ValueError, RecursionError) as problem:
        raise ScenarioError(f"scenario {path} is not JSON ({problem}): correct it there") from None


def read_object(cls: type[T], value: Any, where: str, **given: Any) -> T:
    """An instance of a dataclass from a JSON object.

    Numbers are finite and not negative; "inf" stands for infinity where a float is declared, and null for None.

    Args:
        cls: its fields are declared as int, float, bool or str, or as one of these or None; any other is read as text.
        value: the JSON object.
        where: the name of the object in messages.
        given: fields that were read already.

    Raises:
        ScenarioError: a field is unknown, missing or of the wrong kind, or `cls` raises ValueError for its value.

    """
    declared = {field.name: field for field in fields(cls)}  # type: ignore[arg-type]
    known = Fields(value, where, list(declared))
    found: dict[str, Any] = dict(given)
    for name, field in declared.items():
        if name in found:
            continue
        if name not in value:
            if field.default is MISSING and field.default_factory is MISSING:
                known.any(name)
            continue
        each = value[name]
        kind = str(field.type)
        if each is None and "None" in kind:
            found[name] = None
        elif kind.startswith("bool"):
            found[name] = known.flag(name, False)
        elif kind.startswith("int"):
            found[name] = known.whole(name, at_least=0, default=0)
        elif kind.startswith("float"):
            found[name] = inf if each in ("inf", "infinite") else known.number(name)
        else:
            found[name] = known.text(name)
    try:
        return cls(**found)
    except ValueError as error:
        raise ScenarioError(f"{where}: {error}") from None
