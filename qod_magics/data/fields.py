"""Reading JSON: objects field by field or as a dataclass, with errors of one line that name the field."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields
from math import inf, isfinite
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from qod_magics.errors import ScenarioError, nearest


class Fields:
    """Checked access to the fields of one JSON object, by kind.

    `where` names the object in messages, for example "topics[0].data". All methods raise ScenarioError.
    """

    def __init__(self, value: Any, where: str, known: Sequence[str]) -> None:
        self.where = where
        if not isinstance(value, Mapping):
            raise ScenarioError(
                f"{where} is {_short(value)}: write an object with {', '.join(known)}", name=where, rule="object"
            )
        for name in value:
            if name not in known:
                raise ScenarioError(f"{where} has an unknown field {name!r}.{nearest(str(name), known)}")
        self._value = value

    def __contains__(self, name: str) -> bool:
        return name in self._value

    def refuse(self, name: str, must: str) -> NoReturn:
        """Report that the field `name` breaks a rule; `must` ends the sentence "... must "."""
        raise ScenarioError(f"{self.where}.{name} is {_short(self._value.get(name))}: it must {must}")

    def any(self, name: str) -> Any:
        """Return the raw value of a required field."""
        if name not in self._value:
            raise ScenarioError(f"{self.where} lacks the field {name!r}: add it", name=name, rule="present")
        return self._value[name]

    def text(self, name: str, *, default: str | None = None) -> str:
        """Return a non-empty string; `default`, if there is one, where the field is absent."""
        if default is not None and name not in self._value:
            return default
        value = self.any(name)
        if not isinstance(value, str) or not value:
            self.refuse(name, "be a non-empty string")
        return value

    def optional_text(self, name: str) -> str | None:
        """Return a string, or None where the field is absent or null."""
        return None if self._value.get(name) is None else self.text(name)

    def number(
        self, name: str, *, at_least: float = 0.0, above: float | None = None, default: float | None = None
    ) -> float:
        """Return a finite number, not a boolean, within the bounds; `default`, if there is one, where the field is
        absent."""
        if default is not None and name not in self._value:
            return default
        value = self.any(name)
        if not is_number(value):
            self.refuse(name, "be a number")
        if above is not None and value <= above:
            self.refuse(name, f"be above {above:g}")
        if value < at_least:
            self.refuse(name, f"be {at_least:g} or more")
        return float(value)

    def whole(self, name: str, *, at_least: int, default: int) -> int:
        """Return a whole number of at least `at_least`."""
        value = self._value.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int) or value < at_least:
            self.refuse(name, f"be a whole number of {at_least} or more")
        return value

    def flag(self, name: str, default: bool) -> bool:
        """True or false; `default` where the field is absent."""
        value = self._value.get(name, default)
        if not isinstance(value, bool):
            self.refuse(name, "be true or false")
        return value

    def items(self, name: str, of: str) -> list[Any]:
        """Return a list, empty where the field is absent. `of` names its items."""
        value = self._value.get(name, [])
        if not isinstance(value, list | tuple):
            self.refuse(name, f"be a list of {of}")
        return list(value)

    def names(self, name: str) -> tuple[str, ...] | None:
        """Return a list of different strings, at least one; None where the field is absent or null."""
        if self._value.get(name) is None:
            return None
        value = self.items(name, "names")
        if not value or not all(isinstance(item, str) and item for item in value) or len(set(value)) < len(value):
            self.refuse(name, "be a list of different names, at least one")
        return tuple(value)


def is_number(value: Any) -> bool:
    """Return a finite int or float; True and False are not numbers here."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return isfinite(value)
    except OverflowError:  # an integer too large for a float
        return False


def _short(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) <= 60 else shown[:57] + "..."


T = TypeVar("T")


def read_json(path: str | Path) -> Any:
    """Return the value in a scenario's file. Raises ScenarioError, one line: there is no such file, or it is not
    JSON."""
    try:
        return json.loads(Path(path).read_text("utf-8"))
    except OSError as problem:
        raise ScenarioError(
            f"scenario {path} can't be read ({problem.strerror}): check the path", rule="readable"
        ) from None
    except (ValueError, RecursionError) as problem:
        raise ScenarioError(f"scenario {path} is not JSON ({problem}): correct it there", rule="JSON") from None


def read_object(cls: type[T], value: Any, where: str, **given: Any) -> T:
    """Return an instance of a dataclass from a JSON object.

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
