"""The options of streams in Python: keywords of `Session.stream` and `Session.set`, for calls, help and type checkers.

All but the types come from the table in `options.py`. The types are written down, as type checkers read no table;
`tests/application/streams/test_keywords.py` compares the two.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar

from qod_magics.application.streams.options import IN_PYTHON, StreamOptions
from qod_magics.application.streams.sink import Sink
from qod_magics.application.streams.stream import Mode
from qod_magics.application.streams.topic_input import FormatName, Malformed, TimeUnit
from qod_magics.arguments.option import Option
from qod_magics.arguments.parser import wrapped
from qod_magics.errors import nearest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType

F = TypeVar("F", bound=Callable[..., Any])


class RestrictionKeywords(TypedDict, total=False):
    """What is asked of a query, which may change while it runs."""

    priority: int | None
    min_accuracy: float | None
    max_latency_s: float | str | None
    utility: float | None
    min_juice: float | None


class StreamKeywords(RestrictionKeywords, total=False):
    """The options of a stream."""

    topic: str | None
    pattern: str | None
    source: str | None
    schema: str | DataType | None
    format: FormatName | None
    registry: str | None
    with_: str | Sequence[str]
    starting: str
    malformed: Malformed | None
    time_unit: TimeUnit
    json_options: str | Sequence[str] | Mapping[str, str]
    shed_by: str | Sequence[str]
    from_: str | Sequence[str]
    parallelism: int
    max_parallelism: int | None
    near: str | None
    key: str | None
    lend: bool
    fuse: bool
    expect: str | Sequence[str]
    sink: Sink | str | Callable[[DataFrame, int], Any] | None
    mode: Mode
    trigger_s: float | str | None
    refresh_s: float | str | None
    estimates: bool


def stream_options(name: str, given: Mapping[str, Any]) -> StreamOptions:
    """Return the options that `Session.stream` was given. Raises TypeError for an unknown one, ApplicationError."""
    return StreamOptions(name, **taken("stream", given, IN_PYTHON))


def taken(method: str, given: Mapping[str, Any], rows: Iterable[Option]) -> dict[str, Any]:
    """Return the values of keywords by the fields that they set. Raises TypeError for an unknown one,
    ApplicationError."""
    known = {row.keyword: row for row in rows}
    for keyword in given:
        if keyword not in known:
            raise TypeError(f"{method}() got an unexpected keyword argument {keyword!r}.{nearest(keyword, known)}")
    return {known[each].name: known[each].taken(value) for each, value in given.items()}


def keywords(rows: Iterable[Option]) -> Iterator[inspect.Parameter]:
    """Yield the parameters that options are in the Python API."""
    types = {each.name: each.type for each in fields(StreamOptions)}
    kind = inspect.Parameter.KEYWORD_ONLY
    for row in rows:
        yield inspect.Parameter(row.keyword, kind, default=row.default, annotation=row.annotation(types[row.name]))


def takes(rows: Iterable[Option]) -> Callable[[F], F]:
    """Return a decorator that gives a method with `**options` the signature and the help of these rows."""

    def decorated(method: F) -> F:
        signature = inspect.signature(method)
        own = [each for each in signature.parameters.values() if each.kind is not inspect.Parameter.VAR_KEYWORD]
        parameters = [*own, *keywords(rows)]
        method.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        told = (": ".join((row.keyword, "; ".join(filter(None, (row.meaning, row.in_python))))) for row in rows)
        lines = ["", "Options:", *(wrapped(each, 4) for each in told)]
        method.__doc__ = "\n".join([inspect.cleandoc(method.__doc__ or ""), *lines])
        return method

    return decorated
