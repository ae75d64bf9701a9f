"""The records that a query writes to Kafka: a row's own columns or the row as JSON, and headers of whole results."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from qod_magics.errors import ApplicationError
from qod_magics.spark.plans.plan_text import Node, below_at, definition_of, joins_streams, nodes_of

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import StructType

    from qod_magics.application.streams.sink import KafkaTopic
    from qod_magics.application.tasks import TaskSpec


# --- Records of a Kafka sink ------------------------------------------------------------------------------------------
# The records of a Kafka sink: a row's own columns, as Spark's sink writes them, or the row as JSON. Pure but for
# `columns_of_record`.

VALUE = "value"
_TEXT = ("string", "binary")
#: The columns of a record by name, with the types that Spark's sink takes.
_TYPES: Mapping[str, Sequence[str]] = {
    "key": _TEXT,
    VALUE: _TEXT,
    "headers": ("array<struct<key:string,value:binary>>",),
    "topic": ("string",),
    "partition": ("int",),
}
#: The columns of a record that was read, which tell where it was.
_WHERE = ("topic", "partition", "offset", "timestamp", "timestamptype")


@dataclass(frozen=True, slots=True)
class RecordForm:
    """How rows are written."""

    columns: tuple[str, ...]  #: of the record, in lower case; (): each row is JSON in the value
    why: str = ""  #: why it is JSON although the row has a column `value`, or what is left out
    form: str = "JSON"  #: of the value, where there are no columns

    def words(self, topic: str, groups: Sequence[str] | None) -> str:
        """Return what the cell says of records in this topic; `groups`: the columns of a JSON key, if there is one."""
        why = f"; {self.why}" if self.why else ""
        if self.columns:
            where = f" (the topic where it is not null, else {topic})" if "topic" in self.columns else ""
            return f"writes {', '.join(self.columns)} of a record as they are{where}, as Spark's own sink does{why}"
        key = "" if groups is None else f", with the key {', '.join(groups) or '{}'} as JSON"
        return f"writes each row as {self.form} in the value of a record{key}{why}"


def record_form(schema: StructType, sink: KafkaTopic) -> RecordForm:
    """Return how rows with these columns are written to a topic: in its format, or as records, if all columns are those
    of a record, `value` is among them, and the topic has no other format than JSON."""
    if not sink.in_json:
        return RecordForm((), form=sink.form)
    types = {field.name.lower(): field.dataType.simpleString() for field in schema.fields}
    if VALUE not in types:
        return RecordForm(())
    if {"offset", "timestamp"} <= types.keys() <= {*_TYPES, *_WHERE}:  # records that were read, as they are
        left_out = ", ".join(name for name in types if name in _WHERE)
        written = tuple(name for name in types if name not in _WHERE)
        return RecordForm(written, f"{left_out} are those of the record that was read, and left out")
    for name, kind in types.items():
        if name not in _TYPES:
            return RecordForm((), f"{name} is no column of a record: without it {VALUE} would be the record's")
        if kind not in _TYPES[name]:
            wanted = " or ".join(map(str.upper, _TYPES[name]))
            return RecordForm((), f"{name} must be {wanted} to be the record's, got {kind.upper()}")
    return RecordForm(tuple(types))


def columns_of_record(columns: Sequence[str], topic: str) -> list[Column]:
    """Return the columns for Spark's sink."""
    found = [F.col(name) for name in columns if name != "topic"]
    to = F.lit(topic)
    return [*found, (F.coalesce(F.col("topic"), to) if "topic" in columns else to).alias("topic")]


# --- Queries whose result only makes sense as a whole -----------------------------------------------------------------
# Queries whose result only makes sense as a whole: ORDER BY, LIMIT and OFFSET over groups, Spark's complete mode.
#
# Each batch writes all rows of the result. Headers of a record tell of which batch it is, and readers show the rows of
# the newest batch, in their order. Pure, but for the columns.

#: The headers of a record: Spark's time of its batch, ms, which a batch that is run again keeps; the run of the query
#: that wrote it; and a number that grows from row to row.
BATCH, RUN, ROW = "qod.batch", "qod.run", "qod.row"
#: What the cell of a query with a Kafka sink says.
WHOLE_IN_KAFKA = f"each batch writes all rows again, with its time in the header {BATCH}"
_CLAUSES: Mapping[str, str] = {"Sort": "ORDER BY", "GlobalLimit": "LIMIT", "LocalLimit": "LIMIT", "Offset": "OFFSET"}
#: What a physical plan has where the analyzed one has one of these.
_MAY_BE_WHOLE = re.compile(r"\b(?:Sort|\w*Limit|TakeOrderedAndProject|\w*Offset)\b")
_KEEPS_STATE = re.compile(r"Aggregate|Deduplicate\w*|FlatMapGroups\w*|TransformWithState\w*")


@dataclass(frozen=True, slots=True)
class Whole:
    """What a query has over its groups."""

    clauses: tuple[str, ...]  #: "ORDER BY", "LIMIT", "OFFSET"
    stateful: int  #: how many operators keep state, wherever in the plan
    sorts_rows: bool = False  #: whether it sorts rows of a stream other than groups

    @property
    def words(self) -> str:
        """Return the clauses, as a sentence has them."""
        return " and ".join(self.clauses)


def may_be_whole(plan: str | None) -> bool:
    """Tell from a physical plan whether a look at the analyzed one is worth it. None: Spark can't plan it so."""
    return plan is None or _MAY_BE_WHOLE.search(plan) is not None


def whole_of(plan: str) -> Whole | None:
    """Return what a query has over its groups, from its analyzed plan; None: nothing that needs complete mode."""
    nodes = list(nodes_of(plan))
    found: dict[str, None] = {}
    sorts_rows = False
    for at, node in enumerate(nodes):
        if node.operator not in _CLAUSES or not node.streams:
            continue
        if any(nodes[each].operator == "Aggregate" and nodes[each].streams for each in _inputs(nodes, at)):
            found[_CLAUSES[node.operator]] = None
        elif node.operator == "Sort":
            sorts_rows = True
    clauses = tuple(clause for clause in dict.fromkeys(_CLAUSES.values()) if clause in found)
    stateful = sum(_keeps_state(nodes, at) for at in range(len(nodes)))
    return Whole(clauses, stateful, sorts_rows) if clauses or sorts_rows else None


def check_whole(spec: TaskSpec, whole: Whole, readers: Sequence[str]) -> None:
    """Raise ApplicationError, one line, for what does not fit complete mode.

    Args:
        spec: the task.
        whole: what it has over its groups.
        readers: the tasks that read it.

    """
    if whole.sorts_rows:
        raise ApplicationError(
            f"ORDER BY in {spec.id!r} must be over groups (GROUP BY), which Spark sorts in complete mode, got one over "
            "rows; leave it out, and sort the rows that are read",
            rule="groups",
        )
    needs = f"{whole.words} over groups in {spec.id!r} needs complete mode, in which each batch writes the whole result"
    if readers:
        raise ApplicationError(
            f"{needs}: {readers[0]!r} would count its rows again; put it into a query of its own", rule="own query"
        )
    if whole.stateful > 1:
        raise ApplicationError(
            f"{needs}, and Spark keeps the state of one operator there, got {whole.stateful}; leave {whole.words} out",
            value=whole.stateful,
            rule="one state",
        )
    if spec.parallelism > 1:
        raise ApplicationError(
            f"{needs}: parallelism must be 1, got {spec.parallelism}, each with a result of its own", rule="parallelism"
        )
    if spec.sink is not None and spec.sink.appends:
        raise ApplicationError(
            f"{needs}, which files and tables don't take: take --sink memory, kafka:TOPIC or console", rule="sink"
        )
    if spec.mode == "realtime":
        raise ApplicationError(
            f"{needs}, which real-time mode does not do: take --mode auto or microbatch", rule="mode"
        )


def headers(others: bool, numbered: bool) -> Column:
    """Return the headers of a record.

    Args:
        others: whether the row has a column `headers`, whose headers come first.
        numbered: whether rows get numbers, by a clock that the session lets expressions read.

    """
    values = {BATCH: "unix_millis(current_timestamp())", RUN: f"'{uuid.uuid4().hex}'"}
    if numbered:  # Spark takes no monotonically_increasing_id() over a stream
        values[ROW] = "reflect('java.lang.System', 'nanoTime')"
    own = ", ".join(
        f"named_struct('key', '{name}', 'value', CAST(CAST({value} AS STRING) AS BINARY))"
        for name, value in values.items()
    )
    text = f"concat(coalesce(headers, array()), array({own}))" if others else f"array({own})"
    return F.expr(text).alias("headers")


def attempt() -> Column:
    """Return which batch, of which run, wrote a record that is read."""
    return F.expr(f"concat_ws(' ', {', '.join(map(_header, (BATCH, RUN)))})")


def batch() -> Column:
    """Return the time of the batch that wrote a record that is read, ms."""
    return F.expr(f"CAST({_header(BATCH)} AS BIGINT)")


def _header(name: str) -> str:
    return f"CAST(filter(headers, h -> h.key = '{name}')[0].value AS STRING)"


def _keeps_state(nodes: Sequence[Node], at: int) -> bool:
    node = nodes[at]
    return (node.streams and _KEEPS_STATE.fullmatch(node.operator) is not None) or joins_streams(nodes, at)


def _inputs(nodes: Sequence[Node], at: int) -> Iterator[int]:
    """Yield where all operators stand from which the rows of one come."""
    for below in below_at(nodes, at):
        yield below
        if nodes[below].operator == "CTERelationRef" and (defined := definition_of(nodes, nodes[below])) is not None:
            yield from _inputs(nodes, defined)
