"""Recipes: from a Spark session and input DataFrames to a streaming DataFrame, on any task manager.

Every recipe offers `opened(spark, inputs)`, a context manager: a query built inside it must also be *started* inside
it, since Spark Connect resolves names only when a plan is used.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from types import CodeType, MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol, cast

from qod_magics.application.graph import SOURCE
from qod_magics.application.recipes.building import (
    advice,
    analysis_errors_unprinted,
    first_line,
    raise_unless_connection,
    shortened,
    temporary_views,
    without_weight,
)
from qod_magics.application.recipes.capture import Capture, on_session, same
from qod_magics.application.recipes.modules import Modules
from qod_magics.application.recipes.views import View, sql_over
from qod_magics.application.sql.estimates import estimated, has_estimates
from qod_magics.application.sql.names import SYNTAX, Turned, aggregates, tables_read, turned
from qod_magics.application.sql.parameters import Parameter, bound, parameters_of
from qod_magics.errors import ApplicationError, QodError, with_article
from qod_magics.estimate.formulas import WEIGHT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Recipe(Protocol):
    """How a stream is derived from its inputs. Equal recipes derive the same stream."""

    @property
    def names(self) -> frozenset[str] | None:
        """Return names that it reads and does not define, the candidates for inputs; None: it takes any inputs."""
        ...

    @property
    def text(self) -> str:
        """Return the text as it was written; "" if it was not written as a text."""
        ...

    @property
    def weighs(self) -> bool:
        """Return whether it names `_weight`, or an estimate reads it: rows of a query's result have the column only
        then."""
        ...

    def missing(self, inputs: tuple[str, ...]) -> tuple[str, ...]:
        """Return the inputs that it certainly never reads."""
        ...

    def opened(self, spark: SparkSession, inputs: Mapping[str, DataFrame]) -> AbstractContextManager[DataFrame]:
        """Return the DataFrame, while the context is open; start the query inside.

        `inputs` holds DataFrames by name. Raises ApplicationError, one line, when the recipe fails or its result is
        no streaming DataFrame; an error of the connection to Spark passes through.
        """
        ...


@dataclass(frozen=True)
class SqlRecipe:
    """A Spark SQL query, kept as written; its inputs are temporary views of their names.

    Spark gets it with expressions in place of estimates: see `sql.estimates`.
    """

    sql: str
    estimates: bool = False  #: its counts, sums and averages become estimates, too, under the same names
    parameters: tuple[Parameter, ...] = ()  #: the values of all `:name` in it
    views: tuple[View, ...] = ()  #: of the notebook's session, that it reads

    @cached_property
    def names(self) -> frozenset[str] | None:
        """Return tables that the text reads. Raises ApplicationError for text that can't be parsed."""
        try:
            return frozenset(tables_read(self.sql))
        except ApplicationError as error:
            if error.rule != SYNTAX:
                raise
            raise ApplicationError(
                f"{error} If Spark does take it, name the inputs with --from.", rule=SYNTAX
            ) from error

    @property
    def text(self) -> str:
        """Return the query."""
        return self.sql

    @cached_property
    def aggregates(self) -> bool:
        """Return whether the text groups, aggregates or removes duplicates."""
        return aggregates(self.sql)

    @cached_property
    def weighs(self) -> bool:
        """Return whether the text reads `_weight`, by name or by an estimate."""
        return self.estimates or has_name(self.sql, WEIGHT) or has_estimates(self.sql)

    @cached_property
    def turned(self) -> Turned | None:
        """Return the aggregates that become estimates; None without `estimates`. Raises ApplicationError: see
        `turned`."""
        return turned(self.sql) if self.estimates else None

    def missing(self, inputs: tuple[str, ...]) -> tuple[str, ...]:
        """Return inputs that no FROM or JOIN names; none when the text can't be parsed: Spark decides then."""
        try:
            read = {name.casefold() for name in self.names or ()}
        except ApplicationError:
            return ()
        return tuple(name for name in inputs if name.casefold() not in read)

    @contextmanager
    def opened(self, spark: SparkSession, inputs: Mapping[str, DataFrame]) -> Iterator[DataFrame]:
        """Yield the query's DataFrame; its views exist until the context closes."""
        text = estimated(self.sql, self.turned.calls if self.turned else None)
        with temporary_views(inputs):
            try:
                with analysis_errors_unprinted():
                    built = streaming(self._asked(spark, text), "the SQL", inputs.values())
                    if self.turned and self.turned.unnamed:
                        built = built.toDF(*self._asked(spark, estimated(self.sql)).columns)
            except QodError:
                raise
            except Exception as error:
                raise_unless_connection(error)
                message = first_line(error)
                if text != self.sql:
                    message = without_weight(message) or shortened(message)
                raise ApplicationError(f"the SQL fails: {message}{advice(error)}") from error
            yield built

    def _asked(self, spark: SparkSession, text: str) -> DataFrame:
        text, arguments = bound(text, self.parameters) if self.parameters else (text, {})
        if self.views:
            return sql_over(self.views, spark, text, arguments)
        return spark.sql(text, arguments) if arguments else spark.sql(text)


@dataclass(frozen=True, eq=False)
class FunctionRecipe:
    """A Python function: parameters are bound by name to `spark` and inputs; a lone other one gets the lone input.

    `lambda trips: ...`, `def counts(spark, trips, zones)`, `lambda df: ...`, `def any(spark, **inputs)` all work.
    A function of the notebook runs over the values that the names which it reads had when the recipe was created (see
    `Capture`). Two recipes are equal when their functions are the same (see `same`).
    """

    function: Callable[..., Any]
    _captured: Callable[..., Any] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_captured", Capture().of(self.function))

    def __eq__(self, other: object) -> bool:
        return same(self._captured, other._captured) if isinstance(other, FunctionRecipe) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._name)

    @cached_property
    def names(self) -> frozenset[str] | None:
        """Return its parameters except `spark`; None when it takes any."""
        parameters = self._parameters()
        if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
            return None
        return frozenset(parameter.name for parameter in parameters) - {"spark"}

    @property
    def text(self) -> str:
        """Empty."""
        return ""

    @cached_property
    def weighs(self) -> bool:
        """Return whether its code names `_weight`; True for what is not a Python function, whose code can't be read."""
        code = getattr(inspect.unwrap(self.function), "__code__", None)
        return code is None or mentions(code, WEIGHT)

    def missing(self, inputs: tuple[str, ...]) -> tuple[str, ...]:
        """Empty: never known beforehand."""
        return ()

    @contextmanager
    def opened(self, spark: SparkSession, inputs: Mapping[str, DataFrame]) -> Iterator[DataFrame]:
        """Yield the function's result."""
        yield self.build(spark, inputs)

    def build(self, spark: SparkSession, inputs: Mapping[str, DataFrame]) -> DataFrame:
        """Return the function's result. Raises ApplicationError as `Recipe.opened` says."""
        positional, named = self._bind(spark, inputs)
        function = on_session({self._name: self._captured}, spark)[self._name]
        Modules((function,)).send(spark)
        try:
            with analysis_errors_unprinted():
                return streaming(function(*positional, **named), f"the function {self._name!r}", inputs.values())
        except QodError:
            raise
        except Exception as error:
            raise_unless_connection(error)
            place = _line_in(error, getattr(self.function, "__code__", None))
            why = f"{type(error).__name__}: {first_line(error)}{advice(error)}"
            message = f"the function {self._name!r} fails{place}: {why}"
            raise ApplicationError(message) from error

    @property
    def _name(self) -> str:
        return getattr(self.function, "__name__", type(self.function).__name__)

    def _parameters(self) -> list[inspect.Parameter]:
        try:
            return list(inspect.signature(self.function).parameters.values())
        except (TypeError, ValueError) as error:
            raise ApplicationError(f"{self.function!r} can't be a recipe: a Python function is needed") from error

    def _bind(self, spark: SparkSession, inputs: Mapping[str, DataFrame]) -> tuple[list[Any], dict[str, Any]]:
        parameters = self._parameters()
        given: dict[str, Any] = {"spark": spark, **inputs}
        plain = [p for p in parameters if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]
        values = {p.name: given[p.name] for p in plain if p.name in given}
        left = _distinct({name: frame for name, frame in inputs.items() if not _among(frame, values.values())})
        unmet = [p for p in plain if p.name not in values and p.default is p.empty]
        if len(unmet) == 1 and len(left) == 1:
            values[unmet[0].name] = left.popitem()[1]
            unmet = []
        takes_all = any(p.kind is p.VAR_KEYWORD for p in parameters)
        if unmet or (left and not takes_all):
            raise ApplicationError(
                f"the function {self._name!r} takes ({', '.join(p.name for p in parameters)}) but the inputs are "
                f"{', '.join(inputs) or 'none'}: name its parameters as the inputs"
            )
        positional = [values.pop(p.name) for p in plain if p.kind is p.POSITIONAL_ONLY and p.name in values]
        return positional, {**values, **(left if takes_all else {})}


def as_recipe(
    given: Recipe | Callable[..., Any] | str | None, args: Mapping[str, Any] = MappingProxyType({})
) -> Recipe:
    """Return a recipe, a function of its inputs, or an SQL text; None passes a lone input through. `args`: the values
    of each `:name` in an SQL text. Raises ApplicationError: some are missing, or it is no SQL text."""
    if isinstance(given, str):
        return SqlRecipe(given, parameters=parameters_of(given, args, whose="one of args"))
    if args:
        raise ApplicationError("args must come with an SQL text, whose :names they are; leave them out")
    if given is None:
        return FunctionRecipe(_passed_through)
    return FunctionRecipe(given) if callable(given) else given


def _passed_through(rows: DataFrame) -> DataFrame:
    return rows


def streaming(result: object, whose: str, inputs: Iterable[DataFrame] = ()) -> DataFrame:
    """Return the result itself, if it is a streaming DataFrame, or one of a batch over inputs that all are:
    ApplicationError otherwise. `whose` begins the message."""
    is_streaming = getattr(result, "isStreaming", None)
    if not isinstance(is_streaming, bool):  # a Column answers any attribute with another Column
        raise ApplicationError(
            f"{whose} gives {with_article(type(result).__name__)}, not a DataFrame: end with a DataFrame"
        )
    given = list(inputs)
    if not is_streaming and (not given or any(each.isStreaming for each in given)):
        raise ApplicationError(f"{whose} gives a DataFrame that does not stream: build it on the inputs or readStream")
    return cast("DataFrame", result)


def has_name(text: str, name: str) -> bool:
    """Return whether a text has this name, in any case, and not only as a part of another one."""
    return re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text, re.IGNORECASE) is not None


def mentions(code: CodeType, name: str) -> bool:
    """Return whether a function, or one within it, has a text that has this name, or an attribute or variable of it."""
    return any(has_name(each, name) for each in code.co_names) or any(
        mentions(each, name) if isinstance(each, CodeType) else isinstance(each, str) and has_name(each, name)
        for each in _flat(code.co_consts)
    )


def _flat(constants: Iterable[object]) -> Iterator[object]:
    """Yield the constants of a function, those within tuples and sets included."""
    for constant in constants:
        if isinstance(constant, tuple | frozenset):
            yield from _flat(constant)
        else:
            yield constant


def _line_in(error: BaseException, code: object) -> str:
    line, trace = "", error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code is code:
            line = f" in line {trace.tb_lineno}"
        trace = trace.tb_next
    return line


def _among(frame: object, others: Any) -> bool:
    return any(frame is other for other in others)


def _distinct(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Keep one name for each DataFrame: `source` rather than the topic's own."""
    kept: dict[str, Any] = {}
    for name in sorted(inputs, key=lambda name: name != SOURCE):
        if not _among(inputs[name], kept.values()):
            kept[name] = inputs[name]
    return kept
