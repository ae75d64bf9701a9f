"""Temporary views of the notebook's Spark session, which SQL recipes carry to the sessions of their queries.

Spark keeps a view in the session that made it, and queries run in others, on every task manager. So the plan of each
view is kept when it is made, and a recipe that reads the view takes it as it is then, as it takes the notebook's
variables. This is about Spark Connect; a classic session's views are found in its own catalog.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from qod_magics.application.sql.names import parsed, tables_read, tokenized
from qod_magics.errors import ApplicationError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Kinds of relations whose rows are on the server of one session alone.
_KEPT = ("cached_local_relation", "chunked_cached_local_relation", "cached_remote_relation")
_MAKES_VIEW = re.compile(r"\bVIEW\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class View:
    """A temporary view as it was made. Equal ones have equal rows, as long as these are read from the same place."""

    name: str
    plan: bytes  #: the relation, as Spark Connect writes it, without what differs from one making to the next
    reads: tuple[View, ...] = ()  #: the views that it reads

    def check(self) -> None:
        """Raise ApplicationError, one line, unless queries can read its rows on any task manager."""
        for each in self.reads:
            each.check()
        for relation in _messages(_relation(self.plan)):
            names = {field.name for field, _ in relation.ListFields()}
            if names.intersection(_KEPT):
                raise ApplicationError(
                    f"the view {self.name!r} must be made of files, tables or less than 1 MiB of rows, got one of rows "
                    "that only its session has; write them to Parquet and make the view of that"
                )
            if "is_streaming" in names and relation.is_streaming:
                raise ApplicationError(
                    f"the view {self.name!r} must be a batch, got a stream, whose rows could be neither counted nor "
                    "dropped; declare it as a stream with %%qod_stream"
                )


def sql_over(views: Iterable[View], spark: SparkSession, text: str, arguments: Mapping[str, Any]) -> DataFrame:
    """Return the DataFrame of an SQL text over these views on a Connect session. They are part of its plan: two recipes
    may read different views of one name. Raises what Spark raises, once it is used."""
    from pyspark.sql.connect import functions as F
    from pyspark.sql.connect.plan import SQL, CachedRelation, SubqueryAlias

    session: Any = spark.range(0).sparkSession  # `spark` may be a wrapper around the session
    # Spark makes one after the other, the last one of a name counts
    inside = [SubqueryAlias(CachedRelation(_relation(each.plan)), each.name) for view in views for each in _inner(view)]
    named = {name: F.lit(value) for name, value in arguments.items()}
    frame: DataFrame = type(session.range(0))(SQL(text, [], named, inside), session)
    return frame


def _inner(view: View) -> Iterator[View]:
    """Yield the views that a view reads, those first that others read, and the view itself."""
    for each in view.reads:
        yield from _inner(each)
    yield view


class MadeViews:
    """The temporary views that a Connect session of ours has made, by name without case. Thread-safe by the GIL."""

    def __init__(self) -> None:
        self._views: dict[str, View] = {}

    def __repr__(self) -> str:
        return f"views made: {', '.join(self._views) or 'none'}"

    def follow(self, spark: SparkSession) -> None:
        """Take note of each view that this session makes from now on."""
        client: Any = spark.client
        execute: Callable[..., Any] = client.execute_command

        def execute_command(command: Any, *more: Any, **named: Any) -> Any:
            done = execute(command, *more, **named)
            with suppress(Exception):  # the view is made, whatever is read of the command
                self.note(command)
            return done

        client.execute_command = execute_command

    def note(self, command: Any) -> None:
        """Take note of a command that Spark has carried out."""
        if command.HasField("create_dataframe_view"):
            made = command.create_dataframe_view
            if not made.is_global:
                self._add(made.name.strip("`"), made.input)
        elif command.HasField("sql_command"):
            relation = command.sql_command.input
            for text in [each.query for each in _messages(relation) if each.DESCRIPTOR.name == "SQL"]:
                if _MAKES_VIEW.search(text):
                    self._note_sql(relation, text)

    def get(self, name: str) -> View | None:
        """Return the view of this name, if it was seen being made; it may have been dropped since."""
        return self._views.get(name.casefold())

    def _note_sql(self, relation: Any, text: str) -> None:
        made = _view_of_sql(text)
        if made is not None and relation.sql.query == text:
            name, query = made
            copy = type(relation)()
            copy.CopyFrom(relation)
            copy.sql.query = query
            self._add(name, copy)
            return
        for name in list(self._views):  # it may replace or drop one
            if re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text, re.IGNORECASE):
                del self._views[name]

    def _add(self, name: str, relation: Any) -> None:
        self._views.pop(name.casefold(), None)
        try:
            names = dict.fromkeys(each.casefold() for each in _names_read(relation))
        except ApplicationError:  # Spark reads it, and it is not known what it reads
            return
        reads = tuple(self._views[each] for each in names if each in self._views)
        self._views[name.casefold()] = View(name, _plain(relation), reads)


def _view_of_sql(text: str) -> tuple[str, str] | None:
    """Return the name and the query of CREATE [OR REPLACE] TEMPORARY VIEW name AS query; None for any other text."""
    tokens = tokenized(text)
    words = [token.text.upper() for token in tokens]
    begins = words[1:3] == ["OR", "REPLACE"]
    start = 3 if begins else 1
    if words[:1] != ["CREATE"] or words[start : start + 1] not in (["TEMP"], ["TEMPORARY"]):
        return None
    if words[start + 1 : start + 2] != ["VIEW"] or words[start + 3 : start + 4] != ["AS"]:
        return None
    if tokens[start + 2].token_type not in (TokenType.VAR, TokenType.IDENTIFIER):
        return None
    return tokens[start + 2].text, text[tokens[start + 3].end + 1 :].strip().rstrip(";")


def _names_read(relation: Any) -> Iterator[str]:
    """Yield the names of tables and views that a relation reads."""
    for message in _messages(relation):
        kind = message.DESCRIPTOR.name
        if kind == "NamedTable":
            yield message.unparsed_identifier.strip("`")
        elif kind == "SQL":
            yield from tables_read(message.query)


def _messages(message: Any) -> Iterator[Any]:
    """Yield the message, and all within it."""
    yield message
    for field, value in list(message.ListFields()):
        if field.message_type is None:
            continue
        if field.message_type.GetOptions().map_entry:
            values = [each for each in value.values() if hasattr(each, "ListFields")]
        else:
            values = list(value) if hasattr(value, "append") or hasattr(value, "add") else [value]
        for each in values:
            yield from _messages(each)


def _plain(relation: Any) -> bytes:
    """Return the relation as bytes, with numbers of plans that begin at 0, and without the lines of the notebook that
    made it: the same cells make the same view again."""
    copy = type(relation)()
    copy.CopyFrom(relation)
    numbers: dict[int, int] = {}
    for message in _messages(copy):
        names = {field.name for field, _ in message.ListFields()}
        if "plan_id" in names:
            message.plan_id = numbers.setdefault(message.plan_id, len(numbers))
        if "origin" in names:
            message.ClearField("origin")
    return bytes(copy.SerializeToString(deterministic=True))


def _relation(plan: bytes) -> Any:
    from pyspark.sql.connect.proto import Relation

    return Relation.FromString(plan)


def global_views_read(sql: str) -> tuple[str, ...]:
    """Return the names of global temporary views that an SQL text reads, which one task manager alone has."""
    try:
        tables = list(parsed(sql).find_all(exp.Table))
    except ApplicationError:
        return ()
    return tuple(table.name for table in tables if table.db.casefold() == "global_temp")
