"""Build the recipes of tasks, each once and without starting anything, and note what that tells about their rows."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from qod_magics.application.chain import opened_chain
from qod_magics.application.merging import Merges
from qod_magics.application.recipes.building import raise_unless_connection
from qod_magics.application.streams.sink import KafkaTopic, TableFacts
from qod_magics.application.streams.topic_input import RECORD_KEY
from qod_magics.application.tasks import TaskSpec
from qod_magics.application.weights import WEIGHT, Origins, Usage, Usages, Weights, origins
from qod_magics.errors import ApplicationError
from qod_magics.spark.plans.expressions import Label
from qod_magics.spark.plans.inlining import (
    analyzed_plan_of,
    groups_by,
    joined_by,
    joins_outer,
    keeps_one,
    overlaps,
    streaming_plan_of,
    sums_weights,
)
from qod_magics.spark.plans.job import (
    Build,
    Feed,
    Job,
    Watermarks,
    feed_of,
    schema_of_stream,
    source_feed,
    watermarks_of,
)
from qod_magics.spark.plans.labels import Labels, labels
from qod_magics.spark.plans.pipeline import Workshop
from qod_magics.spark.plans.plan_text import kept_columns, positions
from qod_magics.spark.plans.records import Whole, check_whole, may_be_whole, whole_of
from qod_magics.spark.plans.shedder import taken_name
from qod_magics.spark.plans.state import TaskState, chained, key_columns, merges_of, state_signature, task_state

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


@dataclass(frozen=True, slots=True)
class Checked:
    """Facts about some tasks, and what is known of their rows."""

    schemas: dict[str, StructType] = field(default_factory=dict)  #: output of each task, with `_weight` if it has one
    weights: Weights = field(default_factory=Weights)  #: in their streams
    labels: dict[str, Labels] = field(default_factory=dict)  #: by task, where a query may be shed
    chained: dict[str, str] = field(default_factory=dict)  #: the tasks whose groups an operator with state reads
    #: by task, the columns by which a row of its result replaces an earlier one; where a query writes to Kafka
    keys: dict[str, tuple[str, ...] | None] = field(default_factory=dict)
    #: by task, the watermarks of each task that feeds it, where it declares none itself: they are lost in Kafka
    watermarks: dict[str, Mapping[str, Watermarks]] = field(default_factory=dict)
    #: by task, what its state means; tasks without state, and those whose plans do not tell, have None
    signatures: dict[str, str | None] = field(default_factory=dict)
    resumed: frozenset[str] = frozenset()  #: tasks that are replaced, but go on with their state
    kept: frozenset[str] = frozenset()  #: tasks that start, and go on from the checkpoints of an earlier kernel
    whole: dict[str, str] = field(default_factory=dict)  #: the queries in complete mode, and what asks for it
    #: by query that lends rows of its keys: how the parts of a group are merged
    merges: dict[str, Merges] = field(default_factory=dict)
    tables: dict[str, TableFacts] = field(default_factory=dict)  #: by task, into which a query writes


def built(spec: TaskSpec, found: Origins, weights: Weights, usages: Usages | None = None) -> Build:
    """Builds a task's recipes: see `opened_chain`."""

    @contextmanager
    def build(spark: SparkSession, inputs: Mapping[str, DataFrame]) -> Iterator[DataFrame]:
        with opened_chain(spec, spark, inputs, found, weights, usages) as rows:
            yield rows

    return build


def probe(
    spec: TaskSpec,
    schemas: Mapping[str, Any],
    found: Origins,
    weights: Weights,
    usages: Usages | None = None,
    watermarks: Mapping[str, Watermarks] = MappingProxyType({}),
) -> Job:
    """Return a job that is only built: of its first instance, as if each topic had one partition, without output."""
    feeds = [source_feed(feed_of(spec, head), head, source, (0,), {}) for head, source in spec.topics.items()]
    for upstream in spec.upstream:
        name, keyed = f"{upstream}>{spec.id}", weights.keys.get(upstream, ())
        schema = schema_of_stream(schemas[upstream])
        by_key, marks = keyed and (RECORD_KEY,), watermarks.get(upstream, ())
        feeds.append(Feed(name, (upstream,), name, (0,), {}, schema, stream=True, shed_by=by_key, watermarks=marks))
    return Job(
        task=spec.id,
        instance=f"{spec.id}.1",
        index=0,
        feeds=tuple(feeds),
        build=built(spec, found, weights, usages),
        outlets=(),
        topics=(),
        sink=spec.sink,
        results=None,
        trigger_s=spec.trigger_s,
        max_latency_s=spec.max_latency_s,
        aggregates=spec.aggregates,
    )


def as_it_is(_: DataFrame) -> None:
    """Note nothing about what a recipe does with weights: the usages of a plan that is only looked at."""
    return None


class _Plans:
    """Finds what recipes do with `_weight`, and with the key if there is one; holds the physical plan of the last, None
    where Spark can't plan it."""

    def __init__(self, keyed: bool) -> None:
        self.last: str | None = None
        self._keyed = keyed

    def __call__(self, rows: DataFrame) -> Usage | None:
        try:
            plan = self.last = streaming_plan_of(rows)
            kept = kept_columns(analyzed_plan_of(rows)) if self._keyed else None
        except Exception as error:
            raise_unless_connection(error)
            self.last = None
            return None
        one = rows.columns.count(WEIGHT) == 1
        return Usage(
            groups_by(plan, WEIGHT),
            one and keeps_one(plan, WEIGHT),
            joins_outer(plan),
            joined_by(plan),
            overlaps(plan),
            one and sums_weights(plan),
            kept,
        )


def _keys_of(spec: TaskSpec, weights: Weights) -> list[tuple[str, ...] | None]:
    """Return the keys by which a task's inputs are shed."""
    keys: list[tuple[str, ...] | None] = [topic.shed_by or None for topic in spec.topics.values()]
    return keys + [weights.keys.get(upstream) for upstream in spec.upstream]


def keys_of_rows(rows: DataFrame, inputs: Sequence[str] | None) -> tuple[str, ...] | None:
    """See `key_columns`; None, too, where Spark can't explain the plan."""
    try:
        return key_columns(analyzed_plan_of(rows), inputs)
    except Exception as error:
        raise_unless_connection(error)
        return None


def _is_append(whole: Whole, state: TaskState) -> bool:
    """Return whether a LIMIT is one of the first groups that are complete, each emitted once."""
    return whole.clauses == ("LIMIT",) and not whole.sorts_rows and state.completes


def losing_rows(specs: Sequence[TaskSpec]) -> set[str]:
    """Return the tasks of which rows may be dropped on their way there; inputs first in `specs`."""
    whole = {spec.id for spec in specs if spec.is_query and (spec.min_accuracy or 0.0) >= 1.0}
    for spec in reversed(specs):
        whole |= set(spec.upstream) if spec.id in whole else set()
    return {spec.id for spec in specs} - whole


class Check:
    """Builds the recipes of tasks, each once, and adds what that tells to `checked`; inputs first."""

    def __init__(self, specs: Sequence[TaskSpec], workshop: Workshop, known: Mapping[TaskSpec, Labels]) -> None:
        self.checked = Checked()
        self._specs, self._workshop, self._known = specs, workshop, known
        self._origins, self._losing = origins(specs), losing_rows(specs)
        self._states: dict[str, TaskState] = {}
        self._writes = any(isinstance(spec.sink, KafkaTopic) for spec in specs)
        self._may_shed = any(spec.is_query and (spec.min_accuracy or 0.0) < 1.0 for spec in specs)

    def add(self, spec: TaskSpec) -> None:
        """Build a task. Raises ApplicationError as `Inspection.check`."""
        checked, id = self.checked, spec.id
        plans = _Plans(any(_keys_of(spec, checked.weights)))
        marks = checked.watermarks[id] = self._watermarks(spec)
        job = probe(spec, checked.schemas, self._origins, checked.weights, plans, marks)
        with self._workshop.result(job) as rows:
            checked.schemas[id] = rows.schema
            if self._writes:
                inputs = checked.keys.get(spec.upstream[0]) if len(spec.upstream) == 1 else None
                checked.keys[id] = keys_of_rows(rows, inputs)
            if plans.last is not None and "Union" in plans.last:
                _check_unions(spec, analyzed_plan_of(rows))
            if self._may_shed:
                labelled = self._known.get(spec) if spec.is_source else None
                _note_labels(spec, labelled or self._labels(spec, rows), checked.labels, self._losing)
            if spec.lends:
                checked.merges[id] = _checked_merges(spec, merges_of(analyzed_plan_of(rows), plans.last))
            whole = whole_of(analyzed_plan_of(rows)) if may_be_whole(plans.last) else None
        self._states[id] = TaskState(spec.aggregates) if plans.last is None else task_state(plans.last)
        checked.signatures[id] = None if plans.last is None else state_signature(plans.last)
        if whole is not None and not _is_append(whole, self._states[id]):
            self._add_whole(spec, whole)
        _check_columns(spec, checked.schemas)

    def chain(self) -> None:
        """Note which groups an operator with state reads. Raises ApplicationError if they are never complete."""
        self.checked.chained.update(chained(self._states, {spec.id: spec.upstream for spec in self._specs}))
        _check_chained(self.checked.chained, self._states)

    def _add_whole(self, spec: TaskSpec, whole: Whole) -> None:
        """Note a query in complete mode: its result is not emitted by groups."""
        check_whole(spec, whole, [other.id for other in self._specs if spec.id in other.upstream])
        self.checked.whole[spec.id] = whole.words
        self._states[spec.id] = TaskState(keeps=True)
        signature = self.checked.signatures[spec.id]
        self.checked.signatures[spec.id] = None if signature is None else f"complete {signature}"

    def _watermarks(self, spec: TaskSpec) -> Mapping[str, Watermarks]:
        """Return the watermarks that a task takes over from the tasks that feed it: none where its recipes declare
        some, since Spark has one for each column."""
        schemas, weights = self.checked.schemas, self.checked.weights
        marks = {upstream: made for upstream in spec.upstream if (made := watermarks_of(schemas[upstream]))}
        if not marks:
            return {}
        with self._workshop.result(probe(spec, schemas, self._origins, weights, as_it_is)) as rows:
            try:
                plan = streaming_plan_of(rows)
            except Exception as error:
                raise_unless_connection(error)
                return {}
        return {} if "EventTimeWatermark" in plan else marks

    def _labels(self, spec: TaskSpec, rows: DataFrame) -> Labels | None:
        """Return what shedding does to a task's columns."""
        told, keys = self.checked.labels, _keys_of(spec, self.checked.weights)
        upstream = [name for name in spec.upstream if name in told]
        inputs: dict[str, Label] = {}
        for column in (column for name in upstream for column in told[name].columns):
            inputs[column.name] = max(column.label, inputs.get(column.name, column.label))
        unfit = next((why for name in upstream if name in self._losing and (why := told[name].unfit) is not None), None)
        try:
            known = [key for key in keys if key] if all(keys) else []
            return labels(analyzed_plan_of(rows), known, inputs if spec.upstream else None, unfit)
        except Exception as error:
            raise_unless_connection(error)
            return None


def _note_labels(spec: TaskSpec, found: Labels | None, labels: dict[str, Labels], losing: Collection[str]) -> None:
    """Add what shedding does to a task's columns. Raises ApplicationError if its rows may be dropped, and must not."""
    if found is None:
        return
    if all(name in labels for name in spec.upstream):
        labels[spec.id] = found  # else nothing is known of the columns that it reads
    if found.refused is not None and spec.id in losing:
        raise ApplicationError(f"stream {spec.id!r}: {found.refused}")


def _checked_merges(spec: TaskSpec, found: Merges | str) -> Merges:
    """Return how parts of its groups are merged. Raises ApplicationError where they can't be."""
    if isinstance(found, str):
        raise ApplicationError(
            f"--lend of {spec.id!r} must be of groups whose parts can be merged: {found}",
            name=spec.id,
            option="--lend",
            rule="merges",
        )
    return found


def _check_chained(groups: Mapping[str, str], states: Mapping[str, TaskState]) -> None:
    """Raise ApplicationError for groups that an operator with state reads, by the task that reads them, and that are
    never complete."""
    for task, reader in groups.items():
        if not states[task].completes:
            of = "groups of its own" if task == reader else f"the groups of {task!r}"
            raise ApplicationError(
                f"{reader!r} keeps state of {of}, which would count again each time that they change: give them "
                "withWatermark() and a window, so that each is emitted once, when it is complete",
                rule="watermark",
            )


def _check_columns(spec: TaskSpec, schemas: Mapping[str, StructType]) -> None:
    taken = taken_name(schemas[spec.id].names)
    if taken is not None:
        raise ApplicationError(
            f"{spec.id!r} makes a column {taken!r}, which load shedding reserves: give it another name",
            name=taken,
            rule="reserved column",
        )
    for upstream in spec.upstream if spec.key is not None else ():
        columns = schema_of_stream(schemas[upstream]).names
        if spec.key not in columns:
            raise ApplicationError(
                f"--key {spec.key} of {spec.id!r}: its input {upstream!r} has no such column; "
                f"it has {', '.join(columns)}"
            )


def _check_unions(spec: TaskSpec, plan: str) -> None:
    places = positions(plan, WEIGHT)
    if places:
        raise ApplicationError(
            f"a union in {spec.id!r} pairs columns by position, and {WEIGHT} is column {places[0]} of one input "
            f"and {places[1]} of another: use unionByName(), or select the columns of both in one order"
        )
