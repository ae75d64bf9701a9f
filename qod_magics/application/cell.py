"""Turn a `%%qod_stream` cell, or its options and a recipe, into a declaration with the inputs that it reads."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any

from qod_magics.application.application import Application
from qod_magics.application.graph import SOURCE
from qod_magics.application.recipes.python import PythonRecipe
from qod_magics.application.recipes.recipe import Recipe, SqlRecipe
from qod_magics.application.recipes.views import View, global_views_read
from qod_magics.application.sql.parameters import parameters_of
from qod_magics.application.streams.options import StreamOptions, check_together
from qod_magics.application.streams.sink import Named
from qod_magics.application.streams.stream import StreamDeclaration
from qod_magics.application.streams.topic_input import TopicInput, subject_of
from qod_magics.errors import ApplicationError, nearest
from qod_magics.formats.schema_registry import SchemaRegistry
from qod_magics.sources.source import topics_of

_COMMENTS = re.compile(r"(?:\s|\(|--[^\n]*(?:\n|$)|/\*.*?\*/|#[^\n]*(?:\n|$))*", re.DOTALL)
#: How an SQL text begins; also of statements that are not queries, whose error is then about SQL.
_SQL = re.compile(
    r"SELECT\b(?!\s*[=.,:)])|VALUES\s*\("
    r"|(?:INSERT|CREATE|UPDATE|DELETE|MERGE|DROP|ALTER|SHOW|DESCRIBE|EXPLAIN)\s+\w"
    r"|FROM\s+(?![\w.]+\s+import\b)[`\w(]"
    r"|WITH\s+(?:RECURSIVE\s+)?[`\w]+\s*(?:\([^)]*\)\s*)?(?:MAX\s+RECURSION\s+LEVEL\s+\d+\s+)?AS\s*\(",
    re.IGNORECASE,
)
#: From names that an SQL text reads to those of the notebook's temporary views that are among them.
FindViews = Callable[[Collection[str]], tuple[View, ...]]


def no_views(names: Collection[str]) -> tuple[View, ...]:
    """Find none."""
    return ()


def declaration_of(
    options: StreamOptions,
    body: str,
    namespace: Mapping[str, Any],
    application: Application,
    views: FindViews = no_views,
) -> StreamDeclaration:
    """Return the declaration of a cell: its recipe, and its inputs from the options or by the names that the body
    reads.

    A body that is no Python and begins as SQL does is SQL, with or without `--sql`. `namespace` is the notebook's; the
    values and the `views` that the body reads are captured now. Raises ApplicationError, one line.
    """
    if isinstance(options.sink, Named):
        options = replace(options, sink=options.sink.function_in(namespace))
    if options.sql or is_sql(body):
        sql = body.strip()
        parameters = parameters_of(sql, namespace, whose="a variable of the notebook")
        return declared(options, SqlRecipe(sql, parameters=parameters), application, views)
    body = dedented(body)
    declaration = declared(options, PythonRecipe(body, namespace), application)
    # notebook values under the names of inputs are not part of the recipe
    others = {name: value for name, value in namespace.items() if name not in declaration.input_names}
    return replace(declaration, recipe=PythonRecipe(body, others))


def declared(
    options: StreamOptions, recipe: Recipe, application: Application, views: FindViews = no_views
) -> StreamDeclaration:
    """Return a declaration of this recipe, with its inputs from the options or by the names that it reads.

    Raises ApplicationError, one line.
    """
    check_together(options.stated)
    if options.estimates:
        if not isinstance(recipe, SqlRecipe):
            raise ApplicationError(
                "--estimates is about SQL: in Python write est.count(), est.sum('fare') or est.avg('fare'), with "
                "`from qod_magics import estimate as est`"
            )
        recipe = replace(recipe, estimates=True)
    source = options.topic or options.source or ("" if options.pattern is not None else None)
    topic = None if source is None else _topic_input(options, source)
    inputs = find_inputs(options.name, recipe, application, topic=topic, stated=options.upstream)
    if isinstance(recipe, SqlRecipe):
        recipe = replace(recipe, views=views(_others_read(recipe, inputs)))
    return StreamDeclaration(recipe=recipe, inputs=inputs, **options.shared(StreamDeclaration))


def _topic_input(options: StreamOptions, source: str) -> TopicInput:
    """Return the topic or other source of a stream. Asks the schema registry where a schema is not stated."""
    given = {**options.shared(TopicInput), "topic": source}
    if options.registry is not None and options.schema is None and options.format == "avro":
        if not source:
            raise ApplicationError(
                "--topic-pattern must stand beside --schema, got none: its topics have a subject each; give the schema "
                "that all have",
                option="--schema",
                rule="stated",
            )
        given["schema"] = SchemaRegistry(options.registry).latest(subject_of(topics_of(source)[0]))
    return TopicInput(**given)


def find_inputs(
    name: str,
    recipe: Recipe,
    application: Application,
    *,
    topic: TopicInput | None = None,
    stated: tuple[str, ...] = (),
) -> TopicInput | tuple[str, ...]:
    """Return the inputs of a stream: its topic, the stated streams, or the declared streams that its recipe names.

    SQL names ignore case. Raises ApplicationError when the recipe reads streams that are not among the inputs, and for
    SQL that reads no stream at all.
    """
    if topic is not None:
        names = {_folded(name, recipe) for name in topic.names}
        read = _streams_read(recipe, application, lenient=True)
        others = tuple(other for other in read if _folded(other, recipe) not in names)
        if others:
            raise ApplicationError(
                f"{name!r} reads the topic {topic.topic!r} and the stream {others[0]!r}; it can read either: declare a "
                f"stream for the topic, then --from that and {others[0]}"
            )
        return topic
    if stated:
        others = tuple(other for other in _streams_read(recipe, application, lenient=True) if other not in stated)
        if others:
            raise ApplicationError(f"the recipe of {name!r} reads {others[0]!r}, which --from does not name: add it")
        return stated
    found = _streams_read(recipe, application)
    if not found and isinstance(recipe, SqlRecipe):
        _refuse_sql_without_input(name, recipe, application)
    if not found and isinstance(recipe, PythonRecipe):
        if recipe.passes_through:
            raise ApplicationError(f"{name!r} has neither a body nor an input: give it --topic, --from, or a recipe")
        if SOURCE in recipe.names and SOURCE not in recipe.captured:
            raise ApplicationError(f"the recipe of {name!r} reads `{SOURCE}`, but no topic is named: add --topic")
    return found


def _others_read(recipe: SqlRecipe, inputs: TopicInput | tuple[str, ...]) -> tuple[str, ...]:
    """Return names that an SQL text reads besides its inputs; none when it can't be parsed: Spark decides then. Raises
    ApplicationError: one is a global view."""
    if names := global_views_read(recipe.sql):
        raise ApplicationError(
            f"the SQL must read views that all task managers can have, got global_temp.{names[0]}, which is on one; "
            "make it by createOrReplaceTempView"
        )
    known = {name.casefold() for name in (inputs.names if isinstance(inputs, TopicInput) else inputs)}
    try:
        return tuple(name for name in recipe.names or () if name.casefold() not in known)
    except ApplicationError:
        return ()


def _streams_read(recipe: Recipe, application: Application, lenient: bool = False) -> tuple[str, ...]:
    """Return declared streams that the recipe names; `lenient`: none when its text can't be parsed."""
    try:
        read = recipe.names or frozenset()
    except ApplicationError:
        if lenient:
            return ()
        raise
    folded = {_folded(name, recipe) for name in read}
    return tuple(stream for stream in application.names if _folded(stream, recipe) in folded)


def _folded(name: str, recipe: Recipe) -> str:
    """Return a name as the recipe compares it."""
    return name.casefold() if isinstance(recipe, SqlRecipe) else name


def _refuse_sql_without_input(name: str, recipe: SqlRecipe, application: Application) -> None:
    tables = sorted(recipe.names or ())
    if not tables:
        raise ApplicationError(
            f"the SQL of {name!r} reads no table: SELECT ... FROM a stream, or `{SOURCE}` with --topic"
        )
    if any(table.casefold() == SOURCE for table in tables):
        raise ApplicationError(f"the SQL of {name!r} reads `{SOURCE}`, but no topic is named: add --topic")
    raise ApplicationError(
        f"the SQL of {name!r} reads {', '.join(map(repr, tables))}, and no declared stream is called so."
        f"{nearest(tables[0], application.names)}"
    )


def is_sql(body: str) -> bool:
    """Return whether the body of a cell is SQL: not Python, and SQL begins after its comments."""
    start = _COMMENTS.match(body)
    assert start is not None
    return _SQL.match(body, start.end()) is not None and not _is_python(body)


def dedented(body: str) -> str:
    """Return the body without the indentation of its first line of code, as IPython does with cells."""
    code = (line for line in body.splitlines() if line.strip() and not line.lstrip().startswith("#"))
    first = next(code, "")
    indentation = first[: len(first) - len(first.lstrip())]
    if not indentation:
        return body
    return "".join(line.removeprefix(indentation) for line in body.splitlines(keepends=True))


def _is_python(body: str) -> bool:
    try:
        ast.parse(dedented(body))
    except (SyntaxError, ValueError):
        return False
    return True
