"""What is wrong with a decoded JSON object: msgspec's errors as sentences that name the field and its rule. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from sys import float_info
from typing import Any, NamedTuple

from msgspec import Struct, ValidationError, convert, inspect

from qod_magics.errors import hint, listed, show

#: A message of msgspec: what is wrong, and where, as in "Expected `str`, got `int` - at `$.tasks[2].id`".
_MESSAGE = re.compile(r"(?P<what>.*?)(?: - at `(?:key` in `)?\$(?P<path>[^`]*)`)?$", re.DOTALL)
_STEP = re.compile(r"\.([^.\[]*)|\[(\d+|\.\.\.)\]")
_BOUND = re.compile(r"Expected `(int|float)(?:[^`]*)` (>=|>|<=) (\S+)$")

#: By what msgspec expected: what the value must be.
_RULES = (
    ("Expected `float | null", "be a number, or null"),
    ("Expected `float | array", "be a number, or a list of [second, number]"),
    ("Expected `float", "be a number"),
    ("Expected `int | null", "be a whole number, or null"),
    ("Expected `int | array", "be a whole number, or a list of ids"),
    ("Expected `int | float", "be a number"),
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
    ("Invalid RFC3339", "be a time, such as 2026-11-21T02:00:05.000Z"),
)


class Misfit(NamedTuple):
    """One thing that is wrong with a decoded JSON object.

    Attributes:
        path: where, as in ".tasks[2].id"; "" is the whole object.
        value: what stands there; for a field that is missing or unknown, the object around it.
        rule: "present" (the field is missing), "known" (it is no field), "object", "type", or "own" (of the struct).
        must: the end of the sentence "it must ..."; the whole message where the rule is "own".
        field: the field that is missing or unknown, or "".
        hint: " Did you mean 'x'?" or nothing.

    """

    path: str
    value: Any
    rule: str
    must: str
    field: str = ""
    hint: str = ""

    def said(self, where: str) -> str:
        """Return the message, one line; `where` names the place in the words of the caller."""
        if self.rule == "present":
            return f"{where} lacks the field {self.field!r}: {self.must}"
        if self.rule == "known":
            return f"{where} has an unknown field {self.field!r}.{self.hint}"
        return f"{where}: {self.must}" if self.rule == "own" else broken(where, self.must, self.value, self.hint)

    def attributes(self, where: str) -> dict[str, Any]:
        """Return the attributes of the error, see QodError; `where` as in `said`."""
        name = f"{where}.{self.field}" if self.field and self.path else self.field or where
        return {"name": name, "rule": self.rule, "value": None if self.field else self.value}


def broken(what: str, must: str, value: Any, hint: str = "") -> str:
    """Return the sentence about a value that breaks a rule; `hint` begins with a space, or says what to do next."""
    return f"{what} must {must}, got {show(value)}{'.' if hint.startswith(' ') else '; ' if hint else ''}{hint}"


def misfit(kind: type[Struct], error: ValidationError, obj: Any, other: Callable[..., Any] | None = None) -> Misfit:
    """Return what `convert(obj, kind, dec_hook=other)` found wrong when it raised `error`."""
    found = _MESSAGE.match(str(error))
    assert found is not None
    what = found["what"]
    steps, value = _walked(kind, obj, _STEP.findall(found["path"] or ""), other)
    path = "".join(f"[{index}]" if index else f".{key}" for key, index in steps)
    expected = _one(_at(inspect.type_info(kind), steps))
    if what.startswith("Object missing required field"):
        field = what.split("`")[1]
        close = get_close_matches(field, [each for each in value if isinstance(each, str)], n=1, cutoff=0.75)
        return Misfit(path, value, "present", f"rename {show(close[0])}" if close else "add it", field)
    if what.startswith("Object contains unknown field"):
        field = what.split("`")[1]
        return Misfit(path, value, "known", "be known", field, hint(field, _names(expected)))
    if what.startswith("Expected `object") and isinstance(expected, inspect.StructType):
        return Misfit(path, value, "object", f"be an object with {listed(_names(expected))}")
    if what.startswith("Invalid enum value"):
        return _unlisted(path, value, list(map(str, _values(expected))))
    if what.startswith("Invalid value"):  # of the field that names the struct
        return _unlisted(path, value, _tags(_at(inspect.type_info(kind), steps[:-1])))
    must = _bound(what) or next((rule for start, rule in _RULES if what.startswith(start)), None)
    return Misfit(path, value, "own", what) if must is None else Misfit(path, value, "type", must)


def _unlisted(path: str, value: Any, values: Sequence[str]) -> Misfit:
    close = get_close_matches(str(value), values, n=1, cutoff=0.5)
    must = f"be {show(values[0])}" if len(values) == 1 else f"be one of {', '.join(values)}"
    return Misfit(path, value, "type", must, hint=f" Did you mean {close[0]!r}?" if close else "")


def _bound(what: str) -> str | None:
    """Return the rule of a number that is out of its bounds; None: that is not what is wrong."""
    bound = _BOUND.match(what)
    if bound is None:
        return None
    kind, sign, limit = bound[1], bound[2], float(bound[3])
    if abs(limit) >= float_info.max:
        return "be a finite number"
    if sign == "<=":
        return "be a number between 0 and 1" if limit == 1 else f"be {limit:g} or less"
    whole = "a whole number of " if kind == "int" else ""
    return f"be above {limit:g}" if sign == ">" else f"be {whole}{limit:g} or more"


_Steps = list[tuple[str, str]]


def _walked(kind: type[Struct], obj: Any, steps: _Steps, other: Callable[..., Any] | None) -> tuple[_Steps, Any]:
    """Return the steps to the value that is wrong, and the value. msgspec says [...] for a key of a mapping."""
    value, walked = obj, list[tuple[str, str]]()
    for key, index in steps:
        if index == "...":
            key, index = _key_of(kind, obj, walked, value, other) or "", ""
            if not key:
                break
        value = value[int(index) if index else key]
        walked.append((key, index))
    return walked, value


def _key_of(
    kind: type[Struct], obj: Any, walked: _Steps, mapping: Mapping[str, Any], other: Callable[..., Any] | None
) -> str | None:
    """Return the first key of a mapping whose value alone can't be read; None within a list."""
    path = [key for key, _ in walked]
    for key, value in mapping.items() if not any(index for _, index in walked) else ():
        try:
            convert(_with(obj, path, {key: value}), kind, dec_hook=other)
        except ValidationError as error:
            if f"`$.{'.'.join(path)}[...]" in str(error):
                return key
    return None


def _with(obj: Mapping[str, Any], path: Sequence[str], value: Any) -> Any:
    return {**obj, path[0]: _with(obj[path[0]], path[1:], value)} if path else value


def _at(found: inspect.Type, steps: _Steps) -> inspect.Type:
    """Return the type at a path."""
    for key, index in steps:
        if isinstance(found, inspect.UnionType):
            wanted = (
                inspect.StructType | inspect.DictType
                if key
                else inspect.VarTupleType | inspect.ListType | inspect.TupleType
            )
            found = next((each for each in found.types if isinstance(each, wanted)), found)
        if isinstance(found, inspect.StructType):
            found = next((field.type for field in found.fields if field.encode_name == key), found)
        elif isinstance(found, inspect.DictType):
            found = found.value_type
        elif isinstance(found, inspect.VarTupleType | inspect.ListType):
            found = found.item_type
        elif isinstance(found, inspect.TupleType):
            found = found.item_types[int(index)]
    return found


def _one(found: inspect.Type) -> inspect.Type:
    """Return the struct or the literals of a union; other types unchanged."""
    if not isinstance(found, inspect.UnionType):
        return found
    kinds = inspect.StructType | inspect.LiteralType
    return next((each for each in found.types if isinstance(each, kinds)), found)


def _names(found: inspect.Type) -> list[str]:
    return [field.encode_name for field in found.fields] if isinstance(found, inspect.StructType) else []


def _values(found: inspect.Type) -> Sequence[Any]:
    return found.values if isinstance(found, inspect.LiteralType) else ()


def _tags(found: inspect.Type) -> Sequence[str]:
    """Return the tag of each struct in a union: its value in JSON says which struct is meant."""
    types = found.types if isinstance(found, inspect.UnionType) else (found,)
    return [str(each.tag) for each in types if isinstance(each, inspect.StructType)]
