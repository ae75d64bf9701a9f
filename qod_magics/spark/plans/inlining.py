"""Which streams to inline into their readers: those whose plans derive each row from one record, cheap and repeatable.

Passing a row on costs encoding, a hop through the broker and decoding: more than reading and parsing the original
record again, compared with which the rest of such a plan is cheap.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from qod_magics.application.recipes.building import temporary_views
from qod_magics.errors import TaskManagerError
from qod_magics.spark.plans.plan_text import (
    NAMED,
    PARSES,
    Copies,
    Node,
    children_at,
    inputs_first,
    is_cut,
    lists_of,
    nodes_of,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from qod_magics.application.weights import Equated

#: Physical operators without state, shuffle or Python.
NARROW = frozenset(
    {
        "CollectMetrics",
        "EventTimeWatermark",
        "Filter",
        "Generate",
        "LocalTableScan",
        "Project",
        "StreamingRelation",
        "Union",
    }
)
#: Nondeterministic functions, and higher-order functions over arrays, whose cost is unknown.
_NOT_CHEAP = re.compile(r"\b(rand|randn|randstr|uniform|uuid|shuffle|monotonically_increasing_id|lambdafunction)\(")
#: Physical operators each of whose rows stands for rows of its input that no other one stands for.
_DISJOINT = NARROW - {"Generate", "Union"} | {
    *("Exchange", "HashAggregate", "ObjectHashAggregate", "Sort", "SortAggregate", "StateStoreRestore"),
    *("StateStoreSave", "MergingSessions", "SessionWindowStateStoreRestore", "SessionWindowStateStoreSave"),
    "UpdatingSessions",
}
#: Physical operators that hand rows to a worker in Python.
_IN_PYTHON = re.compile(r"Python|Pandas|PySpark|InArrow")
_WEIGHTS_SUMMED = re.compile(r"functions=\[[^\]]*\bsum\((?:cast\()?_weight#", re.IGNORECASE)
_OPERATOR = re.compile(r"^[\s:|+\-]*(?:\*\(\d+\) )?(\w+)")
_KEYS = re.compile(r"(?:Aggregate\(keys?=|StreamingDeduplicate\w* )(\[[^\]]*\])")
_OUTER = re.compile(r"StreamingSymmetricHashJoin .*, (?:Left|Right|Full)Outer\b")
_JOINED = re.compile(r" \[([^\]]*)\], \[([^\]]*)\]")
_COPIED = re.compile(r"\w+#(\d+)L?")
_ATTRIBUTE = re.compile(r"[^()]+#\d+L?(?:-T\d+ms)?")
#: The view of a result that is planned as a stream.
_PLANNED = "qod_planned"
_WHOLE = {"spark.sql.debug.maxToStringFields": "100000", "spark.sql.maxPlanStringLength": "10000000"}
#: How long a plan waits for the plans of other threads that start at once, seconds.
OTHERS_S = 60.0


@dataclass(eq=False, slots=True)
class _Shared:
    """The settings of one session in `_WHOLE`, which all threads share."""

    lock: Lock = field(default_factory=Lock)  #: held while they are changed
    before: dict[str, str | None] = field(default_factory=dict)  #: their own values, while they have others


_shared: WeakKeyDictionary[SparkSession, _Shared] = WeakKeyDictionary()
_shared_lock = Lock()


def is_inlinable(plan: str) -> bool:
    """Return whether a physical plan, as `explain()` shows it, can be inlined; a plan that is cut can't."""
    lines = [line for line in plan.splitlines() if line.strip() and not line.startswith("==")]
    operators = {found[1] if (found := _OPERATOR.match(line)) else "" for line in lines}
    return bool(lines) and operators <= NARROW and _NOT_CHEAP.search(plan) is None and not is_cut(plan)


def groups_by(plan: str, column: str) -> bool:
    """Return whether a physical plan groups, or removes duplicates, by this column."""
    named = re.compile(rf"\b{re.escape(column)}#\d+", re.IGNORECASE)
    return any(named.search(keys[1]) for keys in _KEYS.finditer(plan))


def keeps_one(plan: str, column: str) -> bool:
    """Return whether the result of a physical plan has this column of one side of a join of streams, as it was."""
    nodes = list(nodes_of(plan))
    return bool(nodes) and _is_of_one(nodes, 0, column, None)


def _is_of_one(nodes: Sequence[Node], at: int, column: str, id: str | None) -> bool:
    """Return the same of the operator at this position; the column has this id, or that of its name."""
    node, lists = nodes[at], lists_of(nodes[at].text)
    if node.operator == "StreamingSymmetricHashJoin":
        return True
    if node.operator.endswith("EvalPython") and lists and any(item.endswith(f"#{id}") for item in lists[-1]):
        return False  # a function of the recipe computes it
    if node.operator == "Project" and lists:
        items = [named for item in lists[-1] if (named := NAMED.match(item)) is not None]
        found = next((named for named in items if named["id"] == id), None)
        found = found or next((named for named in items if named["name"].lower() == column.lower()), None)
        copied = None if found is None else _COPIED.fullmatch(found["expression"] or found[0])
        if found is not None and copied is None:
            return False  # the recipe computes it
        id = None if copied is None else copied[1]
    return any(_is_of_one(nodes, below, column, id) for below in children_at(nodes, at))


def joins_outer(plan: str) -> bool:
    """Return whether a physical plan joins streams by an outer join."""
    return _OUTER.search(plan) is not None


def overlaps(plan: str) -> bool:
    """Return whether rows of a physical plan's result may stand for the same rows of its input, as sliding windows do,
    and pairs of a join; False only where all of its operators are known not to."""
    return any(
        not PARSES.search(node.text) if node.operator == "Generate" else node.operator not in _DISJOINT
        for node in nodes_of(plan)
    )


def runs_python(plan: str) -> bool:
    """Return whether functions in Python are part of a physical plan."""
    return any(_IN_PYTHON.search(node.operator) for node in nodes_of(plan))


def sums_weights(plan: str) -> bool:
    """Return whether a physical plan aggregates, with a sum over `_weight`."""
    return _WEIGHTS_SUMMED.search(plan) is not None


def joined_by(plan: str) -> list[Equated]:
    """For each join of streams in a physical plan, the pairs of columns, left and right, that it equates: by the names
    that they have in the task's inputs."""
    found: list[Equated] = []
    nodes, copies = list(nodes_of(plan)), Copies()
    order = inputs_first(nodes)
    for at in order:  # an exchange may be read once more ahead of it
        copies.follow(nodes, at)
    for at in order:
        copies.follow(nodes, at)
        if nodes[at].operator == "StreamingSymmetricHashJoin" and (join := _JOINED.match(nodes[at].text)) is not None:
            left, right = ([_named(copies, text) for text in side.split(", ")] for side in join.groups())
            found.append(frozenset((a, b) for a, b in zip(left, right, strict=False) if a and b))
    return found


def _named(copies: Copies, text: str) -> str | None:
    return copies.name(text) if _ATTRIBUTE.fullmatch(text) else None  # of a cast here, values may differ from keys


def analyzed_plan_of(rows: DataFrame) -> str:
    """Return the analyzed logical plan as text, as `plan_of` does, with the line of its columns; also of SQL over
    views, which Spark plans no further. Raises whatever Spark raises."""
    _, _, plan = plan_of(rows, extended=True).partition("== Analyzed Logical Plan ==\n")
    return plan.partition("\n== Optimized Logical Plan ==")[0]


def streaming_plan_of(rows: DataFrame) -> str:
    """Return the physical plan as text, as `plan_of` does, also of SQL over views: Spark takes that for a batch unless
    it is read as a stream by a name. Raises whatever Spark raises for a query that it can't plan."""
    try:
        return plan_of(rows)
    except Exception as error:
        if type(error).__name__ != "AnalysisException":
            raise
        with temporary_views({_PLANNED: rows}):
            return plan_of(rows.sparkSession.readStream.table(_PLANNED))


def plan_of(rows: DataFrame, *, extended: bool = False) -> str:
    """Return the physical plan as text; if `extended`, the logical ones, too. It is untruncated unless the server
    refuses that: who reads it asks `is_cut`. Raises whatever Spark raises for a query that it can't plan, and
    TaskManagerError if the plans of other threads take too long."""
    described: Any = rows
    with untruncated(described.sparkSession):
        if hasattr(described, "_explain_string"):  # Spark Connect
            return str(described._explain_string(extended=extended))
        jvm, mode = described.sparkSession.sparkContext._jvm, "extended" if extended else "simple"
        return str(jvm.PythonSQLUtils.explainString(described._jdf.queryExecution(), mode))


@contextmanager
def untruncated(spark: SparkSession, others_s: float = OTHERS_S) -> Iterator[None]:
    """Texts of this session's plans are whole while the context is open, if the server lets a session set how long they
    are; other threads wait meanwhile.

    One that did not would take these values for the session's own and leave them behind, and its own text would be cut
    once the first has put the others back. Nothing within the context waits for another lock. Raises TaskManagerError:
    the others take longer than `others_s` seconds.
    """
    with _shared_lock:
        shared = _shared.setdefault(spark, _Shared())
    if not shared.lock.acquire(timeout=others_s):
        raise TaskManagerError(
            f"Spark has been busy with other plans for {others_s:g} s: try again, or remove its task manager",
            value=others_s,
            rule="answers",
        )
    try:
        # a call that could not put them back has left its own there
        shared.before = shared.before or {name: spark.conf.get(name, None) for name in _WHOLE}
        try:
            for name, value in _WHOLE.items():
                if not _sets(spark, name, value):
                    shared.before.pop(name, None)
            yield
        finally:
            for name, value_before in shared.before.items():
                if value_before is None:
                    spark.conf.unset(name)
                else:
                    spark.conf.set(name, value_before)
            shared.before = {}
    finally:
        shared.lock.release()


def _sets(spark: SparkSession, name: str, value: str) -> bool:
    """Set a setting; return False if the server refuses that: its texts stay cut. Raises whatever Spark raises if it
    does not answer."""
    try:
        spark.conf.set(name, value)
    except Exception:
        spark.conf.get(name, None)
        return False
    return True
