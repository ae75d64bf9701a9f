"""One row of the table of options, and the readers of numbers that rows share.

Whatever reads, completes, explains or documents an option takes it from its row.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import KW_ONLY, dataclass
from keyword import iskeyword
from math import inf
from typing import Any

from qod_magics.errors import ApplicationError, QodError, UsageProblem, nearest

#: What readers read, in words, where their names do not say it.
_KINDS = {
    "str": "text",
    "int": "whole number",
    "whole": "whole number",
    "float": "number",
    "words": "text",
    "duration": "seconds",
    "ddl": "DDL",
}


@dataclass(frozen=True, slots=True)
class Option:
    """An option of a magic, or an argument that is known by its place."""

    form: (
        str  #: as the help shows it: "-p, --priority N"; an argument by its place is "name", or "[name]" if it may lack
    )
    help: str  #: what it means, with its unit
    convert: Callable[[str], Any] = str  #: reads a value; raises ValueError or QodError
    _: KW_ONLY
    name: str = ""  #: the field or keyword that it sets; by default as it is written
    default: Any = None
    unless: str = ""  #: what holds where it is not given, in words, where `default` does not say it
    choices: tuple[str, ...] = ()  #: all values that it takes
    offers: tuple[str, ...] = ()  #: values or their beginnings to complete
    one_of: Callable[[], Iterable[str]] | None = None  #: values that are known only when it is read
    following: Callable[[Sequence[str]], Iterable[str]] | None = None  #: completes it, by the words before it
    names: tuple[str, ...] = ()  #: kinds of names to complete, see `completion.Names`
    several: bool = False  #: takes all words up to the next option
    repeats: bool = False  #: may be given again: values add up
    secret: bool = False  #: whether its values NAME=VALUE may hold passwords: messages show the names alone
    needs: tuple[str, ...] = ()  #: options, by name, without which it means nothing
    changes: str = ""  #: what it changes: its section in help and reference; "": as of the row above
    running: str = ""  #: what changes it while it is in effect; "": nothing does
    removable: bool = False  #: whether it can be taken away again, by `none`, in Python by infinity
    resumes: bool = False  #: whether a query whose cell changes it keeps its checkpoint
    cell_only: bool = False  #: whether the Python API lacks it
    accepts: Callable[..., Any] | None = None  #: reads what the Python API takes in place of the value
    in_python: str = ""  #: what that is

    def __post_init__(self) -> None:
        if not self.name:
            object.__setattr__(self, "name", self.flag.lstrip("-").replace("-", "_"))

    @property
    def flags(self) -> tuple[str, ...]:
        """Return all ways to write it: ("-p", "--priority")."""
        return tuple(re.findall(r"(?:^\[?|(?<=, ))([^ ,\]]+)", self.form))

    @property
    def flag(self) -> str:
        """Return the long one of these, or the name of an argument."""
        return self.flags[-1]

    @property
    def metavar(self) -> str:
        """Return what stands for its value; "": a switch, or an argument that shows its name."""
        return self.form.partition(self.flag)[2].lstrip("] ") or "|".join(self.choices)

    @property
    def keyword(self) -> str:
        """Return its name in the Python API: that of its field, but `from_` for --from."""
        word = self.flag.lstrip("-")
        return f"{word}_" if iskeyword(word) else self.name

    @property
    def positional(self) -> bool:
        """Return whether it is known by its place."""
        return not self.form.startswith("-")

    @property
    def required(self) -> bool:
        """Return whether it has to be given: an argument in no brackets."""
        return self.form[0] not in "-["

    @property
    def switch(self) -> bool:
        """Return whether it takes no value: it turns its default round."""
        return not self.positional and not self.metavar

    @property
    def usage(self) -> str:
        """Return it as the help shows it."""
        return self.metavar or self.flag if self.positional else f"{', '.join(self.flags)} {self.metavar}".rstrip()

    @property
    def kind(self) -> str:
        """Return the type of its value in words."""
        if self.switch:
            return "switch"
        reader = self.convert.__name__.removeprefix("check_").removeprefix("parse_")
        kind = "choice" if self.choices else _KINDS.get(reader, reader)
        return f"list of {kind}" if self.several or self.repeats else kind

    @property
    def default_text(self) -> str:
        """Return in words what holds where it is not given; "" where that is nothing."""
        if self.unless or self.switch or self.default in (None, (), []):
            return self.unless
        return " ".join(map(str, self.default)) if isinstance(self.default, tuple | list) else str(self.default)

    @property
    def said(self) -> str:
        """Return what it means, with the values that are known only now."""
        return f"{self.help}; one of {', '.join(self.one_of())}" if self.one_of else self.help

    @property
    def meaning(self) -> str:
        """Return the help text: what it means, and its default."""
        return f"{self.said} (default: {self.default_text})" if self.default_text else self.said

    def read(self, text: str) -> Any:
        """Return the value of a text. Raises UsageProblem, one line that names the option, or ValueError."""
        try:
            if self.choices:
                return choice(self.choices)(text)
            return self.convert(text)
        except QodError as error:
            raise UsageProblem(f"{self.flag}: {error}", option=self.flag) from None

    def lacks_value(self) -> UsageProblem:
        """Return the error for an option without its value."""
        return UsageProblem(f"{self.flag} needs a value: {self.flag} {self.metavar}", option=self.flag)

    def taken(self, given: Any) -> Any:
        """Return the value for what the Python API was given. Raises ApplicationError."""
        if self.accepts is not None:
            return self.accepts(given)
        if self.several:
            return (given,) if isinstance(given, str) else tuple(given)
        return given

    def annotation(self, of_field: Any) -> Any:
        """Return the annotation of its Python keyword, that of its field unless the API takes more."""
        if self.accepts is not None:
            return next(iter(inspect.signature(self.accepts).parameters.values())).annotation
        return "str | Sequence[str]" if self.several else of_field


def choice(choices: tuple[str, ...]) -> Callable[[str], str]:
    """Return a reader of one of these words."""

    def read(text: str) -> str:
        if text not in choices:
            raise UsageProblem(f"invalid choice: {text!r}.{nearest(text, choices)} One of {', '.join(choices)}.")
        return text

    return read


def whole(text: str) -> int:
    """Read a whole number. Raises UsageProblem."""
    try:
        return int(text)
    except ValueError:
        raise UsageProblem(f"a whole number is needed, not {text!r}") from None


def number(text: str) -> float:
    """Read a number. Raises UsageProblem."""
    try:
        return float(text)
    except ValueError:
        raise UsageProblem(f"a number is needed, not {text!r}") from None


_NUMBER = r"(?:\d+(?:\.\d*)?|\.\d+)"
#: Seconds of each unit of time.
_UNITS = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def duration(text: str) -> float:
    """Read a time above 0 in seconds: "2", "2s", "500ms", "10m" or "1h30m". Raises UsageProblem."""
    asked = f"{text}s" if re.fullmatch(_NUMBER, text) else text
    parts = re.findall(rf"({_NUMBER})({'|'.join(_UNITS)})", asked)
    value = sum(float(number) * _UNITS[unit] for number, unit in parts)
    if "".join(number + unit for number, unit in parts) != asked or not 0 < value < inf:
        raise UsageProblem(
            f"a time must be above 0, such as 90s, 500ms, 10m or 1h30m, got {text!r}", value=text, rule="duration"
        )
    return value


def as_duration(given: float | str | None) -> float | None:
    """Return the seconds that the Python API is given, as a number or as text. Raises ApplicationError."""
    if not isinstance(given, str):
        return given
    try:
        return duration(given)
    except UsageProblem as error:
        raise ApplicationError(str(error), value=given, rule=error.rule) from None


def words(text: str) -> tuple[str, ...]:
    """Read words with commas between them."""
    return tuple(part for part in text.split(",") if part)


def cores(text: str) -> set[int]:
    """Read the numbers of cores: "0,1". Raises UsageProblem."""
    try:
        return {int(word) for word in text.split(",")}
    except ValueError:
        raise UsageProblem(f"cores are numbers with commas between, such as 0,1, not {text!r}") from None


def pairs(texts: Iterable[str]) -> dict[str, str]:
    """Return options NAME=VALUE by name. Raises UsageProblem."""
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise UsageProblem(f"an option is NAME=VALUE, not {text!r}")
        if name in found:
            raise UsageProblem(f"option {name} is given twice: leave one of them out")
        found[name] = value
    return found


def or_none(convert: Callable[[str], float]) -> Callable[[str], float]:
    """Return a reader of a value that may be removed: infinity for "none"."""

    def read(text: str) -> float:
        if text == "none":
            return inf
        try:
            return convert(text)
        except QodError as error:
            raise UsageProblem(f"{error}; or none") from None

    read.__name__ = f"{convert.__name__} or none"
    return read
