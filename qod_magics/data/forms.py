"""Reading the JSON of scenarios as typed structs, with errors of one line that name the field and what it must be."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from difflib import get_close_matches
from math import isfinite
from pathlib import Path
from sys import float_info
from typing import Annotated, Any, TypeAlias, TypeVar

from msgspec import Meta, Struct, ValidationError, convert, inspect
from msgspec.structs import fields

from qod_magics.errors import ScenarioError, nearest

#: Finite numbers, whole numbers and texts of a form.
Positive: TypeAlias = Annotated[float, Meta(gt=0, le=float_info.max)]
NotNegative: TypeAlias = Annotated[float, Meta(ge=0, le=float_info.max)]
Whole: TypeAlias = Annotated[int, Meta(ge=0)]
Count: TypeAlias = Annotated[int, Meta(ge=1)]
Name: TypeAlias = Annotated[str, Meta(min_length=1)]
Names: TypeAlias = Annotated[tuple[Name, ...], Meta(min_length=1)]


class Form(Struct, frozen=True, forbid_unknown_fields=True):
    """A JSON object of a scenario. `read` checks the types of its fields, the constructor does not."""


_Form = TypeVar("_Form", bound=Struct)

#: A message of msgspec: what is wrong, and where, as in "Expected `str`, got `int` - at `$.tasks[2].id`".
_MESSAGE = re.compile(r"(?P<what>.*?)(?: - at `(?:key` in `)?\$(?P<path>[^`]*)`)?$", re.DOTALL)
_STEP = re.compile(r"\.([^.\[]+)|\[(\d+)\]")
_BOUND = re.compile(r"Expected `(int|float)` (>=|>|<=) (\S+)$")

#: By what msgspec expected: what the value must be.
_RULES = (
    ("Expected `float | null", "be a number, or null"),
    ("Expected `float | array", "be a number, or a list of [second, number]"),
    ("Expected `float", "be a number"),
    ("Expected `int | null", "be a whole number, or null"),
    ("Expected `int", "be a whole number"),
    ("Expected `str` of length", "be a non-empty string"),
    ("Expected `str` matching regex", "be 1 to 249 letters, digits, dots, hyphens or underscores"),
    ("Expected `str | null", "be a non-empty string, or null"),
    ("Expected `str", "be a non-empty string"),
    ("Expected `bool", "be true or false"),
    ("Expected `array` of length >= 1", "be a list of at least one"),
    ("Expected `array` of length", "be a list of another length"),
    ("Expected `array", "be a list"),
    ("Expected `object", "be an object"),
    ("Number out of range", "be a finite number"),
)


def read(kind: type[_Form], value: Any, where: str) -> _Form:
    """Return the form that a decoded JSON value describes.

    Args:
        kind: the form; a field of a class that is no form is read by that class's `from_json`.
        value: the JSON object.
        where: its name in errors, such as "scenario" or "topics[0].data".

    Raises:
        ScenarioError: a field is unknown, missing, of the wrong type or out of range, or `kind` raises ValueError.

    """
    try:
        return convert(value, kind, dec_hook=_other)
    except ValidationError as error:
        raise _error(kind, str(error), value, where) from None


def _other(kind: Any, value: Any) -> Any:
    return kind.from_json(value)


def refuse(form: Struct, where: str, name: str, must: str) -> ScenarioError:
    """Return the error of a field that breaks a rule; `must` ends the sentence "... must "."""
    return ScenarioError(f"{where}.{name} is {_short(getattr(form, name))}: it must {must}", name=f"{where}.{name}")


def _error(kind: type[Struct], message: str, value: Any, where: str) -> ScenarioError:
    """Return the error that says in words of a scenario what msgspec says."""
    found = _MESSAGE.match(message)
    assert found is not None
    what, steps = found["what"], _STEP.findall((found["path"] or "").partition("[...]")[0])  # [...]: of a mapping
    here = value
    for key, index in steps:
        here = here[int(index) if index else key]
    path = "".join(f"[{index}]" if index else f".{key}" for key, index in steps)
    root = "" if where == "scenario" and len(steps) > 1 else where
    there = (root + path).removeprefix(".")
    expected = _at(inspect.type_info(kind), steps)
    if what.startswith("Object missing required field"):
        name = what.split("`")[1]
        return ScenarioError(f"{there} lacks the field {name!r}: add it", name=name, rule="present")
    if what.startswith("Object contains unknown field"):
        name = what.split("`")[1]
        hint = nearest(name, _names(expected))
        return ScenarioError(f"{there} has an unknown field {name!r}.{hint}", name=name, rule="known")
    if what.startswith("Expected `object") and isinstance(expected, inspect.StructType):
        known = ", ".join(_names(expected))
        return ScenarioError(f"{there} is {_short(here)}: write an object with {known}", name=there, rule="object")
    must = _rule(what, expected, here)
    if must is None:  # of a form's `__post_init__`
        return ScenarioError(f"{there}: {what}", name=there)
    return ScenarioError(f"{there} is {_short(here)}: it must {must}", name=there)


def _rule(what: str, expected: inspect.Type, value: Any) -> str | None:
    """Return the end of the sentence "it must ...", by msgspec's words; None if these are not about a type."""
    if what.startswith("Invalid enum value"):
        values = list(map(str, _values(expected)))
        close = get_close_matches(str(value), values, n=1, cutoff=0.5)
        hint = f". Did you mean {close[0]!r}?" if close else ""
        return f"be {values[0]!r}" if len(values) == 1 else f"be one of {', '.join(values)}{hint}"
    bound = _BOUND.match(what)
    if bound is not None:
        kind, sign, limit = bound[1], bound[2], float(bound[3])
        if sign == "<=":
            return f"be {limit:g} or less" if limit < float_info.max else "be a finite number"
        whole = "a whole number of " if kind == "int" else ""
        return f"be above {limit:g}" if sign == ">" else f"be {whole}{limit:g} or more"
    return next((rule for start, rule in _RULES if what.startswith(start)), None)


def _at(found: inspect.Type, path: Sequence[tuple[str, str]]) -> inspect.Type:
    """Return the type at a path, each step of which is a key or an index."""
    for key, index in path:
        if isinstance(found, inspect.UnionType):
            wanted = inspect.StructType if key else inspect.VarTupleType | inspect.ListType | inspect.TupleType
            found = next((each for each in found.types if isinstance(each, wanted)), found)
        if isinstance(found, inspect.StructType):
            found = next(field.type for field in found.fields if field.encode_name == key)
        elif isinstance(found, inspect.VarTupleType | inspect.ListType):
            found = found.item_type
        elif isinstance(found, inspect.TupleType):
            found = found.item_types[int(index)]
    if isinstance(found, inspect.UnionType):
        kinds = inspect.StructType | inspect.LiteralType
        found = next((each for each in found.types if isinstance(each, kinds)), found)
    return found


def _names(found: inspect.Type) -> list[str]:
    return [field.encode_name for field in found.fields] if isinstance(found, inspect.StructType) else []


def _values(found: inspect.Type) -> Sequence[Any]:
    return found.values if isinstance(found, inspect.LiteralType) else ()


def names(kind: type[Struct]) -> tuple[str, ...]:
    """Return the names of a form's fields."""
    return tuple(field.encode_name for field in fields(kind))


def is_number(value: Any) -> bool:
    """Return whether it is a finite int or float; True and False are not numbers here."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return isfinite(value)
    except OverflowError:  # an integer too large for a float
        return False


def _short(value: Any) -> str:
    plain = list(value) if isinstance(value, tuple) else value
    shown = f"{plain:.15g}" if isinstance(plain, float) else repr(plain)
    return shown if len(shown) <= 60 else shown[:57] + "..."


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


def plain(form: Struct) -> dict[str, Any]:
    """Return the JSON form, with lists for tuples."""
    found = {name: getattr(form, name) for name in names(type(form))}
    return {name: list(each) if isinstance(each, tuple) else each for name, each in found.items()}
