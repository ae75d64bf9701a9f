"""The tree of errors. Every message says what was wrong, with what value, and what to do.

    QodError
    ├── SnapshotError      a snapshot that breaks the format
    ├── ApplicationError   a stream that can't be declared (unknown input, cycle, name clash ...)
    ├── ScenarioError      an injector scenario that can't be read
    ├── UsageProblem       a magic or a command called with wrong arguments
    ├── SetupError         something missing on the machine (Java, a jar, a port)
    ├── KafkaError         the broker can't be started, reached or queried
    ├── QueryError         a query that runs can't go on as it was declared
    └── TaskManagerError   a task manager can't be started, reached or queried
        └── LostError      it was reachable and is gone

In a notebook each of them prints as one line (`_render_traceback_`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import Any


class QodError(Exception):
    """Base of all errors of this package; `str(error)` is one line.

    Attributes:
        option: the option of a magic that is wrong, in its long form; None: no single one is.
        name: the stream, topic, instance, task manager or field that the error is about.
        value: what was given or found instead.
        rule: which rule was broken: a short word for programs, which stays when the message is reworded ("exists",
            "unique", "last", "busy" ...).

    """

    def __init__(
        self,
        *args: object,
        option: str | None = None,
        name: str | None = None,
        value: object = None,
        rule: str | None = None,
    ) -> None:
        super().__init__(*args)
        self.option, self.name, self.value, self.rule = option, name, value, rule

    def _render_traceback_(self) -> list[str]:
        """IPython prints these lines instead of a traceback."""
        return [f"{type(self).__name__}: {self}"]


class SnapshotError(QodError, ValueError):
    """A snapshot that breaks the format; `name` is the field, as the message begins: "tasks[2].priority: missing"."""

    def __init__(self, *args: object, name: str | None = None, **attributes: Any) -> None:
        field, colon, _ = str(args[0]).partition(": ") if args else ("", "", "")
        super().__init__(*args, name=name or (field if colon else None), **attributes)


class ApplicationError(QodError, ValueError):
    """A stream that can't be declared as written."""


class ScenarioError(QodError, ValueError):
    """An injector scenario that can't be read."""


class UsageProblem(QodError):
    """A magic or a command called with wrong arguments."""


class SetupError(QodError, RuntimeError):
    """Something missing on the machine."""


class KafkaError(QodError, RuntimeError):
    """The broker can't be started, reached or queried."""


class QueryError(QodError, RuntimeError):
    """A running query can't continue as declared.

    `name` is the query, instance or task manager, `value` the cause, and `rule` the kind of alarm: "given-up",
    "starved" or "controller-silent".
    """


class TaskManagerError(QodError, RuntimeError):
    """A task manager can't be started, reached or queried."""


class LostError(TaskManagerError):
    """A task manager that was reachable and is gone."""


#: The extra that brings a package which an installation may lack.
_EXTRAS = {"pyspark": "spark", "findspark": "spark", "grpc": "spark", "confluent_kafka": "kafka"}


def lacking(error: ImportError, what: str) -> SetupError | None:
    """Return the error for `what` where a package is missing that an extra brings; None: another one is missing."""
    missing = (error.name or "").partition(".")[0]
    if missing not in _EXTRAS:
        return None
    return SetupError(
        f"{what} must have Spark and Kafka, got an installation without {missing}; "
        "pip install 'qod-magics[spark,kafka]'",
        name=missing,
        rule="installed",
    )


#: The most names that a message lists.
MOST_NAMES = 8


def nearest(word: str, known: Iterable[str]) -> str:
    """Return a hint to append to a message: " Did you mean 'x'?", or the known names (the first of many), or
    nothing."""
    names = sorted(known)
    begun = [name for name in names if word and name.startswith(word)]
    close = begun[:1] or get_close_matches(word, names, n=1, cutoff=0.5)
    if close:
        return f" Did you mean {close[0]!r}?"
    if len(names) > MOST_NAMES:
        return f" There are: {', '.join(names[:MOST_NAMES])} ... ({len(names)} in all)."
    return f" There are: {', '.join(names)}." if names else ""


# --- Values and hints in messages: short, on one line -----------------------------------------------------------------

_LONGEST_VALUE = 80  #: characters of a value that a message shows
_LONGEST_HINT = 200  #: a longer hint (hundreds of names) is useless and left out
_LISTED = 5  #: names that a sentence lists before it says how many more there are


def show(value: Any) -> str:
    """Return `value` as JSON would write it, on one line, cut to _LONGEST_VALUE characters."""
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        text = json.dumps(f"<{type(value).__name__}>")
    text = _printable(text)
    return text if len(text) <= _LONGEST_VALUE else f"{text[: _LONGEST_VALUE - 4]} ..."


def hint(word: str, known: Iterable[str]) -> str:
    """Return the nearest of the known names, as `nearest` words it, if that is short enough to help."""
    text = _printable(nearest(word, known))
    return text if len(text) <= _LONGEST_HINT else ""


def listed(names: Sequence[str], separator: str = ", ") -> str:
    """Return names with commas, or another separator, at most `_LISTED` of them."""
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return separator.join(names[:_LISTED]) + more


def counted(number: object, noun: str) -> str:
    """Return a number of things: "1 instance", "3 instances"."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def with_article(noun: str) -> str:
    """Return a noun with its article: "an int", "a str"."""
    return f"an {noun}" if noun[:1] in "AEIOUaeiou" else f"a {noun}"


def _printable(text: str) -> str:
    """Write line and paragraph separators, control characters and lone surrogates as escapes."""
    return text if text.isprintable() else "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text)
