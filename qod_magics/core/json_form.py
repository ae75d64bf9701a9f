"""Structs from their JSON form, with errors that name the field, show its value and say what to give. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import get_close_matches
from functools import cache
from typing import Any, TypeVar

from msgspec import Struct, ValidationError, convert, to_builtins
from msgspec.structs import fields, replace

from qod_magics.core.wording import show
from qod_magics.errors import SnapshotError

_Kind = TypeVar("_Kind", bound=Struct)

#: A message of msgspec: what is wrong, and where, as in "Expected `str`, got `int` - at `$.tasks[2].id`".
_MESSAGE = re.compile(r"(?P<what>.*?)(?: - at `\$(?P<path>.*)`)?$", re.DOTALL)
_STEP = re.compile(r"\.([^.\[]*)|\[(\d+|\.\.\.)\]")

#: By what msgspec expected: what a value is not, and what to give.
_WORDS = (
    ("Expected `float | null`", "is not a number; give a finite number, or null"),
    ("Expected `float`", "is not a number; give a finite number"),
    ("Expected `int | null`", "is not an integer; give a whole number, or null"),
    ("Expected `int | array", "is neither a whole number nor a list; give a whole number, or a list of ids"),
    ("Expected `int`", "is not an integer; give a whole number"),
    ("Expected `str", "is not a string; give an id in quotes"),
    ("Expected `bool", "is neither true nor false; give one of them"),
    ("Expected `array` of length", "has another length; give a list of that many values"),
    ("Expected `array", "is not a list; give a list, [] for none"),
    ("Expected `object", "is not an object; give an object"),
    ("Number out of range", "is too large; give a finite number"),
)


@cache
def keys(kind: type[Struct]) -> frozenset[str]:
    """Return the keys of a struct's JSON object."""
    return frozenset(field.encode_name for field in fields(kind))


def read(kind: type[_Kind], obj: Any, name: str) -> _Kind:
    """Return the struct that a decoded JSON object describes; keys that it does not have go to its `unknown`.

    `name`: of the whole, for errors. Raises SnapshotError with one line that names the field, its value and what to do.
    """
    try:
        made = convert(obj, kind)
    except ValidationError as error:
        raise SnapshotError(_worded(str(error), obj, name)) from None
    return with_unknown(made, obj)


def with_unknown(made: _Kind, obj: Mapping[str, Any]) -> _Kind:
    """Return the struct with the keys of its JSON object that it does not have in `unknown`."""
    known = keys(type(made))
    if known.issuperset(obj):
        return made
    return replace(made, unknown={key: value for key, value in obj.items() if key not in known})


def written(made: Struct) -> dict[str, Any]:
    """Return the JSON form of a struct: plain dicts and lists, ready for `json.dumps`."""
    found = to_builtins(made)
    unknown = found.pop("", None)
    plain = {key: list(value) if type(value) is tuple else value for key, value in found.items()}
    return plain if unknown is None else {**plain, **unknown}


def _worded(message: str, obj: Any, name: str) -> str:
    """Return msgspec's message in the words of this format."""
    found = _MESSAGE.match(message)
    assert found is not None
    what, path = found["what"], found["path"] or ""
    value, there = obj, ""
    for key, index in _STEP.findall(path):
        if index == "...":  # a key of a mapping, which msgspec does not tell
            break
        value = value[int(index) if index else key]
        there += f"[{index}]" if index else f".{key}"
    there = there.removeprefix(".")
    if what.startswith("Object missing required field"):
        key = what.split("`")[1]
        return f"{there + '.' if there else ''}{key}: missing{_misspelt(key, value) or '; add it'}"
    if ">=" in what or "<=" in what:
        return f"{there or name}: {show(value)} is not a number >= 0; give one"
    words = next((words for start, words in _WORDS if what.startswith(start)), f"can't be read: {what}")
    return f"{there or name}: {show(value)} {words}"


def _misspelt(key: str, obj: Mapping[str, Any]) -> str:
    """Return a hint at a key of the object that looks like the missing one."""
    close = get_close_matches(key, [other for other in obj if isinstance(other, str)], n=1, cutoff=0.75)
    return f"; there is {show(close[0])}: rename it" if close else ""
