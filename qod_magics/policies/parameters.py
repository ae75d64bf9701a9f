"""Parameters of policies: declared with their ranges, read from text, checked, and listed. Pure.

A policy that has some keeps them in a frozen dataclass, its `parameters`. Each field whose annotation carries a
`Parameter` can be set by its name; parser, help, completion and reference come from these:

    settle_s: Annotated[float, Parameter("seconds from one round to the next", least=0)] = 60.0

A policy is asked for by its name and the parameters that differ from its defaults: "henge settle_s=15 warm_up_s=20".
That text is also its `name`, so recordings hold it, and what reads them decides by the same parameters.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from math import isfinite
from types import NoneType
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

from qod_magics.errors import UsageProblem, nearest, show

_Parameters = TypeVar("_Parameters")

#: What a switch is written as.
_SWITCH: Mapping[str, bool] = {"yes": True, "true": True, "on": True, "no": False, "false": False, "off": False}


@dataclass(frozen=True, slots=True)
class Parameter:
    """Describes a field that can be set, in its annotation."""

    meaning: str  #: with its unit
    least: float | None = None
    above: float | None = None  #: it must be greater than this
    most: float | None = None


class Declared(NamedTuple):
    """A parameter with the type of its field."""

    name: str
    about: Parameter
    kind: type[bool] | type[int] | type[float] | type[str]
    words: tuple[str, ...]  #: all values of one that is a word
    optional: bool  #: whether it may be none

    @property
    def rule(self) -> str:
        """Return what holds of its values, in words."""
        about = self.about
        if self.kind is str:
            said = f"one of {', '.join(self.words)}"
        elif self.kind is bool:
            said = "yes or no"
        else:
            bounds = [
                f"above {about.above:g}" if about.above is not None else "",
                f"from {about.least:g}" if about.least is not None and about.most is not None else "",
                f"of at least {about.least:g}" if about.least is not None and about.most is None else "",
                f"to {about.most:g}" if about.most is not None and about.above is None else "",
                f"and at most {about.most:g}" if about.most is not None and about.above is not None else "",
            ]
            said = " ".join(filter(None, ["a whole number" if self.kind is int else "a number", *bounds]))
        return f"{said}, or none" if self.optional else said

    def admits(self, value: Any) -> bool:
        """Return whether a field may have this value."""
        if value is None:
            return self.optional
        if self.kind is str:
            return value in self.words
        if self.kind is bool:
            return isinstance(value, bool)
        if isinstance(value, bool) or not hasattr(value, "__float__") or not isfinite(value):
            return False
        if self.kind is int and value != int(value):
            return False
        about = self.about
        return (
            (about.least is None or value >= about.least)
            and (about.above is None or value > about.above)
            and (about.most is None or value <= about.most)
        )

    def read(self, text: str) -> Any:
        """Return the value of a text; the text itself where it is none of this kind."""
        if self.optional and text == "none":
            return None
        if self.kind is bool:
            return _SWITCH.get(text.lower(), text)
        try:
            return self.kind(text)
        except ValueError:
            return text

    def refused(self, value: Any) -> UsageProblem:
        """Return the error for a value out of range."""
        return UsageProblem(
            f"{self.name} must be {self.rule}, got {_shown(value)}; it means: {self.about.meaning}",
            name=self.name,
            value=value,
            rule="in range",
        )


def declared(kind: type) -> Mapping[str, Declared]:
    """Return the parameters that a dataclass declares, by name."""
    found = {}
    for name, hint in get_type_hints(kind, include_extras=True).items():
        if get_origin(hint) is Annotated:
            of, *more = get_args(hint)
            about = next((each for each in more if isinstance(each, Parameter)), None)
            if about is not None:
                found[name] = _declared(name, of, about)
    return found


def _declared(name: str, of: Any, about: Parameter) -> Declared:
    if get_origin(of) is Literal:
        return Declared(name, about, str, tuple(get_args(of)), False)
    parts = get_args(of) or (of,)
    kind = next(each for each in (bool, int, float) if each in parts)
    return Declared(name, about, kind, (), NoneType in parts)


def check(parameters: Any) -> None:
    """Raise UsageProblem, one line, for a parameter out of range: a dataclass calls this when it is made."""
    for name, known in declared(type(parameters)).items():
        value = getattr(parameters, name)
        if not known.admits(value):
            raise known.refused(value)


def assigned(words: Iterable[str]) -> dict[str, str]:
    """Return words NAME=VALUE as text by name. Raises UsageProblem for another word, or a name that comes twice."""
    found: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name or not value:
            raise UsageProblem(
                f"a parameter must be NAME=VALUE without blanks, got {word!r}; `%qod policy NAME` lists those of a "
                "policy",
                value=word,
                rule="name and value",
            )
        if name in found:
            raise UsageProblem(f"parameter {name} must be given once, got it twice; leave one out", name=name)
        found[name] = value
    return found


def changed(parameters: _Parameters, given: Mapping[str, Any], policy: str) -> _Parameters:
    """Return parameters with other values, texts or of their types. Raises UsageProblem, one line: it has no such
    parameter, or a value is out of range. `policy`: its name."""
    known = declared(type(parameters))
    values = {}
    for name, value in given.items():
        if name not in known:
            raise UsageProblem(
                f"policy {policy} has no parameter {name!r}.{nearest(name, known)} `%qod policy` lists them",
                name=name,
                rule="exists",
            )
        values[name] = known[name].read(value) if isinstance(value, str) else value
        if not known[name].admits(values[name]):
            raise known[name].refused(values[name])
        if known[name].kind is float and isinstance(values[name], int):
            values[name] = float(values[name])
    return replace(parameters, **values)  # type: ignore[type-var]


def written(parameters: Any, defaults: Any) -> str:
    """Return the parameters that are not the defaults as words NAME=VALUE, in the order of their declaration."""
    return " ".join(
        f"{name}={text(getattr(parameters, name))}"
        for name in declared(type(parameters))
        if getattr(parameters, name) != getattr(defaults, name)
    )


def text(value: Any) -> str:
    """Return a value as it is written."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str | int):
        return str(value)
    short = f"{float(value):g}"
    return short if float(short) == float(value) else repr(float(value))


def _shown(value: Any) -> str:
    return show(value) if isinstance(value, str) else text(value)


class Row(NamedTuple):
    """A parameter of a policy, as help and reference list it."""

    name: str
    value: str
    rule: str
    meaning: str


def rows(parameters: Any) -> tuple[Row, ...]:
    """Return the parameters with their present values."""
    return tuple(
        Row(name, text(getattr(parameters, name)), known.rule, known.about.meaning)
        for name, known in declared(type(parameters)).items()
    )


__all__ = ["Declared", "Parameter", "Row", "assigned", "changed", "check", "declared", "rows", "text", "written"]
