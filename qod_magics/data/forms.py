"""Reading the JSON of scenarios as typed structs, with errors of one line that name the field and what it must be."""

from __future__ import annotations

import json
import re
from math import isfinite
from pathlib import Path
from sys import float_info
from typing import Annotated, Any, TypeAlias, TypeVar

from msgspec import Meta, Struct, ValidationError, convert
from msgspec.structs import fields

from qod_magics.core.misfit import broken, misfit
from qod_magics.errors import ScenarioError

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
        wrong = misfit(kind, error, value, _other)
        root = "" if where == "scenario" and re.search(r".[.[]", wrong.path) else where
        there = (root + wrong.path).removeprefix(".")
        raise ScenarioError(wrong.said(there), **wrong.attributes(there)) from None


def _other(kind: Any, value: Any) -> Any:
    return kind.from_json(value)


def refuse(form: Struct, where: str, name: str, must: str, hint: str = "") -> ScenarioError:
    """Return the error of a field that breaks a rule, as `broken` words it."""
    field, value = f"{where}.{name}", getattr(form, name)
    return ScenarioError(broken(field, must, value, hint), name=field, value=value, rule="own")


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


def read_json(path: str | Path) -> Any:
    """Return the value in a scenario's file. Raises ScenarioError, one line: there is no such file, or it is not
    JSON."""
    try:
        return json.loads(Path(path).read_text("utf-8"))
    except OSError as problem:
        raise ScenarioError(
            f"scenario {path} can't be read ({problem.strerror}): check the path", name=str(path), rule="readable"
        ) from None
    except (ValueError, RecursionError) as problem:
        raise ScenarioError(
            f"scenario {path} is not JSON ({problem}): correct it there", name=str(path), rule="JSON"
        ) from None


def plain(form: Struct) -> dict[str, Any]:
    """Return the JSON form, with lists for tuples."""
    found = {name: getattr(form, name) for name in names(type(form))}
    return {name: list(each) if isinstance(each, tuple) else each for name, each in found.items()}
